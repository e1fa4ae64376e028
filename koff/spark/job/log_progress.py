"""How far a stream has read the offsets topic: where batches begin and end, and if the log was truncated.

Mappings of offsets are by partition of the offsets topic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from koff.client.cluster import Cluster
from koff.client.cluster_conf import Isolation, OffsetSpec, TopicPartition
from koff.errors import KoffError
from koff.spark.rows.decoding import DataLost
from koff.spark.source.log_position import LogPosition
from koff.spark.tables.coverage import Span, count_offsets, make_spans
from koff.spark.tables.schemas import Tables, filesystem, read_text


class WrongCheckpoint(KoffError):
    """The checkpoint is of other tables or of another cluster, or damaged."""


class LogProgress:
    """The positions of one cluster's stream, beside the offsets at which its log starts and ends.

    Call `fetch_bounds` at the start of the stream. Then, for each batch: `begin_batch`, `fetch_ends` when the
    records of the batch are in the tables, and `note_sample` just after a sample of end offsets was taken.
    `name` is the cluster's name in tables and errors.
    """

    def __init__(
        self, tables: Tables, cluster: Cluster, name: str, offsets_topic: str, *, once: bool
    ) -> None:
        self._tables, self._cluster = tables, cluster
        self._name, self._topic, self._once = name, offsets_topic, once
        self.target: Mapping[int, int] = {}
        """The last stable offsets at the start: with `once` the stream ends there."""
        self.log_starts: Mapping[int, int] = {}
        """The log start offsets at the start."""
        self.positions: Mapping[int, int] = {}
        """Where the newest batch ends."""
        self.starts: Mapping[int, int] = {}
        """Where the newest batch begins; no offsets if it is the first of a new checkpoint."""
        self._counted_to: Mapping[int, int] | None = None
        """Where the newest batch ends that was counted; None before the first batch."""
        self._last_stable: Mapping[int, int] = {}
        """The last stable offsets at the newest sample, else those at the start."""
        self._truncated: dict[int, int] = {}
        """The truncated partitions that the batch before has seen, with their last stable offsets."""

    def fetch_bounds(self) -> None:
        """Fetches where the log starts and ends now. Raises `ConnectError`."""
        self.target = self._last_stable = self._fetch_offsets(OffsetSpec.LATEST)
        self.log_starts = self._fetch_offsets(OffsetSpec.EARLIEST)

    def find_committed(self) -> tuple[LogPosition, list[Span]]:
        """Where the stream continues, and the offsets of the newest batch that Spark recorded as written.

        Raises `WrongCheckpoint` if Spark cannot continue from the checkpoint.
        """
        written, begun = self._find_newest("commits"), self._find_newest("offsets")
        if written >= 0 and not self._read_file("commits", written):
            raise self.make_checkpoint_error(f"the file commits/{written} is empty")
        self._read_position(begun)  # for its error: Spark's has no cure
        # A batch that is not recorded as written is repeated.
        position = self._read_position(begun if begun == written else begun - 1)
        starts, ends = (self._read_position(number).offsets for number in (written - 1, written))
        return position, make_spans(starts, ends)

    def make_checkpoint_error(self, why: str) -> WrongCheckpoint:
        """The error for a checkpoint that the stream must not continue from."""
        return WrongCheckpoint(
            f"cluster {self._name}: the checkpoint {self._tables.checkpoint_path(self._name)} cannot be "
            f"continued: {why}; delete this folder: the next run then reads the log from its start, without "
            "the offsets that the tables have"
        )

    def begin_batch(self, batch: int) -> LogPosition:
        """Reads where the batch begins and ends. Returns the position at its end."""
        self.starts = self.positions or self._read_position(batch - 1).offsets
        position = self._read_position(batch)
        self.positions = position.offsets
        return position

    def fetch_ends(self) -> int:
        """Fetches where the log ends after the batch. Returns how many offsets are not read yet.

        Raises `ConnectError`, and `DataLost` if the log was truncated.
        """
        ends = self._fetch_offsets(OffsetSpec.LATEST)
        self._check_truncation(ends)
        return count_offsets(make_spans(self.positions, ends))

    def note_sample(self) -> None:
        """Fetches where the log ends now: a batch up to there has all commits before the sample.

        Raises `ConnectError`.
        """
        self._last_stable = self._fetch_offsets(OffsetSpec.LATEST)

    @property
    def spans(self) -> list[Span]:
        """The offsets of the batch."""
        return make_spans(self.starts, self.positions)

    @property
    def offsets_to_target(self) -> int:
        """How many offsets there are from the start of the batch to the target."""
        return count_offsets(make_spans(self.starts or self.log_starts, self.target))

    @property
    def is_done(self) -> bool:
        """Whether the tables have the log up to the target."""
        return self._has_read(self.target)

    @property
    def may_sample(self) -> bool:
        """Whether lag may be computed from the newest sample and the commits up to the end of this batch."""
        if not self._has_read(self._last_stable):
            return False  # commits that are not in the tables yet would look like lag
        # Otherwise the commits that were read are no longer in the log, or the topic is gone.
        return not self._truncated and bool(self._last_stable or not self.positions)

    def count_batch(self, batch: int) -> tuple[int, int]:
        """How many offsets there are from the start of this batch to the target, and how many the batch has.

        Offsets beyond the target do not count. Call this once for each batch, in their order.
        """
        if self._counted_to is None:
            self._counted_to = self._read_position(batch - 1).offsets or self.log_starts
        left = self._count_offsets_to(self.target)
        ends = self._read_position(batch).offsets
        amount = self._count_offsets_to(ends)
        self._counted_to = {**self._counted_to, **ends}
        return left, amount

    def _count_offsets_to(self, ends: Mapping[int, int]) -> int:
        """How many offsets lie between the last counted batch and `ends`; beyond the target none counts."""
        within = {p: min(end, ends.get(p, 0)) for p, end in self.target.items()}
        return count_offsets(make_spans(self._counted_to or {}, within))

    def _has_read(self, ends: Mapping[int, int]) -> bool:
        """Whether the tables have the log up to these offsets."""
        return all(self.positions.get(p, 0) >= end for p, end in ends.items())

    def _check_truncation(self, ends: Mapping[int, int]) -> None:
        """Raises `DataLost` if a partition ends below the offset that was read.

        The partition has to be seen like this in two batches in a row, except with `once`: a new leader may
        not know its last stable offset at once.
        """
        truncated = {p: end for p, end in ends.items() if end < self.positions.get(p, 0)}
        confirmed = truncated.keys() if self._once else truncated.keys() & self._truncated.keys()
        self._truncated = truncated
        for partition in sorted(confirmed):
            raise DataLost(
                f"cluster {self._name}: partition {partition} of {self._topic} ends at "
                f"{truncated[partition]}, below offset {self.positions[partition]} that was read: the log "
                "was truncated; read it under another name of the cluster, or into new tables"
            )

    def _fetch_offsets(self, spec: OffsetSpec) -> dict[int, int]:
        """Offsets of the offsets topic; partitions with an error are left out."""
        info = self._cluster.fetch_topic(self._topic)
        partitions = [TopicPartition(self._topic, p) for p in range(info.partitions if info else 0)]
        offsets = self._cluster.fetch_offsets(partitions, spec, Isolation.READ_COMMITTED)
        return {at.partition: offset for at, offset in offsets.items() if isinstance(offset, int)}

    def _read_position(self, batch: int) -> LogPosition:
        """Where the batch ends, by the checkpoint, which Spark writes before a batch; else no offsets.

        Raises `WrongCheckpoint` for a file that was cut off: a machine lost its power.
        """
        text = self._read_file("offsets", batch)
        if text is None:
            return LogPosition({})
        try:
            # Line 1 is the version, line 2 Spark's metadata, then a line for each source: koff's first.
            return LogPosition.from_json(json.loads(text.splitlines()[2]))
        except (IndexError, ValueError):
            raise self.make_checkpoint_error(f"the file offsets/{batch} was cut off") from None

    def _find_newest(self, folder: str) -> int:
        """The number of the newest batch that has a file in this folder of the checkpoint; -1 without one."""
        fs, path = filesystem(self._tables.spark, f"{self._tables.checkpoint_path(self._name)}/{folder}")
        names = [status.getPath().getName() for status in fs.listStatus(path)] if fs.exists(path) else []
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def _read_file(self, folder: str, batch: int) -> str | None:
        """The file of the batch in a folder of the checkpoint; None if there is none."""
        path = f"{self._tables.checkpoint_path(self._name)}/{folder}/{batch}"
        fs, at = filesystem(self._tables.spark, path)
        return read_text(self._tables.spark, path) if batch >= 0 and fs.exists(at) else None
