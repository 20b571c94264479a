"""Wide tables that a keyboard can scroll.

The theme lets a table scroll in a box of its own, and makes other boxes that scroll reachable by
keyboard, those of code for one, but not this.
"""

from typing import Any

from sphinx.application import Sphinx

BOX = '<div class="pst-scrollable-table-container"'


def reach(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: object) -> None:
    if BOX in context.get("body", ""):
        context["body"] = context["body"].replace(BOX, f'{BOX} tabindex="0"')


def setup(app: Sphinx) -> None:
    app.connect("html-page-context", reach)
