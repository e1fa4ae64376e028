"""One member's part in the group: its registration in ZooKeeper, and its claims of partitions."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from koff.client.cluster_conf import TopicPartition
from koff.client.delivery.delivery import Delivery
from koff.client.delivery.errors import PartitionError
from koff.client.delivery.partition import PartitionState
from koff.client.zookeeper.claims import Claim
from koff.client.zookeeper.errors import ZooKeeperLost, make_koff_error
from koff.client.zookeeper.session import NodeExists, NoNode, Session
from koff.client.zookeeper.znodes import GroupPaths, Registration, assign_partitions, is_go_member
from koff.errors import ConnectError, KoffError
from koff.logs import get_logger

_BUSY_S, _IDLE_S, _RETRY_S = 0.05, 0.5, 0.2
"""The pause between rounds: while claims change, otherwise, and after an error. A watch ends it early."""
_LEAVE_PAUSE_S = 0.02
"""The pause between rounds while the member leaves: acknowledgements do not wake the leaving thread."""
_READ_MEMBERS_S = 2.0
"""How often the members are read even if no watch fired."""
_UNOWNED_S = 10.0
"""After this time, a partition without an owner is nobody's. A hand-over to a Go member takes a second."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 2.0, 300.0
"""How long a member leaves a partition alone after its claim failed; doubled at each further failure."""


