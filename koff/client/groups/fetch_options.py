"""The options of `fetch_from_coordinators`: which groups, what of them, and for how long koff tries."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

ShareOffsets = Literal["too", "only", "not"]
"""Whether offsets of share groups are fetched besides those of the others. "only": no other groups at all."""


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """Which groups are fetched, and what of them. Without `describe`, members are not fetched.

    Only groups that pass `group_filter` are fetched, and of the offsets topic's partitions only those of
    `partitions`. `empty` are the partitions without records (see `FetchedGroups.elsewhere`).

    `known` are groups that existed before. koff requests by name those that they do not list:
    `FetchedGroups.unlisted`.

    koff tries until `deadline_s` is over. With `patience_s`, a broker that is silent for so long is given up,
    and no round begins later than that after the start.
    """

    group_filter: Callable[[str], bool] | None = None
    deadline_s: float = 30.0
    patience_s: float | None = None
    describe: bool = True
    partitions: frozenset[int] | None = None
    share_offsets: ShareOffsets = "too"
    empty: frozenset[int] = frozenset()
    known: frozenset[str] = frozenset()

    def is_chosen(self, group: str) -> bool:
        """Whether the group passes the filter."""
        return self.group_filter is None or self.group_filter(group)
