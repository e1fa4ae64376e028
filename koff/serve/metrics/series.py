"""The series of a family: texts of labels and of numbers. A number that is unknown has no series."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.serve.metrics.family import LEVELS, Column, Family
from koff.serve.metrics.labels import LABEL_NAMES, Labels, Level, derive_labels, escape_label

Series = tuple[list[str], list[str]]
"""The labels of each series, and the number of each series."""


def render_series(family: Family[Any], series: Iterable[Series], *, openmetrics: bool) -> Iterator[str]:
    """A family with its head, in one text for each part of the series. Nothing if there is no series."""
    head = family.render_head(openmetrics=openmetrics)
    for labels, numbers in series:
        if labels:
            # A scrape of many rows must not call a function for each.
            parts = [f"\n{family.name}"] * (3 * len(labels))
            parts[1::3] = labels
            parts[2::3] = numbers
            parts[0] = head + family.name
            parts.append("\n")
            yield "".join(parts)
            head = ""


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
    if further:
        texts = _add_labels(family, texts, zip(*further, strict=True))
    return texts, [repr(numbers)] * len(texts) if isinstance(numbers, int) else _format_numbers(numbers)


def _add_labels(family: Family[Any], texts: list[str], further: Iterable[tuple[str, ...]]) -> list[str]:
    """The texts with the labels of the family that no level has."""
    names = [name for name in family.labels if name not in LEVELS]
    endings, added = dict[tuple[str, ...], str](), list[str]()
    for text, values in zip(texts, further, strict=True):
        if (ending := endings.get(values)) is None:
            ending = endings[values] = _join_labels(family, names, values) + "} "
        # Texts end in "} ": without these two characters, another label can follow.
        added.append(text[:-2] + ending)
    return added


def select_few(
    family: Family[Any], numbers: object, cluster: str = "", patterns: Sequence[re.Pattern[str]] = ()
) -> Series:
    """The series of a `Few`. `cluster` is from `join_labels`; `patterns` find labels in names of groups."""
    few = family.values(numbers)
    known: Any = sorted(few.items()) if isinstance(few, Mapping) else [((), few)]
    texts, shown = list[str](), list[str]()
    for key, number in known:
        if number is not None:
            values = key if isinstance(key, tuple) else (key,)
            derived = derive_labels(key, patterns) if "group" in family.labels else ""
            labels = (cluster + _join_labels(family, family.labels, values) + derived).removeprefix(",")
            texts.append(f"{{{labels}}} " if labels else " ")
            shown.append(repr(number))
    return texts, shown


def _join_labels(family: Family[Any], names: Iterable[str], values: Iterable[object]) -> str:
    """Labels with these values: `,state="Stable"`."""
    renamed = LABEL_NAMES[family.exporter]
    pairs = zip(names, values, strict=True)
    return "".join(f',{renamed.get(name, name)}="{escape_label(str(value))}"' for name, value in pairs)


def _format_numbers(column: NDArray[np.int64] | NDArray[np.float64]) -> list[str]:
    # Most groups have caught up most of the time: zeros, which need not be formatted.
    texts = ["0.0" if column.dtype == np.float64 else "0"] * len(column)
    others = np.flatnonzero(column)
    for i, number in zip(others.tolist(), column[others].tolist(), strict=True):
        texts[i] = repr(number)
    return texts
