"""What is wrong with `owners` of koff.yaml, whose values are right by themselves."""

from __future__ import annotations

import re
import string
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

_NAMES = (*string.ascii_letters, *string.digits, *"._-", "a-group_of.many-0123456789")
"""An expression that is found in each of these names is taken to be found in every name."""

Values = Mapping[str, Any]


def find_owner_errors(owners: Sequence[Values], names: Collection[str]) -> Iterator[tuple[int, str]]:
    """The number of each owner that is wrong, and why. `names` are those of the webhooks."""
    before: dict[str, int] = {}
    for number, owner in enumerate(owners):
        webhook, pattern = owner.get("webhook"), owner.get("groups")
        if webhook is not None and webhook not in names:
            known = f"use {', '.join(sorted(names))}" if names else "give one of webhooks this name"
            yield number, f"no webhook has the name {webhook!r}: {known}"
        if pattern is None:  # an error of its own
            continue
        if (first := before.setdefault(pattern.pattern, number)) < number:
            yield number, f"it never decides: owners[{first}] has the same groups"
        elif number < len(owners) - 1 and finds_all(pattern):
            yield number, "its groups are all groups, so the owners after it never decide: put it last"


def finds_all(pattern: re.Pattern[str]) -> bool:
    """Whether the expression is found in any name. What has a negative assertion is said not to be."""
    is_negative = "(?!" in pattern.pattern or "(?<!" in pattern.pattern
    return not is_negative and all(map(pattern.search, _NAMES))


def find_untold(owners: Sequence[Values], webhooks: Sequence[Values], owned: Collection[str]) -> list[int]:
    """The numbers of the owners that no webhook tells of events: all webhooks are `owned` by other owners."""
    if not webhooks or any(each.get("name") not in owned for each in webhooks):
        return []
    return [number for number, owner in enumerate(owners) if "webhook" not in owner]
