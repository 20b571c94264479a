"""Trials of a student's test: which programs it is asked about, and what it earns."""

import pytest
import torch

from course.assignments.a4 import PROGRAMS
from course.assignments.trials import RIGHT, catches
from course.model import Draw, Missing
from mini_attention.checks import CheckFailed
from mini_attention.mistakes import MISTAKES
from tests.course.answers import a4 as answers


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
