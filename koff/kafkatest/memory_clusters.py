"""Readers and writers of `koff.client.multicluster` on clusters in memory.

    clusters = MemoryClusters("east:9092", "west:9092", topics={"orders": 3})
    with clusters.writer({"east": ClusterConf("east:9092")}, WriterConf("orders")) as writer:
        writer.write_messages(Message(b"one"))
    clusters["east:9092"].go_down()

The clusters share one clock. `fail` and `delay` of a broker are for its "consume", "produce" and "commit".
"""

from collections.abc import Mapping, Sequence

from koff.client.cluster_conf import ClusterConf
from koff.client.multicluster.conf import ReaderConf, WriterConf
from koff.errors import ConfigError, ConnectError
from koff.kafkatest.memory_broker import MemoryBroker
from koff.kafkatest.memory_reader import MemoryReader
from koff.kafkatest.memory_writer import MemoryWriter
from koff.kafkatest.virtual_clock import VirtualClock


class MemoryClusters:
    """Brokers in memory, each with the same topics. `clusters[address]` is a `MemoryBroker`."""

    def __init__(self, *addresses: str, topics: Mapping[str, int] | None = None) -> None:
        self.clock = VirtualClock()
        self.brokers = {
            address: MemoryBroker(topics, clock=self.clock, name=address) for address in addresses
        }

    def __getitem__(self, address: str) -> MemoryBroker:
        """The broker of the address. Raises `ConnectError` for an address without one."""
        if address not in self.brokers:
            raise ConnectError(f"there is no cluster in memory at {address}: name it in MemoryClusters")
        return self.brokers[address]

    def create_topic(self, name: str, partitions: int = 1) -> str:
        """Creates the topic in each cluster, and returns its name."""
        for broker in self.brokers.values():
            broker.create_topic(name, partitions)
        return name

    def reader(
        self, clusters: Mapping[str, ClusterConf], confs: ReaderConf | Sequence[ReaderConf]
    ) -> MemoryReader:
        """A reader, as `Reader(clusters, confs)` makes it. A reader is the only member of its groups.

        `ReaderConf.redelivery` is refused: the members of a `MemoryZooKeeper` deliver messages again.
        """
        if any(conf.redelivery for conf in ([confs] if isinstance(confs, ReaderConf) else confs)):
            raise ConfigError("a reader in memory has no redelivery: leave ReaderConf.redelivery out")
        return MemoryReader(clusters, confs, self.__getitem__, self.clock)

    def writer(self, clusters: Mapping[str, ClusterConf], conf: WriterConf) -> MemoryWriter:
        """A writer, as `Writer(clusters, conf)` makes it."""
        if not clusters:
            raise ConfigError("a writer needs at least one cluster: pass a name and a ClusterConf")
        return MemoryWriter({name: self[cluster.brokers] for name, cluster in clusters.items()}, conf)
