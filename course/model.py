"""What an assignment is to the grader: questions, their steps, and what comes of them.

A question is one graded cell of an assignment's notebook, where its points stand. It is graded in
steps that do not depend on each other; each is a function of a student's work and of a source of
inputs that nobody could know before, and raises CheckFailed with a hint where something is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from mini_attention.checks import CheckFailed

Function = Callable[..., Any]


class Missing(CheckFailed):
    """What a question asks for is not there, or could not be loaded; the text says why."""


class Student(Protocol):
    """A student's work, from outside: it answers with plain data from a process of its own.

    All of these raise Missing where the notebook has no such name. What a student's program
    raises comes back as an exception of the same name and message where Python has one of the
    name, and as RuntimeError otherwise. Running out of time or memory is a CheckFailed.
    """

    def value(self, name: str) -> Any:
        """A variable: numbers, texts, None, tensors, and lists, tuples and dicts of these."""

    def function(self, name: str) -> Function:
        """A function of tensors and plain values that can be called and differentiated here."""

    def module(self, name: str, **sizes: Any) -> nn.Module:
        """An instance of a class of modules: its parameters are here, its forward is theirs."""

    def catches(self, name: str, program: Function) -> str:
        """What the student's test `name(program)` says: its AssertionError's text, or "".

        The program runs in the grader's process; each call starts the student's code anew.
        """

    def extra_memory(self, count: int) -> AbstractContextManager[None]:
        """Until the end a call may allocate so many bytes, its inputs and outputs among them."""


@dataclass(frozen=True)
class Draw:
    """Inputs that are drawn when a question is graded, the same for the same seed."""

    generator: torch.Generator

    @classmethod
    def of(cls, seed: int) -> Draw:
        return cls(torch.Generator().manual_seed(seed))

    def randn(self, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=dtype)

    def integer(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def mask(self, *shape: int, share: float = 0.6) -> Tensor:
        """True for about this share of the pairs, and for one key of every query at least."""
        mask = torch.rand(shape, generator=self.generator) < share
        some = torch.randint(shape[-1], (*shape[:-1], 1), generator=self.generator)
        return mask.scatter(-1, some, True)


@dataclass(frozen=True)
class Step:
    """One thing that is asked of an answer, and its share of the question's points."""

    name: str
    weight: int
    run: Callable[[Student, Draw], None]


@dataclass(frozen=True)
class Question:
    """A graded cell, known by its `grade_id`. `forbidden` may not be called to answer it."""

    grade_id: str
    title: str
    steps: Sequence[Step]
    forbidden: Sequence[str] = field(default=())  # such as "torch.nn.functional.softmax"


@dataclass(frozen=True)
class Assignment:
    """All questions of one notebook, `book/assignments/NAME.ipynb`."""

    number: int
    name: str
    questions: Sequence[Question]


@dataclass(frozen=True)
class Outcome:
    """What came of one step: an empty hint means that it passed."""

    step: str
    weight: int
    hint: str


@dataclass(frozen=True)
class Verdict:
    """What came of one question."""

    grade_id: str
    points: float
    most: float
    outcomes: Sequence[Outcome]
    told: Sequence[str] = ()  # what the instructor should know, such as a forbidden function

    @property
    def hints(self) -> list[str]:
        return [outcome.hint for outcome in self.outcomes if outcome.hint]
