"""A metric family: one function, whose name is the family's name and whose docstring is its HELP.

    @SHARDS.family(("group",), "members", "koff_group_members == 0", "it is not current")
    def koff_group_members(shard: ShardNumbers) -> Column:
        \"\"\"Members of the group that are present.\"\"\"
        return Column(counts, known)

The subject (`SHARDS`) says what the function gets, and how often it is called at a scrape.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from koff.serve.metrics.labels import Exporter, Level, Mask

N = TypeVar("N")
LEVELS: tuple[Level, ...] = ("partition", "topic", "group")


class Column(NamedTuple):
    """The numbers of the series of one level, as a column or as one for all, and which are known.

    `further` has the values of the family's labels besides group, topic and partition: for each such label
    a text for each series, or one for all.
    """

    numbers: NDArray[np.int64] | NDArray[np.float64] | int
    known: Mask
    further: tuple[Sequence[str] | str, ...] = ()


Few = float | Mapping[Any, float | None] | None
"""A few numbers, by the value of their label, or by the tuple of these values. None: unknown."""
Values = Column | Iterator[Column] | Few


@dataclass(frozen=True, slots=True)
class Family(Generic[N]):
    """A metric family. Each one also has the label `cluster`, unless it is about the process.

    `text` is the HELP. `absent` is when there is no series, besides "the cluster is not known yet". `query`
    is an example in PromQL. Families that are not `default` are served if they are chosen by name. `most` is
    how many series each group or topic may have, besides a series for each of its members.
    """

    name: str
    text: str
    subject: "Subject[N]"
    values: Callable[[N], Any]
    labels: tuple[str, ...]
    unit: str
    query: str
    absent: str
    default: bool
    most: int
    exporter: Exporter = "koff"

    @property
    def kind(self) -> Literal["gauge", "counter"]:
        """What TYPE says."""
        return "counter" if self.name.endswith("_total") else "gauge"

    @property
    def level(self) -> Level:
        """The finest of its labels that `granularity` knows."""
        return next((level for level in LEVELS if level in self.labels), "cluster")

    def render_head(self, *, openmetrics: bool) -> bytes:
        """The lines HELP and TYPE. In OpenMetrics, a counter has a name without `_total`."""
        name = self.name.removesuffix("_total") if openmetrics else self.name
        return f"# HELP {name} {self.text}\n# TYPE {name} {self.kind}\n".encode()


@dataclass(frozen=True, slots=True, eq=False)
class Subject(Generic[N]):
    """What families have numbers of. `cut`: the limit on series may leave out series of these families."""

    name: str
    cut: bool = True

    def family(
        self,
        labels: tuple[str, ...],
        unit: str,
        query: str = "",
        absent: str = "",
        *,
        default: bool = True,
        most: int = 1,
    ) -> Callable[[Callable[[N], Values]], Family[N]]:
        """Makes a family of the function that returns its numbers: a `Column` or several, or a `Few`.

        Without a `query`, the example is the name.
        """

        def declare(values: Callable[[N], Values]) -> Family[N]:
            text = " ".join((values.__doc__ or "").split())
            name = values.__name__
            return Family(name, text, self, values, labels, unit, query or name, absent, default, most)

        return declare
