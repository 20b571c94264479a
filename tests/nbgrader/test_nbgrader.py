"""nbgrader itself, on a course made of the sources: released, handed in, graded and exported.

`make nbgrader` runs this in an environment of its own: nbgrader and what it needs are in
tools/course.txt.
"""

import csv
import functools
import html
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest

from course import sources
from tests.course import small

SOLVED, UNTOUCHED, LUCKY = "s01", "s02", "s03"
BIN = Path(sys.executable).parent  # nbgrader calls the command alembic
SETTINGS = Path(sources.__file__).with_name("nbgrader_config.py")
CONFIGS = {"as it is": "", "with our settings": f'load_subconfig("{SETTINGS}")\n'}
# Right in what students see of the tests, and wrong in what they don't.
BY_LUCK = {"write-double": "def double(x):\n    return x + 3", "guess": "twice, half = 14, 3.5"}


@dataclass(frozen=True)
class Course:
    """A course of nbgrader's in a folder of its own."""

    root: Path

    def nbgrader(self, *arguments: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "nbgrader", *arguments],
            cwd=self.root,
            env=os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-4000:]

    def path(self, step: str, name: str, suffix: str = ".ipynb", student: str = "") -> Path:
        return self.root / step / student / name / (name + suffix)

    def add_source(self, notebook: nbformat.NotebookNode, name: str) -> None:
        write(self.path("source", name), notebook)
        self.nbgrader("generate_assignment", name)

    def released(self, name: str) -> nbformat.NotebookNode:
        return nbformat.read(self.path("release", name), as_version=4)

    def hand_in(self, student: str, name: str, solutions: dict[str, str]) -> None:
        """What was released, with these texts in the cells for solutions."""
        notebook = self.released(name)
        for cell in notebook.cells:
            cell.source = solutions.get(sources.said(cell).get("grade_id"), cell.source)
        write(self.path("submitted", name, student=student), notebook)

    def grade(self, name: str) -> None:
        self.nbgrader("autograde", name)
        self.nbgrader("generate_feedback", name)

    def marks(self) -> dict[tuple[str, str], tuple[float, float]]:
        self.nbgrader("export")
        with (self.root / "grades.csv").open(encoding="utf-8") as file:
            return {
                (row["assignment"], row["student_id"]): (
                    float(row["score"]),
                    float(row["max_score"]),
                )
                for row in csv.DictReader(file)
            }


def write(path, notebook):
    path.parent.mkdir(parents=True)
    nbformat.write(notebook, path)


def right(notebook):
    return {
        sources.said(cell)["grade_id"]: cell.source
        for cell in notebook.cells
        if sources.said(cell).get("solution")
    }


@functools.cache
def all_of_them():
    return {path.stem: sources.read(path) for path in sources.all_sources()} | {
        "a1_double": small.notebook()
    }


@pytest.fixture(scope="module", params=CONFIGS)
def course(request, tmp_path_factory):
    """With every source released, handed in twice or three times, graded and exported."""
    made = Course(tmp_path_factory.mktemp("course"))
    (made.root / "nbgrader_config.py").write_text(CONFIGS[request.param])
    for name, notebook in all_of_them().items():
        made.add_source(notebook, name)
        made.hand_in(SOLVED, name, right(notebook))
        made.hand_in(UNTOUCHED, name, {})
        if name == "a1_double":
            made.hand_in(LUCKY, name, BY_LUCK)
        made.grade(name)
    return made


def test_the_solution_gets_all_points_and_the_untouched_notebook_none(course):
    marks = course.marks()
    for name, notebook in all_of_them().items():
        most = sum(float(sources.said(cell).get("points", 0)) for cell in notebook.cells)
        assert marks[name, SOLVED] == (most, most), name
        assert marks[name, UNTOUCHED] == (0, most), name


def test_hidden_tests_find_what_the_visible_ones_let_through(course):
    assert course.marks()["a1_double", LUCKY] == (4, 10)


def test_every_student_gets_a_page_of_feedback(course):
    for name in all_of_them():
        for student in (SOLVED, UNTOUCHED):
            page = course.path("feedback", name, ".html", student).read_text(encoding="utf-8")
            assert "Score:" in page


@pytest.mark.parametrize("course", ["with our settings"], indirect=True)
def test_with_our_settings_nbgrader_releases_what_students_get_from_us(course):
    for name, notebook in all_of_them().items():
        ours = sources.student_notebook(notebook)
        assert course.released(name).cells == ours.cells


@pytest.mark.parametrize(
    ("course", "shown"), [("as it is", True), ("with our settings", False)], indirect=["course"]
)
def test_only_our_settings_keep_hidden_tests_out_of_the_feedback(course, shown):
    page = course.path("feedback", "a1_double", ".html", LUCKY).read_text(encoding="utf-8")
    text = html.unescape(re.sub(r"<[^>]+>", "", page))
    assert "AssertionError" in text
    assert ("double(-5)" in text) == shown
