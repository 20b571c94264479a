"""The attention formula, once to be read and once on torch's fused kernel.

Shapes, in the alphabet of the package:

    query   ... i d      mask    i j or ... i j, True where query i may attend to key j
    key     ... j d      bias    i j or ... i j, added to the scores
    value   ... j e      output  ... i e

A mask or a bias may also be a rule of `rules`, which computes it where it is needed.

Source: Vaswani et al., Attention Is All You Need (2017), section 3.2.1.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from .contract import (
    Bias,
    Mask,
    as_computed,
    broadcast_leading,
    check_dropout,
    check_mask,
    prepare,
    scores_shape,
    takes_rules,
)
from .rules import Window


def attention_scores(
    query: Tensor, key: Tensor, *, bias: Bias | None = None, scale: float | None = None
) -> Tensor:
    """How well each query matches each key, before the softmax.

        query   ... i d
        key     ... j d
        bias    i j or ... i j, in the dtype of query
        scale   a number, 1 / sqrt(d) unless given
        scores  ... i j, in the dtype they are computed in: float32 for half precision

    Raises TypeError for integers, mixed dtypes or a boolean bias, ValueError for shapes that
    do not fit.

    >>> query, key = torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> attention_scores(query, key, scale=1.0)
    tensor([[3., 4.]])
    """
    q, k, _, _, bias, scale, _ = prepare(query, key, key, bias=bias, scale=scale)
    with as_computed(query):
        return _scores(q, k, bias, scale)


def attention_weights(
    query: Tensor,
    key: Tensor,
    mask: Mask | None = None,
    *,
    bias: Bias | None = None,
    scale: float | None = None,
) -> Tensor:
    """How much of each key's value each query takes: the softmax of the scores over the keys.

        query    ... i d
        key      ... j d
        mask     i j or ... i j, boolean, True where query i may attend to key j
        bias     i j or ... i j, added to the scores; -inf forbids, as a mask does
        scale    a number, 1 / sqrt(d) unless given
        weights  ... i j, each row sums to 1, or to 0 where a query may attend to nothing

    Raises TypeError for integers, mixed dtypes, a mask that is not boolean or a bias that is,
    ValueError for shapes that do not fit.

    >>> query, key = torch.zeros(1, 2), torch.randn(4, 2)
    >>> attention_weights(query, key, torch.tensor([[True, True, False, False]]))
    tensor([[0.5000, 0.5000, 0.0000, 0.0000]])
    """
    q, k, _, allowed, bias, scale, dtype = prepare(query, key, key, mask, bias, scale)
    with as_computed(query):
        scores = _scores(q, k, bias, scale)
        weights = _softmax(scores, allowed)
    return weights.to(dtype)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask | None = None,
    *,
    bias: Bias | None = None,
    scale: float | None = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """softmax(Q K^T / sqrt(d)) V: for each query, the weighted mean of the values.

        query      ... i d
        key        ... j d
        value      ... j e
        mask       i j or ... i j, boolean, True where query i may attend to key j
        bias       i j or ... i j, added to the scores; -inf forbids, as a mask does
        scale      a number, 1 / sqrt(d) unless given
        dropout_p  the share of weights dropped, whenever it is above 0
        output     ... i e, 0 for a query that may attend to nothing

    Keys that no query may attend to can hold anything, NaN included, and change nothing.
    Finite scores give finite outputs where query times scale is finite too: that comes first.
    It can be differentiated twice, forward and backward, and mapped with `torch.func`.

    Raises TypeError for integers, mixed dtypes, a mask that is not boolean or a bias that is,
    ValueError for shapes or devices that do not fit and for a dropout_p outside 0 to 1.

    >>> query, key, value = torch.randn(3, 2), torch.zeros(5, 2), torch.randn(5, 4)
    >>> torch.allclose(attention(query, key, value), value.mean(0).expand(3, 4), atol=1e-6)
    True
    """
    q, k, v, allowed, bias, scale, dtype = prepare(query, key, value, mask, bias, scale)
    with as_computed(query):
        scores = _scores(q, k, bias, scale)
        weights = _softmax(scores, allowed)
        output = _dropout(weights, dropout_p) @ v
    return output.to(dtype)


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask | None = None,
    *,
    bias: Bias | None = None,
    scale: float | None = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """The same as `attention`, computed by torch's fused kernel, which never stores the weights.

    Arguments, result and errors are those of `attention`. A second derivative and forward-mode
    differentiation raise, because the kernel has none; `torch.func.vmap` loops over it and warns.
    On the CPU two arguments make torch leave the kernel for a slower path of its own, which has
    them: dropout, and a bias that needs a gradient.

    The kernel multiplies before it scales: where query times key overflows (from 3.4e38 on in
    float32 and half precision), the output is NaN or 0, even if the scaled score would fit.

    >>> query, key, value = torch.randn(3, 2), torch.randn(5, 2), torch.randn(5, 4)
    >>> expected = attention(query, key, value)
    >>> torch.allclose(fused_attention(query, key, value), expected, atol=1e-6)
    True
    """
    check_dropout(dropout_p)
    # A rule that the kernel knows needs no tensor: half the time from 2,000 positions on.
    causal = mask if bias is None and isinstance(mask, Window) and mask.is_causal_square else None
    mask = mask if causal is None else None
    q, k, v, allowed, bias, scale, _ = prepare(query, key, value, mask, bias, scale, widen=False)
    if causal is not None:
        check_mask(causal, scores_shape(q, k), q.device)
    if bias is not None and bias.requires_grad and 0 in (q.numel(), k.numel(), v.numel()):
        # Where there is nothing to compute the kernel drops the bias from the graph.
        return attention(query, key, value, mask, bias=bias, scale=scale, dropout_p=dropout_p)
    pairs = allowed if bias is None or allowed is None else torch.where(allowed, bias, -torch.inf)
    leading = broadcast_leading(query=q, key=k, value=v)
    size = v.shape[-1]
    # Outside four axes and equal feature counts the kernel falls back to one 2 to 3 times slower.
    if size < q.shape[-1]:
        v = F.pad(v, (0, q.shape[-1] - size))
    elif size > q.shape[-1]:
        q, k = (F.pad(x, (0, size - x.shape[-1])) for x in (q, k))
    q, k, v = (_four_axes(x, leading) for x in (q, k, v))
    if pairs is not None and pairs.ndim > 2:
        pairs = _four_axes(pairs, leading)
    output = F.scaled_dot_product_attention(
        q, k, v, pairs, dropout_p, causal is not None, scale=scale
    )
    if output.shape[-1] != size:
        output = output[..., :size]
    return output.reshape(*leading, *output.shape[-2:])


def _scores(query: Tensor, key: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    scores = (query * scale) @ key.mT
    return scores if bias is None else scores + bias


def _softmax(scores: Tensor, allowed: Tensor | None) -> Tensor:
    if allowed is None:
        return scores.softmax(-1)
    # A row of -inf alone has no softmax. Where nothing is allowed scores are 0 instead, and the
    # weights become 0 after it, so that neither they nor any derivative of them is NaN.
    nothing = ~allowed.any(-1, keepdim=True)
    hidden = torch.where(nothing, 0.0, -torch.inf).to(scores.dtype)
    return torch.where(allowed, scores, hidden).softmax(-1).masked_fill(nothing, 0.0)


def _dropout(weights: Tensor, dropout_p: float) -> Tensor:
    check_dropout(dropout_p)
    return F.dropout(weights, dropout_p)


def _four_axes(tensor: Tensor, leading: torch.Size) -> Tensor:
    """View `... x y` as `b h x y`: missing axes are 1, further ones fold into the first."""
    if len(leading) == 2 and tensor.shape[:-2] == leading:
        return tensor
    tensor = tensor.expand(*leading, *tensor.shape[-2:])
    if len(leading) < 2:
        return tensor[(None,) * (2 - len(leading))]
    return tensor.flatten(0, len(leading) - 2)


takes_rules(attention)
takes_rules(fused_attention)
