"""An instance of a group in a process of its own: prints each message that it is handed, as `Handed` has it.

GROUP TOPIC ZOOKEEPER BROKERS SESSION_S
"""

import sys
import time

import structlog

from koff.client import ClusterConf, TopicPartition
from koff.client.zookeeper import ConsumerGroupConf, join_consumer_group

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
name, topic, zookeeper, brokers, session_s = sys.argv[1:]
conf = ConsumerGroupConf(
    cluster=ClusterConf(brokers), session_timeout_s=float(session_s), commit_interval_s=0.5
)
with join_consumer_group(name, [topic], zookeeper, conf) as group:
    for message in group.messages():
        claim = group.claims.get(TopicPartition(message.topic, message.partition))
        if claim is not None:
            value = (message.value or b"").decode()
            told = (time.monotonic(), group.id, message.partition, message.offset, claim, value)
            print(*told, flush=True)
        message.ack()
