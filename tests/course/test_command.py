"""The commands say what they do, and bad input is one line and exit code 2."""

import os
import subprocess
import sys

import pytest

from course import command, platforms, run
from course.journal import Result, opened
from course.model import Outcome, Verdict
from course.reports import write_reports
from course.sandbox import Limits
from tests.course import tiny
from tests.course.handed_in import archive, hand_in, notebook
from tests.course.test_reports import PAPER

RIGHT = notebook("def double(x):\n    return 2 * x", "guess = 14")


@pytest.fixture
def called(capsys):
    """The exit code, and what is printed and told by a command."""

    def call(*arguments):
        try:
            code = command.main([str(argument) for argument in arguments])
        except SystemExit as stopped:
            code = stopped.code
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.fixture
def grading(tmp_path, monkeypatch):
    """Assignment 97 is the small one, and gives all points for everything."""
    folder = tiny.write_source(tmp_path / "sources")
    sheet_of, plans = run.sheet_of, []

    def grade_all(plan, works, jobs, finished):
        plans.append((plan, jobs))
        for work in works:
            for grade_id, most in plan.points.items():
                outcomes = [Outcome("all", 1, "")]
                work.verdicts.append(Verdict(grade_id, most, most, outcomes))
            finished(work)

    monkeypatch.setattr(command, "module_of", lambda number: "tests.course.tiny")
    monkeypatch.setattr(command, "sheet_of", lambda assignment: sheet_of(assignment, folder))
    monkeypatch.setattr(command, "why_not_contained", lambda: "no namespaces")
    monkeypatch.setattr(command, "level", lambda: "limited")
    monkeypatch.setattr(run, "code_digest", str)
    monkeypatch.setattr(run, "grade_all", grade_all)
    monkeypatch.delenv(command.SEED, raising=False)
    return plans


@pytest.fixture
def class_of(tmp_path):
    return hand_in(tmp_path / "class", {"s05.ipynb": RIGHT, "s06.ipynb": b"x"})


# grade


def test_a_class_is_graded_beside_its_folder(called, grading, class_of):
    code, out, err = called("grade", class_of, "--assignment", 97)
    results = class_of.with_name("class-results")
    assert code == 0
    assert "limited: time, memory" in out
    assert "s06: the file is not JSON" in out
    assert f"1 of 2 submissions graded: {results / 'summary.html'}" in out
    assert "2 of 2" in err
    assert "s05,s05,s05.ipynb,5,2,7,7," in (results / "grades.csv").read_text("utf-8")


def test_the_level_is_told_before_anything_is_graded(called, grading, class_of, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "grade_class", stop)
    code, out, err = called("grade", class_of, "--assignment", 97)
    assert code == 130
    assert "can still read whatever this user can read" in out
    assert "--resume" in err


def test_a_zip_file_is_graded(called, grading, tmp_path):
    path = archive(tmp_path / "all.zip", {"s05.ipynb": RIGHT, "s06.ipynb": RIGHT})
    assert called("grade", path, "--assignment", 97)[0] == 0
    assert (tmp_path / "all-results" / "grades.csv").is_file()


def test_the_folder_that_one_is_in_can_be_graded(called, grading, class_of, monkeypatch):
    monkeypatch.chdir(class_of)
    assert called("grade", ".", "--assignment", 97)[0] == 0
    assert class_of.with_name("class-results").is_dir()


def test_options_reach_the_grader(called, grading, class_of):
    options = ["--seconds", 3, "--memory", 512, "--jobs", 2, "--forbidden", "zero", "--seed", "x"]
    called("grade", class_of, "--assignment", 97, *options)
    ((plan, jobs),) = grading
    assert (plan.limits.wall_seconds, plan.limits.memory_bytes) == (3, 512 * 2**20)
    assert (plan.forbidden, plan.seed, plan.level, jobs) == ("zero", "x", "limited", 2)


def test_limits_are_the_defaults_unless_given(called, grading, class_of):
    called("grade", class_of, "--assignment", 97)
    assert grading[0][0].limits == Limits()


def test_the_seed_is_taken_from_the_environment(called, grading, class_of, monkeypatch):
    monkeypatch.setenv(command.SEED, "from outside")
    called("grade", class_of, "--assignment", 97)
    assert grading[0][0].seed == "from outside"


