"""The keys of koff.yaml in the schema of the chart's values."""

import json
from collections.abc import Mapping
from typing import Any

from koff.config.settings import build_schema

SET_BY_THE_CHART = {"listen", "state_dir"}


def fill_schema(text: str) -> str:
    """The schema with the keys of the code. A value may be `${NAME}`, so that only clusters have types."""
    schema, koff_yaml = json.loads(text), build_schema()
    names: dict[str, Any] = {name: {} for name in koff_yaml["properties"] if name not in SET_BY_THE_CHART}
    clusters = {name: koff_yaml["properties"]["clusters"][name] for name in ("type", "minItems", "items")}
    names["clusters"] = {**clusters, "items": _list_names(clusters["items"])}
    names["defaults"] = _list_names(koff_yaml["properties"]["defaults"])
    schema["properties"]["config"]["properties"] = names
    return json.dumps(schema, indent=2) + "\n"


def _list_names(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a mapping, without those of its values, and without what they do."""
    names: dict[str, Any] = {name: {} for name in schema["properties"]}
    kept = {name: schema[name] for name in ("type", "additionalProperties", "required") if name in schema}
    return {**kept, "properties": names}
