"""A moment, by two clocks."""

from typing import NamedTuple


class Moment(NamedTuple):
    """A moment by two clocks: `at_s` never steps, and counts from `boot`; `wall_ms` is since 1970, may step.

    `boot` names the start of the machine. Two `at_s` of different boots cannot be compared.
    """

    at_s: float
    wall_ms: int
    boot: str = ""
