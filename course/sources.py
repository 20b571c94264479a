"""Read an assignment's source, and make the notebook that students get of it.

A source is a notebook in nbgrader's format: solutions and hidden tests stand between markers, and
each graded cell says its points. Nothing else in the course says them.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "book" / "assignments"
STUDENT = "student"  # the folder beside the sources

SOLUTION, HIDDEN = "SOLUTION", "HIDDEN TESTS"
MARKER = re.compile(rf"^( *)### (BEGIN|END) ({SOLUTION}|{HIDDEN})$")
LOOKS_LIKE_ONE = re.compile(rf"\b(BEGIN|END) ({SOLUTION}|{HIDDEN})\b", re.IGNORECASE)
STUB = 'raise NotImplementedError("write this")'
NAME = re.compile(r"[a-z][a-z0-9_-]*")
KEYS = {"grade", "grade_id", "locked", "schema_version", "solution", "task"}
SCHEMA = 3


class SourceError(ValueError):
    """A notebook that is no assignment's source, with all that is wrong as its text."""


# Reading


def all_sources(folder: Path = SOURCES) -> list[Path]:
    return sorted(folder.glob("*.ipynb"))


def read(path: Path) -> NotebookNode:
    """The source as a notebook, if it is one without a fault."""
    try:
        text = path.read_text(encoding="utf-8")
        nbformat.validate(json.loads(text), version=4)
    except (ValueError, TypeError, AttributeError, nbformat.ValidationError) as error:
        why = str(error).splitlines()[0]
        raise SourceError(f"{path.name} is no notebook of nbformat 4: {why}") from None
    notebook: NotebookNode = nbformat.v4.reads(text)
    if found := list(faults(notebook)):
        raise SourceError("\n".join(f"{path.name}: {fault}" for fault in found))
    return notebook


def points(path: Path) -> dict[str, float]:
    """The points of each graded cell, by its grade_id, in the notebook's order."""
    graded = [said(cell) for cell in read(path).cells if said(cell).get("grade")]
    return {each["grade_id"]: float(each["points"]) for each in graded}


def check_texts(path: Path) -> set[str]:
    """The graded cells, as they stand in the source and as students get them.

    The grader does not run them: it has tests of its own.
    """
    notebook = read(path)
    cells = [*notebook.cells, *student_notebook(notebook).cells]
    return {cell.source.strip() for cell in cells if said(cell).get("grade")}


def said(cell: NotebookNode) -> dict[str, Any]:
    """What a cell's metadata says to nbgrader."""
    return dict(cell.metadata.get("nbgrader", {}))


# What a source may not be


def faults(notebook: NotebookNode) -> Iterator[str]:
    """Everything that is wrong with a source, a line each."""
    names = [said(cell).get("grade_id") for cell in notebook.cells]
    for number, (cell, name) in enumerate(zip(notebook.cells, names, strict=True), start=1):
        where = f"cell {number} ({name or cell.get('id', 'no id')})"
        if name is not None and names.count(name) > 1:
            yield f"{where} has the grade_id of another cell"
        found = [*_faults_of_metadata(cell), *_faults_of_markers(cell)]
        yield from (f"{where} {fault}" for fault in found or _faults_for_students(cell))
    if not any(said(cell).get("grade") for cell in notebook.cells):
        yield "has no graded cell"


def _faults_of_metadata(cell: NotebookNode) -> Iterator[str]:
    meta = said(cell)
    if "solution" in cell.metadata.get("tags", []):
        yield "has the tag solution, but would be handed out: use the markers"
    if not meta:
        return
    if missing := KEYS - set(meta):
        yield f"does not say to nbgrader: {', '.join(sorted(missing))}"
        return
    if extra := set(meta) - KEYS - {"points"}:
        yield f"says what nbgrader adds itself: {', '.join(sorted(extra))}"
    if meta["schema_version"] != SCHEMA:
        yield f"is in nbgrader's schema {meta['schema_version']}, not {SCHEMA}"
    if not NAME.fullmatch(str(meta["grade_id"])):
        yield f"has the grade_id {meta['grade_id']!r}: lower-case letters, digits, - and _ only"
    if cell.cell_type != "code":
        yield "is no code, which alone can be graded by a program"
    if meta["task"] or (meta["grade"] and meta["solution"]):
        yield "asks for marks by hand: put solution and test into two cells"
    yield from _faults_of_points(meta)
    if meta["grade"] and not meta["locked"]:
        yield "is graded but not locked"
    if meta["solution"] and meta["locked"]:
        yield "is locked, so that nobody can write the solution"
    # nbgrader takes the value that a test ends in for its points.
    kinds = {output.output_type for output in cell.get("outputs", [])}
    if meta["grade"] and "execute_result" in kinds:
        yield "is a test that ends in a value: end it with an assert"


def _faults_of_points(meta: dict[str, Any]) -> Iterator[str]:
    if not meta["grade"]:
        if "points" in meta:
            yield "has points but is not graded"
        return
    worth = meta.get("points")
    if isinstance(worth, bool) or not isinstance(worth, int | float) or worth <= 0:
        yield f"is graded and needs points above 0; got {worth}"


