"""The families of koff's errors. Everything that koff raises on purpose is a `KoffError`."""


class KoffError(Exception):
    """An error that koff can name. Its text is one line: what failed, why, and what to check."""


class ConfigError(KoffError):
    """An option, a property or a file has a value that koff cannot use."""


class ConnectError(KoffError):
    """koff cannot reach a cluster, or the cluster refuses koff."""


class Denied(ConnectError):
    """The cluster was reached and refused this user: the log-in, or an operation without permission."""


class Closed(KoffError):
    """The caller used an object that is closed."""
