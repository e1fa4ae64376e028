"""Members of groups on ZooKeeper that leave at the end of a test, also of one that failed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from koff.client.zookeeper import ConsumerGroup, ConsumerGroupConf, join_consumer_group

JoinTopics = Callable[..., ConsumerGroup]
"""`join(topics, hosts, **changes)`, where `changes` are of the configuration."""


@contextmanager
def joining(name: str, conf: ConsumerGroupConf) -> Iterator[JoinTopics]:
    """Joins the group `name`. At the end, all members leave without waiting for anything."""
    with ExitStack() as joined:

        def join(topics: Sequence[str], hosts: str, **changes: Any) -> ConsumerGroup:
            group = join_consumer_group(name, topics, hosts, replace(conf, **changes))
            joined.callback(_drop, group)
            return group

        yield join


def _drop(group: ConsumerGroup) -> None:
    if not group.closed:
        group.__exit__(RuntimeError, RuntimeError(), None)
