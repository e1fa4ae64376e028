"""Counts of records by type, group and partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from koff.cli.text_table import table
from koff.records import Message, Undecodable, Unknown
from koff.records.record_types import title

_MOST = 20


class Stats:
    """Counts messages; `text` shows the counts, most first."""

    def __init__(self) -> None:
        self._types: Counter[str] = Counter()
        self._deleted: Counter[str] = Counter()
        self._groups: Counter[str] = Counter()
        self._partitions: Counter[int] = Counter()

    def add(self, partition: int, message: Message) -> None:
        """Counts one message of that partition."""
        record = message.record
        kind = type(record).__name__ if isinstance(record, Undecodable | Unknown) else title(record)
        self._types[kind] += 1
        self._deleted[kind] += message.tombstone
        self._groups[message.consumer] += 1
        self._partitions[partition] += 1

    def text(self) -> str:
        """Three tables; of groups and partitions the busiest twenty."""
        types = [(name, count, self._deleted[name]) for name, count in self._types.most_common()]
        total = sum(self._types.values())
        return "\n".join(
            [
                table(
                    ("TYPE", "RECORDS", "DELETIONS"), [*types, ("all", total, sum(self._deleted.values()))]
                ),
                _most("GROUP", self._groups),
                _most("PARTITION", self._partitions),
            ]
        )


def _most(title_: str, counts: Counter[str] | Counter[int]) -> str:
    rows: list[Sequence[str | int]] = [(name, count) for name, count in counts.most_common(_MOST)]
    rest = len(counts) - len(rows)
    return table((title_, "RECORDS"), rows) + (f"... and {rest} more\n" if rest > 0 else "")
