"""Assignment 4: masks, up to the test that finds them wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from course.assignments.compare import as_tensor, ask, expect, expect_value, same
from course.assignments.trials import catches
from course.model import Assignment, Draw, Function, Question, Step, Student
from mini_attention import attention, causal_mask, check_attention, padding_mask, window_mask
from mini_attention.checks import CheckFailed
from mini_attention.mistakes import MISTAKES

# Predict: what is left to see


def mouse_weights(student: Student, draw: Draw) -> None:
    shares = torch.tensor([2.0, 8.0, 1.0, 1.0, 4.0])
    wrong = [
        (shares / 16, "these are the weights without a mask: “mouse” may see three words"),
        (
            shares * torch.tensor([1, 1, 1, 0, 0]) / 16,
            "the shares of the future are still in the "
            "sum that you divide by: the mask acts before the softmax",
        ),
        (
            [2 / 13, 8 / 13, 1 / 13, 1 / 13, 1 / 13],
            "a score of 0 has a share of 1: hidden words get minus infinity, whose share is 0",
        ),
        ([0.2, 0.8, 0, 0, 0], "a word sees itself too"),
        ([0, 0, 0, 0.2, 0.8], "these are the words after “mouse”: the future is what is hidden"),
        (
            [0, 0, 1 / 6, 1 / 6, 4 / 6],
            "these are “mouse” and what comes after it: the future is what is hidden",
        ),
        ([2 / 12, 8 / 12, 1 / 12, 1 / 12, 0], "“mouse” sees the words up to itself, not the next"),
        ([2, 8, 1, 0, 0], "these are the shares: divide them by their sum"),
    ]
    right = [2 / 11, 8 / 11, 1 / 11, 0, 0]
    expect_value("mouse_weights", student.value("mouse_weights"), right, wrong)


def pairs_allowed(student: Student, draw: Draw) -> None:
    wrong = [
        (6, "this lines up the first query with the first key: 1 + 2 + 3"),
        (15, "these are all pairs: the first of the three may not see the last two words"),
        (3, "these are the pairs that are hidden"),
        (9, "a word sees itself too: 3 + 4 + 5"),
        (14, "a word does not see the next one: 3 + 4 + 5"),
        (25, "there are 3 queries, not 5"),
        (10, "only three words ask: 3 + 4 + 5"),
    ]
    expect_value("pairs_allowed", student.value("pairs_allowed"), 12, wrong)


def empty_rows(student: Student, draw: Draw) -> None:
    wrong = [
        ([], "the padding comes first here: what may row 0 see, under the causal mask?"),
        ([0, 1, 2], "row 2 is “mouse”, which sees itself"),
        ([0], "row 1 sees positions 0 and 1, and both are padding"),
        ([2, 3, 4], "these rows have something to see: the words up to themselves"),
        ([3, 4], "the padding is on the left here"),
        ([1, 2], "rows are counted from 0"),
        ([1], "row 0 sees position 0 alone, and that is padding"),
        ([0, 1, 2, 3, 4], "a word sees itself: the rows of words are not empty"),
    ]
    got = student.value("empty_rows")
    got = sorted(got) if isinstance(got, list | tuple) else got
    expect_value("empty_rows", got, [0, 1], wrong)


# Build: masks


def causal_square(student: Student, draw: Draw) -> None:
    for n in (5, 1, draw.integer(6, 9)):
        _expect_mask(
            f"causal({n}, {n})",
            ask("causal", student.function("causal"), n, n),
            causal_mask(n),
            {
                **_made("causal_mask", n, n),
                "rows are queries and columns are keys: it is transposed": causal_mask(n).mT,
                "everything is allowed": torch.ones(n, n, dtype=torch.bool),
                "only the token itself is seen": torch.eye(n, dtype=torch.bool),
            },
        )


def causal_last(student: Student, draw: Draw) -> None:
    for i, j in ((2, 5), (1, 7), (draw.integer(3, 5), 7)):
        ahead = torch.arange(j) - torch.arange(i)[:, None]
        _expect_mask(
            f"causal({i}, {j})",
            ask("causal", student.function("causal"), i, j),
            causal_mask(i, j),
            {
                **_made("causal_mask", i, j),
                "it is moved the wrong way: the first query is j - i places further": (
                    ahead <= i - j
                ),
                "it is moved by one place too few": ahead <= j - i - 1,
                "everything is allowed": torch.ones(i, j, dtype=torch.bool),
                "j queries and i keys: queries are rows, keys are columns": causal_mask(i, j).mT,
                "j queries and j keys, where i ask": causal_mask(j),
            },
        )


def padding(student: Student, draw: Draw) -> None:
    j = 7
    lengths = torch.tensor([5, j, 1, draw.integer(2, 6)])
    right = padding_mask(lengths, j)
    got = ask("padding", student.function("padding"), lengths.clone(), j)
    left = padding_mask(lengths, j, side="left")
    _expect_mask(
        "padding(lengths, j)",
        got,
        right,
        {
            **_made("padding_mask", lengths, j),
            "this is padding on the left": left,
            "the axis of the queries is missing: b 1 j is asked for": right[:, 0],
            "the axis of length 1 stands for the queries: b 1 j, not b j 1": right.mT,
            "it has as many queries as keys; an axis of 1 fits any number of them": (
                right.expand(-1, j, -1)
            ),
            "it has an axis too many: b 1 j": right[:, None],
            "it hides the last place of every sentence as well": padding_mask(lengths - 1, j),
        },
    )


def window(student: Student, draw: Draw) -> None:
    for i, j, before in ((7, 7, 2), (5, 5, 0), (3, 7, draw.integer(1, 3))):
        near = partial(window_mask, i, j)
        _expect_mask(
            f"window({i}, {j}, {before})",
            ask("window", student.function("window"), i, j, before),
            near(before=before),
            {
                **_made("window_mask", i, j, before=before),
                "one word too many: `before` counts the earlier ones, without the token itself": (
                    near(before=before + 1)
                ),
                "no limit backwards: only the future is hidden": near(before=None),
                "these are the later words, and the past is hidden": near(before=0, after=before),
                "the first query is lined up with the first key, not the last with the last": (
                    near(before=before, align="start")
                ),
                "the token itself is hidden": near(before=before) & ~near(before=0),
                "this is what the window hides": ~near(before=before),
                "this is the causal mask without the window": causal_mask(i, j)
                & ~near(before=before),
            },
        )


def both(student: Student, draw: Draw) -> None:
    n = 5
    lengths = torch.tensor([3, n, 1, draw.integer(2, 4)])
    keys, causal = padding_mask(lengths, n), causal_mask(n)
    _expect_mask(
        "both(lengths, n)",
        ask("both", student.function("both"), lengths.clone(), n),
        causal & keys,
        {
            "joined with “or”: a pair is allowed if both masks say yes, not one of them": (
                causal | keys
            ),
            "this is the causal mask alone": causal.expand(len(lengths), n, n),
            "the items have masks of their own: b is missing": causal,
            "this is the padding mask alone": keys.expand(-1, n, -1),
            "this is the padding mask alone, one row for all queries": keys,
            "the rows of padding are hidden as well; a padding mask hides columns": (
                causal & keys & keys.mT
            ),
            "the rows of padding are hidden, and its columns are not": causal & keys.mT,
            "joined with “exclusive or”: where both say yes it must be True": causal ^ keys,
            "this is what both hide": ~(causal & keys),
            "the causal mask is reversed": ~causal & keys,
            "the causal mask is transposed": causal.mT & keys,
            "the padding mask is inverted": causal & ~keys,
        },
    )


def _expect_mask(what: str, got: Any, right: Tensor, wrong: Mapping[str, Tensor]) -> None:
    mask = as_tensor(what, got)
    if mask.dtype != torch.bool:
        raise CheckFailed(f"{what}: a mask is boolean; got {mask.dtype}")
    expect(what, mask, right, wrong)


def _made(builder: str, *arguments: Any, **options: Any) -> dict[str, Tensor]:
    """What the package's wrong builders make, under what they do wrong."""
    return {
        f"{mistake.what} {mistake.looks_like}": mistake.programs[builder](*arguments, **options)
        for mistake in MISTAKES.values()
        if builder in mistake.programs
    }


