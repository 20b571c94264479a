"""The scripts of "Play with attention", on the pages that have a piece of it."""

from typing import Any

from sphinx.application import Sphinx

# In the order in which they need each other. Plain scripts and no modules: a browser loads modules
# from a server only, and the book is also read as files.
PLAY = ("attention", "presets", "link", "words", "elements", "controls", "results", "play")


def load_play(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: object) -> None:
    """Put the scripts on the pages that use them, and on no other."""
    if 'class="attention-play' not in context.get("body", ""):
        return
    app.add_css_file("play/play.css")
    for name in PLAY:
        app.add_js_file(f"play/{name}.js", loading_method="defer")


def setup(app: Sphinx) -> None:
    app.connect("html-page-context", load_play)
