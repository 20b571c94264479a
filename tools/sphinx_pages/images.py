"""Figures with their sizes, so that nothing moves when they arrive.

Sphinx writes no size for a figure, or one that holds on every screen. As attributes, width and
height tell a browser the shape, and the style sheet makes the figure as wide as there is room.
A notebook says how wide its figures are meant to be: they have more pixels, for sharp screens.
"""

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.util.images import get_image_size
from sphinx.writers.html5 import HTML5Translator


def visit_image(translator: HTML5Translator, node: nodes.image) -> None:
    size = None
    meant = node.get("width", "")
    told = {"width", "height", "scale"} & set(node.attributes)
    if (not told or meant.isdigit()) and "://" not in node["uri"]:
        size = get_image_size(str(Path(translator.builder.srcdir, node["uri"])))
        if size is None:
            raise SphinxError(f"{node['uri']} is no picture whose size can be read")
        if meant:
            del node["width"]
            size = int(meant), round(size[1] * int(meant) / size[0])
    written = len(translator.body)
    HTML5Translator.visit_image(translator, node)
    if size:
        sized = f'<img width="{size[0]}" height="{size[1]}" '
        translator.body[written] = translator.body[written].replace("<img ", sized, 1)


def depart_image(translator: HTML5Translator, node: nodes.image) -> None:
    HTML5Translator.depart_image(translator, node)


def setup(app: Sphinx) -> None:
    app.add_node(nodes.image, override=True, html=(visit_image, depart_image))
