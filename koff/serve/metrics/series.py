"""The series of a family: texts of labels and of numbers. A number that is unknown has no series."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import compress, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.serve.metrics.family import LEVELS, Column, Family
from koff.serve.metrics.labels import LABEL_NAMES, Labels, Level, derive_labels, escape_label
from koff.view.cluster_view import ClusterView

Series = tuple[list[bytes], list[bytes]]
"""The labels of each series, and what follows them: `} 5`, a line end, and the name of the next series."""


def list_parts(family: Family[Any], series: Iterable[Series], *, openmetrics: bool) -> Iterator[list[bytes]]:
    """A family with its head, in parts that are to be joined. Nothing if there is no series."""
    head, name = family.render_head(openmetrics=openmetrics), family.name.encode()
    for labels, tails in series:
        if labels:
            # A scrape of many rows must not call a function for each.
            parts = [head + name] * (2 * len(labels) + 1)
            parts[1::2] = labels
            parts[2::2] = tails
            parts[-1] = parts[-1].removesuffix(name)
            yield parts
            head = b""


def select_columns(
    family: Family[Any], numbers: object, by_level: Mapping[Level, Labels]
) -> Iterator[Series]:
    """The series of columns: those that are known, and that the limit on series keeps."""
    columns = family.values(numbers)
    for column in (columns,) if isinstance(columns, Column) else columns:
        yield _select(family, by_level[family.level], column)


def _select(family: Family[Any], labels: Labels, column: Column) -> Series:
    known, texts, numbers = column.known, labels.rename(family.exporter), column.numbers
    further: list[Iterable[str]] = [
        repeat(each, len(texts)) if isinstance(each, str) else each for each in column.further
    ]
    if labels.kept is not None:
        known = known & labels.kept
        labels.left_out += int(np.count_nonzero(column.known) - np.count_nonzero(known))
    if not known.all():  # usually all are, and the labels are not copied
        chosen = known.tolist()
        texts = list(compress(texts, chosen))
        further = [compress(each, chosen) for each in further]
        numbers = numbers if isinstance(numbers, int) else numbers[known]
    if isinstance(numbers, int):
        tails = [_end_line(family, numbers)] * len(texts)
    else:
        tails = _end_lines(family, numbers)
    return texts, _add_labels(family, zip(*further, strict=True), tails) if further else tails


def _add_labels(family: Family[Any], further: Iterable[tuple[str, ...]], tails: list[bytes]) -> list[bytes]:
    """The tails with the labels of the family that no level has in front."""
    names = [name for name in family.labels if name not in LEVELS]
    joined = dict[tuple[str, ...], bytes]()
    added = list[bytes]()
    for values, tail in zip(further, tails, strict=True):
        if (labels := joined.get(values)) is None:
            labels = joined[values] = _join_labels(family, names, values).encode()
        added.append(labels + tail)
    return added


def select_few(
    family: Family[Any], numbers: object, cluster: str = "", view: ClusterView | None = None
) -> Series:
    """The series of a `Few`. `cluster` is from `join_labels`; the `view` gives labels to groups."""
    few = family.values(numbers)
    known: Any = sorted(few.items()) if isinstance(few, Mapping) else [((), few)]
    texts, tails = list[bytes](), list[bytes]()
    for key, number in known:
        if number is not None:
            values = key if isinstance(key, tuple) else (key,)
            derived = derive_labels(key, view) if view and "group" in family.labels else ""
            labels = (cluster + _join_labels(family, family.labels, values) + derived).removeprefix(",")
            texts.append(f"{{{labels}".encode() if labels else b"")
            tails.append(_end_line(family, number).removeprefix(b"" if labels else b"}"))
    return texts, tails


def _join_labels(family: Family[Any], names: Iterable[str], values: Iterable[object]) -> str:
    """Labels with these values: `,state="Stable"`."""
    renamed = LABEL_NAMES[family.exporter]
    pairs = zip(names, values, strict=True)
    return "".join(f',{renamed.get(name, name)}="{escape_label(str(value))}"' for name, value in pairs)


def _end_line(family: Family[Any], number: float) -> bytes:
    return f"}} {number!r}\n{family.name}".encode()


def _end_lines(family: Family[Any], column: NDArray[np.int64] | NDArray[np.float64]) -> list[bytes]:
    if (column == column[:1]).all():  # also if it is empty
        return [_end_line(family, number) for number in column[:1].tolist()] * len(column)
    # Most groups have caught up most of the time: zeros, which need not be formatted.
    tails = [_end_line(family, column.dtype.type(0).item())] * len(column)
    others = np.flatnonzero(column)
    # The text of a list has the numbers as `repr` has them, and is made without a call for each.
    numbers = repr(column[others].tolist())[1:-1]
    lines = f"}} {numbers}\n{family.name}".replace(", ", f"\n{family.name},}} ").encode().split(b",")
    for i, line in zip(others.tolist(), lines, strict=True):
        tails[i] = line
    return tails
