"""Records that no broker writes: garbage, types and versions of the future, impossible names and numbers.

Any client with the right to write to the internal topics can write them. Some need only a strange client.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tests.simulation.encoding import write
from tests.simulation.facts import Classic, ClassicMember, Commit, Current, Fact, Own, Profile
from tests.simulation.logs import Written

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

OFFSETS = "__consumer_offsets"
SHARE_STATE = "__share_group_state"
HUGE = 2**31 - 1
INVALID = b"\xff" * 22_000
"""A name that is not UTF-8, and whose replacement characters take three times as many bytes."""


def write_hostile_record(cluster: Cluster) -> None:
    """Writes one hostile record, or a few that belong together."""
    rng = cluster.rng
    kind = rng.choice((_write_garbage, _write_bytes, _write_group, _write_commits, _write_misplaced))
    kind(cluster)


def _write_garbage(cluster: Cluster) -> None:
    """Random bytes, in either internal topic."""
    rng = cluster.rng
    key, value = rng.randbytes(rng.randint(0, 40)), rng.randbytes(rng.randint(0, 40))
    if rng.random() < 0.5:  # so that more than the first two bytes are looked at
        key = struct.pack(">h", rng.randint(0, 24)) + key
    written = Written(rng.choice((key, None)), rng.choice((value, None)))
    # Random bytes never name an ordinary group: a name of at least 7 characters has to be hit.
    topic = rng.choice((OFFSETS, OFFSETS, SHARE_STATE))
    cluster.append_hostile(topic, _any_partition(cluster, topic), [written])


def _write_bytes(cluster: Cluster) -> None:
    """Well-formed keys with a twist: unknown types, unknown versions, names that are not UTF-8."""
    rng = cluster.rng
    name = struct.pack(">h", 9) + b"hostile-b"
    invalid = struct.pack(">h", len(INVALID)) + INVALID
    topic = struct.pack(">h", 7) + b"topic-0" + struct.pack(">i", 0)
    commit = struct.pack(">hqihq", 3, 5, -1, 0, cluster.wall_ms())
    written = rng.choice(
        (
            Written(struct.pack(">h", rng.choice((9, 18, 24, 99, -1))) + name, b"\0\0abc"),
            Written(struct.pack(">h", rng.choice((2, 3, 11, 17))) + name, struct.pack(">h", 99) + b"abc"),
            Written(b"\0\1" + name + topic, struct.pack(">h", rng.choice((-1, 5, 99))) + b"abc"),
            Written(b"\0\1" + name + topic, commit[: rng.randint(0, len(commit) - 1)]),
            Written(b"\0\1" + invalid + topic, commit),
            Written(b"\0\1" + name + invalid + struct.pack(">i", 0), commit),
            Written(b"\0\2" + invalid, None),
        )
    )
    groups = ("hostile-b", INVALID.decode(errors="replace"))
    cluster.append_hostile(OFFSETS, _any_partition(cluster, OFFSETS), [written], groups)


def _write_commits(cluster: Cluster) -> None:
    """Commits of impossible offsets and partitions."""
    rng, group = cluster.rng, f"hostile-{cluster.rng.randint(0, 3)}"
    facts: list[Fact] = [
        Commit(group, rng.choice(("topic-0", "no such topic")), partition, offset, "", rng.choice((1, 3, 4)))
        for partition in rng.sample((-(2**31), -5, -1, 0, 1, 1_000_000, HUGE), 3)
        for offset in (rng.choice((-(2**63), -7, -1, 0, 10, 2**62, 2**63 - 1)),)
    ]
    _append_facts(cluster, group, facts)


def _write_group(cluster: Cluster) -> None:
    """Members with impossible assignments."""
    rng, group = cluster.rng, f"hostile-{cluster.rng.randint(4, 7)}"
    numbers = tuple(rng.sample((-(2**31), -1, 0, 3, 99_999, HUGE), 3))
    if rng.random() < 0.5:
        member = ClassicMember("m", None, ("topic-0",), (("topic-0", numbers), ("no such topic", (0,))))
        _append_facts(cluster, group, [Classic(group, rng.choice((-1, 1, HUGE)), (member,))])
        return
    topic = cluster.topics.get("topic-0")
    assigned = ((topic.id if topic else "A" * 22, numbers),)
    _append_facts(
        cluster,
        group,
        [
            Profile("consumer", group, "m", ("topic-0",)),
            Own("consumer", group, rng.choice((-1, 1, HUGE))),
            Current("consumer", group, "m", rng.choice((-9, 0, HUGE)), rng.choice((0, 9)), assigned),
        ],
    )


def _write_misplaced(cluster: Cluster) -> None:
    """A commit of an ordinary group in a partition that is not that group's.

    The partition may become the group's when the topic grows. No share group could be created there then.
    """
    life = cluster.rng.choice(cluster.lives)
    group, partition = life.group, _any_partition(cluster, OFFSETS)
    if life.kind != "share" and partition != cluster.coordinator(group)[1]:
        fact = Commit(group, "topic-0", 0, cluster.rng.randint(0, 1_000))
        cluster.append_hostile(OFFSETS, partition, [write(fact, cluster.wall_ms())])


def _append_facts(cluster: Cluster, group: str, facts: list[Fact]) -> None:
    """Writes to the group's partition, or to any other one."""
    partition = cluster.coordinator(group)[1]
    if cluster.rng.random() < 0.3:
        partition = _any_partition(cluster, OFFSETS)
    written = [write(fact, cluster.wall_ms()) for fact in facts]
    cluster.append_hostile(OFFSETS, partition, written, (group,))


def _any_partition(cluster: Cluster, topic: str) -> int:
    found = cluster.topics.get(topic)
    return cluster.rng.randrange(len(found.partitions)) if found else 0
