"""The state of all groups at one moment, as columns for computation and as rows for display."""

from collections.abc import Iterator
from dataclasses import dataclass

from koff.tracker.rows import GroupTotal, PartitionLag, build_rows, build_totals
from koff.tracker.snapshot_columns import SnapshotColumns


@dataclass(frozen=True, slots=True)
class Snapshot(SnapshotColumns):
    """All groups of a cluster, as columns of each shard (`SnapshotColumns`), rows and totals."""

    def rows(self) -> Iterator[PartitionLag]:
        """Every partition that a group committed to or is assigned: highest lag first, unknown last."""
        rows = [row for shard in self.shards.values() for row in build_rows(self, shard)]
        # `r.lag or 0`: None cannot be compared with a number. The first element puts unknown lags last.
        rows.sort(key=lambda r: (r.lag is None, -(r.lag or 0), r.group, r.topic, r.partition))
        yield from rows

    def totals(self) -> list[GroupTotal]:
        """Every group with its totals: the highest lag first, unknown lags last."""
        totals = build_totals(self)
        return sorted(totals, key=lambda t: (t.lag is None, -(t.lag or 0), t.group.name))
