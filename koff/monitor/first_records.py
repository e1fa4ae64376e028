"""Reads the first records that groups have not committed, to tell how old they are."""

from __future__ import annotations

import threading

from koff.client import ClusterConf
from koff.client.feed.record_times import EndReached, Place, RecordTimes, Unread
from koff.client.feed.record_times import FirstRecord as ReadRecord
from koff.lag import NO_RECORD, NO_TIMESTAMP
from koff.monitor.requests import (
    Answered,
    FirstRecord,
    FirstRecordsRead,
    ReadFirstRecords,
    RecordPlace,
)

RECORDS_TIMEOUT_S = 8.0


class FirstRecords:
    """Reads the first records at places, over a connection that is opened at the first request."""

    def __init__(self, conf: ClusterConf) -> None:
        self._conf = conf
        self._times: RecordTimes | None = None
        self._stopping = threading.Event()

    def read(self, request: Answered) -> FirstRecordsRead:
        """The result of a `ReadFirstRecords`. Raises `KoffError`."""
        assert isinstance(request, ReadFirstRecords)
        if self._times is None:
            self._times = RecordTimes(self._conf)
        places = [Place(*place) for place in request.places]
        try:
            found = self._times.read(places, RECORDS_TIMEOUT_S, self._stopping.is_set)
        except Exception:  # the next request gets a new client
            self.close()
            raise
        records: dict[RecordPlace, FirstRecord | str] = {}
        for place, answer in found.items():
            match answer:
                case ReadRecord(offset, at_ms, later_ms):
                    times = (NO_TIMESTAMP if time is None else time for time in (at_ms, later_ms))
                    records[RecordPlace(*place)] = FirstRecord(offset, *times)
                case EndReached(offset):
                    records[RecordPlace(*place)] = FirstRecord(offset, NO_RECORD)
                case Unread(reason):
                    records[RecordPlace(*place)] = reason
        denied = frozenset(
            place.topic for place, answer in found.items() if isinstance(answer, Unread) and answer.denied
        )
        return FirstRecordsRead(request.id, records, denied)

    def stop(self) -> None:
        """Ends a request that is under way, soon. From any thread."""
        self._stopping.set()

    def close(self) -> None:
        """Releases the connection. For the thread that calls `read`: nobody else may use its client."""
        times, self._times = self._times, None
        if times is not None:
            times.close()
