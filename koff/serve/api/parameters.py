"""The query parameters of an endpoint: parsed, checked, and described for OpenAPI."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from koff.serve.api.name_pattern import ALLOWED, MAX_CHARACTERS, parse_pattern
from koff.serve.api.problems import BadParameter, Problem

Query = Mapping[str, Any]
"""The values of all parameters by name. A parameter that was not given has its default."""
_MAX_FIELDS = 100


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter. `parse` raises `ValueError`. If `is_list`, it may be given several times.

    A list of choices may also have commas between them.

    A request without a parameter that `is_required` is refused.
    """

    name: str
    text: str
    schema: Mapping[str, Any]
    allowed: str
    parse: Callable[[str], Any]
    default: Any = None
    is_list: bool = False
    is_required: bool = False

    def split(self, text: str) -> list[str]:
        """The values in a text."""
        return text.split(",") if self.is_list and "enum" in self.schema else [text]

    def describe(self) -> dict[str, Any]:
        schema = dict(self.schema)
        if self.is_list:
            schema = {"type": "array", "items": schema}
        elif self.default is not None:
            schema["default"] = self.default
        text = f"{self.text} Allowed: {self.allowed}."
        described: dict[str, Any] = {"name": self.name, "in": "query", "description": text, "schema": schema}
        if self.is_required:
            described["required"] = True
        return {**described, "style": "form", "explode": True} if self.is_list else described


def choice(name: str, text: str, names: Sequence[str], **options: Any) -> Parameter:

    def parse(value: str) -> str:
        if value not in names:
            raise ValueError(value)
        return value

    return Parameter(name, text, {"type": "string", "enum": list(names)}, ", ".join(names), parse, **options)


def whole_number(name: str, text: str, lowest: int, highest: int, **options: Any) -> Parameter:
    """A whole number in these limits."""

    def parse(value: str) -> int:
        if not re.fullmatch("[0-9]{1,20}", value) or not lowest <= int(value) <= highest:
            raise ValueError(value)
        return int(value)

    schema = {"type": "integer", "minimum": lowest, "maximum": highest}
    return Parameter(name, text, schema, f"a whole number from {lowest} to {highest}", parse, **options)


def any_text(name: str, text: str, **options: Any) -> Parameter:
    return Parameter(name, text, {"type": "string"}, "any text", str, **options)


def label(name: str, text: str) -> Parameter:
    """Labels, each with its value."""

    def parse(value: str) -> tuple[str, str]:
        label, sign, of_label = value.partition("=")
        if not sign:
            raise ValueError(value)
        return label, of_label

    return Parameter(name, text, {"type": "string", "pattern": "="}, "LABEL=VALUE", parse, is_list=True)


def regex(name: str, text: str) -> Parameter:
    schema = {"type": "string", "format": "limited-regex", "maxLength": MAX_CHARACTERS}
    return Parameter(name, text, schema, ALLOWED, parse_pattern)


def parse_query(query: bytes, parameters: Iterable[Parameter]) -> Query:
    """The values of the parameters.

    Raises `Problem` for any other parameter, for a wrong value, and if a required one is missing.
    """
    known = {parameter.name: parameter for parameter in parameters}
    values = {name: [] if each.is_list else each.default for name, each in known.items()}
    given = set()
    try:
        fields = parse_qsl(
            query.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_MAX_FIELDS
        )
    except ValueError:
        raise Problem(400, f"there are more than {_MAX_FIELDS} parameters") from None
    for name, text in fields:
        parameter = known.get(name)
        if parameter is None:
            names = ", ".join(known) or "none"
            raise Problem(400, f"there is no such parameter; allowed: {names}", parameter=name, allowed=names)
        if name in given and not parameter.is_list:
            raise Problem(400, f"the parameter {name} is given twice", parameter=name, allowed="one value")
        given.add(name)
        for part in parameter.split(text):
            try:
                value = parameter.parse(part)
            except ValueError:
                raise BadParameter(name, part, parameter.allowed) from None
            if parameter.is_list:
                values[name].append(value)
            else:
                values[name] = value
    for name, parameter in known.items():
        if parameter.is_required and name not in given:
            text = f"the parameter {name} is missing"
            raise Problem(400, text, parameter=name, allowed=parameter.allowed)
    return values
