"""Build the pages of the book from the outputs that the notebooks hold, without running them.

    python -m tools.stored

What is published comes from `make book`, which runs every notebook. This takes seconds, and is for
looking at the pages: `make browser`, `make screenshots`.
"""

import shutil
import sys
from pathlib import Path

from jupyter_book.sphinx import build_sphinx

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "_build" / "stored" / "html"
OVER = {
    "nb_execution_mode": "off",
    "nitpicky": True,
    "external_toc_path": str(ROOT / "_toc.yml"),
    "latex_individualpages": False,  # Jupyter Book asks for a value
}


def build() -> int:
    """As strict as `make book`; gives back the exit status."""
    shutil.rmtree(PAGES.parent, ignore_errors=True)
    done = build_sphinx(
        str(ROOT),
        str(PAGES),
        path_config=str(ROOT / "_config.yml"),
        confoverrides=OVER,
        noconfig=True,
        builder="html",
        freshenv=True,
        warningiserror=True,
        keep_going=True,
        quiet=True,
    )
    return 1 if isinstance(done, Exception) else int(done)  # it has told of an exception


if __name__ == "__main__":
    sys.exit(build())
