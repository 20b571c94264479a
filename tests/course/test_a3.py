"""What assignment 3 says of a view that should have been a rearrangement."""

import pytest
import torch
from einops import rearrange

from course.assignments.a3 import who_meets_whom
from mini_attention import attention


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 7])
@pytest.mark.parametrize("h", [1, 2, 3, 5])
def test_who_meets_whom_is_what_a_view_does(n, h):
    def by_view(t):
        return attention(*[t.view(h, n, 2)] * 3).reshape(n, h * 2)

    torch.manual_seed(0)
    t = torch.randn(n, h * 2, dtype=torch.float64)
    moved = torch.autograd.functional.jacobian(by_view, t).abs().amax((1, 3)) > 0
    assert torch.equal(who_meets_whom(n, h), moved)


@pytest.mark.parametrize(("n", "h"), [(1, 1), (1, 4), (5, 1), (3, 3), (6, 3), (3, 6), (5, 3)])
def test_a_view_is_right_for_one_word_or_one_head_alone(n, h):
    torch.manual_seed(0)
    t = torch.randn(n, h * 2, dtype=torch.float64)
    right = rearrange(t, "n (h d) -> h n d", h=h)
    assert torch.equal(t.view(h, n, 2), right) == (n == 1 or h == 1)
