"""Ask for numbers, and find out which mistake a wrong one comes from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from torch import Tensor

from course.model import Student
from mini_attention.checks import CheckFailed

from .compare import ask

Formula = Callable[[SimpleNamespace], float]
Sizes = Mapping[str, int]


def number(name: str, value: Any) -> float:
    """A number, also one in a tensor of a single element."""
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CheckFailed(f"{name} should give a number; got {_kind(value)}.")
    return value


def numbers(student: Student, name: str, count: int) -> list[float]:
    """A variable that holds so many numbers, in a list, a tuple or a tensor."""
    value = student.value(name)
    if value is ...:
        raise CheckFailed(f"Not written yet: {name}.")
    if isinstance(value, Tensor | np.ndarray):
        value = value.flatten().tolist()
    if not isinstance(value, list | tuple):
        raise CheckFailed(f"{name} should be a list of {count} numbers; got {_kind(value)}.")
    if len(value) != count:
        raise CheckFailed(f"{name} should hold {count} numbers; it holds {len(value)}.")
    return [number(f"Each entry of {name}", entry) for entry in value]


def check_function(
    student: Student,
    name: str,
    draws: Sequence[Sizes],
    right: Formula,
    wrong: Mapping[str, Formula],
) -> None:
    """Compare a function of sizes with a formula, on some draws of its arguments, in their order.

    The wrong formula that answers all of them in the same way says what the mistake is.
    """
    sizes = [SimpleNamespace(**draw) for draw in draws]
    function = student.function(name)
    got = [number(name, ask(name, function, *draw.values())) for draw in draws]
    expected = [right(each) for each in sizes]
    if all(map(close, got, expected)):
        return
    place = next(n for n, pair in enumerate(zip(got, expected, strict=True)) if not close(*pair))
    called = ", ".join(f"{key}={value}" for key, value in draws[place].items())
    said = f"{name}({called}) should be {expected[place]:,}; got {got[place]:,}."
    raise CheckFailed(f"{said} {_mistake(sizes, got, expected, wrong)}".strip())


def check_predicted(
    student: Student,
    name: str,
    right: Sequence[float],
    entries: Sequence[str],
    hints: Sequence[Mapping[float | None, str]],
) -> None:
    """Compare a list of numbers; a wrong entry has a hint of its own, or the one under None."""
    got = numbers(student, name, len(right))
    for value, expected, entry, known in zip(got, right, entries, hints, strict=True):
        if not close(value, expected, 1e-3):
            told = next((known[k] for k in known if k is not None and close(value, k, 1e-3)), None)
            raise CheckFailed(f"{name}, {entry}: {value:g} is wrong. {told or known[None]}")


def close(one: float, other: float, bound: float = 1e-9) -> bool:
    return math.isclose(one, other, rel_tol=bound, abs_tol=bound)


def _mistake(
    sizes: Sequence[SimpleNamespace],
    got: Sequence[float],
    expected: Sequence[float],
    wrong: Mapping[str, Formula],
) -> str:
    for hint, formula in wrong.items():
        if all(map(close, got, map(formula, sizes))):
            return hint
    ratios = [one / other for one, other in zip(got, expected, strict=True)]
    if all(close(ratio, ratios[0]) for ratio in ratios):
        return f"It is always {ratios[0]:g} times the right number: a factor is wrong or missing."
    return ""


def _kind(value: Any) -> str:
    return "nothing, as without a return" if value is None else f"a {type(value).__name__}"
