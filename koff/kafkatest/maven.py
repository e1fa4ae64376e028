"""The Maven repository that Kafka's jars come from: the configured one, or Maven Central."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from xml.etree import ElementTree

from koff.kafkatest.java import KafkaTestError

_TIMEOUT_S = 20.0
_PIECE = 64 * 1024
_REST_OF_FILE = 206


@dataclass(frozen=True, slots=True)
class Repository:
    """A Maven repository at an address, or in a folder. `login` is a user and a password, or None."""

    place: str
    login: tuple[str, str] | None = None

    @contextmanager
    def open(self, path: str, offset: int) -> Iterator[tuple[int, Iterator[bytes]]]:
        """Yields the offset at which the content begins, 0 or `offset`, and its pieces.

        Raises `OSError`, and so do the pieces, when the repository does not respond or the connection ends.
        """
        if "://" not in self.place:
            with (Path(self.place).expanduser() / path).open("rb") as file:
                file.seek(offset)
                yield offset, _read_pieces(file)
            return
        import requests

        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={offset}-"} if offset else {})
        url = f"{self.place.rstrip('/')}/{path}"
        with requests.get(url, headers=headers, auth=self.login, stream=True, timeout=_TIMEOUT_S) as response:
            response.raise_for_status()
            yield offset if response.status_code == _REST_OF_FILE else 0, response.iter_content(_PIECE)


def find_repository() -> Repository:
    """KOFF_MAVEN_REPOSITORY, else the mirror of Maven's settings.xml, else Maven Central."""
    try:
        import requests  # noqa: F401 - the first use is in a thread
        from jgo.constants import MAVEN_CENTRAL_URL
    except ImportError as error:
        raise KafkaTestError(
            "the package jgo is missing, and Kafka's jars come through it: pip install 'koff[demo]'"
        ) from error
    if place := os.environ.get("KOFF_MAVEN_REPOSITORY"):
        return Repository(place)
    return _find_mirror(Path.home() / ".m2" / "settings.xml") or Repository(MAVEN_CENTRAL_URL)


def _find_mirror(settings: Path) -> Repository | None:
    """The mirror of Maven Central in Maven's settings.xml, with the log-in of the server of its id."""
    if not settings.is_file():
        return None
    try:
        root = ElementTree.parse(settings).getroot()  # noqa: S314 - the user's own file
    except ElementTree.ParseError as error:
        raise KafkaTestError(
            f"{settings} is not XML ({error}): correct it, or set KOFF_MAVEN_REPOSITORY"
        ) from error
    for mirror in root.iterfind("{*}mirrors/{*}mirror"):
        names = {name.strip() for name in _text(mirror, "mirrorOf").split(",")}
        if names & {"*", "external:*", "central"} and "!central" not in names:
            return Repository(_text(mirror, "url"), _find_login(root, _text(mirror, "id")))
    return None


def _find_login(root: Any, server_id: str) -> tuple[str, str] | None:
    for server in root.iterfind("{*}servers/{*}server"):
        if _text(server, "id") == server_id and (user := _text(server, "username")):
            return user, _text(server, "password")
    return None


def _text(element: Any, name: str) -> str:
    return str(element.findtext(f"{{*}}{name}", "")).strip()


def _read_pieces(file: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: file.read(_PIECE), b"")
