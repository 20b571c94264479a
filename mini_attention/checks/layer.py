"""Check a layer that computes multi-head attention."""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..functional import attention
from ..heads import Attend, MultiHeadAttention
from ..mistakes import MISTAKES
from ..mistakes.layers import Layer
from .engine import Names, Program, Report, Subject, all_masked, check, fork_rng
from .function import pairs_of_formulas
from .layer_cases import cases_of_layers
from .signature import REQUIRED, Parameters, in_order, mask_among, parameters

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")
# Wrong layers, and wrong functions for a right layer to attend with.
_LAYERS: dict[str, Any] = {
    name: mistake.programs["MultiHeadAttention"]
    for name, mistake in MISTAKES.items()
    if "MultiHeadAttention" in mistake.programs
}
_FUNCTIONS = {
    name: mistake.programs["attention"]
    for name, mistake in MISTAKES.items()
    if "attention" in mistake.programs
}


def check_multi_head(
    module: nn.Module,
    *,
    num_heads: int | None = None,
    projections: Sequence[str] = PROJECTIONS,
    like: MultiHeadAttention | None = None,
    call: Callable[..., Any] | None = None,
    only: Sequence[str] | None = None,
) -> Report:
    """Check a layer of your own that computes multi-head attention.

        module       its forward takes x, or query, key and value, all b n m, and, where it has a
                     parameter with "mask" in its name, a mask i j or b i j, True where query i
                     may attend to key j; it returns the output, or a tuple that begins with it
        num_heads    the number of its heads, module.num_heads unless given
        projections  the names of its linear layers: those of queries, keys, values and output,
                     or of two, where one makes queries, keys and values together
        like         instead of these two, the `MultiHeadAttention` that it should agree with
        call         an adapter for another signature; the module is its first argument:
                     `lambda module, x, mask: module(x, hide=~mask)`
        only         the mechanisms to check, by their names in the report; all unless given

    A copy of the module is checked, in evaluation; the module itself stays as it is.

    Returns a report. Raises CheckFailed, an AssertionError, for the first thing that is wrong,
    and ValueError where it can't find the heads or the projections.

    >>> check_multi_head(MultiHeadAttention(d_model=6, num_heads=3))
    right: evaluation, one token, causal mask, two tokens, tokens and heads,
      cross-attention, mask, empty rows, dtypes, large scores, gradients
    """
    if isinstance(module, nn.MultiheadAttention) and call is None:
        raise ValueError(
            "nn.MultiheadAttention has masks of its own: give like=MultiHeadAttention.from_torch("
            "module), and call= with mask_to_torch"
        )
    # Gradients of weights are compared where the module has each in a layer of its own.
    names = tuple(projections) if like is None and len(projections) == 4 else ()
    like = _twin(module, num_heads, projections) if like is None else like
    given = (parameters(module if call is None else call) or [])[call is not None :]
    mask = mask_among(given)
    cross = _sequences(given, mask) >= 3

    mask_name = "mask" if mask is None else mask.name
    theirs = _Form(cross, names, mask_name, call or _call, given)
    ours = _Form(cross, PROJECTIONS if names else ())
    cases = list(cases_of_layers(like))
    if mask is not None and mask.default is REQUIRED:
        cases = all_masked(cases)
    usual = next(case for case in cases if case.mechanism == "tokens and heads")
    takes = {name for name, taken in {"mask": mask, "cross": cross}.items() if taken}
    at = _in_any_dtype(like)
    wrong: dict[Names, Program] = {(n,): ours.of(_wrong(at, kind)) for n, kind in _LAYERS.items()}
    wrong |= {(n,): ours.of(_wrong(at, attend=attend)) for n, attend in _FUNCTIONS.items()}

    def twice_wrong() -> Iterator[tuple[Names, Program]]:
        for (one, kind), (other, attend) in itertools.product(_LAYERS.items(), _FUNCTIONS.items()):
            yield (one, other), ours.of(_wrong(at, kind, attend))
        for names, both in pairs_of_formulas():
            yield names, ours.of(_wrong(at, attend=both.call))

    program = theirs.of(_in_any_dtype(module))
    subject = Subject(program, takes, ours.of(at), wrong, twice_wrong, usual, projects=True)
    return check(subject, cases, only)


# Modules as programs


def _call(module: nn.Module, *sequences: Tensor, **mask: Tensor) -> Any:
    return module(*sequences, **mask)


