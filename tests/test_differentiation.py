"""Point 9 of the contract: what each implementation can do, and what it raises instead."""

import re
from contextlib import nullcontext
from functools import cache, partial
from pathlib import Path

import pytest
import torch
from torch import func
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from mini_attention import attention, attention_weights, cost, fused_attention
from tests.oracles import (
    B,
    D,
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
TORCH_ITSELF = "ignore:.torch.jit"  # jacfwd and the compiler, inside torch


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


FORMULA_CASES = {
    "a bias": lambda: ((2,), {"bias": some_bias(2, 1, 5)}),
    "a bias of minus infinity": lambda: ((), {"bias": torch.zeros(3, 5).double() - INF_IN_ROW_1}),
    "a mask, a bias and a scale": lambda: (
        (2,), {"mask": some_mask(2, 3, 5), "bias": some_bias(3, 5), "scale": -0.7}
    ),
    "leading axes": lambda: ((2, 1, 2), {"mask": some_mask(2, 1, 1, 1, 5)}),
    "no keys": lambda: ((2,), {"j": 0}),
}  # fmt: skip
INF_IN_ROW_1 = torch.tensor([[0.0], [torch.inf], [0.0]])


@pytest.mark.parametrize("check", [torch.autograd.gradcheck, torch.autograd.gradgradcheck])
@pytest.mark.parametrize("case", FORMULA_CASES)
def test_the_formula_passes_both_checks_with_every_argument(case, check):
    leading, given = FORMULA_CASES[case]()
    tensors = inputs(*leading, i=3, j=given.pop("j", 5), d=2, e=1)
    tensors = [tensor.requires_grad_() for tensor in tensors.values()]
    assert check(partial(attention, **given), tensors)


def test_gradients_with_dropout_are_those_of_the_formula(attend):
    runs = []
    for function in (attend, attention):
        torch.manual_seed(1)
        runs.append(with_gradients(partial(function, dropout_p=0.3), **inputs(B, H)))
    assert_same(*runs)
    torch.manual_seed(1)
    assert (runs[0]["output"] - attend(**inputs(B, H))).abs().max() > 0.1


def test_derivatives_by_a_bias_pass_gradcheck(attend):
    tensors, mask = small_case()
    bias = some_bias(3, 5).requires_grad_()

    def by_bias(query, key, value, bias):
        return attend(query, key, value, mask, bias=bias)

    assert torch.autograd.gradcheck(by_bias, (*tensors.values(), bias))


def by_one_argument(function, name: str):
    """The function of one argument that the others leave, and a value for it: always the same."""
    torch.manual_seed(0)
    tensors, mask = small_case()
    tensors = {n: t.detach() for n, t in tensors.items()} | {"bias": some_bias(3, 5)}
    return lambda tensor: function(**tensors | {name: tensor}, mask=mask), tensors[name]


@cache  # a triple loop is slow, and every implementation and transform is compared with it
def jacobian_of_the_loop(name: str):
    return torch.autograd.functional.jacobian(*by_one_argument(naive_attention, name))


@pytest.mark.parametrize("name", ["query", "key", "value", "bias"])
@pytest.mark.parametrize("transform", ["jacrev", "jacfwd"])
@pytest.mark.filterwarnings(SLOW_BATCHES, TORCH_ITSELF)
def test_jacobians_are_those_of_a_triple_loop(attend, transform, name):
    function, tensor = by_one_argument(attend, name)
    with expectation(attend, transform):
        assert_same(getattr(func, transform)(function)(tensor), jacobian_of_the_loop(name))


@pytest.mark.filterwarnings(SLOW_BATCHES, TORCH_ITSELF)
def test_the_hessian_is_that_of_a_triple_loop_where_forward_mode_exists(attend):
    query, key, value = inputs(i=2, j=3, d=2, e=1).values()

    def loss(function):
        return lambda query: function(query, key, value).square().sum()

    with expectation(attend, "jacfwd"):
        expected = torch.autograd.functional.hessian(loss(naive_attention), query)
        assert_same(func.hessian(loss(attend))(query), expected)


@pytest.mark.filterwarnings(SLOW_BATCHES)
def test_vmap_is_a_loop_over_items(attend):
    tensors = inputs(B, H)
    mask = some_mask(I, J)
    with expectation(attend, "vmap"):
        mapped = func.vmap(partial(attend, mask=mask))(*tensors.values())
        assert_same(mapped, attend(**tensors, mask=mask))


@pytest.mark.filterwarnings(SLOW_BATCHES)
def test_vmap_maps_masks_and_biases_over_any_axis(attend):
    query, key, value = inputs(B, H).values()
    mask, bias = some_mask(I, B, J), some_bias(B, I, J)
    with expectation(attend, "vmap"):
        mapped = func.vmap(
            lambda q, k, v, m, b: attend(q, k, v, m, bias=b), in_dims=(0, None, 0, 1, 0), out_dims=1
        )(query, key[0], value, mask, bias)
    each = [attend(query[x], key[0], value[x], mask[:, x], bias=bias[x]) for x in range(B)]
    assert_same(mapped, torch.stack(each, 1))


@pytest.mark.filterwarnings(SLOW_BATCHES)
def test_the_gradients_of_each_item_come_from_one_call(attend):
    tensors, mask = inputs(B, H), some_mask(B, H, I, J)

    def loss(query, key, value, mask):
        return attend(query, key, value, mask).square().sum()

    with expectation(attend, "vmap"):
        mapped = func.vmap(func.grad(loss, (0, 1, 2)))(*tensors.values(), mask)
    leaves = [tensor.requires_grad_() for tensor in tensors.values()]
    assert_same(
        dict(zip(tensors, mapped, strict=True)),
        dict(zip(tensors, torch.autograd.grad(loss(*leaves, mask), leaves), strict=True)),
    )


def penalty(function, tensors, by: str):
    """The gradients of a gradient's square: a second derivative by each argument."""
    leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in tensors.items()}
    torch.manual_seed(1)
    loss = function(**leaves).square().sum()
    (gradient,) = torch.autograd.grad(loss, leaves[by], create_graph=True)
    second = torch.autograd.grad(gradient.square().sum(), leaves.values())
    return dict(zip(leaves, second, strict=True))


