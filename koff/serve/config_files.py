"""Files that users write: their text, and the nodes of YAML. A node knows its line, a value would not.

An error names the file, and the line where it is known. No error quotes the file: it may have passwords.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from koff.errors import ConfigError

if TYPE_CHECKING:
    import yaml

MAX_BYTES = 1 << 20
MAX_VALUES = 200_000
"""So many values a YAML file may have, if each alias is replaced by what it stands for."""


def read_text(path: Path) -> str:
    """The text of a file in UTF-8. Raises `ConfigError`."""
    try:
        with path.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise ConfigError(f"cannot read {path}: it has more than {MAX_BYTES} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}, line {line}: the file is not text in UTF-8") from None


def compose_yaml(path: Path, text: str) -> "yaml.Node | None":
    """The document in the text of the file `path`; None if it is empty. Raises `ConfigError`."""
    import yaml  # not at the top: only a file needs PyYAML

    loader = None
    try:
        loader = yaml.SafeLoader(text)
        document = loader.get_single_node()
        if document is not None:
            _count_values(document, {})
        return document
    except RecursionError:
        place, why = _find_place(None, loader, text), "has values that are nested too deeply"
    except _TooManyValues as error:
        place, why = error.args[0], f"has more than {MAX_VALUES} values, or an alias that contains itself"
    # ArithmeticError and ValueError: PyYAML checks neither the numbers of characters nor those of versions.
    except (yaml.YAMLError, ArithmeticError, ValueError) as error:
        place = _find_place(error, loader, text)
        why = "is not YAML; put values with special characters into quotes"
    raise ConfigError(f"{path}, {place}: the file {why}")


class _TooManyValues(Exception):
    """A few aliases in a file can stand for any number of values. Its argument is the place."""


def _count_values(node: Any, counted: dict[int, int]) -> int:
    """How many values are in a node, with those of each alias. `counted` has the nodes that are counted."""
    known = counted.get(id(node))
    if known is not None:
        return known
    counted[id(node)] = MAX_VALUES + 1  # until it is counted: a node in itself has no end
    total = 1
    if node.id != "scalar":
        for child in node.value:
            for each in child if node.id == "mapping" else (child,):
                total += _count_values(each, counted)
    if total > MAX_VALUES:
        raise _TooManyValues(f"line {node.start_mark.line + 1}")
    counted[id(node)] = total
    return total


def _find_place(error: Exception | None, loader: Any, text: str) -> str:
    """The line of an error of PyYAML, and the column where it is known."""
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return f"line {mark.line + 1}, column {mark.column + 1}"
    if loader is None:  # a character that YAML forbids, anywhere in the file
        return f"line {text.count(chr(10), 0, getattr(error, 'position', 0)) + 1}"
    return f"line {loader.line + 1}"
