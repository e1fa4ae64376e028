"""One instance's part in the group: registered, its share of the partitions claimed, and given up again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

import structlog

from koff.client.zookeeper.assignment import division
from koff.client.zookeeper.claims import Claim, ClaimState
from koff.client.zookeeper.delivery import Delivery
from koff.client.zookeeper.intake import Intake
from koff.client.zookeeper.session import NodeExists, NoNode, Session
from koff.client.zookeeper.znodes import GroupPaths, Registration

log = structlog.get_logger(component="client.zookeeper")
_At = tuple[str, int]
_BUSY_S, _IDLE_S = 0.05, 0.5
"""How often to look while something is under way, and otherwise: watches tell of most changes at once."""
_LOOK_S = 2.0
"""How often to read the members anew though no watch fired."""


class Membership:
    """Does the rounds: a session is kept or mourned, members are read, claims are made and given up.

    One thread calls `round`; the others read `claims` only.
    """

    def __init__(
        self,
        session: Session,
        paths: GroupPaths,
        member: str,
        wants: Registration,
        delivery: Delivery,
        intakes: Mapping[str, Intake],
        partitions: Callable[[], Mapping[str, int]],
        processing_timeout_s: float,
    ) -> None:
        self.claims: dict[_At, Claim] = {}
        self.leaving = False
        self.registered = False
        self.dirty = threading.Event()
        self._session, self._paths, self._member, self._wants = session, paths, member, wants
        self._delivery, self._intakes, self._partitions = delivery, intakes, partitions
        self._processing_timeout_s = processing_timeout_s
        self._number = session.number
        self._renewed = self._looked = 0.0
        self._known: dict[str, Registration] = {}
        self._wanted: set[_At] = set()
        self._unsure: set[_At] = set()
        self._ending: set[Claim] = set()

    def round(self) -> float:
        """One round; how long the next may wait, if nothing happens. Raises `ConnectError`."""
        if self._session.number != self._number:
            self._mourn()
        self._release()
        if not self.leaving:
            self._register()
            self._divide()
            self._claim()
        busy = self._ending or self._unsure or self._wanted != self.claims.keys()
        return _BUSY_S if busy or self.leaving else _IDLE_S

    def leave(self) -> None:
        """Wants nothing any more: the others may begin to take over. Raises `ConnectError`."""
        self.leaving = True
        self._wanted = set()
        if self.registered:
            self._remove(self._paths.member(self._member))
            self.registered = False

    def stop_all(self, deadline: float) -> None:
        """Hands nothing out any more; what is out is waited for until `deadline`."""
        for claim in [*self.claims.values()]:
            if claim.state is ClaimState.READING:
                self._delivery.stop(claim, deadline=deadline)

    def give_up(self) -> None:
        """Claims nothing any more, whatever ZooKeeper says: for when there is no waiting for it."""
        for claim in list(self.claims.values()):
            self._lose(claim)

    def _mourn(self) -> None:
        """The session ended, and all claims with it: nothing more is processed under them."""
        log.warning("session lost: claims are given up", member=self._member, claims=len(self.claims))
        self._number = self._session.number
        self.registered = False
        self._unsure.clear()
        self.give_up()
        self.dirty.set()

    def _lose(self, claim: Claim) -> None:
        self._delivery.lose(claim)
        self._intakes[claim.topic].finish(claim)
        self.claims.pop(claim.at, None)
        self._ending.discard(claim)

    def _register(self) -> None:
        """Registered, and the lease renewed now and then."""
        path = self._paths.member(self._member)
        now = time.monotonic()
        if self.registered and now < self._renewed + self._session.timeout_s / 4:
            return
        if not self._session.renew(path) or not self.registered:
            try:
                self._session.call("create", path, self._wants.encode(), ephemeral=True, makepath=True)
            except NodeExists:
                found = self._session.call("exists", path)
                if found is None or found.ephemeralOwner != self._session.id:
                    return  # of a session of ours that is about to end
            self.registered = True
            self.dirty.set()
            log.info("registered", member=self._member)
        self._renewed = now

    def _divide(self) -> None:
        """What is to be ours, by who is there now."""
        now = time.monotonic()
        if not self.dirty.is_set() and now < self._looked + _LOOK_S:
            return
        self.dirty.clear()
        self._looked = now
        members = self._members()
        wanted = {
            (topic, partition)
            for topic, count in self._partitions().items()
            for partition in division(members, topic, range(count)).get(self._member, ())
        }
        if wanted != self._wanted:
            log.info("rebalance", member=self._member, members=len(members), partitions=len(wanted))
        self._wanted = wanted

    def _members(self) -> dict[str, Registration]:
        """Who is registered. What a node says is read once: nobody changes it."""
        ids = self._session.children(self._paths.ids, watch=True)
        found = {}
        for id_ in ids:
            known = self._known.get(id_)
            if known is None:
                try:
                    data, _ = self._session.call("get", self._paths.member(id_))
                except NoNode:
                    continue
                known = Registration.decode(data)
            found[id_] = known
        self._known = found
        return found

    def _release(self) -> None:
        """Gives up what is not to be ours: stops, waits until it is processed, commits, removes the claim."""
        now = time.monotonic()
        for claim in [*self.claims.values()]:
            if claim.state is ClaimState.READING and claim.at not in self._wanted:
                self._delivery.stop(claim, deadline=now + self._processing_timeout_s)
            draining = claim.state is ClaimState.DRAINING and claim not in self._ending
            if draining and (now >= claim.deadline or self._delivery.drained(claim)):
                self._ending.add(claim)
                self._intakes[claim.topic].finish(claim)
        for claim in [each for each in self._ending if each.finished]:
            self._remove(self._paths.owner(*claim.at))
            self._delivery.lose(claim)
            self._ending.discard(claim)
            self.claims.pop(claim.at, None)
            log.debug("released", topic=claim.topic, partition=claim.partition, member=self._member)
        for at in [each for each in self._unsure if each not in self._wanted and each not in self.claims]:
            self._remove(self._paths.owner(*at))
            self._unsure.discard(at)

    def _claim(self) -> None:
        """Claims what is to be ours and nobody has."""
        if not self.registered:
            return
        for at in sorted(self._wanted - self.claims.keys()):
            claim = self._try(at)
            if claim is not None:
                self.claims[at] = claim
                self._intakes[claim.topic].begin(claim)
                log.debug("claimed", topic=claim.topic, partition=claim.partition, member=self._member)

    def _try(self, at: _At) -> Claim | None:
        """The claim, if the node of its owner is ours; else its removal will be told."""
        path, number = self._paths.owner(*at), self._session.number
        self._unsure.add(at)
        try:
            self._session.call("create", path, self._member.encode(), ephemeral=True, makepath=True)
        except NodeExists:
            pass
        try:
            _, stat = self._session.call("get", path, watch=self._session.watch)
        except NoNode:
            return None
        self._unsure.discard(at)
        if stat.ephemeralOwner != self._session.id or number != self._session.number:
            return None
        return Claim(*at, session_number=number, czxid=stat.czxid)

    def _remove(self, path: str) -> None:
        """Removes a node of ours; one that is somebody else's stays."""
        try:
            stat = self._session.call("exists", path)
            ours = stat is not None and stat.ephemeralOwner == self._session.id
            if ours and self._session.number == self._number:
                self._session.call("delete", path)
        except NoNode:
            pass

    def holds(self, at: _At) -> bool:
        """Whether the claim is ours, asked of ZooKeeper. Raises `ConnectError`."""
        claim = self.claims.get(at)
        if claim is None or not claim.begun or claim.state is ClaimState.LOST:
            return False
        stat = self._session.call("exists", self._paths.owner(*at))
        return (
            stat is not None
            and (stat.czxid, stat.ephemeralOwner) == (claim.czxid, self._session.id)
            and claim.session_number == self._session.number
        )
