"""A member of a classic group that assigns itself whatever the test says, as any client may."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from kio.schema.join_group.v3 import request as join
from kio.schema.sync_group.v1 import request as sync
from kio.schema.types import GroupId
from kio.static.primitive import i32Timedelta

from koff.client import ClusterConf
from koff.client.wire.connection import Connection
from koff.kafkatest import KafkaCluster, wait_until

SESSION, REBALANCE = timedelta(minutes=5), timedelta(seconds=5)


def join_with_partitions(kafka: KafkaCluster, group: str, topic: str, partitions: Sequence[int]) -> None:
    """Joins a group of a cluster of one broker, as its leader, and assigns these partitions to itself.

    It sends no heartbeats: the coordinator removes it after five minutes.
    """
    name = struct.pack(f">h{len(topic)}s", len(topic), topic.encode())
    subscription = struct.pack(">hi", 0, 1) + name + struct.pack(">i", -1)
    assignment = struct.pack(">hi", 0, 1) + name
    assignment += struct.pack(f">i{len(partitions)}ii", len(partitions), *partitions, -1)
    host, port = kafka.bootstrap.split(":")
    with Connection.connect(ClusterConf(kafka.bootstrap), host, int(port)) as connection:

        def join_group() -> Any:
            protocol = join.JoinGroupRequestProtocol(name="range", metadata=subscription)
            request = join.JoinGroupRequest(
                group_id=GroupId(group),
                session_timeout=i32Timedelta.parse(SESSION),
                rebalance_timeout=i32Timedelta.parse(REBALANCE),
                member_id="",
                protocol_type="consumer",
                protocols=(protocol,),
            )
            response = connection.send_request(request)
            return response if int(response.error_code) == 0 else None

        joined = wait_until(join_group, what="the response to JoinGroup")
        own = sync.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)
        request = sync.SyncGroupRequest(
            group_id=GroupId(group),
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=(own,),
        )
        assert int(connection.send_request(request).error_code) == 0
