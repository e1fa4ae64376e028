"""The families of koff's errors.

Every error that koff reports to a user is a `KoffError`. A wrong argument from Python code may raise
ValueError or TypeError.
"""

import traceback
from types import FunctionType
from typing import TypeVar

E = TypeVar("E", bound=BaseException)


class KoffError(Exception):
    """An error that koff can explain. Its text is what failed, why, and what to check.

    The text is one line, and below it sometimes the end of the log of a process that failed.
    """


class ConfigError(KoffError):
    """An option, a property or a file has a value that koff cannot use."""


class ConnectError(KoffError):
    """koff cannot reach a cluster, or the cluster refuses koff."""


class NoResponse(ConnectError):
    """No broker has responded in time: the cluster is away, or too busy."""


class Denied(ConnectError):
    """The cluster was reached and refused this user: the log-in, or an operation without permission."""


class LogInRefused(Denied):
    """The cluster was reached, and the log-in or the TLS handshake was refused, by either side."""


class Closed(KoffError):
    """The caller used an object that is closed."""


class OtherProcess(KoffError):
    """The object was made before this process was forked. Only the process that made it can use it."""


def copy_error(error: E) -> E:
    """A copy of the error and its causes, without tracebacks: to keep it, or to raise it while it is kept.

    A traceback has the functions that the error came through, their callers, and the variables of all of
    them. If one of these variables leads to the error, only the garbage collector lets all of them go:
    clients and sockets, too. So an error that is kept must have no traceback, and must not be raised itself.
    The copy of an error that koff did not expect has the traceback as a note.
    """
    kind, args = type(error), error.__reduce__()[1]
    copied = kind.__new__(kind, *args)
    if not isinstance(kind.__init__, FunctionType):  # Python's own errors have more than `args`
        copied.__init__(*args)  # type: ignore[misc]  # it is an object of this class
    copied.args = error.args
    copied.__dict__.update(error.__dict__)
    if error.__traceback__ is not None and not isinstance(error, KoffError):
        text = "".join(traceback.format_tb(error.__traceback__))
        copied.__notes__ = [*getattr(error, "__notes__", ()), text]
    if error.__cause__ is not None:
        copied.__cause__ = copy_error(error.__cause__)
    return copied


def lacks_right(error: KoffError) -> bool:
    """Returns whether the broker accepts the user, who lacks a right."""
    return isinstance(error, Denied) and not isinstance(error, LogInRefused)
