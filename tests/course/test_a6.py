"""Assignment 6 gives an answer what it deserves, and a wrong one the name of its mistake."""

from collections import Counter

import pytest

from course import sources
from tests.course import answering
from tests.course.answers import a6 as answers

QUESTIONS = answering.questions_of(6)
SOURCE = answering.source_of(6)
SOLVED = answering.cells_of(sources.read(SOURCE))
IMPORTS = SOLVED[0]


@pytest.mark.parametrize("style", answering.styles(answers.RIGHT))
def test_a_right_answer_gets_all_points_however_it_is_written(answers_sandbox, style):
    for question in QUESTIONS.values():
        found = answering.put(answers_sandbox, question, [IMPORTS, answers.RIGHT[style]])
        assert (found.hints, found.used, found.errors) == ([], [], {}), question.grade_id


@pytest.mark.parametrize(
    ("grade_id", "code", "points", "words"), answering.catalogue(answers.WRONG)
)
def test_a_wrong_answer_gets_its_points_and_the_name_of_its_mistake(
    answers_sandbox, grade_id, code, points, words
):
    found = answering.put(answers_sandbox, QUESTIONS[grade_id], [IMPORTS, code])
    assert (found.points, found.errors) == (points, {}), found.hints
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


def test_the_steps_are_worth_what_the_notebook_says():
    worth = {name: sum(s.weight for s in q.steps) for name, q in QUESTIONS.items()}
    assert worth == sources.points(SOURCE)
    assert sum(worth.values()) == 20


def test_no_cell_of_the_notebook_mentions_what_is_forbidden(answers_sandbox):
    for question in QUESTIONS.values():
        with answers_sandbox.student(SOLVED, forbidden=question.forbidden) as student:
            assert student.mentions(question.forbidden) == [], question.grade_id


@pytest.mark.parametrize(
    "call",
    [
        "mini_attention.blocked_attention(query, key, value)",
        "torch.nn.functional.scaled_dot_product_attention(query, key, value)",
    ],
)
def test_attention_that_is_not_ones_own_is_noticed(answers_sandbox, call):
    code = f"import mini_attention\n\ndef blocked(query, key, value, size):\n    return {call}"
    assert answering.put(answers_sandbox, QUESTIONS["blocked"], [IMPORTS, code]).used


@pytest.mark.parametrize(
    "call", ["torch.logsumexp(scores, -1, True)", "scores.logsumexp(-1, True)"]
)
def test_a_logarithm_of_a_sum_that_is_not_ones_own_is_noticed(answers_sandbox, call):
    code = f"def running_log_sum(scores, size):\n    return {call}"
    assert answering.put(answers_sandbox, QUESTIONS["log-sum"], [IMPORTS, code]).used
