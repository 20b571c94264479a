"""Small questions to wrong programs, where no check asks one or none that it holds against them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from einops import rearrange
from torch import Tensor
from torch.nn import functional as F

from ..masks import causal_mask


@dataclass(frozen=True)
class Trial:
    """A question that no check asks, or none that a check holds against a program."""

    question: str
    ask: Callable[[Callable[..., Any]], Tensor]  # of a program


def _mask_of_items(attend: Callable[..., Tensor]) -> Tensor:
    """The keys that the heads of item 0 see, where it may see key 0 and item 1 key 1."""
    query = torch.zeros(2, 2, 1, 1)
    own = torch.tensor([[[True, False]], [[False, True]]])
    return attend(query, query.expand(2, 2, 2, 1), torch.eye(2).expand(2, 2, 2, 2), own)[0, :, 0]


def _padding_of_nan(attend: Callable[..., Tensor]) -> Tensor:
    key = torch.tensor([[1.0], [torch.nan]])
    return attend(torch.ones(1, 1), key, key, torch.tensor([[True, False]]))


def _half(attend: Callable[..., Tensor]) -> Tensor:
    many = torch.full((1, 11), 250.0, dtype=torch.float16)
    return attend(many, many, torch.ones(1, 1, dtype=torch.float16))


def _far_in_double(attend: Callable[..., Tensor]) -> Tensor:
    query, key, value = torch.arange(12, dtype=torch.float64).sin().view(3, 2, 2)
    right = F.scaled_dot_product_attention(query, key, value)
    return torch.tensor(bool((attend(query, key, value) - right).abs().max() > 1e-9))


def _layer(kind: Callable[..., Any], *, train: bool = False) -> tuple[Any, Tensor]:
    """A layer of two heads with a dropout rate of 0.5, and two items of four tokens."""
    return kind(4, 2, dropout=0.5).train(train), torch.linspace(-1, 1, 32).sin().view(2, 4, 4)


def _bias_matters(kind: Callable[..., Any]) -> Tensor:
    layer, x = _layer(kind)
    hidden = torch.zeros(4, 4).index_fill(1, torch.tensor([0]), -torch.inf)
    return torch.tensor(not torch.allclose(layer(x, bias=hidden), layer(x)))


def _calls_differ(kind: Callable[..., Any]) -> Tensor:
    layer, x = _layer(kind, train=True)
    return torch.tensor(not torch.allclose(layer(x), layer(x)))


def _rows_sum_to_1(kind: Callable[..., Any]) -> Tensor:
    layer, x = _layer(kind, train=True)
    sums = layer(x, return_weights=True)[1].sum(-1)
    return torch.tensor(torch.allclose(sums, torch.ones_like(sums)))


def _heads_differ(kind: Callable[..., Any]) -> Tensor:
    layer, x = _layer(kind)
    weights = layer(x, return_weights=True)[1]
    return torch.tensor(not torch.allclose(weights[:, 0], weights[:, 1]))


def _future_shown(kind: Callable[..., Any]) -> Tensor:
    layer, x = _layer(kind)
    weights = layer(x, mask=causal_mask(4), return_weights=True)[1]
    return torch.tensor(bool((weights[..., 0, 1:] > 0).any()))


def _taken_over(convert: Callable[..., Any]) -> Tensor:
    mask: Tensor = convert(torch.tensor([[False, True], [False, False]]), num_heads=1)[0]
    return mask.int()


def _with_padding(convert: Callable[..., Any]) -> Tensor:
    hidden = torch.tensor([[False, True], [False, False]])
    mask: Tensor = convert(hidden, torch.tensor([[False, True]]), num_heads=1)[0]
    return mask.int()


def _stacked(convert: Callable[..., Tensor]) -> Tensor:
    seen = torch.tensor([[True, False], [True, False]])  # b h
    return convert(rearrange(seen, "b h -> b h 1 1"), num_heads=2).flatten().int()


def _row_of_a_table(build: Callable[..., Tensor]) -> Tensor:
    return build(2, 4)[1]


def _turned(turn: Callable[..., Tensor]) -> Tensor:
    return turn(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), torch.tensor([1]))


def _shift_matters(turn: Callable[..., Tensor]) -> Tensor:
    words = torch.ones(2, 4)
    near, far = (turn(words, torch.tensor([0, 1]) + shift) for shift in (0, 5))
    return torch.tensor(not torch.allclose(near[0] @ near[1], far[0] @ far[1]))


def _word_turns(turn: Callable[..., Tensor]) -> Tensor:
    first, second = turn(torch.ones(1, 2, 2))[0]
    return torch.tensor(not torch.allclose(first, second))


def _mean_of_values(build: Callable[..., Any]) -> Tensor:
    value = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    output: Tensor = build()(torch.zeros(1, 2), value, value)
    return output


def _alone_as_among_all(build: Callable[..., Any]) -> Tensor:
    words = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    alone, among = (build()(query, words, words)[-1] for query in (words[2:], words))
    return torch.tensor(torch.allclose(alone, among))


TRIALS = {
    "sinusoidal exponent doubled": Trial(
        "The row of position 1 with four features: a sine and a cosine of 1, and of 1 / 100.",
        _row_of_a_table,
    ),
    "rotary in other pairs": Trial(
        "The vector (1, 0, 0, 0) at position 1. Which feature turns with the first?", _turned
    ),
    "rotary speeds of neighbours": Trial(
        "Two words move on together. Does their score change?", _shift_matters
    ),
    "rotary along heads": Trial(
        "One head and two words that are alike. Does the second one turn?", _word_turns
    ),
    "values rotated too": Trial(
        "Two keys with equal scores have the same value, (1, 0). What is the output?",
        _mean_of_values,
    ),
    "queries counted from the start": Trial(
        "Does the last query get the same alone, with all keys in memory, as among all?",
        _alone_as_among_all,
    ),
    "mask lands on heads": Trial(
        "Two items of two heads; item 0 may see key 0, item 1 key 1. What do the heads of item 0 "
        "see? A mask b i j could mean either, and the package refuses it.",
        _mask_of_items,
    ),
    "junk gets through": Trial(
        "Two keys, 1 and NaN, of which the second is hidden. Their values are the same.",
        _padding_of_nan,
    ),
    "half summed in half": Trial(
        "In float16, a query and a key of eleven features that are 250 each; the value is 1.",
        _half,
    ),
    "double computed in single": Trial(
        "In float64, is the output further than 1e-9 from what is right?", _far_in_double
    ),
    "bias forgotten": Trial("Does a bias that forbids a token change the output?", _bias_matters),
    "dropout never acts": Trial("In training, do two calls differ?", _calls_differ),
    "shown after dropout": Trial(
        "In training, do the weights that are shown sum to 1 for each query?", _rows_sum_to_1
    ),
    "shown as average": Trial("Do the maps of the two heads differ?", _heads_differ),
    "shown without mask": Trial(
        "Under a causal mask, does the map show weight on a later token?", _future_shown
    ),
    "sense of torch kept": Trial(
        "Torch hides key 1 from query 0. Where may a query attend?", _taken_over
    ),
    "masks joined with or": Trial(
        "Torch hides key 1 from query 0, and key 1 is padding. Where may a query attend?",
        _with_padding,
    ),
    "heads stacked first": Trial(
        "Two items; head 0 sees its only key, head 1 does not. What is hidden, item by item?",
        _stacked,
    ),
}
