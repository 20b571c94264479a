"""Attention with learned projections: one head, and many side by side.

Inputs have the axes `b i m` (queries) and `b j m` (keys and values).
"""

from __future__ import annotations

from typing import TypeVar

from einops import rearrange, repeat
from torch import Tensor, nn

from . import convert, plug
from .contract import Bias, Mask, check_divides, check_like, check_sizes
from .decoding import Cache, all_or_nothing
from .functional import fused_attention
from .plug import Attend
from .rules import Rule

Pairs = TypeVar("Pairs", Tensor | None, Mask | None, Bias | None)


class SingleHeadAttention(nn.Module):
    """One attention head: project to queries, keys and values, then attend.

        query   b i m, with m = d_model features
        key     b j key_size, the query unless given (self-attention)
        value   b j value_size, the key unless given
        mask    i j or b i j, boolean, True where query i may attend to key j
        bias    i j or b i j, added to the scores
        output  b i e, with e = d_value features; there is no output projection

    `d_head` is d_model unless given, `d_value` is d_head, `key_size` and `value_size` (the
    features of the keys and values that come in) are d_model. `attend` is any function with
    the signature of `attention`. `dropout` is the share of weights dropped in training.

    A NaN in an input reaches the gradients of the projections even where a mask hides it:
    put 0 there first, with `masked_fill`.

    Raises ValueError for sizes that do not fit, TypeError for a wrong dtype.

    >>> import torch
    >>> head = SingleHeadAttention(d_model=8, d_head=3)
    >>> output, weights = head(torch.randn(2, 5, 8), return_weights=True)
    >>> output.shape, weights.shape
    (torch.Size([2, 5, 3]), torch.Size([2, 5, 5]))
    """

    def __init__(
        self,
        d_model: int,
        d_head: int | None = None,
        *,
        d_value: int | None = None,
        key_size: int | None = None,
        value_size: int | None = None,
        dropout: float = 0.0,
        proj_bias: bool = True,
        attend: Attend = fused_attention,
    ) -> None:
        super().__init__()
        d_head = d_model if d_head is None else d_head
        d_value = d_head if d_value is None else d_value
        key_size = d_model if key_size is None else key_size
        value_size = d_model if value_size is None else value_size
        check_sizes(d_model=d_model, d_head=d_head, d_value=d_value)
        check_sizes(key_size=key_size, value_size=value_size)
        self.dropout = _checked_rate(dropout)
        self.attend = attend
        self.q_proj = nn.Linear(d_model, d_head, bias=proj_bias)
        self.k_proj = nn.Linear(key_size, d_head, bias=proj_bias)
        self.v_proj = nn.Linear(value_size, d_value, bias=proj_bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Mask | None = None,
        *,
        bias: Bias | None = None,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend; with `return_weights` also return the weights, b i j, before dropout."""
        query, key, value = _sources(self, query, key, value)
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        output = _attend(self, q, k, v, mask, bias)
        if return_weights:
            return output, _weights(self, q, k, mask, bias)
        return output


class MultiHeadAttention(nn.Module):
    """Several heads side by side, each with its own share of the features.

        query    b i m, with m = d_model features
        key      b j key_size, the query unless given (self-attention)
        value    b j value_size, the key unless given
        mask     i j for all, b i j per item, or b h i j per head; boolean, True where query i
                 may attend to key j
        bias     the same ranks, added to the scores
        cache    of `mini_attention.decoding`: keys and values of earlier positions, to be used
                 again. Then query, key and value hold new positions alone, j counts the kept ones
                 too, and the mask that hides what comes later is `cache.mask(i)`
        output   b i m

    `key_size` and `value_size` (the features of the keys and values that come in) are d_model
    unless given. `attend` is any function with the signature of `attention`. `dropout` is the
    share of weights dropped in training.

    With `num_kv_heads` there are fewer heads of keys and values than of queries, and neighbours
    share one: with r = num_heads / num_kv_heads, query head h has key head h // r. One for all
    is multi-query, a few are grouped-query attention.

    A query that may attend to nothing gets the bias of the output projection. A NaN in an
    input reaches the gradients of the projections even where a mask hides it: put 0 there
    first, with `masked_fill`.

    Raises ValueError for sizes that do not fit, among them a `d_model` that `num_heads` does
    not divide, TypeError for a wrong dtype.
    Source: Vaswani et al., Attention Is All You Need (2017), section 3.2.2; Ainslie et al., GQA
    (2023), section 2.2.

    >>> import torch
    >>> layer = MultiHeadAttention(d_model=12, num_heads=3)
    >>> output, weights = layer(torch.randn(2, 5, 12), return_weights=True)
    >>> output.shape, weights.shape
    (torch.Size([2, 5, 12]), torch.Size([2, 3, 5, 5]))
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        key_size: int | None = None,
        value_size: int | None = None,
        num_kv_heads: int | None = None,
        dropout: float = 0.0,
        proj_bias: bool = True,
        attend: Attend = fused_attention,
    ) -> None:
        super().__init__()
        key_size = d_model if key_size is None else key_size
        value_size = d_model if value_size is None else value_size
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        check_sizes(d_model=d_model, num_heads=num_heads, num_kv_heads=num_kv_heads)
        check_sizes(key_size=key_size, value_size=value_size)
        check_divides(d_model=d_model, num_heads=num_heads)
        check_divides(num_heads=num_heads, num_kv_heads=num_kv_heads)
        shared = num_kv_heads * (d_model // num_heads)
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.dropout = _checked_rate(dropout)
        self.attend = attend
        self.q_proj = nn.Linear(d_model, d_model, bias=proj_bias)
        self.k_proj = nn.Linear(key_size, shared, bias=proj_bias)
        self.v_proj = nn.Linear(value_size, shared, bias=proj_bias)
        self.out_proj = nn.Linear(d_model, d_model, bias=proj_bias)

    @all_or_nothing
    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Mask | None = None,
        *,
        bias: Bias | None = None,
        cache: Cache | None = None,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend; with `return_weights` also return the weights, b h i j, before dropout."""
        query, key, value = _sources(self, query, key, value)
        mask, bias = _per_head(mask), _per_head(bias)

        q = rearrange(self.q_proj(query), "b i (h d) -> b h i d", h=self.num_heads)
        k = rearrange(self.k_proj(key), "b j (g d) -> b g j d", g=self.num_kv_heads)
        v = rearrange(self.v_proj(value), "b j (g e) -> b g j e", g=self.num_kv_heads)
        if cache is not None:
            k, v = cache.append(k, v)
        if self.num_kv_heads < self.num_heads:
            k, v = self._for_each_head(k), self._for_each_head(v)
        heads = _attend(self, q, k, v, mask, bias)
        output: Tensor = self.out_proj(rearrange(heads, "b h i e -> b i (h e)"))

        if return_weights:
            return output, _weights(self, q, k, mask, bias)
        return output

    def _for_each_head(self, shared: Tensor) -> Tensor:
        r = self.num_heads // self.num_kv_heads
        return repeat(shared, "b g j d -> b (g r) j d", r=r)

    @classmethod
    def from_torch(
        cls, module: nn.MultiheadAttention, *, attend: Attend = fused_attention
    ) -> MultiHeadAttention:
        """The layer that computes what `module` computes, with a copy of its parameters.

        Raises ValueError for what has no counterpart here: `add_bias_kv`, `add_zero_attn`,
        and inputs n b m (`batch_first=False`).
        """
        convert.check_from_torch(module)
        layer = cls(
            module.embed_dim,
            module.num_heads,
            key_size=module.kdim,
            value_size=module.vdim,
            dropout=module.dropout,
            proj_bias=module.in_proj_bias is not None,
            attend=attend,
        )
        layer = layer.to(module.out_proj.weight).train(module.training)
        convert.copy_from_torch(module, layer)
        return layer

    def to_torch(self) -> nn.MultiheadAttention:
        """The `nn.MultiheadAttention` that computes what this layer computes, for inputs b n m.

        It gets a copy of the parameters, whatever function this layer attends with. Masks mean
        the opposite there: `mask_to_torch` converts them. Raises ValueError for shared key heads,
        which have no counterpart there.
        """
        convert.check_to_torch(self)
        module = nn.MultiheadAttention(
            self.q_proj.in_features,
            self.num_heads,
            dropout=self.dropout,
            bias=self.out_proj.bias is not None,
            kdim=self.k_proj.in_features,
            vdim=self.v_proj.in_features,
            batch_first=True,
        )
        module = module.to(self.out_proj.weight).train(self.training)
        convert.copy_to_torch(self, module)
        return module

    def extra_repr(self) -> str:
        heads = f"num_heads={self.num_heads}"
        if self.num_kv_heads < self.num_heads:
            heads += f", num_kv_heads={self.num_kv_heads}"
        return f"{heads}, dropout={self.dropout}"


def _attend(
    module: SingleHeadAttention | MultiHeadAttention,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask | None,
    bias: Bias | None,
) -> Tensor:
    dropout_p = module.dropout if module.training else 0.0
    return plug.call(module.attend, q, k, v, mask, bias=bias, dropout_p=dropout_p)


def _weights(
    module: SingleHeadAttention | MultiHeadAttention,
    q: Tensor,
    k: Tensor,
    mask: Mask | None,
    bias: Bias | None,
) -> Tensor:
    return plug.weights_of(module.attend)(q, k, mask, bias=bias)


def _sources(
    module: SingleHeadAttention | MultiHeadAttention,
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Fill in what was not given, and check that it fits the projections."""
    if key is None:
        if value is not None:
            raise ValueError("a value needs a key: give both, or the key alone")
        key = query
    value = key if value is None else value
    inputs = (
        ("query", query, module.q_proj),
        ("key", key, module.k_proj),
        ("value", value, module.v_proj),
    )
    for name, tensor, projection in inputs:
        if tensor.ndim != 3 or tensor.shape[-1] != projection.in_features:
            raise ValueError(
                f"{name} must have the axes batch, position and {projection.in_features} "
                f"features; got shape {tuple(tensor.shape)}"
            )
        if tensor.shape[0] != query.shape[0]:
            raise ValueError(f"{name} has {tensor.shape[0]} items and query {query.shape[0]}")
        check_like(name, tensor, projection.weight)
    if key.shape[1] != value.shape[1]:
        raise ValueError(
            f"every key needs a value; got {key.shape[1]} keys and {value.shape[1]} values"
        )
    return query, key, value


def _per_head(pairs: Pairs) -> Pairs:
    """A mask or bias of rank 3 is one per item: the same for every head."""
    if pairs is None or pairs.ndim != 3:
        return pairs
    if isinstance(pairs, Rule):
        return pairs.per_item()
    return rearrange(pairs, "b i j -> b 1 i j")


def _checked_rate(dropout: float) -> float:
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be at least 0 and below 1; got {dropout}")
    return dropout
