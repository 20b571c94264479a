"""Assignment 4 gives an answer what it deserves, and a wrong one the name of its mistake."""

from collections import Counter

import pytest
import torch

from course import sources
from course.assignments.a4 import PROGRAMS
from course.assignments.trials import RIGHT, catches
from course.model import Draw, Missing
from mini_attention.checks import CheckFailed
from mini_attention.mistakes import MISTAKES
from tests.course import answering
from tests.course.answers import a4 as answers

QUESTIONS = answering.questions_of(4)
SOURCE = answering.source_of(4)
WORTH = sources.points(SOURCE)
SOLVED = answering.cells_of(sources.read(SOURCE))


def points_of(found, grade_id):
    """As they stand in the notebook: a step of the test that is written is a third of one."""
    weight = sum(step.weight for step in QUESTIONS[grade_id].steps)
    return found.points * WORTH[grade_id] / weight


@pytest.mark.parametrize("style", answering.styles(answers.RIGHT))
def test_a_right_answer_gets_all_points_however_it_is_written(answers_sandbox, style):
    question = QUESTIONS[style.split(":")[0]]
    found = answering.put(answers_sandbox, question, [*SOLVED, answers.RIGHT[style]])
    assert (found.hints, found.used, found.errors) == ([], [], {})


@pytest.mark.parametrize(
    ("grade_id", "code", "points", "words"), answering.catalogue(answers.WRONG)
)
def test_a_wrong_answer_gets_its_points_and_the_name_of_its_mistake(
    answers_sandbox, grade_id, code, points, words
):
    found = answering.put(answers_sandbox, QUESTIONS[grade_id], [*SOLVED, code])
    assert points_of(found, grade_id) == pytest.approx(points), found.hints
    assert found.errors == {}
    assert any(words in hint for hint in found.hints), found.hints


def test_there_are_at_least_ten_right_answers():
    assert len(answers.RIGHT) >= 10


def test_every_question_has_at_least_eight_wrong_answers():
    counted = Counter(question for question, *_ in answers.WRONG)
    assert counted.keys() == QUESTIONS.keys()
    assert min(counted.values()) >= 8


def test_the_solution_gets_all_points(answers_sandbox):
    for question in QUESTIONS.values():
        found = answering.put(answers_sandbox, question, SOLVED)
        assert (found.hints, found.used, found.errors) == ([], [], {}), question.grade_id


def test_the_untouched_notebook_gets_nothing_and_is_told_what_is_missing(answers_sandbox):
    cells = answering.cells_of(sources.student_notebook(sources.read(SOURCE)))
    for question in QUESTIONS.values():
        found = answering.put(answers_sandbox, question, cells)
        assert (found.points, found.errors) == (0, {}), question.grade_id
        for hint in found.hints:
            assert "written yet" in hint or "still `...`" in hint


def test_the_notebook_has_points_for_every_question_and_20_in_all():
    assert WORTH.keys() == QUESTIONS.keys()
    assert sum(WORTH.values()) == 20
    for name in WORTH.keys() - {"write-the-test"}:
        assert sum(step.weight for step in QUESTIONS[name].steps) == WORTH[name]


def test_no_cell_of_the_notebook_mentions_what_is_forbidden(answers_sandbox):
    for question in QUESTIONS.values():
        with answers_sandbox.student(SOLVED, forbidden=question.forbidden) as student:
            assert student.mentions(question.forbidden) == [], question.grade_id


@pytest.mark.parametrize(
    "call",
    [
        "mini_attention.attention(q, k, v, mask)",
        "mini_attention.fused_attention(q, k, v, mask)",
        "torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)",
    ],
)
def test_attention_that_is_not_ones_own_is_noticed(answers_sandbox, call):
    code = f"def masked_attention(q, k, v, mask):\n    return {call}"
    assert answering.put(answers_sandbox, QUESTIONS["masked-attention"], [*SOLVED, code]).used


def test_a_mask_of_the_package_is_noticed(answers_sandbox):
    code = "def causal(i, j):\n    return mini_attention.causal_mask(i, j)"
    assert answering.put(answers_sandbox, QUESTIONS["build-masks"], [*SOLVED, code]).used


