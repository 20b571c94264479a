"""Assignment 3 gives an answer what it deserves, and a wrong one the name of its mistake."""

from collections import Counter

import pytest
import torch
from einops import rearrange

from course import sources
from course.assignments.a3 import who_meets_whom
from mini_attention import attention
from tests.course import answering
from tests.course.answers import a3 as answers

QUESTIONS = answering.questions_of(3)
SOURCE = answering.source_of(3)
WORTH = sources.points(SOURCE)
SOLVED = answering.cells_of(sources.read(SOURCE))


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
    assert worth == WORTH
    assert sum(worth.values()) == 20


@pytest.mark.parametrize(
    "call",
    [
        "mini_attention.MultiHeadAttention(d_model, num_heads)",
        "torch.nn.MultiheadAttention(d_model, num_heads, batch_first=True)",
    ],
)
def test_a_layer_that_is_not_ones_own_is_noticed(answers_sandbox, call):
    code = f"""{answers.LAYER}
    def forward(self, query, key, value):
        d_model, num_heads = query.shape[-1], self.num_heads
        layer = {call}
        output = layer(query, key, value)
        return output[0] if isinstance(output, tuple) else output
"""
    assert answering.put(answers_sandbox, QUESTIONS["multi-head"], [*SOLVED, code]).used


def test_a_copy_by_the_package_is_noticed(answers_sandbox):
    code = """
def carry_over(state):
    theirs = torch.nn.MultiheadAttention(15, 3, batch_first=True)
    theirs.load_state_dict(state)
    return mini_attention.MultiHeadAttention.from_torch(theirs).state_dict()
"""
    assert answering.put(answers_sandbox, QUESTIONS["carry-over"], [*SOLVED, code]).used


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 7])
@pytest.mark.parametrize("h", [1, 2, 3, 5])
def test_who_meets_whom_is_what_a_view_does(n, h):
    def by_view(t):
        return attention(*[t.view(h, n, 2)] * 3).reshape(n, h * 2)

    torch.manual_seed(0)
    t = torch.randn(n, h * 2, dtype=torch.float64)
    moved = torch.autograd.functional.jacobian(by_view, t).abs().amax((1, 3)) > 0
    assert torch.equal(who_meets_whom(n, h), moved)


@pytest.mark.parametrize(("n", "h"), [(1, 1), (1, 4), (5, 1), (3, 3), (6, 3), (3, 6), (5, 3)])
def test_a_view_is_right_for_one_word_or_one_head_alone(n, h):
    torch.manual_seed(0)
    t = torch.randn(n, h * 2, dtype=torch.float64)
    right = rearrange(t, "n (h d) -> h n d", h=h)
    assert torch.equal(t.view(h, n, 2), right) == (n == 1 or h == 1)
