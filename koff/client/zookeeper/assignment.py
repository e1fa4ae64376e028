"""The assignment of partitions to members. All members compute the same one from all registrations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from koff.client.zookeeper.znodes import Registration


def assign_partitions(
    members: Mapping[str, Registration], topic: str, partitions: Sequence[int]
) -> dict[str, list[int]]:
    """Each member's partitions of the topic; a member without a thread for the topic is left out.

    This is the `range` strategy of Kafka's first consumers: threads are sorted by id, each gets a run of
    consecutive partitions, and the runs differ in length by at most one. A partition that its member cannot
    read (`Registration.failed`) goes to a member that can, if there is one.
    """
    # Sorted as text, so MEMBER-10 comes before MEMBER-2: Kafka's first consumers sort the same way.
    threads = sorted(
        (f"{member}-{number}", member)
        for member, registration in members.items()
        for number in range(registration.thread_count(topic))
    )
    if not threads:
        return {}
    assignment: dict[str, list[int]] = {}
    length, remainder = divmod(len(partitions), len(threads))
    ordered, start = sorted(partitions), 0
    for index, (_, member) in enumerate(threads):
        count = length + (index < remainder)  # the first `remainder` threads get one partition more
        for partition in ordered[start : start + count]:
            candidates = [member, *(other for _, other in threads[index + 1 :] + threads[:index])]
            owner = next((m for m in candidates if partition not in members[m].failed.get(topic, ())), member)
            assignment.setdefault(owner, []).append(partition)
        start += count
    return assignment
