"""Check a layer that is a single attention head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from ..heads import SingleHeadAttention
from ..mistakes import MISTAKES
from ..mistakes.single import HEADS
from .answer import fork_rng
from .case import Report
from .layer import Rivals, compare, fill, weights_and_biases
from .single_cases import cases_of_single_heads

PROJECTIONS = ("q_proj", "k_proj", "v_proj")
_FUNCTIONS = {
    name: mistake.programs["attention"]
    for name, mistake in MISTAKES.items()
    if "attention" in mistake.programs and name not in HEADS
}


def check_single_head(
    module: nn.Module,
    *,
    projections: Sequence[str] = PROJECTIONS,
    like: SingleHeadAttention | None = None,
    call: Callable[..., Any] | None = None,
    only: Sequence[str] | None = None,
    seed: int = 0,
) -> Report:
    """Check a layer of your own that is one head, without an output projection.

        module       its forward takes x, b n m, or query b i m, key b j key_size and value
                     b j value_size, or two of them where the keys' input is the values' too;
                     and, where it has a parameter with "mask" in its name, a mask i j or b i j,
                     True where query i may attend to key j; it returns the output b i e, or a
                     tuple that begins with it
        projections  the names of its linear layers: those of queries, keys and values, of any
                     sizes that fit each other
        like         instead of these, the `SingleHeadAttention` that it should agree with
        call         an adapter for another signature; the module is its first argument:
                     `lambda module, x, mask: module(x, hide=~mask)`
        only         the mechanisms to check, by their names in the report; all unless given
        seed         another seed asks with other numbers

    A copy of the module is checked, in evaluation; the module itself stays as it is.

    Returns a report. Raises CheckFailed, an AssertionError, for the first thing that is wrong,
    and ValueError where it can't find the projections, or they do not fit each other.

    >>> check_single_head(SingleHeadAttention(d_model=5, d_head=3, d_value=2, key_size=7))
    right: evaluation, one token, causal mask, two tokens, cross-attention, tokens
      and items, mask, empty rows, dtypes, large scores, gradients
    """
    names = () if like is not None else tuple(projections)
    like = _twin(module, projections) if like is None else like
    cases = list(cases_of_single_heads(like, seed))
    return compare(module, like, cases, Rivals(HEADS, _FUNCTIONS), names, call, only)


def _twin(module: nn.Module, projections: Sequence[str]) -> SingleHeadAttention:
    """The right head with the module's parameters."""
    theirs = weights_and_biases(
        module,
        projections,
        (3,),
        "projections= must name three linear layers, those of queries, keys and values",
        "SingleHeadAttention",
    )
    (d_head, d_model), (compared, key_size), (d_value, value_size) = (w.shape for w, _ in theirs)
    if d_head != compared:
        raise ValueError(
            "queries and keys are compared feature by feature and need the same number; "
            f"{projections[0]} makes {d_head} and {projections[1]} makes {compared}"
        )
    with fork_rng(), torch.no_grad():
        twin = SingleHeadAttention(
            d_model, d_head, d_value=d_value, key_size=key_size, value_size=value_size
        )
        for role, (weight, bias) in zip(PROJECTIONS, theirs, strict=True):
            fill(getattr(twin, role), weight, bias)
    return twin
