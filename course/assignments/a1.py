"""Assignment 1: the attention formula, `book/assignments/a1_attention_formula.ipynb`."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from course.assignments.choices import Choice, check_choices
from course.assignments.compare import ask, expect, expect_value
from course.assignments.counts import numbers
from course.model import Assignment, Draw, Function, Question, Step, Student
from mini_attention import attention, attention_weights, check_attention
from mini_attention.checks import CheckFailed

SOFTMAX = (
    "torch.softmax",
    "torch.log_softmax",
    "torch.special.softmax",
    "torch.special.log_softmax",
    "torch.nn.functional.softmax",
    "torch.nn.functional.softmin",
    "torch.nn.functional.log_softmax",
    "torch.nn.functional.gumbel_softmax",
    "torch.Tensor.softmax",
    "torch.Tensor.log_softmax",
    "torch.nn.Softmax.forward",
    "torch.nn.Softmin.forward",
    "torch.nn.LogSoftmax.forward",
)
ATTENTION = (
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.functional.multi_head_attention_forward",
    "torch.nn.MultiheadAttention.forward",
    "mini_attention.attention",
    "mini_attention.attention_scores",
    "mini_attention.attention_weights",
    "mini_attention.blocked_attention",
    "mini_attention.fused_attention",
    "mini_attention.MultiHeadAttention.forward",
    "mini_attention.SingleHeadAttention.forward",
)


# Predict: the question [4, 0, 2, 0] to the five words


def scores(student: Student, draw: Draw) -> None:
    expect_value(
        "my_scores",
        numbers(student, "my_scores", 5),
        [2, 0, 2, 1, 0],
        [
            ([4, 0, 4, 2, 0], "these are the products: a score is divided by √d, which is 2 here"),
            ([1, 0, 1, 0.5, 0], "divided by d = 4: a score is divided by the root of d"),
            ([8, 0, 8, 4, 0], "multiplied by √d: a score is the product divided by √d"),
            (
                [4 / 5**0.5, 0, 4 / 5**0.5, 2 / 5**0.5, 0],
                "divided by the root of 5, the number of words: d is the number of features",
            ),
            ([2, 0, 2, 0, 0], "“then” has a link, and the question wants links: 2·1, then / 2"),
            ([4, 1, 4, 2, 1], "these are the powers 2^score already: scores come before"),
            ([4 / 12, 1 / 12, 4 / 12, 2 / 12, 1 / 12], "these are weights: scores come before"),
            ([2, 0, 1, 1, 0], "“mouse” is as much a thing as “cat”, and nobody asks for lively"),
        ],
    )


def shares(student: Student, draw: Draw) -> None:
    expect_value(
        "my_shares",
        numbers(student, "my_shares", 5),
        [4, 1, 4, 2, 1],
        [
            ([2, 0, 2, 1, 0], "these are the scores: each point doubles the shares, 2^score"),
            ([4, 0, 4, 2, 0], "a word of score 0 has 2^0 = 1 share, not none"),
            ([16, 1, 16, 4, 1], "2 to the power of the products: divide by √d = 2 before"),
            ([2, 1, 2, 2**0.5, 1], "2 to the power of product / 4: the scores are product / √4"),
            (
                [math.e**2, 1, math.e**2, math.e, 1],
                "e to the power of points: the question is in units of ln 2, so it is 2^points",
            ),
            (
                [4 / 12, 1 / 12, 4 / 12, 2 / 12, 1 / 12],
                "these are the weights: give the shares before they are divided by their sum",
            ),
            ([4, 0, 4, 1, 0], "the squares of the scores: a share is 2^score"),
        ],
    )


def output(student: Student, draw: Draw) -> None:
    expect_value(
        "my_output",
        numbers(student, "my_output", 3),
        [8 / 12, 2 / 12, 15 / 12],
        [
            ([8, 2, 15], "this is the sum over the shares: a mean divides it by all 12 shares"),
            ([2 / 5, 2 / 5, 6 / 5], "the plain mean of the values: each counts by its shares"),
            ([8 / 5, 2 / 5, 15 / 5], "divided by the number of words: divide by all 12 shares"),
            ([1, 0, 2], "the value of one word: attention returns a mean of all, and never picks"),
            ([1, 0, 1.5], "the mean of the best two: the other words have shares too"),
            ([4 / 5, 0, 6 / 5], "weighted by the scores: weights are the shares divided by 12"),
            ([8 / 12, 2 / 12, 2 / 12], "the third feature of a value is lively, not link"),
            (
                [32 / 38, 2 / 38, 51 / 38],
                "weighted with 16, 1, 16, 4, 1: the products were not divided by √d",
            ),
        ],
    )


# Build: a softmax by hand


def softmax_of_rows(student: Student, draw: Draw) -> None:
    _compare_softmax(student, 2 * draw.randn(3, 5))


def softmax_of_any_axes(student: Student, draw: Draw) -> None:
    scores = draw.randn(5, 2, 3, 7)
    given = scores.clone()
    wrong = {
        "the softmax runs over axis 1, which is the last axis of a matrix only": scores.softmax(1)
    }
    _compare_softmax(student, given, wrong)
    if not torch.equal(given, scores):
        raise CheckFailed("my_softmax: it writes into scores, which have to be left as they are")


def softmax_of_large(student: Student, draw: Draw) -> None:
    for start in (10_000, -10_000):
        _compare_large(
            student,
            start + _exact(draw.randn(3, 5)),
            "its numbers are nan or infinite: subtract the largest score before exp",
        )


def softmax_of_rows_apart(student: Student, draw: Draw) -> None:
    """Each row has its own largest score, and there are rows in every item."""
    starts = torch.tensor([[[10_000.0], [-10_000.0]], [[0.0], [20_000.0]]], dtype=torch.float64)
    _compare_large(
        student,
        starts + _exact(draw.randn(2, 2, 5)),
        "subtract from each row its own largest score: one number for all rows is not enough",
    )


def _compare_large(student: Student, scores: Tensor, hint: str) -> None:
    what = f"my_softmax of scores from {scores.min():.0f} to {scores.max():.0f}"
    right = scores.softmax(-1)
    only_largest = right * (scores.amax(-1, keepdim=True) > scores.max() - 100)
    alike = torch.full_like(scores, 1 / scores.shape[-1])
    got = ask(what, student.function("my_softmax"), scores)
    if isinstance(got, Tensor) and not got.detach().isfinite().all():
        raise CheckFailed(f"{what}: {hint}")
    clamped = "all keys get the same weight: are the scores cut off? Their differences count"
    expect(what, got, right, {hint: only_largest, clamped: alike})


def _compare_softmax(
    student: Student, scores: Tensor, wrong: dict[str, Tensor] | None = None
) -> None:
    powers, right = scores.exp(), scores.softmax(-1)
    mistakes = {
        "the softmax runs over the queries: sum over the last axis, dim=-1": scores.softmax(-2),
        "these are the powers: divide each row by its sum": powers,
        "divided by the sum of all numbers: each row has a sum of its own": powers / powers.sum(),
        "these are powers of 2: a softmax takes powers of e": (scores * math.log(2)).softmax(-1),
        "this is the logarithm of the softmax": scores.log_softmax(-1),
        "the softmax is applied twice": right.softmax(-1),
        "the scores are divided by their sum, without exp": scores / scores.sum(-1, keepdim=True),
        "the signs are turned, exp(-score)": (-scores).softmax(-1),
        "divided by the largest power, not by the sum": powers / powers.amax(-1, keepdim=True),
    }
    expect(
        "my_softmax",
        ask("my_softmax", student.function("my_softmax"), scores),
        right,
        mistakes | (wrong or {}),
    )


def _exact(numbers: Tensor) -> Tensor:
    """In quarters, which float32 holds exactly beside ten thousands."""
    return (4 * numbers).round() / 4


# Build: attention


def attention_is_a_mean(student: Student, draw: Draw) -> None:
    _check(student, draw, "one key", "equal keys")


def attention_compares(student: Student, draw: Draw) -> None:
    _check(student, draw, "scores")


def attention_as_the_formula(student: Student, draw: Draw) -> None:
    query, key, value = draw.randn(3, 11), draw.randn(7, 11), draw.randn(7, 5)
    got = ask("my_attention", student.function("my_attention"), query, key, value)
    expect("my_attention", got, attention(query, key, value), _wrong_attention(query, key, value))
    _check(student, draw, "scale", "rows and columns")


def _wrong_attention(query: Tensor, key: Tensor, value: Tensor) -> dict[str, Tensor]:
    """What mistakes give that the package's collection doesn't have."""
    weights = attention_weights(query, key)
    root = math.sqrt(value.shape[-1])
    return {
        "there is no softmax: the scores themselves are taken for weights": (
            query @ key.T / math.sqrt(query.shape[-1]) @ value
        ),
        "what is averaged are the keys, not the values": weights @ key,
        "the value of the best key alone: attention returns a mean of all values": (
            value[weights.argmax(-1)]
        ),
        "the scores are divided by √e, the features of the values, not by √d": (
            (query @ key.T / root).softmax(-1) @ value
        ),
        "the plain mean of the values, whatever the queries ask": value.mean(0).expand(3, 5),
        "these are the weights: multiply them with the values": weights,
        "the output is transposed: a row for each query": (weights @ value).T,
        "the softmax is applied to the output, not to the scores": (
            (query @ key.T / math.sqrt(query.shape[-1])) @ value
        ).softmax(-1),
    }


def attention_of_large_scores(student: Student, draw: Draw) -> None:
    """In float64, where every right way of writing it is exact."""
    mine = student.function("my_attention")
    check_attention(
        lambda query, key, value: mine(query.double(), key.double(), value.double()),
        only=["large scores"],
        seed=draw.integer(0, 2**31 - 1),
    )


def _check(student: Student, draw: Draw, *mechanisms: str) -> None:
    mine = student.function("my_attention")
    check_attention(
        lambda query, key, value: mine(query, key, value),
        only=mechanisms,
        seed=draw.integer(0, 2**31 - 1),
    )


# Break: inputs on which a wrong program shows, or doesn't


def unscaled(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.softmax(query @ key.T, dim=-1) @ value


def softmax_twice(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    weights = torch.softmax(query @ key.T / math.sqrt(query.shape[-1]), dim=-1)
    return torch.softmax(weights, dim=-1) @ value


def shows_scale(student: Student, draw: Draw) -> None:
    name = "shows_scale"
    given = _input(student, name)
    query, key, _ = given
    if max(x.abs().max().item() for x in given) > 2:
        raise CheckFailed(f"{name}: all numbers have to lie between -2 and 2")
    if query.shape[-1] == 1:
        raise CheckFailed(f"{name}: with one feature √d is 1, and nobody can see the scale")
    apart = _apart(unscaled, given)
    if apart > 0.1:
        return
    why = _why_alike(given)
    if len(key) > 1 and attention_weights(query, key).amax(-1).min() > 0.9:
        why = "In both of them one key takes nearly all the weight: make the products smaller."
    raise CheckFailed(f"{name}: the two answers differ by {apart:.3f} at most. {why}")


def hides_scale(student: Student, draw: Draw) -> None:
    name = "hides_scale"
    query, key, value = _input(student, name)
    if len(query) < 2 or len(key) < 3 or query.shape[-1] < 2:
        raise CheckFailed(f"{name}: two queries, three keys and two features at least")
    if (query.abs().amax(-1) < 0.1).any():
        raise CheckFailed(f"{name}: a query of zeros asks nothing, and is not allowed here")
    if _two_alike(key):
        raise CheckFailed(f"{name}: two keys are alike: they have to differ by 0.1 somewhere")
    if _two_alike(value):
        raise CheckFailed(f"{name}: two values are alike: they have to differ by 0.1 somewhere")
    apart = _apart(unscaled, (query, key, value))
    if apart > 1e-6:
        raise CheckFailed(
            f"{name}: the two answers differ by {apart:.3g}. Dividing by √d changes no weights "
            "where all products of a query are equal, or where one is so far ahead that it takes "
            "all."
        )


def shows_twice(student: Student, draw: Draw) -> None:
    name = "shows_twice"
    given = _input(student, name)
    _, key, value = given
    if value.min() < 0 or value.max() > 1:
        raise CheckFailed(f"{name}: the values have to lie between 0 and 1")
    apart = _apart(softmax_twice, given)
    if apart > 0.5:
        return
    if len(key) < 4:
        raise CheckFailed(
            f"{name}: the answers differ by {apart:.3f}. The second softmax gives a weight of 1 "
            f"only e shares, and each weight of 0 one share. {len(key)} keys are too few."
        )
    raise CheckFailed(f"{name}: the two answers differ by {apart:.3f} only. {_why_alike(given)}")


def _input(student: Student, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """A query i d, a key j d and a value j e that fit each other, in float64."""
    value = student.value(name)
    if not isinstance(value, list | tuple) or len(value) != 3:
        raise CheckFailed(f"{name}: a tuple (query, key, value) is expected")
    try:
        query, key, values = (torch.as_tensor(x, dtype=torch.float64).detach() for x in value)
    except (TypeError, ValueError, RuntimeError):
        raise CheckFailed(f"{name}: a tuple of three matrices of numbers is expected") from None
    if any(x.ndim != 2 or not x.numel() for x in (query, key, values)):
        raise CheckFailed(f"{name}: query, key and value need two axes each: i d, j d and j e")
    if query.shape[1] != key.shape[1]:
        raise CheckFailed(f"{name}: a query and a key need the same number of features, d")
    if len(key) != len(values):
        raise CheckFailed(f"{name}: there are {len(key)} keys and {len(values)} values")
    if not all(x.isfinite().all() for x in (query, key, values)):
        raise CheckFailed(f"{name}: all numbers have to be finite")
    return query, key, values


def _apart(program: Function, given: tuple[Tensor, Tensor, Tensor]) -> float:
    return float((program(*given) - attention(*given)).abs().max())


def _two_alike(rows: Tensor) -> bool:
    apart = (rows[:, None] - rows[None]).abs().amax(-1)
    return bool((apart.fill_diagonal_(1.0) < 0.1).any())


def _why_alike(given: tuple[Tensor, Tensor, Tensor]) -> str:
    query, key, value = given
    products = query @ key.T
    if len(key) == 1:
        return "A single key has all the weight in every program: take more keys."
    if (value - value[:1]).abs().max() < 0.1:
        return "The values are alike, so every mean of them is the same."
    if (products - products[:, :1]).abs().max() < 0.1:
        return "All keys match a query alike, so every program returns the mean of the values."
    return "Make the weights of the right answer sharper, or the values more different."


# Explain: what does a change of the input do to the output?

CHANGES = [
    Choice(
        "F",
        "the same vector in every query adds to each score a product with that *key*, which is "
        "another number for each key.",
        {"A": "only a number that is the same for all keys of a query leaves its weights alone. "
              "The vector in the query is multiplied with each key."},
    ),
    Choice(
        "A",
        "the vector adds its product with the query to all scores of that query: one and the same "
        "number, and a softmax does not notice it.",
    ),
    Choice(
        "C",
        "the weights don't change, and a mean of values that all moved moves with them.",
        {"A": "the weights don't change, but the output is a mean of the values, which did."},
    ),
    Choice(
        "B",
        "each query is answered alone: the answers come in the order of the questions.",
        {"A": "each query has a row of its own in the output, and the rows come in their order."},
    ),
    Choice(
        "A",
        "the output sums over the keys, and a sum does not depend on the order of its terms.",
        {"B": "the rows of the output belong to the queries, and their order was not changed."},
    ),
    Choice(
        "F",
        "each weight is multiplied with another value than before.",
        {
            "A": "a key's weight now meets the value of another key.",
            "B": "the rows of the output belong to the queries; it is other means that come out.",
        },
    ),
    Choice(
        "D",
        "all scores come close to 0, and keys with the same score share the weight evenly.",
        {"E": "small scores are close to *each other*: no key is ahead."},
    ),
    Choice(
        "E",
        "all scores are a million times as far apart: a query's best key takes all its weight.",
        {
            "A": "multiplying is not adding: the scores are a million times as far apart.",
            "D": "the scores are further apart, not closer together.",
        },
    ),
    Choice(
        "A",
        "each key has half of its weight then, and is there twice.",
        {"D": "each key has half of its weight, and is there twice: no value counts more or less."},
    ),
    Choice(
        "F",
        "a key of zeros has the score 0, so it gets a weight, and the value of zeros is part of "
        "the mean.",
        {"A": "a score of 0 is no weight of 0: e^0 = 1, and the others lose what it gets."},
    ),
]  # fmt: skip


def changes(first: int, last: int) -> Callable[[Student, Draw], None]:
    def chosen(student: Student, draw: Draw) -> None:
        check_choices("my_choices", student.value("my_choices"), CHANGES, first, last)

    return chosen


ASSIGNMENT = Assignment(
    1,
    "a1_attention_formula",
    [
        Question(
            "predict",
            "Predict scores, shares and output",
            [Step("scores", 1, scores), Step("shares", 1, shares), Step("output", 1, output)],
        ),
        Question(
            "softmax",
            "Build a softmax that large scores can't break",
            [
                Step("the rows of a matrix", 2, softmax_of_rows),
                Step("more axes", 1, softmax_of_any_axes),
                Step("large scores", 1, softmax_of_large),
                Step("rows that are far apart", 1, softmax_of_rows_apart),
            ],
            SOFTMAX + ATTENTION,
        ),
        Question(
            "attention",
            "Build attention",
            [
                Step("a mean of the values", 1, attention_is_a_mean),
                Step("comparing queries with keys", 1, attention_compares),
                Step("the whole formula", 2, attention_as_the_formula),
                Step("large scores", 1, attention_of_large_scores),
            ],
            ATTENTION,
        ),
        Question(
            "inputs",
            "Break it: find the input that shows a mistake",
            [
                Step("an input that shows the scale", 1, shows_scale),
                Step("an input that hides it", 2, hides_scale),
                Step("an input that shows a second softmax", 1, shows_twice),
            ],
        ),
        Question(
            "changes",
            "Explain: what does a change of the input do?",
            [
                Step("something is added", 1, changes(1, 3)),
                Step("something is reordered", 1, changes(4, 6)),
                Step("stretched scores and more keys", 1, changes(7, 10)),
            ],
        ),
    ],
)
