"""The lines around the list of the live view, as text. No I/O, no clock."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from koff.cli.lag_tables import BARS
from koff.cli.live_state import LiveState
from koff.cli.text_table import shorten_middle
from koff.cli.view_facts import WITHHELD_TOTALS
from koff.tracker import GroupTotal
from koff.view.verdicts import WORST_FIRST
from koff.view.wording import count, show_duration

_PLAIN = str.maketrans({"…": "~", **dict(zip(BARS, "_.-=+*#@", strict=True))})
_LEAST_CLUSTER, _ONE_LINE = 12, 100
"""The name of the cluster takes a third of the width at most, or `_LEAST_CLUSTER` columns. From `_ONE_LINE`
columns on, the head is one line."""


class Happening(NamedTuple):
    """What koff saw at a time: of a group, or (None) of the cluster."""

    time: str
    group: str | None
    text: str


def fit_encoding(text: str, encoding: str) -> str:
    """The text with characters that a terminal with this encoding has: other bars, and escapes in names."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_PLAIN).encode(encoding, "backslashreplace").decode(encoding)
    return text


def describe_cluster(
    cluster: str, totals: Sequence[GroupTotal] | None, age_s: float | None, width: int
) -> list[str]:
    """How old the view is (None: there is none yet), and how many groups have which verdict.

    Without `totals`, it is not known which groups there are.
    """
    cluster = shorten_middle(cluster, max(_LEAST_CLUSTER, width // 3))
    if age_s is None:
        return [f"koff  {cluster}  connecting ..."]
    age = "now" if age_s < 2 else f"{show_duration(age_s)} old"
    if totals is None:
        return [f"koff  {age}  {cluster}  groups unknown"]
    counts = Counter(total.status for total in totals)
    strip = [f"{counts[each]:,} {each.name}" for each in WORST_FIRST]
    strip.append(f"{sum(total.reason in WITHHELD_TOTALS for total in totals):,} withheld")
    lines = [f"koff  {age}  {cluster}  {count(len(totals), 'group')}", "  ".join(strip)]
    return ["  ".join(lines)] if width >= _ONE_LINE else lines


def describe_keys(state: LiveState, *, is_paused: bool) -> str:
    """The last line: what is shown, and the keys that help."""
    if state.is_typing:
        return f"filter: {state.text}_   enter keeps it, escape clears it"
    if state.page != "groups":
        back = "" if state.page == state.home else "esc back  "
        return f"{back}up/down scroll  ? help  q quit"
    shown = ["order paused"] if is_paused else []
    shown.append("the worst first" if state.sort == "worst" else f"by {state.sort}")
    shown += ["only lagging"] if state.is_lagging else []
    shown += [f"filter: {state.text}"] if state.text else []
    return f"{', '.join(shown)}  |  q quit  ? help  / filter  s sort  enter open  p pause  l lagging"
