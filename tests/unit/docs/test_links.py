"""Each link of the pages leads to a file and a heading that are there, and each page is on the site."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *DOCS.rglob("*.md")]
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def list_anchors(page: Path) -> set[str]:
    """The anchors of the headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_leads_somewhere(page: Path):
    wrong = []
    for path, anchor in LINK.findall(CODE.sub("", page.read_text())):
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in list_anchors(target)):
            wrong.append(f"{path}#{anchor}")
    assert wrong == []


def list_pages(nav: Any) -> list[str]:
    """The pages of a part of the table of contents."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in list_pages(part)]


def test_the_site_has_each_page_once():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert sorted(list_pages(nav)) == sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))


def test_the_table_of_pages_has_each_page():
    listed = set(re.findall(r"\]\(([^)]*\.md)\)", (DOCS / "README.md").read_text()))
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if "decisions" not in path.parts}
    assert listed == pages - {"README.md"} | {"decisions/README.md"}
