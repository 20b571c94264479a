"""To and from torch.nn.MultiheadAttention: the only place that knows its conventions.

There a boolean mask means the opposite (True hides a key), a float mask is added to the scores,
masks of single heads are stacked as `(b h) i j`, and padding is an argument of its own, `b j`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from einops import rearrange
from torch import Tensor, nn

if TYPE_CHECKING:
    from .heads import MultiHeadAttention


def mask_from_torch(
    attn_mask: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    *,
    num_heads: int,
) -> tuple[Tensor | None, Tensor | None]:
    """The mask and the bias that mean what these arguments mean to `nn.MultiheadAttention`.

        attn_mask         i j or (b h) i j; boolean, True hides, or a float that is added
        key_padding_mask  b j; boolean, True hides, or a float that is added
        mask, bias        i j or b h i j, or None, for `MultiHeadAttention`

    Raises TypeError for other dtypes, ValueError for other ranks.

    >>> mask, bias = mask_from_torch(torch.tensor([[False, True]]), num_heads=1)
    >>> mask, bias
    (tensor([[ True, False]]), None)
    """
    mask = bias = None
    if attn_mask is not None:
        pairs = _unstack_heads(attn_mask, num_heads)
        mask, bias = _split("attn_mask", pairs)
    if key_padding_mask is not None:
        if key_padding_mask.ndim != 2:
            shape = tuple(key_padding_mask.shape)
            raise ValueError(f"key_padding_mask must have the axes b j; got shape {shape}")
        padding = rearrange(key_padding_mask, "b j -> b 1 1 j")
        more_mask, more_bias = _split("key_padding_mask", padding)
        if more_mask is not None:
            mask = more_mask if mask is None else mask & more_mask
        if more_bias is not None:
            bias = more_bias if bias is None else bias + more_bias
    return mask, bias


def mask_to_torch(mask: Tensor, *, num_heads: int) -> Tensor:
    """The `attn_mask` that means to `nn.MultiheadAttention` what `mask` means here.

        mask       i j, b i j or b h i j, boolean, True where query i may attend to key j
        attn_mask  i j or (b h) i j, boolean, True where it may not

    An axis of 1 for the queries or keys has to be expanded first: torch takes none. A query
    that may attend to nothing gets 0 here and NaN there.

    Raises TypeError for a mask that is not boolean, ValueError for other ranks or head counts.

    >>> mask_to_torch(torch.tensor([[True, False]]), num_heads=3)
    tensor([[False,  True]])
    """
    if mask.dtype != torch.bool:
        raise TypeError(f"mask must be boolean; got {mask.dtype}")
    if mask.ndim == 2:
        return ~mask
    if mask.ndim == 3:
        mask = rearrange(mask, "b i j -> b 1 i j")
    if mask.ndim != 4 or mask.shape[1] not in (1, num_heads):
        raise ValueError(
            f"mask must be i j, b i j or b h i j with h = {num_heads} or 1; "
            f"got shape {tuple(mask.shape)}"
        )
    return rearrange(~mask.expand(-1, num_heads, -1, -1), "b h i j -> (b h) i j")


def copy_from_torch(source: nn.MultiheadAttention, target: MultiHeadAttention) -> None:
    """Copy the parameters of `source` into `target`, which has the same sizes."""
    if source.in_proj_weight is not None:
        q, k, v = source.in_proj_weight.chunk(3)
    else:
        q, k, v = source.q_proj_weight, source.k_proj_weight, source.v_proj_weight
    with torch.no_grad():
        target.q_proj.weight.copy_(q)
        target.k_proj.weight.copy_(k)
        target.v_proj.weight.copy_(v)
        target.out_proj.weight.copy_(source.out_proj.weight)
        if source.in_proj_bias is not None:
            q, k, v = source.in_proj_bias.chunk(3)
            target.q_proj.bias.copy_(q)
            target.k_proj.bias.copy_(k)
            target.v_proj.bias.copy_(v)
            target.out_proj.bias.copy_(source.out_proj.bias)


def copy_to_torch(source: MultiHeadAttention, target: nn.MultiheadAttention) -> None:
    """Copy the parameters of `source` into `target`, which has the same sizes."""
    projections = (source.q_proj, source.k_proj, source.v_proj)
    with torch.no_grad():
        if target.in_proj_weight is not None:
            target.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
        else:
            target.q_proj_weight.copy_(source.q_proj.weight)
            target.k_proj_weight.copy_(source.k_proj.weight)
            target.v_proj_weight.copy_(source.v_proj.weight)
        target.out_proj.weight.copy_(source.out_proj.weight)
        if target.in_proj_bias is not None:
            target.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
            target.out_proj.bias.copy_(source.out_proj.bias)


def check_from_torch(source: nn.MultiheadAttention) -> None:
    """Raise ValueError for what `MultiHeadAttention` has no counterpart of."""
    if source.bias_k is not None:
        raise ValueError("add_bias_kv=True adds a learned key and value: it can't be carried over")
    if source.add_zero_attn:
        raise ValueError("add_zero_attn=True adds a key and value of 0: it can't be carried over")
    if not source.batch_first:
        raise ValueError(
            "batch_first=False expects inputs n b m, which can't be carried over: inputs here are "
            "b n m. The parameters don't depend on it: set source.batch_first = True first"
        )


def check_to_torch(source: MultiHeadAttention) -> None:
    """Raise ValueError for what `nn.MultiheadAttention` has no counterpart of."""
    if source.num_kv_heads != source.num_heads:
        raise ValueError(
            f"num_kv_heads ({source.num_kv_heads}) must be num_heads ({source.num_heads}): "
            "nn.MultiheadAttention has keys and values for each head"
        )


def _unstack_heads(attn_mask: Tensor, num_heads: int) -> Tensor:
    if attn_mask.ndim == 2:
        return attn_mask
    if attn_mask.ndim != 3 or attn_mask.shape[0] % num_heads:
        raise ValueError(
            f"attn_mask must have the axes i j or (b h) i j with h = {num_heads}; "
            f"got shape {tuple(attn_mask.shape)}"
        )
    return rearrange(attn_mask, "(b h) i j -> b h i j", h=num_heads)


def _split(name: str, pairs: Tensor) -> tuple[Tensor | None, Tensor | None]:
    if pairs.dtype == torch.bool:
        return ~pairs, None
    if pairs.is_floating_point():
        return None, pairs
    raise TypeError(f"{name} must be boolean or a float; got {pairs.dtype}")
