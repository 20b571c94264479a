"""nbgrader itself, on a course made of the sources: released, handed in, graded and exported.

`make nbgrader` runs this in an environment of its own: nbgrader and what it needs are in
tools/course.txt. All notebooks are one assignment here, so that nbgrader starts a few times only.
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
# Right in what students see of the tests, and wrong in what they don't.
BY_LUCK = {"write-double": "def double(x):\n    return x + 3", "guess": "twice, half = 14, 3.5"}


@dataclass(frozen=True)
class Course:
    """A course of nbgrader's in a folder of its own."""

    root: Path
    has_our_settings: bool

    def nbgrader(self, *arguments: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "nbgrader", *arguments],
            cwd=self.root,
            env=os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-4000:]

    def path(self, step: str, name: str, student: str = "") -> Path:
        return self.root / step / student / "attention" / name

    def released(self, name: str) -> nbformat.NotebookNode:
        return nbformat.read(self.path("release", f"{name}.ipynb"), as_version=4)

    def hand_in(self, student: str, name: str, solutions: dict[str, str]) -> None:
        """What was released, with these texts in the cells for solutions."""
        notebook = self.released(name)
        for cell in notebook.cells:
            cell.source = solutions.get(sources.said(cell).get("grade_id"), cell.source)
        write(self.path("submitted", f"{name}.ipynb", student), notebook)

    def feedback(self, student: str, name: str) -> str:
        """The page's text."""
        page = self.path("feedback", f"{name}.html", student).read_text(encoding="utf-8")
        return html.unescape(re.sub(r"<[^>]+>", "", page))

    def exported(self) -> dict[str, tuple[float, float]]:
        """Each student's points, and the most there are."""
        with (self.root / "grades.csv").open(encoding="utf-8") as file:
            return {
                row["student_id"]: (float(row["score"]), float(row["max_score"]))
                for row in csv.DictReader(file)
            }


def write(path, notebook):
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)


def right(notebook):
    return {
        sources.said(cell)["grade_id"]: cell.source
        for cell in notebook.cells
        if sources.said(cell).get("solution")
    }


def most(notebook):
    return sum(float(sources.said(cell).get("points", 0)) for cell in notebook.cells)


@functools.cache
def all_of_them():
    real = {path.stem: sources.read(path) for path in sources.all_sources()}
    return real | {"a1_double": small.notebook()}


@pytest.fixture(scope="module", params=[False, True], ids=["as it is", "with our settings"])
def course(request, tmp_path_factory):
    """Everything released, handed in by three students, graded and exported."""
    made = Course(tmp_path_factory.mktemp("course"), request.param)
    if made.has_our_settings:
        config = made.root / "nbgrader_config.py"
        config.write_text(f'load_subconfig("{SETTINGS}")\n')
    for name, notebook in all_of_them().items():
        write(made.path("source", f"{name}.ipynb"), notebook)
    made.nbgrader("generate_assignment", "attention")
    for name, notebook in all_of_them().items():
        made.hand_in(SOLVED, name, right(notebook))
        made.hand_in(UNTOUCHED, name, {})
    made.hand_in(LUCKY, "a1_double", BY_LUCK)
    for step in ("autograde", "generate_feedback"):
        made.nbgrader(step, "attention")
    made.nbgrader("export")
    return made


def test_the_solution_gets_all_points_and_the_untouched_notebook_none(course):
    all_points = sum(map(most, all_of_them().values()))
    assert course.exported()[SOLVED] == (all_points, all_points)
    assert course.exported()[UNTOUCHED] == (0, all_points)


def test_hidden_tests_find_what_the_visible_ones_let_through(course):
    assert course.exported()[LUCKY][0] == 4  # of 10, for one question of two


@pytest.mark.parametrize("name", all_of_them())
def test_the_feedback_tells_the_points_of_each_notebook(course, name):
    points = most(all_of_them()[name])
    assert f"(Score: {points} / {points})" in course.feedback(SOLVED, name)
    assert f"(Score: 0.0 / {points})" in course.feedback(UNTOUCHED, name)


@pytest.mark.parametrize("name", all_of_them())
def test_our_settings_release_what_students_get_from_us(course, name):
    """Without them the stubs are nbgrader's."""
    ours = sources.student_notebook(all_of_them()[name])
    assert (course.released(name).cells == ours.cells) == course.has_our_settings


def test_our_settings_keep_hidden_tests_out_of_the_feedback(course):
    """Without them nbgrader shows those that failed, and their text."""
    text = course.feedback(LUCKY, "a1_double")
    assert "AssertionError" in text
    assert ("double(-5)" in text) != course.has_our_settings
