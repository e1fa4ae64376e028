"""The few families of koff's errors; everything that koff raises on purpose is a `KoffError`."""


class KoffError(Exception):
    """Something koff can name. Its text is one line: what failed, why, and what to check."""


class ConfigError(KoffError):
    """An option, a property or a file says something that cannot be."""


class ConnectError(KoffError):
    """A cluster cannot be reached, or does not let us in."""


class Denied(ConnectError):
    """The cluster was reached, and says that this user may not."""


class Closed(KoffError):
    """A call on something that was closed before."""