def _faults_of_markers(cell: NotebookNode) -> Iterator[str]:
    meta, found = said(cell), []
    for line in cell.source.split("\n"):
        if marker := MARKER.match(line):
            found.append((marker[2], marker[3]))
        elif LOOKS_LIKE_ONE.search(line):
            yield f"has a marker that is none, not exactly `### BEGIN ...`: {line.strip()}"
    pairs = list(zip(found[::2], found[1::2], strict=False))
    if len(found) % 2 or any(
        one != ("BEGIN", other[1]) or other[0] != "END" for one, other in pairs
    ):
        yield "has markers that do not pair"
    kinds = {kind for _, kind in found}
    if meta.get("solution") and SOLUTION not in kinds:
        yield f"is a solution without `### BEGIN {SOLUTION}` and `### END {SOLUTION}`"
    if SOLUTION in kinds and not meta.get("solution"):
        yield "has a solution, but does not say so to nbgrader"
    if HIDDEN in kinds and not meta.get("grade"):
        yield "has hidden tests, but is not graded"


def _faults_for_students(cell: NotebookNode) -> Iterator[str]:
    """Faults that show in what students would get of a cell."""
    if not said(cell):
        return
    try:
        text = student_text(cell.source)
        tree = ast.parse(text) if said(cell)["solution"] else ast.Module([], [])
    except SyntaxError as error:
        yield f"is no Python without its solution: {error.msg}"
    except SourceError as error:
        yield str(error)
    else:
        if not text.strip():
            yield "has nothing left for students to see"
        if any(_raised_outside(tree)):
            yield f"would raise while it is loaded: put the marker {SOLUTION} into the functions"


def _raised_outside(node: ast.AST) -> Iterator[ast.AST]:
    """Every `raise` that runs without a call."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Raise):
            yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _raised_outside(child)


# What students get


def student_notebook(source: NotebookNode) -> NotebookNode:
    """A source without solutions, hidden tests, outputs and counts: what nbgrader would release."""
    notebook = copy.deepcopy(source)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        if meta := said(cell):
            cell.source = student_text(cell.source)
            cell.metadata |= _locked(meta)
            cell.metadata.nbgrader |= {"cell_type": cell.cell_type, "checksum": checksum(cell)}
    return notebook


def student_text(text: str) -> str:
    return without_hidden_tests(without_solutions(text))


def without_solutions(text: str) -> str:
    """With an error in their place in a function, and `name = ...` for each name outside."""
    return _replaced(text, SOLUTION, _stub)


def without_hidden_tests(text: str) -> str:
    return _replaced(text, HIDDEN, lambda indent, body: [])


def _replaced(text: str, kind: str, stub: Callable[[str, Sequence[str]], list[str]]) -> str:
    kept: list[str] = []
    body: list[str] = []
    inside = False
    for line in text.split("\n"):
        marker = MARKER.match(line)
        if marker and marker[3] == kind:
            inside = marker[2] == "BEGIN"
            if not inside:
                kept += stub(marker[1], body)
                body = []
        else:
            (body if inside else kept).append(line)
    return "\n".join(kept)


def _stub(indent: str, body: Sequence[str]) -> list[str]:
    return [indent + STUB] if indent else _placeholders("\n".join(body))


def _placeholders(solution: str) -> list[str]:
    names: dict[str, str] = {}
    for statement in ast.parse(solution).body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            names[statement.target.id] = f": {ast.unparse(statement.annotation)}"
        elif isinstance(statement, ast.Assign):
            named = [n for t in statement.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
            names |= {n.id: "" for n in named if isinstance(n.ctx, ast.Store)}
        else:
            raise SourceError("has a solution outside of functions that does not only name values")
    return [f"{name}{annotation} = ..." for name, annotation in names.items()]


def _locked(meta: dict[str, Any]) -> dict[str, bool]:
    """What tells JupyterLab to keep a cell."""
    return {"deletable": False} | ({"editable": False} if meta["locked"] else {})


def checksum(cell: NotebookNode) -> str:
    """By which nbgrader sees whether a cell was changed: the same digest as its own."""
    meta = said(cell)
    parts = [cell.source, cell.cell_type, meta["grade"], meta["solution"], meta["locked"]]
    parts += [meta["grade_id"], *([float(meta["points"])] if meta["grade"] else [])]
    return hashlib.md5("".join(map(str, parts)).encode(), usedforsecurity=False).hexdigest()


# Writing


def written(source: Path) -> str:
    """The text of the student's notebook: the same bytes for the same source."""
    return str(nbformat.v4.writes(student_notebook(read(source)))) + "\n"


def write_students(check: bool = False, folder: Path = SOURCES) -> int:
    """Write the students' notebooks; with `check`, only say which are not what would be written.

    A line each is printed. Returns how many differ, or have a source with a fault.
    """
    said_of = [_write(source, check) for source in all_sources(folder)]
    known = {source.name for source in all_sources(folder)}
    strays = [path for path in (folder / STUDENT).glob("*.ipynb") if path.name not in known]
    said_of += [(False, f"{STUDENT}/{path.name} has no source: remove it") for path in strays]
    for _, line in said_of:
        print(line)
    return sum(not good for good, _ in said_of)


def _write(source: Path, check: bool) -> tuple[bool, str]:
    """Whether all is well with a student's notebook, and what is to be told of it."""
    try:
        text = written(source)
    except SourceError as error:
        return False, str(error)
    path = source.parent / STUDENT / source.name
    name = f"{STUDENT}/{path.name}"
    if path.exists() and path.read_bytes() == text.encode():
        return True, f"{name}: unchanged"
    if check:
        return False, f"{name} is not what its source makes: run `python -m course student`"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
    return True, f"{name}: written"
