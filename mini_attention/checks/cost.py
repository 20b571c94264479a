"""Check a function that says what something costs."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ..mistakes import Mistake
from ..mistakes.costs import Right, factor_of, mistakes_of, sum_of, times
from .case import Case, Names, Program, Report, Subject, Unfit
from .cost_cases import cases_of_costs
from .engine import check
from .signature import REQUIRED, by_name, matched, name_of


def check_cost(
    function: Callable[..., Any],
    like: Callable[..., Any],
    *,
    column: str = "flops",
    wrong: Mapping[str, Callable[..., Any]] | None = None,
    sizes: Sequence[Mapping[str, Any]] | None = None,
    only: Sequence[str] | None = None,
    seed: int = 0,
) -> Report:
    """Check a function of your own that says what something costs.

        function  takes sizes, those that `like` takes or the first of them, in the same order
                  or by the same names; returns a number
        like      a right function: its result is a number, a dictionary of parts that add up to
                  it, or a `Cost` of `mini_attention.cost`
        column    what is asked of a `Cost`: parameters, multiply_adds, flops, elementwise, bytes
        wrong     further mistakes: what is said of each, and a function that makes it
        sizes     the sizes to ask, the smallest first; unless given, small ones, distinct primes
                  and large ones, where d_model is divisible by num_heads
        only      the mechanisms to check, by their names in the report; all unless given
        seed      another seed asks with other sizes

    Returns a report. Raises CheckFailed, an AssertionError, for the first thing that is wrong.

    >>> from mini_attention.cost import attention_cost
    >>> check_cost(lambda i, j, d, e: 2 * i * j * (d + e), like=attention_cost)
    right: ones, one by one, all together, large sizes
    """
    names = matched(function, like)
    asked = inspect.signature(like).parameters
    must = {name for name, parameter in asked.items() if parameter.default is REQUIRED}
    taken = {n: parameter.default for n, parameter in asked.items() if n in names or n in must}
    cases = list(cases_of_costs(taken, seed))
    if sizes is not None:
        what = "What comes of these sizes."
        cases = [Case("sizes", what, {}, options=given) for given in sizes]
    right = Right(like, column)
    known = mistakes_of(right, [case.options for case in cases], wrong or {})
    subject = Subject(
        _program(by_name(function, names), column),
        {name for case in cases for name in case.options},
        _of_sizes(right.total),
        {(name,): _of_sizes(mistake.programs["total"]) for name, mistake in known.items()},
        lambda: _pairs(known),
        mistakes=known,
        name=name_of(function),
        arguments=", ".join(taken),
    )
    return check(subject, cases, only)


def _pairs(known: Mapping[str, Mistake]) -> Iterator[tuple[Names, Program]]:
    """Something left out, and a factor on what is there."""
    factors = [mistake for mistake in known.values() if mistake.kind == "factor"]
    parts = [mistake for mistake in known.values() if mistake.kind == "parts"]
    for one, other in itertools.product(parts, factors):
        both = times(one.programs["total"], factor_of(other))
        yield (one.name, other.name), _of_sizes(both)


def _of_sizes(total: Callable[[Mapping[str, Any]], float]) -> Program:
    return _program(lambda no_mask, /, **sizes: total(sizes))


def _program(call: Callable[..., Any], column: str = "flops") -> Program:
    def read(result: Any) -> dict[str, torch.Tensor]:
        try:
            return {"answer": torch.tensor(sum_of(result, column), dtype=torch.float64)}
        except (TypeError, ValueError):
            raise Unfit(f"a number is expected; got {type(result).__name__}") from None

    return Program(call, outputs=read)
