"""Assignment 6: do without the n × n matrix, `book/assignments/a6_blocked_attention.ipynb`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from course.assignments.a1 import ATTENTION, SOFTMAX
from course.assignments.compare import as_tensor, ask, expect, same
from course.assignments.counts import check_predicted, numbers
from course.model import Assignment, Draw, Question, Step, Student
from mini_attention import attention, blocked_attention, causal_mask, rules
from mini_attention.checks import CheckFailed

SUMS = ("torch.logsumexp", "torch.logaddexp", "torch.logaddexp2", "torch.logcumsumexp")

State = tuple[Tensor, Tensor, Tensor]  # top and total i 1, values i e


# Question 1: two pieces by hand


ENTRIES = ("top", "total", "value of thing", "value of action", "value of lively")
POWERS = "Powers of 2 are measured from the top of the piece: 2^(s - t)."
WEIGHED = "The values are added up, each times its power, and not divided yet."
PIECES: dict[str, tuple[Sequence[float], Sequence[Mapping[float | None, str]]]] = {
    "first_piece": (
        (3, 1.375, 0.375, 1, 2.625),
        (
            {None: "The top is the largest score of the piece."},
            {
                11: "That is 2 + 8 + 1: the top has not been subtracted.",
                3: "That is the number of keys; the total is the sum of their powers.",
                1.1851: "Points are for powers of 2, and these are powers of e.",
                1.25: "“mouse” has 0 points, which is not nothing: 2^(0 - 3).",
                None: POWERS,
            },
            {3: "The top has not been subtracted.", 0.2727: WEIGHED, None: WEIGHED},
            {8: "The top has not been subtracted.", 0.7273: WEIGHED, None: WEIGHED},
            {21: "The top has not been subtracted.", 1.9091: WEIGHED, None: WEIGHED},
        ),
    ),
    "second_piece": (
        (2, 1.25, 0, 1, 1),
        (
            {
                3: "A piece has a top of its own, the largest score in it.",
                None: "The top is the largest score of the piece.",
            },
            {
                1: "“then” has 0 points, which is not nothing: 2^(0 - 2).",
                5: "That is 1 + 4: the top has not been subtracted.",
                0.625: "This piece is measured from its own top, 2.",
                2: "That is the number of keys; the total is the sum of their powers.",
                1.1353: "Points are for powers of 2, and these are powers of e.",
                None: POWERS,
            },
            {None: WEIGHED},
            {0.8: WEIGHED, 0.5: "This piece is measured from its own top, 2.", None: WEIGHED},
            {0.8: WEIGHED, 0.5: "This piece is measured from its own top, 2.", None: WEIGHED},
        ),
    ),
    "both_pieces": (
        (3, 2, 0.375, 1.5, 3.125),
        (
            {
                2: "The top of both is the larger of the two.",
                5: "The top of both is the larger of the two.",
                None: "The top of both is the larger of the two.",
            },
            {
                2.625: "Nothing has been shrunk: the totals are measured from different tops.",
                1.9375: "The piece with the lower top is shrunk, the second one here.",
                1.3125: "One factor is always 1, that of the piece which has the top.",
                1.8348: "The factor is 2^(2 - 3), a power of 2.",
                3.875: "The factor is 2^(t of the piece - new top), which is at most 1.",
                None: "The totals add up when the one with the lower top is shrunk.",
            },
            {
                0.1875: "Divided by the total, that is the output; here the values are asked for.",
                None: "The values shrink as the total does.",
            },
            {
                2: "The total has been shrunk and the values have not.",
                0.75: "Divided by the total, that is the output; here the values are asked for.",
                None: "The values shrink as the total does.",
            },
            {
                3.625: "The total has been shrunk and the values have not.",
                1.5625: "Divided by the total, that is the output; here the values are asked for.",
                None: "The values shrink as the total does.",
            },
        ),
    ),
}


def _predicted(name: str) -> Step:
    right, hints = PIECES[name]

    def run(student: Student, draw: Draw) -> None:
        check_predicted(student, name, right, ENTRIES, hints)

    return Step(name.replace("_", " "), 1, run)


# Question 2: merge


def _piece(scores: Tensor, value: Tensor) -> State:
    """Top, total and values of some keys, by powers of e: -inf, 0 and 0 where none is allowed."""
    top = scores.amax(-1, keepdim=True)
    powers = torch.exp(scores - top.clamp(min=torch.finfo(scores.dtype).min))
    return top, powers.sum(-1, keepdim=True), powers @ value


def _merged(one: State, other: State) -> State:
    top = torch.maximum(one[0], other[0])
    floor = top.clamp(min=torch.finfo(top.dtype).min)
    mine, theirs = torch.exp(one[0] - floor), torch.exp(other[0] - floor)
    return top, mine * one[1] + theirs * other[1], mine * one[2] + theirs * other[2]


def _wrong_merges(one: State, other: State) -> dict[str, State]:
    top = torch.maximum(one[0], other[0])
    mine, theirs = torch.exp(one[0] - top), torch.exp(other[0] - top)
    total, values = one[1] + other[1], one[2] + other[2]
    right = _merged(one, other)
    twos = torch.exp2(one[0] - top), torch.exp2(other[0] - top)
    halves = one[2] / one[1], other[2] / other[1]
    return {
        "these factors are powers of 2: scores are not in points here, so it is e^(t - top)": (
            top,
            twos[0] * one[1] + twos[1] * other[1],
            twos[0] * one[2] + twos[1] * other[2],
        ),
        "nothing is shrunk: totals and values are measured from different tops": (
            top,
            total,
            values,
        ),
        "the total is shrunk and the values are not": (top, right[1], values),
        "the values are shrunk and the total is not": (top, total, right[2]),
        "the two factors are swapped: the piece with the lower top is the one to shrink": (
            top,
            theirs * one[1] + mine * other[1],
            theirs * one[2] + mine * other[2],
        ),
        "the factor is e^(top of the piece - new top), at most 1; this is its inverse": (
            top,
            one[1] / mine + other[1] / theirs,
            one[2] / mine + other[2] / theirs,
        ),
        "both pieces are shrunk by both factors: the piece that has the top keeps what it has": (
            top,
            mine * theirs * total,
            mine * theirs * values,
        ),
        "the values are divided by the total already: that is done once, after the last merge": (
            *right[:2],
            right[2] / right[1],
        ),
        "an average of the two outputs: it is right only where the totals agree": (
            *right[:2],
            (halves[0] + halves[1]) / 2,
        ),
        "the top is not the larger of the two, though the rest is measured from it": (
            one[0],
            one[1] + torch.exp(other[0] - one[0]) * other[1],
            one[2] + torch.exp(other[0] - one[0]) * other[2],
        ),
        "the top is that of the first piece": (one[0], *right[1:]),
        "the top is the smaller of the two": (torch.minimum(one[0], other[0]), *right[1:]),
    }


def _check_merge(
    student: Student, what: str, one: State, other: State, rows: Tensor | None = None
) -> None:
    """One merge, looked at in some rows: with the hint of the wrong one that gives the same."""
    result = ask("merge", student.function("merge"), one, other)
    if not isinstance(result, list | tuple) or len(result) != 3:
        raise CheckFailed("merge returns three tensors: top, total and values, in this order")
    names, right = ("top", "total", "values"), _merged(one, other)
    got = [as_tensor(f"merge, its {n}", x) for n, x in zip(names, result, strict=True)]
    got[0] = got[0].where(got[0] > -1e38, -torch.inf)  # the lowest number is as good
    for name, mine, wanted in zip(names, got, right, strict=True):
        if mine.shape != wanted.shape:
            expect(f"merge, {what}, its {name}", mine, wanted)
    got, wanted_rows = _rows(got, rows), _rows(right, rows)
    if all(map(same, got, wanted_rows)):
        return
    for name, mine in zip(names, got, strict=True):
        if bool(mine.isnan().any()):
            raise CheckFailed(f"merge, {what}: {name} has NaN. {_why_nan(one, other)}")
    for hint, wrong in _wrong_merges(one, other).items():
        if all(map(same, got, _rows(wrong, rows))):
            raise CheckFailed(f"merge, {what}: {hint}.")
    for name, mine, wanted in zip(names, got, wanted_rows, strict=True):
        expect(f"merge, {what}, its {name}", mine, wanted)


def _rows(state: Sequence[Tensor], rows: Tensor | None) -> list[Tensor]:
    return [x if rows is None else x[rows] for x in state]


def _why_nan(one: State, other: State) -> str:
    if bool((torch.maximum(one[0], other[0]) == -torch.inf).any()):
        return "Both tops are -inf there, and -inf - (-inf) is not a number."
    if bool((torch.minimum(one[0], other[0]) == -torch.inf).any()):
        return "One top is -inf there: a factor of 0 is right, a factor of infinity is not."
    return "Powers overflow unless they are measured from the larger top: e^1000 is infinity."


def _pieces(draw: Draw, one: float = 0, other: float = 0, i: int = 5) -> tuple[State, State]:
    """Two pieces of 4 and of 6 keys, with something added to the scores of each."""
    sizes = ((4, one), (6, other))
    drawn = [(2 * draw.randn(i, j) + more, draw.randn(j, 3)) for j, more in sizes]
    (mine, theirs) = (_piece(*each) for each in drawn)
    return mine, theirs


def _both_have_keys(student: Student, draw: Draw) -> None:
    _check_merge(student, "two pieces", *_pieces(draw))
    _check_merge(student, "scores near 900 and -900", *_pieces(draw, 900, -900))
    _check_merge(student, "scores near -900 and 900", *_pieces(draw, -900, 900))


def _one_is_empty(student: Student, draw: Draw) -> None:
    none = -math.inf
    _check_merge(student, "the second piece is empty", *_pieces(draw, 1, none))
    _check_merge(student, "the first piece is empty", *_pieces(draw, none, 1))


def _both_are_empty(student: Student, draw: Draw) -> None:
    """Looked at are the rows that have nothing, beside others that have keys."""
    (one, other), empty = _pieces(draw), torch.arange(5) % 2 == 1
    for top, total, values in (one, other):
        top[empty], total[empty], values[empty] = -math.inf, 0, 0
    _check_merge(student, "rows with nothing in both pieces", one, other, rows=empty)


# Question 3: one number a row


def _cut(whole: Tensor, size: int, axis: int = -1) -> tuple[Tensor, ...]:
    """Pieces of `size`, the last one of what is left."""
    return torch.split(whole, size, axis)


def _log_sum(scores: Tensor) -> Tensor:
    return scores.logsumexp(-1, keepdim=True)


def _forgetful_log_sum(scores: Tensor, size: int) -> Tensor:
    """The top moves, and what was added up before it stays as it was."""
    top, total = torch.full_like(scores[:, :1], -torch.inf), torch.zeros_like(scores[:, :1])
    for piece in _cut(scores, size):
        top = torch.maximum(top, piece.amax(-1, keepdim=True))
        total = total + torch.exp(piece - top).sum(-1, keepdim=True)
    return top + total.log()


def _wrong_log_sums(scores: Tensor, size: int) -> dict[str, Tensor]:
    j = scores.shape[-1]
    whole = scores[:, : j // size * size]
    top = scores.amax(-1, keepdim=True)
    total = torch.exp(scores - top).sum(-1, keepdim=True)
    pieces = torch.cat([_log_sum(piece) for piece in _cut(scores, size)], -1)
    filled = torch.cat([scores, scores.new_zeros(len(scores), -j % size)], -1)
    return {
        "the top moves, and the total is not shrunk with it": _forgetful_log_sum(scores, size),
        "the last piece is missing where size does not divide the number of keys": (
            _log_sum(whole) if whole.shape[-1] else top
        ),
        "zeros fill up the last piece, and e^0 is not nothing": _log_sum(filled),
        "this is the total; its logarithm and the top are missing": total,
        "the top is missing: total is measured from it": total.log(),
        "the logarithm of the total is missing": top + total,
        "this is the top alone": top,
        "powers of 2 are added up, and scores are not in points here": (
            torch.log(torch.exp2(scores).sum(-1, keepdim=True))
        ),
        "the logarithm is one of base 2": _log_sum(scores) / math.log(2),
        "a sum of the pieces' logarithms is no logarithm of their sum": (
            pieces.sum(-1, keepdim=True)
        ),
        "a mean of the pieces' logarithms is no logarithm of their sum": (
            pieces.mean(-1, keepdim=True)
        ),
        "these are the keys of the last piece alone": pieces[:, -1:],
    }


def _check_log_sum(student: Student, what: str, scores: Tensor, size: int) -> None:
    name = "running_log_sum"
    got = as_tensor(name, ask(name, student.function(name), scores, size))
    if got.shape == scores.shape[:1]:
        raise CheckFailed(f"{name}: the shape is i 1, so that it broadcasts; this is i")
    if bool(got.isnan().any()):
        raise CheckFailed(f"{name}, {what}: NaN. {_nan_of_scores(scores)}")
    right = _log_sum(scores)
    if bool((got.isinf() & right.isfinite()).any()):
        raise CheckFailed(
            f"{name}, {what}: infinite. The top is subtracted before a power is taken, also of "
            "large scores."
        )
    expect(f"{name}, {what}", got, right, _wrong_log_sums(scores, size))


def _nan_of_scores(scores: Tensor) -> str:
    if bool(scores.isinf().any()):
        return "The top of a piece may be -inf, and -inf - (-inf) is not a number."
    return "Powers overflow unless the top is subtracted first."


def _sums(student: Student, draw: Draw) -> None:
    for size in (4, 3, 1, 20):
        _check_log_sum(student, f"11 scores, size={size}", 2 * draw.randn(5, 11), size)
    _check_log_sum(student, "scores near 900", 900 + draw.randn(5, 11), 4)
    _check_log_sum(student, "scores near -900", -900 + draw.randn(5, 11), 4)


def _sums_of_nothing(student: Student, draw: Draw) -> None:
    """Whole pieces at the start, in between and at the end; and one row without any key."""
    scores = draw.randn(5, 12)
    for row, keys in enumerate((slice(0, 4), slice(4, 8), slice(8, 12), slice(0, 12))):
        scores[row, keys] = -math.inf
    _check_log_sum(student, "pieces and a row of -inf", scores, 4)


def _weights(student: Student, draw: Draw) -> None:
    name = "weights_again"
    scores = 3 * draw.randn(5, 11)
    scores[3], scores[1, :4] = -math.inf, -math.inf
    log_sum, piece = _log_sum(scores), scores[:, 4:8]
    right = torch.exp(piece - log_sum).nan_to_num(0)
    got = as_tensor(name, ask(name, student.function(name), piece, log_sum))
    known = torch.arange(5) != 3
    ratio = (piece / log_sum)[known]
    hints = {
        "a weight is e^(score - log_sum); these are powers of 2": torch.exp2(piece - log_sum)[
            known
        ],
        "this is a softmax over the piece: the weights of the whole row are asked for": (
            piece.softmax(-1)[known]
        ),
        "this is the logarithm of the weights": (piece - log_sum)[known],
        "a power divided by the logarithm: the power of log_sum was meant": (
            (piece.exp() / log_sum)[known]
        ),
        "scores divided by log_sum are no weights": ratio,
        "these are powers that nothing divides": piece.exp()[known],
        "the sign is wrong: score - log_sum is at most 0": torch.exp(log_sum - piece)[known],
    }
    if got.shape == right.shape:
        expect(name, got[known], right[known], hints)
        if bool(got.isnan().any()):
            raise CheckFailed(
                f"{name}: NaN in a row whose log_sum is -inf. It has no key: its weights are 0."
            )
    expect(name, got, right)


# Questions 4 and 5: attention in pieces


Variant = Callable[[Tensor, Tensor, Tensor, int], Tensor]


def _scores(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.mT / math.sqrt(query.shape[-1])


def _folded(
    scores: Tensor, value: Tensor, size: int, totals: bool = True, values: bool = True
) -> Tensor:
    """Pieces of some keys each, merged: with the total and the values shrunk, or not."""
    state: State | None = None
    for part, v in zip(_cut(scores, size), _cut(value, size, -2), strict=True):
        new = _piece(part, v)
        both = new if state is None else _merged(state, new)
        if state is not None:
            kept = torch.exp(new[0] - both[0])
            both = (
                both[0],
                both[1] if totals else state[1] + kept * new[1],
                both[2] if values else state[2] + kept * new[2],
            )
        state = both
    assert state is not None
    return state[2] / state[1]


def _wrong_blocks(query: Tensor, key: Tensor, value: Tensor, size: int) -> dict[str, Tensor | None]:
    scores, j = _scores(query, key), len(key)
    parts = [
        p.softmax(-1) @ v for p, v in zip(_cut(scores, size), _cut(value, size, -2), strict=True)
    ]
    whole = j // size * size
    missing = -j % size
    filled = torch.cat([scores, scores.new_zeros(len(scores), missing)], -1)
    root = math.sqrt(query.shape[-1])
    return {
        "the total is shrunk when the top moves, and the values are not": (
            _folded(scores, value, size, values=False)
        ),
        "the values are shrunk when the top moves, and the total is not": (
            _folded(scores, value, size, totals=False)
        ),
        "neither total nor values are shrunk when the top moves": (
            _folded(scores, value, size, totals=False, values=False)
        ),
        "the scores are not divided by √d": (scores * root).softmax(-1) @ value,
        "the scores are divided by d, not by its root": (scores / root).softmax(-1) @ value,
        "the scores are divided by √e, where d is the number of key features": (
            (scores * root / math.sqrt(value.shape[-1])).softmax(-1) @ value
        ),
        "powers of 2 of scores that are not in points: multiply by log2(e), or take e^s": (
            (scores * math.log(2)).softmax(-1) @ value
        ),
        "the last piece is missing where size does not divide the number of keys": (
            scores[:, :whole].softmax(-1) @ value[:whole] if whole else None
        ),
        "zeros fill up the last piece and take weight: a key of zeros has the score 0": (
            filled.softmax(-1)[:, :j] @ value
        ),
        "the outputs of the pieces are averaged: right only where their totals agree": (
            torch.stack(parts).mean(0)
        ),
        "the outputs of the pieces are added up, each a softmax of its own": (
            torch.stack(parts).sum(0)
        ),
        "this is the output of the last piece alone": parts[-1],
        "the values are not divided by the total at the end": (
            torch.exp(scores - scores.amax(-1, keepdim=True)) @ value
        ),
        "these are the outputs of queries in pieces, softmax over the queries": (
            scores.softmax(-2) @ value
        ),
    }


def _inputs(draw: Draw, i: int, j: int) -> tuple[Tensor, Tensor, Tensor]:
    return 2 * draw.randn(i, 5), draw.randn(j, 5), draw.randn(j, 3)


def _check_blocked(
    student: Student, inputs: tuple[Tensor, Tensor, Tensor], size: int, what: str
) -> None:
    got = ask("blocked", student.function("blocked"), *inputs, size)
    said = f"blocked, {what}, size={size}"
    _finite(said, got, "The top is subtracted before a power is taken, also of large scores.")
    expect(said, got, attention(*inputs), _wrong_blocks(*inputs, size))


def _finite(what: str, got: object, why: str) -> None:
    answer = as_tensor(what, got)
    if not bool(answer.isfinite().all()):
        raise CheckFailed(
            f"{what}: {int((~answer.isfinite()).sum())} numbers are not finite. {why}"
        )


def _even(student: Student, draw: Draw) -> None:
    _check_blocked(student, _inputs(draw, 7, 12), 4, "7 queries, 12 keys")
    _check_blocked(student, _inputs(draw, 12, 12), 3, "12 queries, 12 keys")


def _ragged(student: Student, draw: Draw) -> None:
    for size in (4, 10, 1, 30):
        _check_blocked(student, _inputs(draw, 7, 11), size, "7 queries, 11 keys")


def _large(student: Student, draw: Draw) -> None:
    """A feature of its own adds 800 to all scores of some queries and -800 to those of others."""
    query, key, value = _inputs(draw, 7, 12)
    sign = 1.0 - 2 * (torch.arange(7)[:, None] % 2)
    query = torch.cat([query, 800 * math.sqrt(6) * sign], -1)
    key = torch.cat([key, torch.ones_like(key[:, :1])], -1)
    _check_blocked(student, (query, key, value), 4, "scores near 800 and -800")


# All scores of WIDE queries and MANY keys take 128 MiB in float32, a mask of them 32 MiB beside the
# 4 MiB of the inputs. A piece of LONG keys takes 1/2 MiB, or 1 in float64, which leaves room for
# many, and for copies of the inputs in float64. A piece of LONG queries is the whole matrix.
WIDE, MANY, LONG = 64, 2**19, 2048
MIB = 2**20
ROOM = 40 * MIB
NO_ROOM = (
    f"One piece of scores takes {4 * WIDE * LONG / MIB} MiB, all scores take "
    f"{4 * WIDE * MANY // MIB} MiB, and a mask of all pairs {WIDE * MANY // MIB} MiB: keep one "
    "piece, and of the others what a merge needs."
)


def _without_matrix(name: str, mask: rules.MaskRule | None) -> Callable[[Student, Draw], None]:
    def run(student: Student, draw: Draw) -> None:
        query = draw.randn(WIDE, 1, dtype=torch.float32)
        key, value = (draw.randn(MANY, 1, dtype=torch.float32) for _ in range(2))
        value[-WIDE:] *= 1000  # or nobody could tell that keys are hidden from some of the queries
        function = student.function(name)
        what = f"{name}, {WIDE} queries, {MANY:,} keys, size={LONG}"
        try:
            with student.extra_memory(ROOM):
                got = ask(name, function, query, key, value, LONG)
        except CheckFailed as error:
            if "memory" not in str(error):
                raise
            raise CheckFailed(f"{what}: {error} {NO_ROOM}") from error
        expect(what, got, blocked_attention(query, key, value, mask))

    return run


def _causal(student: Student, draw: Draw, i: int, j: int, size: int) -> None:
    inputs = _inputs(draw, i, j)
    said = f"blocked_causal, {i} queries, {j} keys, size={size}"
    got = ask("blocked_causal", student.function("blocked_causal"), *inputs, size)
    _finite(said, got, _why_empty(i, j))
    expect(said, got, attention(*inputs, causal_mask(i, j)), _wrong_causal(*inputs, size))


def _why_empty(i: int, j: int) -> str:
    if i > j:
        return "A query that sees nothing has the output 0; 0/0 is not a number."
    return "A piece may be empty for a row: its top is -inf, and -inf - (-inf) is not a number."


def _wrong_causal(query: Tensor, key: Tensor, value: Tensor, size: int) -> dict[str, Tensor | None]:
    i, j = len(query), len(key)
    mask, scores = causal_mask(i, j), _scores(query, key)
    at, keys = torch.arange(i)[:, None], torch.arange(j)
    filled = scores.masked_fill(~mask, -1e9).softmax(-1) @ value

    def output(mask: Tensor) -> Tensor:
        return attention(query, key, value, mask)

    return {
        "no key is hidden": output(torch.ones_like(mask)),
        "the first query stands beside the first key: the last query belongs beside the last": (
            output(causal_mask(i, j, align="start")) if i != j else None
        ),
        "a query does not see itself: its own key is allowed": output(keys < at + j - i),
        "a query sees one key too many": output(keys <= at + j - i + 1),
        "the mask is the wrong way round: it hides the earlier keys": output(keys >= at + j - i),
        "keys are counted from the start of their piece: add where the piece begins": (
            output(keys % size <= at + j - i)
        ),
        "a query that sees nothing has the output 0, and not a mean of values": (
            filled if i > j else None
        ),
        "a hidden score is -inf: 0 is a score like any other": (
            scores.masked_fill(~mask, 0).softmax(-1) @ value
        ),
        "the scores are not divided by √d": attention(query, key, value, mask, scale=1.0),
        "the total counts the hidden keys as well": (scores.softmax(-1) * mask) @ value,
    }


def _square(student: Student, draw: Draw) -> None:
    for size in (4, 5, 1):
        _causal(student, draw, 11, 11, size)


def _fewer(student: Student, draw: Draw) -> None:
    _causal(student, draw, 5, 13, 4)
    _causal(student, draw, 1, 13, 4)


def _more(student: Student, draw: Draw) -> None:
    _causal(student, draw, 13, 5, 2)
    _causal(student, draw, 13, 5, 20)


# Question 6: break and explain


def _outputs(points: Tensor, value: Tensor) -> Tensor:
    return (points * math.log(2)).softmax(-1) @ value


def _average_is_right(student: Student, draw: Draw) -> None:
    name = "average_is_right"
    points = torch.tensor(numbers(student, name, 4), dtype=torch.float64)
    if not bool(points.isfinite().all()):
        raise CheckFailed(f"{name}: four finite numbers are expected")
    if min((a - b).abs() for n, a in enumerate(points) for b in points[:n]) < 0.1:
        raise CheckFailed(f"{name}: the four scores differ from each other by 0.1 at least")
    one, other = torch.exp2(points[:2]).sum(), torch.exp2(points[2:]).sum()
    value = draw.randn(4, 3)
    averaged = (_outputs(points[:2], value[:2]) + _outputs(points[2:], value[2:])) / 2
    if not torch.allclose(averaged, _outputs(points, value), atol=1e-3, rtol=0):
        raise CheckFailed(
            f"{name}: the average is wrong there. It gives both pieces the same say, so their sums "
            f"of powers of 2 have to agree; these are {one:.4g} and {other:.4g}."
        )


def _padding_halves(student: Student, draw: Draw) -> None:
    name = "padding_halves"
    points = torch.tensor(numbers(student, name, 3), dtype=torch.float64)
    if not bool(points.isfinite().all()):
        raise CheckFailed(f"{name}: three finite numbers are expected")
    total = float(torch.exp2(points).sum())
    share = total / (total + 1)
    if not 0 < share <= 0.5 + 1e-6:
        raise CheckFailed(
            f"{name}: with these the padded output is {share:.3g} of the right one. The key of "
            f"zeros has the score 0, the power 1; the three have the powers {total:.4g} together."
        )


KEPT = ("bytes that the formula keeps", "bytes that blocks keep")
KEPT_HINTS: tuple[Mapping[float | None, str], Mapping[float | None, str]] = (
    {
        8_000_000: "Query, key and value are kept as well as the weights.",
        17_200_000: "The scores are not kept: a softmax needs its result alone to go back.",
        9_600_000: "The output is no factor of a product: the formula does not keep it.",
        4_600_000: "Every head has a query, a key, a value and weights: there are two.",
        2_300_000: "A number takes 4 bytes.",
        None: "Query (scaled), key, value and weights are kept, for both heads, 4 bytes a number.",
    },
    {
        1_600_000: "One number a row is kept as well, t + log2(z).",
        1_208_000: "The output is kept as well: the mean gradient of a row is made from it.",
        9_608_000: "The weights are computed again, block by block.",
        9_200_000: "The weights are computed again, block by block: that is for the formula.",
        1_616_000: "One number a row is kept, t + log2(z), and not both t and z.",
        804_000: "Every head has a query, a key, a value, an output: there are two.",
        402_000: "A number takes 4 bytes.",
        None: "Query, key, value, output and one number a row are kept, for both heads.",
    },
)


def _kept(student: Student, draw: Draw) -> None:
    check_predicted(student, "kept_bytes", (9_200_000, 1_608_000), KEPT, KEPT_HINTS)


ASSIGNMENT = Assignment(
    6,
    "a6_blocked_attention",
    (
        Question("predict", "Two pieces by hand", [_predicted(name) for name in PIECES]),
        Question(
            "merge",
            "Merge two pieces",
            [
                Step("both have keys", 1, _both_have_keys),
                Step("one is empty", 1, _one_is_empty),
                Step("both are empty", 1, _both_are_empty),
            ],
            (*SUMS, *SOFTMAX),
        ),
        Question(
            "log-sum",
            "One number a row",
            [
                Step("log-sum", 1, _sums),
                Step("nothing allowed", 1, _sums_of_nothing),
                Step("weights", 1, _weights),
            ],
            (*SUMS, *SOFTMAX),
        ),
        Question(
            "blocked",
            "Attention in pieces",
            [
                Step("pieces", 1, _even),
                Step("ragged", 1, _ragged),
                Step("large scores", 1, _large),
                Step("no matrix", 1, _without_matrix("blocked", None)),
            ],
            ATTENTION,
        ),
        Question(
            "blocked-causal",
            "Look back only",
            [
                Step("as many queries as keys", 1, _square),
                Step("fewer queries", 1, _fewer),
                Step("more queries", 1, _more),
                Step("no matrix", 1, _without_matrix("blocked_causal", rules.causal(WIDE, MANY))),
            ],
            ATTENTION,
        ),
        Question(
            "break-and-explain",
            "Break and explain",
            [
                Step("average", 1, _average_is_right),
                Step("padding", 1, _padding_halves),
                Step("bytes", 1, _kept),
            ],
        ),
    ),
)
