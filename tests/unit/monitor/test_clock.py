"""The moment that is read: this boot's, or of an unknown boot."""

import time

import pytest

from koff.monitor import clock
from koff.monitor.clock import read_moment

linux = pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="no CLOCK_BOOTTIME here")


@pytest.fixture(autouse=True)
def _fresh():
    clock._read_boot.cache_clear()
    yield
    clock._read_boot.cache_clear()


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The folder with the files of the kernel, of a machine without time namespaces."""
    monkeypatch.setattr(clock, "_BOOT_ID", tmp_path / "boot_id")
    monkeypatch.setattr(clock, "_TIME_OFFSETS", tmp_path / "timens_offsets")
    (tmp_path / "boot_id").write_text("8e0db4fa-56bc\n")
    (tmp_path / "timens_offsets").write_text(
        "monotonic           0         0\nboottime            0         0\n"
    )
    return tmp_path


def test_moments_go_forward_and_the_wall_clock_is_that_of_the_machine():
    before, moment, then, after = time.time(), read_moment(), read_moment(), time.time()
    assert before - 0.001 <= moment.wall_ms / 1000 <= after
    assert moment.at_s <= then.at_s
    assert moment.boot == then.boot


@linux
def test_the_boot_is_that_of_the_kernel(files):
    assert read_moment().boot == "8e0db4fa-56bc"


@linux
def test_the_boot_is_known_on_a_kernel_without_time_namespaces(files):
    (files / "timens_offsets").unlink()
    assert read_moment().boot == "8e0db4fa-56bc"


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("boot_id", None),
        ("boot_id", b""),
        ("boot_id", b"\xff\xfe"),
        ("timens_offsets", b"monotonic 0 0\nboottime 86400 0\n"),
        ("timens_offsets", b"\xff"),
    ],
)
def test_a_boot_that_is_unknown_or_has_a_clock_of_its_own_is_not_named(files, file, content):
    if content is None:
        (files / file).unlink()
    else:
        (files / file).write_bytes(content)
    before, moment, after = time.monotonic(), read_moment(), time.monotonic()
    assert moment.boot == ""
    assert before <= moment.at_s <= after


def test_without_a_clock_of_the_boot_another_one_is_read(files, monkeypatch):
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    assert read_moment().boot == ""


@linux
def test_a_clock_of_the_boot_that_is_refused_is_not_read(files, monkeypatch):
    def refuse(number: int) -> float:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(time, "clock_gettime", refuse)
    assert read_moment().boot == ""
