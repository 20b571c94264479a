"""What is asked of attention in blocks, and of the step that merges two of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ..masks import causal_mask
from .case import Case
from .function_cases import HEADS, Draw, cases_of_functions

LEFT_OUT = ("dropout",)  # which no blocks have


def cases_of_blocks(seed: int) -> Iterator[Case]:
    """All that is asked of attention, in one block; then what only blocks can get wrong."""
    for case in cases_of_functions(seed):
        if not case.note and case.mechanism not in LEFT_OUT:
            if case.mechanism == "large scores":  # to the base 2 they are not exact in float32
                case = replace(case, inputs={n: x.double() for n, x in case.inputs.items()})
            yield _in_blocks(case, case.inputs["key"].shape[-2])
    draw = Draw(seed)
    for cases in (_blocks, _sizes, _large, _masks, _gradients, _memory):
        yield from cases(draw)


def _in_blocks(case: Case, size: int) -> Case:
    return replace(case, options={**case.options, "block_size": size})


def _sorted(inputs: Mapping[str, Tensor], *, falling: bool) -> dict[str, Tensor]:
    """The keys in the order of their scores for the first query."""
    order = (inputs["key"] @ inputs["query"][0]).argsort(descending=falling)
    return {**inputs, "key": inputs["key"][order]}


def _blocks(draw: Draw) -> Iterator[Case]:
    ask = _in_blocks
    for falling, how in ((True, "fall"), (False, "rise")):
        inputs = _sorted(draw.inputs(i=1, j=4), falling=falling)
        yield ask(Case("blocks", f"One softmax over two blocks, whose scores {how}.", inputs), 2)
    yield ask(
        Case("blocks", "Each row has its own largest score and sum.", draw.inputs(i=3, j=6, e=3)), 2
    )
    yield ask(
        Case(
            "blocks",
            "Items and heads are kept apart in blocks too.",
            draw.inputs(2, 3, i=4, j=6, e=3),
            needs=HEADS,
        ),
        3,
    )


def _sizes(draw: Draw) -> Iterator[Case]:
    ask = _in_blocks
    for j, size in ((3, 2), (7, 3), (5, 4)):
        yield ask(
            Case(
                "ragged block",
                "The last block is smaller where the size does not divide the number of keys.",
                draw.inputs(i=2, j=j),
            ),
            size,
        )
    yield ask(Case("one key a block", "A block can be a single key.", draw.inputs(i=2, j=3)), 1)
    yield ask(Case("large block", "A block can be larger than the row.", draw.inputs(i=2, j=3)), 7)


def _large(draw: Draw) -> Iterator[Case]:
    # Two keys near each other are 10,000 away from the two of the other block.
    near = torch.tensor([[200.0, 1, 0, 0], [200 - 1 / 32, 0, 0, 0]])
    key = torch.cat([near, -near])
    ahead = torch.tensor([[100.0, 0, 0, 0], [-100.0, 0, 0, 0]])
    inputs = draw.inputs(i=2, j=4) | {"query": ahead, "key": key}
    yield _in_blocks(
        Case(
            "large scores",
            "A block that is 10,000 ahead, or behind, is no trouble: the largest score so far is "
            "subtracted.",
            {name: tensor.double() for name, tensor in inputs.items()},
        ),
        2,
    )


def _masks(draw: Draw) -> Iterator[Case]:
    ask = _in_blocks
    yield ask(
        Case(
            "mask",
            "Each block of keys has its own columns of the mask.",
            draw.inputs(i=4, j=4),
            mask=causal_mask(4),
        ),
        2,
    )
    for first in (True, False):
        yield ask(
            Case(
                "empty block",
                "A block that is all hidden from a query changes nothing for it.",
                draw.inputs(i=2, j=4),
                mask=torch.tensor([[not first, not first, first, first], [True] * 4]),
            ),
            2,
        )
    nothing = causal_mask(3, 5) & (torch.arange(3) != 1)[:, None]
    for gradients, what in ((False, "gets an output of 0"), (True, "leaves all gradients finite")):
        yield ask(
            Case(
                "empty rows",
                f"A query that may attend to nothing in any block {what}.",
                draw.inputs(i=3, j=5),
                mask=nothing,
                gradients=gradients,
            ),
            2,
        )


def _gradients(draw: Draw) -> Iterator[Case]:
    yield _in_blocks(
        Case(
            "gradients",
            "Queries, keys and values get the gradients of the formula from all blocks.",
            draw.inputs(i=2, j=5),
            gradients=True,
        ),
        2,
    )


def _memory(draw: Draw) -> Iterator[Case]:
    inputs = draw.inputs(i=7, j=7)
    yield _in_blocks(Case("blocks", "Seven queries and seven keys.", inputs), 2)
    yield _in_blocks(
        Case(
            "memory",
            "With blocks of 2, seven queries and seven keys need no tensor of 49 elements.",
            inputs,
            whole=49,
            means="scores stored whole",
        ),
        2,
    )


# Merging two pieces of rows


def cases_of_merges(seed: int) -> Iterator[Case]:
    draw = Draw(seed)

    def ask(mechanism: str, expects: str, *pieces: dict[str, Tensor]) -> Case:
        return Case(mechanism, expects, _two(*pieces))

    single = "A piece of one key has its score as top, 1 as total, and its value."
    low, high = sorted(2 * torch.rand(2, generator=draw.generator) + torch.tensor([0.0, 2.0]))
    one, other = (_piece(x.view(1, 1), draw.numbers(1, 2)) for x in (low, high))
    equal = _piece(low.view(1, 1), draw.numbers(1, 2))
    yield ask("equal tops", f"Totals and values add up. {single}", one, equal)
    yield ask("higher top", "The first piece shrinks by e^(its top - the new one).", one, other)
    yield ask("lower top", "The second piece shrinks by e^(its top - the new one).", other, one)
    rows = [_piece(draw.numbers(3, j), draw.numbers(j, 2)) for j in (2, 5)]
    yield ask("rows", "Each row has its own top and total.", *rows)
    yield ask("rows", "Merging works in any order.", *reversed(rows))
    leading = [_piece(draw.numbers(2, 3, j), draw.numbers(2, j, 2)) for j in (3, 4)]
    yield ask("leading axes", "Axes in front of the rows stay apart.", *leading)
    for step in (1000.0, -1000.0):
        far = _piece(draw.numbers(2, 3) + step, draw.numbers(3, 2))
        yield ask(
            "large scores", f"A piece {step:g} away is no trouble.",
            _piece(draw.numbers(2, 2), draw.numbers(2, 2)), far,
        )  # fmt: skip
    some = _piece(draw.numbers(2, 3), draw.numbers(3, 2))
    none = _piece(torch.full((2, 3), -torch.inf), draw.numbers(3, 2))
    yield ask("empty piece", "A piece of hidden keys changes nothing.", some, none)
    yield ask("empty piece", "A piece of hidden keys changes nothing.", none, some)
    yield ask("empty rows", "Two pieces of hidden keys make one: no NaN.", none, none)
    yield replace(ask("gradients", "All six get their gradients.", *rows), gradients=True)


def _piece(scores: Tensor, value: Tensor) -> dict[str, Tensor]:
    """The top, total and values of a piece of rows, in float64."""
    top = scores.double().amax(-1, keepdim=True)
    weights = (scores - top.masked_fill(top.isinf(), 0.0)).exp()
    return {
        "top": top,
        "total": weights.sum(-1, keepdim=True),
        "values": weights @ value.double(),
    }


def _two(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> dict[str, Tensor]:
    first = {f"first {name}": tensor for name, tensor in one.items()}
    return first | {f"second {name}": tensor for name, tensor in other.items()}
