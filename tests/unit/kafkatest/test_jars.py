"""Kafka's jars come whole or not at all, from where the user says, and a broken download goes on."""

import base64
import hashlib
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from koff.kafkatest import KafkaTestError, jar_download, jars, kafka_jars, maven
from tests.http_receiver import HttpReceiver, run_receiver

CONTENTS = {
    "org/apache/kafka/kafka_2.13/1.0/kafka_2.13-1.0.jar": b"broker" * 50_000,
    "io/netty/epoll/2/epoll-2-linux-x86_64.jar": b"native" * 9,
}
BROKER, EPOLL = CONTENTS


class Repository(HttpReceiver):
    """A Maven repository on loopback. `requests` has the path or address of each jar asked for.

    The connection ends in the middle of the first `cuts[path]` responses. Responses wait until `resumed`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.contents = dict(CONTENTS)
        self.cuts: Counter[str] = Counter()
        self.knows_ranges = True
        self.resumed = threading.Event()
        self.resumed.set()
        self.requests: list[str] = []
        self.ranges: list[str] = []
        self.logins: set[str | None] = set()
        self.url = f"{self.address}/maven"

    def respond(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        path = handler.path.partition("/maven/")[2]
        content = self.contents.get(path)
        if content is None:
            handler.send_error(404)
            return
        self.requests.append(handler.path)
        self.logins.add(handler.headers["Authorization"])
        wanted = handler.headers["Range"] if self.knows_ranges else None
        if wanted:
            self.ranges.append(wanted)
        rest = content[int(wanted.removeprefix("bytes=").removesuffix("-")) :] if wanted else content
        handler.send_response(206 if wanted else 200)
        handler.send_header("Content-Length", str(len(rest)))
        handler.end_headers()
        self.resumed.wait(60)
        cuts, self.cuts[path] = self.cuts[path], self.cuts[path] - 1
        handler.wfile.write(rest[: len(rest) // 2] if cuts > 0 else rest)


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Repository]:
    """A repository that koff is told to use, with an empty cache and the list of a Kafka 1.0."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "kafka-1.0.txt").write_text(
        "".join(f"{hashlib.sha256(body).hexdigest()} {len(body)} {path}\n" for path, body in CONTENTS.items())
    )
    monkeypatch.setattr(jars, "_LISTS", tmp_path / "lists")
    monkeypatch.setattr(jars, "java_command", lambda: "java")
    monkeypatch.setenv("KOFF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(jar_download, "_STALLED_S", 60.0)
    with run_receiver(Repository()) as repository:
        monkeypatch.setenv("KOFF_MAVEN_REPOSITORY", repository.url)
        yield repository
        repository.resumed.set()


def check_whole(folder: Path) -> None:
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        Path(path).name: body for path, body in CONTENTS.items()
    }
    assert {path.name for path in folder.parent.iterdir()} == {folder.name, f"{folder.name}.lock"}


def test_the_jars_of_the_list_are_fetched_once_with_bytes_told(repository: Repository):
    lines: list[str] = []
    check_whole(kafka_jars("1.0", lines.append))
    assert lines[0] == "fetching Apache Kafka 1.0: [....................] 0.0 of 0.3 MiB"
    assert lines[-1] == "fetching Apache Kafka 1.0: [####################] 0.3 of 0.3 MiB, 0 s left"
    kafka_jars("1.0")
    assert len(repository.requests) == len(CONTENTS)


