"""Run, check and measure the notebooks of the book.

    python -m tools.notebooks refresh [PATH ...]    run them and store what they print
    python -m tools.notebooks check [PATH ...]      the rules of tools/rules.py
    python -m tools.notebooks report [PATH ...]     words, code cells, figures, minutes

Without a path, all notebooks of the book, less those that `python -m course student` makes from the
sources of the assignments. A refresh is reproducible: the second one in a row changes no byte. It
writes a notebook only when every cell did what it should, so that a failure never costs a stored
output.
"""

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal, CellExecutionError, DeadKernelError
from nbformat import NotebookNode

from course import sources
from tools import rules

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT = 300  # seconds a cell may take; a chapter's slowest needs a few
# A kernel warns, each time, that others on this machine could listen.
QUIET = ["--IPKernelApp.log_level=ERROR"]

KEPT = ("tags", "mystnb", "nbgrader")  # of a cell's metadata
ANSI = re.compile(r"\x1b\[[0-9;]*m")
# The id that Jupyter gives a cell when nobody does: it says nothing and differs in every run.
RANDOM_ID = re.compile(r"[0-9a-f]{8}([0-9a-f-]{24,28})?")
ID = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


class RefreshError(Exception):
    """A notebook that can't be stored as it is, with the reason as its text."""


def all_notebooks() -> list[Path]:
    found = (ROOT / "book").rglob("*.ipynb")
    made = {".ipynb_checkpoints", sources.STUDENT}
    return sorted(path for path in found if made.isdisjoint(path.relative_to(ROOT).parts))


def shown(path: Path) -> str:
    """The path as a person would type it from the root."""
    path = path.resolve()
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


# Refresh


def refresh(path: Path) -> bool:
    """Run one notebook and store it; True if its bytes changed."""
    old = path.read_text(encoding="utf-8")
    notebook = rules.parse(old)
    prepare(notebook)
    execute(notebook, path)
    for number, cell in enumerate(notebook.cells, start=1):
        if cell.cell_type == "code":
            clean_outputs(cell)
            refuse_unstorable(cell, number)
    # The kernel wrote its exact version here: nothing in the book depends on it.
    notebook.metadata = nbformat.from_dict(rules.NOTEBOOK_METADATA)
    nbformat.validate(notebook)
    new = rules.serialise(notebook)
    if new == old:
        return False
    write_whole(path, new)
    return True


def prepare(notebook: NotebookNode) -> None:
    """Give a notebook the form in which all of them are stored."""
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = nbformat.from_dict(rules.NOTEBOOK_METADATA)
    name_cells(notebook)
    for cell in notebook.cells:
        cell.source = "\n".join(line.rstrip() for line in cell.source.strip("\n").split("\n"))
        cell.metadata = nbformat.from_dict(stored_metadata(cell))
        if cell.cell_type != "code":
            cell.pop("attachments", None)
            continue
        cell.outputs, cell.execution_count = [], None


def stored_metadata(cell: NotebookNode) -> dict[str, Any]:
    """Tags, captions and what nbgrader is told stay, a solution is folded, everything else is an
    editor's private note.
    """
    kept = {key: cell.metadata[key] for key in KEPT if cell.metadata.get(key)}
    if "solution" in kept.get("tags", []):
        kept["tags"] = ["solution", "hide-cell"] + [
            tag for tag in kept["tags"] if tag not in ("solution", "hide-cell")
        ]
        kept |= rules.FOLDED
    return kept


def name_cells(notebook: NotebookNode) -> None:
    """Keep the ids that say something; name the other cells after their heading or figure."""
    taken: set[str] = set()
    nameless = []
    for cell in notebook.cells:
        old = cell.get("id", "")
        if ID.fullmatch(old) and not RANDOM_ID.fullmatch(old) and old not in taken:
            taken.add(old)
        else:
            nameless.append(cell)
    heading = "start"
    for cell in notebook.cells:
        found = re.search(r"^#+ +(.+)$", cell.source, re.MULTILINE)
        if cell.cell_type == "markdown" and found:
            words = re.sub(r"[^a-z0-9]+", "-", rules.slug(found[1])).strip("-")
            heading = words[:48].strip("-") or heading
        if not any(cell is other for other in nameless):
            continue
        solution = re.match(r"# @title Solution (\d+)", cell.source)
        figure = cell.metadata.get("mystnb", {}).get("figure", {}).get("name")
        graded = sources.said(cell).get("grade_id", "").replace("_", "-")
        stem = figure or graded or (f"solution-{solution[1]}" if solution else heading)
        if not ID.fullmatch(stem):
            stem = "cell"
        name, count = stem, 1
        while name in taken:
            count += 1
            name = f"{stem}-{count}"
        taken.add(name)
        cell.id = name


