"""What a page offers of its notebook: a copy that stands alone, and a link that opens it on Colab.

The theme's button downloads the notebook as it is stored, which finds no package elsewhere. Here
the copies of tools/publish.py take the places of those files, and the package's wheel lies beside
them. The theme could link to Colab as well, but to the branch of the sources.
"""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sphinx.application import Sphinx

from tools import address, publish


def colab(page: str) -> str:
    """The address of a page's notebook on Colab, which opens what is on GitHub alone."""
    repository = urlsplit(address.repository())
    if repository.hostname != "github.com":
        return ""
    path = repository.path.strip("/").removesuffix(".git")
    return f"https://colab.research.google.com/github/{path}/blob/{publish.BRANCH}/{page}.ipynb"


def add_button(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object
) -> None:
    link = colab(page)
    if link and context.get("page_source_suffix") == ".ipynb":
        button = {
            "type": "link",
            "url": link,
            "text": "Colab",
            "tooltip": "Open on Colab",
            "label": "colab",
        }
        context["header_buttons"].insert(0, button)


def write_copies(app: Sphinx, error: Exception | None) -> None:
    if error or app.builder.name != "html":
        return
    out, source = Path(app.outdir), Path(app.srcdir)
    for page in app.env.found_docs:
        path = Path(app.env.doc2path(page))
        target = out / "_sources" / path.relative_to(source)
        if path.suffix == ".ipynb" and target.exists():
            publish.write_copy(path, target)
    for name, (_, target) in app.env.dlfiles.items():
        if name.endswith(".ipynb"):
            publish.write_copy(source / name, out / publish.DOWNLOADS / target)
    publish.build_wheel(out / publish.DOWNLOADS)


def setup(app: Sphinx) -> dict[str, bool]:
    # The theme collects its buttons at 501.
    app.connect("html-page-context", add_button, priority=502)
    app.connect("build-finished", write_copies)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
