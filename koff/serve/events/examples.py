"""An example of each kind of notice, as `koff notify test` sends them."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from koff.serve.events.event import ClusterEvent, Kind, Severity, format_time
from koff.view.owners import Owner

_OWNER = Owner(re.compile("example"), "example-team", "#example-oncall")
_GROUP: dict[str, Any] = {
    "group": "example",
    "owner": _OWNER,
    "runbook_url": "https://example.com/runbook?group=example",
}
_WHY = "it consumes 34 offsets a second, and 70 are produced"
_CAUSES = [{"cause": "too_slow", "text": _WHY, "advice": "add members, or make the processing faster"}]
_LATE = {"lag": 5700, "time_lag_s": 180.0, "allowance_s": 120.0, "catch_up_s": None, "causes": _CAUSES}


class _Example(NamedTuple):
    """An event. Those of the same `thing` have the same key; "" is none."""

    kind: Kind
    severity: Severity
    text: str
    details: Mapping[str, Any]
    thing: str = ""
    ends: Severity | None = None


_EXAMPLES = {
    "an incident begins": _Example(
        "incident_opened",
        Severity.WARNING,
        f"group example: WARN: Late: {_WHY}; 5,700 records wait, the oldest for 3 min (2 min is allowed)",
        {"status": "WARN", **_LATE},
        "incident",
    ),
    "it is raised": _Example(
        "incident_raised",
        Severity.ERROR,
        "group example: ERR: Stopped: none of its 2 members is left; 9,400 records wait",
        {"status": "ERR", **_LATE},
        "incident",
    ),
    "it lasts": _Example(
        "incident_lasts",
        Severity.ERROR,
        f"group example: ERR for 2 h now: {_WHY}",
        {"status": "ERR", "duration_s": 7200.0, "causes": _CAUSES},
        "incident",
    ),
    "it ends": _Example(
        "incident_closed",
        Severity.INFO,
        "group example: it is OK again, with a lag of 12. The incident lasted 2 h 7 min",
        {"status": "OK", "duration_s": 7620.0, "worst": "ERR"},
        "incident",
        Severity.ERROR,
    ),
    "an event of its own": _Example(
        "offsets_reset",
        Severity.WARNING,
        "group example: the committed offset of orders-3 went back from 88,001 to 0",
        {"from": 88_001, "to": 0, "partitions": 1, "offsets": 88_001},
    ),
    "koff does not see a cluster": _Example(
        "blind",
        Severity.ERROR,
        "cluster koff-test: koff is not ready: the cluster does not respond",
        {"why": "the cluster does not respond"},
        "blind",
    ),
    "koff sees it again": _Example(
        "recovered",
        Severity.INFO,
        "cluster koff-test: koff is ready again, after 2 min 5 s",
        {"seconds": 125.0},
        "blind",
        Severity.ERROR,
    ),
    "a summary": _Example(
        "summary",
        Severity.WARNING,
        "1 event held back since 2026-11-21T22:00:00.000Z (quiet hours):\n- group example: WARN: Late",
        {"kinds": {"incident_opened": 1}},
    ),
}


def build_examples(at_ms: int) -> dict[str, ClusterEvent]:
    """Notices by what they are. Each text says that it is a test. What begins ends in a later one."""
    return {name: _build(example, at_ms, name) for name, example in _EXAMPLES.items()}


def _build(example: _Example, at_ms: int, name: str) -> ClusterEvent:
    about: dict[str, Any] = {} if example.kind in ("blind", "recovered", "summary") else _GROUP
    return ClusterEvent(
        "koff-test",
        example.kind,
        example.severity,
        f"TEST: {example.text}",
        details=example.details,
        key=f"koff-test/{at_ms}/{example.thing}" if example.thing else "",
        ends=example.ends,
        id=f"koff-test/{at_ms}/{name.replace(' ', '-')}",
        time=format_time(at_ms),
        **about,
    )
