"""Who owns a group: by `owners` of koff.yaml, the first whose pattern is found in the group's name."""

import re
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

_EXAMPLE = {"cluster": "c", "group": "g", "cause": "no_members"}


def build_runbook_url(template: str, *, cluster: str, group: str, cause: str) -> str:
    """The template with `{cluster}`, `{group}` and `{cause}` filled in, quoted."""
    names = {"cluster": cluster, "group": group, "cause": cause}
    return template.format_map({key: quote(name, safe="") for key, name in names.items()})


def check_runbook_template(template: str) -> None:
    """Raises `ValueError` if that makes no http address."""
    try:
        address = template.format_map(_EXAMPLE)
    except (LookupError, AttributeError, ValueError) as error:
        raise ValueError("only {cluster}, {group} and {cause} may stand in braces") from error
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it must begin with http://HOST or https://HOST")


_MOST_KNOWN = 100_000
"""So many groups are remembered at most: their names come and go."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of the groups in whose name `groups` is found.

    `runbook` is a template as in `koff.view.owners`, and `webhook` the name of a webhook.
    """

    groups: re.Pattern[str]
    team: str
    contact: str | None = None
    runbook: str | None = None
    webhook: str | None = None


@dataclass(frozen=True, slots=True)
class Owners:
    """The owners in the order of koff.yaml. Any thread may call `find`."""

    listed: tuple[Owner, ...] = ()
    _known: dict[str, Owner | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    def find(self, group: str) -> Owner | None:
        if not self.listed:
            return None
        try:
            return self._known[group]
        except KeyError:
            owner = next((each for each in self.listed if each.groups.search(group)), None)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[group] = owner
        return owner
