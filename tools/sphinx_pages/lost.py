"""Where a reader comes who has no page's address: the page 404.html, and the site's root.

A server sends 404.html for any address that is not there, in whichever folder: its links have to
begin at the root. Jupyter Book writes an index.html of one line, which is no page and has no title.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from sphinx.application import Sphinx
from sphinx.config import Config

from .heads import CARD, CARD_SHOWS, CARD_TAGS, book_url

ROOT = "index"
NOT_FOUND = "404"


def set_not_found(app: Sphinx, config: Config) -> None:
    config.notfound_pagename = NOT_FOUND
    config.notfound_template = "404.html"
    config.notfound_context = {"title": "This page is not here"}
    config.notfound_urls_prefix = urlsplit(book_url()).path or "/"


def pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    if app.config.root_doc == ROOT:
        return
    context = {"title": app.config.html_title, "target": app.config.root_doc}
    told = {"card": CARD, "card_shows": CARD_SHOWS, "card_tags": CARD_TAGS}
    yield ROOT, {**context, **told, "address": book_url()}, "index.html"


def add_chapters(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: object
) -> None:
    if page == NOT_FOUND:
        order = [app.config.root_doc, *app.env.toctree_includes.get(app.config.root_doc, [])]
        context["chapters"] = [(app.env.titles[name].astext(), name) for name in order]


def setup(app: Sphinx) -> None:
    app.setup_extension("notfound.extension")
    app.connect("config-inited", set_not_found, priority=400)
    app.connect("html-collect-pages", pages)
    app.connect("html-page-context", add_chapters)
