"""Which groups and topics a tracker shows. It keeps the state of all of them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray


def compile_expression(text: str) -> re.Pattern[str]:
    """The regular expression. Raises `ValueError`, whose text says what is wrong with it."""
    try:
        return re.compile(text)
    except (re.error, OverflowError) as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    except RecursionError:
        raise ValueError("is not a regular expression: it is nested too deeply") from None


@dataclass(frozen=True, slots=True)
class Rule:
    """Includes or excludes the names in which `pattern` is found."""

    pattern: re.Pattern[str]
    includes: bool = True

    @classmethod
    def parse(cls, text: str) -> Self:
        """`include:REGEX` or `exclude:REGEX`; a bare `REGEX` includes. Raises `ValueError`."""
        kind, colon, regex = text.partition(":")
        if not colon or kind not in ("include", "exclude"):
            kind, regex = "include", text
        return cls(compile_expression(regex), kind == "include")

    def __str__(self) -> str:
        text = self.pattern.pattern
        is_bare = self.includes and not text.startswith(("include:", "exclude:"))
        return text if is_bare else f"{'include' if self.includes else 'exclude'}:{text}"


@dataclass(frozen=True, slots=True)
class ShownNames:
    """Rules for the names of groups and of topics. The first rule that matches decides.

    A name that no rule matches is shown, unless there is a rule that includes others.
    """

    groups: tuple[Rule, ...] = ()
    topics: tuple[Rule, ...] = ()

    @property
    def are_all(self) -> bool:
        return not self.groups and not self.topics

    def shows_group(self, name: str) -> bool:
        return _decide(self.groups, name)

    def shows_topic(self, name: str) -> bool:
        return _decide(self.topics, name)

    def mask_groups(self, names: list[str]) -> NDArray[np.bool_]:
        return np.array([_decide(self.groups, name) for name in names], np.bool_)

    def mask_topics(self, names: list[str]) -> NDArray[np.bool_]:
        return np.array([_decide(self.topics, name) for name in names], np.bool_)


@dataclass(frozen=True, slots=True)
class Objective:
    """The lag in seconds that the owners of some groups accept, in all topics or in some."""

    groups: re.Pattern[str]
    seconds: float
    topics: re.Pattern[str] | None = None

    def fits(self, group: str, topic: str) -> bool:
        return bool(self.groups.search(group)) and (self.topics is None or bool(self.topics.search(topic)))


def _decide(rules: Sequence[Rule], name: str) -> bool:
    for rule in rules:
        if rule.pattern.search(name):
            return rule.includes
    return not any(rule.includes for rule in rules)