def test_a_failed_download_is_told_and_the_next_one_fetches_only_the_rest(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(jar_download, "_AT_ONCE", 1)  # the small one comes last
    repository.contents.pop(EPOLL)
    with pytest.raises(
        KafkaTestError, match=r"cannot fetch epoll-2-linux-x86_64\.jar: 404 .*Not Found.*it continues"
    ):
        kafka_jars("1.0")
    assert not (jars.cache_folder() / "kafka-1.0").exists()
    repository.contents[EPOLL] = CONTENTS[EPOLL]
    check_whole(kafka_jars("1.0"))
    assert len([path for path in repository.requests if BROKER in path]) == 1


def test_a_connection_that_is_cut_is_opened_again_and_the_jar_continues(repository: Repository):
    repository.cuts[BROKER] = 2
    check_whole(kafka_jars("1.0"))
    assert repository.ranges == ["bytes=131072-", "bytes=196608-"]  # of 300,000, in pieces of 64 KiB


def test_a_repository_without_ranges_sends_the_jar_anew(repository: Repository):
    repository.cuts[BROKER], repository.knows_ranges = 1, False
    check_whole(kafka_jars("1.0"))


@pytest.mark.parametrize("content", [CONTENTS[BROKER][:1000], b"of another file", CONTENTS[BROKER] + b"more"])
def test_the_part_that_a_killed_download_left_is_completed_or_replaced(
    repository: Repository, content: bytes
):
    part = jars.cache_folder() / "kafka-1.0.part" / Path(BROKER).name
    part.parent.mkdir(parents=True)
    part.write_bytes(content)
    (part.parent / "of-an-older-list.jar").touch()
    check_whole(kafka_jars("1.0"))


def test_ctrl_c_ends_a_download_while_the_repository_does_not_respond(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(jar_download, "_STALLED_S", 0.1)
    repository.resumed.clear()

    def interrupt(line: str) -> None:
        if "nothing received for" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kafka_jars("1.0", interrupt)
    repository.resumed.set()
    check_whole(kafka_jars("1.0"))


def test_a_repository_that_stops_responding_is_told(repository: Repository, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(maven, "_TIMEOUT_S", 0.2)
    repository.resumed.clear()
    with pytest.raises(
        KafkaTestError, match=r"cannot fetch .*timed out.*it continues where this download ended"
    ):
        kafka_jars("1.0")


def test_a_jar_with_another_checksum_is_refused_and_fetched_again(repository: Repository):
    repository.contents[EPOLL] = b"another"
    with pytest.raises(KafkaTestError, match=r"epoll-2-linux-x86_64\.jar came with another content"):
        kafka_jars("1.0")
    assert not (jars.cache_folder() / "kafka-1.0").exists()
    repository.contents[EPOLL] = CONTENTS[EPOLL]
    check_whole(kafka_jars("1.0"))


def test_a_proxy_of_the_environment_is_used(repository: Repository, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTP_PROXY", repository.url.removesuffix("/maven"))
    monkeypatch.setenv("KOFF_MAVEN_REPOSITORY", "http://repository.invalid/maven/")
    check_whole(kafka_jars("1.0"))
    assert all(path.startswith("http://repository.invalid/maven/") for path in repository.requests)


def test_a_folder_may_be_the_repository(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    for path, body in CONTENTS.items():
        (tmp_path / "jars" / path).parent.mkdir(parents=True)
        (tmp_path / "jars" / path).write_bytes(body)
    monkeypatch.setenv("KOFF_MAVEN_REPOSITORY", str(tmp_path / "jars"))
    check_whole(kafka_jars("1.0"))
    assert repository.requests == []


def test_a_mirror_of_settings_xml_is_used_with_its_log_in(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.delenv("KOFF_MAVEN_REPOSITORY")
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(
        f"""<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0"><mirrors>
        <mirror><mirrorOf>*,!central</mirrorOf><url>http://other.invalid/</url></mirror>
        <mirror><id>ours</id><mirrorOf>central</mirrorOf><url>{repository.url}</url></mirror>
        </mirrors><servers>
        <server><id>ours</id><username>me</username><password>secret</password></server>
        </servers></settings>"""
    )
    check_whole(kafka_jars("1.0"))
    assert repository.logins == {f"Basic {base64.b64encode(b'me:secret').decode()}"}


def test_without_a_network_the_error_is_one_line_and_a_filled_cache_is_enough(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KOFF_MAVEN_REPOSITORY", "http://127.0.0.1:1/")
    with pytest.raises(KafkaTestError, match=r"Connection refused.*Check the network, HTTPS_PROXY") as caught:
        kafka_jars("1.0")
    assert "\n" not in str(caught.value)
    assert "Pool" not in str(caught.value)
    (jars.cache_folder() / "kafka-1.0").mkdir()
    assert kafka_jars("1.0").is_dir()


def test_a_version_without_a_list_is_told_with_those_that_have_one(repository: Repository):
    with pytest.raises(KafkaTestError, match=r"no list of the jars of kafka-0\.9, only of kafka-1\.0:.*libs"):
        kafka_jars("0.9")


def test_two_that_ask_at_once_fetch_once(repository: Repository):
    with ThreadPoolExecutor() as pool:
        first, second = pool.map(lambda _: kafka_jars("1.0"), range(2))
    assert first == second
    check_whole(first)
    assert len(repository.requests) == len(CONTENTS)


def test_without_jgo_the_error_says_how_to_get_it(repository: Repository, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "jgo.constants", None)
    with pytest.raises(KafkaTestError, match=r"pip install 'koff\[demo\]'"):
        kafka_jars("1.0")
