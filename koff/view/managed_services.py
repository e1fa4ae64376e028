"""The managed Kafka services that koff knows by name, and what to expect of each (docs/managed).

A service is known by the host names of its brokers, or by the id that they give the cluster. No behavior of
koff depends on it: `koff doctor` and the log of `koff monitor` say it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ManagedService:
    """A service: `hosts` is found in host names of its brokers, `cluster_ids` in the ids of its clusters.

    `file` in docs/managed says more than the sentence `expect`.
    """

    name: str
    file: str
    expect: str
    hosts: str
    cluster_ids: str = r"(?!)"
    """By default, no id."""

    @property
    def page(self) -> str:
        """The path of its page in koff's repository."""
        return f"docs/managed/{self.file}"


SERVICES = (
    ManagedService(
        "Amazon MSK Serverless",
        "msk.md",
        "log in by IAM; without the right to read __consumer_offsets, koff asks the coordinators, and knows"
        " no commit times and rates; sizes of logs are not known",
        r"\.kafka-serverless\.[a-z0-9-]+\.amazonaws\.com\Z",
    ),
    ManagedService(
        "Amazon MSK",
        "msk.md",
        "a cluster of Apache Kafka; with IAM, policies take the place of kafka-acls",
        r"\.kafka\.[a-z0-9-]+\.amazonaws\.com\Z",
    ),
    ManagedService(
        "Confluent Cloud",
        "confluent-cloud.md",
        "nobody may read __consumer_offsets: koff asks the coordinators, and knows no commit times and rates",
        r"\.confluent\.cloud\Z",
    ),
    ManagedService(
        "Azure Event Hubs",
        "event-hubs.md",
        "use --source coordinators: there is no __consumer_offsets; groups without members are not listed",
        r"\.servicebus\.(windows\.net|chinacloudapi\.cn|usgovcloudapi\.net|cloudapi\.de)\Z",
    ),
    ManagedService(
        "Redpanda",
        "redpanda.md",
        "koff needs 26.1, and asks the coordinators, because Redpanda puts groups into other partitions of"
        " __consumer_offsets than Apache Kafka does: commit times and rates are not known",
        r"\.cloud\.redpanda\.com\Z",
        r"\Aredpanda\.",
    ),
    ManagedService(
        "Aiven for Apache Kafka",
        "aiven.md",
        "a cluster of Apache Kafka; the user needs the permission of reading on __consumer_offsets",
        r"\.aivencloud\.com\Z",
    ),
    ManagedService(
        "WarpStream",
        "warpstream.md",
        "there is no offsets topic to read: koff asks the coordinators, and knows no commit times and rates",
        r"\.warpstream\.com\Z",
    ),
    ManagedService(
        "AutoMQ",
        "automq.md",
        "a fork of Apache Kafka with the same offsets topic: koff reads the log",
        r"\.automq\.private\Z",
    ),
)
"""The first that fits counts."""


def find_service(hosts: Iterable[str], cluster_id: str | None = None) -> ManagedService | None:
    """The service to which brokers of these host names belong, or a cluster of that id. None if unknown."""
    names = [host.lower().rstrip(".") for host in hosts]
    for service in SERVICES:
        if any(re.search(service.hosts, name) for name in names):
            return service
    return next((each for each in SERVICES if re.search(each.cluster_ids, cluster_id or "")), None)
