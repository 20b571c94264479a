"""What the forward pass of `blocked_attention` is made of, one part more in each call."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch

from benchmarks.rivals import BARE, Case, Outcome, functions
from mini_attention.blocks import Layout

PRODUCTS, POWERS, PASSES, WHOLE = (
    "both products of each block",
    "and the powers",
    "and largest score, difference, sum",
    "blocked_attention",
)
PARTS = (PRODUCTS, POWERS, PASSES, WHOLE)


def parts(case: Case) -> dict[str, Callable[[], object]]:
    """The bare kernel, then what the blocks can't do without, then what the softmax adds.

    All but the first and last are no attention: they take the blocks of `blocked_attention`, and
    leave out what stands in later ones.
    """
    wholes = functions(case, compiled=False)
    count = case.batch * case.num_heads
    q, k, v = (case.randn(count, case.n, case.d_head) * case.d_head**-0.25 for _ in range(3))
    layout = Layout.of(q, k, torch.Size([count]), None, None, None)
    output, scratch = torch.empty_like(q), q.new_empty(layout.tile)

    def run(*, powers: bool, passes: bool) -> Outcome:
        for heads, queries, pieces in layout:
            q_block = q[heads, queries]
            for piece in pieces:
                shape = len(q_block), len(piece.queries), len(piece.keys)
                scores = scratch[: prod(shape)].view(shape)
                torch.bmm(q_block, k[heads, piece.span].mT, out=scores)
                if passes:
                    scores.sub_(scores.amax(-1, keepdim=True))
                if powers:
                    scores.exp2_()
                if passes:
                    scores.sum(-1, keepdim=True)
                output[heads, queries] = torch.bmm(scores, v[heads, piece.span])
        return Outcome(output)

    return {
        BARE: wholes[BARE],
        PRODUCTS: lambda: run(powers=False, passes=False),
        POWERS: lambda: run(powers=True, passes=False),
        PASSES: lambda: run(powers=True, passes=True),
        WHOLE: wholes[WHOLE],
    }
