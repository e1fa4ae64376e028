"""`OffsetPlan`: which committed offsets of a group are to be replaced, and by which. A file in JSON. Pure."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from koff.client.cluster_conf import TopicPartition
from koff.errors import ConfigError
from koff.lag.resets import LogRange, count_read_again, count_skipped

_FORMAT = 1


class Commit(NamedTuple):
    """A committed offset and its metadata."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class PlannedOffset:
    """One partition: its commit at the time of the plan (None: there is none), and the one to make.

    If `after` is None, the commit is to be deleted. `note` says why `after` is not what was requested.
    """

    at: TopicPartition
    topic_id: str
    before: Commit | None
    after: Commit | None
    log: LogRange
    note: str = ""

    @property
    def is_change(self) -> bool:
        """Whether something is to be written."""
        return self.before != self.after

    @property
    def skipped(self) -> int | None:
        """How many records the group will never read; None without a commit before or after."""
        if self.before is None or self.after is None:
            return None
        return count_skipped(self.log, before=self.before.offset, after=self.after.offset)

    @property
    def read_again(self) -> int | None:
        """How many records the group will read again; None without a commit before or after."""
        if self.before is None or self.after is None:
            return None
        return count_read_again(self.log, before=self.before.offset, after=self.after.offset)


@dataclass(frozen=True, slots=True)
class OffsetPlan:
    """The offsets of one group, by partition. `to` says what was requested, and `made` when (RFC 3339)."""

    cluster: str
    group: str
    to: str
    made: str
    offsets: tuple[PlannedOffset, ...]

    @property
    def changes(self) -> list[PlannedOffset]:
        """The offsets that are to be written."""
        return [each for each in self.offsets if each.is_change]

    @property
    def commits_before(self) -> dict[TopicPartition, Commit | None]:
        """The commits at the time of the plan."""
        return {each.at: each.before for each in self.offsets}

    @property
    def commits_after(self) -> dict[TopicPartition, Commit | None]:
        """The commits to be made; None where the commit is to be deleted."""
        return {each.at: each.after for each in self.offsets}

    @property
    def topic_ids(self) -> dict[str, str]:
        """The id of each topic."""
        return {each.at.topic: each.topic_id for each in self.offsets}

    def sum_skipped(self) -> int:
        """How many records the group will never read, as far as it is known."""
        return sum(each.skipped or 0 for each in self.offsets)

    def sum_read_again(self) -> int:
        """How many records the group will read again, as far as it is known."""
        return sum(each.read_again or 0 for each in self.offsets)

    def format_file(self) -> str:
        """The content of the plan's file."""
        document = {
            "koff_offset_plan": _FORMAT,
            "cluster": self.cluster,
            "group": self.group,
            "to": self.to,
            "made": self.made,
            "partitions": [_to_json(each) for each in self.offsets],
        }
        return json.dumps({**document, "sha256": _checksum(document)}, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def parse_file(cls, text: str) -> Self:
        """The plan of a file. Raises `ConfigError` if it is not as `format_file` made it."""
        try:
            document = json.loads(text)
            is_edited = document.pop("sha256") != _checksum(document)
            if document["koff_offset_plan"] != _FORMAT:
                raise ValueError
            about = {name: document[name] for name in ("cluster", "group", "to", "made")}
            plan = cls(**about, offsets=tuple(map(_from_json, document["partitions"])))
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
            raise ConfigError("is no plan of this version of koff: make one with koff offsets plan") from None
        if is_edited:
            raise ConfigError("was changed after koff wrote it: make a new plan with koff offsets plan")
        return plan


def _checksum(document: Mapping[str, Any]) -> str:
    """Of the values alone: a file that was only indented in another way is the same plan."""
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _to_json(planned: PlannedOffset) -> dict[str, Any]:
    return {
        "topic": planned.at.topic,
        "topic_id": planned.topic_id,
        "partition": planned.at.partition,
        "before": planned.before and planned.before._asdict(),
        "after": planned.after and planned.after._asdict(),
        "log_start": planned.log.start,
        "log_end": planned.log.end,
        "skipped": planned.skipped,
        "read_again": planned.read_again,
        "note": planned.note,
    }


def _from_json(values: Mapping[str, Any]) -> PlannedOffset:
    before, after = (each and Commit(**each) for each in (values["before"], values["after"]))
    at = TopicPartition(values["topic"], values["partition"])
    log = LogRange(values["log_start"], values["log_end"])
    return PlannedOffset(at, values["topic_id"], before, after, log, values["note"])
