"""Who reads what: the classic division, which every member works out for itself and finds the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from koff.client.zookeeper.znodes import Registration


def division(
    members: Mapping[str, Registration], topic: str, partitions: Sequence[int]
) -> dict[str, list[int]]:
    """The partitions of the topic by member, in runs, differing by one at most between threads.

    Members' threads in the order of their ids; as the original tools' `range` strategy has it.
    """
    threads = sorted(
        (f"{id_}-{number}", id_) for id_, wants in members.items() for number in range(wants.threads(topic))
    )
    if not threads:
        return {}
    shares: dict[str, list[int]] = {}
    each, extra = divmod(len(partitions), len(threads))
    ordered, start = sorted(partitions), 0
    for place, (_, id_) in enumerate(threads):
        count = each + (place < extra)
        shares.setdefault(id_, []).extend(ordered[start : start + count])
        start += count
    return shares
