"""What clients return besides the structs of `laurels.model` and `laurels.http.wire`. Pure."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Literal, TypeAlias

from msgspec import Struct

from laurels.model import Entry, InstanceName

More: TypeAlias = Literal["name", "order", "submission"]


class Entries(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Entries of a board instance in order, true as of `as_of`; `total` is how many entries there are in all. `next`
    and `previous` are cursors, on pages only."""

    instance: InstanceName
    as_of: datetime
    total: int
    entries: list[Entry]
    next: str | None = None
    previous: str | None = None

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def read_order(entries: Iterable[Entry]) -> None:
    """Make instants of those terms of `order` that are some; JSON has text for them."""
    for entry in entries:
        for term in ("accepted_at", "played_at"):
            value = entry.order.get(term)
            if isinstance(value, str):
                entry.order[term] = datetime.fromisoformat(value)
