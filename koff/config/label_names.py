"""The names that labels of a cluster and of a group may have."""

import re
from collections.abc import Mapping
from itertools import combinations
from typing import Any

from koff.serve.metrics.families import FAMILIES
from koff.tracker import compile_expression

_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_COMPAT = (
    *("group_id", "topic_name", "partition_id", "coordinator_id", "partition_count", "replication_factor"),
    *("broker_count", "broker_id", "consumergroup"),
)
_OF_FAMILIES = {label for each in FAMILIES if each.name != "koff_build_info" for label in each.labels}
OWN_LABELS = frozenset({"cluster", *_OF_FAMILIES, *_OF_COMPAT})
"""Labels that koff sets. A label beside them may not have the same name."""


def find_label_error(name: str) -> str | None:
    """Why a label may not have this name; None if it may."""
    if not _LABEL.fullmatch(name) or name.startswith("__"):
        return "a label has letters, digits and _, and no __ in front"
    return f"koff itself sets the label {name}" if name in OWN_LABELS else None


def parse_group_labels(text: str) -> re.Pattern[str]:
    """A regular expression whose named groups are labels. Raises `ValueError`."""
    pattern = compile_expression(text)
    if not pattern.groupindex:
        raise ValueError("names no label: write (?P<LABEL>...) around the part of the name")
    for name in pattern.groupindex:
        if why := find_label_error(name):
            raise ValueError(f"names the label {name}: {why}")
    return pattern


def find_clash(values: Mapping[str, Any]) -> str | None:
    """Says which label two settings of a cluster would set; None if there is none."""
    from_names = {name for each in values["group_labels"] for name in each.groupindex}
    from_owners = {"owner"} if values["owners"] else set()
    given = {"labels": {*values["labels"]}, "group_labels": from_names, "owners": from_owners}
    clashes = ((one, other, given[one] & given[other]) for one, other in combinations(given, 2))
    return next((f"{a} and {b} both set the label {min(both)}" for a, b, both in clashes if both), None)
