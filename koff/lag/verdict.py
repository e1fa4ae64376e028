"""What is said of a group: the verdict, where its allowance comes from, and what became of its incident."""

from enum import IntEnum


class Verdict(IntEnum):
    """From unknown and good to bad. The names are in JSON and metrics, so they never change."""

    UNKNOWN = 0
    OK = 1
    WARN = 2
    """Late: it may recover by itself."""
    ERR = 3
    """It will not recover by itself, or records are lost."""


class Basis(IntEnum):
    """Where an allowance comes from. The names are in JSON and metrics, so they never change."""

    FLOOR = 0
    USUAL = 1
    OBJECTIVE = 2
    RETENTION = 3


class IncidentChange(IntEnum):
    """What became of the incident of a group."""

    NONE = 0
    OPENED = 1
    RAISED = 2
    """The first ERR of an incident that began as WARN."""
    CLOSED = 3
