"""Hooks of mkdocs: what the pages of docs/ need to be a site.

A page links to files of the repository, which the site does not have: such a link becomes the path of the
file. The site gets an llms.txt (llmstxt.org), made of the table of docs/README.md.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(((?:\.\./)+[^)#\s]*)(#[^)\s]*)?\)")
_ROW = re.compile(r"^\| \[(.*?)\]\((.*?)\) \| (.*) \|$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Replaces links that leave docs/. Raises `FileNotFoundError` for a file that is not there."""
    folder = posixpath.dirname(page.file.src_uri)
    root = Path(config.docs_dir).parent

    def replace(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", folder, found[2]))
        if path.startswith("docs/"):
            return found[0]
        if not (root / path).exists():
            raise FileNotFoundError(f"{page.file.src_uri} links to {path}, which is not there")
        text = found[1].strip("`").rstrip("/")
        return f"`{path}`" if text in path else f"{found[1]} (`{path}` in the repository)"

    return _LINK.sub(replace, markdown)


def on_post_build(config: Any, **_: Any) -> None:
    """Writes llms.txt."""
    page = (Path(config.docs_dir) / "README.md").read_text()
    Path(config.site_dir, "llms.txt").write_text(format_llms_txt(config, page))


def format_llms_txt(config: Any, page: str) -> str:
    """The text of llms.txt: a line for each row of the table of pages."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", "", "## Pages", ""]
    for name, link, text in _ROW.findall(page):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
        lines.append(f"- [{name}]({link.replace('.md', '.html').replace('README', 'index')}): {plain}")
    return "".join(f"{line}\n" for line in lines)
