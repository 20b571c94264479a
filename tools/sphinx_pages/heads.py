"""What a page says about itself in its head: to search engines, to whoever gets a link to it, and
to a phone that keeps it on its first screen.

Every page has a description. Addresses are told only where the book's own is known, which is where
a workflow sets BOOK_URL: canonical links, cards, the sitemap, and links of the page 404.html that
hold in any folder.
"""

import re
from html import escape
from typing import Any
from urllib.parse import urlsplit

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ConfigError

from tools import address

SHORTEST, LONGEST = 60, 200  # characters of a description; what is longer is cut at a sentence
NO_CONTENT = [
    "404.html",
    "_modules/*",
    "genindex.html",
    "index.html",
    "py-modindex.html",
    "search.html",
]
# Pages that Sphinx makes have no text to begin with.
MADE = {
    "_modules/index": "The modules of the package behind this book, each with its source.",
    "404": "This address leads nowhere: search for a word of the page, or choose a chapter.",
    "genindex": "Every name of the package mini_attention in alphabetical order, each with a link.",
    "search": "Search the book for an English or Chinese word, a symbol or a name of its package.",
}
SOURCE = "The source of the package behind this book, as its pages quote it: {title}."
CARD = "_static/card.png"
CARD_SHOWS = "Five words, two questions, and how much of each word goes into each answer."
CARD_TAGS = (
    '<meta property="og:image:width" content="1200" />',
    '<meta property="og:image:height" content="630" />',
    '<meta name="twitter:card" content="summary_large_image" />',
)


def description(tree: nodes.document) -> str:
    """The first paragraphs of a page, as many sentences as fit."""
    section = next(tree.findall(nodes.section), tree)
    text = ""
    for paragraph in section.findall(nodes.paragraph):
        text = " ".join([text, *plain(paragraph).split()]).strip()
        if len(text) >= SHORTEST:
            break
    if len(text) <= LONGEST:
        return text
    sentences = re.findall(r".+?[.?!:](?= |$)", text[:LONGEST])
    whole = "".join(sentences).rstrip(":")
    if len(whole) >= SHORTEST:
        return whole
    return text[: LONGEST - 1].rpartition(" ")[0].rstrip(",;:") + "…"


def plain(paragraph: nodes.paragraph) -> str:
    """Its text, with what formulas in a sentence need."""
    return str(paragraph.astext()).replace(r"\times", "×")


def describe(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    if tree is not None:
        said = description(tree)
        context["meta"] = {**(context["meta"] or {}), "og:description": escape(said)}
    elif page in MADE:
        said = MADE[page]
    elif page.startswith("_modules/"):
        said = SOURCE.format(title=context["title"])
    else:
        return  # it leads to another page at once
    tags = context.get("metatags", "")
    context["metatags"] = f'{tags}\n<meta name="description" content="{escape(said)}" />'


def add_icon(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: object) -> None:
    """For browsers and phones that can't draw the SVG."""
    icon = context["pathto"]("_static/touch-icon.png", 1)
    tags = context.get("metatags", "")
    context["metatags"] = f'{tags}\n<link rel="apple-touch-icon" href="{icon}" />\n'


def set_addresses(app: Sphinx, config: Config) -> None:
    url = book_url()
    if url:
        config.html_baseurl = config.ogp_site_url = url
        config.ogp_site_name = config.html_title
        config.ogp_image, config.ogp_image_alt = CARD, CARD_SHOWS
        config.ogp_custom_meta_tags = CARD_TAGS
        config.ogp_enable_meta_description = False
        config.sitemap_url_scheme = "{link}"
        config.sitemap_excludes = NO_CONTENT


def book_url() -> str:
    """The address of the published book with a slash at its end, or an empty text."""
    url = address.pages()
    if not url:
        return ""
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise ConfigError(f"BOOK_URL must be an address like https://host/folder, not {url!r}")
    return f"{url}/"


def setup(app: Sphinx) -> None:
    if book_url():
        app.setup_extension("sphinxext.opengraph")
        app.setup_extension("sphinx_sitemap")
    app.connect("config-inited", set_addresses, priority=400)
    app.connect("html-page-context", describe, priority=450)
    app.connect("html-page-context", add_icon, priority=450)
