"""Wrong positions: waves and rotations that say something else of where a word stands."""

from __future__ import annotations

import torch
from einops import repeat
from torch import Tensor

from ..contract import Bias, Mask
from ..position import (
    Pairing,
    RotaryAttention,
    angles,
    rotary_embedding,
    sinusoidal_positions,
)
from ..rules import Device
from .catalogue import mistake


@mistake("scale", "sinusoidal_positions")
def sinusoidal_exponent_doubled(
    n: int,
    d_model: int,
    *,
    base: float = 10_000.0,
    device: Device = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The exponent counts features in steps of two and doubles them again: base^(-4k / m).

    The first wave is right and the others are too slow: most features hardly change.
    """
    return sinusoidal_positions(n, d_model, base=base**2, device=device, dtype=dtype)


@mistake("convert", "rotary_embedding")
def rotary_in_other_pairs(
    x: Tensor,
    positions: Tensor | None = None,
    *,
    pairing: Pairing = "neighbours",
    features: int | None = None,
    base: float = 10_000.0,
) -> Tensor:
    """Neighbours turn together unless told otherwise, where features half a head apart should.

    A model trained like this works; parameters copied from elsewhere give another output.
    """
    return rotary_embedding(x, positions, pairing=pairing, features=features, base=base)


@mistake("reshape", "rotary_embedding")
def rotary_speeds_of_neighbours(
    x: Tensor,
    positions: Tensor | None = None,
    *,
    pairing: Pairing = "halves",
    features: int | None = None,
    base: float = 10_000.0,
) -> Tensor:
    """Features half a head apart turn together, with angles that are laid out for neighbours.

    The two of a pair turn by different angles: that is no rotation, and scores depend on where
    the words stand, not on how far apart.
    """
    rotary_embedding(x, positions, pairing=pairing, features=features, base=base)  # for its errors
    if pairing == "neighbours":
        return rotary_embedding(x, positions, pairing=pairing, features=features, base=base)
    size = x.shape[-1] if features is None else features
    where = torch.arange(x.shape[-2], device=x.device) if positions is None else positions
    turns = repeat(angles(where, size, base), "... n d -> ... n (d two)", two=2)
    turned = x[..., :size].to(torch.promote_types(x.dtype, torch.float32))
    one, other = turned.chunk(2, dim=-1)
    turned = turned * turns.cos() + torch.cat([-other, one], dim=-1) * turns.sin()
    return torch.cat([turned.to(x.dtype), x[..., size:]], dim=-1)


@mistake("axis", "rotary_embedding")
def rotary_along_heads(
    x: Tensor,
    positions: Tensor | None = None,
    *,
    pairing: Pairing = "halves",
    features: int | None = None,
    base: float = 10_000.0,
) -> Tensor:
    """Positions are counted along the axis in front of the words: along the heads.

    Matrices work. With heads, each turns by its own angle, the same for all words, and no score
    knows any order.
    """
    if positions is None and x.ndim > 2:
        heads = x.transpose(-2, -3)
        turned = rotary_embedding(heads, pairing=pairing, features=features, base=base)
        return turned.transpose(-2, -3)
    return rotary_embedding(x, positions, pairing=pairing, features=features, base=base)


@mistake("sources", "RotaryAttention")
class ValuesRotatedToo(RotaryAttention):
    """The values are rotated as well as queries and keys.

    Nothing has a wrong shape; what a word says depends on where it stands, and a shift of the whole
    sequence changes the output.
    """

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
        if value.shape == key.shape:
            value, _ = self._rotated(value, value, key_positions, None)
        return super().__call__(
            query,
            key,
            value,
            mask,
            bias=bias,
            scale=scale,
            dropout_p=dropout_p,
            query_positions=query_positions,
            key_positions=key_positions,
        )


@mistake("alignment", "RotaryAttention")
class QueriesCountedFromTheStart(RotaryAttention):
    """The first query stands at position 0, however many keys there are.

    All is right for as many queries as keys. In decoding the newest word believes that it is the
    first.
    """

    def _rotated(
        self,
        query: Tensor,
        key: Tensor,
        query_positions: Tensor | None,
        key_positions: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        if query_positions is None:
            query_positions = torch.arange(query.shape[-2], device=query.device)
        return super()._rotated(query, key, query_positions, key_positions)