def _in_any_dtype(module: nn.Module) -> Callable[[torch.dtype], nn.Module]:
    """Copies of a module for the dtypes that are asked for, in evaluation."""
    return functools.cache(lambda dtype: copy.deepcopy(module).eval().to(dtype))


@dataclass(frozen=True)
class _Form:
    """How a module is called, and where its projections are."""

    cross: bool  # with query, key and value, or with the query alone
    projections: Sequence[str]  # the names of the four, or none to leave their gradients out
    mask_name: str = "mask"
    call: Callable[..., Any] = _call
    given: Parameters | None = None

    def of(self, at: Callable[[torch.dtype], nn.Module]) -> Program:
        """The program that is a module in the dtype of its inputs."""

        def call(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Any:
            sequences = in_order(self.given or [], (query, key, value)) if self.cross else (query,)
            masks = {} if mask is None else {self.mask_name: mask}
            return self.call(at(query.dtype), *sequences, **masks)

        def weights(dtype: torch.dtype) -> Mapping[str, Tensor]:
            roles = zip(PROJECTIONS, self.projections, strict=False)
            return {f"{r}.weight": at(dtype).get_parameter(f"{n}.weight") for r, n in roles}

        return Program(call, weights)


def _sequences(given: Parameters, mask: inspect.Parameter | None) -> int:
    """How many sequences a function takes: the arguments before the mask, or those it must have."""
    if mask is not None:
        return given.index(mask)
    return sum(parameter.default is REQUIRED for parameter in given)


def _twin(
    module: nn.Module, num_heads: int | None, projections: Sequence[str]
) -> MultiHeadAttention:
    """The right layer with the module's parameters."""
    num_heads = getattr(module, "num_heads", None) if num_heads is None else num_heads
    if not isinstance(num_heads, int):
        raise ValueError("the module has no num_heads: give num_heads=")
    theirs = _weights_and_biases(module, projections)
    sizes = [weight.shape[1] for weight, _ in theirs]
    d_model, output = sizes[0], len(theirs[-1][0])
    if d_model * num_heads == output != d_model:
        raise ValueError(
            f"the queries are made of {d_model} features and the output has {output}: is the "
            "input cut into heads before it is projected? Then a head knows its own share only"
        )
    with fork_rng(), torch.no_grad():
        twin = MultiHeadAttention(d_model, num_heads, key_size=sizes[1], value_size=sizes[2])
        for role, (weight, bias) in zip(PROJECTIONS, theirs, strict=True):
            ours = getattr(twin, role)
            if ours.weight.shape != weight.shape:
                raise ValueError(
                    f"{role}, or what stands for it, must have {ours.in_features} features in and "
                    f"{ours.out_features} out, as d_model is {d_model}; got {weight.shape[1]} and "
                    f"{weight.shape[0]}"
                )
            ours.weight.copy_(weight)
            ours.bias.copy_(torch.zeros_like(ours.bias) if bias is None else bias)
    return twin


def _weights_and_biases(
    module: nn.Module, projections: Sequence[str]
) -> list[tuple[Tensor, Tensor | None]]:
    """Those of queries, keys, values and output, from four linear layers or from two."""
    linear = {n: child for n, child in module.named_modules() if isinstance(child, nn.Linear)}
    if not set(projections) <= linear.keys() or len(projections) not in (2, 4):
        raise ValueError(
            "projections= must name four linear layers, those of queries, keys, values and "
            "output, or two, one for the first three together and that of the output; "
            f"got {list(projections)}, and the module has {list(linear)}. For other parameters "
            "give like=, a MultiHeadAttention with the same numbers"
        )
    found: list[tuple[Tensor, Tensor | None]] = [
        (linear[name].weight, linear[name].bias) for name in projections
    ]
    if len(found) == 4:
        return found
    (weight, bias), output = found
    biases = (None,) * 3 if bias is None else bias.tensor_split(3)
    return [*zip(weight.tensor_split(3), biases, strict=True), output]


def _wrong(
    at: Callable[[torch.dtype], nn.Module], kind: type[Layer] = Layer, attend: Attend = attention
) -> Callable[[torch.dtype], nn.Module]:
    """A layer of another kind with the very same parameters: nothing is copied."""

    def disguised(dtype: torch.dtype) -> nn.Module:
        layer = copy.copy(at(dtype))
        layer.__class__ = kind
        layer.attend = attend  # type: ignore[assignment]
        return layer

    return disguised
