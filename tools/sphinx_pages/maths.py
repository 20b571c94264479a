"""Formulas set a few at a time, from the top of a page to its end.

MathJax would set them all at once, and a long page would not answer to a key or a finger until it
has done so.
"""

from typing import Any, cast

from sphinx.application import Sphinx
from sphinx.domains.math import MathDomain

SCRIPT = """\
MathJax.startup = {
  async pageReady() {
    const formulas = [...document.querySelectorAll(".math")];
    while (formulas.length) {
      await MathJax.typesetPromise(formulas.splice(0, 20));
      await new Promise((next) => setTimeout(next));
    }
  },
};
"""


def set_in_steps(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: object
) -> None:
    domain = cast(MathDomain, app.env.get_domain("math"))
    if domain.has_equations(page):
        app.add_js_file(None, body=SCRIPT, priority=900)  # after MathJax's other settings


def setup(app: Sphinx) -> None:
    app.connect("html-page-context", set_in_steps)
