"""Questions are graded one by one, each submission apart, and nothing graded is lost."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from course import grading, helpers, run
from course.grading import clean, seed_of
from course.helpers import Work, grade_all
from course.journal import Refused, opened
from course.model import Outcome, Question, Step
from course.notebook import read
from course.run import belongs, grade_class, sheet_of, states_of, submissions, work_on
from course.sandbox import Limits, Sandbox
from course.submissions import Owner, Submission
from mini_attention.checks import CheckFailed
from tests.course import tiny, tiny_helper
from tests.course.handed_in import code, hand_in, notebook, text
from tests.course.tiny_run import FAST, PLAN

RIGHT = "def double(x):\n    return x * 2"
GUESS = "guess = 14"
GIVEN = "import torch\ndef double(x):\n    return torch.mul(torch.as_tensor(x), 2)"
WRONG = "def double(x):\n    return 3 * x"
ENDLESS = "def double(x):\n    while True: pass"
QUESTIONS = tiny.ASSIGNMENT.questions


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.write_source(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def sheet(folder):
    return sheet_of(tiny.ASSIGNMENT, folder)


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(FAST, "limited") as made:
        yield made


def handed_in(*cells):
    return Submission(Owner("s05"), "s05.ipynb", notebook=read(notebook(*cells)))


def graded_in(sandbox, work, plan):
    cells, given = work.cells, work.given
    pairs = [grading.grade(sandbox, plan, cells, given, work.key, q) for q in QUESTIONS]
    return [verdict for verdict, _ in pairs], pairs[0][1]


@pytest.fixture
def graded(sheet, sandbox):
    """The verdicts on a notebook of these cells, and the errors of its cells."""

    def grade(*cells, **changes):
        work = work_on(handed_in(*cells), sheet)
        return graded_in(sandbox, work, replace(PLAN, **changes))

    return grade


def points(verdicts):
    return [verdict.points for verdict in verdicts]


# One submission


def test_right_answers_have_all_points(graded):
    verdicts, errors = graded(RIGHT, GUESS)
    assert points(verdicts) == [5.0, 2.0]
    assert not errors
    assert not any(verdict.hints or verdict.told for verdict in verdicts)


def test_points_are_shared_by_the_weights_of_the_steps(graded):
    halves = "def double(x):\n    return 2 * x if isinstance(x, int) else x"
    (double, _), _ = graded(halves, GUESS)
    assert double.points == 1.67
    assert "not doubled" in double.outcomes[0].hint
    assert double.outcomes[1].hint == ""


def test_what_is_missing_costs_its_question_alone(graded):
    verdicts, _ = graded(GUESS)
    assert points(verdicts) == [0.0, 2.0]
    assert "double is not there" in verdicts[0].hints[0]


def test_a_syntax_error_costs_its_cell_alone_and_is_told_with_its_line(graded):
    verdicts, errors = graded("def double(x):\n    return x *", GUESS)
    assert points(verdicts) == [0.0, 2.0]
    assert errors[0].startswith("code cell 1: ")
    assert "line 2" in errors[0]


def test_an_endless_loop_costs_its_question_alone(graded):
    verdicts, _ = graded(ENDLESS, GUESS)
    assert points(verdicts) == [0.0, 2.0]
    assert "did not end within 2 seconds" in verdicts[0].hints[0]
    assert verdicts[0].told


def test_an_error_is_told_with_the_line_of_the_cell(graded):
    (double, _), _ = graded("def double(x):\n    return [][5]", GUESS)
    assert "IndexError was raised: list index out of range" in double.hints[0]
    assert "cell 1, line 2: return [][5]" in double.hints[0]
    assert not double.told


@pytest.mark.parametrize("error", ["SystemExit(0)", "KeyboardInterrupt()", "Exception()"])
def test_whatever_is_raised_costs_its_question_alone(graded, error):
    verdicts, _ = graded(f"def double(x):\n    raise {error}", GUESS)
    assert points(verdicts) == [0.0, 2.0]


def test_the_graded_cells_are_not_run_again(graded, sheet):
    _, errors = graded(RIGHT, GUESS, tiny.TESTED + "\n", code(tiny.CHECKED, grade_id="guess"))
    assert not errors
    work = work_on(handed_in(tiny.TESTED + "\n", "x = 1", "assert False"), sheet)
    assert work.cells == ["", "x = 1", "assert False"]


def test_what_is_forbidden_is_told(graded):
    (double, _), _ = graded(GIVEN, GUESS)
    assert double.points == 5.0
    assert "torch.mul" in double.told[0]
    assert "until the instructor decides" in double.told[0]


def test_speaking_of_what_is_forbidden_is_told_but_not_of_what_was_given(graded, sandbox):
    aside = "import torch\nprint(torch.mul(torch.ones(2), 3))"
    (double, _), _ = graded(RIGHT, GUESS, aside)
    assert double.told == ["cell 3 mentions torch.mul"]
    verdicts, _ = graded_in(sandbox, Work("s05", [RIGHT, GUESS, aside], [3]), PLAN)
    assert not verdicts[0].told


def test_cells_are_known_as_given(sheet):
    assert work_on(handed_in("import torch\n", RIGHT), sheet).given == [1]


def test_what_is_forbidden_scores_nothing_where_the_instructor_says_so(graded):
    verdicts, _ = graded(GIVEN, GUESS, forbidden="zero")
    assert points(verdicts) == [0.0, 2.0]
    assert "so it has 0 points" in verdicts[0].told[0]


def test_a_check_that_fails_itself_is_told(sandbox):
    def broken(student, draw):
        raise ZeroDivisionError("ours")

    question = Question("guess", "Guess", [Step("broken", 1, broken)])
    verdict, _ = grading.grade(sandbox, PLAN, [GUESS], [], "s05", question)
    assert verdict.points == 0.0
    assert "the check of 'broken' failed itself: ZeroDivisionError" in verdict.told[0]


def test_a_failure_without_words_is_no_pass(sandbox):
    def silent(student, draw):
        raise CheckFailed("")

    question = Question("guess", "Guess", [Step("silent", 1, silent)])
    assert grading.grade(sandbox, PLAN, [GUESS], [], "s05", question)[0].points == 0.0


def test_a_process_that_can_not_be_started_is_told():
    class Broken:
        def student(self, cells, forbidden):
            raise RuntimeError("no more processes")

    verdict, _ = grading.grade(Broken(), PLAN, [], [], "s05", QUESTIONS[0])
    assert verdict.points == 0.0
    assert verdict.told == ["no more processes"]


def test_inputs_are_others_for_another_seed_student_question_and_step():
    seeds = [("a", "b", "c", "d"), ("A", "b", "c", "d"), ("a", "B", "c", "d"), ("a", "b", "C", "d")]
    seeds += [("a", "b", "c", "D"), ("ab", "", "c", "d")]
    assert len({seed_of(*parts) for parts in seeds}) == len(seeds)
    assert 0 <= seed_of("学生", "\udc80") < 2**63


def test_a_step_is_asked_the_same_whatever_the_others_drew():
    numbers = []
    step = Step("draw", 1, lambda student, draw: numbers.append(draw.integer(0, 10**9)))
    other = Step("more", 1, lambda student, draw: draw.randn(5))
    question = Question("guess", "Guess", [other, step])
    for steps in ([step], [other, step]):
        for each in steps:
            grading.run(each, None, "secret", "s05", question)
    assert numbers[0] == numbers[1]


def test_points_are_rounded_to_two_decimals():
    outcomes = [Outcome("a", 1, ""), Outcome("b", 2, "no")]
    assert grading.scored(outcomes, 5.0) == 1.67
    assert grading.scored(outcomes, 0.1) == 0.03


def test_texts_of_students_are_cleaned():
    assert clean("a\x1b[31m\u202eb\x00\n\tc\udc80") == "a[31mb\n\tc?"
    assert len(clean("x" * 10**6)) < 7000


# Which assignment


def test_a_notebook_of_another_assignment_is_recognised(tmp_path):
    tiny.write_source(tmp_path)
    tiny.write_source(tmp_path, "Assignment 98: other", "a98_other")
    fits = belongs(tmp_path / "a97_tiny.ipynb")
    titles = [text(f"# {title}") for title in (tiny.TITLE, "Assignment 98: other", "My own")]
    said = [fits(read(notebook(title, RIGHT))) for title in titles]
    assert said == ["", "this is another assignment: Assignment 98: other", ""]


def test_grade_ids_tell_more_than_a_title(tmp_path):
    tiny.write_source(tmp_path)
    fits = belongs(tmp_path / "a97_tiny.ipynb")
    assert fits(read(notebook(text("# Other"), code(RIGHT, grade_id="double-code")))) == ""


def test_points_are_those_of_the_source(sheet):
    assert sheet.paper.points == {"double": 5.0, "guess": 2.0}
    assert (sheet.paper.title, sheet.paper.most) == (tiny.TITLE, 7.0)


def test_a_source_that_does_not_fit_the_questions_is_refused(tmp_path):
    with pytest.raises(Refused, match="can't be read"):
        sheet_of(tiny.ASSIGNMENT, tmp_path)
    path = tiny.write_source(tmp_path) / "a97_tiny.ipynb"
    content = json.loads(path.read_text())
    content["cells"].pop()
    path.write_text(json.dumps(content))
    with pytest.raises(Refused, match="no graded cell for the questions guess"):
        sheet_of(tiny.ASSIGNMENT, tmp_path)
    tiny.write_source(tmp_path)
    with pytest.raises(Refused, match=r"without a Question .* in course/assignments: guess"):
        sheet_of(replace(tiny.ASSIGNMENT, questions=QUESTIONS[:1]), tmp_path)


# Several helpers


@pytest.fixture
def pretending(monkeypatch):
    """Helpers that grade nothing, and do what their submissions say."""
    monkeypatch.setattr(helpers, "serve", tiny_helper.serve)


def test_a_helper_grades():
    works = [Work("s05", [RIGHT, GUESS]), Work("s06", ["x = ", RIGHT])]
    finished = []
    grade_all(PLAN, works, 1, finished.append)
    assert finished == works
    assert [points(work.verdicts) for work in works] == [[5.0, 2.0], [5.0, 0.0]]
    assert [len(work.errors) for work in works] == [0, 1]


@pytest.mark.usefixtures("pretending")
def test_helpers_share_the_work():
    works = [Work(f"s{i:02}", []) for i in range(11)]
    finished = []
    grade_all(tiny_helper.PLAN, works, 2, finished.append)
    assert sorted(work.key for work in finished) == [work.key for work in works]
    assert all(points(work.verdicts) == [1.0, 1.0] for work in works)
    assert [work.errors for work in works] == [[f"of {work.key}"] for work in works]


@pytest.mark.usefixtures("pretending")
def test_a_helper_that_ends_costs_one_question():
    works = [Work("s04", []), Work("s05", ["ends at double"]), Work("s06", ["ends at guess"])]
    grade_all(tiny_helper.PLAN, works, 1, lambda work: None)
    assert [points(work.verdicts) for work in works] == [[1.0, 1.0], [0.0, 1.0], [1.0, 0.0]]
    assert works[1].verdicts[0].most == 5.0
    assert "ended the process that checks it" in works[1].verdicts[0].hints[0]
    assert works[1].verdicts[0].told == ["ended the process that checks it"]


@pytest.mark.usefixtures("pretending")
def test_a_check_that_never_ends_costs_one_question(monkeypatch):
    monkeypatch.setattr(helpers, "SPARE_SECONDS", 1 - FAST.total_seconds)
    works = [Work("s05", ["hangs at double"]), Work("s06", [])]
    grade_all(tiny_helper.PLAN, works, 1, lambda work: None)
    assert [points(work.verdicts) for work in works] == [[0.0, 1.0], [1.0, 1.0]]
    assert works[0].verdicts[0].told == ["did not end within 1 seconds"]


@pytest.mark.parametrize("error", [RuntimeError, OSError])
def test_a_helper_says_before_it_begins_that_no_process_starts(error):
    class Broken(Sandbox):
        def student(self, cells, forbidden=()):
            raise error("no more processes")

    said = helpers._tried(Broken(FAST, "limited"))
    assert said == {"failed": "no more processes"}


@pytest.mark.usefixtures("pretending")
def test_a_helper_that_can_not_start_stops_the_run():
    with pytest.raises(Refused, match="can't start a helper"):
        grade_all(tiny_helper.NONE, [Work("s05", [])], 1, lambda work: None)


# A class


def outcome_of(folder):
    """What is in a folder of results, but for the times of its files."""
    names = ["grades.csv", "summary.html"]
    pages = {path.name: path.read_text("utf-8") for path in (folder / "feedback").iterdir()}
    return [(folder / name).read_text("utf-8") for name in names], pages


@pytest.fixture
def class_of(tmp_path):
    """A small class, and what is no submission."""
    contents = {f"s{i:02}.ipynb": notebook(RIGHT, GUESS) for i in (1, 2, 3)}
    contents["s04.ipynb"] = notebook(WRONG, GUESS)
    contents["s05.ipynb"] = b"no notebook"
    contents["s06/a.ipynb"], contents["s06/b.ipynb"] = notebook(RIGHT), notebook(GUESS)
    return hand_in(tmp_path / "class", contents)


@pytest.fixture
def at_once(sandbox, monkeypatch):
    """Grade in this process: others take seconds to begin."""
    monkeypatch.setattr(run, "code_digest", str)  # whoever writes code may go on

    def grade_all(plan, works, jobs, finished):
        for work in works:
            work.verdicts, work.errors = graded_in(sandbox, work, plan)
            finished(work)

    monkeypatch.setattr(run, "grade_all", grade_all)


def grade_folder(root, sheet, out, resume=False, say=lambda *_: None):
    found = submissions(root, sheet)
    with opened(out, "a97_tiny", "secret", resume) as journal:
        return grade_class(found, sheet, PLAN, journal, 1, say)


@pytest.mark.usefixtures("at_once")
def test_a_class_is_graded_and_told(class_of, sheet, tmp_path):
    said = []
    results = grade_folder(class_of, sheet, tmp_path / "out", say=lambda *all: said.append(all))
    totals = [(one.student, one.points) for one in results if not one.problem]
    rest = [("s04", 2.0), ("s06", 5.0), ("s06", 2.0)]
    assert totals == [("s01", 7.0), ("s02", 7.0), ("s03", 7.0), *rest]
    assert [one.student for one in results if one.rivals] == ["s06", "s06"]
    assert "not JSON" in next(one.problem for one in results if one.student == "s05")
    assert [done for done, _, _ in said] == [1, 2, 3, 4, 5, 6, 7]
    tables, pages = outcome_of(tmp_path / "out")
    assert len(pages) == 7
    assert "not doubled" in tables[1]


@pytest.mark.usefixtures("at_once")
def test_what_is_graded_is_not_graded_again(class_of, sheet, tmp_path):
    grade_folder(class_of, sheet, tmp_path / "out")
    before, times = outcome_of(tmp_path / "out"), stamps(tmp_path / "out")
    hand_in(class_of, {"s02.ipynb": notebook(WRONG, GUESS), "s07.ipynb": notebook(RIGHT)})
    results = grade_folder(class_of, sheet, tmp_path / "out", resume=True)
    assert {one.student: one.points for one in results}["s02"] == 2.0
    changed = {name for name, time in stamps(tmp_path / "out").items() if times.get(name) != time}
    assert {name[:3] for name in changed} == {"s02", "s07"}
    assert outcome_of(tmp_path / "out") != before


def stamps(folder):
    return {path.name: path.stat().st_mtime_ns for path in (folder / "graded").iterdir()}


@pytest.mark.parametrize(
    "change",
    [
        {"seed": "other"},
        {"forbidden": "zero"},
        {"limits": Limits(wall_seconds=3.0)},
        {"points": {"double": 6.0, "guess": 2.0}},
    ],
)
def test_other_settings_make_other_results(sheet, tmp_path, change):
    found = submissions(hand_in(tmp_path, {"s05.ipynb": notebook(RIGHT)}), sheet)
    assert states_of(found, sheet, PLAN) == states_of(found, sheet, replace(PLAN))
    assert states_of(found, sheet, PLAN) != states_of(found, sheet, replace(PLAN, **change))


def test_another_version_of_the_grader_makes_other_results(sheet, tmp_path, monkeypatch):
    found = submissions(hand_in(tmp_path, {"s05.ipynb": notebook(RIGHT)}), sheet)
    before = states_of(found, sheet, PLAN)
    monkeypatch.setattr(run, "code_digest", lambda: "another")
    assert states_of(found, sheet, PLAN) != before


@pytest.mark.full
@pytest.mark.usefixtures("at_once")
def test_a_run_that_is_killed_goes_on_where_it_was(class_of, sheet, folder, tmp_path):
    """After the second submission: the grader, its helper and the students' processes end."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "tests.course.tiny_run", class_of, folder, out]
    process = subprocess.Popen(list(map(str, command)), cwd=run.ROOT)
    while process.poll() is None and len(list(out.glob("graded/*.json"))) < 2:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = stamps(out)
    assert len(kept) >= 2
    grade_folder(class_of, sheet, out, resume=True)
    assert kept.items() <= stamps(out).items()
    grade_folder(class_of, sheet, tmp_path / "whole")
    assert outcome_of(out) == outcome_of(tmp_path / "whole")


@pytest.mark.usefixtures("at_once")
def test_a_run_that_is_stopped_reports_what_is_graded_and_goes_on_there(class_of, sheet, tmp_path):
    def stop(done, total, line):
        if line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grade_folder(class_of, sheet, tmp_path / "out", say=stop)
    tables, _ = outcome_of(tmp_path / "out")
    assert "s01" in tables[0]
    assert "s03" not in tables[0]
    kept = stamps(tmp_path / "out")
    grade_folder(class_of, sheet, tmp_path / "out", resume=True)
    assert kept.items() <= stamps(tmp_path / "out").items()
    assert "s03" in outcome_of(tmp_path / "out")[0][0]


@pytest.mark.parametrize(
    ("name", "said"), [("none", "does not exist"), ("x.txt", "neither a folder")]
)
def test_what_holds_no_submissions_is_refused(sheet, tmp_path, name, said):
    hand_in(tmp_path, {"x.txt": b"x"})
    with pytest.raises(Refused, match=said):
        submissions(tmp_path / name, sheet)
    (tmp_path / "empty").mkdir()
    with pytest.raises(Refused, match="no submissions"):
        submissions(tmp_path / "empty", sheet)
