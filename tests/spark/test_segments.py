"""Log segments give the rows that the same log gives through its broker."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from koff.errors import ConfigError
from koff.spark import find_koff_error
from koff.spark.source.log_segments import SegmentsOptions, SegmentsReader
from koff.spark.source.segment_files import find_log_end, list_logs
from tests.spark.test_decoding import EVERY
from tests.spark.test_source import reader, transact, write
from tests.unit.builders import commit

GOLDEN = Path(__file__).parents[1] / "golden" / "segments"


def rows_of(folder: Path | str, **options: object) -> list[dict]:
    """What the source reads there, without Spark around it."""
    source = SegmentsReader(
        SegmentsOptions.parse({"path": str(folder), **{k: str(v) for k, v in options.items()}})
    )
    return [row for share in source.partitions() for rows in source.read(share) for row in rows.to_pylist()]


@pytest.mark.kafka
def test_segments_of_a_broker_give_what_the_broker_gives(spark, kafka):
    topic = kafka.create_topic(partitions=2, config={"segment.bytes": str(1 << 20)})
    bulk = [commit(f"group-{n % 500}", "orders", n % 7, n) for n in range(30_000)]
    write(kafka, topic, *EVERY, *bulk)
    transact(kafka, topic, "a", commit("g", "t", 0, 2), end="abort")
    write(kafka, topic, *bulk[:10_000])  # the marker of the next is in another file than its records
    spanning = transact(kafka, topic, "s", commit("spanning", "t", 0, 2), end=None)
    write(kafka, topic, *bulk[:20_000])
    spanning.commit_transaction(60)
    write(kafka, topic, *bulk[:100], partition=1)
    held = transact(kafka, topic, "c", commit("g", "t", 0, 4), end=None, partition=1)
    logs = Path(kafka.folder).rglob(f"{topic}-0")
    data = next(iter(logs)).parent
    assert len(list((data / f"{topic}-0").glob("*.log"))) > 3
    columns = [name for name in reader(spark, kafka, topic).load().columns if name != "cluster"]
    expected = reader(spark, kafka, topic).load().select(columns)
    found = spark.read.format("koff.segments").option("offsetsTopic", topic).load(str(data)).select(columns)
    assert found.count() == expected.count() == len(EVERY) + 60_101
    assert found.where("`group` = 'spanning'").count() == 1
    assert found.exceptAll(expected).count() == expected.exceptAll(found).count() == 0
    held.abort_transaction(60)


@pytest.mark.parametrize("name", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(name):
    wanted = [json.loads(line) for line in (GOLDEN / "records.jsonl").read_text().splitlines()]
    offsets = {row["log_offset"] for row in rows_of(GOLDEN / f"{name}.log")}
    plain = {row["offset"] for row in wanted if not row["control"] and not row["transactional"]}
    assert plain
    assert plain <= offsets


def test_damage_is_a_row_with_its_place_and_reason(tmp_path):
    folder = tmp_path / "__consumer_offsets-7"
    folder.mkdir()
    whole = (GOLDEN / "none.log").read_bytes()
    (folder / "00000000000000000100.log").write_bytes(whole[:-20])
    damaged = [row for row in rows_of(tmp_path) if row["reason"] and "at byte" in row["reason"]]
    assert [row["kind"] for row in damaged] == ["Undecodable"]
    assert damaged[0]["offsets_partition"] == 7
    assert damaged[0]["log_offset"] >= 100
    assert "the last batch is torn" in damaged[0]["reason"]


def test_a_copy_is_sound_up_to_an_open_transaction_or_damage(tmp_path):
    """Records from 1010 on are of a transaction that is open in the file."""

    def find_end(data):
        (tmp_path / "00000000000000000990.log").write_bytes(data)
        (whole,) = list_logs([str(tmp_path)], "__consumer_offsets")
        return find_log_end(whole)

    whole = (GOLDEN / "none.log").read_bytes()
    assert find_end(whole) == 1010
    damaged = whole[: len(whole) // 4] + b"\xff" * 40 + whole[len(whole) // 4 + 40 :]
    assert 100 < find_end(damaged) < 1010
    assert find_end(b"") == 990


def test_of_two_copies_of_a_partition_one_is_read(tmp_path):
    for broker in ("broker-1", "broker-2"):
        folder = tmp_path / broker / "__consumer_offsets-7"
        folder.mkdir(parents=True)
        shutil.copy(GOLDEN / "none.log", folder / "00000000000000000100.log")
    both, alone = rows_of(tmp_path), rows_of(tmp_path / "broker-1")
    assert both == alone
    assert rows_of(f"file://{tmp_path}/broker-2, {tmp_path}/broker-1") == alone


@pytest.mark.parametrize(
    ("path", "message"),
    [("nowhere", "there is no nowhere"), ("", "needs a path"), ("ftp://host/x", "cannot read ftp://host/x")],
)
def test_a_path_without_segments_is_said(path, message):
    with pytest.raises(ConfigError, match=message):
        rows_of(path)


def test_a_folder_without_segments_is_said_through_spark_too(spark, tmp_path):
    with pytest.raises(Exception, match=r"no \.log files") as raised:
        spark.read.format("koff.segments").load(str(tmp_path)).count()
    assert isinstance(find_koff_error(raised.value), ConfigError)
