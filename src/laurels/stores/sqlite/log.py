"""The rows of the log: batches to JSON and back.

A segment holds one array a submission: player_id, score, submission_id, played_at, the place of the player's previous
submission (-1: none), then the dimensions and metrics that its `columns` name. Numbers are exact.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec

from laurels.batch import Batch
from laurels.errors import StoreDamaged
from laurels.model import Submission
from laurels.stores.base import Segment, given_id, place_of
from laurels.windows import from_us

FIXED = ("player_id", "score", "submission_id", "played_at", "previous")
DIMENSION = "dimensions."
METRIC = "metrics."

_encoder = msgspec.json.Encoder(decimal_format="number")
_rows_decoder = msgspec.json.Decoder(list[list[Any] | None], float_hook=Decimal)
_row_decoder = msgspec.json.Decoder(list[Any] | None, float_hook=Decimal)
_parts_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_columns_decoder = msgspec.json.Decoder(list[str])


def encode(batch: Batch, previous: Sequence[int]) -> tuple[str, str, int]:
    """`columns`, `rows` and `checksum` of a segment."""
    names = [*FIXED, *(DIMENSION + name for name in batch.dimensions), *(METRIC + name for name in batch.metrics)]
    dimensions = [
        [sorted(value) if isinstance(value, frozenset) else value for value in column]
        if any(isinstance(value, frozenset) for value in column)
        else column
        for column in batch.dimensions.values()
    ]
    rows = _encoder.encode(
        list(
            zip(
                batch.player_ids,
                batch.scores,
                batch.submission_ids,
                batch.played_at,
                previous,
                *dimensions,
                *batch.metrics.values(),
                strict=True,
            )
        )
    )
    return _encoder.encode(names).decode(), rows.decode(), zlib.crc32(rows)


@dataclass(slots=True)
class StoredSegment:
    """A segment as it was read: checked, cut into rows, each decoded when it is looked at."""

    seq: int
    game: str
    accepted_at: int
    columns: list[str]
    encoded: bytes
    parts: list[msgspec.Raw]

    @classmethod
    def read(cls, seq: int, game: str, accepted_at: int, columns: str, rows: str, checksum: int) -> "StoredSegment":
        """Raises StoreDamaged if the rows are not what was written."""
        encoded = rows.encode()
        if zlib.crc32(encoded) != checksum:
            raise StoreDamaged(f"segment {seq} of the log: its checksum is wrong")
        return cls(seq, game, accepted_at, _columns_decoder.decode(columns), encoded, _parts_decoder.decode(encoded))

    def __len__(self) -> int:
        return len(self.parts)

    def rows(self) -> list[list[Any] | None]:
        """The values of all rows; None for those that were erased."""
        return _rows_decoder.decode(self.encoded)

    def row(self, row: int) -> list[Any] | None:
        """The values of one row; None if it was erased."""
        return _row_decoder.decode(self.parts[row])

    def submission(self, row: int) -> Submission | None:
        """One submission, None if it was erased."""
        return self._submission(row, self.row(row))

    def submissions(self) -> list[Submission | None]:
        """All of them."""
        return [self._submission(row, values) for row, values in enumerate(self.rows())]

    def _submission(self, row: int, values: list[Any] | None) -> Submission | None:
        if values is None:
            return None
        dimensions, metrics = {}, {}
        for name, value in zip(self.columns[len(FIXED) :], values[len(FIXED) :], strict=True):
            if value is None:
                continue
            if name.startswith(DIMENSION):
                dimensions[name.removeprefix(DIMENSION)] = frozenset(value) if isinstance(value, list) else value
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
        values = self.row(row)
        return -1 if values is None else values[4]

    def without(self, rows: Sequence[int]) -> tuple[str, int]:
        """`rows` and `checksum` once these rows are erased."""
        kept = [None if row in rows else values for row, values in enumerate(self.rows())]
        encoded = _encoder.encode(kept)
        return encoded.decode(), zlib.crc32(encoded)

    def segments(self) -> Iterator[Segment]:
        """The segment as columns; in several parts where rows were erased."""
        rows = self.rows()
        start = 0
        for end in [*(row for row, values in enumerate(rows) if values is None), len(rows)]:
            if end > start:
                yield Segment(self.seq, self.game, self.accepted_at, self._batch(rows[start:end]), start)
            start = end + 1

    def _batch(self, part: Sequence[Any]) -> Batch:
        columns = dict(zip(self.columns, map(list, zip(*part, strict=True)), strict=True))
        batch = Batch(columns["player_id"], columns["score"], columns["submission_id"], columns["played_at"])
        for name in self.columns[len(FIXED) :]:
            column = columns[name]
            if name.startswith(DIMENSION):
                batch.dimensions[name.removeprefix(DIMENSION)] = [
                    frozenset(value) if isinstance(value, list) else value for value in column
                ]
            else:
                batch.metrics[name.removeprefix(METRIC)] = column
        return batch
