"""Assignment 1 gives an answer what it deserves, and a wrong one the name of its mistake."""

from collections import Counter

import pytest

from course import sources
from course.assignments.a1 import CHANGES
from tests.course import answering
from tests.course.answers import a1 as answers

QUESTIONS = answering.questions_of(1)
SOURCE = answering.source_of(1)


@pytest.mark.parametrize("style", answering.styles(answers.RIGHT))
def test_a_right_answer_gets_all_points_however_it_is_written(answers_sandbox, style):
    for question in QUESTIONS.values():
        found = answering.put(answers_sandbox, question, [answers.RIGHT[style]])
        assert (found.hints, found.used, found.errors) == ([], [], {}), question.grade_id


@pytest.mark.parametrize(
    ("grade_id", "code", "points", "words"), answering.catalogue(answers.WRONG)
)
def test_a_wrong_answer_gets_its_points_and_the_name_of_its_mistake(
    answers_sandbox, grade_id, code, points, words
):
    found = answering.put(answers_sandbox, QUESTIONS[grade_id], [code])
    assert (found.points, found.errors) == (points, {}), found.hints
    assert any(words in hint for hint in found.hints), found.hints


def test_there_are_at_least_ten_right_answers():
    assert len(answers.RIGHT) >= 10


def test_every_question_has_at_least_eight_wrong_answers():
    counted = Counter(question for question, *_ in answers.WRONG)
    assert counted.keys() == QUESTIONS.keys()
    assert min(counted.values()) >= 8


def test_the_solution_gets_all_points(answers_sandbox):
    cells = answering.cells_of(sources.read(SOURCE))
    for question in QUESTIONS.values():
        found = answering.put(answers_sandbox, question, cells)
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


def test_a_wrong_choice_has_a_hint_and_the_right_one_has_none():
    for choice in CHANGES:
        assert choice.hint(choice.right) == ""
        assert all(choice.hint(letter) for letter in "ABCDEF" if letter != choice.right)
        assert choice.right not in choice.wrong


@pytest.mark.parametrize(
    "line",
    [
        "return torch.softmax(scores, -1)",
        "return scores.softmax(-1)",
        "return torch.nn.Softmax(dim=-1)(scores)",
        "return torch.nn.functional.log_softmax(scores, -1).exp()",
        "return mini_attention.attention_weights(scores, torch.eye(7).to(scores), scale=1.0)",
    ],
)
def test_a_softmax_that_is_not_ones_own_is_noticed(answers_sandbox, line):
    code = f"{answers.GIVEN}\ndef my_softmax(scores):\n    {line}"
    assert answering.put(answers_sandbox, QUESTIONS["softmax"], [code]).used


@pytest.mark.parametrize(
    "name",
    [
        "torch.nn.functional.scaled_dot_product_attention",
        "mini_attention.attention",
        "mini_attention.blocked_attention",
    ],
)
def test_an_attention_that_is_not_ones_own_is_noticed(answers_sandbox, name):
    code = f"{answers.GIVEN}\nmy_attention = lambda q, k, v: {name}(q, k, v)"
    assert answering.put(answers_sandbox, QUESTIONS["attention"], [code]).used
