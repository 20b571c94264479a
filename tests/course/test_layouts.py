"""A solved notebook keeps its points whatever its owner, an editor or a platform does to it."""

import ast
import json

import pytest

from course import sources
from course.assignments.a2 import ASSIGNMENT
from course.notebook import read
from course.run import sheet_of, work_on
from course.submissions import Owner, Submission
from tests.course import answering

SOURCE = sources.SOURCES / f"{ASSIGNMENT.name}.ipynb"


def solved():
    return json.loads(SOURCE.read_text("utf-8"))


def text_of(cell):
    return "".join(cell["source"])


def is_code(cell):
    return cell["cell_type"] == "code"


def says(cell, what):
    return cell["metadata"].get("nbgrader", {}).get(what)


def code(source):
    return {"cell_type": "code", "metadata": {}, "source": source, "outputs": []}


def with_cells_added(made):
    extra = [
        code("# 我的笔记\nprint(1)"),
        code("%pip install einops"),
        code("1 / 0"),
        code("x = ("),
    ]
    made["cells"] = [each for cell in made["cells"] for each in (*extra, cell)]


def with_cells_moved(made):
    """The text to the end, the functions behind all that is tested with them."""
    made["cells"].sort(key=lambda cell: (not is_code(cell), bool(says(cell, "solution"))))


def with_cells_split(made):
    """A cell for each statement."""
    made["cells"] = [piece for cell in made["cells"] for piece in split(cell)]


def split(cell):
    if not is_code(cell):
        return [cell]
    text = text_of(cell)
    return [code(ast.get_source_segment(text, node)) for node in ast.parse(text).body]


def with_cells_joined(made):
    """All code but the tests in one cell."""
    kept = [text_of(cell) for cell in made["cells"] if is_code(cell) and not says(cell, "grade")]
    made["cells"] = [code("\n\n".join(kept))]


def with_cells_twice(made):
    made["cells"] = [cell for cell in made["cells"] for _ in range(2)]


def with_tests_and_text_deleted(made):
    made["cells"] = [c for c in made["cells"] if is_code(c) and not says(c, "grade")]


def without_metadata(made):
    made["metadata"] = {}
    for cell in made["cells"]:
        cell["metadata"] = {}
        cell.pop("id", None)


def from_colab(made):
    made["metadata"] = {
        "colab": {"provenance": [], "gpuType": "T4"},
        "accelerator": "GPU",
        "kernelspec": {"name": "my-kernel", "display_name": "another"},
    }
    for number, cell in enumerate(made["cells"]):
        cell["metadata"] |= {"id": f"a{number}", "colab": {"base_uri": "https://localhost"}}


def without_outputs(made):
    for cell in filter(is_code, made["cells"]):
        cell |= {"outputs": [], "execution_count": None}


def with_other_outputs(made):
    for cell in filter(is_code, made["cells"]):
        cell["outputs"] = [{"output_type": "stream", "name": "stderr", "text": "kept"}]


def with_line_ends_of_windows(made):
    for cell in made["cells"]:
        cell["source"] = text_of(cell).replace("\n", "\r\n")


CHANGES = [
    with_cells_added,
    with_cells_moved,
    with_cells_split,
    with_cells_joined,
    with_cells_twice,
    with_tests_and_text_deleted,
    without_metadata,
    from_colab,
    without_outputs,
    with_other_outputs,
    with_line_ends_of_windows,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_solution_keeps_all_its_points(answers_sandbox, change):
    made, before = solved(), solved()
    change(made)
    assert made != before
    given = read(json.dumps(made, ensure_ascii=False).encode())
    handed_in = Submission(Owner("s05"), "s05.ipynb", notebook=given)
    work = work_on(handed_in, sheet_of(ASSIGNMENT))
    for question in ASSIGNMENT.questions:
        found = answering.put(answers_sandbox, question, work.cells)
        assert found.hints == [], question.grade_id
