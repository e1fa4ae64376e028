"""Notices that samples of end offsets come later than the interval that the user asked for."""

import structlog

log = structlog.get_logger(component="spark.job")
TOLERANCE, REMIND_S = 1.5, 600.0
"""A sample is late after this multiple of the interval. A late cluster is named again after this time."""


class IntervalWatch:
    """Warns for each cluster whose samples do not keep `interval_s`. Call `note_sample` after each sample."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._last_s: dict[str, float] = {}
        self._warned_s: dict[str, float] = {}

    def note_sample(self, cluster: str, now_s: float) -> bool:
        """Notes a sample at `now_s` (monotonic), and returns whether it warned that the sample is late."""
        last_s = self._last_s.get(cluster)
        self._last_s[cluster] = now_s
        if last_s is None or now_s - last_s <= TOLERANCE * self._interval_s:
            return False
        if now_s - self._warned_s.get(cluster, -REMIND_S) < REMIND_S:
            return False
        self._warned_s[cluster] = now_s
        log.warning(
            "the interval is not kept: choose a longer --interval, or give Spark more cores",
            cluster=cluster,
            interval_s=self._interval_s,
            took_s=round(now_s - last_s, 1),
        )
        return True
