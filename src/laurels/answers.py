"""Answers to submissions: what is told to whoever submitted."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from laurels.batch import Batch
from laurels.model import Answer, EntryChange, Number, Submission
from laurels.stores.base import Accepted, seq_and_row
from laurels.windows import from_us


class Answers(Sequence[Answer]):
    """The answers to a batch, one for each row, made when they are looked at.

    `repeated` says which rows had been accepted before: their answer is the first one.
    """

    def __init__(self, batch: Batch, accepted: Accepted, submission_ids: list[str], stored: Mapping[int, Submission]):
        self._batch = batch
        self._accepted = accepted
        self._stored = stored
        self.submission_ids = submission_ids
        self.repeated = accepted.repeated

    def __len__(self) -> int:
        return len(self._batch)

    def __getitem__(self, row: int) -> Answer:  # type: ignore[override]
        if row < 0:
            row += len(self)
        if not 0 <= row < len(self):
            raise IndexError(row)
        stored = self._stored.get(row)
        return Answer(
            submission_id=self.submission_ids[row],
            player_id=self._batch.player_ids[row] if stored is None else stored.player_id,
            score=self._batch.scores[row] if stored is None else stored.score,
            accepted_at=from_us(self._accepted.accepted_at[row]),
            changes=self.changes(row),
        )

    def __iter__(self) -> Iterator[Answer]:
        return (self[row] for row in range(len(self)))

    @property
    def scores(self) -> list[Number]:
        """The score of each row as it was first accepted."""
        return [self._stored[row].score if row in self._stored else s for row, s in enumerate(self._batch.scores)]

    @property
    def accepted_at(self) -> list[datetime]:
        """When each row was accepted."""
        return [from_us(instant) for instant in self._accepted.accepted_at]

    def changes(self, row: int) -> list[EntryChange]:
        """What a row did to each board instance that it fed."""
        seq, number = seq_and_row(self._accepted.places[row])
        changes = (effect.change(number) for effect in self._accepted.outcomes[seq].effects())
        return [change for change in changes if change is not None]
