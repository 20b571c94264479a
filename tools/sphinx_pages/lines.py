"""Where a line may not end: between a formula and the mark behind it, and inside of short code.

A browser takes a formula for a picture, beside which a line may end whatever stands there, and it
would break `--resume` after its hyphens. The style sheet keeps together what is marked here.
"""

import re

from docutils import nodes
from sphinx.application import Sphinx

SHORT = 16  # characters of code that find room on one line of a phone
BEFORE = re.compile(r"[(\[“‘]+$")
BEHIND = re.compile(r"[^\w\s–—]+(?=\s|$)")


def hold(formula: nodes.math) -> None:
    """Put a formula and the marks that touch it into one element."""
    around = formula.parent
    at = around.index(formula)
    before, behind = text(around, at - 1), text(around, at + 1)
    first, last = BEFORE.search(before), BEHIND.match(behind)
    held: list[nodes.Node] = [formula]
    if last:
        around[at + 1] = nodes.Text(behind[last.end() :])
        held.append(nodes.Text(last[0]))
    if first:
        around[at - 1] = nodes.Text(before[: first.start()])
        held.insert(0, nodes.Text(first[0]))
    if first or last:
        around[at] = nodes.inline("", "", *held, classes=["together"])


def text(around: nodes.Element, at: int) -> str:
    """What stands there, if it is text."""
    found = around[at] if 0 <= at < len(around) else None
    return str(found) if isinstance(found, nodes.Text) else ""


def keep_together(app: Sphinx, tree: nodes.document, name: str) -> None:
    if app.builder.format != "html":
        return
    for code in tree.findall(nodes.literal):
        if len(code.astext()) <= SHORT:
            code["classes"].append("together")
    for formula in list(tree.findall(nodes.math)):
        hold(formula)


def setup(app: Sphinx) -> None:
    app.connect("doctree-resolved", keep_together)
