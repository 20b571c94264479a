"""What every check makes of an answer that is not there yet, is wider, or was kept from coming."""

import inspect

import pytest
import torch
from torch import nn

from mini_attention import (
    MultiHeadAttention,
    SingleHeadAttention,
    attention,
    causal_mask,
    check_attention,
    check_multi_head,
)
from mini_attention.checks import (
    CheckFailed,
    check_blocked,
    check_cost,
    check_mask,
    check_merge,
    check_single_head,
)
from mini_attention.checks.case import Case, Program, Subject
from mini_attention.checks.engine import check
from tests.failures import failure_of, said


def mine(query, key, value, mask=None):
    raise NotImplementedError("write this")


def mine_in_blocks(query, key, value, size):
    raise NotImplementedError


def two(one, other):
    raise NotImplementedError


class Mine(MultiHeadAttention):
    def forward(self, x):
        raise NotImplementedError("write this")


class MyHead(SingleHeadAttention):
    def forward(self, query, key, value, mask=None):
        raise NotImplementedError("write this")


UNWRITTEN = {
    "mine": lambda: check_attention(mine),
    "Mine": lambda: check_multi_head(Mine(6, 3)),
    "MyHead": lambda: check_single_head(MyHead(5, 3)),
    "mine_in_blocks": lambda: check_blocked(mine_in_blocks),
    "two": lambda: check_merge(two),
    "your function": lambda: check_mask(lambda i, j: two(i, j), causal_mask),
    "mine_too": lambda: check_cost(mine_too, lambda n: n),
}


def mine_too(n):
    raise NotImplementedError


@pytest.mark.parametrize("name", UNWRITTEN)
def test_what_is_not_written_yet_is_told_in_a_friendly_way(name):
    failure = failure_of(UNWRITTEN[name])
    assert said(failure) == (
        f"Not written yet: {name}. Put your code in place of `raise NotImplementedError`, and run "
        "this again."
    )
    assert isinstance(failure.__cause__, NotImplementedError)


def test_a_part_that_is_not_written_yet_is_told_by_what_it_is_for():
    def half(query, key, value, mask=None):
        return attention(query, key, value) if mask is None else mine(query, key, value)

    assert said(failure_of(check_attention, half)) == (
        "Not written yet: a part of half, for causal mask: Under a causal mask query 0 sees key 0 "
        "alone: its output is value 0. Put your code in place of `raise NotImplementedError`, and "
        "run this again."
    )


def test_what_torch_has_not_implemented_is_an_error_like_any_other():
    def function(query, key, value):
        return (query @ key.mT).long().softmax(-1) @ value

    failure = failure_of(check_attention, function)
    assert 'raised NotImplementedError: "softmax' in said(failure)


def test_an_error_of_what_is_right_is_the_questions_own():
    def raises(*given):
        raise ValueError("no such question")

    subject = Subject(Program(attention), set(), Program(raises), {})
    with pytest.raises(ValueError, match=r"^no such question$"):
        check(subject, [Case("one", "It raises.", {})], None)


def test_a_module_without_a_forward_is_not_written_yet():
    class Empty(nn.Module):
        pass

    failure = failure_of(check_single_head, Empty(), like=SingleHeadAttention(5, 3))
    assert said(failure).startswith("Not written yet: Empty.")


@pytest.mark.parametrize("put", [check_attention, lambda f: check_attention(f, only=["scores"])])
def test_what_kept_an_answer_from_coming_has_said_all(put):
    def late(query, key, value):
        raise CheckFailed("late did not end within 3 seconds")

    with pytest.raises(CheckFailed, match=r"^late did not end within 3 seconds$"):
        put(late)


def test_what_kept_a_layer_from_answering_has_said_all():
    class Late(MultiHeadAttention):
        def forward(self, x):
            raise CheckFailed("out of memory")

    with pytest.raises(CheckFailed, match=r"^out of memory$"):
        check_multi_head(Late(6, 3))


def wide(query, key, value, mask=None):
    return attention(query.double(), key.double(), value.double(), mask)


def test_an_answer_in_float64_is_wrong_in_the_dtypes_alone():
    failure = failure_of(check_attention, wide)
    assert str(failure).startswith("dtypes: torch.bfloat16 in, torch.bfloat16 out")
    rest = [name for name in check_attention(attention).passed if name != "dtypes"]
    rest = [name for name in rest if name not in ("given scale", "bias", "dropout")]
    assert check_attention(wide, only=rest).passed == rest


class Elsewhere:
    """A function of another process: no source, a signature, and gradients."""

    def __init__(self, function):
        self.answer = function
        self.__signature__ = inspect.signature(function)

    def __call__(self, *inputs, **options):
        class Call(torch.autograd.Function):
            @staticmethod
            def forward(ctx, *given):
                with torch.enable_grad():
                    ctx.given = [copied(x) for x in given]
                    ctx.output = self.answer(*ctx.given, **options)
                return ctx.output.detach()

            @staticmethod
            def backward(ctx, gradient):
                leaves = [x for x in ctx.given if torch.is_tensor(x) and x.requires_grad]
                found = iter(torch.autograd.grad(ctx.output, leaves, gradient, allow_unused=True))
                wanted = [torch.is_tensor(x) and x.requires_grad for x in ctx.given]
                return tuple(next(found) if one else None for one in wanted)

        def copied(x):
            if not torch.is_tensor(x):
                return x
            return x.detach().requires_grad_(x.is_floating_point())

        return Call.apply(*inputs)


def test_functions_that_are_only_called_and_differentiated_can_be_checked():
    def far(query, key, value, mask=None):
        return attention(query, key, value, mask)

    def far_blocks(query, key, value, size, mask=None):
        masks = [None] * 99 if mask is None else mask.split(size, -2)
        blocks = zip(query.split(size, -2), masks, strict=False)
        return torch.cat([attention(q, key, value, seen) for q, seen in blocks], -2)

    assert {"mask", "gradients"} <= set(check_attention(Elsewhere(far)).passed)
    assert {"memory", "gradients"} <= set(check_blocked(Elsewhere(far_blocks)).passed)
    failure = failure_of(check_attention, Elsewhere(mine))
    assert said(failure).startswith("Not written yet: Elsewhere.")
