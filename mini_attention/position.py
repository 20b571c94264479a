"""Positions: vectors that are added to the words, and rotations of queries and keys.

Attention alone sees a set of words. `sinusoidal_positions` is added to the words before the first
layer; `RotaryAttention` turns queries and keys inside each layer, so that a score depends on how
far apart the two stand. (ALiBi, a bias that falls with the distance, is `rules.alibi`.)
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Literal

import torch
from einops import rearrange
from torch import Tensor

from . import plug
from .contract import Bias, Mask
from .functional import fused_attention
from .plug import Attend
from .rules import Device

Pairing = Literal["halves", "neighbours"]
# Which two features turn together: feature k and k + d/2, or feature 2k and 2k + 1.
PAIRS = {"halves": "(two d)", "neighbours": "(d two)"}


def sinusoidal_positions(
    n: int,
    d_model: int,
    *,
    base: float = 10_000.0,
    device: Device = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """A vector for each position, made of sines and cosines, to be added to the words.

        n        number of positions
        d_model  number of features, even: 2k is a sine, 2k + 1 its cosine
        base     waves are 2 pi to 2 pi * base positions long
        dtype    torch's default unless given
        table    n m

    Wave k of m / 2, from 0 on, turns by base ** (-2k / m) a position. Row p + s is row p with
    each of its pairs rotated, by an angle that depends on s alone.

    Raises ValueError for sizes that can't be.
    Source: Vaswani et al., Attention Is All You Need (2017), section 3.5.

    >>> sinusoidal_positions(3, 4).round(decimals=2)
    tensor([[ 0.0000,  1.0000,  0.0000,  1.0000],
            [ 0.8400,  0.5400,  0.0100,  1.0000],
            [ 0.9100, -0.4200,  0.0200,  1.0000]])
    """
    if n < 0:
        raise ValueError(f"n must be at least 0; got {n}")
    _check_even("d_model", d_model)
    _check_base(base)
    turns = angles(torch.arange(n, device=device), d_model, base)
    table = rearrange([turns.sin(), turns.cos()], "two n d -> n (d two)")
    return table.to(torch.get_default_dtype() if dtype is None else dtype)


def rotary_embedding(
    x: Tensor,
    positions: Tensor | None = None,
    *,
    pairing: Pairing = "halves",
    features: int | None = None,
    base: float = 10_000.0,
) -> Tensor:
    """Rotate pairs of features of queries or keys, each pair by its speed times the position.

        x          ... n d, queries or keys
        positions  n for all, or ... n with axes of 1 allowed; 0 to n - 1 unless given
        pairing    "halves": feature k turns with feature k + d/2, as in GPT-NeoX;
                   "neighbours": feature 2k turns with 2k + 1, as in the paper and GPT-J
        features   how many features are rotated, the first ones; all d unless given
        base       pairs need 2 pi to 2 pi * base positions for a whole turn
        rotated    ... n d, in the dtype of x, rounded once

    Pair k of d / 2, from 0 on, turns by base ** (-2k / d) a position, where d counts what is
    rotated. The product of a rotated query and a rotated key depends on how far apart they
    stand, and not on where.

    Raises TypeError for integers as x and for positions that are no numbers, ValueError for
    shapes, sizes, devices or another pairing that do not fit.
    Source: Su et al., RoFormer (2021), section 3.2.2.

    >>> query, key = torch.randn(2, 1, 8, dtype=torch.float64)
    >>> def product(at, key_at):
    ...     q = rotary_embedding(query, torch.tensor([at]))
    ...     return q @ rotary_embedding(key, torch.tensor([key_at])).mT
    >>> torch.allclose(product(5, 2), product(1005, 1002))
    True
    >>> rotary_embedding(torch.tensor([[[1.0, 0, 0, 0]]]).expand(1, 2, 4)).round(decimals=2)
    tensor([[[1.0000, 0.0000, 0.0000, 0.0000],
             [0.5400, 0.0000, 0.8400, 0.0000]]])
    """
    _check_input("x", x)
    size = x.shape[-1] if features is None else features
    _check_even("features", size)
    _check_pairing(pairing)
    _check_base(base)
    if size > x.shape[-1]:
        raise ValueError(f"features must be at most the {x.shape[-1]} that there are; got {size}")
    if positions is None:
        positions = torch.arange(x.shape[-2], device=x.device)
    _check_positions("positions", positions, x)
    wide = torch.promote_types(x.dtype, torch.float32)
    turns = angles(positions, size, base)
    turned = rotate(x[..., :size].to(wide), turns.cos().to(wide), turns.sin().to(wide), pairing)
    return torch.cat([turned.to(x.dtype), x[..., size:]], dim=-1)


def angles(positions: Tensor, features: int, base: float) -> Tensor:
    """The angle of each pair at each position, ... n d with d = features / 2.

    In float64 where the device has it: at position 100,000 those of float32 are off by thousandths.
    """
    wide = _widest(positions.device)
    pair = torch.arange(0, features, 2, device=positions.device, dtype=wide)
    speeds: Tensor = base ** (-pair / features)
    return positions.to(wide).unsqueeze(-1) * speeds


def rotate(x: Tensor, cos: Tensor, sin: Tensor, pairing: Pairing) -> Tensor:
    """Rotate the pairs of x, ... n (two d) or ... n (d two), by angles whose cosines are given."""
    one, other = rearrange(x, f"... {PAIRS[pairing]} -> two ... d", two=2)
    turned = [one * cos - other * sin, other * cos + one * sin]
    rotated: Tensor = rearrange(turned, f"two ... d -> ... {PAIRS[pairing]}")
    return rotated


@dataclass(frozen=True)
class RotaryAttention:
    """Attention on rotated queries and keys: a function for the argument `attend` of a layer.

        attend    the function that attends, such as `blocked_attention`
        pairing   as in `rotary_embedding`, and so are `features` and `base`
        features  how many features of each head are rotated, the first ones; all unless given
        base      pairs need 2 pi to 2 pi * base positions for a whole turn

    Called like `attention`, with two more keywords:

        query            ... i d
        key              ... j d
        value            ... j e, which is not rotated
        mask             i j or ... i j, boolean, True where query i may attend to key j
        bias             i j or ... i j, added to the scores
        scale            a number, 1 / sqrt(d) unless given
        dropout_p        the share of weights dropped, if `attend` can
        query_positions  i for all, or ... i; the last query stands at the last key unless given
        key_positions    j for all, or ... j; 0 to j - 1 unless given
        output           ... i e

    A whole shift of a sequence changes nothing, so that neither padding in front nor packed
    documents need positions. Rules, masks and dropout go to `attend` as they are. Raises what
    `rotary_embedding` and `attend` raise.
    Source: Su et al., RoFormer (2021), section 3.2.2.

    >>> from mini_attention import MultiHeadAttention
    >>> layer = MultiHeadAttention(d_model=12, num_heads=3, attend=RotaryAttention())
    >>> output, weights = layer(torch.randn(2, 5, 12), return_weights=True)
    >>> output.shape, weights.shape
    (torch.Size([2, 5, 12]), torch.Size([2, 3, 5, 5]))
    >>> attend, (query, key, value) = RotaryAttention(), torch.randn(3, 5, 8)
    >>> torch.allclose(attend(query[4:], key, value), attend(query, key, value)[4:], atol=1e-6)
    True
    >>> torch.allclose(attend(0 * query, key, value), value.mean(0), atol=1e-6)
    True
    """

    attend: Attend = fused_attention
    _: KW_ONLY
    pairing: Pairing = "halves"
    features: int | None = None
    base: float = 10_000.0

    def __post_init__(self) -> None:
        if self.features is not None:
            _check_even("features", self.features)
        _check_pairing(self.pairing)
        _check_base(self.base)

    @property
    def takes_rules(self) -> bool:
        return plug.accepts_rules(self.attend)

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask | None = None,
        *,
        bias: Bias | None = None,
        scale: float | None = None,
        dropout_p: float = 0.0,
        query_positions: Tensor | None = None,
        key_positions: Tensor | None = None,
    ) -> Tensor:
        query, key = self._rotated(query, key, query_positions, key_positions)
        return plug.call(
            self.attend, query, key, value, mask, bias=bias, scale=scale, dropout_p=dropout_p
        )

    def weights(
        self,
        query: Tensor,
        key: Tensor,
        mask: Mask | None = None,
        *,
        bias: Bias | None = None,
        scale: float | None = None,
        query_positions: Tensor | None = None,
        key_positions: Tensor | None = None,
    ) -> Tensor:
        """The weights that the output is made with, ... i j: those of the rotated queries and keys.

        Arguments are those of the call, without the value.
        """
        query, key = self._rotated(query, key, query_positions, key_positions)
        return plug.weights_of(self.attend)(query, key, mask, bias=bias, scale=scale)

    def _rotated(
        self,
        query: Tensor,
        key: Tensor,
        query_positions: Tensor | None,
        key_positions: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        _check_input("query", query)
        _check_input("key", key)
        if query_positions is None:
            first = key.shape[-2] - query.shape[-2]
            query_positions = torch.arange(query.shape[-2], device=query.device) + first
        else:
            _check_positions("query_positions", query_positions, query)
        if key_positions is not None:
            _check_positions("key_positions", key_positions, key)
        turn = partial(
            rotary_embedding, pairing=self.pairing, features=self.features, base=self.base
        )
        return turn(query, query_positions), turn(key, key_positions)


def _check_input(name: str, x: Tensor) -> None:
    if not x.is_floating_point():
        raise TypeError(f"{name} must be a float tensor; got {x.dtype}")
    if x.ndim < 2:
        raise ValueError(
            f"{name} needs at least two axes, positions and features; got shape {tuple(x.shape)}"
        )


def _check_positions(name: str, positions: Tensor, x: Tensor) -> None:
    if positions.dtype == torch.bool or positions.is_complex():
        raise TypeError(f"{name} must be integers or floats; got {positions.dtype}")
    if positions.device != x.device:
        raise ValueError(f"{name} are on {positions.device}, what they rotate is on {x.device}")
    given, wanted = tuple(positions.shape), tuple(x.shape[:-1])
    if positions.ndim not in (1, len(wanted)):
        raise ValueError(
            f"{name} of shape {given} do not say which axes they have: for {wanted} they take "
            f"rank 1, for all, or rank {len(wanted)}; for one row an item insert axes of 1"
        )
    if any(g not in (1, w) for g, w in zip(given, wanted[-positions.ndim :], strict=True)):
        raise ValueError(f"{name} of shape {given} must match {wanted}; an axis may be 1")


def _check_even(name: str, size: int) -> None:
    if size < 2 or size % 2:
        raise ValueError(f"{name} must be even and at least 2, to go in pairs; got {size}")


def _check_pairing(pairing: str) -> None:
    if pairing not in PAIRS:
        raise ValueError(f'pairing must be "halves" or "neighbours"; got {pairing!r}')


def _check_base(base: float) -> None:
    if not 0 < base < torch.inf:
        raise ValueError(f"base must be positive and finite; got {base}")


def _widest(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64  # which has no float64
