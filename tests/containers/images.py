"""The images of the tests: pulled, or built as stand-ins under the same names where they cannot be pulled."""

import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import docker
from docker.errors import DockerException, ImageNotFound

from koff.kafkatest.jars import kafka_jars

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
BASE = os.environ.get("KOFF_TEST_BASE_IMAGE", "debian:trixie-slim")
KAFKA = os.environ.get("KOFF_TEST_KAFKA_IMAGE", "apache/kafka:4.3.1")
CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
BUILD_TIMEOUT_S = 600
_BUILD: dict[str, Any] = {"timeout": BUILD_TIMEOUT_S, "network_mode": "host"}


class NoImage(Exception):
    """An image can neither be pulled nor be built. The text says why."""


def ensure_base(engine: docker.DockerClient) -> None:
    """Pulls Debian's image, or makes one out of Debian's packages. Raises `NoImage`."""
    if _has(engine, BASE):
        return
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        raise NoImage(f"{BASE} cannot be pulled, and debootstrap, as root, is needed to build it")
    with tempfile.TemporaryDirectory(prefix="koff-debian-") as folder:
        made = subprocess.run(
            ["debootstrap", "--variant=minbase", "trixie", folder],
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
        if made.returncode:
            raise NoImage(f"debootstrap: {made.stdout[-300:]}{made.stderr[-300:]}")
        _add_certificates(Path(folder))
        with tempfile.TemporaryFile() as archive:
            with tarfile.open(fileobj=archive, mode="w") as tar:
                tar.add(folder, ".")
            archive.seek(0)
            repository, _, tag = BASE.partition(":")
            changes = ["ENV PIP_CERT=/etc/ca-of-the-machine.pem", 'CMD ["sh"]']
            engine.api.import_image_from_data(archive, repository=repository, tag=tag, changes=changes)


def ensure_kafka(engine: docker.DockerClient) -> None:
    """Pulls Kafka's image, or builds a stand-in on Debian's. Raises `NoImage`."""
    if not _has(engine, KAFKA):
        _build_stand_in(
            engine, KAFKA, "Kafka.Dockerfile", {"kafka.sh": HERE / "kafka.sh", "jars": kafka_jars()}
        )


def ensure_prometheus(engine: docker.DockerClient, name: str) -> None:
    """Pulls the image of Prometheus, or builds a stand-in on Debian's. Raises `NoImage`."""
    if not _has(engine, name):
        _build_stand_in(engine, name, "Prometheus.Dockerfile", {})


def _build_stand_in(engine: docker.DockerClient, name: str, dockerfile: str, files: dict[str, Path]) -> None:
    ensure_base(engine)
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        for target, path in {"Dockerfile": HERE / dockerfile, **files}.items():
            tar.add(path, target)
    context.seek(0)
    engine.images.build(fileobj=context, custom_context=True, tag=name, buildargs={"BASE": BASE}, **_BUILD)


def build_koff(engine: docker.DockerClient, target: str = "koff") -> str:
    """Builds koff's image with the Dockerfile of the repository, up to the stage `target`. Returns its id."""
    ensure_base(engine)
    image, _ = engine.images.build(
        path=str(ROOT),
        target=target,
        buildargs={"BASE": BASE, "VERSION": "test"},
        rm=True,
        **_BUILD,
    )
    assert image.id is not None
    return image.id


def _add_certificates(root: Path) -> None:
    """Makes Debian below `root` trust what this machine trusts: its proxy may have an authority of its own.

    pip gets the bundle; Debian's packages, Java's among them, take certificates one by one.
    """
    bundle = CA_BUNDLE.read_text()
    (root / "etc" / "ca-of-the-machine.pem").write_text(bundle)
    folder = root / "usr" / "local" / "share" / "ca-certificates"
    folder.mkdir(parents=True, exist_ok=True)
    begin = "-----BEGIN CERTIFICATE-----"
    for number, certificate in enumerate(bundle.split(begin)[1:]):
        (folder / f"machine-{number}.crt").write_text(begin + certificate)


def _has(engine: docker.DockerClient, name: str) -> bool:
    try:
        engine.images.get(name)
    except ImageNotFound:
        try:
            engine.images.pull(name)
        except DockerException:  # no registry can be reached
            return False
    return True