def execute(notebook: NotebookNode, path: Path) -> None:
    running = 0

    def note(cell: NotebookNode, cell_index: int) -> None:
        nonlocal running
        running = cell_index

    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=TIMEOUT,
        record_timing=False,
        extra_arguments=QUIET,
        resources={"metadata": {"path": str(path.parent)}},
        on_cell_execute=note,
    )
    try:
        client.execute()
    except (CellExecutionError, CellControlSignal, DeadKernelError) as error:
        text = ANSI.sub("", str(error)).strip()
        where = f"cell {running + 1} ({notebook.cells[running].id}) failed"
        raise RefreshError(f"{where}\n{rules.indent(text)}") from None


def clean_outputs(cell: NotebookNode) -> None:
    """Outputs as they would be on any machine and in any run."""
    merged: list[NotebookNode] = []
    for output in cell.outputs:
        output.pop("transient", None)
        last = merged[-1] if merged else None
        # Whether two prints arrive as one message or as two is a matter of timing.
        if last and output.output_type == "stream" and last.get("name") == output.name:
            last.text += output.text
        else:
            merged.append(output)
    for output in merged:
        if output.output_type == "stream":
            output.text = ANSI.sub("", output.text)
        if output.output_type == "error":
            output.traceback = [without_machine(ANSI.sub("", line)) for line in output.traceback]
    cell.outputs = merged


def without_machine(text: str) -> str:
    """A traceback without the folders of whoever made it."""
    text = re.sub(r"\S*[/\\]ipykernel_\d+[/\\]\d+\.py", "<cell>", text)
    text = re.sub(r"\S*[/\\]site-packages[/\\]", "", text)
    text = text.replace(f"{ROOT}{os.sep}", "")
    return re.sub(rf"{re.escape(sys.base_prefix)}[/\\]lib[/\\]python[\d.]+[/\\]", "", text)


def refuse_unstorable(cell: NotebookNode, number: int) -> None:
    where = f"cell {number} ({cell.id})"
    for output in cell.outputs:
        if output.output_type == "stream" and output.name == "stderr":
            raise RefreshError(f"{where} writes to stderr\n{rules.indent(output.text)}")
    for text in rules.output_texts(cell):
        if path := rules.machine_path(text):
            raise RefreshError(f"{where} would store a path of this machine: {path}")


def write_whole(path: Path, text: str) -> None:
    """The old file or the new one, never half of it, whatever happens meanwhile."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(temporary, path.stat().st_mode)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


# Commands


def run_refresh(paths: Sequence[Path]) -> int:
    failures = 0
    for path in paths:
        try:
            changed = refresh(path)
        except (RefreshError, nbformat.ValidationError, OSError, ValueError) as error:
            failures += 1
            print(f"{shown(path)}: not written: {error}", file=sys.stderr)
        else:
            print(f"{shown(path)}: {'refreshed' if changed else 'unchanged'}", flush=True)
    return 1 if failures else 0


def run_check(paths: Sequence[Path]) -> int:
    count = 0
    for path in paths:
        for problem in rules.problems(path):
            count += 1
            print(f"{shown(path)}: {problem}")
    print(f"{len(paths)} notebooks, {count} problems")
    return 1 if count else 0


def run_report(paths: Sequence[Path]) -> int:
    """The main line of each notebook, that is without exercises and solutions."""
    print(f"{'notebook':40} {'words':>6} {'cells':>6} {'figures':>8} {'minutes':>8}")
    for path in paths:
        page = rules.Page(path)
        size, minutes = rules.main_line(page.notebook), rules.minutes(page)
        print(f"{path.name:40} {size.words:6,} {size.cells:6} {size.figures:8} {minutes:8.0f}")
    return 0


COMMANDS = {"refresh": run_refresh, "check": run_check, "report": run_report}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.notebooks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("paths", nargs="*", type=Path, help="notebooks (default: all of them)")
    options = parser.parse_args(arguments)
    paths = options.paths or all_notebooks()
    if missing := [str(path) for path in paths if not path.is_file()]:
        parser.error(f"no such notebook: {', '.join(missing)}")
    return COMMANDS[options.command](paths)


if __name__ == "__main__":
    sys.exit(main())
