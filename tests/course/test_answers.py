"""An answer gets what it deserves, and a wrong one the name of its mistake."""

from collections import Counter

import pytest

from course.assignments import a1, a2
from tests.course import answering

ASSIGNMENTS = {number: answering.Assignment(number) for number in range(1, 8)}
EVERY = pytest.mark.parametrize("of", ASSIGNMENTS.values(), ids=lambda of: f"a{of.number}")
# Its steps are the wrong programs that are caught, and share the points among them.
SHARED = {"write-the-test"}
QUICK = 1  # wrong answer of a question that is tried even when there is little time
FEW = 2  # styles of right answers, likewise


def right_answers():
    for number, of in ASSIGNMENTS.items():
        for style in of.answers.RIGHT:
            group = number, style.partition(": ")[0] if len(of.asked(style)) == 1 else ""
            yield group, f"a{number}, {style}", of, style


def wrong_answers():
    for number, of in ASSIGNMENTS.items():
        for question, name, *rest in of.answers.WRONG:
            yield (number, question), f"a{number}, {question}: {name}", of, question, *rest


def borrowed_answers():
    for number, of in ASSIGNMENTS.items():
        for question, name, code in of.answers.BORROWED:
            yield (number, question), f"a{number}, {question}: {name}", of, question, code


@pytest.mark.parametrize(("of", "style"), answering.parameters(right_answers(), FEW))
def test_a_right_answer_gets_all_points_however_it_is_written(answers_sandbox, of, style):
    for grade_id in of.asked(style):
        found = of.put(answers_sandbox, grade_id, of.answers.RIGHT[style])
        assert (found.hints, found.used, found.errors) == ([], [], {}), grade_id


@pytest.mark.parametrize(
    ("of", "grade_id", "code", "weight", "words"), answering.parameters(wrong_answers(), QUICK)
)
def test_a_wrong_answer_gets_its_points_and_the_name_of_its_mistake(
    answers_sandbox, of, grade_id, code, weight, words
):
    found = of.put(answers_sandbox, grade_id, code)
    assert (found.weight, found.errors) == (weight, {}), found.hints
    assert any(words in hint for hint in found.hints), found.hints


@pytest.mark.parametrize(
    ("of", "grade_id", "code"), answering.parameters(borrowed_answers(), QUICK)
)
def test_what_is_not_ones_own_is_noticed(answers_sandbox, of, grade_id, code):
    assert of.put(answers_sandbox, grade_id, code).used


@EVERY
def test_there_are_at_least_ten_right_answers(of):
    assert len(of.answers.RIGHT) >= 10


@EVERY
def test_every_question_has_at_least_eight_wrong_answers(of):
    counted = Counter(question for question, *_ in of.answers.WRONG)
    assert counted.keys() == of.questions.keys()
    assert min(counted.values()) >= 8


@EVERY
def test_the_solution_gets_all_points(answers_sandbox, of):
    for grade_id, question in of.questions.items():
        found = answering.put(answers_sandbox, question, of.solved)
        assert (found.hints, found.used, found.errors) == ([], [], {}), grade_id


@EVERY
def test_no_cell_of_the_notebook_mentions_what_is_forbidden(answers_sandbox, of):
    for grade_id, question in of.questions.items():
        with answers_sandbox.student(of.solved, forbidden=question.forbidden) as student:
            assert student.mentions(question.forbidden) == [], grade_id


@EVERY
def test_the_untouched_notebook_gets_nothing_and_is_told_what_is_missing(answers_sandbox, of):
    for grade_id, question in of.questions.items():
        found = answering.put(answers_sandbox, question, of.untouched)
        assert (found.weight, found.errors) == (0, {}), grade_id
        for hint in found.hints:
            assert "written yet" in hint or "still `...`" in hint


@EVERY
def test_the_steps_are_worth_what_the_notebook_says(of):
    weights = {name: sum(s.weight for s in q.steps) for name, q in of.questions.items()}
    assert weights.keys() == of.points.keys()
    assert sum(of.points.values()) == 20
    for grade_id in weights.keys() - SHARED:
        assert weights[grade_id] == of.points[grade_id]


@pytest.mark.parametrize("choice", [*a1.CHANGES, *a2.CHANGES])
def test_a_wrong_choice_has_a_hint_and_the_right_one_has_none(choice):
    assert choice.hint(choice.right) == ""
    assert all(choice.hint(letter) for letter in "ABCDEF" if letter != choice.right)
    assert choice.right not in choice.wrong
