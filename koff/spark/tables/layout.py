"""How Delta stores each table: its statistics and properties, and which columns are never null."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layout:
    """How a table is stored, besides its partitions.

    `required` are the columns that are never null. `filtered` are those that queries filter by, as far as a
    file has only a part of their values: Delta keeps the least and the largest value of each file, so that a
    query reads fewer files. This costs CPU time for each row. Maintenance sorts the rows of past days by
    `sorted_by` ("": not); a file then has few groups, but nearly all topics. A `busy` table is changed with
    each batch, and its old versions are of no use. With `deletion_vectors`, a change of a few rows does not
    rewrite their files.
    """

    required: tuple[str, ...] = ()
    filtered: tuple[str, ...] = ()
    sorted_by: str = ""
    busy: bool = False
    deletion_vectors: bool = False

    @property
    def replaced_files_days(self) -> int:
        """How long files stay that a newer version does not have: so long can an old version be read."""
        return 1 if self.busy else 7

    def make_properties(self) -> dict[str, str]:
        """The properties of Delta."""
        # A version can be read until its files are deleted, so its log is of no use for longer. Delta deletes
        # logs by whole days.
        kept = f"interval {self.replaced_files_days} days"
        properties = {
            "delta.logRetentionDuration": kept,
            "delta.deletedFileRetentionDuration": kept,
            # A checkpoint lists all files of the table. Busy tables have few files and many versions.
            "delta.checkpointInterval": "50" if self.busy else "20",
        }
        if self.filtered:
            names = (f"`{name}`" for name in self.filtered)
            properties["delta.dataSkippingStatsColumns"] = ",".join(names)
        if self.deletion_vectors:
            properties["delta.enableDeletionVectors"] = "true"
        return properties


_RECORD = ("offsets_partition", "log_offset")
_SLOT = ("group", "topic", "partition")
LAYOUTS: Mapping[str, Layout] = {
    "commits": Layout(("cluster", *_RECORD, *_SLOT), (*_RECORD, "timestamp", "group"), sorted_by="group"),
    "groups": Layout(("cluster", *_RECORD, "group", "gone"), (*_RECORD, "timestamp", "group"), "group"),
    "assignments": Layout(("cluster", *_RECORD, "group"), (*_RECORD, "timestamp", "group"), "group"),
    "quarantine": Layout(("cluster", *_RECORD), (*_RECORD, "timestamp")),
    "end_offsets": Layout(
        ("cluster", "at", "topic", "partition", "gone", "day"), ("at", "topic", "partition")
    ),
    "lag": Layout(("cluster", "at", *_SLOT, "day"), ("at", "full_at", "group"), sorted_by="group"),
    "samples": Layout(("cluster", "at", "full_at", "day"), ("at", "full_at")),
    "lag_hourly": Layout(("cluster", "hour", "group", "day"), ("hour", "group", "topic"), sorted_by="group"),
    "end_curves": Layout(("cluster", "topic", "partition", "until"), ("topic", "partition"), busy=True),
    "current": Layout(
        ("cluster", *_SLOT, *_RECORD, "deleted"),
        (*_SLOT, *_RECORD, "timestamp", "commit_timestamp"),
        busy=True,
        deletion_vectors=True,
    ),
    "group_states": Layout(
        ("cluster", *_RECORD, "group"), (*_RECORD, "group"), busy=True, deletion_vectors=True
    ),
    "coverage": Layout(
        ("cluster", "offsets_partition", "from_offset", "to_offset", "complete", "filter", "at"),
        ("offsets_partition", "from_offset", "to_offset", "at"),
        busy=True,
    ),
    "leases": Layout(
        ("cluster", "sequence", "owner", "host", "process", "nonce", "released", "at"),
        ("sequence", "at"),
        busy=True,
    ),
}
"""By table."""
