"""Summaries of folded answers as text that an edition in another language can translate.

In a notebook they are HTML, which Sphinx hands to no translator, and which it would lose where it
is asked to: here each is a paragraph without a tag of its own, between two pieces of HTML.
"""

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.writers.html5 import HTML5Translator

FOLD = re.compile(r"(.*<summary>)(.+?)(</summary>.*)", re.DOTALL)


class Summary(nodes.General, nodes.TextElement):  # type: ignore[misc]
    """The text of a summary, in whatever HTML it is written."""


class TellSummaries(SphinxTransform):
    default_priority = 10  # before the translation, which is at 20

    def apply(self, **options: object) -> None:
        for raw in list(self.document.findall(nodes.raw)):
            if found := FOLD.fullmatch(raw.astext()):
                before, text, behind = found.groups()
                told = Summary(text, "", html(text))
                told.source, told.line = raw.source, raw.line
                raw.replace_self([html(before), told, html(behind)])


def html(text: str) -> nodes.raw:
    return nodes.raw("", text, format="html")


def leave_bare(translator: HTML5Translator, node: Summary) -> None:
    pass


def setup(app: Sphinx) -> None:
    app.add_node(Summary, html=(leave_bare, leave_bare))
    app.add_transform(TellSummaries)
