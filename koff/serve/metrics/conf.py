"""Which series of /metrics are served."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from koff.errors import ConfigError
from koff.serve.metrics.compat import COMPAT_FAMILIES
from koff.serve.metrics.families import BY_NAME, FAMILIES
from koff.serve.metrics.family import Family

Granularity = Literal["partition", "topic", "group"]
DEFAULT, ALL = "default", "all"
_COARSER: dict[Granularity, frozenset[str]] = {
    "partition": frozenset({"partition", "topic", "group", "cluster"}),
    "topic": frozenset({"topic", "group", "cluster"}),
    "group": frozenset({"group", "cluster"}),
}
"""The levels of the families that are served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConf:
    """Which series are served. Sums and totals do not depend on it: they are always over all partitions.

    `families` are names of families; "default" and "all" stand for several. `granularity` leaves out the
    families with finer labels. `max_series` limits the series of the groups and topics of each cluster: those
    with the largest lags are kept. `compat` are exporters whose families are served, too: "kminion",
    "kafka_exporter". Raises `ConfigError`.
    """

    families: tuple[str, ...] = (DEFAULT,)
    granularity: Granularity = "partition"
    max_series: int | None = None
    compat: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        try:
            check_families(self.families)
        except ValueError as error:
            raise ConfigError(f"families {error}") from None
        if self.granularity not in _COARSER:
            raise ConfigError(f"granularity {self.granularity!r} is not partition, topic or group")
        for name in self.compat:
            if name not in COMPAT_FAMILIES:
                raise ConfigError(f"compat {name!r} is not one of {', '.join(COMPAT_FAMILIES)}")
        if self.max_series is not None and self.max_series < 1:
            raise ConfigError(f"the limit of {self.max_series} series is below 1")

    def list_families(self) -> list[Family[Any]]:
        """The families that are served, in their order. Those of the cluster and of koff always are."""
        names, levels = {*self.families}, _COARSER[self.granularity]
        own = (
            family
            for family in FAMILIES
            if family.level == "cluster"
            or ALL in names
            or family.name in names
            or (family.default and DEFAULT in names)
        )
        others = (family for name in dict.fromkeys(self.compat) for family in COMPAT_FAMILIES[name])
        return [family for family in (*own, *others) if family.level in levels]


def check_families(names: Iterable[str]) -> None:
    """Raises `ValueError` if a name is not that of a family, "default", "all", or empty."""
    known = {DEFAULT, ALL, *BY_NAME}
    for name in names:
        if name.strip() and name.strip() not in known:
            raise ValueError(f"has {name.strip()!r}, which is no metric family: docs/metrics.md has all")
