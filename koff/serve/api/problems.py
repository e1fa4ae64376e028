"""Errors of the API as problem details (RFC 9457)."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

CONTENT_TYPE = "application/problem+json"
_NAMED = 20
"""So many names are listed, at most."""
_SHOWN = 100
"""So many characters of a client's text are repeated, at most."""


class Problem(Exception):
    """A request that gets no other response than this error. `members` are added to the problem details."""

    def __init__(self, status: int, detail: str, **members: Any) -> None:
        super().__init__(detail)
        self.status, self.detail, self.members = status, detail, members

    def build(self) -> dict[str, Any]:
        title = HTTPStatus(self.status).phrase
        return {
            "type": "about:blank",
            "title": title,
            "status": self.status,
            "detail": self.detail,
            **self.members,
        }


class NotFound(Problem):
    """There is nothing of that name. Says which names there are, if they are few."""

    def __init__(self, kind: str, name: str, known: Sequence[str]) -> None:
        members = {"known": sorted(known)} if len(known) <= _NAMED else {}
        super().__init__(404, f"there is no {kind} named {shorten(name)}", **members)


class NotKnown(Problem):
    """There may be something of that name: koff does not know all that there is, for the reason `why`."""

    def __init__(self, kind: str, name: str, why: str) -> None:
        super().__init__(503, f"whether there is a {kind} named {shorten(name)} is not known: {why}")


class BadParameter(Problem):
    """A parameter has a value that it cannot have. `allowed` says which it can have."""

    def __init__(self, parameter: str, value: str, allowed: str) -> None:
        detail = f"the parameter {parameter} is {shorten(value)}; allowed: {allowed}"
        super().__init__(400, detail, parameter=parameter, allowed=allowed)


def shorten(text: str) -> str:
    """A text of a client in quotation marks, shortened."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
