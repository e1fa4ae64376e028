"""`koff version`: the version, and what else is installed."""

import platform
import re
from collections.abc import Iterator
from importlib import metadata

import click
from click import option

from koff.version import VERSION

_REQUIREMENT = re.compile(r"""([\w.-]+).*?(?:extra == ["']([\w.-]+)["'])?\s*$""")
_FOR_DEVELOPERS = "dev"


@click.command()
@option("--verbose", is_flag=True, help="Also say what is installed, and which extras are missing.")
def version(verbose: bool) -> None:
    """Print the version of koff.

    \b
    Examples:
      koff version
      koff version --verbose
    """
    click.echo(f"koff {VERSION}")
    if verbose:
        for line in _describe_installation():
            click.echo(line)


def _describe_installation() -> Iterator[str]:
    yield f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    yield from _describe_java()
    try:
        required = metadata.requires("koff") or []
    except metadata.PackageNotFoundError:
        yield "koff runs from its source: no list of what it needs is installed"
        return
    by_extra: dict[str, list[str]] = {}
    for text in required:
        name, extra = _REQUIREMENT.findall(text)[0]
        if name != "koff":  # an extra that contains another one
            by_extra.setdefault(extra, []).append(name)
    yield f"needs: {_list(by_extra.pop('', []))}"
    by_extra.pop(_FOR_DEVELOPERS, None)
    for extra, names in sorted(by_extra.items()):
        missing = [name for name in names if not _find_version(name)]
        if missing:
            yield f"koff[{extra}]: missing {', '.join(missing)}: pip install 'koff[{extra}]'"
        else:
            yield f"koff[{extra}]: {_list(names)}"


def _describe_java() -> Iterator[str]:
    """The Java and the jars that `koff demo` would use."""
    from koff.java import MissingJava, find_java, version_text
    from koff.kafkatest import KAFKA_VERSION
    from koff.kafkatest.jars import cache_folder

    try:
        path = find_java()
        yield f"Java: {version_text(path).splitlines()[0]} at {path}"
    except MissingJava as error:
        yield f"Java: {error}"
    jars = cache_folder() / f"kafka-{KAFKA_VERSION}"
    where = jars if jars.is_dir() else "not there yet: the first demo downloads it"
    yield f"Kafka {KAFKA_VERSION} for the demo: {where}"


def _list(names: list[str]) -> str:
    return ", ".join(f"{name} {_find_version(name) or '(missing)'}" for name in names)


def _find_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
