"""The settings of each element of `webhooks` in koff.yaml."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlsplit

from koff.client.secret_file import read_secret
from koff.config import kinds
from koff.config.kinds import MASK, Setting, Texts
from koff.serve.events.event import KINDS, Severity
from koff.serve.events.webhook import check_template, check_url, find_header_fault
from koff.tracker import Rule


def _read_checked(check: Callable[[str], None]) -> Callable[[str], str]:
    """A function that returns a text, or the content of `file:PATH`, once it is checked."""

    def parse(given: str) -> str:
        found = read_secret(given, "it names a file")
        check(found)
        return found

    return parse


def _find_header_fault(name: str, given: str) -> str:
    why = find_header_fault(name, given)
    return f" {why}" if why else ""


def _mask_url(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/{MASK}"


RULE = kinds.text("RULE", Rule.parse)
WEBHOOK_SETTINGS = (
    Setting(
        "url",
        kinds.text("URL", _read_checked(check_url)),
        "Where to send events: `http://HOST[:PORT]/PATH`, or https. `file:PATH` is a file with the URL.",
        example="https://alerts.example/koff",
        required=True,
        mask=_mask_url,
    ),
    Setting(
        "name",
        kinds.text("NAME"),
        "A name, for `owners`.",
        example="payments",
    ),
    Setting(
        "min_severity",
        replace(kinds.choice("info", "warning", "error"), parse=Severity.parse),
        "The least severity to send. The end of something counts as what it ends.",
        "warning",
    ),
    Setting(
        "kinds",
        replace(kinds.choice(*KINDS), values="`KIND`"),
        "Only these kinds of events.",
        default_text="all",
        example=["blind"],
        many=True,
        see="events.md#kinds",
    ),
    Setting(
        "groups",
        RULE,
        "Only groups that these rules include. Events without a group are always sent.",
        default_text="all",
        example="^payments",
        many=True,
        see="#rules",
    ),
    Setting(
        "headers",
        Texts(_find_header_fault),
        "Headers of the request. A value `file:PATH` is the content of that file.",
        example={"X-Source": "koff"},
        mask=lambda headers: dict.fromkeys(headers, MASK),
    ),
    Setting(
        "timeout", kinds.number("SECONDS", 0.1, 3600), "How long a request may take.", 5.0, field="timeout_s"
    ),
    Setting("retries", kinds.count(0), "How often a request that failed is sent again.", 8),
    Setting(
        "template",
        kinds.text("JSON", _read_checked(check_template)),
        "The body: JSON in which `$events` is the list of events, and `$text` a text of their sentences. "
        "With `$key`, `$action` or `$severity`, each event is a request.",
        '{"events": $events}',
        example='{"text": $text}',
        mask=lambda template: MASK,
    ),
)
"""Of each element of `webhooks`."""
