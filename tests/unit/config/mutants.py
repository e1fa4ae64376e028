"""Seeded mutants of a full koff.yaml: in its structure, and now and then in its text."""

import copy
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.unit.config.test_hostile_files import FULL, VALUES

_Place = tuple[Any, Any]
"""A mapping or a list, and a key of it."""
_PIECES = (
    "\t",
    "\ufeff",
    "'",
    '"',
    "&a ",
    "*a",
    "!!python/object:os.system ",
    "? ",
    "- ",
    "{",
    "]",
    "<<: ",
    "%",
)


def build_right_file(folder: Path) -> dict[str, Any]:
    """A file with nearly all settings that koff can use here. It connects to nothing but this machine."""
    right = copy.deepcopy(FULL)
    for name in ("web_config_file", "tokens_file", "tokens_for"):
        del right[name]
    right |= {"listen": "127.0.0.1:0", "state_dir": str(folder / "state"), "wait": True}
    right["webhooks"][0] |= {"url": "http://127.0.0.1:1/hook"}
    for number, cluster in enumerate(right["clusters"]):
        cluster["brokers"] = f"127.0.0.1:{number + 1}"
        cluster.pop("zookeeper", None)
        cluster.pop("expected_groups", None)  # rules of groups may hide them
    return right


def write_mutant(seed: int, right: dict[str, Any]) -> str:
    """The text of the mutant."""
    rng = random.Random(seed)
    tree = copy.deepcopy(right)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        places = list(_list_places(tree))
        if places:
            rng.choice(_MUTATIONS)(rng, places)
    text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=rng.random() < 0.5)
    return _spoil(rng, text) if rng.random() < 0.25 else text


def _list_places(node: Any) -> Iterator[_Place]:
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for key in keys:
        yield node, key
        yield from _list_places(node[key])


def _replace(rng: random.Random, places: list[_Place]) -> None:
    node, key = rng.choice(places)
    node[key] = copy.deepcopy(rng.choice(VALUES))


def _move(rng: random.Random, places: list[_Place]) -> None:
    (node, key), (other, other_key) = rng.choice(places), rng.choice(places)
    node[key] = copy.deepcopy(other[other_key])


def _swap(rng: random.Random, places: list[_Place]) -> None:
    (node, key), (other, other_key) = rng.choice(places), rng.choice(places)
    node[key], other[other_key] = copy.deepcopy(other[other_key]), copy.deepcopy(node[key])


def _remove(rng: random.Random, places: list[_Place]) -> None:
    node, key = rng.choice(places)
    del node[key]


def _wrap(rng: random.Random, places: list[_Place]) -> None:
    node, key = rng.choice(places)
    value = node[key]
    node[key] = rng.choice(([value], [value, value], {"name": value}, {str(value)[:20]: value}))


def _rename(rng: random.Random, places: list[_Place]) -> None:
    node, key = rng.choice(places)
    if isinstance(node, dict):
        name = rng.choice((None, 7, True, "", "clusters", "name", "\u2028", f"{key}s", (1, 2)))
        node[name] = node.pop(key)


def _repeat(rng: random.Random, places: list[_Place]) -> None:
    node, key = rng.choice(places)
    if isinstance(node, list):
        node.extend(copy.deepcopy(node[key]) for _ in range(rng.choice((1, 3, 200))))


_MUTATIONS: tuple[Callable[[random.Random, list[_Place]], None], ...] = (
    _replace,
    _replace,
    _move,
    _swap,
    _remove,
    _wrap,
    _rename,
    _repeat,
)


def _spoil(rng: random.Random, text: str) -> str:
    """The text with a piece too much, without a line, with another indentation, or cut off."""
    at = rng.randrange(len(text) + 1)
    lines = text.splitlines(keepends=True)
    line = rng.randrange(len(lines)) if lines else 0
    return rng.choice(
        (
            text[:at],
            text[:at] + rng.choice(_PIECES) + text[at:],
            "".join(lines[:line] + lines[line + 1 :]),
            "".join([*lines[: line + 1], *lines[line:]]),
            "".join([*lines[:line], " ", *lines[line:]]),
        )
    )