NO_SECOND = r"flash_attention.*_backward is not implemented"
ON_THE_KERNEL = {
    "nothing": lambda dtype: {},
    "a mask": lambda dtype: {"mask": some_mask(I, J)},
    "a bias": lambda dtype: {"bias": some_bias(B, 1, I, J, dtype=dtype)},
}


@pytest.mark.parametrize("by", ["query", "key", "value"])
@pytest.mark.parametrize("given", ON_THE_KERNEL)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_kernel_has_no_second_derivative_by_any_argument_and_says_so(dtype, given, by):
    function = partial(fused_attention, **ON_THE_KERNEL[given](dtype))
    with pytest.raises(RuntimeError, match=NO_SECOND):
        penalty(function, inputs(B, H, dtype=dtype), by)


@pytest.mark.parametrize("by", ["query", "key", "value"])
def test_the_kernel_has_no_second_derivative_under_autocast_either(by):
    tensors = inputs(B, H, dtype=torch.float32)
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(RuntimeError, match=NO_SECOND),
    ):
        penalty(fused_attention, tensors, by)


@pytest.mark.parametrize("by", ["query", "key", "value", "bias"])
def test_second_derivatives_are_right_where_a_bias_takes_torch_off_its_kernel(attend, by):
    tensors = inputs(B, 1, i=3, j=5, d=2, e=1) | {"bias": some_bias(3, 5)}
    assert_same(
        penalty(attend, tensors, by), penalty(naive_attention, tensors, by), largest_score=100
    )


@pytest.mark.parametrize("by", ["query", "key", "value"])
def test_second_derivatives_are_right_where_dropout_takes_torch_off_its_kernel(attend, by):
    function, formula = partial(attend, dropout_p=0.3), partial(attention, dropout_p=0.3)
    tensors = inputs(B, H)
    assert_same(penalty(function, tensors, by), penalty(formula, tensors, by), largest_score=100)


@pytest.mark.parametrize("by", ["query", "key", "value"])
def test_a_gradient_penalty_is_right_or_an_error(attend, by):
    tensors = inputs(B, 1, i=3, j=5, d=2, e=1)
    with expectation(attend, "gradgradcheck"):
        actual = penalty(attend, tensors, by)
        assert_same(actual, penalty(naive_attention, tensors, by), largest_score=100)


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


def test_flops_are_counted_without_computing():
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        attention(**inputs(B, H, i=100_003, j=200_003))  # a terabyte of scores that nobody stores
    expected = cost.attention_cost(b=B, h=H, i=100_003, j=200_003, d=D, e=E)
    assert counter.get_total_flops() == expected.total.flops


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


def test_recomputing_in_the_backward_pass_drops_the_same_weights(attend):
    def dropping(query, key, value):
        return attend(query, key, value, dropout_p=0.3)

    def recomputed(**tensors):
        return checkpoint(dropping, *tensors.values(), use_reentrant=False)

    tensors = inputs(B, H)
    torch.manual_seed(1)
    expected = with_gradients(dropping, **tensors)
    torch.manual_seed(1)
    assert_same(with_gradients(recomputed, **tensors), expected)