# Build: attention under a mask

CONFUSED = (
    "mask inverted",
    "mask ignored",
    "mask added",
    "mask multiplied",
    "mask after softmax",
    "first mask for all",
    "finite fill",
    "empty rows give nan",
)


def nothing_hidden(student: Student, draw: Draw) -> None:
    _check(student, "one key", "equal keys", "scores", "scale", "rows and columns", "leading axes")
    _compare(student, draw, torch.ones(2, 1, 5, 7, dtype=torch.bool))


def keys_hidden(student: Student, draw: Draw) -> None:
    _compare(student, draw, draw.mask(2, 1, 5, 7))
    _compare(student, draw, draw.mask(1, 3, 5, 7))
    mask = draw.mask(2, 3, 5, 7)
    mask[..., 0, 3], mask[..., 1, 3] = False, True
    _compare(student, draw, mask, loud=True)
    _check(student, "causal mask", "mask")


def rows_empty(student: Student, draw: Draw) -> None:
    _compare(student, draw, _with_empty_rows(draw))


def gradients(student: Student, draw: Draw) -> None:
    function = student.function("masked_attention")
    for mask in (draw.mask(2, 3, 5, 7), _with_empty_rows(draw)):
        inputs, upstream = _inputs(draw), draw.randn(2, 3, 5, 13)
        got, wanted = (_gradients(f, inputs, mask, upstream) for f in (function, attention))
        for name, one, other in zip(("query", "key", "value"), got, wanted, strict=True):
            if not one.isfinite().all():
                raise CheckFailed(
                    f"the gradient of {name} is NaN: minus infinity was added, or a softmax of "
                    "nothing but minus infinities was cleared too late. Replace the scores "
                    "(masked_fill), and clear the weights by filling, too"
                )
            none = "it gets none: something is detached from the graph on the way"
            expect(f"the gradient of {name}", one, other, {none: torch.zeros_like(other)})


