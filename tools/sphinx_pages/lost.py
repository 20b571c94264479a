"""The page 404.html, which a server sends for any address that is not there, in whichever folder:
its links have to begin at the root.
"""

from typing import Any
from urllib.parse import urlsplit

from sphinx.application import Sphinx
from sphinx.config import Config

from .heads import book_url

NOT_FOUND = "404"


def set_not_found(app: Sphinx, config: Config) -> None:
    config.notfound_pagename = NOT_FOUND
    config.notfound_template = "404.html"
    config.notfound_context = {"title": "This page is not here"}
    config.notfound_urls_prefix = urlsplit(book_url()).path or "/"


def add_chapters(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: object
) -> None:
    if page == NOT_FOUND:
        order = [app.config.root_doc, *app.env.toctree_includes.get(app.config.root_doc, [])]
        context["chapters"] = [(app.env.titles[name].astext(), name) for name in order]


def setup(app: Sphinx) -> None:
    app.setup_extension("notfound.extension")
    app.connect("config-inited", set_not_found, priority=400)
    app.connect("html-page-context", add_chapters)
