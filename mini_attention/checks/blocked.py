"""Check attention in blocks, and the step that merges two of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..functional import attention
from ..mistakes import MISTAKES, RUNNING
from ..mistakes.running import Running
from .answer import answer
from .blocked_cases import cases_of_blocks, cases_of_merges
from .case import Names, Program, Report, Subject, Unfit, all_masked
from .engine import check
from .function import NAMES, OPTIONS, mask_of, pairs_of_formulas, program_of
from .signature import REQUIRED, name_of, parameters

SIZES = ("block", "size", "chunk", "tile", "piece")  # one of them is in the name of the size
STATE = ("top", "total", "values")


def check_blocked(
    function: Callable[..., Any], *, only: Sequence[str] | None = None, seed: int = 0
) -> Report:
    """Check a function of your own that computes attention block by block.

        function  takes query ... i d, key ... j d, value ... j e, and a size of its blocks, in a
                  parameter with "block" or "size" in its name; where it has parameters for them
                  a mask (True where query i may attend to key j), bias and scale; returns the
                  output ... i e, or a tuple that begins with it; where it raises for leading axes
                  it is asked about matrices alone
        only      the mechanisms to check, by their names in the report; all unless given
        seed      another seed asks with other numbers

    First come the questions of `check_attention`, with all keys in one block; then those that
    only several blocks can get wrong. "memory" looks for a tensor of i x j elements on the way,
    made by torch in this process.

    Returns a report. Raises CheckFailed, an AssertionError, for the first thing that is wrong,
    and ValueError for a function without a size.

    >>> from mini_attention import blocked_attention
    >>> check_blocked(blocked_attention)
    right: one key, causal mask, equal keys, scores, scale, rows and columns,
      leading axes, mask, given scale, bias, empty rows, large scores, dtypes,
      gradients, blocks, ragged block, one key a block, large block, empty block,
      memory
    """
    given = parameters(function) or []
    size = next((p for p in given[3:] if any(word in p.name for word in SIZES)), None)
    if size is None:
        raise ValueError(
            'the size of the blocks has to be a parameter with "block" or "size" in its name, '
            f"after query, key and value; got {[p.name for p in given]}"
        )
    rest = [p for p in given if p is not size]
    mask = mask_of(rest)
    taken = {p.name for p in rest}
    takes = {"cross", "block_size", *OPTIONS.intersection(taken), *(["mask"] if mask else [])}
    program, axes = program_of(_with_size(function, size), rest, mask.name if mask else None)
    cases = list(cases_of_blocks(seed))
    if mask is not None and mask.default is REQUIRED:
        cases = all_masked(cases)
    usual = next(case for case in cases if case.mechanism == "leading axes")
    if axes != 1 and isinstance(answer(program, usual), dict):  # else it is one for matrices
        takes.add("heads")
    subject = Subject(
        program, takes, Program(_in_one(attention)), _rivals(), _pairs, usual,
        mistakes={**MISTAKES, **RUNNING}, name=name_of(function),
    )  # fmt: skip
    return check(subject, cases, only)


def _with_size(function: Callable[..., Any], size: inspect.Parameter) -> Callable[..., Any]:
    def call(*inputs: Any, block_size: int = 2, **options: Any) -> Any:
        return function(*inputs, **{size.name: block_size}, **options)

    return call


def _in_one(attend: Callable[..., Any]) -> Callable[..., Any]:
    """A function without blocks, which takes their size all the same."""

    def call(*inputs: Any, block_size: int, **options: Any) -> Any:
        return attend(*inputs, **options)

    return call


def _rivals() -> dict[Names, Program]:
    wrong: dict[Names, Program] = {
        (name,): Program(_in_one(MISTAKES[name].programs["attention"])) for name in NAMES
    }
    return wrong | {
        (name,): Program(mistake.programs["blocked_attention"])
        for name, mistake in RUNNING.items()
        if "blocked_attention" in mistake.programs
    }


def _pairs() -> Iterator[tuple[Names, Program]]:
    for names, both in pairs_of_formulas():
        yield names, Program(_in_one(both.call))


def check_merge(
    function: Callable[..., Any], *, only: Sequence[str] | None = None, seed: int = 0
) -> Report:
    """Check a function of your own that merges what is known of two pieces of a row.

        function  takes two tuples (top, total, values), or these six one by one, and returns
                  the three of both pieces as one
        top       ... i 1, the largest score of the piece; minus infinity where nothing is seen
        total     ... i 1, the sum of e^(score - top) over the keys of the piece
        values    ... i e, the sum of the values, each times its e^(score - top)
        only      the mechanisms to check, by their names in the report; all unless given
        seed      another seed asks with other numbers

    Returns a report. Raises CheckFailed, an AssertionError, for the first thing that is wrong.

    >>> def mine(one, other):
    ...     top = torch.maximum(one[0], other[0])
    ...     finite = top.masked_fill(top.isinf(), 0.0)
    ...     mine, theirs = (one[0] - finite).exp(), (other[0] - finite).exp()
    ...     total = mine * one[1] + theirs * other[1]
    ...     return top, total, mine * one[2] + theirs * other[2]
    >>> check_merge(mine)
    right: equal tops, higher top, lower top, rows, leading axes, large scores, empty
      piece, empty rows, gradients
    """
    wrong: dict[Names, Program] = {
        (name,): _merging(mistake.programs["merge"], 2)
        for name, mistake in RUNNING.items()
        if "merge" in mistake.programs
    }
    count = len([p for p in parameters(function) or [] if p.default is REQUIRED])
    subject = Subject(
        _merging(function, count), set(), _merging(Running().merge, 2), wrong,
        mistakes=RUNNING, name=name_of(function),
    )  # fmt: skip
    return check(subject, list(cases_of_merges(seed)), only)


def _merging(function: Callable[..., Any], count: int) -> Program:
    def call(*six: Tensor | None) -> Any:
        return function(*six[:6]) if count == 6 else function(tuple(six[:3]), tuple(six[3:6]))

    return Program(call, outputs=_state)


def _state(result: Any) -> Mapping[str, Tensor]:
    if not isinstance(result, tuple | list) or len(result) != 3:
        raise Unfit("three tensors are expected, in this order: top, total and values")
    if not all(isinstance(x, Tensor) for x in result):
        kinds = ", ".join(type(x).__name__ for x in result)
        raise Unfit(f"top, total and values are tensors; these are {kinds}")
    top, total, values = result
    lowest = top < -1e37  # the lowest number there is does as well as minus infinity
    return {"top": top.masked_fill(lowest, -torch.inf), "total": total, "values": values}
