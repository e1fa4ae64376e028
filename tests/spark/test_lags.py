"""Rows of lag, where commits alone do not make them: what members have, and samples that say little."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from koff.client import TopicPartition
from koff.client.cluster_conf import ListedOffset
from koff.client.metadata import Metadata, PartitionMetadata
from koff.spark.job.batch_writer import BatchWriter
from koff.spark.job.end_offsets import EndOffsetSampler, Sample
from koff.spark.job.lag_rows import join_lag_inputs, lag_rows
from koff.spark.tables.schemas import TABLES, Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEW = "AAAAAAAAAAAAAAAAAAAAAQ"
ASSIGNED = {
    "alone": [("growing", 0, "me", "/h"), ("never-sampled", 0, "me", "/h")],
    "sharing": [("growing", 0, "b", "/a"), ("growing", 0, "a", "/b")],
    "of-cut": [("cut", 0, "me", "/h")],
    "early": [(NEW, 0, "me", "/h")],
}
"""Topic, partition, client id and host, by group."""


def sampled(topic: str, minute: int, end: int, topic_id: str | None = None) -> Sample:
    return Sample(datetime.fromtimestamp(minute * 60, UTC), topic, 0, topic_id, 0, end, end, gone=False)


@pytest.fixture(scope="module")
def lags(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str, int], Any]:
    """The rows of lag of groups that have partitions and have committed nothing."""
    tables = Tables(spark, str(tmp_path_factory.mktemp("lags") / "t"))
    tables.create_tables()
    states = [("c", 0, group, 1, "consumer", "Stable", "{}", each, None) for group, each in ASSIGNED.items()]
    frame = spark.createDataFrame(states, tables.frame("group_states").schema)
    frame.write.format("delta").mode("append").save(tables.path("group_states"))
    before = [sampled("growing", 1, 600), sampled("cut", 1, 600), sampled("cut", 2, 100)]
    BatchWriter(tables, "c").write_sample(before, 0)
    now = [sampled("growing", 3, 1800), sampled("cut", 3, 160), sampled("new", 3, 7, NEW)]
    BatchWriter(tables, "c").write_sample(now, 1)
    ends, known = tables.cluster_frame("end_offsets", "c"), tables.cluster_frame("group_states", "c")
    rows = join_lag_inputs(
        ends.where(ends.batch == 1), tables.cluster_frame("current", "c"), known, ends, reach_s=86_400
    )
    made = rows.mapInArrow(lag_rows, TABLES["lag"].ddl).collect()
    return {(row["group"], row.topic, row.partition): row for row in made}


def test_a_partition_without_ends_has_no_rate(lags: dict[tuple[str, str, int], Any]) -> None:
    assert lags["alone", "growing", 0].produce_per_s == pytest.approx(10)
    assert lags["alone", "never-sampled", 0].produce_per_s is None


def test_an_end_that_went_back_begins_the_rate_anew(lags: dict[tuple[str, str, int], Any]) -> None:
    assert lags["of-cut", "cut", 0].produce_per_s == pytest.approx(1)


def test_the_client_of_a_partition_that_several_have_is_one_of_them(
    lags: dict[tuple[str, str, int], Any],
) -> None:
    row = lags["sharing", "growing", 0]
    assert (row.client_id, row.client_host) == ("a", "/b")


def test_a_topic_whose_name_was_not_known_when_it_was_assigned_goes_by_its_name(
    lags: dict[tuple[str, str, int], Any],
) -> None:
    (place,) = (at for at in lags if at[0] == "early")
    assert place == ("early", "new", 0)
    assert (lags[place].client_id, lags[place].end_offset) == ("me", 7)


class OneTopic:
    """A cluster whose only topic was made a moment ago."""

    def __init__(self) -> None:
        self.lister = self

    def fetch_metadata(self) -> Metadata:
        return Metadata("id", 1, (), {"new": (PartitionMetadata(0, 1),)}, {"new": NEW})

    def list_offsets(
        self, partitions: Iterable[TopicPartition], *_: object
    ) -> dict[TopicPartition, ListedOffset | str]:
        return dict.fromkeys(partitions, ListedOffset(7, 0))

    def refresh_leaders(self, *, timeout_s: float) -> None:
        """They stay."""


def sample_one_topic() -> EndOffsetSampler:
    cluster: Any = OneTopic()
    return EndOffsetSampler(cluster)


def test_what_is_watched_by_its_topics_id_is_sampled_by_name_and_once() -> None:
    (sample,) = sample_one_topic().take_sample([(NEW, 0), ("new", 0)])
    assert (sample.topic, sample.topic_id, sample.end_offset, sample.gone) == ("new", NEW, 7, False)


def test_what_is_watched_by_an_id_that_nobody_has_is_gone() -> None:
    (sample,) = sample_one_topic().take_sample([("AAAAAAAAAAAAAAAAAAAAAg", 0)])
    assert (sample.topic, sample.gone) == ("AAAAAAAAAAAAAAAAAAAAAg", True)


def test_a_partition_that_cannot_be_is_gone_and_is_not_requested() -> None:
    """A record may name any partition; librdkafka refuses a request with a name that has a zero byte."""
    rows = sample_one_topic().take_sample([("new", -1), ("a\0b", -5), ("new", 0)])
    assert [(row.topic, row.partition, row.end_offset) for row in rows if not row.gone] == [("new", 0, 7)]
    assert len(rows) == 3
