"""The samples of koff.yaml in docs/managed: `koff config check` accepts them, and koff knows the service."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import trustme
import yaml
from click.testing import CliRunner

from koff.cli import main
from koff.client.addresses import parse_addresses
from koff.view.managed_services import SERVICES, find_service

PAGES = Path(__file__).parents[3] / "docs" / "managed"
FILES = sorted({service.file for service in SERVICES})


def list_samples() -> list[tuple[str, str]]:
    """Each block of YAML, with the file of its page."""
    return [
        (file, sample)
        for file in FILES
        for sample in re.findall(r"^```yaml\n(.*?)^```$", (PAGES / file).read_text(), re.M | re.S)
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that samples name are in it, and the library for IAM can be imported."""
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    (tmp_path / "secret").write_text("hunter2")
    library = SimpleNamespace(MSKAuthTokenProvider=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", library)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):  # the names of the brokers must do
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize(("file", "sample"), list_samples())
def test_a_sample_is_right(folder: Path, file: str, sample: str):
    path = folder / "koff.yaml"
    local = sample.replace("/etc/koff/", f"{folder}/")
    path.write_text(re.sub(r"file:/run/secrets/\S+", f"file:{folder / 'secret'}", local))
    checked = CliRunner().invoke(main, ["config", "check", str(path)])
    assert checked.exit_code == 0, checked.output
    (cluster,) = yaml.safe_load(sample)["clusters"]
    service = find_service(host for host, _ in parse_addresses(cluster["brokers"]))
    assert service.file == file


def test_each_page_has_a_sample():
    assert sorted({file for file, _ in list_samples()}) == FILES
