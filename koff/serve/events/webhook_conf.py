"""The configuration of a webhook, and which events it gets."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from koff.errors import ConfigError
from koff.serve.events.event import INCIDENT_BEGINS, KINDS, ClusterEvent, Severity
from koff.serve.events.quiet_hours import QuietHours
from koff.serve.events.templates import Filling, NoticeTemplate, find_template
from koff.tracker import Rule, ShownNames

_LONGEST_TIMEOUT_S = 3600
_REMINDERS_MISSED = 3
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookConf:
    """Where events are sent to, and which: all that fit. Raises `ConfigError`, whose text has no secret.

    `groups` are rules for the names of groups; events without a group always fit. Without `kinds`, all fit.
    One that is `owned`, because owners name it, gets the events of their groups only, and those without a
    group if it has no `groups`.

    A request that fails is sent again `retries` times. `template` is a name of `TEMPLATES`, or the body: JSON
    with `$events` (the list of events) or `$text` (their sentences, as one text). With `$key`, `$action` or
    `$severity`, each event is sent by itself.

    There are `throttle` requests in ten minutes at most. An incident is told again after each `remind_s`
    without another notice of it.
    """

    url: str = field(repr=False)
    name: str | None = None
    owned: bool = False
    min_severity: Severity = Severity.WARNING
    kinds: tuple[str, ...] = ()
    groups: tuple[Rule, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = 5.0
    retries: int = 8
    template: str = field(default="events", repr=False)
    routing_key: str | None = field(default=None, repr=False)
    throttle: int | None = None
    remind_s: float | None = None
    quiet_hours: tuple[QuietHours, ...] = ()
    notices: NoticeTemplate = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_url(self.url)
        for name, value in self.headers.items():
            if why := find_header_fault(name, value):
                raise ConfigError(f"the header {name!a} of a webhook {why}")
        if unknown := set(self.kinds).difference(KINDS):
            raise ConfigError(f"a webhook names the kind {min(unknown)!r}, which no event has")
        if not 0 < self.timeout_s <= _LONGEST_TIMEOUT_S:
            raise ConfigError(f"the timeout of a webhook must be at most {_LONGEST_TIMEOUT_S} s")
        object.__setattr__(self, "notices", find_template(self.template))
        if (self.template == "pagerduty") != (self.routing_key is not None):
            raise ConfigError("a webhook needs a routing_key with the template pagerduty, and only with it")
        if self.template == "alertmanager" and (self.quiet_hours or self.throttle):
            raise ConfigError(  # it takes an alert that it does not get again for resolved
                "a webhook with the template alertmanager has no quiet_hours and no throttle: use those of "
                "Alertmanager (mute_time_intervals, group_interval)"
            )

    @property
    def place(self) -> str:
        """The URL without what may be secret: its path and its query."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def filling(self) -> Filling:
        """What requests need besides events."""
        key = self.routing_key or ""
        return Filling(key) if self.remind_s is None else Filling(key, _REMINDERS_MISSED * self.remind_s)

    def fits(self, event: ClusterEvent) -> bool:
        """Whether the event is to be sent."""
        return (
            event.reaches(self.min_severity)
            and (not self.kinds or self._names(event))
            and (event.group is None or ShownNames(self.groups).shows_group(event.group))
            and (not self.owned or self._is_named_by_owner(event))
        )

    def _names(self, event: ClusterEvent) -> bool:
        is_reminder = event.kind == "incident_lasts" and not INCIDENT_BEGINS.isdisjoint(self.kinds)
        return is_reminder or event.kind in self.kinds

    def _is_named_by_owner(self, event: ClusterEvent) -> bool:
        if event.group is None:
            return not self.groups
        return event.owner is not None and event.owner.webhook == self.name


def find_header_fault(name: str, value: str) -> str:
    """Why a request may not have the header; "" if it may."""
    is_right = _HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value)
    return "" if is_right else "has characters that HTTP forbids"


def check_url(url: str) -> None:
    """Raises `ConfigError` if requests cannot be sent to the URL. The text does not have it."""
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_right = False
    if not is_right or not re.fullmatch(r"[\x21-\x7e]+", url):
        raise ConfigError("the URL of a webhook must be http://HOST[:PORT]/PATH, or https")
    if "@" in parts.netloc:
        raise ConfigError("the URL of a webhook has a user: use the header Authorization")