class Membership:
    """Registers the member, computes its assignment, and claims and releases partitions, round by round.

    The rounds run in a thread, from `start` until `leave` or `stop`. `on_error` gets their errors. Other
    threads may read `claims` and call `owns`. `partition_counts` are those of the group's topics.
    `start_claim` makes a claim of a partition, with the number of the session and the zxid of the owner node,
    and reads it. `fetch_leaders` returns the leader of each partition, by topic, and raises `ConnectError`.
    """

    def __init__(
        self,
        session: Session,
        paths: GroupPaths,
        member: str,
        topics: Iterable[str],
        delivery: Delivery[Claim],
        processing_timeout_s: float,
        *,
        start_claim: Callable[[TopicPartition, int, int], Claim],
        on_error: Callable[[KoffError], None],
        fetch_leaders: Callable[[], Mapping[str, Sequence[int]]],
    ) -> None:
        self.claims: dict[TopicPartition, Claim] = {}
        self.partition_counts: Mapping[str, int] = {}
        self._fetch_leaders = fetch_leaders
        self._session, self._paths = session, paths
        self._member, self._registration = member, Registration(dict.fromkeys(topics, 1))
        self._delivery, self._start_claim = delivery, start_claim
        self._log = get_logger("client.zookeeper", group=paths.group, member=member)
        self._processing_timeout_s = processing_timeout_s
        self._on_error = on_error
        self._rebalance_needed, self._stopping = threading.Event(), threading.Event()
        self.wake = threading.Event()
        """Starts the next round soon."""
        self._thread = threading.Thread(target=self._run, name=f"koff-group-{paths.group}", daemon=True)
        self._leaving = self._registered = self._outage_reported = False
        self._session_number = session.number
        self._renewed_at = self._members_read_at = 0.0
        self._members: list[str] | None = None
        """The members of which the present assignment was computed."""
        self._leaders: Mapping[str, Sequence[int]] = {}
        """The leaders by which Go members and this one divide the partitions; those of the last change."""
        self._divided_among: object = None
        """The members and the partition counts of which that is so."""
        self._assigned: set[TopicPartition] = set()
        self._adopted: set[TopicPartition] = set()
        """Partitions that are in nobody's share."""
        self._unowned: dict[TopicPartition, float] = {}
        """Since when a partition has no owner (monotonic)."""
        self._unconfirmed: set[TopicPartition] = set()
        """Partitions whose owner node this member may have created, without a response that confirms it."""
        self._failures: dict[TopicPartition, tuple[int, float]] = {}
        """By partition: how many claims failed one after another, and until when (monotonic) not to claim."""

    def start(self) -> None:
        """Registers the member and claims partitions. Raises what the first round raises."""
        self._run_round()
        self._thread.start()

    def stop(self) -> None:
        """Runs no more rounds: the claims end with the session. Safe to call twice."""
        self._stopping.set()
        self.wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def leave(self, timeout_s: float, grace_s: float) -> None:
        """Releases all claims in order: drains them, commits, and deletes the owner nodes.

        Waits up to `timeout_s` for messages that are being processed, and `grace_s` longer for an offset
        manager that does not return. When ZooKeeper does not respond until then, the claims are dropped
        without a commit.
        """
        self.stop()  # only one thread may run rounds
        self._leaving = True
        self._assigned, self._processing_timeout_s = set(), timeout_s
        deadline = time.monotonic() + timeout_s
        # After the deadline, a claim is finalized at once, unless its offset manager hangs.
        while self.claims or self._registered:
            why, end = "the offset manager has not returned in time", deadline + grace_s
            try:
                self._run_round()
            except Exception as error:
                why, end = str(error), deadline
            if time.monotonic() >= end:
                self._log.warning("left the group without releasing its claims", why=why)
                for partition in self.claims:
                    self._on_error(PartitionError(*partition, f"released without a commit: {why}"))
                self._lose_claims()
                break
            self.wake.wait(_LEAVE_PAUSE_S)
            self.wake.clear()

    def request_rebalance(self) -> None:
        """Computes the assignment again, soon."""
        self._rebalance_needed.set()
        self.wake.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            pause_s = _RETRY_S
            try:
                self._run_round()
                ending = any(claim.state is not PartitionState.READING for claim in self.claims.values())
                busy = ending or self._unconfirmed or self._assigned != self.claims.keys()
                pause_s = _BUSY_S if busy else _IDLE_S
            except ConnectError as error:
                self._log.debug("round not completed: trying again", why=str(error))
            except NoNode as error:
                text = "another client deleted a node of the group: trying again"
                self._log.warning(text, why=repr(error))
            except Exception as error:  # the thread must not end: it renews the session's lease
                self._on_error(make_koff_error("a round of the group failed", error))
            self._watch_lease()
            self.wake.wait(pause_s)
            self.wake.clear()

    def _run_round(self) -> None:
        """Brings registration and claims up to date. Raises `ConnectError`; the next round then resumes."""
        if self._session.number != self._session_number:
            self._handle_lost_session()
        self._release_partitions()
        if not self._leaving:
            self._register()
            self._publish_failures()
            self._rebalance()
            self._claim_partitions()
        elif self._registered:  # other members take over
            self._delete_own_node(self._paths.member(self._member))
            self._registered = False

    def _watch_lease(self) -> None:
        """Reports when the session's lease ends, once for each outage: no message is handed out since."""
        if self._session.trusted:
            self._outage_reported = False
        elif not self._outage_reported and not self._stopping.is_set():
            self._outage_reported = True
            self._on_error(
                ZooKeeperLost(
                    f"ZooKeeper at {self._session.hosts} has not confirmed the session for "
                    f"{self._session.timeout_s:g} s: no message is handed out until it does; check that it "
                    "runs and that its port is open"
                )
            )

    def owns(self, partition: TopicPartition) -> bool:
        """Whether this member owns the partition, as ZooKeeper says now. Raises `ConnectError`."""
        claim = self.claims.get(partition)
        if claim is None or not claim.initialized or claim.state is PartitionState.LOST:
            return False
        stat = self._session.find_own_node(self._paths.owner(*partition))
        # The czxid differs if the same session has claimed the partition again since.
        same_claim = stat is not None and stat.czxid == claim.assignment
        return same_claim and claim.session_number == self._session.number

    def _handle_lost_session(self) -> None:
        """Loses all claims: ZooKeeper deleted their owner nodes with the session."""
        self._log.warning("ZooKeeper session lost: all claims end", claims=len(self.claims))
        self._session_number = self._session.number
        self._registered = False
        self._unconfirmed.clear()
        self._lose_claims()
        self._rebalance_needed.set()
        if not self._leaving:  # else the next owners get the messages that are not committed: no error
            self._on_error(
                ZooKeeperLost(
                    f"the session with ZooKeeper at {self._session.hosts} has ended, and all claims with it: "
                    "other members get the messages that are not committed"
                )
            )

    def _lose_claims(self) -> None:
        for claim in self.claims.values():
            self._delivery.change_state(claim, PartitionState.LOST)
        self.claims.clear()

    def _register(self) -> None:
        """Creates the member's node if it is missing, and renews the session's lease when that is due."""
        path = self._paths.member(self._member)
        now = time.monotonic()
        if self._registered and now < self._renewed_at + self._session.timeout_s / 4:
            return
        if not self._session.renew_lease(path) or not self._registered:
            try:
                self._session.call("create", path, self._registration.encode(), ephemeral=True, makepath=True)
            except NodeExists:
                # The node may be from a `create` whose response was lost, or from this member's last session,
                # which ZooKeeper has yet to end. In the latter case the next round tries again.
                if self._session.find_own_node(path) is None:
                    return
            self._registered = True
            self._rebalance_needed.set()
            self._log.info("member registered")
        self._renewed_at = now

    def _publish_failures(self) -> None:
        """Writes the partitions that this member cannot read at present into its registration."""
        failed: dict[str, list[int]] = {}
        now = time.monotonic()
        for topic, partition in sorted(at for at, (_, until) in self._failures.items() if now < until):
            failed.setdefault(topic, []).append(partition)
        if self._registered and failed != self._registration.failed:
            registration = replace(self._registration, failed=failed)
            self._session.call("set", self._paths.member(self._member), registration.encode())
            self._registration = registration
            self._rebalance_needed.set()

    def _rebalance(self) -> None:
        """Computes this member's assignment from the present members, if they may have changed."""
        now = time.monotonic()
        requested = self._rebalance_needed.is_set()
        if not requested and now < self._members_read_at + _READ_MEMBERS_S:
            return
        # Clear the event before the members are read: a watch that fires meanwhile sets it again.
        self._rebalance_needed.clear()
        self._members_read_at = now
        # After an error, the members count as changed: else the next round would miss what was requested.
        known, self._members = None if requested else self._members, None
        members = sorted(self._session.list_children(self._paths.ids, watch=True))
        if members != known:
            self._compute_assignment(self._read_registrations(members))
        self._members = members
        if any(map(is_go_member, members)):
            self._adopt_unowned(now)

    def _compute_assignment(self, registrations: Mapping[str, Registration]) -> None:
        divided_among = sorted(registrations), dict(self.partition_counts)
        if divided_among != self._divided_among:
            # Now, as the Go members do: an earlier leader would give another order. Later changes of leaders
            # change no assignment before the members change.
            self._leaders = self._fetch_leaders() if any(map(is_go_member, registrations)) else {}
            self._adopted.clear()
        assigned = set(self._adopted)
        for topic, count in self.partition_counts.items():
            of_topic = self._leaders.get(topic, ())
            if self._leaders and len(of_topic) < count:
                raise ConnectError(f"the leaders of {topic} are unknown: no assignment yet")
            shares = assign_partitions(registrations, topic, range(count), of_topic)
            assigned.update(TopicPartition(topic, partition) for partition in shares.get(self._member, ()))
        self._divided_among = divided_among
        if assigned != self._assigned:
            self._log.info("rebalance", members=len(registrations), partitions=len(assigned))
        self._assigned = assigned

    def _adopt_unowned(self, now: float) -> None:
        """Takes partitions into the assignment that nobody has owned for `_UNOWNED_S`, until the next change.

        Go members divide the partitions by the leaders of the moment at which each of them sees a change of
        the members. When a leader moves between two of these moments, a partition may be in nobody's share.
        """
        unowned: set[TopicPartition] = set()
        for topic, count in self.partition_counts.items():
            owned = self._session.list_children(f"{self._paths.owners}/{topic}")
            unowned |= {TopicPartition(topic, n) for n in range(count) if str(n) not in owned}
        self._unowned = {at: self._unowned.get(at, now) for at in unowned}
        late = {at for at, since in self._unowned.items() if now >= since + _UNOWNED_S} - self._assigned
        if late:
            self._log.warning("partitions without an owner are claimed", partitions=sorted(late))
        self._adopted |= late
        self._assigned |= late

    def _read_registrations(self, members: Iterable[str]) -> dict[str, Registration]:
        """The registrations of the members that are still there. A watch fires when one changes."""
        registrations = {}
        for member in members:
            path = self._paths.member(member)
            with suppress(NoNode):
                data, _ = self._session.call("get", path, watch=self._session.on_watch)
                registrations[member] = Registration.decode(data)
        return registrations

    def _release_partitions(self) -> None:
        """Takes a step towards the release of each claim that is not assigned to this member any more.

        A claim is drained, then its offsets are committed, and last its owner node is deleted: the next owner
        must not start before the commit.
        """
        now = time.monotonic()
        for claim in [*self.claims.values()]:
            released = claim.failed or claim.topic_partition not in self._assigned
            if claim.state is PartitionState.READING and released:
                if claim.failed:
                    self._note_failure(claim)
                claim.deadline = now + self._processing_timeout_s
                self._delivery.change_state(claim, PartitionState.DRAINING)
            if claim.state is PartitionState.DRAINING and (
                now >= claim.deadline or self._delivery.is_drained(claim)
            ):
                self._delivery.change_state(claim, PartitionState.ENDING)
        # Delete the owner nodes of the claims that the intake has finalized.
        for claim in [claim for claim in self.claims.values() if claim.finalized]:
            self._delete_own_node(self._paths.owner(*claim.topic_partition))
            self._delivery.change_state(claim, PartitionState.LOST)
            self.claims.pop(claim.topic_partition, None)
            if not claim.failed:
                self._failures.pop(claim.topic_partition, None)
            self._log.debug("partition released", topic=claim.topic, partition=claim.partition)
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
        if not self._registered:
            return
        now = time.monotonic()
        for partition in sorted(self._assigned - self.claims.keys()):
            if now < self._failures.get(partition, (0, 0.0))[1]:
                continue
            claim = self._try_claim(partition)
            if claim is not None:
                self.claims[partition] = claim
                self._log.debug("partition claimed", topic=claim.topic, partition=claim.partition)

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
        return self._start_claim(partition, number, stat.czxid)

    def _delete_own_node(self, path: str) -> None:
        """Deletes the node if this session owns it."""
        with suppress(NoNode):
            own = self._session.find_own_node(path) is not None
            if own and self._session.number == self._session_number:
                self._session.call("delete", path)
