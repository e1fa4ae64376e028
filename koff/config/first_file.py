"""The text of a first koff.yaml: what was found, and what else there is, as comments. Pure."""

import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from koff.config.kinds import Setting
from koff.config.settings import SETTINGS

WIDTH = 100
OFFERED_OF_CLUSTER = ("groups", "group_labels", "expected_groups")
OFFERED = ("state_dir", "web_config_file", "tokens_file")
"""Settings that the file explains without setting them."""
STEPS_S = (60, 120, 300, 600, 1800, 3600, 7200, 21_600, 86_400)
"""The objectives that koff proposes."""
_MOST_NAMES = 20


@dataclass(frozen=True, slots=True)
class FirstFile:
    """What is known of the only cluster. `cluster` has its settings, and `late_s` how late each group was.

    `found` are lines about the cluster. Groups that are late already are not in `late_s`.
    """

    cluster: Mapping[str, Any]
    found: Iterable[str]
    late_s: Mapping[str, float] = field(default_factory=dict)
    seen_for_s: float = 0.0

    def format(self) -> str:
        lines = [
            *_comment("koff.yaml, written by `koff quickstart`. `koff config check` checks it."),
            *_comment(
                "Every key is in docs/configuration.md, and `koff config schema` prints it for editors."
            ),
            *(line for text in self.found for line in _comment(text)),
            "clusters:",
            *_indent(_dump([dict(self.cluster)]), 2),
            *_indent(self._propose_objectives(), 4),
            *_indent(_offer(OFFERED_OF_CLUSTER), 4),
            *_dump({"listen": SETTINGS["listen"].default}),
            *_offer(OFFERED),
        ]
        return "".join(f"{line}\n" for line in lines)

    def _propose_objectives(self) -> list[str]:
        objectives = propose_objectives(self.late_s)
        if not objectives:
            return []
        return [
            *_comment(
                "The lag in seconds that the owners of these groups may accept: twice the most that koff saw"
                f" in {self.seen_for_s:.0f} s, rounded up. Ask them. Without an objective, koff learns what"
                " is usual."
            ),
            *(f"# {line}" for line in _dump({"objectives": objectives})),
        ]


def propose_objectives(late_s: Mapping[str, float]) -> list[dict[str, Any]]:
    """Objectives for groups that have been so late, the strictest first: each is for twice that, or more."""
    by_step: dict[int, list[str]] = {}
    for name, seconds in sorted(late_s.items()):
        step = next((step for step in STEPS_S if step >= 2 * seconds), STEPS_S[-1])
        by_step.setdefault(step, []).append(re.escape(name).replace("\\-", "-"))
    return [
        {"groups": f"^({'|'.join(names[first : first + _MOST_NAMES])})$", "seconds": step}
        for step, names in sorted(by_step.items())
        for first in range(0, len(names), _MOST_NAMES)
    ]


def _offer(names: Iterable[str]) -> list[str]:
    return [line for name in names for line in _explain(SETTINGS[name])]


def _explain(setting: Setting) -> list[str]:
    return [*_comment(setting.help), *(f"# {line}" for line in _dump({setting.name: setting.example}))]


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, WIDTH)]


def _dump(value: Any) -> list[str]:
    import yaml

    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=10_000)).splitlines()


def _indent(lines: Iterable[str], by: int) -> list[str]:
    return [f"{' ' * by}{line}" for line in lines]
