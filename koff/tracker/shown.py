"""Which groups and topics a tracker shows. It keeps the state of all of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ShownNames:
    """Only groups and topics in whose name the expression is found; None: all."""

    groups: re.Pattern[str] | None = None
    topics: re.Pattern[str] | None = None

    @property
    def are_all(self) -> bool:
        """Whether every group and every topic is shown."""
        return self.groups is None and self.topics is None

    def shows_group(self, name: str) -> bool:
        """Whether the group is shown."""
        return self.groups is None or self.groups.search(name) is not None

    def mask_groups(self, names: list[str]) -> NDArray[np.bool_]:
        """Which of the groups are shown."""
        return _mask(self.groups, names)

    def mask_topics(self, names: list[str]) -> NDArray[np.bool_]:
        """Which of the topics are shown."""
        return _mask(self.topics, names)


def _mask(expression: re.Pattern[str] | None, names: list[str]) -> NDArray[np.bool_]:
    if expression is None:
        return np.ones(len(names), np.bool_)
    return np.array([expression.search(name) is not None for name in names], np.bool_)
