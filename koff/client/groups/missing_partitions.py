"""The partitions of `__consumer_offsets` of which groups may be missing in the coordinators' responses.

A group belongs to one of these partitions, and its coordinator is the partition's leader. If one broker does
not respond, only groups of the partitions that it leads may be missing.
"""

from collections.abc import Mapping

from koff.client.groups.leaders import OffsetsLeaders


class MissingPartitions:
    """Says, over all rounds, of which partitions groups may be missing.

    A partition is complete once its leader has listed all its groups in any round, and was the leader before
    and after that.
    """

    def __init__(self) -> None:
        self.partition_count = 0
        """The partition count of the offsets topic; 0 if the brokers do not describe it."""
        self.reasons: dict[int, str] = {}
        """By partition, why groups may be missing."""
        self._complete: set[int] = set()

    def note_round(
        self,
        before: OffsetsLeaders,
        after: OffsetsLeaders | str,
        failed: Mapping[int, str],
        unready: Mapping[int, str],
    ) -> None:
        """Notes one round.

        `before` is the layout at its start, `after` that at its end, or why there is none. `failed` has the
        errors of brokers by id, `unready` those of single partitions.
        """
        if not before.leaders:
            return
        reasons: dict[int, str] = {}
        if isinstance(after, str):
            reasons = dict.fromkeys(before.epochs, after)
        else:
            changed = {p for p in before.epochs | after.epochs if before.epochs.get(p) != after.epochs.get(p)}
            reasons |= dict.fromkeys(changed, "its leader changed while the groups were fetched")
            reasons |= dict.fromkeys(after.leaderless, "it has no leader")
        reasons |= unready
        reasons |= {each.partition: failed[each.leader] for each in before.leaders if each.leader in failed}
        reasons |= dict.fromkeys(before.leaderless, "it has no leader")
        self.partition_count = max(self.partition_count, len(before.leaders))
        self._complete |= before.epochs.keys() - reasons.keys()
        self.reasons = {p: why for p, why in sorted(reasons.items()) if p not in self._complete}
