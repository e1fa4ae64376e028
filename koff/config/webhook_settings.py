"""The settings of each element of `webhooks` in koff.yaml."""

from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlsplit

from koff.client.secret_file import read_secret
from koff.config import kinds
from koff.config.kinds import MASK, Setting, Texts
from koff.serve.events.event import KINDS, Severity
from koff.serve.events.quiet_hours import QuietHours
from koff.serve.events.templates import TEMPLATES, find_template
from koff.serve.events.webhook_conf import check_url, find_header_fault
from koff.tracker import Rule


def _read_checked(check: Callable[[str], object]) -> Callable[[str], str]:
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
_TEMPLATES = ", ".join(f"`{name}`" for name in TEMPLATES) + ", or `JSON`"
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
        "A name, for `owners`, logs and `koff notify test`.",
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
        replace(kinds.text("TEMPLATE", _read_checked(find_template)), values=_TEMPLATES),
        "What a request has in it: that which a service expects, or JSON of your own.",
        "events",
        example="pagerduty",
        mask=lambda template: template if template in TEMPLATES else MASK,
        see="events.md#templates",
    ),
    Setting(
        "routing_key",
        kinds.text("KEY", _read_checked(lambda key: None)),
        "The integration key, for the template pagerduty. `file:PATH` is a file with it.",
        example="R0123456789",
        mask=lambda key: MASK,
    ),
    Setting(
        "throttle",
        kinds.count(1),
        "At most so many requests in ten minutes. One summary afterwards has the events above that.",
        default_text="no limit",
        see="events.md#quiet-hours-throttle-reminders",
    ),
    Setting(
        "remind",
        kinds.number("SECONDS", 60, 7 * 86_400),
        "Tell again of an incident that lasts, each time after so long.",
        default_text="never",
        field="remind_s",
        see="events.md#quiet-hours-throttle-reminders",
    ),
    Setting(
        "quiet_hours",
        kinds.text("[DAYS ]HH:MM-HH:MM[ ZONE]", QuietHours.parse),
        "Hold events back at these times, and tell of them afterwards, in one summary. The time zone is UTC "
        "if none is given.",
        default_text="none",
        example=["sat,sun 00:00-24:00", "22:00-07:00 Europe/Berlin"],
        many=True,
        see="events.md#quiet-hours-throttle-reminders",
    ),
)
"""Of each element of `webhooks`."""
