"""Point 9 of the contract: what each implementation can do, and what it raises instead."""

import re
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import func

from mini_attention import attention_weights
from tests.oracles import (
    B,
    E,
    H,
    I,
    J,
    assert_same,
    inputs,
    naive_attention,
    some_bias,
    some_mask,
    with_gradients,
)

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)

CAN = {
    "attention": {
        "gradcheck": True,
        "gradgradcheck": True,
        "jacrev": True,
        "jacfwd": True,
        "vmap": True,
    },
    "fused_attention": {
        "gradcheck": True,
        "gradgradcheck": RuntimeError,
        "jacrev": True,
        "jacfwd": NotImplementedError,
        "vmap": True,
    },
}
SLOW_BATCHES = "ignore:There is a performance drop:UserWarning"  # the kernel, looped over by vmap
TORCH_ITSELF = "ignore:.torch.jit:DeprecationWarning"  # jacfwd and the compiler, inside torch


def test_the_card_tells_what_each_implementation_can_do():
    card = (Path(__file__).parents[1] / "book" / "conventions.md").read_text(encoding="utf-8")
    rows = [[c.strip() for c in row.strip("|").split("|")] for row in card.splitlines()]
    heading = ["", *(f"`{name}`" for name in CAN)]
    told = rows[rows.index(heading) :]
    for place, can in enumerate(CAN.values(), start=1):
        for what, passes in can.items():
            (answer,) = [row[place] for row in told if re.search(rf"\b{what}\b", row[0])]
            assert answer.startswith("yes" if passes is True else "raises")


def expectation(attend, what: str):
    can = CAN[attend.__name__][what]
    return nullcontext() if can is True else pytest.raises(can, match=r"not .*implemented")


def small_case():
    """Few numbers, with query 1 that may attend to nothing and key 4 that nobody sees."""
    mask = some_mask(3, 5)
    mask[1], mask[:, 4] = False, False
    tensors = inputs(2, i=3, j=5, d=2, e=1)
    return {name: t.requires_grad_() for name, t in tensors.items()}, mask


def test_gradcheck(attend):
    tensors, mask = small_case()
    with expectation(attend, "gradcheck"):
        assert torch.autograd.gradcheck(partial(attend, mask=mask), tuple(tensors.values()))


def test_gradgradcheck(attend):
    tensors, mask = small_case()
    with expectation(attend, "gradgradcheck"):
        assert torch.autograd.gradgradcheck(partial(attend, mask=mask), tuple(tensors.values()))


def test_derivatives_by_a_bias_pass_gradcheck(attend):
    tensors, mask = small_case()
    bias = some_bias(3, 5).requires_grad_()

    def by_bias(query, key, value, bias):
        return attend(query, key, value, mask, bias=bias)

    assert torch.autograd.gradcheck(by_bias, (*tensors.values(), bias))


@pytest.mark.parametrize("name", ["query", "key", "value"])
@pytest.mark.parametrize("transform", ["jacrev", "jacfwd"])
@pytest.mark.filterwarnings(SLOW_BATCHES, TORCH_ITSELF)
def test_jacobians_are_those_of_a_triple_loop(attend, transform, name):
    tensors, mask = small_case()
    tensors = {name: tensor.detach() for name, tensor in tensors.items()}

    def by_name(function):
        return lambda tensor: function(**tensors | {name: tensor}, mask=mask)

    expected = torch.autograd.functional.jacobian(by_name(naive_attention), tensors[name])
    with expectation(attend, transform):
        assert_same(getattr(func, transform)(by_name(attend))(tensors[name]), expected)


@pytest.mark.filterwarnings(SLOW_BATCHES)
def test_vmap_is_a_loop_over_items(attend):
    tensors = inputs(B, H)
    mask = some_mask(I, J)
    with expectation(attend, "vmap"):
        mapped = func.vmap(partial(attend, mask=mask))(*tensors.values())
        assert_same(mapped, attend(**tensors, mask=mask))


def test_a_gradient_penalty_is_right_or_an_error(attend):
    query, key, value = (t.requires_grad_() for t in inputs(B, H).values())

    def penalty(function):
        output = function(query, key, value)
        (gradient,) = torch.autograd.grad(output.square().sum(), query, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), value)[0]

    with expectation(attend, "gradgradcheck"):
        assert_same(penalty(attend), penalty(naive_attention), largest_score=100)


def test_second_derivatives_of_weights_exist_where_a_query_attends_to_nothing():
    tensors, mask = small_case()
    pair = tensors["query"], tensors["key"]
    assert torch.autograd.gradgradcheck(partial(attention_weights, mask=mask), pair)


@pytest.mark.parametrize("dropout_p", [0.0, 0.3])
def test_the_whole_function_compiles_into_one_graph(attend, dropout_p):
    tensors, mask = inputs(B, H), some_mask(B, 1, I, J)
    function = partial(attend, mask=mask, dropout_p=dropout_p)
    compiled = torch.compile(lambda **x: function(**x), fullgraph=True, backend="aot_eager")
    torch.manual_seed(1)
    actual = with_gradients(compiled, **tensors)
    torch.manual_seed(1)
    assert_same(actual, with_gradients(function, **tensors))


def test_shapes_alone_are_enough(attend):
    tensors = {name: tensor.to("meta") for name, tensor in inputs(B, H).items()}
    output = attend(**tensors, mask=some_mask(I, J).to("meta"))
    assert output.shape == (B, H, I, E)
    assert output.is_meta


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_output_has_the_dtype_of_the_inputs(attend, dtype):
    assert attend(**inputs(B, H, dtype=dtype)).dtype == dtype


def test_autocast_takes_mixed_floats_and_leaves_float64_alone(attend):
    tensors = inputs(B, H, dtype=torch.float32)
    tensors["key"] = tensors["key"].bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = attend(**tensors, bias=some_bias(I, J, dtype=torch.float32))
        exact = attend(**inputs(B, H))
    assert mixed.dtype == torch.bfloat16
    assert exact.dtype == torch.float64
