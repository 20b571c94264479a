"""What is asked of a function that computes attention, from the smallest input on."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..functional import attention_weights
from ..masks import causal_mask
from .case import Case

HEADS = frozenset({"heads"})  # what a function needs for inputs b h n d


def cases_of_functions(seed: int = 0) -> Iterator[Case]:
    draw = Draw(seed)
    plain = (_formula, _axes, _masks, _reach, _options, _emptiness)
    for cases in (*plain, _numbers, _gradients, _dropout, _notes):
        yield from cases(draw)


class Draw:
    """Small numbers that can be read: halves between -2 and 2."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def numbers(self, *shape: int) -> Tensor:
        return torch.randint(-4, 5, shape, generator=self.generator) / 2

    def inputs(self, *leading: int, i: int, j: int, d: int = 2, e: int = 2) -> dict[str, Tensor]:
        return {
            "query": self.numbers(*leading, i, d),
            "key": self.numbers(*leading, j, d),
            "value": self.numbers(*leading, j, e),
        }

    def mask(self, *shape: int) -> Tensor:
        """Half of the pairs, and the first key for every query."""
        mask = torch.rand(shape, generator=self.generator) > 0.5
        mask[..., 0] = True
        return mask


def _formula(draw: Draw) -> Iterator[Case]:
    yield Case(
        "one key",
        "With a single key all weight is on it: the output is its value.",
        draw.inputs(i=1, j=1, e=3),
    )
    yield Case(
        "causal mask",
        "Under a causal mask query 0 sees key 0 alone: its output is value 0.",
        draw.inputs(i=3, j=3),
        mask=causal_mask(3),
        read=lambda output: output[..., :1, :],
    )
    alike = draw.inputs(i=2, j=4)
    yield Case(
        "equal keys",
        "Keys that are all alike share the weight evenly: the output is the mean of the values.",
        alike | {"key": draw.numbers(1, 2).expand(4, 2)},
    )
    yield Case(
        "scores",
        "A score is the product of a query and a key. Here d = 1, and no scale is to be seen.",
        draw.inputs(i=2, j=3, d=1),
    )
    yield Case(
        "scale",
        "The scores are divided by the square root of d, which is 2 here.",
        draw.inputs(i=2, j=3, d=4),
    )


def _axes(draw: Draw) -> Iterator[Case]:
    yield Case(
        "rows and columns",
        "Queries are rows and keys are columns, also where there are as many of both.",
        draw.inputs(i=3, j=3),
    )
    yield Case(
        "leading axes",
        "Items and heads are kept apart: each has its own scores, softmax and output.",
        draw.inputs(2, 3, i=4, j=5, e=3),
        needs=HEADS,
    )


def _masks(draw: Draw) -> Iterator[Case]:
    yield Case(
        "mask",
        "A query attends to the keys where its row of the mask is True, and to no other.",
        draw.inputs(i=2, j=3),
        mask=torch.tensor([[True, False, True], [True, True, False]]),
    )
    yield Case(
        "mask",
        "Row i of the mask belongs to query i, also where the mask is square.",
        draw.inputs(i=3, j=3),
        mask=causal_mask(3),
    )
    yield Case(
        "mask",
        "A mask with an axis for the items, b 1 i j, holds for each item.",
        draw.inputs(2, 3, i=4, j=5),
        needs=HEADS,
        mask=draw.mask(2, 1, 4, 5),
    )
    yield Case(
        "mask",
        "A mask with an axis for the heads, 1 h i j, holds for each head.",
        draw.inputs(2, 3, i=4, j=5),
        needs=HEADS,
        mask=draw.mask(1, 3, 4, 5),
    )
    yield Case(
        "mask",
        "A mask of keys, b 1 1 j, holds for every query.",
        draw.inputs(2, 3, i=4, j=5),
        needs=HEADS,
        mask=draw.mask(2, 1, 1, 5),
    )


def _reach(draw: Draw) -> Iterator[Case]:
    yield Case(
        "mask",
        "A hidden key has no influence, however large its score is.",
        draw.inputs(i=1, j=3)
        | {
            "query": torch.tensor([[30.0, 0.0]]),
            "key": torch.tensor([[0.0, 1.0], [0.01, 0.0], [9.0, 0.0]]),
        },
        mask=torch.tensor([[True, True, False]]),
    )
    yield Case(
        "mask",
        "A seen key keeps its weight, however low its score is.",
        draw.inputs(i=1, j=3)
        | {
            "query": torch.tensor([[1e5, 0.0]]),
            "key": torch.tensor([[-1e5, 0.0], [-1e5, 0.0], [0.0, 0.0]]),
        },
        mask=torch.tensor([[True, True, False]]),
    )


