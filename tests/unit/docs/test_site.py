"""What the hooks of the site make of the pages: links out of docs/, and llms.txt."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[3]
CONFIG = SimpleNamespace(docs_dir=str(ROOT / "docs"), site_name="koff", site_description="Lag, and why.")
_spec = importlib.util.spec_from_file_location("docs_site", ROOT / ".ci" / "docs_site.py")
assert _spec is not None
assert _spec.loader is not None
site = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(site)


def show(markdown: str, page: str = "faq.md") -> str:
    return site.on_page_markdown(markdown, SimpleNamespace(file=SimpleNamespace(src_uri=page)), CONFIG)


def test_a_link_to_a_file_of_the_repository_becomes_its_path():
    assert show("see [grafana/](../grafana).") == "see `grafana`."
    assert show("by [uPlot](../koff/serve)!") == "by uPlot (`koff/serve` in the repository)!"
    assert show("[make](../../Makefile)", "migration/burrow.md") == "make (`Makefile` in the repository)"


def test_other_links_stay():
    text = "[a](api.md#x) [b](https://example.org/../b) ![c](images/groups.png)"
    assert show(text) == text
    assert show("[steps](../migration.md#step-by-step)", "migration/burrow.md").startswith("[steps](../mig")


def test_a_link_to_nothing_ends_the_build():
    with pytest.raises(FileNotFoundError, match=r"faq\.md links to nope, which is not there"):
        show("[nope](../nope)")


def test_llms_txt_has_a_line_for_each_page_of_the_table():
    page = (ROOT / "docs" / "README.md").read_text()
    lines = site.format_llms_txt(CONFIG, page).splitlines()
    assert lines[:3] == ["# koff", "", "> Lag, and why."]
    assert len([line for line in lines if line.startswith("- [")]) == page.count("| [")
    assert "- [decisions/](decisions/index.html): " in "\n".join(lines)
