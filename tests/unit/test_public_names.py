"""The names of `koff.kafkatest`, and what can be imported before koff's dependencies are installed."""

import subprocess
import sys

import koff.kafkatest


def test_every_public_name_is_there():
    assert all(getattr(koff.kafkatest, name) is not None for name in koff.kafkatest.__all__)
    assert set(koff.kafkatest._MODULES) == set(koff.kafkatest.__all__)


def test_the_jars_can_be_fetched_before_koffs_dependencies_are_installed():
    # -S: without the packages of the environment, as `make demo` fetches the jars
    code = "import sys, koff.kafkatest.jars; print('confluent_kafka' in sys.modules)"
    shown = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False)
    assert (shown.stdout, shown.stderr) == ("False\n", "")