def _options(draw: Draw) -> Iterator[Case]:
    yield Case(
        "given scale",
        "A scale that the caller gives takes the place of 1 / sqrt(d).",
        draw.inputs(i=2, j=3),
        options={"scale": 0.25},
    )
    yield Case(
        "bias",
        "A bias is added to the scores after they are scaled.",
        draw.inputs(i=2, j=3),
        options={"bias": draw.numbers(2, 3)},
    )
    yield Case(
        "bias",
        "A bias with an axis for the heads, 1 h i j, holds for each head.",
        draw.inputs(2, 3, i=4, j=5),
        needs=HEADS,
        options={"bias": draw.numbers(1, 3, 4, 5)},
    )
    yield Case(
        "bias",
        "A bias and a mask can be given together.",
        draw.inputs(i=2, j=3),
        mask=torch.tensor([[True, False, True], [True, True, False]]),
        options={"bias": draw.numbers(2, 3)},
    )


def _emptiness(draw: Draw) -> Iterator[Case]:
    yield Case(
        "empty rows",
        "A query that may attend to nothing gets an output of 0.",
        draw.inputs(i=2, j=3),
        mask=torch.tensor([[True, False, True], [False, False, False]]),
    )
    yield Case(
        "empty rows",
        "A query that may attend to nothing leaves all gradients finite.",
        draw.inputs(i=2, j=3),
        mask=torch.tensor([[True, False, True], [False, False, False]]),
        gradients=True,
    )


def _numbers(draw: Draw) -> Iterator[Case]:
    # Three products that float32 holds exactly, 10,000 and a little less.
    near = torch.tensor([[200.0, 1, 0, 0], [200 - 1 / 32, 0, 0, 0], [200 - 2 / 32, 2, 0, 0]])
    yield Case(
        "large scores",
        "Scores of 10,000 and of -10,000 are no trouble: a row's largest is subtracted first.",
        draw.inputs(i=2, j=3)
        | {"query": torch.tensor([[100.0, 0, 0, 0], [-100.0, 0, 0, 0]]), "key": near},
    )
    yield Case(
        "large scores",
        "A row has its own largest score: one that is far ahead leaves the others as they are.",
        draw.inputs(i=2, j=3)
        | {"query": torch.tensor([[100.0, 0, 0, 0], [0, 1.0, 0, 0]]), "key": near},
    )
    for dtype in (torch.float64, torch.bfloat16):
        yield Case(
            "dtypes",
            f"{dtype} in, {dtype} out, and as exact as it can be.",
            {name: tensor.to(dtype) / 3 for name, tensor in draw.inputs(i=2, j=3).items()},
            strict=True,
        )


def _gradients(draw: Draw) -> Iterator[Case]:
    yield Case(
        "gradients",
        "Queries, keys and values get the gradients of the formula.",
        draw.inputs(i=2, j=3),
        gradients=True,
    )
    yield Case(
        "gradients",
        "The bias gets its gradient too.",
        draw.inputs(i=2, j=3),
        options={"bias": draw.numbers(2, 3)},
        gradients=True,
    )


def _dropout(draw: Draw) -> Iterator[Case]:
    asked = draw.inputs(i=7, j=11)
    weights = attention_weights(asked["query"], asked["key"])

    def kept(output: Tensor) -> Tensor:
        """The weights before dropout, told from what is left; and whether some is left and lost."""
        told = torch.where(output == 0, torch.cat([weights, weights], -1), output / 2)
        twice = output[:, :11] == output[:, 11:]  # a weight is kept for all features of its value
        seen = torch.stack([(output == 0).any(), (output != 0).any(), twice.all()])
        return torch.cat([told.flatten(), seen.to(output)])

    yield Case(
        "dropout",
        "Dropout sets weights to 0 and divides the others by 1 - dropout_p, here 0.5.",
        asked | {"value": torch.eye(11).repeat(1, 2)},
        options={"dropout_p": 0.5},
        read=kept,
    )


def _notes(draw: Draw) -> Iterator[Case]:
    yield Case(
        "ranks",
        "A mask b i j is none of one item's scores h i j.",
        draw.inputs(3, 3, i=4, j=5),
        needs=HEADS,
        mask=draw.mask(3, 4, 5),
        note="A mask b i j is taken without a word and laid on the heads.",
    )
    padded = draw.inputs(i=2, j=3)
    padded["key"][2] = padded["value"][2] = torch.nan
    yield Case(
        "padding",
        "A key that no query may attend to can hold anything.",
        padded,
        mask=torch.tensor([[True, True, False]]),
        note="NaN in a key or value that is hidden from all queries gets into the output.",
    )
    yield Case(
        "half precision",
        "Products are summed in float32.",
        {n: torch.full_like(t, 250.0).half() for n, t in draw.inputs(i=2, j=3, d=11).items()},
        note="In float16 scores are rounded, or overflow, before the softmax.",
    )