def test_results_are_kept_and_gone_on_with(called, grading, class_of):
    called("grade", class_of, "--assignment", 97)
    code, _, err = called("grade", class_of, "--assignment", 97)
    assert (code, "--resume" in err, "--out" in err) == (2, True, True)
    assert called("grade", class_of, "--assignment", 97, "--resume")[0] == 0
    assert grading[0][0].seed == grading[1][0].seed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such-folder"], "no-such-folder does not exist"),
        (["class", "--out", "class/results"], "is among the submissions"),
        (["class", "--level", "contained"], "can't contain a process (no namespaces)"),
        (["class", "--jobs", "0"], "a whole number above 0 is expected; got 0"),
        (["class", "--seconds", "x"], "a whole number above 0 is expected; got x"),
        (["class", "--out", "class.txt/x"], "Not a directory: class.txt/x"),
        (["class.txt"], "neither a folder nor a zip file"),
        (["broken.zip"], "the zip file is broken"),
    ],
)
@pytest.mark.usefixtures("grading")
def test_bad_input_is_one_line(called, class_of, monkeypatch, arguments, said):
    monkeypatch.chdir(class_of.parent)
    hand_in(class_of.parent, {"class.txt": b"x", "broken.zip": b"x"})
    code, out, err = called("grade", *arguments, "--assignment", 97)
    assert (code, out) == (2, "")
    assert said in err.splitlines()[-1]
    assert "Traceback" not in err


def test_an_assignment_that_there_is_not_is_told(called, class_of):
    code, _, err = called("grade", class_of, "--assignment", 97)
    assert code == 2
    assert "there is no assignment 97; there are 1, " in err


def test_many_remarks_are_cut_short(called, grading, tmp_path):
    hand_in(tmp_path / "class", {f"s{i:02}.ipynb": b"x" for i in range(23)})
    out = called("grade", tmp_path / "class", "--assignment", 97)[1]
    assert "and 3 more remarks in the summary" in out


# marks


@pytest.fixture
def results(tmp_path):
    verdicts = [Verdict("softmax", 7.0, 7.0, []), Verdict("scale", 3.0, 3.0, [])]
    one = Result("Student Five", "moodle 45", "Student Five_45_assignsubmission_file_", verdicts)
    with opened(tmp_path / "results", "a1_attention_formula", None, False):
        write_reports(tmp_path / "results", PAPER, [one, Result("s06", "s06", "x", problem="no")])
    return tmp_path / "results"


def test_marks_are_written_for_a_platform(called, results, tmp_path):
    roster = tmp_path / "roster.csv"
    roster.write_text("Identifier,Full name,Grade\nParticipant 45,Student Five,\n")
    code, out, err = called(
        "marks", results, "--for", "moodle", "--roster", roster, "--out-of", 100
    )
    table = platforms.read_table(results / "moodle.csv")
    assert (code, table.rows) == (0, [["Participant 45", "Student Five", "100"]])
    assert "moodle.csv: to import in Moodle" in out
    assert "s06 (x): was not graded" in err


def test_the_column_is_called_as_the_assignment(called, results):
    called("marks", results, "--for", "canvas")
    assert platforms.read_table(results / "canvas.csv").header[-1] == "a1_attention_formula"


def test_a_folder_without_results_is_told(called, results, tmp_path):
    code, _, err = called("marks", tmp_path, "--for", "moodle")
    assert (code, err.count("\n")) == (2, 1)
    assert "can't be read: No such file" in err


# student


@pytest.mark.parametrize(("differing", "code"), [(0, 0), (2, 1)])
def test_students_notebooks_are_made(called, monkeypatch, differing, code):
    asked = []
    monkeypatch.setattr(
        command.sources, "write_students", lambda check: asked.append(check) or differing
    )
    assert called("student", "--check")[0] == code
    assert called("student")[0] == code
    assert asked == [True, False]


@pytest.mark.parametrize("arguments", [[], ["grade"], ["marks", "x", "--for", "paper"], ["mark"]])
def test_what_is_no_command_is_told(called, arguments):
    code, _, err = called(*arguments)
    assert code == 2
    assert "usage: python -m course" in err


def test_help_shows_how_to_begin(called):
    assert "python -m course grade downloads/a1 --assignment 1" in called("--help")[1]
    assert "seconds-in-all" in called("grade", "--help")[1]


def test_a_terminal_that_shows_no_such_letters_stops_nothing(tmp_path):
    hand_in(tmp_path / "class", {"学生.ipynb": b"x"})
    asked = [sys.executable, "-m", "course", "grade", str(tmp_path / "class"), "--assignment", "1"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(asked, cwd=run.ROOT, capture_output=True, env=environment, check=True)
    assert b"??: the file is not JSON" in done.stdout


def test_helpers_import_little():
    """They import the main module first, under another name."""
    code = (
        "import sys, course.__main__; sys.exit('torch' in sys.modules or 'jinja2' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=run.ROOT, check=True)
