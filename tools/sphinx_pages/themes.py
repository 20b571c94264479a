"""Light or dark before a page is drawn.

The theme asks what the reader's system prefers when all of the page is there, and then every style
of the page is computed anew: on a long page the slowest step of its loading.
"""

from sphinx.application import Sphinx

SCRIPT = """\
if (document.documentElement.dataset.mode === "auto")
  document.documentElement.dataset.theme =
    matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
"""


def setup(app: Sphinx) -> None:
    app.add_js_file(None, body=SCRIPT, priority=100)
