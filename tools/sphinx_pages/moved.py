"""Old addresses that still lead somewhere, after a page or a section got another name.

book/moved.toml lists them, each with its new address: an old page becomes a page that leads to the
new one, an old anchor a second anchor of the section that it is now. The root of the site leads to
the opening page in the same way, where Jupyter Book would put a page of one line without a title.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ConfigError

from .heads import CARD, CARD_SHOWS, CARD_TAGS, book_url

LIST = Path("book") / "moved.toml"


def moves(app: Sphinx) -> dict[str, str]:
    """The new address of each old one."""
    path = Path(app.srcdir) / LIST
    listed = tomllib.loads(path.read_text("utf-8")) if path.exists() else {}
    for old, new in listed.items():
        page, _, anchor = old.partition("#")
        if anchor and new.partition("#")[0] != page:
            raise ConfigError(f"{LIST}: the section {old} can move within its page alone")
        if not anchor and document(page) in app.env.all_docs:
            raise ConfigError(f"{LIST}: {page} is a page, so it has not moved to {new}")
        if document(new) not in app.env.all_docs:
            raise ConfigError(f"{LIST}: {old} has moved to {new}, which is no page")
    return listed


def document(address: str) -> str:
    return address.partition("#")[0].removesuffix(".html")


def pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page for each old one, and for the root."""
    root = app.config.root_doc
    listed = {old: new for old, new in moves(app).items() if "#" not in old}
    if root != "index":
        listed["index.html"] = f"{root}.html"
    for old, new in listed.items():
        context = {
            "title": app.env.titles[document(new)].astext(),
            "target": document(new),
            "anchor": new.removeprefix(f"{document(new)}.html"),
            "address": book_url(),
            "card": CARD,
            "card_shows": CARD_SHOWS,
            "card_tags": CARD_TAGS,
        }
        yield document(old), context, "moved.html"


def add_anchors(app: Sphinx, tree: nodes.document, name: str) -> None:
    """Give the sections of a page their old anchors as well."""
    for old, new in moves(app).items():
        if "#" not in old or document(old) != name:
            continue
        anchor = new.partition("#")[2]
        found = [node for node in tree.findall(nodes.Element) if anchor in node.get("ids", [])]
        if not found:
            raise ConfigError(f"{LIST}: {old} has moved to {new}, which is no section")
        found[0]["ids"].append(old.partition("#")[2])


def setup(app: Sphinx) -> None:
    app.connect("html-collect-pages", pages)
    app.connect("doctree-resolved", add_anchors)
