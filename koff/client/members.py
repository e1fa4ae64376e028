"""Members of enums that a caller may also name by their value."""

from enum import Enum

from koff.errors import ConfigError


def normalize_members(conf: object, **kinds: type[Enum]) -> None:
    """Replaces each named field of a frozen dataclass by the member of its enum. Raises `ConfigError`.

    A field may be a member's value, "gzip" or -1: code compares members by identity, and a plain value would
    silently be none of them.
    """
    for name, kind in kinds.items():
        value = getattr(conf, name)
        try:
            object.__setattr__(conf, name, kind(value))
        except ValueError:
            allowed = ", ".join(repr(member.value) for member in kind)
            raise ConfigError(f"{name} {value!r} is not valid: use one of {allowed}") from None
