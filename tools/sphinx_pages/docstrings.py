"""Docstrings set as they are meant, with links into the manuals of what they mention.

Intersphinx would make the links, but fetches its lists of names over the network, and a build
without one would have to fail. The package mentions few enough names to list them.
"""

import re
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

TORCH = "https://docs.pytorch.org/docs/stable/"
PYTHON = "https://docs.python.org/3/library/"
PAGES = {
    "Tensor": f"{TORCH}tensors.html",
    "torch.Tensor": f"{TORCH}tensors.html",
    "torch.dtype": f"{TORCH}tensor_attributes.html#torch.dtype",
    "torch.device": f"{TORCH}tensor_attributes.html#torch.device",
    "torch._C.Generator": f"{TORCH}generated/torch.Generator.html",
    "torch.nn.modules.module.Module": f"{TORCH}generated/torch.nn.Module.html",
    "torch.nn.modules.activation.MultiheadAttention": (
        f"{TORCH}generated/torch.nn.MultiheadAttention.html"
    ),
    "torch.nn.modules.sparse.Embedding": f"{TORCH}generated/torch.nn.Embedding.html",
    "collections.abc.Callable": f"{PYTHON}collections.abc.html#collections.abc.Callable",
    "collections.abc.Iterable": f"{PYTHON}collections.abc.html#collections.abc.Iterable",
    "collections.abc.Iterator": f"{PYTHON}collections.abc.html#collections.abc.Iterator",
    "collections.abc.Mapping": f"{PYTHON}collections.abc.html#collections.abc.Mapping",
    "collections.abc.Sequence": f"{PYTHON}collections.abc.html#collections.abc.Sequence",
    "random.Random": f"{PYTHON}random.html#random.Random",
    "ArrayLike": "https://numpy.org/doc/stable/reference/typing.html#numpy.typing.ArrayLike",
    "Axes": "https://matplotlib.org/stable/api/axes_api.html",
    "Figure": "https://matplotlib.org/stable/api/figure_api.html",
}


def as_meant(lines: list[str]) -> list[str]:
    """Docstrings are written to be read in a terminal: reST would misread two of their habits.

    An indented table of shapes would have its lines run together, and a name between single
    backquotes would not be set as code.
    """
    result: list[str] = []
    inside = False
    for line in lines:
        indented = line.startswith("    ")
        if indented and not inside and (not result or not result[-1]):
            result += [".. code-block:: none", ""]
        inside = indented or (inside and not line)
        code = inside or line.startswith((">>>", "..."))
        result.append(line if code else re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", line))
    return result


def process_docstring(
    app: Sphinx, what: str, name: str, obj: object, options: Any, lines: list[str]
) -> None:
    lines[:] = as_meant(lines)


def link(
    app: Sphinx, env: object, node: pending_xref, contents: nodes.TextElement
) -> nodes.reference | None:
    address = PAGES.get(node.get("reftarget", ""))
    if address is None:
        return None
    return nodes.reference("", "", contents, internal=False, refuri=address)


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-docstring", process_docstring)
    app.connect("missing-reference", link)
