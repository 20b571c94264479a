"""Who is compared: functions of query, key and value, and whole layers, on the same numbers.

Every rival of a case gets the same inputs, the same parameters and, in training, the same
gradient of its output. `assert_same` holds their results together before anything is timed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mini_attention import (
    MultiHeadAttention,
    attention,
    blocked_attention,
    causal_mask,
    cost,
    fused_attention,
    mask_to_torch,
    rules,
)

BARE = "bare"  # torch's kernel with nothing around it: what the others are measured by
LARGEST = 2**28  # bytes of an i j matrix; beyond, rivals that make one don't take part
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")


@dataclass(frozen=True)
class Case:
    """The sizes and the task. A layer has `num_heads * d_head` features."""

    n: int
    batch: int = 1
    num_heads: int = 8
    d_head: int = 64
    training: bool = False  # forward and backward in training mode, else forward in evaluation
    causal: bool = False
    device: str = "cpu"
    dtype: str = "float32"

    @property
    def d_model(self) -> int:
        return self.num_heads * self.d_head

    @property
    def matrix_bytes(self) -> int:
        """The scores, which are in float32 whatever the dtype."""
        return 4 * self.batch * self.num_heads * self.n**2

    def randn(self, *shape: int) -> Tensor:
        drawn = torch.randn(*shape, device=self.device, dtype=getattr(torch, self.dtype))
        return drawn.requires_grad_(self.training)


class Outcome(NamedTuple):
    output: Tensor
    weights: Tensor | None = None  # b h i j, or b i j where they are averaged over the heads
    gradients: tuple[Tensor, ...] = ()  # of the inputs, then of the parameters


Call = Callable[[], Outcome]
Forward = Callable[[], tuple[Tensor, Tensor | None]]


def functions(case: Case, *, compiled: bool = True) -> dict[str, Call]:
    """The attention core: query, key and value of shape `b h n d`."""
    torch.manual_seed(0)
    q, k, v, upstream = (
        case.randn(case.batch, case.num_heads, case.n, case.d_head) for _ in range(4)
    )
    rule = causal_rule(case)
    attends: dict[str, Callable[..., Tensor]] = {
        BARE: partial(F.scaled_dot_product_attention, is_causal=case.causal),
        "fused_attention": partial(fused_attention, mask=rule),
        "blocked_attention": partial(blocked_attention, mask=rule),
    }
    if case.matrix_bytes <= LARGEST:
        tensor = causal_tensor(case)
        attends["attention"] = partial(attention, mask=tensor)
        if compiled and has_compiler(case.device):
            torch.compiler.reset()  # or after eight sizes it would give up in silence
            attends["compiled attention"] = partial(
                torch.compile(attention, dynamic=False), mask=tensor
            )

    def forward(attend: Callable[..., Tensor]) -> Forward:
        return lambda: (attend(q, k, v), None)

    return {
        name: _call(forward(attend), (q, k, v), upstream.detach(), case.training)
        for name, attend in attends.items()
    }


def layers(case: Case) -> dict[str, Call]:
    """Self-attention with its projections: inputs of shape `b n m`."""
    torch.manual_seed(0)
    layer = MultiHeadAttention(case.d_model, case.num_heads).train(case.training)
    layer.to(case.device, getattr(torch, case.dtype))
    blocks = MultiHeadAttention(case.d_model, case.num_heads, attend=blocked_attention)
    share_projections(layer, blocks.train(case.training), PROJECTIONS)
    x, upstream = (case.randn(case.batch, case.n, case.d_model) for _ in range(2))
    rule = causal_rule(case)

    forwards: dict[str, Forward] = {
        BARE: lambda: (bare_layer(layer, x, case), None),
        "MultiHeadAttention": lambda: (layer(x, mask=rule), None),
        "MultiHeadAttention, blocked": lambda: (blocks(x, mask=rule), None),
    }
    if (other := x_transformers()) is not None:
        rival = from_elsewhere(other.Attention, layer, case)
        forwards["x_transformers.Attention"] = lambda: (rival(x), None)
    if case.matrix_bytes <= LARGEST:
        forwards["MultiHeadAttention, weights"] = lambda: layer(x, mask=rule, return_weights=True)
    reference = layer.to_torch()
    projections = [getattr(layer, name) for name in PROJECTIONS]
    ours = [*(p.weight for p in projections), *(p.bias for p in projections)]
    # Torch keeps three projections in one parameter; laid end to end they are in our order.
    theirs = [reference.in_proj_weight, reference.out_proj.weight]
    theirs += [reference.in_proj_bias, reference.out_proj.bias]
    return {
        name: _call(forward, (x, *parameters), upstream.detach(), case.training)
        for parameters, rivals in ((ours, forwards), (theirs, torch_layers(reference, x, case)))
        for name, forward in rivals.items()
    }


def torch_layers(reference: nn.MultiheadAttention, x: Tensor, case: Case) -> dict[str, Forward]:
    if case.n**2 > LARGEST:  # it wants a causal mask as a tensor, even where it leaves it aside
        return {}
    mask = causal_tensor(case)
    hidden = None if mask is None else mask_to_torch(mask, num_heads=case.num_heads)
    attend = partial(reference, x, x, x, attn_mask=hidden)
    # is_causal lets torch leave the mask aside, unless it returns weights.
    forwards: dict[str, Forward] = {
        "nn.MultiheadAttention": lambda: attend(need_weights=False, is_causal=case.causal)
    }
    if case.matrix_bytes <= LARGEST:
        forwards["nn.MultiheadAttention, weights"] = partial(attend, average_attn_weights=False)
        forwards["nn.MultiheadAttention, mean weights"] = attend
    return forwards


def from_elsewhere(attention: Any, layer: MultiHeadAttention, case: Case) -> nn.Module:
    """A layer of x-transformers; its own projections have no biases, and get ours."""
    sizes = {"dim": case.d_model, "heads": case.num_heads, "dim_head": case.d_head}
    rival: nn.Module = attention(**sizes, causal=case.causal, flash=True).train(case.training)
    share_projections(layer, rival, ("to_q", "to_k", "to_v", "to_out"))
    return rival


KINDS: dict[str, Callable[[Case], dict[str, Call]]] = {"functions": functions, "layers": layers}


def bare_layer(layer: MultiHeadAttention, x: Tensor, case: Case) -> Tensor:
    """What a layer can't do without: four projections and torch's kernel."""
    q, k, v = (
        project(x).view(case.batch, case.n, case.num_heads, -1).transpose(1, 2)
        for project in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    heads = F.scaled_dot_product_attention(q, k, v, is_causal=case.causal)
    output: Tensor = layer.out_proj(heads.transpose(1, 2).flatten(-2))
    return output


def share_projections(layer: MultiHeadAttention, rival: nn.Module, names: Sequence[str]) -> None:
    for ours, theirs in zip(PROJECTIONS, names, strict=True):
        setattr(rival, theirs, getattr(layer, ours))


def causal_rule(case: Case) -> rules.MaskRule | None:
    return rules.causal(case.n) if case.causal else None


def causal_tensor(case: Case) -> Tensor | None:
    return causal_mask(case.n, device=case.device) if case.causal else None


def _call(forward: Forward, inputs: tuple[Tensor, ...], upstream: Tensor, training: bool) -> Call:
    def evaluate() -> Outcome:
        with torch.no_grad():
            return Outcome(*forward())

    def train() -> Outcome:
        output, weights = forward()
        return Outcome(output, weights, torch.autograd.grad(output, inputs, upstream))

    return train if training else evaluate


@cache
def x_transformers() -> Any:
    """The package, or None where it is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it uses torch.jit
            return import_module("x_transformers")
    except ModuleNotFoundError:
        return None


