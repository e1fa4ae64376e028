"""Clusters whose groups are of every kind, and requests to the API without a server."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import quote

from koff.lag import Reason
from koff.records import encode
from koff.records.placement import group_partition
from koff.serve.api.responder import ApiRequest, Responder
from koff.tracker import ShareLag, Snapshot, Tracker
from koff.view.cluster_view import (
    ClusterFacts,
    ClusterView,
    MonitorStats,
    Readiness,
    TopicFacts,
)
from tests.group_records import Consumer, Share
from tests.unit import builders
from tests.unit.builders import ASSIGNED_T_0_1, Pair, classic_group, commit
from tests.unit.serve.views import NOW_MS, READY, Row, Source, judge, withhold_rows

DOWN = Readiness(False, "not ready: no broker responds")
ODD = "a/b%2F c.d\n\u00e9\u6f22?#&+\"<script>'"
"""A name with everything that means something in a URL, in JSON or in HTML."""
FACTS = ClusterFacts(3, {"t": TopicFacts(3, 2, 1, 2), "unread": TopicFacts(6, 3)}, (1, 2, -1) * 20)


def apply(tracker: Tracker, group: str, *pairs: Pair) -> None:
    """Applies records of a group, in the partition that it belongs to."""
    builders.apply(tracker, *pairs, partition=group_partition(group, 50), seen_at_ms=NOW_MS - 5_000)


def fill_tracker() -> Tracker:
    """Groups of every kind on topic t, whose three partitions end at 1420."""
    tracker, id_ = Tracker(), Consumer.places[0]
    tracker.identify_topics({"t": id_})
    tracker.set_offsets_partitions(50)
    places = [("t", partition) for partition in range(3)]
    # classic: a member with partitions 0 and 1, and full windows of commits, 50 behind. simple: 7 behind.
    apply(tracker, "classic", classic_group("classic", {"m": ASSIGNED_T_0_1}))
    for second in range(0, 420, 20):
        at_ms = NOW_MS - 400_000 + second * 1000
        pairs = [commit("classic", "t", partition, 970 + second, at=at_ms) for partition in range(2)]
        apply(tracker, "classic", *pairs)
        ends = dict.fromkeys(places, 1000 + second)
        starts = dict.fromkeys(places, 900)
        tracker.add_samples(ends=ends, starts=starts, stables=ends, at_ms=at_ms)
    tracker.add_samples(ends=dict.fromkeys(places, 1420), at_ms=NOW_MS - 1_000)
    apply(tracker, "simple", commit("simple", "t", 2, 1413, at=NOW_MS - 9_000))
    apply(tracker, "lost", commit("lost", "t", 0, 800, at=NOW_MS - 9_000))
    apply(tracker, ODD, commit(ODD, "t", 0, 1420, at=NOW_MS - 9_000))
    apply(tracker, "empty", classic_group("empty", {}))
    # A member has partition 2, and has not committed.
    apply(
        tracker,
        "consumer",
        encode(Consumer.own("consumer", 3)),
        encode(Consumer.member("consumer", "c1")),
        encode(Consumer.assigned("consumer", 3)),
        encode(Consumer.target("consumer", "c1", {id_: (2,)})),
        encode(Consumer.current("consumer", "c1", 3, {id_: (2,)})),
    )
    apply(tracker, "share", encode(Share.own("share", 1)))
    tracker.shares.describe({"share": [ShareLag("t", id_, 1, 20)]}, set(), requested_ms=NOW_MS - 2_000)
    return tracker


LAGS = {"classic": 100, "simple": 7, "lost": 620, ODD: 0, "share": 20}
"""The total lag of each group that has one."""


def build_view(
    snapshot: Snapshot,
    cluster: str | None = "c",
    readiness: Readiness = READY,
    facts: ClusterFacts = FACTS,
) -> ClusterView:
    """A view of the snapshot."""
    rows = sum(int(snapshot.lags(shard).known.sum()) for shard in snapshot.shards.values())
    withheld = snapshot.withheld_rows()
    stats = MonitorStats(
        rows=rows + withheld, withheld=withheld, up=readiness.ready, input_ages_s={"commits": 1.5}
    )
    return judge(ClusterView(cluster, snapshot, readiness, stats, facts, {"region": "eu"}))


def take_view(cluster: str = "c") -> ClusterView:
    """A view in which nothing is withheld."""
    return build_view(fill_tracker().take_snapshot(NOW_MS), cluster)


def withhold(
    rows: Mapping[Row, Reason],
    stale_groups: Collection[str] = (),
    partial_groups: Collection[str] = (),
) -> ClusterView:
    """A view with these rows withheld, these groups not current, and rows of these groups missing."""
    snapshot = fill_tracker().take_snapshot(NOW_MS)
    return build_view(withhold_rows(snapshot, rows, stale_groups, partial_groups))


EMPTY = build_view(Tracker().take_snapshot(NOW_MS), "empty", facts=ClusterFacts())
"""A cluster without groups."""
AWAY = build_view(Tracker().take_snapshot(NOW_MS), "away", DOWN, ClusterFacts())
"""A cluster that is down."""


class Clusters(Source):
    """A source of these views, and requests to the API of it."""

    def __init__(self, *views: ClusterView) -> None:
        super().__init__(*views)
        self._responder = Responder(self)

    def request(self, path: str, query: str = "", method: str = "GET", *, gzip: bool = False) -> Response:
        return Response(*self._responder.respond(ApiRequest(method, path.encode(), query.encode(), gzip)))

    def get(self, *names: str, query: str = "") -> Any:
        """The JSON of a path below /api/v1, which must be there."""
        response = self.request("/".join(["/api/v1", *(quote(name, safe="") for name in names)]), query)
        assert response.status == 200, response.body
        assert response.headers["Content-Type"] == "application/json"
        return response.json

    def burrow(self, *names: str) -> tuple[int, Any]:
        """Status and JSON of a path below /v3/kafka."""
        response = self.request("/".join(["/v3/kafka", *(quote(name, safe="") for name in names)]))
        return response.status, response.json


class Response:
    """A response of the API."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body
        assert headers["Content-Length"] == str(len(body))

    @property
    def json(self) -> Any:
        is_gzipped = self.headers.get("Content-Encoding") == "gzip"
        return json.loads(zlib.decompress(self.body, 31) if is_gzipped else self.body)

    @property
    def problem(self) -> dict[str, Any]:
        """The problem details."""
        assert self.headers["Content-Type"] == "application/problem+json"
        found: dict[str, Any] = self.json
        assert found["status"] == self.status
        return found
