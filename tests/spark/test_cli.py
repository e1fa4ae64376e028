"""`koff pipeline` with what cannot work: one line, an exit code, and nothing half-written."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from koff.kafkatest import KafkaCluster, free_ports, wait_until
from koff.spark.tables.delta_tables import Tables, WrongTables
from koff.spark.tables.schemas import TABLES
from koff.spark.tables.views import FIRST_QUERIES
from tests.koff_process import KOFF, run_koff
from tests.spark.one_java import OneJava
from tests.spark.settings import QUICK_COMMAND
from tests.spark.test_job import children
from tests.spark.test_source import write
from tests.unit.builders import commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOTAL = r"[\d,]+ records, [\d,]+ of them commits, in [\d.]+ s \([\d,]+ records/s\), into "
pytestmark = pytest.mark.spark  # the commands start Java, which takes seconds


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


def only_line(text: str) -> str:
    assert text.count("\n") == 1, text
    return last_line(text)


def plain_lines(text: str) -> list[str]:
    """The lines that are not of the log."""
    return [line for line in text.splitlines() if not line.startswith("{")]


@pytest.fixture(scope="module")
def one_java() -> Iterator[OneJava]:
    with closing(OneJava()) as one_java:
        yield one_java


def test_a_cluster_that_cannot_be_reached_is_named_before_anything_is_written(tmp_path: Path) -> None:
    tables, port = tmp_path / "t", free_ports(1)[0]
    done = run_koff(
        "pipeline", "run", "--brokers", f"127.0.0.1:{port}", "--tables", str(tables), timeout_s=150
    )
    assert done.returncode == 1
    assert only_line(done.stderr).startswith(f"Error: cluster 127.0.0.1:{port}: ")
    assert not tables.exists()


def test_wrong_tables_are_said_in_a_line_without_a_word_of_sparks(one_java: OneJava, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    done = one_java.run("maintain", "--tables", str(tmp_path))
    assert done.returncode == 1
    assert only_line(done.stderr).startswith(f"Error: no tables of koff's in {tmp_path}")


def test_a_java_that_does_not_run_is_told_with_the_cure(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    env = {"JAVA_HOME": str(tmp_path)}
    done = run_koff("pipeline", "maintain", "--tables", str(tmp_path / "t"), env=env, timeout_s=150)
    assert done.returncode == 1
    assert "point JAVA_HOME at one" in last_line(done.stderr)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("run",), "give --brokers, or --config"),
        (("run", "--brokers", "a:1", "--config", "x"), "cannot read x: No such file"),
        (("run", "--brokers", "a:1", "--interval", "never"), "'never' is not a duration"),
        (("backfill", "--segments", "x"), "--segments needs --cluster-name"),
    ],
)
def test_options_that_contradict_are_refused(tmp_path: Path, args: tuple[str, ...], told: str) -> None:
    done = run_koff("pipeline", *args, "--tables", str(tmp_path / "t"), timeout_s=150)
    assert done.returncode == 2
    assert told in done.stderr


def test_a_folder_of_somebody_else_and_one_that_is_not_there_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(WrongTables, match="contains other files"):
        Tables(spark, str(tmp_path)).create_tables()
    with pytest.raises(WrongTables, match="no tables of koff's"):
        Tables(spark, str(tmp_path / "absent")).check_tables()
    assert [each.name for each in tmp_path.iterdir()] == ["photos"]


class Running:
    """`koff pipeline run` in a group of processes of its own, as a shell or an init system begins it."""

    def __init__(self, *args: str) -> None:
        self._process = subprocess.Popen(
            [*KOFF, "pipeline", "run", *args], stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.text = ""
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.text += line

    def wait_until(self, condition: Callable[[], Any], what: str) -> None:
        wait_until(lambda: condition() or self._process.poll() is not None, timeout_s=240, what=what)
        assert self._process.poll() is None, self.text

    def stop(self, number: signal.Signals) -> int:
        """Sends the signal to all of the group; the exit code."""
        os.killpg(self._process.pid, number)
        return self._process.wait(240)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self) -> int:
        """The exit code, when the command has ended and all of its text is here."""
        code = self._process.wait(240)
        self._reading.join(60)
        return code

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._reading.join(60)
        assert self._process.stderr is not None
        self._process.stderr.close()


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM], ids=["idle, Ctrl-C", "in a batch, SIGTERM"]
)
def test_a_job_that_is_stopped_says_so_and_nothing_else(
    kafka: KafkaCluster, tmp_path: Path, number: signal.Signals
) -> None:
    topic = kafka.create_topic(partitions=2)
    write(kafka, topic, *[commit(f"group-{n}", "orders", 0, n) for n in range(2_000)])
    tables = tmp_path / "t"
    told = ("--brokers", kafka.bootstrap, "--offsets-topic", topic, "--cluster-name", "c")
    with closing(Running(*told, *QUICK_COMMAND, "--tables", str(tables))) as running:
        if number == signal.SIGINT:
            running.wait_until(lambda: '"event": "batch"' in running.text, "the first batch")
        else:
            plan = tables / "progress" / "_delta_log" / f"{1:020}.json"
            running.wait_until(plan.exists, "the first batch")
        assert running.stop(number) == 0, running.text
    assert last_line(running.text) == (
        f"stopped: {tables} holds what was read so far; the next run continues from there"
    )
    assert plain_lines(running.text) == [last_line(running.text)]
    assert "Traceback" not in running.text


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_second_job_and_a_java_that_is_killed_end_with_one_line(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    topic = kafka.create_topic()
    write(kafka, topic, commit("g", "orders", 0, 1))
    tables = tmp_path / "t"
    told = ("--brokers", kafka.bootstrap, "--offsets-topic", topic, "--cluster-name", "c", *QUICK_COMMAND)
    told = (*told, "--tables", str(tables))
    with closing(Running(*told)) as running:
        running.wait_until(lambda: '"event": "batch"' in running.text, "the first batch")
        second = run_koff("pipeline", "run", *told, timeout_s=240)
        assert second.returncode == 1, second.stderr
        (line,) = plain_lines(second.stderr)
        assert line.startswith(f"Error: cluster c: process {running.pid} on ")
        (java,) = (pid for pid in children(running.pid) if "java" in Path(f"/proc/{pid}/cmdline").read_text())
        os.kill(java, signal.SIGKILL)
        assert running.wait() == 1
    others = plain_lines(running.text)
    assert len(others) == 1, running.text
    assert others[0].startswith("Error: Spark's Java process has ended")
    assert "Traceback" not in running.text


@pytest.mark.timeout(600)
def test_a_backfill_ends_with_what_it_took_and_where_it_is(one_java: OneJava, tmp_path: Path) -> None:
    segments = Path(__file__).parents[1] / "golden" / "segments" / "none.log"
    tables = tmp_path / "t"
    done = one_java.run(
        "backfill", "--segments", str(segments), "--cluster-name", "c", "--tables", str(tables)
    )
    assert done.returncode == 0, done.stderr
    total, hint, *queries = plain_lines(done.stderr)
    assert re.fullmatch(TOTAL + re.escape(str(tables)), total)
    assert hint.startswith("try in DuckDB or Spark SQL")
    assert queries == [f"  {query};" for query in FIRST_QUERIES]
    events = [json.loads(line)["event"] for line in done.stderr.splitlines() if line.startswith("{")]
    assert events[:2] == ["Spark is starting", "the tables are ready"]


@pytest.mark.timeout(600)
def test_run_once_ends_with_what_it_wrote_and_check_status_maintain_and_report_agree(
    kafka: KafkaCluster, one_java: OneJava, tmp_path: Path
) -> None:
    topic = kafka.create_topic()
    write(kafka, topic, commit("g", "orders", 0, 1))
    tables = ("--tables", str(tmp_path / "t"))
    told = ("--brokers", kafka.bootstrap, "--offsets-topic", topic, "--cluster-name", "c", *tables)
    done = one_java.run("run", "--once", *told)
    assert done.returncode == 0, done.stderr
    (line,) = plain_lines(done.stderr)
    assert re.fullmatch(TOTAL + re.escape(str(tmp_path / "t")), line)
    (begun,) = [json.loads(each) for each in done.stderr.splitlines() if '"reading the log"' in each]
    assert (begun["cluster"], begun["offsets"], begun["begins"]) == ("c", 1, "at the log start")
    done = one_java.run("check", *told, "--max-behind", "0", "--format", "json")
    found = {each["name"]: each for each in json.loads(done.stdout) if each["of"] == "c"}
    assert found["continuous offsets"]["text"] == "without a gap"
    assert found["groups"]["ok"]
    assert found["lag"]["ok"]
    assert found["agreement with brokers"]["text"] == "0 offsets behind the brokers"
    assert done.returncode == (0 if found["freshness"]["ok"] else 3), done.stderr
    done = one_java.run("status", *tables)
    assert done.returncode == 0, done.stderr
    head, cluster, *_ = done.stdout.splitlines()
    assert head.split()[:3] == ["CLUSTER", "GROUPS", "SLOTS"]
    assert cluster.split()[:3] == ["c", "1", "1"]
    assert [line.split()[0] for line in done.stdout.splitlines()[-len(TABLES) :]] == list(TABLES)
    done = one_java.run("maintain", *tables)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [each.partition(":")[0] for each in lines[:-1]] == list(TABLES)
    assert re.fullmatch(rf"{len(TABLES)} tables in [\d.]+ s", lines[-1])
    out = tmp_path / "report.html"
    done = one_java.run("report", *tables, "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(out)]
    assert out.read_text().lower().startswith("<!doctype html>")


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_a_package_that_cannot_be_downloaded_is_one_line_with_the_cure(tmp_path: Path) -> None:
    # Ivy looks only in an empty folder, so no network is needed to see it fail.
    ivy = tmp_path / "ivy.xml"
    ivy.write_text(
        '<ivysettings><settings defaultResolver="here"/><resolvers><filesystem name="here">'
        f'<artifact pattern="{tmp_path}/[artifact].jar"/></filesystem></resolvers></ivysettings>'
    )
    settings = (f"spark.jars.ivySettings={ivy}", f"spark.jars.ivy={tmp_path}/ivy")
    conf = [part for setting in settings for part in ("--spark-conf", setting)]
    segments = Path(__file__).parents[1] / "golden" / "segments" / "none.log"
    told = ("--segments", str(segments), "--cluster-name", "c", "--tables", str(tmp_path / "t"))
    done = run_koff("pipeline", "backfill", *told, *conf, timeout_s=240)
    assert done.returncode == 1
    (line,) = plain_lines(done.stderr)
    assert line.startswith("Error: Spark could not download io.delta:delta-spark_2.13:")
    assert "--jars DIR" in line


@pytest.mark.timeout(300)
def test_with_a_folder_of_jars_spark_downloads_nothing(spark: SparkSession, tmp_path: Path) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    for jar in map(Path, spark.conf.get("spark.jars", "").removeprefix("file:").split(",file:")):
        (jars / jar.name).symlink_to(jar.as_posix().removeprefix("//"))
    segments = Path(__file__).parents[1] / "golden" / "segments" / "none.log"
    told = ("--segments", str(segments), "--cluster-name", "c", "--tables", str(tmp_path / "t"))
    # A folder of Ivy's that cannot be made: Spark would fail if it used Ivy.
    conf = ("--spark-conf", "spark.jars.ivy=/dev/null/ivy", "--jars", str(jars))
    done = run_koff("pipeline", "backfill", *told, *QUICK_COMMAND, *conf, timeout_s=240)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(TOTAL + re.escape(str(tmp_path / "t")), plain_lines(done.stderr)[0])
