"""Fixtures that every test file shares."""

import pytest
import torch

from mini_attention import attention, blocked_attention, fused_attention

IMPLEMENTATIONS = (attention, fused_attention, blocked_attention)
DROPPING = (attention, fused_attention)


@pytest.fixture(autouse=True)
def seed():
    torch.default_generator.manual_seed(0)  # the CPU alone: a tenth of the time


@pytest.fixture(params=IMPLEMENTATIONS, ids=lambda function: function.__name__)
def attend(request):
    """Each implementation in turn: the same tests hold for all of them."""
    return request.param


@pytest.fixture(params=DROPPING, ids=lambda function: function.__name__)
def dropping(request):
    """Each implementation that can drop weights."""
    return request.param
