"""What a release needs, beside `make dist`. Run by `make release-check` and by the workflow `release`.

release.py check [--tag vX.Y.Z]    why this source tree may not be released (exit code 1)
release.py notes                   the section of CHANGELOG.md about the version, for the release's page
release.py reproduce [--python P]  builds wheel and sdist twice, at two places: they must be equal
release.py licences SBOM           what the image has, with licences; exit code 1 if one is none of LICENCES
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

UNRELEASED = "Unreleased"
CATEGORIES = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
LICENCES = re.compile(r"MIT|BSD|Apache|PSF|ISC|Zlib|MPL|\bLGPL|Lesser")
"""Those of libraries that koff may call, and that its image may have."""
_VERSION = re.compile(r'^VERSION = "([^"]+)"$', re.M)
_HEADING = re.compile(r"^## (.+)$", re.M)
_RELEASE = re.compile(r"(\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)")
_CHART_VERSIONS = re.compile(r"^(?:version|appVersion): (.+)$", re.M)
_IMAGE = re.compile(r"image: (?:\S+/)?koff:(\S+?)(?:-spark)?(?=\s|$)")


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1], help="the source tree")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check").add_argument("--tag", help="the git tag of the release")
    commands.add_parser("notes")
    commands.add_parser("reproduce").add_argument("--python", default=sys.executable, help="with hatchling")
    commands.add_parser("licences").add_argument("sbom", type=Path)
    options = parser.parse_args()
    if options.command == "notes":
        print(read_notes(options.root))
        return 0
    if options.command == "reproduce":
        problems = list(find_differences(options.root, options.python))
    elif options.command == "licences":
        problems = list(find_licence_problems(json.loads(options.sbom.read_text())))
    else:
        problems = list(find_problems(options.root, options.tag))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def read_version(root: Path) -> str:
    """The version, from its only place."""
    found = _VERSION.search((root / "koff" / "version.py").read_text())
    if found is None:
        sys.exit("koff/version.py has no VERSION")
    return found[1]


def read_changelog(root: Path) -> dict[str, str]:
    """The text below each heading of CHANGELOG.md, the newest first."""
    _, *parts = _HEADING.split((root / "CHANGELOG.md").read_text())
    return {heading: text.strip() for heading, text in zip(parts[::2], parts[1::2], strict=True)}


def read_notes(root: Path) -> str:
    """What CHANGELOG.md says about the version. Ends the process with an error if it says nothing."""
    version = read_version(root)
    for heading, text in read_changelog(root).items():
        if heading.startswith(f"{version} - ") and text:
            return text
    sys.exit(f"CHANGELOG.md says nothing about {version}")


def find_problems(root: Path, tag: str | None) -> Iterator[str]:
    """Why the source tree may not be released, one line each."""
    version = read_version(root)
    if tag is not None and tag != f"v{version}":
        yield f"the tag is {tag}, but koff/version.py has {version}"
    yield from _find_problems_of_changelog(list(read_changelog(root).items()), version)
    chart = root / "deploy" / "helm" / "koff" / "Chart.yaml"
    for found in _CHART_VERSIONS.findall(chart.read_text()):
        if found != version:
            yield f"Chart.yaml has {found}, but koff/version.py has {version}"
    for path in sorted((root / "deploy" / "kubernetes").glob("*.yaml")):
        for found in set(_IMAGE.findall(path.read_text())) - {version}:
            yield f"{path.name} has the image koff:{found}, but koff/version.py has {version}"
    urls = tomllib.loads((root / "pyproject.toml").read_text())["project"].get("urls")
    values = root / "deploy" / "helm" / "koff" / "values.yaml"
    if not urls:
        yield "pyproject.toml has no [project.urls]: PyPI's page would not lead to the source"
    elif values.exists() and not any(f"runbookUrl: {url}/" in values.read_text() for url in urls.values()):
        yield "values.yaml has a runbookUrl that is not below [project.urls]: alerts would lead nowhere"
    if not (root / ".git").exists():
        yield "this is not a git repository"
    elif changed := _list_changed_files(root):
        yield f"not committed: {', '.join(changed)}"


def find_differences(root: Path, python: str) -> Iterator[str]:
    """Builds twice, the second time from a copy at another place. One line for each file that differs."""
    with tempfile.TemporaryDirectory() as folder:
        git = ["git", "-C", str(root), "-c", f"safe.directory={root}"]
        archive = subprocess.run([*git, "archive", "HEAD"], check=True, capture_output=True).stdout
        for name in ("source", "copy/source"):
            (Path(folder) / name).mkdir(parents=True)
            subprocess.run(["tar", "-x", "-C", Path(folder) / name], input=archive, check=True)
        built = [_build(Path(folder) / "source", python), _build(Path(folder) / "copy" / "source", python)]
    for name, digest in built[0].items():
        print(f"{digest}  {name}")
    for name in sorted(built[0].keys() | built[1].keys()):
        if built[0].get(name) != built[1].get(name):
            yield f"{name} is not the same when it is built again"


def _build(source: Path, python: str) -> dict[str, str]:
    """The digest of each file, by name."""
    command = [python, "-m", "hatchling", "build", "-d", "built"]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (source / "built").iterdir()}


def find_licence_problems(sbom: dict[str, Any]) -> Iterator[str]:
    """Prints each component of the SBOM with its licence. One line for each that has none of `LICENCES`."""
    for component in sbom["components"]:
        name = f"{component['name']} {component['version']}"
        found = [_name_licence(each) for each in component.get("licenses", ())]
        print(f"{name:<45} {', '.join(found)}")
        if not found or not any(LICENCES.search(each) for each in found):
            yield f"{name} has the licence {', '.join(found) or 'unknown'}: may koff's image have it?"


def _name_licence(entry: dict[str, Any]) -> str:
    licence = entry.get("license", {})
    return str(licence.get("id") or licence.get("name") or entry.get("expression"))


def _find_problems_of_changelog(sections: list[tuple[str, str]], version: str) -> Iterator[str]:
    if not sections or sections[0][0] != UNRELEASED:
        yield f"CHANGELOG.md does not begin with '## {UNRELEASED}'"
        return
    if sections[0][1]:
        heading = f"## {version} - {date.today()}"
        yield f"CHANGELOG.md has changes under '{UNRELEASED}': move them under '{heading}'"
    newest = sections[1][0] if len(sections) > 1 else "nothing"
    if not newest.startswith(f"{version} - "):
        yield f"the newest release in CHANGELOG.md is {newest}, but koff/version.py has {version}"
    for heading, text in sections:
        found = _RELEASE.fullmatch(heading)
        if heading != UNRELEASED and (found is None or not _is_date(found[2])):
            yield f"CHANGELOG.md: '{heading}' is not 'X.Y.Z - YYYY-MM-DD'"
        for category in set(re.findall(r"^### (.+)$", text, re.M)) - set(CATEGORIES):
            yield f"CHANGELOG.md: '{category}' of {heading} is none of {', '.join(CATEGORIES)}"


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _list_changed_files(root: Path) -> list[str]:
    # The tree may belong to another user, as in a container.
    command = ["git", "-C", str(root), "-c", f"safe.directory={root}", "status", "--porcelain"]
    status = subprocess.run(command, check=True, capture_output=True, text=True)
    return [line[3:] for line in status.stdout.splitlines()]


if __name__ == "__main__":
    sys.exit(main())
