"""How a setting is declared, and what its value may be: in koff.yaml, on a command line, in a variable.

This module imports nothing of koff but its errors: `koff health` uses it, too.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click
from click.shell_completion import CompletionItem

from koff.errors import ConfigError

MOST, LONGEST_S = 1_000_000_000, 86_400.0
"""The largest whole number, and the longest interval."""
SHORT_NUMBER = re.compile(r"[0-9]{1,10}")
"""Python refuses to convert a text of thousands of digits."""
FILE = click.Path(dir_okay=False, path_type=Path)
EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
TEXT_SCHEMA: Mapping[str, Any] = {"type": "string", "minLength": 1}


@dataclass(frozen=True, eq=False)
class Kind(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases of click
    """What a value may be: the type of an option, and of a key of koff.yaml.

    `name` stands for the value in --help, and `values` in the docs. `parse` raises `ValueError`, whose text
    follows the name of the setting ("must be ..."), or `ConfigError`. In koff.yaml, a text that is `joined`
    may be a list of its parts, without the commas.
    """

    name: str
    parse: Callable[[str], Any]
    schema: Mapping[str, Any]
    values: str
    joined: bool = False

    def parse_value(self, text: str) -> Any:
        """The value. Raises `ValueError`, whose text follows the name of the setting."""
        try:
            return self.parse(text)
        except ConfigError as error:
            raise ValueError(f"is wrong: {error}") from None

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value of an option. Fails with click's error."""
        if not isinstance(value, str):
            return value
        if not value.strip():
            self.fail("a text that is empty has no meaning", param, ctx)
        try:
            return self.parse_value(value)
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """What a shell may put in place of `incomplete`."""
        if self.name in ("FILE", "DIR"):
            return [CompletionItem(incomplete, type=self.name.lower())]
        return [CompletionItem(each) for each in self.schema.get("enum", ()) if each.startswith(incomplete)]


def text(name: str, parse: Callable[[str], Any] = str) -> Kind:
    """A text that is not empty."""
    return Kind(name, parse, TEXT_SCHEMA, f"`{name}`")


def checked(name: str, check: Callable[[str], Any]) -> Kind:
    """A text that is right if `check` does not raise."""

    def parse(given: str) -> str:
        check(given)
        return given

    return text(name, parse)


def choice(*names: str) -> Kind:
    """One of these texts."""

    def parse(given: str) -> str:
        if given not in names:
            raise ValueError(f"must be one of {', '.join(names)}")
        return given

    values = " or ".join(filter(None, [", ".join(f"`{name}`" for name in names[:-1]), f"`{names[-1]}`"]))
    return Kind(f"[{'|'.join(names)}]", parse, {"enum": list(names)}, values)


def number(name: str, least: float, most: float = MOST) -> Kind:
    """A number from `least` to `most`. `name` is its unit."""

    def parse(given: str) -> float:
        try:
            value = float(given)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise ValueError(f"must be a number from {least:g} to {most:.10g}")
        return value

    schema = {"type": "number", "minimum": least, "maximum": most}
    return Kind(name, parse, schema, f"{name.lower()}, {least:g} to {most:.10g}")


def count(least: int) -> Kind:
    """A whole number from `least` to `MOST`."""

    def parse(given: str) -> int:
        if not SHORT_NUMBER.fullmatch(given) or not least <= int(given) <= MOST:
            raise ValueError(f"must be a whole number from {least} to {MOST}")
        return int(given)

    return Kind(
        "N", parse, {"type": "integer", "minimum": least, "maximum": MOST}, f"a number, {least} or more"
    )


def _parse_boolean(given: str) -> bool:
    if given.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return given.lower() == "true"


BOOLEAN = Kind("", _parse_boolean, {"type": "boolean"}, "`true` or `false`")
"""True or false. On the command line, a flag."""


@dataclass(frozen=True, slots=True)
class Texts:
    """A mapping of names to texts. `find_fault` returns what follows the name of a text that
    is wrong, or "".
    """

    find_fault: Callable[[str, str], str] = lambda name, given: ""
    values = "a mapping"

    @property
    def schema(self) -> Mapping[str, Any]:
        return {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}


MASK = "********"
Reload = Literal["at once", "cluster", "never"]
"""What a reload of a changed value does: applies it at once, restarts the cluster, or nothing before koff
itself is restarted."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting. `help` is what it does, in --help, in the schema and in the docs.

    With settings as its `kind`, the value is a mapping that may have these. With `many`, it is a list of
    values, and becomes a tuple; a list of one may be written as the value. `default_text` says what holds
    without a value. `field` is its field in the class of the configuration, if that has another name. `flag`
    is its option, None if it has none; "" is its name as an option. With `one_cluster`, an option cannot be
    right for several clusters. `mask` returns what may be shown of a secret; such texts may be `file:PATH`.
    `see` is a link in the docs.
    """

    name: str
    kind: "Kind | Texts | tuple[Setting, ...]"
    help: str
    default: Any = None
    default_text: str = ""
    example: Any = None
    many: bool = False
    required: bool = False
    field: str = ""
    flag: str | None = ""
    one_cluster: bool = False
    reload: Reload = "cluster"
    mask: Callable[[Any], Any] | None = None
    see: str = ""

    @property
    def initial(self) -> Any:
        """The value where none is given."""
        empty: Any = () if self.many else {} if isinstance(self.kind, Texts) else None
        return empty if self.default is None else self.default

    @property
    def option_name(self) -> str | None:
        """The option, such as --state-dir; None if there is none."""
        has_none = self.flag is None or not isinstance(self.kind, Kind)
        return None if has_none else self.flag or f"--{self.name.replace('_', '-')}"

    def build_option(self, **changes: Any) -> Callable[[Any], Any]:
        """The decorator for a command of click. The parameter has the name of the setting."""
        assert isinstance(self.kind, Kind)
        assert self.option_name is not None
        help_text = f"{self.help} Repeatable." if self.many else self.help
        if self.default_text:
            help_text += f"  [default: {self.default_text}]"
        name = self.option_name
        if self.kind is BOOLEAN:
            shape: dict[str, Any] = {"is_flag": True}
            if self.default:  # else no option could say false
                name = f"{name}/--no-{name.removeprefix('--')}"
        else:
            shape = {"type": self.kind, "metavar": self.kind.name, "multiple": self.many}
        arguments = {**shape, "default": self.default, "help": help_text, **changes}
        return click.option(name, self.name, **arguments)

    def build_schema(self) -> dict[str, Any]:
        if isinstance(self.kind, tuple):
            schema: dict[str, Any] = build_object(self.kind)
            if self.many:
                schema = {"type": "array", **({"minItems": 1} if self.required else {}), "items": schema}
        else:
            schema = dict(self.kind.schema)
            if self.many or getattr(self.kind, "joined", False):
                schema = {"anyOf": [schema, {"type": "array", "minItems": 1, "items": schema}]}
        schema["description"] = self.help
        if self.default is not None:
            schema["default"] = list(self.default) if self.many else self.default
        if self.example is not None:
            schema["examples"] = [self.example]
        return schema


def build_object(settings: Sequence[Setting]) -> dict[str, Any]:
    """The schema of a mapping that may have these settings."""
    required = [each.name for each in settings if each.required]
    needs = {"required": required} if required else {}
    properties = {each.name: each.build_schema() for each in settings}
    return {"type": "object", "additionalProperties": False, **needs, "properties": properties}


def list_initial(settings: Sequence[Setting]) -> dict[str, Any]:
    """The values where none is given, by name."""
    return {each.name: each.initial for each in settings}
