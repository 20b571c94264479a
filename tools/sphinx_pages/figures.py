"""The caption of a figure stands below its picture alone.

A cell that draws shows a picture and then the picture's numbers as a table. myst-nb would set both
as figures, with one caption and one name.
"""

from typing import Any

from myst_nb.sphinx_ import SphinxNbRenderer
from nbformat import NotebookNode
from sphinx.application import Sphinx

render_all = SphinxNbRenderer._render_nb_cell_code_outputs


def render_outputs(renderer: SphinxNbRenderer, token: Any, outputs: list[NotebookNode]) -> None:
    asked = token.meta["metadata"]
    options = {key: value for key, value in asked.get("mystnb", {}).items() if key != "figure"}
    for output in outputs:
        pictured = any(mime.startswith("image/") for mime in output.get("data", {}))
        token.meta["metadata"] = asked if pictured else {**asked, "mystnb": options}
        render_all(renderer, token, [output])
    token.meta["metadata"] = asked


def setup(app: Sphinx) -> None:
    SphinxNbRenderer._render_nb_cell_code_outputs = render_outputs
