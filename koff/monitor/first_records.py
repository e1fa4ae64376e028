"""Reads the first records that groups have not committed, to tell how old they are."""

from __future__ import annotations

from collections.abc import Callable

from koff.client.offsets.lister import OffsetLister
from koff.client.record_times import Answer, EndReached, Place, Unread, read_record_times
from koff.client.record_times import FirstRecord as ReadRecord
from koff.lag import NO_RECORD, NO_TIMESTAMP
from koff.monitor.requests import Answered, FirstRecord, FirstRecordsRead, ReadFirstRecords, RecordPlace

RECORDS_TIMEOUT_S = 8.0


def read_first_records(
    lister: OffsetLister, request: Answered, should_stop: Callable[[], bool]
) -> FirstRecordsRead:
    """The result of a `ReadFirstRecords`."""
    assert isinstance(request, ReadFirstRecords)
    places = [Place(*place) for place in request.places]
    found = read_record_times(lister, places, RECORDS_TIMEOUT_S, should_stop)
    records = {RecordPlace(*place): _convert(answer) for place, answer in found.items()}
    denied = {place.topic for place, answer in found.items() if isinstance(answer, Unread) and answer.denied}
    return FirstRecordsRead(request.id, records, frozenset(denied))


def _convert(answer: Answer) -> FirstRecord | str:
    match answer:
        case ReadRecord(offset, at_ms, later_ms):
            times = (NO_TIMESTAMP if time is None else time for time in (at_ms, later_ms))
            return FirstRecord(offset, *times)
        case EndReached(offset):
            return FirstRecord(offset, NO_RECORD)
        case Unread(reason):
            return reason