@cache
def has_compiler(device: str) -> bool:
    try:
        torch.compile(torch.exp)(torch.zeros(2, device=device))
    except RuntimeError:
        return False
    return True


def missing() -> dict[str, str]:
    """Rivals that can't take part here, and why."""
    return {
        name: why
        for name, why, present in (
            ("x_transformers.Attention", "x-transformers is not installed", x_transformers()),
            ("compiled attention", "torch.compile finds no compiler", has_compiler("cpu")),
        )
        if not present
    }


def assert_same(calls: Mapping[str, Call]) -> None:
    """Stop unless all rivals give the same outputs, weights and gradients."""
    expected: dict[str, Tensor] = {}
    for name, call in calls.items():
        for what, actual in _pieces(call()).items():
            _assert_close(f"{what} of {name}", actual, expected.setdefault(what, actual))


def _pieces(outcome: Outcome) -> dict[str, Tensor]:
    pieces = {"output": outcome.output}
    if outcome.weights is not None:
        per_head = outcome.weights.ndim == 4
        pieces |= {"weights": outcome.weights} if per_head else {}
        pieces["mean weights"] = outcome.weights.mean(1) if per_head else outcome.weights
    if outcome.gradients:
        pieces["first gradient"], *others = outcome.gradients
        pieces["other gradients"] = torch.cat([gradient.flatten() for gradient in others])
    return pieces


def _assert_close(what: str, actual: Tensor, expected: Tensor) -> None:
    """Rounding grows with the largest number that was added up."""
    half = actual.dtype in (torch.bfloat16, torch.float16)
    torch.testing.assert_close(
        actual,
        expected,
        rtol=3e-2 if half else 1e-4,
        atol=(3e-2 if half else 1e-5) * max(1.0, expected.abs().max().item()),
        msg=lambda details: f"{what} differs from the rivals': {details}",
    )


def flops(kind: str, case: Case) -> float:
    """The work that can't be avoided: the pairs that a mask leaves, and nothing done twice."""
    core = cost.attention_cost(
        b=case.batch, h=case.num_heads, i=case.n, j=case.n, d=case.d_head, e=case.d_head
    ).total.flops
    layer = cost.multi_head_cost(case.d_model, case.num_heads, case.n, batch=case.batch)
    projections = layer.total.flops - core if kind == "layers" else 0
    pairs = (case.n + 1) / (2 * case.n) if case.causal else 1.0
    return (projections + core * pairs) * (3 if case.training else 1)
