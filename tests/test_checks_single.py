"""The check of a single head: sizes of its own for everything, and another sequence's keys."""

import re

import pytest
import torch
from torch import nn

from mini_attention import SingleHeadAttention, attention
from mini_attention.checks import check_single_head
from mini_attention.mistakes import MISTAKES
from mini_attention.mistakes.single import HEADS
from tests.failures import failure_of, named

ALIKE = {"d_model": 5, "d_head": 3}
UNLIKE = {"d_model": 5, "d_head": 3, "d_value": 2, "key_size": 7, "value_size": 11}
SOURCES = {"key_size": 7, "value_size": 7, "d_value": 2, **ALIKE}
# What no call of a layer with sequences and a mask shows, or what one head has no axis for.
UNSEEN = {
    "given scale ignored", "bias scaled", "bias forgotten beside mask", "bias detached",
    "dropout on scores", "dropout on output", "dropout not scaled up", "query scaled in place",
    "scaled by model width", "softmax over heads", "mask lands on heads", "junk gets through",
    "half summed in half",
}  # fmt: skip
FUNCTIONS = [n for n, m in MISTAKES.items() if "attention" in m.programs and n not in UNSEEN]


class Head(nn.Module):
    """A right head as people write it."""

    def __init__(self, queries=5, keys=7, d=3, e=2):
        super().__init__()
        self.W_q, self.W_k, self.W_v = nn.Linear(queries, d), nn.Linear(keys, d), nn.Linear(keys, e)

    def forward(self, x, context, mask=None):
        return attention(self.W_q(x), self.W_k(context), self.W_v(context), mask)


NAMES = ("W_q", "W_k", "W_v")


@pytest.mark.parametrize("sizes", [ALIKE, UNLIKE, SOURCES], ids=str)
def test_a_right_head_of_any_sizes_passes(sizes):
    report = check_single_head(SingleHeadAttention(**sizes))
    assert {"cross-attention", "mask", "gradients"} <= set(report.passed)
    assert report.skipped == []


@pytest.mark.parametrize("name", HEADS)
def test_a_wrong_head_is_told_its_mistake_and_no_other(name):
    failure = failure_of(check_single_head, HEADS[name](**ALIKE))
    assert named(failure) == [name]
    assert "Something else" not in str(failure)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_head_with_a_wrong_function_is_told_its_mistake(name):
    head = SingleHeadAttention(**UNLIKE, attend=MISTAKES[name].programs["attention"])
    assert named(failure_of(check_single_head, head)) == [name]


@pytest.mark.parametrize("name", ["scaled by model width", "projection bias forgotten"])
def test_the_sizes_of_a_head_do_not_matter(name):
    assert named(failure_of(check_single_head, HEADS[name](**UNLIKE))) == [name]


def test_two_sequences_are_enough_where_keys_and_values_come_of_one():
    report = check_single_head(Head(), projections=NAMES)
    assert "cross-attention" in report.passed
    assert report.skipped == []


class Swapped(Head):
    """The context asks, and has as many features as the other sequence."""

    def __init__(self):
        super().__init__(keys=5)

    def forward(self, x, context, mask=None):
        return super().forward(context, x, mask)


def test_the_other_sequence_that_asks_is_told_where_two_are_given():
    failure = failure_of(check_single_head, Swapped(), projections=NAMES)
    assert named(failure) == ["the other asks"]
    assert "output expected of shape (1, 2, 2), got (1, 1, 2)" in str(failure)


class Selfish(Head):
    def forward(self, x):
        return super().forward(x, x)


def test_a_head_that_takes_one_sequence_is_checked_as_far_as_it_goes():
    report = check_single_head(Selfish(keys=5), projections=NAMES)
    assert report.skipped == ["causal mask", "cross-attention", "mask", "empty rows"]


class KeysForValues(Selfish):
    """The values are projected by the matrix of the keys, which makes more features."""

    def forward(self, x):
        k = self.W_k(x)
        return attention(self.W_q(x), k, k)


def test_an_output_of_another_size_is_no_dropout():
    failure = failure_of(check_single_head, KeysForValues(keys=5), projections=NAMES)
    assert named(failure) == ["values by key projection"]
    assert "output expected of shape (1, 1, 2), got (1, 1, 3)" in str(failure)


def test_a_given_head_stands_for_the_projections():
    head = SingleHeadAttention(**UNLIKE)
    assert "gradients" in check_single_head(head, like=head).passed
    other = SingleHeadAttention(**UNLIKE)
    assert "one token: " in str(failure_of(check_single_head, head, like=other))


def test_an_adapter_can_turn_a_mask_round():
    class Hiding(Head):
        def forward(self, x, context, hide=None):
            return super().forward(x, context, None if hide is None else ~hide)

    report = check_single_head(
        Hiding(),
        projections=NAMES,
        call=lambda module, x, context, mask=None: module(
            x, context, None if mask is None else ~mask
        ),
    )
    assert "mask" in report.passed


def test_only_some_mechanisms_are_checked_when_asked_for():
    head = HEADS["the other asks"](**ALIKE)
    assert check_single_head(head, only=["one token", "two tokens"]).passed == [
        "one token", "two tokens",
    ]  # fmt: skip


def test_the_head_stays_as_it_is():
    head = SingleHeadAttention(**ALIKE).train()
    check_single_head(head)
    assert head.training
    assert all(parameter.grad is None for parameter in head.parameters())


@pytest.mark.parametrize(
    ("module", "projections", "message"),
    [
        (
            Head(),
            ("q_proj", "k_proj", "v_proj"),
            "projections= must name three linear layers, those of queries, keys and values; got "
            "['q_proj', 'k_proj', 'v_proj'], and the module has ['W_q', 'W_k', 'W_v']. For other "
            "parameters give like=, a SingleHeadAttention with the same numbers",
        ),
        (
            Head(),
            ("W_q", "W_k", "W_v", "W_q"),
            "projections= must name three linear layers, those of queries, keys and values; got "
            "['W_q', 'W_k', 'W_v', 'W_q'], and the module has ['W_q', 'W_k', 'W_v']. For other "
            "parameters give like=, a SingleHeadAttention with the same numbers",
        ),
        (
            Head(),
            ("W_q", "W_v", "W_k"),
            "queries and keys are compared feature by feature and need the same number; W_q makes "
            "3 and W_v makes 2",
        ),
    ],
)
def test_a_head_whose_parts_are_not_found_is_an_error_that_says_what_to_give(
    module, projections, message
):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        check_single_head(module, projections=projections)


def test_a_matrix_is_a_projection_whatever_its_module_is():
    class Linear(nn.Module):
        def __init__(self, size, features):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(features, size))

        def forward(self, x):
            return x @ self.weight.T

    head = Head()
    head.W_q, head.W_k, head.W_v = Linear(5, 3), Linear(7, 3), Linear(7, 2)
    assert "gradients" in check_single_head(head, projections=NAMES).passed
