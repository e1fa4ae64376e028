"""The families of a cluster. They are always served, and the limit on series leaves out none of them."""

import re

import numpy as np

from koff.lag import Reason
from koff.serve.metrics.family import Few
from koff.serve.metrics.numbers import CLUSTER
from koff.view.cluster_view import ClusterView


@CLUSTER.family(
    ("group",),
    "1",
    "koff_expected_group_present == 0",
    "koff cannot know it at present; the configuration expects no group",
)
def koff_expected_group_present(view: ClusterView) -> Few:
    """1 if the group, which the configuration expects, is there; 0 if it is absent."""
    return {name: int(is_present) for name, is_present in view.expected_groups.items()}


@CLUSTER.family((), "shards", absent="koff reads the whole cluster")
def koff_shards(view: ClusterView) -> Few:
    """Among so many processes the groups of the cluster are divided (--shard). Each has the label shard."""
    _, _, count = view.labels.get("shard", "").partition("/")
    return int(count) if re.fullmatch("[0-9]{1,9}", count) else None


@CLUSTER.family(("reason",), "lags", "sum by (cluster) (koff_rows_withheld) > 0")
def koff_rows_withheld(view: ClusterView) -> Few:
    """Lags (group, topic, partition) that are not served because an offset in them is not current."""
    commits = ends = 0
    for shard in view.snapshot.shards.values():
        stale = shard.is_withheld(Reason.COMMITS_NOT_CURRENT)
        commits += int(np.count_nonzero(stale))
        # A row with both reasons counts as one with the first.
        ends += int(np.count_nonzero(shard.is_withheld(Reason.END_NOT_CURRENT) & ~stale))
    return {Reason.COMMITS_NOT_CURRENT.names[0]: commits, Reason.END_NOT_CURRENT.names[0]: ends}


@CLUSTER.family((), "brokers", "koff_brokers < 3", "as koff_topic_partitions")
def koff_brokers(view: ClusterView) -> Few:
    """Brokers that the cluster lists."""
    return view.facts.brokers


@CLUSTER.family(("broker",), "bytes", absent="as koff_topic_log_size_bytes")
def koff_broker_log_size_bytes(view: ClusterView) -> Few:
    """Size of all logs on the broker, also of topics that are not shown."""
    return {broker: sum(by_topic.values()) for broker, by_topic in view.facts.log_sizes.items()}
