"""The rows of the log, and what they did: columns to bytes and back.

A segment holds a column each of player_id, score, submission_id, played_at and `previous` (the place of the player's
previous submission, -1: none), then the dimensions and metrics of its batch. Every value keeps its type; numbers are
exact. How columns lie packed is told in `native/src/packed.rs`.
"""

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from laurels._native import Outcome, PackedRows
from laurels.batch import Batch
from laurels.errors import StoreDamaged
from laurels.model import InstanceName, Submission
from laurels.stores.base import Effect, Segment, given_id, place_of
from laurels.windows import from_us

FIXED = ("player_id", "score", "submission_id", "played_at", "previous")
DIMENSION = "dimensions."
METRIC = "metrics."


def encode(batch: Batch, previous: list[int]) -> tuple[int, bytes, int]:
    """`size`, `rows` and `checksum` of a segment."""
    values = (batch.player_ids, batch.scores, batch.submission_ids, batch.played_at, previous)
    columns: list[tuple[str, list[Any]]] = list(zip(FIXED, values, strict=True))
    columns += [(DIMENSION + name, column) for name, column in batch.dimensions.items()]
    columns += [(METRIC + name, column) for name, column in batch.metrics.items()]
    rows = PackedRows.pack(columns)
    return len(batch), rows, zlib.crc32(rows)


@contextmanager
def _intact(what: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, msgspec.MsgspecError) as error:
        raise StoreDamaged(f"{what}: {error}") from error


@dataclass(slots=True)
class StoredSegment:
    """A segment as it was read and checked; a value is decoded when it is looked at."""

    seq: int
    game: str
    accepted_at: int
    packed: PackedRows
    names: list[str]

    @classmethod
    def read(cls, seq: int, game: str, accepted_at: int, rows: bytes, checksum: int) -> "StoredSegment":
        """Raises StoreDamaged if the rows are not what was written."""
        what = f"segment {seq} of the log"
        if zlib.crc32(rows) != checksum:
            raise StoreDamaged(f"{what}: its checksum is wrong")
        with _intact(what):
            packed = PackedRows(rows)
        names = packed.names
        if tuple(names[: len(FIXED)]) != FIXED:
            raise StoreDamaged(f"{what}: has the columns {names}")
        return cls(seq, game, accepted_at, packed, names)

    def __len__(self) -> int:
        return len(self.packed)

    def submission(self, row: int) -> Submission | None:
        """One submission, None if it was erased."""
        with _intact(f"segment {self.seq} of the log"):
            values = self.packed.row(row)
        return None if values is None else self._submission(row, values)

    def submissions(self) -> list[Submission | None]:
        """All of them."""
        found: list[Submission | None] = [None] * len(self)
        for start, columns in self._parts():
            for row, values in enumerate(zip(*columns, strict=True), start):
                found[row] = self._submission(row, values)
        return found

    def _submission(self, row: int, values: Sequence[Any]) -> Submission:
        dimensions, metrics = {}, {}
        for name, value in zip(self.names[len(FIXED) :], values[len(FIXED) :], strict=True):
            if value is None:
                continue
            if name.startswith(DIMENSION):
                dimensions[name.removeprefix(DIMENSION)] = value
            else:
                metrics[name.removeprefix(METRIC)] = value
        return Submission(
            submission_id=values[2] if values[2] is not None else given_id(place_of(self.seq, row)),
            player_id=values[0],
            score=values[1],
            accepted_at=from_us(self.accepted_at + row),
            played_at=None if values[3] is None else from_us(values[3]),
            dimensions=dimensions,
            metrics=metrics,
        )

    def previous(self, row: int) -> int:
        """The place of the same player's previous submission, -1 if there is none."""
        with _intact(f"segment {self.seq} of the log"):
            values = self.packed.row(row)
        return -1 if values is None else values[4]

    def without(self, rows: list[int]) -> tuple[bytes, int]:
        """`rows` and `checksum` once these rows are erased."""
        with _intact(f"segment {self.seq} of the log"):
            left = self.packed.without(rows)
        return left, zlib.crc32(left)

    def segments(self) -> Iterator[Segment]:
        """The segment as columns; in several parts where rows were erased."""
        for start, columns in self._parts():
            batch = Batch(columns[0], columns[1], columns[2], columns[3])
            for name, column in zip(self.names[len(FIXED) :], columns[len(FIXED) :], strict=True):
                if name.startswith(DIMENSION):
                    batch.dimensions[name.removeprefix(DIMENSION)] = column
                else:
                    batch.metrics[name.removeprefix(METRIC)] = column
            yield Segment(self.seq, self.game, self.accepted_at, batch, start)

    def _parts(self) -> Iterator[tuple[int, list[list[Any]]]]:
        """Rows that follow each other, none of them erased, as columns: the first row and the columns."""
        start = 0
        for end in [*self.packed.erased, len(self)]:
            if end > start:
                with _intact(f"segment {self.seq} of the log"):
                    columns = self.packed.columns(start, end)
                yield start, columns
            start = end + 1


def decode_places(rows: bytes) -> tuple[list[str], list[int]]:
    """The players of a chunk of latest places, in order, and their places."""
    with _intact("the latest places of players"):
        packed = PackedRows(rows)
        player_ids, places = packed.columns(0, len(packed)) if len(packed) else ([], [])
    return player_ids, places


class _KeptEffect(msgspec.Struct, array_like=True):
    instance: InstanceName
    scale: int
    changes: bytes


_effects_decoder = msgspec.msgpack.Decoder(list[_KeptEffect])


def encode_effects(effects: Sequence[Effect]) -> bytes:
    """What a segment did, for repeats."""
    kept = [_KeptEffect(effect.instance, effect.scale, effect.changes.pack(list(effect.rows))) for effect in effects]
    return msgspec.msgpack.encode(kept)


def decode_effects(seq: int, effects: bytes) -> list[Effect]:
    """The inverse of `encode_effects`."""
    with _intact(f"the answers to segment {seq} of the log"):
        kept = _effects_decoder.decode(effects)
        return [Effect(effect.instance, effect.scale, *Outcome.unpack(effect.changes)) for effect in kept]
