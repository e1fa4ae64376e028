"""The families of koff's errors.

Every error that koff reports to a user is a `KoffError`. A wrong argument from Python code may raise
ValueError or TypeError.
"""


class KoffError(Exception):
    """An error that koff can explain. Its text is what failed, why, and what to check.

    The text is one line, and below it sometimes the end of the log of a process that failed.
    """


class ConfigError(KoffError):
    """An option, a property or a file has a value that koff cannot use."""


class ConnectError(KoffError):
    """koff cannot reach a cluster, or the cluster refuses koff."""


class Denied(ConnectError):
    """The cluster was reached and refused this user: the log-in, or an operation without permission."""


class Closed(KoffError):
    """The caller used an object that is closed."""