def test_a_test_that_calls_the_packages_check_is_noticed(answers_sandbox):
    code = "def test_attend(attend):\n    mini_attention.check_attention(attend, only=['mask'])"
    assert answering.put(answers_sandbox, QUESTIONS["write-the-test"], [*SOLVED, code]).used


# Trials, with tests that run here


class Here:
    """A student whose test is a function of ours."""

    def __init__(self, test):
        self.test, self.asked = test, []

    def catches(self, name, program):
        self.asked.append(program)
        try:
            self.test(program)
        except CheckFailed:  # a sandbox says so of what it had to stop
            raise
        except AssertionError as error:
            return str(error) or "AssertionError"
        return ""


def wrong(name):
    return MISTAKES[name].programs["attention"]


def outcome(student, name, names=tuple(PROGRAMS), seed=0):
    try:
        catches("test_attend", name, wrong, names)(student, Draw.of(seed))
    except CheckFailed as failed:
        return str(failed)
    return ""


def knows(*programs):
    """A test that finds these programs wrong, which no honest one could."""

    def test(program):
        assert program not in programs, "I know this one"

    return test


def test_each_wrong_program_that_is_caught_passes_its_step_and_no_other():
    student = Here(knows(wrong("mask added"), wrong("finite fill")))
    passed = [name for name in PROGRAMS if not outcome(student, name)]
    assert passed == ["mask added", "finite fill"]


def test_a_program_that_is_not_caught_is_told_with_what_it_does_wrong():
    told = outcome(Here(knows()), "mask added")
    assert MISTAKES["mask added"].what in told


@pytest.mark.parametrize("name", RIGHT)
def test_a_test_that_fails_one_right_program_catches_nothing(name):
    student = Here(knows(RIGHT[name], *map(wrong, PROGRAMS)))
    for program in PROGRAMS:
        assert f"fails a right program, the package's {name}: I know" in outcome(student, program)


def test_all_steps_share_one_trial_of_every_program():
    student = Here(knows())
    for name in PROGRAMS:
        outcome(student, name)
    assert len(student.asked) == len(PROGRAMS) + 4
    assert {*student.asked} == {*map(wrong, PROGRAMS), *RIGHT.values()}


def test_another_seed_tries_in_another_order():
    orders = []
    for seed in range(3):
        student = Here(knows())
        outcome(student, "mask added", seed=seed)
        orders.append(student.asked)
    assert orders[0] != orders[1] != orders[2]


def test_any_error_that_a_test_lets_through_is_a_catch():
    def test(program):
        if program is wrong("mask transposed"):
            raise ValueError("shapes")

    assert outcome(Here(test), "mask transposed") == ""
    assert outcome(Here(test), "mask added")


def test_a_test_that_is_not_written_is_asked_for_once():
    def test(program):
        raise NotImplementedError("write this")

    student = Here(test)
    assert {outcome(student, name) for name in PROGRAMS} == {"test_attend: not written yet"}
    assert len(student.asked) == 1


def test_a_test_that_runs_out_of_time_is_tried_once():
    def test(program):
        raise CheckFailed("test_attend did not end within 10 seconds.")

    student = Here(test)
    told = {outcome(student, name) for name in PROGRAMS}
    assert told == {"test_attend did not end within 10 seconds."}
    assert len(student.asked) == 1


def test_a_test_that_is_missing_is_missing():
    def test(program):
        raise Missing("test_attend is not there")

    with pytest.raises(Missing, match="not there"):
        catches("test_attend", "mask added", wrong, tuple(PROGRAMS))(Here(test), Draw.of(0))


def test_every_wrong_program_differs_from_the_right_ones_on_some_small_input():
    torch.manual_seed(0)
    test = {}
    exec("import math, torch\n" + answers.MASKED, test)
    exec(answers.RIGHT["write-the-test: against loops, in float64"], test)
    student = Here(test["test_attend"])
    assert [name for name in PROGRAMS if outcome(student, name)] == []
