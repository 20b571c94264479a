"""What is asked of a layer that computes multi-head attention, from the smallest input on."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..heads import MultiHeadAttention, SingleHeadAttention
from ..masks import causal_mask, padding_mask
from .case import Case


def cases_of_layers(like: MultiHeadAttention, seed: int = 0) -> Iterator[Case]:
    draw = Draw(like, like.num_heads, seed)
    for cases in (_few_tokens, _whole_sequences, _masks, _emptiness, _numbers):
        yield from cases(draw)


class Draw:
    """Inputs for a layer of any size, in halves between -2 and 2."""

    def __init__(
        self, like: SingleHeadAttention | MultiHeadAttention, heads: int, seed: int
    ) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.sizes = [p.in_features for p in (like.q_proj, like.k_proj, like.v_proj)]
        self.heads = heads
        self.several = self.tokens(2, self.heads + 2)  # no two axes are alike

    def sources(self, b: int, i: int, j: int) -> dict[str, Tensor]:
        shapes = [(b, n, size) for n, size in zip((i, j, j), self.sizes, strict=True)]
        found = [torch.randint(-4, 5, shape, generator=self.generator) / 2 for shape in shapes]
        return dict(zip(("query", "key", "value"), found, strict=True))

    def tokens(self, b: int, n: int) -> dict[str, Tensor]:
        """One sequence for all three, or for keys and values, where they have as many features."""
        given = self.sources(b, n, n)
        if len(set(self.sizes)) == 1:
            return dict.fromkeys(given, given["query"])
        return given | {"value": given["key"]} if self.sizes[1] == self.sizes[2] else given

    def opposites(self) -> dict[str, Tensor]:
        """Two tokens so far apart that one query's score for the second is far ahead."""
        given = {n: x.double().masked_fill(x == 0, 0.5) for n, x in self.tokens(1, 1).items()}
        return {name: 10_000 * torch.cat([x, -x], 1) for name, x in given.items()}


def _few_tokens(draw: Draw) -> Iterator[Case]:
    yield Case(
        "evaluation",
        "In evaluation the same input gives the same output: dropout does not act.",
        draw.tokens(1, 1),
        read=lambda output: output.new_zeros(()),
        again=True,
        means="dropout in evaluation",
    )
    yield Case(
        "one token",
        "With a single token all weight is on it: the output is out_proj(v_proj(x)).",
        draw.tokens(1, 1),
    )
    yield Case(
        "causal mask",
        "Under a causal mask token 0 sees itself alone: its output is out_proj(v_proj(x)).",
        draw.tokens(1, 3),
        mask=causal_mask(3),
        read=lambda output: output[:, :1],
    )
    yield Case(
        "two tokens",
        "A head compares its features of the query with its features of the keys, divides by "
        "the square root of their number, and adds up its features of the values.",
        draw.tokens(1, 2),
    )


def _whole_sequences(draw: Draw) -> Iterator[Case]:
    yield Case(
        "tokens and heads",
        "Tokens attend to tokens, within their item and within each head.",
        draw.several,
    )
    yield Case(
        "cross-attention",
        "Queries come from one sequence, keys and values from another.",
        draw.sources(2, draw.heads + 1, draw.heads + 3),
        needs=frozenset({"cross"}),
    )
    yield Case(
        "cross-attention",
        "Keys and values are two inputs, and each has its own projection.",
        draw.sources(2, draw.heads + 2, draw.heads + 2),
        needs=frozenset({"cross"}),
    )


def _masks(draw: Draw) -> Iterator[Case]:
    heads = draw.heads
    yield Case(
        "mask",
        "A token attends where its row of the mask is True.",
        draw.tokens(2, heads + 2),
        mask=causal_mask(heads + 2),
    )
    for items in (max(heads, 2), heads + 1):
        lengths = [heads + 2, *range(1, items)]
        yield Case(
            "mask",
            "A mask b i j belongs to the items: every head of an item gets the item's own.",
            draw.tokens(items, heads + 2),
            mask=causal_mask(heads + 2) & padding_mask(lengths, heads + 2),
        )


def _emptiness(draw: Draw) -> Iterator[Case]:
    nothing = causal_mask(3) & (torch.arange(3) != 1)[:, None]
    yield Case(
        "empty rows",
        "A token that may attend to nothing gets the bias of the output projection.",
        draw.tokens(1, 3),
        mask=nothing,
    )
    yield Case(
        "empty rows",
        "A token that may attend to nothing leaves all gradients finite.",
        draw.tokens(1, 3),
        mask=nothing,
        gradients=True,
    )


def _numbers(draw: Draw) -> Iterator[Case]:
    wide = {name: tensor.double() for name, tensor in draw.several.items()}
    yield Case(
        "dtypes",
        "A layer in float64 computes in float64.",
        wide,
        strict=True,
    )
    yield Case(
        "large scores",
        "Scores of many thousands are no trouble: a row's own largest is subtracted first.",
        {name: 100 * tensor for name, tensor in wide.items()},
    )
    yield Case(
        "large scores",
        "A hidden token has no influence, however large its score is.",
        draw.opposites(),
        mask=torch.tensor([[True, False], [True, False]]),
    )
    yield Case(
        "gradients",
        "Inputs and projections get the gradients of the formula.",
        draw.several,
        gradients=True,
    )
