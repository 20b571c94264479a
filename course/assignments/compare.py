"""Compare an answer with the right one, and recognise the wrong ones that people give."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from course.model import Function
from mini_attention.checks import CheckFailed

# Another processor and an answer in float32 stay far below, a wrong program far above.
TOLERANCE = 1e-4
ROUNDED = 5e-3  # what a prediction may lose by being written with two or three digits


def ask(name: str, function: Function, *arguments: Any) -> Any:
    """What the function returns; CheckFailed with its words where it raises."""
    try:
        return function(*arguments)
    except CheckFailed:
        raise
    except NotImplementedError as error:
        raise CheckFailed(f"{name}: not written yet") from error
    except Exception as error:  # whatever a student's program raises
        kind = type(error).__name__
        raise CheckFailed(f"{name} raised {kind}: {str(error).strip()}") from error


def expect(what: str, got: Any, wanted: Tensor, wrong: Mapping[str, Any] | None = None) -> None:
    """Raise CheckFailed unless `got` is `wanted` within rounding.

    `wrong` has, under the hint that explains it, each answer that people give instead.
    """
    answer = as_tensor(what, got)
    if same(answer, wanted):
        return
    for hint, value in (wrong or {}).items():
        if value is not None and same(answer, value):
            raise CheckFailed(f"{what}: {hint}")
    raise CheckFailed(f"{what}: {_difference(answer, wanted)}")


def as_tensor(what: str, got: Any) -> Tensor:
    """The answer as a tensor, which nested lists of numbers may stand for."""
    if isinstance(got, Tensor):
        return got.detach()
    try:
        return torch.as_tensor(got)
    except (TypeError, ValueError, RuntimeError) as error:
        raise CheckFailed(f"{what}: a tensor is expected; got {type(got).__name__}") from error


def same(one: Tensor, other: Tensor) -> bool:
    """Whether both have one shape and, within rounding, the same numbers, in any dtype."""
    if one.shape != other.shape:
        return False
    one, other = one.detach().double(), other.detach().double()
    bound = TOLERANCE * max([1.0, *other[other.isfinite()].abs().flatten().tolist()])
    return torch.allclose(one, other, rtol=0, atol=bound, equal_nan=True)


def expect_value(name: str, got: Any, right: Any, wrong: Iterable[tuple[Any, str]]) -> None:
    """Raise CheckFailed unless a prediction is right, with the hint for the value it is."""
    if got is ...:
        raise CheckFailed(f"{name}: not filled in yet")
    if alike(got, right):
        return
    for value, hint in wrong:
        if alike(got, value):
            raise CheckFailed(f"{name}: {hint}")
    raise CheckFailed(f"{name}: {got!r} is not right, and none of the usual slips either")


def alike(one: Any, other: Any) -> bool:
    """Equal, with numbers rounded, and a list as good as a tuple or a tensor."""
    one, other = (x.tolist() if isinstance(x, Tensor) else x for x in (one, other))
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    if numbers and not isinstance(one, bool) and not isinstance(other, bool):
        return math.isclose(one, other, abs_tol=ROUNDED)
    return type(one) is type(other) and bool(one == other)


def _difference(got: Tensor, wanted: Tensor) -> str:
    if got.shape != wanted.shape:
        return f"the shape must be {tuple(wanted.shape)} here; got {tuple(got.shape)}"
    if not got.double().isfinite().all():
        return f"{int((~got.isfinite()).sum())} numbers are not finite"
    apart = (got.double() - wanted.double()).abs()
    place = tuple(int(axis) for axis in torch.unravel_index(apart.argmax(), apart.shape))
    number, right = got.double()[place].item(), wanted.double()[place].item()
    return f"at {list(place)} it has {number:.4g}, where {right:.4g} is right"
