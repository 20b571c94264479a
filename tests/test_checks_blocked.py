"""The checks of attention in blocks, and of the step that merges two pieces of a row."""

import math

import pytest
import torch

from mini_attention import attention, blocked_attention
from mini_attention.checks import check_attention, check_blocked, check_merge
from mini_attention.mistakes import MISTAKES, RUNNING
from mini_attention.mistakes.running import Running
from tests.failures import failure_of, named, said

BLOCKED = [name for name, m in RUNNING.items() if "blocked_attention" in m.programs]
MERGED = [name for name, m in RUNNING.items() if "merge" in m.programs]


@pytest.mark.parametrize("name", BLOCKED)
def test_wrong_blocks_are_told_their_mistake_and_no_other(name):
    failure = failure_of(check_blocked, RUNNING[name].programs["blocked_attention"])
    assert named(failure) == [name]
    assert "Something else" not in str(failure)
    assert RUNNING[name].what in said(failure)


@pytest.mark.parametrize("name", MERGED)
def test_a_wrong_merge_is_told_its_mistake_and_no_other(name):
    failure = failure_of(check_merge, RUNNING[name].programs["merge"])
    assert named(failure) == [name]
    assert "Something else" not in str(failure)


def in_blocks(attend):
    def function(query, key, value, mask=None, *, bias=None, scale=None, block_size):
        return attend(query, key, value, mask, bias=bias, scale=scale)

    return function


@pytest.mark.parametrize("name", ["no scale", "mask inverted", "weights detached"])
def test_a_mistake_that_has_nothing_to_do_with_blocks_is_told_too(name):
    failure = failure_of(check_blocked, in_blocks(MISTAKES[name].programs["attention"]))
    assert named(failure) == [name]


def test_two_mistakes_of_the_formula_are_both_told():
    class Both(MISTAKES["no scale"].source, MISTAKES["mask inverted"].source):
        pass

    failure = failure_of(check_blocked, in_blocks(Both().attention), only=["mask"])
    assert named(failure) == ["no scale and mask inverted"]


def test_a_matrix_of_all_scores_is_seen_and_nothing_else_is_wrong_with_it():
    function = in_blocks(attention)
    failure = failure_of(check_blocked, function)
    assert str(failure).startswith("memory: With blocks of 2, seven queries and seven keys need")
    assert "made on the way (1 is yes) expected 0\n" in str(failure)
    rest = ["scores", "blocks", "ragged block", "empty block", "gradients"]
    assert set(check_blocked(function, only=rest).passed) == set(rest)


def test_numbers_that_are_read_on_the_way_are_no_tensors():
    def function(query, key, value, size):
        assert query.isfinite().all().item()
        return by_queries(query, key, value, size)

    assert "memory" in check_blocked(function, only=["blocks", "memory"]).passed


def test_all_pieces_put_together_again_are_a_matrix_too():
    def function(query, key, value, size):
        scores = [query @ k.mT / math.sqrt(key.shape[-1]) for k in key.split(size, -2)]
        return torch.cat(scores, -1).softmax(-1) @ value

    assert named(failure_of(check_blocked, function)) == ["scores stored whole"]


def by_queries(query, key, value, block):
    return torch.cat([attention(q, key, value) for q in query.split(block, -2)], -2)


class OfMatrices:
    """One pair of matrices at a time, blocks of keys, and a mask that must be given."""

    def __call__(self, q, k, v, tile, mask):
        state = None
        for start in range(0, len(k), tile):
            keys = slice(start, start + tile)
            scores = (q @ k[keys].T / len(k[0]) ** 0.5).masked_fill(~mask[:, keys], -torch.inf)
            new = Running().piece(scores, v[keys])
            state = new if state is None else Running().merge(state, new)
        return Running().end(state), state


def shallow(query, key, value, size):
    if query.ndim != 2:
        raise ValueError("matrices are expected")
    return by_queries(query, key, value, size)


def test_right_blocks_pass_whatever_is_cut():
    assert check_blocked(blocked_attention).skipped == []
    assert "memory" in check_blocked(by_queries).passed
    assert "leading axes" in check_blocked(shallow).skipped
    theirs = check_blocked(OfMatrices())
    assert {"mask", "empty block", "empty rows"} <= set(theirs.passed)
    assert theirs.skipped == ["leading axes", "given scale", "bias"]


def test_a_function_without_a_size_of_its_blocks_is_an_error():
    with pytest.raises(ValueError, match=r"after query, key and value; got \['query', 'key'"):
        check_blocked(lambda query, key, value, mask=None: None)


def test_what_is_asked_of_one_block_is_what_is_asked_of_attention():
    blocked, plain = check_blocked(blocked_attention).passed, check_attention(attention).passed
    assert set(plain) - set(blocked) == {"dropout"}


# Merging


def merge(one, other):
    top = torch.maximum(one[0], other[0])
    finite = top.nan_to_num(neginf=0.0)
    mine, theirs = (one[0] - finite).exp(), (other[0] - finite).exp()
    return top, mine * one[1] + theirs * other[1], mine * one[2] + theirs * other[2]


def six(m, l, o, new_m, new_l, new_o):  # noqa: E741
    return list(merge((m, l, o), (new_m, new_l, new_o)))


def with_the_lowest_number(one, other):
    lowest = torch.finfo(torch.float64).min
    one, other = ((top.clamp(min=lowest), *rest) for top, *rest in (one, other))
    return merge(one, other)


@pytest.mark.parametrize("function", [merge, six, with_the_lowest_number, Running().merge])
def test_a_right_merge_passes(function):
    assert check_merge(function).skipped == []


@pytest.mark.parametrize(
    ("function", "hint"),
    [
        (lambda one, other: one[0], "three tensors are expected, in this order: top, total and"),
        (lambda one, other: one[:2], "three tensors are expected, in this order: top, total and"),
        (lambda one, other: (one[0], 1, None), "are tensors; these are Tensor, int, NoneType"),
    ],
)
def test_what_are_no_three_tensors_is_told(function, hint):
    failure = failure_of(check_merge, function)
    assert hint in said(failure)
    assert "mistakes that this check knows" not in said(failure)


def test_a_failed_merge_shows_all_six_numbers():
    failure = failure_of(check_merge, lambda one, other: (one[0], one[1], one[2]))
    assert str(failure).startswith("equal tops: Totals and values add up.")
    assert "\nfirst total = [[1]]\n" in str(failure)
    assert "\ntotal expected [[2]]\ntotal got      [[1]]\n" in str(failure)


def test_gradients_of_a_merge_are_compared():
    def detached(one, other):
        top, total, values = merge(one, other)
        return top, total, values + one[2].detach() - one[2]

    failure = failure_of(check_merge, detached)
    assert str(failure).startswith("gradients: All six get their gradients.")
