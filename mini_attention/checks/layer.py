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
from ..heads import MultiHeadAttention
from ..mistakes import MISTAKES
from ..plug import Attend
from .answer import fork_rng
from .case import Case, Names, Program, Report, Subject, all_masked
from .engine import check
from .function import pairs_of_formulas
from .layer_cases import cases_of_layers
from .signature import REQUIRED, Parameters, in_order, mask_among, name_of, parameters

Weights = tuple[Tensor, Tensor | None]  # and biases, if there are any
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
    seed: int = 0,
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
        seed         another seed asks with other numbers

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
    rivals = Rivals(_LAYERS, _FUNCTIONS)
    return compare(module, like, list(cases_of_layers(like, seed)), rivals, names, call, only)


@dataclass(frozen=True)
class Rivals:
    """Wrong layers by the names of their mistakes, and wrong functions for a right layer."""

    layers: Mapping[str, type[nn.Module]]
    functions: Mapping[str, Attend]


def compare(
    module: nn.Module,
    like: nn.Module,
    cases: Sequence[Case],
    rivals: Rivals,
    names: Sequence[str],
    call: Callable[..., Any] | None,
    only: Sequence[str] | None,
) -> Report:
    """Put the cases to a layer, `like` which another answers; `names` are its projections."""
    given = (parameters(module if call is None else call) or [])[call is not None :]
    mask = mask_among(given)
    sequences = _sequences(given, mask)
    roles = PROJECTIONS[: len(names)]
    mask_name = "mask" if mask is None else mask.name
    theirs = _Form(sequences, roles, names, mask_name, call or _call, given)
    ours = _Form(sequences, roles, roles)
    if mask is not None and mask.default is REQUIRED:
        cases = all_masked(cases)
    usual = next(case for case in cases if case.mechanism.startswith("tokens and"))
    able = {"mask": mask is not None, "context": sequences >= 2, "cross": sequences >= 3}
    takes = {name for name, taken in able.items() if taken}
    at, by_kind, by_function = _in_any_dtype(like), rivals.layers, rivals.functions
    wrong: dict[Names, Program] = {(n,): ours.of(_wrong(at, kind)) for n, kind in by_kind.items()}
    wrong |= {(n,): ours.of(_wrong(at, attend=attend)) for n, attend in by_function.items()}

    def twice_wrong() -> Iterator[tuple[Names, Program]]:
        for (one, kind), (other, attend) in itertools.product(by_kind.items(), by_function.items()):
            yield (one, other), ours.of(_wrong(at, kind, attend))
        for pair, both in pairs_of_formulas():
            yield pair, ours.of(_wrong(at, attend=both.call))

    program, right = theirs.of(_in_any_dtype(module)), ours.of(at)
    subject = Subject(
        program, takes, right, wrong, twice_wrong, usual, projects=True, name=name_of(module)
    )
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

    sequences: int  # how many it takes: the query, or the key too, or the value too
    roles: Sequence[str]  # of the projections with known gradients: what they are
    projections: Sequence[str]  # and what they are called
    mask_name: str = "mask"
    call: Callable[..., Any] = _call
    given: Parameters | None = None

    def of(self, at: Callable[[torch.dtype], nn.Module]) -> Program:
        """The program that is a module in the dtype of its inputs."""

        def call(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Any:
            sequences = in_order(self.given or [], (query, key, value))
            masks = {} if mask is None else {self.mask_name: mask}
            return self.call(at(query.dtype), *sequences[: max(self.sequences, 1)], **masks)

        def weights(dtype: torch.dtype) -> Mapping[str, Tensor]:
            named = zip(self.roles, self.projections, strict=True)
            return {f"{r}.weight": at(dtype).get_parameter(f"{n}.weight") for r, n in named}

        return Program(call, weights)


def _sequences(given: Parameters, mask: inspect.Parameter | None) -> int:
    """How many sequences a function takes: the arguments before the mask, or those it must have."""
    if mask is not None:
        return sum(p.default in (REQUIRED, None) for p in given[: given.index(mask)])
    return sum(parameter.default is REQUIRED for parameter in given)


def _twin(
    module: nn.Module, num_heads: int | None, projections: Sequence[str]
) -> MultiHeadAttention:
    """The right layer with the module's parameters."""
    num_heads = getattr(module, "num_heads", None) if num_heads is None else num_heads
    if not isinstance(num_heads, int):
        raise ValueError("the module has no num_heads: give num_heads=")
    theirs = _four(module, projections)
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
            fill(ours, weight, bias)
    return twin


def fill(linear: nn.Linear, weight: Tensor, bias: Tensor | None) -> None:
    """Give a projection these parameters, and 0 for a bias that is not there."""
    linear.weight.copy_(weight)
    linear.bias.copy_(torch.zeros_like(linear.bias) if bias is None else bias)


def _four(module: nn.Module, projections: Sequence[str]) -> list[Weights]:
    """The parameters of queries, keys, values and output, from four linear layers or from two."""
    found = weights_and_biases(
        module,
        projections,
        (2, 4),
        "projections= must name four linear layers, those of queries, keys, values and "
        "output, or two, one for the first three together and that of the output",
        "MultiHeadAttention",
    )
    if len(found) == 4:
        return found
    (weight, bias), output = found
    biases = (None,) * 3 if bias is None else bias.tensor_split(3)
    return [*zip(weight.tensor_split(3), biases, strict=True), output]


def weights_and_biases(
    module: nn.Module, projections: Sequence[str], counts: Sequence[int], asked: str, like: str
) -> list[Weights]:
    """The parameters of the layers that are named; ValueError where they are not there."""
    all_of_it = dict(module.named_parameters(remove_duplicate=False))
    linear = [
        name.removesuffix(".weight")
        for name, parameter in all_of_it.items()
        if name.endswith(".weight") and parameter.ndim == 2
    ]
    if not set(projections) <= set(linear) or len(projections) not in counts:
        raise ValueError(
            f"{asked}; got {list(projections)}, and the module has {linear}. For other parameters "
            f"give like=, a {like} with the same numbers"
        )
    return [(all_of_it[f"{name}.weight"], all_of_it.get(f"{name}.bias")) for name in projections]


def _wrong(
    at: Callable[[torch.dtype], nn.Module],
    kind: type[nn.Module] | None = None,
    attend: Attend = attention,
) -> Callable[[torch.dtype], nn.Module]:
    """A layer of another kind with the very same parameters: nothing is copied."""

    def disguised(dtype: torch.dtype) -> nn.Module:
        layer = copy.copy(at(dtype))
        layer.__class__ = type(layer) if kind is None else kind
        layer.attend = attend  # type: ignore[assignment]
        return layer

    return disguised
