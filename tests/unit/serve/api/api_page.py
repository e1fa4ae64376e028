"""The examples of docs/api.md, with their output."""

import json
import re
from pathlib import Path

from koff.tracker import Tracker
from tests.unit.builders import ASSIGNED_T_0_1, apply, classic_group, commit
from tests.unit.serve.api.clusters import NOW_MS, Clusters, build_view

PAGE = Path(__file__).parents[4] / "docs" / "api.md"
EXAMPLE = re.compile(r"^    curl '?localhost:9850([^' \n|]+)'?(.*)$", re.MULTILINE)
_OUTPUT = re.compile(
    r"(^    curl '?localhost:9850([^' \n|]+)'?\n\n```json\n).*?(```)", re.MULTILINE | re.DOTALL
)


def build_example() -> Clusters:
    """A cluster prod, in which payments is behind in orders."""
    tracker = Tracker()
    places = [("orders", 0), ("orders", 1)]
    for second in range(0, 400, 20):
        at_ms = NOW_MS - 400_000 + second * 1000
        pairs = [commit("payments", "orders", partition, 1000 + second, at=at_ms) for partition in range(2)]
        pairs.append(
            classic_group("payments", {"payments-1": ASSIGNED_T_0_1.replace(b"\x00\x01t", b"\x00\x06orders")})
        )
        apply(tracker, *pairs, seen_at_ms=at_ms)
        ends = dict.fromkeys(places, 1000 + second * 3)
        tracker.add_samples(ends=ends, starts=dict.fromkeys(places, 0), stables=ends, at_ms=at_ms)
    return Clusters(build_view(tracker.take_snapshot(NOW_MS), "prod"))


def fill_page(page: str) -> str:
    """The page with the output of the API."""
    clusters = build_example()

    def fill(found: re.Match[str]) -> str:
        path, _, query = found[2].partition("?")
        output = json.dumps(clusters.request(path, query).json, ensure_ascii=False, indent=2)
        return f"{found[1]}{output}\n{found[3]}"

    return _OUTPUT.sub(fill, page)
