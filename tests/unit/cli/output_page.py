"""The tables of docs/output.md."""

import json
import re
from typing import Any

from koff.cli.lag import _FIELDS
from koff.serve.api.group_objects import CAUSE, DETAILS, GROUP, MEMBER, ROW
from koff.serve.api.shapes import JsonField, Schema

_LAG_ONLY = {
    "cluster": ("string", "The cluster: its name, or its id."),
    "group": ("string", "The group."),
    "state": ("string or null", "The state of the group. Null: not current."),
    "lag_to_stable": ("integer or null", "The offsets that a read_committed consumer can read now."),
    "reasons": ("string", "Why `lag` is null, or is not what it seems, separated by spaces."),
}


def build_tables() -> dict[str, str]:
    """The tables, by the names that the page has for them."""
    rows = {field.name: (describe_type(field.schema), field.text) for field in ROW.fields}
    return {
        "group": format_fields(GROUP.fields),
        "cause": format_fields(CAUSE.fields),
        "details": format_fields(DETAILS.fields),
        "member": format_fields(MEMBER.fields),
        "row": format_rows((name, *(_LAG_ONLY.get(name) or rows[name])) for name in _FIELDS),
        "group row": format_fields(ROW.fields),
    }


def fill_page(page: str) -> str:
    """The page with the tables of the code."""
    tables = build_tables()

    def fill(found: re.Match[str]) -> str:
        return f"<!-- {found[1]} -->\n\n{tables.pop(found[1])}\n<!-- end -->"

    filled = re.sub(r"<!-- ([a-z ]+) -->\n.*?<!-- end -->", fill, page, flags=re.DOTALL)
    assert not tables, f"the page has no place for {[*tables]}"
    return filled


def format_fields(fields: tuple[JsonField[Any], ...]) -> str:
    return format_rows((field.name, describe_type(field.schema), field.text) for field in fields)


def format_rows(rows: Any) -> str:
    head = "| field | type | meaning |\n| --- | --- | --- |\n"
    return head + "".join(f"| `{name}` | {kind} | {text} |\n" for name, kind, text in rows)


def describe_type(schema: Schema) -> str:
    """`number or null`; texts with few values by their values."""
    if "anyOf" in schema:
        return " or ".join(describe_type(each) for each in schema["anyOf"])
    if "enum" in schema:
        values = ", ".join(json.dumps(value) for value in schema["enum"])
        return values if len(schema["enum"]) <= 8 else "string"
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return " or ".join(types)
