"""One member's part in the group: its registration in ZooKeeper, and its claims of partitions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from koff.client.cluster_conf import TopicPartition
from koff.client.zookeeper.assignment import assign_partitions
from koff.client.zookeeper.claims import Claim, ClaimState
from koff.client.zookeeper.delivery import Delivery
from koff.client.zookeeper.intake import Intake
from koff.client.zookeeper.session import NodeExists, NoNode, Session
from koff.client.zookeeper.znodes import GroupPaths, Registration
from koff.logs import get_logger

log = get_logger("client.zookeeper")
_BUSY_S, _IDLE_S = 0.05, 0.5
"""The pause between rounds: while claims change, and otherwise. A watch that fires ends the pause early."""
_READ_MEMBERS_S = 2.0
"""How often the members are read even if no watch fired."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 2.0, 300.0
"""How long a member leaves a partition alone after its claim failed; doubled at each further failure."""


class Membership:
    """Registers the member, computes its assignment, and claims and releases partitions, round by round.

    Only one thread at a time may call methods that change claims; other threads may read `claims` and call
    `owns`.
    """

    def __init__(
        self,
        session: Session,
        paths: GroupPaths,
        member: str,
        registration: Registration,
        delivery: Delivery,
        intakes: Mapping[str, Intake],
        get_partition_counts: Callable[[], Mapping[str, int]],
        processing_timeout_s: float,
    ) -> None:
        self.claims: dict[TopicPartition, Claim] = {}
        self.leaving = False
        self.registered = False
        self.rebalance_needed = threading.Event()
        self._session, self._paths = session, paths
        self._member, self._registration = member, registration
        self._delivery, self._intakes = delivery, intakes
        self._get_partition_counts = get_partition_counts
        self._processing_timeout_s = processing_timeout_s
        self._session_number = session.number
        self._renewed_at = self._members_read_at = 0.0
        self._registrations: dict[str, Registration] = {}
        self._assigned: set[TopicPartition] = set()
        self._unconfirmed: set[TopicPartition] = set()
        """Partitions whose owner node this member may have created, without a response that confirms it."""
        self._ending: set[Claim] = set()  # passed to `end_claim`; kept until the owner node is deleted
        self._failures: dict[TopicPartition, tuple[int, float]] = {}
        """By partition: how many claims failed one after another, and until when (monotonic) not to claim."""

    def run_round(self) -> float:
        """Brings registration and claims up to date; returns the pause until the next round, in seconds.

        Raises `ConnectError`; the next round then resumes.
        """
        if self._session.number != self._session_number:
            self._handle_lost_session()
        self._release_partitions()
        if not self.leaving:
            self._register()
            self._publish_failures()
            self._rebalance()
            self._claim_partitions()
        busy = self._ending or self._unconfirmed or self._assigned != self.claims.keys()
        return _BUSY_S if busy or self.leaving else _IDLE_S

    def unregister(self) -> None:
        """Deletes the registration and empties the assignment, so that other members take over.

        The following rounds release the claims. Raises `ConnectError`.
        """
        self.leaving = True
        self._assigned = set()
        if self.registered:
            self._delete_own_node(self._paths.member(self._member))
            self.registered = False

    def start_draining(self, deadline: float) -> None:
        """Hands out no more messages; handed-out messages may be acknowledged until `deadline`."""
        for claim in [*self.claims.values()]:
            if claim.state is ClaimState.READING:
                self._delivery.start_draining(claim, deadline=deadline)

    def lose_all_claims(self) -> None:
        """Marks all claims as lost and ends them, without a request to ZooKeeper."""
        for claim in list(self.claims.values()):
            self._lose_claim(claim)

    def owns(self, partition: TopicPartition) -> bool:
        """Whether this member owns the partition: asks ZooKeeper. Raises `ConnectError`."""
        claim = self.claims.get(partition)
        if claim is None or not claim.initialized or claim.state is ClaimState.LOST:
            return False
        stat = self._session.call("exists", self._paths.owner(*partition))
        # The czxid differs if the same session has claimed the partition again since.
        return (
            stat is not None
            and (stat.czxid, stat.ephemeralOwner) == (claim.czxid, self._session.id)
            and claim.session_number == self._session.number
        )

    def _handle_lost_session(self) -> None:
        """Loses all claims: ZooKeeper deleted their owner nodes with the session."""
        log.warning("ZooKeeper session lost: all claims end", member=self._member, claims=len(self.claims))
        self._session_number = self._session.number
        self.registered = False
        self._unconfirmed.clear()
        self.lose_all_claims()
        self.rebalance_needed.set()

    def _lose_claim(self, claim: Claim) -> None:
        self._delivery.mark_lost(claim)
        self._intakes[claim.topic].end_claim(claim)
        self.claims.pop(claim.topic_partition, None)
        self._ending.discard(claim)

    def _register(self) -> None:
        """Creates the member's node if it is missing, and renews the session's lease when that is due."""
        path = self._paths.member(self._member)
        now = time.monotonic()
        if self.registered and now < self._renewed_at + self._session.timeout_s / 4:
            return
        if not self._session.renew_lease(path) or not self.registered:
            try:
                self._session.call("create", path, self._registration.encode(), ephemeral=True, makepath=True)
            except NodeExists:
                # The node may be from a `create` whose response was lost, or from this member's last session,
                # which ZooKeeper has yet to end. In the latter case the next round tries again.
                stat = self._session.call("exists", path)
                if stat is None or stat.ephemeralOwner != self._session.id:
                    return
            self.registered = True
            self.rebalance_needed.set()
            log.info("member registered", member=self._member)
        self._renewed_at = now

    def _publish_failures(self) -> None:
        """Writes the partitions that this member cannot read at present into its registration."""
        failed: dict[str, list[int]] = {}
        now = time.monotonic()
        for topic, partition in sorted(at for at, (_, until) in self._failures.items() if now < until):
            failed.setdefault(topic, []).append(partition)
        if self.registered and failed != self._registration.failed:
            registration = replace(self._registration, failed=failed)
            self._session.call("set", self._paths.member(self._member), registration.encode())
            self._registration = registration
            self.rebalance_needed.set()

    def _rebalance(self) -> None:
        """Computes this member's assignment from the present members, if they may have changed."""
        now = time.monotonic()
        if self.rebalance_needed.is_set():
            self._registrations.clear()  # the watch may be for changed data of a member's node
        elif now < self._members_read_at + _READ_MEMBERS_S:
            return
        # Clear the event before the members are read: a watch that fires meanwhile sets it again.
        self.rebalance_needed.clear()
        self._members_read_at = now
        members = self._read_members()
        assigned = {
            TopicPartition(topic, partition)
            for topic, count in self._get_partition_counts().items()
            for partition in assign_partitions(members, topic, range(count)).get(self._member, ())
        }
        if assigned != self._assigned:
            log.info("rebalance", member=self._member, members=len(members), partitions=len(assigned))
        self._assigned = assigned

    def _read_members(self) -> dict[str, Registration]:
        """The registered members. A registration is read when a watch has fired since it was last read."""
        registrations = {}
        for member in self._session.list_children(self._paths.ids, watch=True):
            registration = self._registrations.get(member)
            if registration is None:
                try:
                    data, _ = self._session.call(
                        "get", self._paths.member(member), watch=self._session.on_watch
                    )
                except NoNode:
                    continue
                registration = Registration.decode(data)
            registrations[member] = registration
        self._registrations = registrations
        return registrations

    def _release_partitions(self) -> None:
        """Takes a step towards the release of each claim that is not assigned to this member any more.

        A claim is drained, then its offsets are committed, and last its owner node is deleted: the next owner
        must not start before the commit.
        """
        # Drain the claims that are not assigned. End the claims that are drained, or whose deadline has
        # passed.
        now = time.monotonic()
        for claim in [*self.claims.values()]:
            if claim.failed and claim.state is ClaimState.READING:
                self._note_failure(claim)
            if claim.state is ClaimState.READING and (
                claim.failed or claim.topic_partition not in self._assigned
            ):
                self._delivery.start_draining(claim, deadline=now + self._processing_timeout_s)
            draining = claim.state is ClaimState.DRAINING and claim not in self._ending
            if draining and (now >= claim.deadline or self._delivery.is_drained(claim)):
                self._ending.add(claim)
                self._intakes[claim.topic].end_claim(claim)
        # Delete the owner nodes of the claims that the intake has finalized.
        for claim in [claim for claim in self._ending if claim.finalized]:
            self._delete_own_node(self._paths.owner(*claim.topic_partition))
            self._delivery.mark_lost(claim)
            self._ending.discard(claim)
            self.claims.pop(claim.topic_partition, None)
            if not claim.failed:
                self._failures.pop(claim.topic_partition, None)
            log.debug("partition released", topic=claim.topic, partition=claim.partition, member=self._member)
        # A `create` without a response may have made an owner node. Delete it if it is not needed any more.
        for partition in self._unconfirmed - self._assigned - self.claims.keys():
            self._delete_own_node(self._paths.owner(*partition))
            self._unconfirmed.discard(partition)

    def _note_failure(self, claim: Claim) -> None:
        """Leaves the partition to other members for a while, each time longer."""
        count = self._failures.get(claim.topic_partition, (0, 0.0))[0] + 1
        pause_s = min(_FIRST_PAUSE_S * 2 ** (count - 1), _LONGEST_PAUSE_S)
        self._failures[claim.topic_partition] = count, time.monotonic() + pause_s

    def _claim_partitions(self) -> None:
        """Claims the assigned partitions that have no owner, except those whose claim failed just now."""
        if not self.registered:
            return
        now = time.monotonic()
        for partition in sorted(self._assigned - self.claims.keys()):
            if now < self._failures.get(partition, (0, 0.0))[1]:
                continue
            claim = self._try_claim(partition)
            if claim is not None:
                self.claims[partition] = claim
                self._intakes[claim.topic].start_claim(claim)
                log.debug(
                    "partition claimed", topic=claim.topic, partition=claim.partition, member=self._member
                )

    def _try_claim(self, partition: TopicPartition) -> Claim | None:
        """The claim. None if another member owns the partition: the watch fires when its node is deleted."""
        path, number = self._paths.owner(*partition), self._session.number
        self._unconfirmed.add(partition)
        try:
            self._session.call("create", path, self._member.encode(), ephemeral=True, makepath=True)
        except NodeExists:
            pass  # another member's node, or this member's from a `create` without a response
        try:
            _, stat = self._session.call("get", path, watch=self._session.on_watch)
        except NoNode:
            return None
        self._unconfirmed.discard(partition)
        # The session may have ended between the requests: compare with the number read before them.
        if stat.ephemeralOwner != self._session.id or number != self._session.number:
            return None
        return Claim(*partition, session_number=number, czxid=stat.czxid)

    def _delete_own_node(self, path: str) -> None:
        """Deletes the node if this session owns it."""
        try:
            stat = self._session.call("exists", path)
            own = stat is not None and stat.ephemeralOwner == self._session.id
            if own and self._session.number == self._session_number:
                self._session.call("delete", path)
        except NoNode:
            pass
