"""Try a student's test on right and wrong programs: which of the wrong ones does it catch?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import torch

from course.model import Draw, Function, Missing, Student
from mini_attention import attention, blocked_attention, fused_attention
from mini_attention.checks import CheckFailed
from mini_attention.mistakes import MISTAKES

# All are right, and they round differently: a test has to pass each of them.
RIGHT: Mapping[str, Function] = {
    "attention": attention,
    "fused_attention": fused_attention,
    "blocked_attention": blocked_attention,
}
AGAIN = ["attention"]  # that come once more: each trial costs a process


@dataclass
class Trials:
    """What a test said: why it failed a right program, if so, and which wrong ones it caught."""

    failed: str = ""
    caught: set[str] = field(default_factory=set)


# The steps of a question share one round of trials, since each trial costs a process.
_of: WeakKeyDictionary[Student, Trials] = WeakKeyDictionary()


def catches(
    test: str, name: str, program: Callable[[str], Function], names: tuple[str, ...], hint: str = ""
) -> Callable[[Student, Draw], None]:
    """A step that asks whether the student's test catches the wrong program of this name."""

    def run(student: Student, draw: Draw) -> None:
        if student not in _of:
            _of[student] = _try(student, test, {n: program(n) for n in names}, draw)
        trials = _of[student]
        if trials.failed:
            raise CheckFailed(trials.failed)
        if name not in trials.caught:
            mistake = MISTAKES[name]
            told = f"{mistake.what} {mistake.looks_like} {hint}".strip()
            raise CheckFailed(f"{test} passes this program: {told}")

    return run


def _try(student: Student, test: str, wrong: Mapping[str, Function], draw: Draw) -> Trials:
    """One trial each, in an order that is drawn; the first right program that fails ends it."""
    told, programs = Trials(), [*wrong, *RIGHT, *AGAIN]
    order = torch.randperm(len(programs), generator=draw.generator).tolist()
    for name in (programs[place] for place in order):
        try:
            complaint = _complaint(student, test, wrong.get(name) or RIGHT[name])
        except Missing:
            raise
        except CheckFailed as error:  # out of time, for one: each step would be again
            told.failed = str(error)
            break
        if complaint and name in RIGHT:
            told.failed = f"{test} fails a right program, the package's {name}: {complaint}"
            break
        if complaint:
            told.caught.add(name)
    return told


def _complaint(student: Student, test: str, program: Function) -> str:
    """Why the test fails the program, an AssertionError or any other error; or an empty text."""
    try:
        return student.catches(test, program)
    except (Missing, CheckFailed):
        raise
    except NotImplementedError as error:
        raise CheckFailed(f"{test}: not written yet") from error
    except Exception as error:  # whatever a test lets through
        return f"{type(error).__name__}: {str(error).strip()}"
