"""Long signatures as lists that a screen reader can read out.

Sphinx sets one parameter a line as a list of definitions that has no term, which HTML does not
allow. A plain list looks the same; book.css styles it.
"""

import re
from typing import Any

from sphinx.application import Sphinx

LINES = re.compile(r"<dl>\n((?:<dd>.*</dd>\n)+)</dl>")


def as_list(found: re.Match[str]) -> str:
    lines = re.sub(r"^<dd>(.*)</dd>$", r"<li>\1</li>", found[1], flags=re.MULTILINE)
    return f'<ul class="sig-lines">\n{lines}</ul>'


def mend(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: object) -> None:
    if "sig-param" in context.get("body", ""):
        context["body"] = LINES.sub(as_list, context["body"])


def setup(app: Sphinx) -> None:
    app.connect("html-page-context", mend)
