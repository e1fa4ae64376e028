"""A member of a group on ZooKeeper that leaves the group on SIGINT or SIGTERM.

    python examples/zookeeper_group.py GROUP TOPIC[,TOPIC...] ZOOKEEPER BROKERS

After a signal, the program finishes the message that it is processing, commits it, and ends.
"""

from __future__ import annotations

import signal
import sys
from contextlib import suppress

from koff.client import ClusterConf
from koff.client.zookeeper import AlreadyClosing, ConsumerGroupConf, join_consumer_group


def main(name: str, topics: str, zookeeper: str, brokers: str) -> None:
    """Processes messages until a signal arrives."""
    conf = ConsumerGroupConf(cluster=ClusterConf(brokers))
    processed = 0
    # The end of the block waits until the member has left the group, and raises UncleanClose if an offset
    # was not committed.
    with join_consumer_group(name, topics.split(","), zookeeper, conf) as group:

        def leave(_signal: int, _frame: object) -> None:
            with suppress(AlreadyClosing):  # a second signal
                group.close()  # returns at once; `messages` ends after the present message

        signal.signal(signal.SIGINT, leave)
        signal.signal(signal.SIGTERM, leave)
        for message in group.messages():
            print(message.topic, message.partition, message.offset, message.value, flush=True)
            processed += 1
            message.ack()
    print(f"processed {processed} messages", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
