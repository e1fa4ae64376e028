"""The names of packages that import them when needed, and what can be imported before that."""

import subprocess
import sys
from importlib import import_module

import pytest


@pytest.mark.parametrize("package", ["koff.client", "koff.kafkatest", "koff.proto"])
def test_a_package_has_the_names_of_its_public_module_and_no_others(package):
    module = import_module(package)
    public = vars(import_module(f"{package}.public"))
    assert len(module.__all__) > 10
    assert all(getattr(module, name) is public[name] for name in module.__all__)
    with pytest.raises(AttributeError, match="absent"):
        _ = module.absent


def test_the_jars_can_be_fetched_before_koffs_dependencies_are_installed():
    # -S: without the packages of the environment, as `make demo` fetches the jars
    code = "import sys, koff.kafkatest.jars; print('confluent_kafka' in sys.modules)"
    shown = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False)
    assert (shown.stdout, shown.stderr) == ("False\n", "")
