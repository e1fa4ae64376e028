"""How `--start resume` begins, from a folder that may be empty, old or broken. The cluster is a fake."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from koff.client import Cluster, OffsetSpec, TopicInfo, TopicPartition
from koff.errors import ConnectError
from koff.monitor import start as starting
from koff.monitor.clock import read_moment
from koff.monitor.requests import Origin
from koff.monitor.start import Started, start
from koff.monitor.state import StateDir
from koff.tail.reader import TailReaderConf
from koff.tracker import Tracker
from tests.unit.builders import commit

PARTITIONS = 50
ORIGIN = Origin("cluster", "__consumer_offsets", "AAAAAAAAAAAAAAAAAAAAAQ", PARTITIONS)
TRUNCATED_TO = 5


class FakeCluster:
    """Has an offsets topic with records up to offset 10 in every partition."""

    id = ORIGIN.cluster_id
    conf = None

    def __init__(self) -> None:
        self.ends = dict.fromkeys(range(PARTITIONS), 10)

    def fetch_topic(self, name: str) -> TopicInfo:
        return TopicInfo(name, PARTITIONS, ORIGIN.topic_id)

    def fetch_topic_configs(self, topic: str) -> dict[str, str]:
        return {"delete.retention.ms": "86400000"}

    def fetch_offsets(
        self, at: Iterable[TopicPartition], spec: Any = OffsetSpec.LATEST, isolation: Any = None
    ) -> dict[TopicPartition, int]:
        return {p: 0 if spec is OffsetSpec.EARLIEST else self.ends[p.partition] for p in at}


@pytest.fixture(autouse=True)
def _no_coordinators(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise ConnectError("no coordinator")

    monkeypatch.setattr(starting, "fetch_groups", refuse)


def save_partitions(path: Path, partitions: Iterable[int]) -> None:
    """Leaves the state of these partitions, at position 10."""
    folder, tracker = StateDir(path), Tracker()
    for partition in partitions:
        tracker.apply(partition, *([part] for part in commit(f"g{partition}", "t", 0, 1)))
        state = tracker.save_partition(partition)
        assert state is not None
        folder.save(ORIGIN, partition, state, position=10, stamp=read_moment())


def resume(path: Path, cluster: FakeCluster | None = None) -> tuple[Started, list[dict[str, Any]]]:
    """How it began, and what was logged of the state."""
    fake = cast(Cluster, cluster or FakeCluster())
    with capture_logs() as lines:
        started = start("resume", fake, Tracker(), TailReaderConf(), state_dir=StateDir(path))
    return started, [dict(line) for line in lines if not line["event"].startswith("no snapshot")]


def test_the_first_start_with_an_empty_folder_warns_of_nothing(tmp_path):
    started, lines = resume(tmp_path)
    assert started.way == "replay"
    assert [(line["log_level"], line["event"]) for line in lines] == [("info", "nothing to resume")]


def test_a_partition_that_was_not_saved_is_read_anew_and_the_others_are_resumed(tmp_path):
    save_partitions(tmp_path, range(1, PARTITIONS))
    started, lines = resume(tmp_path)
    assert started.way == "resume"
    assert started.begin is not None
    assert started.begin.positions == dict.fromkeys(range(1, PARTITIONS), 10)
    assert [(line["event"], line.get("why")) for line in lines] == [
        ("partitions are not resumed", "nothing was saved"),
        ("resumed", None),
    ]


def test_a_state_of_a_truncated_log_is_removed_and_a_disk_that_refuses_that_is_logged(tmp_path, monkeypatch):
    save_partitions(tmp_path, range(PARTITIONS))
    cluster = FakeCluster()
    cluster.ends[7] = TRUNCATED_TO
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse_to_remove)
        started, lines = resume(tmp_path, cluster)
    assert started.way == "resume"
    assert [line["why"] for line in lines if line["event"] == "state is not removed"] == [
        f"cannot remove from --state-dir {tmp_path}: partition-00007: Read-only file system"
    ]
    assert (tmp_path / "partition-00007").exists()
    started, _ = resume(tmp_path, cluster)
    assert started.way == "resume"
    assert not (tmp_path / "partition-00007").exists()


def refuse_to_remove(path: Path, **_: Any) -> None:
    raise OSError(30, "Read-only file system")
