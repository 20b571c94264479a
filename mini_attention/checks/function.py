"""Check a function that computes attention."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ..functional import attention
from ..mistakes import MISTAKES
from ..mistakes.formula import Formula
from .answer import fork_rng
from .case import CheckFailed, Names, Program, Report, Subject, all_masked, output_of
from .engine import check
from .function_cases import cases_of_functions
from .signature import REQUIRED, Parameters, in_order, mask_among, name_of, parameters

OPTIONS = {"bias", "scale", "dropout_p"}
# The mistakes that are told by the functions' output, and the classes that make them.
NAMES = [name for name, mistake in MISTAKES.items() if "attention" in mistake.programs]


def check_attention(
    function: Callable[..., Any], *, only: Sequence[str] | None = None, seed: int = 0
) -> Report:
    """Check a function of your own that computes attention.

        function  takes query ... i d, key ... j d, value ... j e, and, where it has parameters
                  for them, a mask (True where query i may attend to key j), bias, scale and
                  dropout_p; returns the output ... i e, or a tuple that begins with it
        only      the mechanisms to check, by their names in the report; all unless given
        seed      another seed asks with other numbers

    Another signature needs an adapter of a line:
    `check_attention(lambda query, key, value, mask: mine(query, key, value, hide=~mask))`.

    Returns a report. Raises CheckFailed, an AssertionError, for the first thing that is wrong.

    >>> def mine(query, key, value):
    ...     return (query @ key.mT / key.shape[-1] ** 0.5).softmax(-1) @ value
    >>> check_attention(mine)
    right: one key, equal keys, scores, scale, rows and columns, leading axes,
      large scores, dtypes, gradients
    not checked: causal mask, mask, given scale, bias, empty rows, dropout
    note: In float16 scores are rounded, or overflow, before the softmax.
    """
    given = parameters(function)
    mask = mask_of(given or [])
    takes = {"cross", *OPTIONS.intersection(parameter.name for parameter in given or ())}
    if given is None or mask is not None:
        takes.add("mask")
    program, axes = program_of(function, given or [], None if mask is None else mask.name)
    if axes != 1:
        takes.add("heads")  # else items and heads have no axes of their own
    cases = list(cases_of_functions(seed))
    if mask is not None and mask.default is REQUIRED:
        cases = all_masked(cases)
    wrong: dict[Names, Program] = {
        (name,): Program(MISTAKES[name].programs["attention"]) for name in NAMES
    }
    usual = next(case for case in cases if case.mechanism == "leading axes")
    subject = Subject(
        program, takes, Program(attention), wrong, pairs_of_formulas, usual, name=name_of(function)
    )
    return check(subject, cases, only)


def mask_of(given: Parameters) -> inspect.Parameter | None:
    """The parameter that is called a mask, or else a fourth that could be one."""
    fourth = [
        p
        for p in given[3:4]
        if p.name not in OPTIONS and (p.default is REQUIRED or p.default is None)
    ]
    return mask_among(given) or next(iter(fourth), None)


def program_of(
    function: Callable[..., Any], given: Parameters, mask_name: str | None
) -> tuple[Program, int]:
    """The function as a program, and how many axes in front of positions it insists on."""

    def plain(*inputs: Tensor | None, **options: Any) -> Any:
        sequences, mask = in_order(given, inputs[:3]), inputs[3]
        if mask is None:
            return function(*sequences, **options)
        if mask_name is None:
            return function(*sequences, mask)
        return function(*sequences, **{mask_name: mask}, **options)

    def works(axes: int) -> bool:
        query = square[(None,) * axes]
        try:
            with fork_rng():
                plain(query, query, query, square.bool() if needs_mask else None)
        except CheckFailed:
            raise
        except Exception:  # whatever a reader's function raises
            return False
        return True

    needs_mask = any(p.name == mask_name and p.default is REQUIRED for p in given)
    square = torch.ones(2, 2)
    axes = next((axes for axes in (0, 2, 1) if works(axes)), 0)

    def raised(
        query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
    ) -> Any:
        """With axes of 1 in front, and without them in the output."""
        more = max(axes + 2 - query.ndim, 0)
        lifted = (x[(None,) * more] for x in (query, key, value))
        return output_of(plain(*lifted, mask, **options))[(0,) * more]

    return Program(raised), axes


def pairs_of_formulas() -> Iterator[tuple[Names, Program]]:
    """Two mistakes in one program, where they are in different steps of it."""
    kinds = {name: MISTAKES[name].source for name in NAMES}
    steps = {name: set(vars(kind)) & set(vars(Formula)) for name, kind in kinds.items()}
    for one, other in itertools.combinations(NAMES, 2):
        if steps[one] & steps[other] <= {"__module__", "__doc__"}:
            both = type(one, (kinds[one], kinds[other]), {})  # type: ignore[arg-type]
            yield (one, other), Program(both().attention)
