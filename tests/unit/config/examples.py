"""A value for each setting, other than its default."""

from collections.abc import Sequence
from typing import Any

from koff.config.kinds import BOOLEAN, Setting, Texts


def build_examples(settings: Sequence[Setting]) -> dict[str, Any]:
    """A value for each of the settings, as koff.yaml has it."""
    return {each.name: build_example(each) for each in settings}


def build_example(setting: Setting) -> Any:
    """The example of the setting, or another value that it may have."""
    if isinstance(setting.kind, tuple):
        return [build_examples(setting.kind)]
    if setting.example is not None or isinstance(setting.kind, Texts):
        return setting.example
    if setting.kind is BOOLEAN:
        return not setting.default
    schema = setting.kind.schema
    value = schema["minimum"] if "minimum" in schema else schema["enum"][-1]
    return [value] if setting.many else value
