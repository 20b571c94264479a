"""Attention without the i × j matrix: exact, one block at a time, forward and backward.

A softmax needs two numbers of each row, the largest score and the sum of the exponentials, and
both can be had piece by piece. So the forward pass goes through the scores block by block and
keeps the output and one number a row; the backward pass computes each block again.

Source: Milakov and Gimelshein, Online normalizer calculation for softmax (2018); Rabe and
Staats, Self-attention Does Not Need O(n^2) Memory (2021); Dao et al., FlashAttention (2022).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .blocks import Layout
from .contract import (
    HALF_PRECISION,
    Bias,
    Mask,
    as_computed,
    check_arguments,
    scale_or_default,
    shield,
    takes_rules,
)
from .rules import BiasRule, Finite, Stored

LOG2_E = math.log2(math.e)  # e^x is 2^(x log2 e), and exp2 takes about half the time of exp


def blocked_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask | None = None,
    *,
    bias: Bias | None = None,
    scale: float | None = None,
    block_size: int | None = None,
) -> Tensor:
    """The same as `attention`, without ever holding scores of i × j elements.

        query       ... i d
        key         ... j d
        value       ... j e
        mask        i j or ... i j, boolean, or a rule of `rules`: needed for long sequences,
                    as a tensor of that shape has i × j elements itself
        bias        i j or ... i j, or a rule; a tensor may need a gradient
        scale       a number, 1 / sqrt(d) unless given
        block_size  how many queries are computed at a time, chosen unless given; it changes
                    time and memory, not the result
        output      ... i e, 0 for a query that may attend to nothing

    Memory grows with i + j, forward and backward; time as for `attention`, less the blocks that
    the mask empties. A second derivative and forward-mode differentiation raise; `vmap` goes
    through its items one by one. There is no dropout. Scores are computed to the base 2, so in
    float32 and half precision they overflow from 2.3e38 on. Errors are those of `attention`, and
    ValueError for a block_size below 1.

    >>> query, key, value = torch.randn(3, 2), torch.randn(5, 2), torch.randn(5, 4)
    >>> expected = torch.softmax(query @ key.mT / 2**0.5, -1) @ value
    >>> torch.allclose(blocked_attention(query, key, value, block_size=2), expected, atol=1e-6)
    True
    """
    if block_size is not None and block_size < 1:
        raise ValueError(f"block_size must be at least 1; got {block_size}")
    query, key, value, bias, leading = check_arguments(query, key, value, mask, bias)
    scale = scale_or_default(scale, query)
    dtype = query.dtype
    if dtype in HALF_PRECISION:
        query, key, value = query.float(), key.float(), value.float()
        bias = bias.float() if isinstance(bias, Tensor) else bias
    layout = _layout(query, key, leading, mask, bias, block_size)
    seen = None if layout.mask is None else layout.mask.seen(query.device)
    if seen is not None:
        key, value = shield(key, value, seen)
    q, k, v = (
        x.expand(*leading, *x.shape[-2:]).reshape(leading.numel(), *x.shape[-2:])
        for x in (query, key, value)
    )
    learned = bias if isinstance(bias, Tensor) else None
    output: Tensor
    with as_computed(query):
        output, _ = Blocked.apply(q, k, v, learned, scale, layout)  # type: ignore[no-untyped-call]
    return output.reshape(*leading, *output.shape[-2:]).to(dtype)


takes_rules(blocked_attention)


def _layout(
    query: Tensor,
    key: Tensor,
    leading: torch.Size,
    mask: Mask | None,
    bias: Bias | None,
    block_size: int | None,
) -> Layout:
    if isinstance(mask, Tensor):
        mask = Stored(mask)
    if isinstance(bias, Tensor) and bias.numel() and not bias.amin() > -torch.inf:  # or NaN
        mask = Finite(bias) if mask is None else mask & Finite(bias)
    rule = bias if isinstance(bias, BiasRule) else None
    return Layout.of(query, key, leading, mask, rule, block_size)


class Blocked(torch.autograd.Function):
    """The formula in blocks: q `h i d`, k `h j d` and v `h j e`, with all leading axes as `h`."""

    @staticmethod
    def forward(
        q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, layout: Layout
    ) -> tuple[Tensor, Tensor]:
        output = q.new_zeros(*q.shape[:-1], v.shape[-1])
        top, total = (q.new_zeros(*q.shape[:-1], 1) for _ in range(2))
        scratch = q.new_empty(layout.tile)
        for heads, queries, pieces in layout:
            q_block = q[heads, queries] * (scale * LOG2_E)
            state = None
            for piece in pieces:
                k_block, v_block = k[heads, piece.span], v[heads, piece.span]
                scores = _view(scratch, *q_block.shape[:2], len(piece.keys))
                torch.bmm(q_block, k_block.mT, out=scores)
                piece.restrict_(scores, heads, bias, LOG2_E)
                largest = scores.amax(-1, keepdim=True)
                if piece.forbidden:
                    largest.clamp_(min=torch.finfo(q.dtype).min)  # -inf - -inf would be NaN
                weights = scores.sub_(largest).exp2_()
                new = largest, weights.sum(-1, keepdim=True), torch.bmm(weights, v_block)
                state = new if state is None else _merged(state, new)
            if state is not None:
                top[heads, queries], total[heads, queries], output[heads, queries] = state
        # A row with nothing allowed sums to 0. Infinity in its place makes the output 0 and,
        # in the backward pass, the weights 2^-inf.
        total.masked_fill_(total == 0, torch.inf)
        return output.div_(total), top.add_(total.log2_())

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        q, k, v, bias, ctx.scale, ctx.layout = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(q, k, v, bias, *output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: None) -> tuple[Tensor | None, ...]:
        learned = ctx.needs_input_grad[3]
        grads = Gradients.apply(  # type: ignore[no-untyped-call]
            grad, *ctx.saved_tensors, ctx.scale, ctx.layout, learned
        )
        return *grads, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Sequence[int | None], *inputs: Any) -> tuple[Any, Any]:
        return _one_by_one(Blocked, info.batch_size, in_dims, inputs)


class Gradients(torch.autograd.Function):
    """The backward pass in blocks. A function of its own, so that its derivative can raise."""

    @staticmethod
    def forward(
        grad: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        output: Tensor,
        log_sum: Tensor,
        scale: float,
        layout: Layout,
        learned: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        q_grad, k_grad, v_grad = map(torch.zeros_like, (q, k, v))
        bias_grad = torch.zeros_like(bias) if bias is not None and learned else None
        # The softmax subtracts one number a row from the gradients of its weights: their mean.
        mean_grad = (grad * output).sum(-1, keepdim=True)
        scratch, more_scratch = q.new_empty(2, layout.tile)
        for heads, queries, pieces in layout:
            q_block, grad_block = q[heads, queries] * (scale * LOG2_E), grad[heads, queries]
            sums, means = log_sum[heads, queries].mT, mean_grad[heads, queries].mT
            for piece in pieces:
                k_block, v_block = k[heads, piece.span], v[heads, piece.span]
                # Scores h j i: this way round three of the five products are faster.
                shape = len(q_block), len(piece.keys), len(piece.queries)
                scores, weights_grad = _view(scratch, *shape), _view(more_scratch, *shape)
                torch.baddbmm(sums, k_block, q_block.mT, beta=-1, out=scores)
                piece.restrict_(scores.mT, heads, bias, LOG2_E)
                weights = scores.exp2_()
                v_grad[heads, piece.span].baddbmm_(weights, grad_block)
                torch.baddbmm(means, v_block, grad_block.mT, beta=-1, out=weights_grad)
                scores_grad = weights_grad.mul_(weights)
                q_grad[heads, queries].baddbmm_(scores_grad.mT, k_block, alpha=scale)
                k_grad[heads, piece.span].baddbmm_(scores_grad, q_block, alpha=1 / LOG2_E)
                if bias_grad is not None:
                    piece.add_to_(bias_grad, scores_grad.mT, heads)
        return q_grad, k_grad, v_grad, bias_grad

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        raise RuntimeError(
            "blocked_attention has no second derivative; differentiate attention twice instead"
        )

    @staticmethod
    def vmap(info: Any, in_dims: Sequence[int | None], *inputs: Any) -> tuple[Any, Any]:
        return _one_by_one(Gradients, info.batch_size, in_dims, inputs)


State = tuple[Tensor, Tensor, Tensor]


def _merged(one: State, other: State) -> State:
    """The largest score, the sum and the weighted values of two pieces of a row, as one piece."""
    (top, total, values), (other_top, other_total, other_values) = one, other
    both = torch.maximum(top, other_top)
    shrink, other_shrink = (top - both).exp2_(), (other_top - both).exp2_()
    total = shrink * total + other_shrink * other_total
    return both, total, shrink * values + other_shrink * other_values


def _view(scratch: Tensor, *shape: int) -> Tensor:
    return scratch[: math.prod(shape)].view(shape)


def _one_by_one(
    function: type[torch.autograd.Function],
    count: int,
    in_dims: Sequence[int | None],
    inputs: Sequence[Any],
) -> tuple[Any, Any]:
    """Apply a function to each item of a batch, and stack what it returns."""
    results = []
    for n in range(max(count, 1)):  # an empty batch asks one item, of zeros, for the shapes
        item = (
            x if dim is None else x.select(dim, n) if count else x.sum(dim)
            for x, dim in zip(inputs, in_dims, strict=True)
        )
        results.append(function.apply(*item))  # type: ignore[no-untyped-call]
    stacked = tuple(
        None if x[0] is None else torch.stack(x)[:count] for x in zip(*results, strict=True)
    )
    return stacked, tuple(None if x is None else 0 for x in stacked)
