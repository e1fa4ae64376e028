"""The samples of output in README.md and docs/, made by the commands."""

import json
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any
from unittest.mock import patch

from click.testing import CliRunner

from koff.cli import main
from koff.cli.text_table import wrap_text
from koff.serve.events.changes import ClusterChanges
from koff.serve.events.event_log import EventLog
from koff.tracker import Tracker
from koff.view.cluster_view import ClusterView, MonitorStats
from tests.group_records import assign
from tests.unit.builders import apply, classic_group, commit
from tests.unit.serve.views import READY

BEGAN_MS, STEP_S, QUIET_S, ILL_S = 1_795_225_081_984, 10, 300, 150
PARTITIONS, PER_S, FIRST = range(4), 10, 80_000
WIDTH = 110
GROUPS: dict[str, Callable[[int], float]] = {
    "billing": lambda partition: 0,
    "orders": lambda partition: 0 if partition == 3 else PER_S,
    "search": lambda partition: PER_S * 0.05,
    "audit": lambda partition: PER_S,
}
"""Each group reads the topic of its name. It keeps up at first, and then reads so many records a second of a
partition. The only member of billing leaves."""


def build_view() -> ClusterView:
    """The cluster europe: nobody has looked at it yet."""
    tracker = Tracker()
    ends = {(topic, partition): FIRST for topic in GROUPS for partition in PARTITIONS}
    committed = dict.fromkeys(ends, float(FIRST))
    for name in GROUPS:
        join(tracker, name, BEGAN_MS)
    for second in range(0, QUIET_S + ILL_S, STEP_S):
        at_ms, is_ill = BEGAN_MS + second * 1000, second >= QUIET_S
        if second == QUIET_S:
            apply(tracker, classic_group("billing", {}, generation=2, since_ms=at_ms), seen_at_ms=at_ms)
        for (topic, partition), offset in committed.items():
            ends[topic, partition] += PER_S * STEP_S
            read = GROUPS[topic](partition) * STEP_S if is_ill else PER_S * STEP_S
            committed[topic, partition] = min(offset + read, ends[topic, partition])
            if not (is_ill and read == 0):
                pair = commit(topic, topic, partition, int(committed[topic, partition]), at=at_ms)
                apply(tracker, pair, seen_at_ms=at_ms)
        tracker.add_samples(ends=ends, starts=dict.fromkeys(ends, 0), stables=ends, at_ms=at_ms)
    return ClusterView("europe", tracker.take_snapshot(at_ms), READY, MonitorStats())


def join(tracker: Tracker, name: str, at_ms: int) -> None:
    members = {f"{name}-1": assign((name, PARTITIONS))}
    apply(tracker, classic_group(name, members, since_ms=at_ms), seen_at_ms=at_ms)


def run(*args: str) -> str:
    """What a command prints on a terminal of `WIDTH` columns."""
    command = import_module(f"koff.cli.{args[0]}")
    with (
        patch("koff.cli.looks.take_views", lambda *_, **__: iter([build_view()])),
        patch.object(command, "find_width", lambda: WIDTH),
    ):
        result = CliRunner().invoke(main, [*args, "--brokers", "kafka:9092"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def build_event() -> dict[str, Any]:
    """The event that the incident of orders was opened, as the API has it."""
    view, log = build_view(), EventLog(BEGAN_MS)
    kept = log.add(ClusterChanges().compare(view, view.snapshot.now_ms or 0), view.snapshot.now_ms or 0)
    (event,) = [event for event in kept if event.kind == "incident_opened" and event.group == "orders"]
    return event.to_json()


def indent(lines: list[str]) -> str:
    return "".join(f"    {line}\n" for line in lines)


SAMPLES: dict[str, tuple[str, Callable[[], str]]] = {
    "README.md": ("`koff lag` looks like this:", lambda: indent(run("lag").splitlines())),
    "docs/verdicts.md": (
        "show it:",
        lambda: indent(wrap_text(build_event()["details"]["causes"][0]["text"], 120)),
    ),
    "docs/events.md": ("An event:", lambda: f"```json\n{json.dumps(build_event(), indent=1)}\n```\n"),
}
"""By page, the line that announces a sample, and the sample."""


def fill_page(name: str, page: str) -> str:
    """The page with its sample, which is a paragraph of its own."""
    announced, build_sample = SAMPLES[name]
    begin, found, rest = page.partition(f"{announced}\n\n")
    assert found, f"the page has no place for a sample: {announced}"
    return f"{begin}{found}{build_sample()}{rest[re.search(r'(?m)^$', rest).start() :]}"
