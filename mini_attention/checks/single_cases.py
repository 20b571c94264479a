"""What is asked of a layer that is a single head, from the smallest input on."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..heads import SingleHeadAttention
from ..masks import causal_mask, padding_mask
from .case import Case
from .layer_cases import Draw

CROSS = frozenset({"cross"})
CONTEXT = frozenset({"context"})


def cases_of_single_heads(like: SingleHeadAttention, seed: int) -> Iterator[Case]:
    draw = Draw(like, 1, seed)
    for cases in (_few_tokens, _two_sequences, _items, _masks, _emptiness, _numbers):
        yield from cases(draw)


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
        "With a single token all weight is on it: the output is v_proj(x).",
        draw.tokens(1, 1),
    )
    yield Case(
        "causal mask",
        "Under a causal mask token 0 sees itself alone: its output is v_proj(x).",
        draw.tokens(1, 3),
        mask=causal_mask(3),
        read=lambda output: output[:, :1],
    )
    yield Case(
        "two tokens",
        "Features of the query are compared with those of the keys, their product is divided by "
        "the square root of their number, d, and the features of the values are added up.",
        draw.tokens(1, 2),
    )


def _two_sequences(draw: Draw) -> Iterator[Case]:
    for needs in _forms(draw):
        for i, j in ((2, 1), (2, 3), (5, 3), (3, 3)):
            yield Case(
                "cross-attention",
                "Queries come from one sequence, keys and values from another: each query gets an "
                "output.",
                _shared(draw.sources(1, i, j), needs),
                needs=needs,
            )
    yield Case(
        "cross-attention",
        "Keys and values are two inputs, and each has its own projection.",
        draw.sources(2, 3, 5),
        needs=CROSS,
    )


def _forms(draw: Draw) -> list[frozenset[str]]:
    """With one input for keys and values, where that can be, and with one for each."""
    return [CONTEXT, CROSS] if draw.sizes[1] == draw.sizes[2] else [CROSS]


def _shared(given: dict[str, Tensor], needs: frozenset[str]) -> dict[str, Tensor]:
    """The key's input as the value's too, for a head that takes two sequences."""
    return given | {"value": given["key"]} if needs == CONTEXT else given


def _items(draw: Draw) -> Iterator[Case]:
    yield Case(
        "tokens and items",
        "Tokens attend to tokens, within their item.",
        draw.tokens(2, 3),
    )


def _masks(draw: Draw) -> Iterator[Case]:
    yield Case(
        "mask",
        "A token attends where its row of the mask is True.",
        draw.tokens(2, 3),
        mask=causal_mask(3),
    )
    yield Case(
        "mask",
        "A mask b i j belongs to the items: each gets its own.",
        draw.tokens(3, 3),
        mask=causal_mask(3) & padding_mask([3, 1, 2], 3),
    )
    for needs in _forms(draw):
        yield Case(
            "mask",
            "In cross-attention the mask i j has a row for each query and a column for each key.",
            _shared(draw.sources(2, 2, 3), needs),
            mask=torch.tensor([[True, False, True], [False, True, True]]),
            needs=needs,
        )


def _emptiness(draw: Draw) -> Iterator[Case]:
    nothing = causal_mask(3) & (torch.arange(3) != 1)[:, None]
    yield Case(
        "empty rows",
        "A token that may attend to nothing gets an output of 0.",
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
    few = draw.tokens(2, 3)
    wide = {name: tensor.double() for name, tensor in few.items()}
    yield Case("dtypes", "A layer in float64 computes in float64.", wide, strict=True)
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
        few,
        gradients=True,
    )
