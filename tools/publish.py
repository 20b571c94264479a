"""Make the copies of the notebooks that readers download, or open on Colab.

A notebook of this repository finds the package beside itself. A copy stands alone: its first cell
is tools/first_cell.py, which installs what is missing; the files that it reads come with it; and
its links lead to the published pages, where their address is known. tools/sphinx_downloads.py puts
the copies into the folder `_sources` of the pages.

Colab opens notebooks from repositories only, and the pages are no repository: hence the workflow
that publishes them pushes that folder to the branch `published`.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from pprint import pformat
from typing import Any

import nbformat
from nbformat import NotebookNode
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tools import address

ROOT = address.ROOT
BOOK = ROOT / "book"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WHEEL = f"mini_attention-{PROJECT['version']}-py3-none-any.whl"
DOWNLOADS = "_downloads"  # the folder of the pages that Sphinx puts downloads into
BRANCH = "published"
WIDTH = 79

FIRST_CELL = Path(__file__).with_name("first_cell.py")
# Folded in JupyterLab and on Colab.
FOLDED = {"jupyter": {"source_hidden": True}, "cellView": "form"}
HELP = (
    f"Is there a network? Else put {WHEEL} into the folder of this notebook and run this cell "
    "again; the book's opening page offers that file."
)
DATA = '''\
# @title The file that this notebook reads
from pathlib import Path

if not Path("{name}").exists():
    Path("{name}").parent.mkdir(exist_ok=True)
    Path("{name}").write_text("""{text}""")'''


# The copy of one notebook


def copy_of(path: Path) -> NotebookNode:
    """What a reader gets of a notebook: outputs and ids are those that are stored."""
    notebook: NotebookNode = nbformat.v4.reads(path.read_text(encoding="utf-8"))
    added = [extra_cell("install", install_text())]
    added += [extra_cell("data", data_text(path, name)) for name in files_read(notebook, path)]
    if pages := address.pages():
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = with_links_into(pages, path, cell.source)
    notebook.cells = added + notebook.cells
    nbformat.validate(notebook)
    return notebook


def extra_cell(name: str, text: str) -> NotebookNode:
    cell: NotebookNode = nbformat.v4.new_code_cell(text, id=name, metadata=FOLDED)
    cell.metadata.tags = [name]
    return cell


def install_text() -> str:
    """The first cell, with what pyproject.toml declares and where the package can be had."""
    filled = {"PYTHONS": pythons(), "NEEDS": needs(), "PLACES": places(), "HELP": HELP}
    lines = []
    for line in FIRST_CELL.read_text(encoding="utf-8").rstrip("\n").split("\n"):
        name = line.partition(" = ")[0]
        if name in filled:
            _, gap, comment = line.partition("  # ")
            line = f"{name} = {pformat(filled[name], width=WIDTH)}{gap}{comment}"
        lines.append(line)
    return "\n".join(lines)


def pythons() -> tuple[tuple[int, int], tuple[int, int]]:
    """The oldest and the newest Python that the package is declared for."""
    declared = SpecifierSet(PROJECT["requires-python"])
    fit = [(3, minor) for minor in range(100) if f"3.{minor}.0" in declared]
    return fit[0], fit[-1]


def needs() -> dict[str, tuple[int, int]]:
    """What notebooks import beside the package, and the least version that it allows."""
    lines = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["plots"]]
    found: dict[str, tuple[int, int]] = {}
    for needed in map(Requirement, lines):
        (least,) = (each.version for each in needed.specifier if each.operator == ">=")
        major, minor = map(int, least.split("."))
        found[needed.name] = (major, minor)
    return found


def places() -> tuple[str, ...]:
    """Where the first cell looks for the package, in this order.

    A wheel beside the notebook needs no network, one beside the pages no git. The repository comes
    last and still holds this very commit when the pages have moved on to another version.
    """
    found = [WHEEL]
    if pages := address.pages():
        found.append(f"{pages}/{DOWNLOADS}/{WHEEL}")
    if repository := address.repository():
        commit = address.commit()
        found.append(f"git+{repository}" + (f"@{commit}" if commit else ""))
    return tuple(found)


def files_read(notebook: NotebookNode, path: Path) -> list[str]:
    """The files of the folder `data` beside a notebook that its cells name."""
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    names = dict.fromkeys(re.findall(r"""["'](data/[\w./-]+)["']""", code))
    return [name for name in names if (path.parent / name).is_file()]


def data_text(path: Path, name: str) -> str:
    """A cell that writes a file, whose text stands in it as it is."""
    text = (path.parent / name).read_text(encoding="utf-8")
    if '"""' in text or "\\" in text:
        raise ValueError(f"{name} would not stand in a cell as it is: no \\ and no triple quotes")
    return DATA.format(name=name, text=text)


def with_links_into(pages: str, path: Path, text: str) -> str:
    """With links to other pages of the book that lead to where it is published."""

    def link(found: re.Match[str]) -> str:
        target = (path.parent / found[1]).resolve()
        if not (target.is_file() and target.is_relative_to(ROOT)):
            return found[0]
        page = target.relative_to(ROOT).with_suffix(".html").as_posix()
        return f"]({pages}/{page}{found[2] or ''})"

    return re.sub(r"\]\(([\w./-]+\.(?:ipynb|md))(#[\w-]+)?\)", link, text)


# The files


def write_copy(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(nbformat.v4.writes(copy_of(path)) + "\n", encoding="utf-8", newline="\n")


def build_wheel(folder: Path) -> Path:
    """Build the package's wheel; from a copy, as setuptools leaves files where it works."""
    names = ["pyproject.toml", "README.md", "LICENSE"]
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary, "source")
        shutil.copytree(
            ROOT / "mini_attention",
            source / "mini_attention",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        for name in names:
            shutil.copy(ROOT / name, source)
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
        command += ["--no-deps", "--no-index", "--no-build-isolation", f"--wheel-dir={folder}", "."]
        # No file tells when it was built: the same package is the same wheel.
        environment = {"SOURCE_DATE_EPOCH": "1577836800", **os.environ}
        subprocess.run(command, cwd=source, env=environment, check=True)
    return folder / WHEEL
