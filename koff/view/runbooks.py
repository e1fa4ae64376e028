"""The address of the runbook of a group, from the template that koff.yaml has."""

from __future__ import annotations

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
