"""What /metrics serves of a view, without a server: the text, and the numbers in it."""

from __future__ import annotations

import re

from koff.serve.metrics.exposition import Exposition
from koff.view.cluster_view import ClusterView
from tests.unit.serve.views import EVERYTHING


def text(view: ClusterView, exposition: Exposition | None = None) -> str:
    """The families of koff, or what `exposition` is to render."""
    return b"".join((exposition or Exposition(EVERYTHING)).render_chunks(view)).decode()


def values(served: str, name: str) -> dict[str, float]:
    """The numbers of a family by the labels after the cluster."""
    found = re.findall(rf'^{name}{{cluster="c",?(.*)}} (.*)$', served, re.MULTILINE)
    return {labels: float(number) for labels, number in found}
