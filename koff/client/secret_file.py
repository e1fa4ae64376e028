"""Values of properties that are the content of a file, and are read again for each connection."""

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from koff.errors import ConfigError

FILE_PREFIX = "file:"
_MAX_CHARACTERS = 1 << 20


class SecretFile(str):
    """The content of the file `path`, as it was when this object was made, without the newline at its end.

    Raises OSError or ValueError at creation if the file cannot be read, or is not text.
    """

    path: str

    def __new__(cls, path: str) -> Self:
        made = super().__new__(cls, _read(path))
        made.path = path
        return made

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        # A copy, perhaps in another process, is the content and no more.
        return str, (str(self),)

    def read_again(self) -> str:
        """The present content; the first one if the file is empty or cannot be read."""
        try:
            return _read(self.path) or str(self)
        except (OSError, ValueError):
            return str(self)


def read_secret(value: str, where: str) -> str:
    """The value; that of `file:PATH` is the content of the file, and is read again for each connection.

    Raises `ConfigError`, whose text names `where`.
    """
    if isinstance(value, SecretFile) or not str(value).startswith(FILE_PREFIX):
        return value
    path = value.removeprefix(FILE_PREFIX)
    try:
        return SecretFile(path)
    except (OSError, ValueError) as error:  # ValueError: also of a path that no file can have
        why = (error.strerror if isinstance(error, OSError) else None) or "it is not text"
        raise ConfigError(f"{where}: cannot read {path}: {why}") from None


def read_again(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties with the present content of files."""
    return {
        name: value.read_again() if isinstance(value, SecretFile) else value
        for name, value in properties.items()
    }


def _read(path: str) -> str:
    with Path(path).open() as opened:
        text = opened.read(_MAX_CHARACTERS + 1)
    if "\0" in text or len(text) > _MAX_CHARACTERS:
        raise ValueError("it is no text for a property")
    return text.removesuffix("\n")
