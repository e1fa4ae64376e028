"""The JSON object of what nobody uses. `koff unused` has the same."""

from __future__ import annotations

from typing import NamedTuple

from koff.serve.api.commands import write_delete
from koff.serve.api.shapes import STRING, JsonField, JsonObject, nullable, one_of
from koff.view.unused import KINDS, Unused


class Removable(NamedTuple):
    """A group or a topic that nobody uses, and the addresses of the brokers for commands, quoted."""

    unused: Unused
    brokers: str


UNUSED: JsonObject[Removable] = JsonObject(
    JsonField("kind", one_of(KINDS), "What it is.", "unused.kind"),
    JsonField("name", STRING, "The group, or the topic.", "unused.name"),
    JsonField("text", STRING, "Why koff says so.", "unused.text"),
    JsonField("loses", STRING, "What deleting it would lose.", "unused.loses"),
    JsonField(
        "command",
        nullable(STRING),
        "Deletes it. Null: deleting is not the cure.",
        lambda each: write_delete(each.unused, each.brokers),
    ),
)
