"""What pages of the book need beyond Sphinx and its theme, one idea a file."""

from importlib import import_module
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config

from .play import PLAY as PLAY

PARTS = (
    "docstrings",
    "figures",
    "heads",
    "icons",
    "images",
    "lines",
    "lost",
    "maths",
    "moved",
    "play",
    "signatures",
    "summaries",
    "tables",
    "themes",
)
TEMPLATES = Path(__file__).parent / "templates"


def add_templates(app: Sphinx, config: Config) -> None:
    config.templates_path.append(str(TEMPLATES))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", add_templates)
    for part in PARTS:
        import_module(f".{part}", __name__).setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
