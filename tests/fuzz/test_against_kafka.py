"""koff and Kafka's own code on the same bytes: golden records, and many mutations of them.

`KOFF_FUZZ_CASES` (20,000) and `KOFF_FUZZ_SEED` (1) say how many and which; see README.md.
"""

import itertools
import json
import os
from typing import Any

import pytest

from koff.proto.json_data import kafka_data
from koff.records import (
    DecodedMessage,
    DecodedRecord,
    Undecodable,
    UndecodableBlob,
    Unknown,
    decode,
    decode_assignment,
    decode_share_state,
    decode_subscription,
    kafka_json,
)
from koff.records.consumer_protocol import NEWEST
from tests.fuzz.mutation import golden, mutated
from tests.fuzz.oracle import Case, ask

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1800)]

BATCH = 50_000
TYPE_9 = b"\0\x09"  # of 4.0 only: Kafka 4.3 does not know it any more
Answer = dict[str, Any]


def test_golden_records():
    assert_same(golden())


def test_mutated_records(request: pytest.FixtureRequest):
    asked = request.config.getoption("--fuzz-cases", default=None) or os.environ.get(
        "KOFF_FUZZ_CASES", "20000"
    )
    cases = mutated(int(asked), int(os.environ.get("KOFF_FUZZ_SEED", "1")))
    while batch := list(itertools.islice(cases, BATCH)):
        assert_same(batch)


def assert_same(cases: list[Case]) -> None:
    answers = ask(cases)
    assert len(answers) == len(cases)
    different = [
        f"{case.line()}\n  Kafka {json.dumps(kafka)}\n  koff  {json.dumps(ours)}"
        for case, kafka, ours in (
            (case, kafka, koff(case, kafka)) for case, kafka in zip(cases, answers, strict=True)
        )
        if json.dumps(ours) != json.dumps(kafka)
    ]
    assert not different, f"{len(different)} of {len(cases)} differ:\n" + "\n".join(different[:5])


def koff(case: Case, kafka: Answer) -> Answer:
    """koff's answer in the oracle's shape; Kafka's own where koff is meant to read more than Kafka 4.3."""
    if case.mode in ("subscription", "assignment"):
        return blob(case, kafka)
    if case.mode == "offsets" and case.key[:2] == TYPE_9:
        return kafka
    read = decode_share_state if case.mode == "share" else decode
    message = read(case.key, case.value)
    match message.record:
        case Undecodable(reason=reason):
            where = reason.split(":")[0].removeprefix("the ").split()[0]
            answer = {} if where == "key" else kafka_key(read(case.key, None))
            return answer | refused(kafka, where)
        case Unknown():
            return refused(kafka, "key", "UnknownRecordTypeException")
        case record:
            return kafka if reads_more(record, kafka) else decoded(message, record)


def decoded(message: DecodedMessage, record: DecodedRecord) -> Answer:
    answer = kafka_key(message)
    if record.value is None:
        return answer | {"value": None}
    return answer | {"value": kafka_json(message)["value"], "value_rest": len(record.value.trailing)}


def kafka_key(message: DecodedMessage) -> Answer:
    assert not isinstance(message.record, Undecodable | Unknown)
    return {"key": kafka_json(message)["key"], "key_rest": len(message.record.key_trailing)}


def refused(kafka: Answer, where: str, error: str | None = None) -> Answer:
    """Kafka's classes of errors say little, and are taken as given where they name no kind."""
    return {"refused": error or kafka.get("refused"), "where": where}


def reads_more(record: DecodedRecord, kafka: Answer) -> bool:
    """Values v1 to v4 behind type 0, which releases up to 4.0 read, and early-access layouts."""
    value = record.value
    if record.type == 0 and kafka.get("refused") == "UnknownRecordVersionException":
        return value is not None and 1 <= value.version <= 4
    return value is not None and value.layout != "" and ("refused" in kafka or kafka["value_rest"] > 0)


def blob(case: Case, kafka: Answer) -> Answer:
    if case.mode == "assignment" and not case.key:
        return kafka  # no bytes are no partitions, where Kafka's deserialiser throws
    found = (decode_subscription if case.mode == "subscription" else decode_assignment)(case.key)
    if isinstance(found, UndecodableBlob):
        return refused(kafka, "value")
    version = min(found.version, NEWEST)
    data = {"version": version, "data": kafka_data(found, version)}
    return {"value": data, "value_rest": len(found.trailing)}
