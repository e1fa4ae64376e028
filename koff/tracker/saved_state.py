"""State that outlives the process: what JSON keeps, and columns of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.records.key_codes import Names
from koff.tracker.groups.group_table import SCHEMA as GROUPS_SCHEMA

STATE_SCHEMA = [1, GROUPS_SCHEMA]
"""Of every `State` that this koff makes. One of another schema must not be restored."""


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """What `Shard.to_state` and `Tracker.save_ends` give, and nobody changes any more.

    `facts` are what JSON keeps; `columns` arrays (N,) of numbers, by name.
    """

    facts: Mapping[str, Any]
    columns: Mapping[str, NDArray[Any]]


def numbered(codes: NDArray[np.int32], names: Names) -> tuple[list[str], NDArray[np.int32]]:
    """The names that those codes stand for, each once, and the index among them of each code."""
    distinct, numbers = np.unique(codes, return_inverse=True)
    return [names.names[code] for code in distinct.tolist()], numbers.astype(np.int32)


def recoded(given: Sequence[str], numbers: NDArray[np.int32], names: Names) -> NDArray[np.int32]:
    """What `numbered` was given, with the codes that the names have in `names` now."""
    codes: NDArray[np.int32] = np.array([names.code(name) for name in given], np.int32)[numbers]
    return codes
