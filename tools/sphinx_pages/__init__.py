"""What pages of the book need beyond Sphinx and its theme, one idea a file."""

from sphinx.application import Sphinx

from . import docstrings, play
from .play import PLAY as PLAY


def setup(app: Sphinx) -> dict[str, bool]:
    for part in (docstrings, play):
        part.setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
