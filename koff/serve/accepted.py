"""What a client accepts: the format of the metrics, and whether they may be compressed (RFC 9110, 12.5)."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder


@dataclass(frozen=True, slots=True, eq=False)
class Format:
    """A format of /metrics: the header Content-Type, and how prometheus_client encodes the rest."""

    encode: Callable[[CollectorRegistry], bytes]
    content_type: str


PROMETHEUS_TEXT = Format(*choose_encoder("text/plain"))
OPENMETRICS = Format(*choose_encoder("application/openmetrics-text; version=1.0.0"))


def choose_format(accept: Iterable[str]) -> Format:
    """The format for the values of the header Accept.

    OpenMetrics if the client names it, and does not prefer text. A client that accepts neither gets text.
    """
    openmetrics, texts = 0.0, dict[str, float]()
    for name, parameters, weight in _parse(accept):
        if name == "application/openmetrics-text":
            if parameters.get("version", "1.0.0") == "1.0.0":
                openmetrics = max(openmetrics, weight)
        elif name in ("text/plain", "text/*", "*/*"):
            texts[name] = max(texts.get(name, 0.0), weight)
    # The most specific name decides.
    text = next((texts[name] for name in ("text/plain", "text/*", "*/*") if name in texts), 0.0)
    return OPENMETRICS if openmetrics > 0 and openmetrics >= text else PROMETHEUS_TEXT


def accepts_gzip(accept_encoding: Iterable[str]) -> bool:
    """Whether the client accepts gzip, and does not prefer a plain body."""
    weights = {name: weight for name, _, weight in _parse(accept_encoding)}
    gzip = weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0)))
    return gzip > 0 and gzip >= weights.get("identity", 0.0)


def _parse(values: Iterable[str]) -> Iterator[tuple[str, dict[str, str], float]]:
    """Name, parameters and weight of each element of a header. A weight that is no number is 0."""
    for element in ",".join(values).split(","):
        name, *given = (part.strip().lower() for part in element.split(";"))
        parameters = {key.strip(): value.strip() for key, _, value in (part.partition("=") for part in given)}
        try:
            weight = float(parameters.get("q", "1"))
        except ValueError:
            weight = 0.0
        yield name, parameters, weight if 0 <= weight <= 1 else 0.0