def _check(student: Student, *mechanisms: str) -> None:
    """The package's check, which names the mistake."""
    theirs = student.function("masked_attention")

    def masked_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Any:
        return theirs(query, key, value, mask)  # by position, whatever the arguments are called

    check_attention(masked_attention, only=mechanisms)


def _inputs(draw: Draw) -> list[Tensor]:
    return [draw.randn(2, 3, n, size) for n, size in ((5, 11), (7, 11), (7, 13))]


def _with_empty_rows(draw: Draw) -> Tensor:
    mask = draw.mask(2, 1, 5, 7)
    mask[0, 0, 1], mask[1, 0, 4] = False, False
    return mask


def _compare(student: Student, draw: Draw, mask: Tensor, *, loud: bool = False) -> None:
    """With `loud`, key 3 is far ahead for query 0, which is not to see it."""
    query, key, value = _inputs(draw)
    if loud:
        key[..., 3, :] = 1000 * query[..., 0, :]
    got = ask("masked_attention", student.function("masked_attention"), query, key, value, mask)
    wrong = {
        f"{MISTAKES[name].what} {MISTAKES[name].looks_like}": _wrong(name)(query, key, value, mask)
        for name in CONFUSED
    }
    mistake = MISTAKES["renormalised after softmax"]
    wrong[f"{mistake.what} {mistake.looks_like}"] = _renormalised(query, key, value, mask)
    expect("masked_attention", got, attention(query, key, value, mask), wrong)


