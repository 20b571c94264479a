"""Check a function that builds a mask."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..mistakes import MISTAKES
from .case import Case, Names, Program, Report, Subject, Unfit
from .engine import check
from .mask_cases import CASES
from .signature import REQUIRED, by_name, matched, name_of

AXES = {"causal_mask": "i j", "window_mask": "i j", "padding_mask": "b 1 j"}


def check_mask(
    builder: Callable[..., Any],
    like: Callable[..., Tensor],
    *,
    only: Sequence[str] | None = None,
    seed: int = 0,
) -> Report:
    """Check a function of your own that builds a mask.

        builder  takes what `like` takes, or the first of it, in the same order or by the same
                 names; returns a boolean mask, True where query i may attend to key j
        like     the builder of the package that it should agree with: causal_mask, window_mask,
                 padding_mask or document_mask
        only     the mechanisms to check, by their names in the report; all unless given
        seed     another seed asks with other sizes

    Returns a report. Raises CheckFailed, an AssertionError, for the first thing that is wrong,
    and ValueError for another `like`.

    >>> from mini_attention import causal_mask
    >>> check_mask(lambda i, j: torch.ones(i, j).tril(j - i).bool(), like=causal_mask)
    right: as many queries as keys, more keys than queries, more queries than keys
    not checked: alignment
    """
    kind = getattr(like, "__name__", "")
    if kind not in CASES:
        raise ValueError(f"like must be one of {', '.join(CASES)}; got {like!r}")
    names = matched(builder, like, without="device")
    axes = AXES.get(kind, "")
    right = Program(by_name(like), outputs=_read(axes))
    wrong: dict[Names, Program] = {
        (mistake.name,): Program(by_name(mistake.programs[kind]), outputs=_read(axes))
        for mistake in MISTAKES.values()
        if kind in mistake.programs
    }
    program = Program(by_name(builder, names), outputs=_read(axes))
    asked = inspect.signature(like).parameters.values()
    needed = [parameter.name for parameter in asked if parameter.default is REQUIRED]
    subject = Subject(
        program, {*names, *needed}, right, wrong, name=name_of(builder), arguments=", ".join(needed)
    )
    must = {name for name, parameter in names.items() if parameter.default is REQUIRED}
    return check(subject, [_as_taken(case, must) for case in CASES[kind](seed)], only)


def _as_taken(case: Case, must: set[str]) -> Case:
    """The case without the arguments that go without saying, but for those that must be given."""
    sizes = case.options
    usual = {"j": sizes.get("i"), "after": 0, "align": "end", "side": "right"}
    usual["key_documents"] = sizes.get("documents")
    kept = {n: x for n, x in sizes.items() if n in must or x is not usual.get(n, REQUIRED)}
    return replace(case, options=kept)


def _read(axes: str) -> Callable[[Any], Mapping[str, Tensor]]:
    """A mask as zeros and ones, if it is one with these axes."""

    def read(result: Any) -> Mapping[str, Tensor]:
        if not isinstance(result, Tensor):
            raise Unfit(f"a mask is a tensor; this is a {type(result).__name__}")
        if result.dtype != torch.bool:
            raise Unfit(_wrong_dtype(result))
        if axes and result.ndim != len(axes.split()):
            raise Unfit(_wrong_rank(result, axes))
        return {"mask": result.to(torch.int8)}

    return read


def _wrong_dtype(mask: Tensor) -> str:
    if mask.is_floating_point() and mask.isneginf().any():
        return (
            f"the mask is {mask.dtype}: 0 and minus infinity are a bias, which is added to the "
            "scores. A mask is boolean, True where a query may attend to a key"
        )
    return (
        f"the mask is {mask.dtype}, and a mask is boolean, True where a query may attend to a key: "
        "with numbers ~mask and masked_fill go wrong. A comparison gives booleans, and so does "
        "mask.bool()"
    )


def _wrong_rank(mask: Tensor, axes: str) -> str:
    shape = tuple(mask.shape)
    if axes == "b 1 j" and mask.ndim == 2:
        return (
            f"a mask of shape {shape}, b j, has no axis for the queries, and would be read as i j: "
            "b 1 j is expected. Insert the axis: mask[:, None, :]"
        )
    return f"a mask of shape {shape} has {mask.ndim} axes; {axes} is expected"
