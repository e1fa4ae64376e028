"""malloc is set up once, and only where it can be and the user has not done it."""

import ctypes
import os
import platform
import subprocess
import sys
from types import SimpleNamespace

import pytest

from koff.cli.monitor import return_freed_memory

ARENAS = """
import ctypes, sys, threading
from koff.cli.monitor import return_freed_memory
if sys.argv[1:]:
    return_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
started = threading.Barrier(5)
def use():
    block = libc.malloc(1000)
    started.wait(60)
    libc.free(block)
threads = [threading.Thread(target=use) for _ in range(4)]
for thread in threads:
    thread.start()
started.wait(60)
for thread in threads:
    thread.join()
libc.malloc_stats()
"""


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch):
    for name in list(os.environ):
        if name.startswith("MALLOC_") or name == "GLIBC_TUNABLES":
            monkeypatch.delenv(name)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
@pytest.mark.usefixtures("clean")
def test_all_threads_share_one_arena():
    def count_arenas(*args: str) -> int:
        run = subprocess.run(
            [sys.executable, "-c", ARENAS, *args], capture_output=True, text=True, check=True
        )
        return run.stderr.count("Arena ")

    assert count_arenas() > 1
    assert count_arenas("set up") == 1


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("name", ["MALLOC_ARENA_MAX", "GLIBC_TUNABLES"])
def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch, name: str):
    calls: list[tuple[int, int]] = []
    libc = SimpleNamespace(mallopt=lambda *args: calls.append(args))
    monkeypatch.setattr(ctypes, "CDLL", lambda _: libc)
    return_freed_memory()
    assert len(calls) == 3
    monkeypatch.setenv(name, "4")
    return_freed_memory()
    assert len(calls) == 3


@pytest.mark.usefixtures("clean")
def test_nothing_happens_without_glibc(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    return_freed_memory()