def _renormalised(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """As it is written by hand: what the package adds around its formula hides a part of it."""
    kept = (query @ key.mT / math.sqrt(query.shape[-1])).softmax(-1) * mask
    return kept / kept.sum(-1, keepdim=True) @ value


def _gradients(
    function: Callable[..., Any], inputs: list[Tensor], mask: Tensor, upstream: Tensor
) -> list[Tensor]:
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    output = ask("masked_attention", function, *leaves, mask)
    if not isinstance(output, Tensor) or output.shape != upstream.shape:
        raise CheckFailed("the output is not right yet: see the steps before")
    if not output.requires_grad:
        raise CheckFailed("the gradients: there are none, the output is detached from the graph")
    upstream = upstream.to(output.dtype)
    return list(torch.autograd.grad(output, leaves, upstream, materialize_grads=True))


# Break: four roads that are not minus infinity; the third key is hidden in all of them

SEEN = torch.tensor([True, True, False])
FILL = -10_000.0


def renormalised(scores: Tensor) -> Tensor:
    kept = torch.softmax(scores, -1) * SEEN
    return kept / kept.sum(-1, keepdim=True)


def filled(scores: Tensor) -> Tensor:
    return torch.softmax(scores.masked_fill(~SEEN, FILL), -1)


def weights_times_0(scores: Tensor) -> Tensor:
    return torch.softmax(scores, -1) * SEEN


def scores_times_0(scores: Tensor) -> Tensor:
    return torch.softmax(scores * SEEN, -1)


def right_weights(scores: Tensor) -> Tensor:
    return torch.softmax(scores.masked_fill(~SEEN, -math.inf), -1)


def breaks_renormalised(student: Student, draw: Draw) -> None:
    scores = _three(student, "breaks_renormalised")
    if not renormalised(scores).isfinite().all():
        return
    ahead = scores[2] - scores[:2].max()
    if ahead <= 0:
        raise CheckFailed(
            "breaks_renormalised: the softmax measures all scores against the largest. Which one "
            "must be the largest, so that nothing is left of those that are seen?"
        )
    raise CheckFailed(
        f"breaks_renormalised: the hidden score is {ahead:.0f} ahead of the best seen one, and the "
        f"seen shares, e^-{ahead:.0f}, are still numbers above 0 in float32. Go further"
    )


def breaks_filled(student: Student, draw: Draw) -> None:
    scores = _three(student, "breaks_filled")
    if filled(scores)[2] > 0.5:
        return
    if scores[:2].max() > FILL:
        raise CheckFailed(
            f"breaks_filled: a seen key has the score {scores[:2].max():.0f}, which is above the "
            "fill of -10,000, so the hidden one gets next to nothing. The hidden key's own score "
            "plays no part: it is replaced"
        )
    raise CheckFailed(
        "breaks_filled: the hidden key does not get more than half: both seen scores have to be "
        "below the fill, not as large as it"
    )


def leaks(student: Student, draw: Draw) -> None:
    rows = student.value("leaks")
    if not isinstance(rows, list | tuple) or len(rows) != 2:
        raise CheckFailed("leaks: two rows of three scores are expected")
    one, other = (_row("leaks", row) for row in rows)
    if not torch.equal(one[:2], other[:2]):
        raise CheckFailed(
            "leaks: the rows may differ in the hidden score alone; else anything could be the cause"
        )
    moved = (weights_times_0(one) - weights_times_0(other)).abs().max()
    if moved <= 0.1:
        raise CheckFailed(
            f"leaks: a seen weight moves by {moved:.2f}, and more than 0.1 is asked for. In one "
            "row the hidden key should take next to nothing from the sum, in the other nearly all"
        )


def unnoticed(student: Student, draw: Draw) -> None:
    scores = _three(student, "unnoticed")
    given = scores_times_0(scores)
    if same(given, right_weights(scores)) and given[2] < 1e-6:
        return
    raise CheckFailed(
        f"unnoticed: the hidden key has the weight {given[2]:.2g}. Its score becomes 0 and its "
        "share 1, whatever you write there; how large must a seen share be for 1 to vanish?"
    )


def _three(student: Student, name: str) -> Tensor:
    return _row(name, student.value(name))


def _row(name: str, given: Any) -> Tensor:
    given = given.tolist() if isinstance(given, Tensor) else given
    if not isinstance(given, list | tuple) or len(given) != 3:
        raise CheckFailed(f"{name}: three scores are expected; got {given!r}")
    if not all(isinstance(x, int | float) and not isinstance(x, bool) for x in given):
        raise CheckFailed(f"{name}: scores are numbers; got {given!r}")
    if not all(abs(x) < 1e30 for x in given):
        raise CheckFailed(f"{name}: the scores have to be finite numbers that float32 holds")
    return torch.tensor(given, dtype=torch.float32)


# Write the test

PROGRAMS = {
    "mask inverted": "which sense",
    "mask ignored": "whether a mask does anything",
    "mask transposed": "which axis is the query",
    "softmax over queries": "along which axis weights sum to 1",
    "mask added": "ones and zeros that are added",
    "mask multiplied": "a score of 0",
    "mask after softmax": "what the rows sum to",
    "renormalised after softmax": "a hidden key that is far ahead",
    "first mask for all": "items with masks of their own",
    "finite fill": "a row with nothing to see",
    "empty rows give nan": "NaN in such a row",
    "empty rows poison gradients": "the gradients of such a row",
}

HINTS = {
    "renormalised after softmax": "Hide the key from one query and let another see it: these "
    "programs put zeros in the place of a key that nobody sees.",
    "finite fill": "Ask for the output of a row that is False throughout.",
    "first mask for all": "Give two items different masks.",
}

BUILDERS = tuple(
    f"mini_attention.{name}"
    for name in ("causal_mask", "padding_mask", "window_mask", "document_mask")
)
FINISHED = (
    "mini_attention.attention",
    "mini_attention.attention_weights",
    "mini_attention.fused_attention",
    "mini_attention.blocked_attention",
    "mini_attention.SingleHeadAttention.forward",
    "mini_attention.MultiHeadAttention.forward",
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.functional.multi_head_attention_forward",
    "torch.nn.MultiheadAttention.forward",
)


def _catches(name: str) -> Callable[[Student, Draw], None]:
    return catches("test_attend", name, _wrong, tuple(PROGRAMS), HINTS.get(name, ""))


def _wrong(name: str) -> Function:
    program: Function = MISTAKES[name].programs["attention"]
    return program


ASSIGNMENT = Assignment(
    4,
    "a4_masks",
    [
        Question(
            "predict-masks",
            "Predict what is left to see",
            [
                Step("weights under a causal mask", 1, mouse_weights),
                Step("the last words as queries", 1, pairs_allowed),
                Step("rows with nothing to see", 1, empty_rows),
            ],
        ),
        Question(
            "build-masks",
            "Build masks",
            [
                Step("causal", 1, causal_square),
                Step("causal, with fewer queries than keys", 1, causal_last),
                Step("padding", 1, padding),
                Step("window", 1, window),
                Step("causal and padding", 1, both),
            ],
            forbidden=BUILDERS,
        ),
        Question(
            "masked-attention",
            "Attention under a mask",
            [
                Step("nothing hidden", 1, nothing_hidden),
                Step("hidden keys", 1, keys_hidden),
                Step("rows with nothing to see", 1, rows_empty),
                Step("gradients", 1, gradients),
            ],
            forbidden=FINISHED,
        ),
        Question(
            "other-roads",
            "Break the other roads",
            [
                Step("divided by the new sum", 1, breaks_renormalised),
                Step("a large negative number", 1, breaks_filled),
                Step("weights times 0", 1, leaks),
                Step("scores times 0, unnoticed", 1, unnoticed),
            ],
        ),
        Question(
            "write-the-test",
            "Write the test",
            [Step(asks, 1, _catches(name)) for name, asks in PROGRAMS.items()],
            forbidden=("mini_attention.check_attention", "mini_attention.check_multi_head"),
        ),
    ],
)
