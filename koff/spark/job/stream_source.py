"""What a stream reads: the options of its source, and which offsets the tables have already."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from koff.client.cluster import Cluster
from koff.config.clusters import WatchedCluster
from koff.spark.source.kafka import make_recreated_error
from koff.spark.tables.coverage import Coverage, Interval
from koff.spark.tables.leases import Lease
from koff.spark.tables.schemas import Tables


def load_coverage(
    tables: Tables, cluster: Cluster, watched: WatchedCluster, name: str, lease: Lease, *, fresh: bool
) -> Coverage:
    """The coverage of the cluster for this offsets topic and these filters.

    `fresh`: the tables have no rows yet. Raises `ConnectError`, and `DataLost` if the tables have rows of an
    earlier topic of that name.
    """
    topic = watched.offsets_topic
    described = cluster.describe_topics([topic]).get(topic)
    filters = [watched.groups, watched.topics]
    coverage = Coverage(
        tables,
        name,
        lease,
        topic_id=described.topic_id if described else None,
        filter_text=json.dumps(filters) if any(filters) else "",
    )
    coverage.load(fresh=fresh)
    if other := coverage.find_other_topic():
        raise make_recreated_error(name, topic, other, coverage.topic_id or "")
    return coverage


def make_source_options(
    watched: WatchedCluster,
    name: str,
    *,
    covered: Mapping[int, Sequence[Interval]],
    max_offsets_per_batch: int,
    fail_on_data_loss: bool,
    tasks: int,
) -> dict[str, str]:
    """The options of the source `koff` for the cluster. `covered`: offsets that are not read again."""
    return {
        "brokers": watched.conf.brokers,
        "cluster": name,
        "offsetsTopic": watched.offsets_topic,
        "maxOffsetsPerBatch": str(max_offsets_per_batch),
        "covered": json.dumps(covered),
        "failOnDataLoss": str(fail_on_data_loss).lower(),
        "packed": "true",
        "tasks": str(tasks),
        **({"group": watched.groups} if watched.groups else {}),
        **({"commitsTo": watched.topics} if watched.topics else {}),
        **{f"property.{key}": value for key, value in watched.conf.properties.items()},
    }
