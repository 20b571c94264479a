"""Other seeds ask with other numbers, and what is right or wrong stays so."""

import pytest
import torch

from mini_attention import (
    MultiHeadAttention,
    SingleHeadAttention,
    attention,
    blocked_attention,
    causal_mask,
    check_attention,
    check_multi_head,
    document_mask,
    fused_attention,
    padding_mask,
    window_mask,
)
from mini_attention.checks import (
    check_blocked,
    check_cost,
    check_mask,
    check_merge,
    check_single_head,
)
from mini_attention.checks.blocked_cases import cases_of_blocks, cases_of_merges
from mini_attention.checks.function_cases import cases_of_functions
from mini_attention.cost import multi_head_cost
from mini_attention.mistakes import MISTAKES, RUNNING
from mini_attention.mistakes.layers import Layer
from mini_attention.mistakes.running import Running
from mini_attention.mistakes.single import HEADS
from tests.failures import failure_of

pytestmark = pytest.mark.slow

SEEDS = [range(1, 10), pytest.param(range(10, 37), marks=pytest.mark.full)]
FEW = [range(1, 4), pytest.param(range(4, 10), marks=pytest.mark.full)]  # of each wrong program
BUILDERS = {f.__name__: f for f in (causal_mask, window_mask, padding_mask, document_mask)}
# What a function's mistake is worth beside the formula: a note.
NOTED = {"mask lands on heads", "junk gets through", "half summed in half"}


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Only that there is a failure: to say which takes most of the time."""
    monkeypatch.setattr("mini_attention.checks.engine.failure", lambda *_: "wrong")


def heads_of(name):
    return SingleHeadAttention(5, 3, d_value=2, attend=MISTAKES[name].programs["attention"])


def layer_of(name):
    programs = MISTAKES[name].programs
    if "attention" in programs:
        return Layer(6, 3, attend=programs["attention"])
    return programs["MultiHeadAttention"](6, 3, dropout=0.5)


RIGHT = {
    "attention": lambda seed: check_attention(attention, seed=seed),
    "fused": lambda seed: check_attention(fused_attention, seed=seed),
    "layer": lambda seed: check_multi_head(MultiHeadAttention(6, 3), seed=seed),
    "head": lambda seed: check_single_head(SingleHeadAttention(5, 3, d_value=2), seed=seed),
    "blocks": lambda seed: check_blocked(blocked_attention, seed=seed),
    "merge": lambda seed: check_merge(Running().merge, seed=seed),
    "cost": lambda seed: check_cost(multi_head_cost, multi_head_cost, seed=seed),
    **{n: lambda seed, f=f: check_mask(f, f, seed=seed) for n, f in BUILDERS.items()},
}


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
@pytest.mark.parametrize("right", RIGHT.values(), ids=RIGHT)
def test_a_right_program_passes_for_every_seed(right, seeds):
    for seed in seeds:
        right(seed)


FUNCTIONS = [n for n, m in MISTAKES.items() if "attention" in m.programs and n not in NOTED]
UNSEEN_IN_LAYERS = {
    "given scale ignored", "bias scaled", "bias forgotten beside mask", "bias detached",
    "dropout on scores", "dropout on output", "dropout not scaled up", "query scaled in place",
    "softmax over heads", "scaled by model width",
}  # fmt: skip


@pytest.mark.parametrize("seeds", FEW, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_wrong_function_fails_for_every_seed(name, seeds):
    for seed in seeds:
        failure_of(check_attention, MISTAKES[name].programs["attention"], seed=seed)


@pytest.mark.parametrize("seeds", FEW, ids=str)
@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in UNSEEN_IN_LAYERS])
def test_a_head_with_a_wrong_function_fails_for_every_seed(name, seeds):
    head = heads_of(name)
    for seed in seeds:
        failure_of(check_single_head, head, seed=seed)


@pytest.mark.parametrize("seeds", FEW, ids=str)
@pytest.mark.parametrize("name", HEADS)
def test_a_wrong_head_fails_for_every_seed(name, seeds):
    head = HEADS[name](5, 3)
    for seed in seeds:
        failure_of(check_single_head, head, seed=seed)


LAYERS = [
    name
    for name, m in MISTAKES.items()
    if m.kind not in ("convert", "dropout")
    and ("MultiHeadAttention" in m.programs or name in FUNCTIONS)
    and name not in UNSEEN_IN_LAYERS - {"scaled by model width", "softmax over heads"}
    and name not in ("bias forgotten", "scaled by value width")
    and not name.startswith("shown")
]


@pytest.mark.parametrize("seeds", FEW, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_a_wrong_layer_fails_for_every_seed(name, seeds):
    layer = layer_of(name)
    for seed in seeds:
        failure_of(check_multi_head, layer, seed=seed)


@pytest.mark.parametrize("seeds", FEW, ids=str)
@pytest.mark.parametrize(
    ("check", "public", "name"),
    [
        (check, public, name)
        for check, public in ((check_blocked, "blocked_attention"), (check_merge, "merge"))
        for name, mistake in RUNNING.items()
        if public in mistake.programs
    ],
)
def test_wrong_blocks_and_merges_fail_for_every_seed(check, public, name, seeds):
    for seed in seeds:
        failure_of(check, RUNNING[name].programs[public], seed=seed)


@pytest.mark.parametrize("seeds", FEW, ids=str)
@pytest.mark.parametrize(
    ("name", "builder"), [(n, b) for n, m in MISTAKES.items() for b in BUILDERS if b in m.programs]
)
def test_a_wrong_builder_fails_for_every_seed(name, builder, seeds):
    for seed in seeds:
        failure_of(check_mask, MISTAKES[name].programs[builder], BUILDERS[builder], seed=seed)


@pytest.mark.parametrize("cases_of", [cases_of_functions, cases_of_blocks, cases_of_merges])
def test_a_seed_gives_the_same_numbers_again_and_another_one_others(cases_of):
    def numbers(seed):
        tensors = [x for case in cases_of(seed) for x in case.inputs.values()]
        return torch.cat([x.double().flatten().nan_to_num(neginf=-9.0) for x in tensors])

    assert torch.equal(numbers(3), numbers(3))
    assert not torch.equal(numbers(3), numbers(4))
