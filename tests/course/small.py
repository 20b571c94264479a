"""The smallest source that has every kind of cell."""

import nbformat

from course.sources import SCHEMA

KERNEL = {
    "kernelspec": {
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "name": "python3",
    }
}
TITLE = """\
# Assignment 1 · Double a number

*10 points · about 60 minutes · easy to hard · needs chapter 1.*"""
SOLVED = '''\
def double(x):
    """Twice `x`."""
    ### BEGIN SOLUTION
    return 2 * x
    ### END SOLUTION'''
TESTED = """\
assert double(3) == 6
### BEGIN HIDDEN TESTS
assert double(-5) == -10
### END HIDDEN TESTS"""
GUESSED = """\
# What is twice 7, and its half?
### BEGIN SOLUTION
twice = 2 * 7
half: float = 3.5
### END SOLUTION"""
CHECKED = """\
if ... in (twice, half):
    raise NotImplementedError("not written yet: twice and half")
assert (twice, half) == (14, 3.5)"""


def says(grade_id, **changes):
    meta = {"grade": False, "grade_id": grade_id, "locked": False, "schema_version": SCHEMA}
    return meta | {"solution": False, "task": False} | changes


def solution(name, text, **changes):
    return code(name, text, **says(name, solution=True, **changes))


def graded(name, text, points=4, **changes):
    return code(name, text, **says(name, grade=True, locked=True, points=points, **changes))


def code(name, text, **meta):
    metadata = {"nbgrader": meta} if meta else {}
    return nbformat.v4.new_code_cell(text, id=name, metadata=metadata, execution_count=7)


def text(name, source):
    return nbformat.v4.new_markdown_cell(source, id=name)


def cells():
    return [
        text("title", TITLE),
        code("imports", "import torch"),
        text("ask-double", "## 1 · Write it (6 points, 20 min, easy)"),
        solution("write-double", SOLVED),
        graded("double", TESTED, points=6),
        text("ask-guess", "## 2 · Predict it (4 points, 30 min, hard)"),
        solution("guess", GUESSED),
        graded("guessed", CHECKED, points=4),
    ]


def notebook(*replaced):
    """The small source; with cells, these stand in the place of those with the same id."""
    other = {cell.id: cell for cell in replaced}
    return nbformat.v4.new_notebook(
        cells=[other.get(cell.id, cell) for cell in cells()], metadata=KERNEL
    )


def write(folder, source, name="a1_double.ipynb"):
    path = folder / name
    path.write_text(nbformat.v4.writes(source) + "\n", encoding="utf-8")
    return path
