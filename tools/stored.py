"""Build the pages of the book from the outputs that the notebooks hold, without running them.

    python -m tools.stored              into _build/stored/html
    python -m tools.stored FOLDER       into a folder that is not there yet

What is published comes from `make book`, which runs every notebook. This takes a fraction of the
time, and is for what looks at pages: `make browser`, `make screenshots`, and `make test`, which
compares what the notebooks print by a step of its own.
"""

import shutil
import sys
import tempfile
from collections.abc import Sequence
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


def build(pages: Path) -> int:
    """As strict as `make book`, and from nothing; gives back the exit status."""
    with tempfile.TemporaryDirectory() as doctrees:
        done = build_sphinx(
            str(ROOT),
            str(pages),
            path_config=str(ROOT / "_config.yml"),
            confoverrides=OVER,
            noconfig=True,
            doctreedir=doctrees,
            builder="html",
            freshenv=True,
            warningiserror=True,
            keep_going=True,
            quiet=True,
        )
    return 1 if isinstance(done, Exception) else int(done)  # it has told of an exception


def main(arguments: Sequence[str]) -> int:
    if not arguments:
        shutil.rmtree(PAGES, ignore_errors=True)
        return build(PAGES)
    folder = Path(arguments[0]).resolve()
    if folder.exists():
        print(f"{folder} is there already: name a new one", file=sys.stderr)
        return 2
    return build(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
