"""What is asked: a program, a case that is put to it, and what comes of all cases."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..mistakes import MISTAKES, Mistake

Names = tuple[str, ...]  # of one mistake, or of two made at once
WIDTH = 79  # characters of a line, as in the book


class CheckFailed(AssertionError):
    """What was expected, what came, on which input, and which mistake it looks like."""


class Unfit(Exception):
    """An answer of the wrong kind; the text says what it is, and what helps."""


@dataclass(frozen=True)
class Report:
    """What a check has found right, what it could not look at, and what is worth knowing."""

    passed: Sequence[str]
    skipped: Sequence[str]
    notes: Sequence[str]

    def __repr__(self) -> str:
        lines = ["right: " + ", ".join(self.passed)]
        if self.skipped:
            lines.append("not checked: " + ", ".join(self.skipped))
        lines += ["note: " + note for note in self.notes]
        return "\n".join(map(wrapped, lines))


def output_of(result: Any) -> Tensor:
    """What a program returns, or the first of several things."""
    first = result[0] if isinstance(result, tuple) and result else result
    if not isinstance(first, Tensor):
        returned = type(result).__name__
        raise TypeError(f"the output, or a tuple that begins with it, is expected; got {returned}")
    return first


@dataclass(frozen=True)
class Program:
    """Something that answers: called with the inputs, a mask (or None) and options.

    The last of its outputs is the one that is differentiated.
    """

    call: Callable[..., Any]
    parameters: Callable[[torch.dtype], Mapping[str, Tensor]] = lambda dtype: {}
    outputs: Callable[[Any], Mapping[str, Tensor]] = lambda result: {"output": output_of(result)}


@dataclass(frozen=True)
class Case:
    """One call, and what should come of it."""

    mechanism: str
    expects: str
    inputs: Mapping[str, Any]  # query, key and value, or what else the program is a function of
    mask: Tensor | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: frozenset[str] = frozenset()  # what the program has to take, beside mask and options
    read: Callable[[Tensor], Tensor] = lambda output: output  # what of the output is compared
    gradients: bool = False
    again: bool = False  # a second call has to give the same
    strict: bool = False  # float64 is no answer to float32
    whole: int = 0  # elements that no tensor on the way may have
    means: str = ""  # the only mistake that a failure can mean
    note: str = ""  # what a failure is worth telling, where it is no error

    def is_for(self, takes: set[str]) -> bool:
        masked = {"mask"} if self.mask is not None else set()
        return {*self.needs, *self.options, *masked} <= takes


@dataclass(frozen=True)
class Subject:
    """A program to check, what it takes beside query, key and value, and its rivals."""

    program: Program
    takes: set[str]
    right: Program
    wrong: Mapping[Names, Program]  # with one mistake
    twice_wrong: Callable[[], Iterator[tuple[Names, Program]]] = lambda: iter(())  # with two
    usual: Case | None = None  # items of several tokens, to watch a mistake that has no name
    projects: bool = False  # as a layer does: its output is no mean of the values themselves
    mistakes: Mapping[str, Mistake] = field(default_factory=lambda: MISTAKES)
    name: str = "your function"
    arguments: str = "query, key, value"  # what an adapter has to take


def all_masked(cases: Iterable[Case]) -> list[Case]:
    """The cases for a program that can't do without a mask: where there is none it is all True."""

    def everything(case: Case) -> Tensor:
        query, key, _ = case.inputs.values()
        return torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool)

    return [c if c.mask is not None else replace(c, mask=everything(c), whole=0) for c in cases]


def wrapped(line: str) -> str:
    return textwrap.fill(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
