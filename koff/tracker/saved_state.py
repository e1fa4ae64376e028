"""State that can be saved and restored in another process: JSON facts, and columns of numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.records.key_codes import NameCodes
from koff.tracker.groups.group_table import SCHEMA as GROUPS_SCHEMA

STATE_SCHEMA = [1, GROUPS_SCHEMA]
"""The schema of every `State` that this koff makes. A state of another schema must not be restored."""


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """A copy of the state of a shard (`save_shard`) or of the end offsets (`save_ends`).

    `facts` can be written as JSON. `columns` are arrays of numbers, by name. Both must not be changed.
    """

    facts: Mapping[str, Any]
    columns: Mapping[str, NDArray[Any]]


def compact_codes(codes: NDArray[np.int32], names: NameCodes) -> tuple[list[str], NDArray[np.int32]]:
    """The distinct names of `codes`, and for each code the index of its name among them."""
    distinct, numbers = np.unique(codes, return_inverse=True)
    return [names.names[code] for code in distinct.tolist()], numbers.astype(np.int32)


def expand_codes(saved: Sequence[str], numbers: NDArray[np.int32], names: NameCodes) -> NDArray[np.int32]:
    """The codes of `compact_codes`, as the codes that the `saved` names have in `names` now."""
    # Names that are new to this process get a code here.
    codes: NDArray[np.int32] = np.array([names.assign_code(name) for name in saved], np.int32)[numbers]
    return codes
