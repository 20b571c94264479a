"""A single head in steps, and the mistakes of layers that it can make too."""

from __future__ import annotations

import math

from torch import Tensor

from ..contract import Bias, Mask
from ..functional import attention_weights
from ..heads import SingleHeadAttention, _attend, _sources
from . import layers  # noqa: F401  registers them
from .catalogue import MISTAKES


class Head(SingleHeadAttention):
    """The right head, with a step that a mistake can replace."""

    def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.q_proj(query), self.k_proj(key), self.v_proj(value)

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
        q, k, v = self.project(*_sources(self, query, key, value))
        output = _attend(self, q, k, v, mask, bias)
        return (output, attention_weights(q, k, mask, bias=bias)) if return_weights else output


class ScaledByModelWidth(Head):
    """Scores of d features are divided by the square root of d_model."""

    def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().project(query, key, value)
        return q * math.sqrt(self.q_proj.out_features / self.q_proj.in_features), k, v


# The step is the same as in a layer of many heads.
HEADS: dict[str, type[Head]] = {
    "scaled by model width": ScaledByModelWidth,
    **{
        name: type(name, (Head,), {"project": vars(MISTAKES[name].source)["project"]})
        for name in (
            "keys by query projection",
            "values by key projection",
            "projections swapped",
            "values from keys",
            "keys from query",
            "the other asks",
            "projection bias forgotten",
        )
    },
}
