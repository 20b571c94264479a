"""Point 9 of the contract: what each implementation can do, and what it raises instead."""

import re
from contextlib import nullcontext
from functools import cache, partial
from pathlib import Path

import pytest
import torch
from torch import func
from torch.export import Dim, export
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from mini_attention import (
    attention,
    attention_weights,
    blocked_attention,
    cost,
    fused_attention,
    rules,
)
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
        "mapped": True,
        "export": True,
    },
    "fused_attention": {
        "gradcheck": True,
        "gradgradcheck": RuntimeError,
        "jacrev": True,
        "jacfwd": NotImplementedError,
        "vmap": True,
        "mapped": True,
        "export": True,
    },
    "blocked_attention": {
        "gradcheck": True,
        "gradgradcheck": RuntimeError,
        "jacrev": True,
        "jacfwd": NotImplementedError,
        "vmap": True,
        "mapped": RuntimeError,
        "export": Exception,  # of torch's own, which have no public name
    },
}
REFUSALS = (
    "not .*implemented",  # the kernel
    "blocked_attention has no second derivative",
    "must implement the jvp function",  # forward mode
    "vmap: .* (data-dependent control flow|dynamic shape)",
    "specialized it to be a constant|data-dependent expression",  # export
)
SLOW_BATCHES = "ignore:There is a performance drop:UserWarning"  # the kernel, looped over by vmap
TORCH_ITSELF = "ignore:.torch.jit"  # jacfwd and the compiler, inside torch
# The compiler looks at a function with a backward pass of its own in ways that torch warns about.
INSTANTIATED = "ignore:.*should not be instantiated:DeprecationWarning"
NO_LEAF = "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"


def test_the_card_tells_what_each_implementation_can_do():
    card = (Path(__file__).parents[1] / "book" / "conventions.md").read_text(encoding="utf-8")
    rows = [[c.strip() for c in row.strip("|").split("|")] for row in card.splitlines()]
    heading = ["", *(f"`{name}`" for name in CAN)]
    told = [row for row in rows[rows.index(heading) :] if len(row) == len(heading)]
    for place, can in enumerate(CAN.values(), start=1):
        for what, passes in can.items():
            (answer,) = [row[place] for row in told if re.search(rf"\b{what}\b", row[0])]
            assert answer.startswith("yes" if passes is True else "raises")


def expectation(attend, what: str):
    can = CAN[attend.__name__][what]
    return nullcontext() if can is True else pytest.raises(can, match="|".join(REFUSALS))


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


def test_gradients_with_dropout_are_those_of_the_formula(dropping):
    runs = []
    for function in (dropping, attention):
        torch.manual_seed(1)
        runs.append(with_gradients(partial(function, dropout_p=0.3), **inputs(B, H)))
    assert_same(*runs)
    torch.manual_seed(1)
    assert (runs[0]["output"] - dropping(**inputs(B, H))).abs().max() > 0.1


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
def test_vmap_over_no_items_gives_none_where_torch_has_a_rule_for_it(attend):
    def loss(query, key, value):
        return attend(query, key, value).square().sum()

    query, key, value = inputs(0, H).values()
    no_rule = pytest.raises(RuntimeError, match="vmap over dims of size 0")
    with no_rule if attend is fused_attention else nullcontext():
        mapped = func.vmap(attend, (0, None, 1))(query, key.sum(0), value.movedim(0, 1))
        assert_same(mapped, torch.empty(0, H, I, E))
        gradients = func.vmap(func.grad(loss, (0, 1, 2)))(query, key, value)
        assert [gradient.shape for gradient in gradients] == [query.shape, key.shape, value.shape]


@pytest.mark.filterwarnings(SLOW_BATCHES)
def test_vmap_maps_masks_and_biases_over_any_axis(attend):
    query, key, value = inputs(B, H).values()
    mask, bias = some_mask(I, B, J), some_bias(B, I, J)
    with expectation(attend, "mapped"):
        mapped = func.vmap(
            lambda q, k, v, m, b: attend(q, k, v, m, bias=b), in_dims=(0, None, 0, 1, 0), out_dims=1
        )(query, key[0], value, mask, bias)
        each = [attend(query[x], key[0], value[x], mask[:, x], bias=bias[x]) for x in range(B)]
        assert_same(mapped, torch.stack(each, 1))


@pytest.mark.parametrize(("what", "shape", "axis"), [("vmap", (), None), ("mapped", (B, H), 0)])
@pytest.mark.filterwarnings(SLOW_BATCHES)
def test_the_gradients_of_each_item_come_from_one_call(attend, what, shape, axis):
    tensors, mask = inputs(B, H), some_mask(*shape, I, J)

    def loss(query, key, value, mask):
        return attend(query, key, value, mask).square().sum()

    with expectation(attend, what):
        each = func.vmap(func.grad(loss, (0, 1, 2)), (0, 0, 0, axis))
        mapped = each(*tensors.values(), mask)
        leaves = [tensor.requires_grad_() for tensor in tensors.values()]
        expected = torch.autograd.grad(loss(*leaves, mask), leaves)
        assert_same(
            dict(zip(tensors, mapped, strict=True)), dict(zip(tensors, expected, strict=True))
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
def test_second_derivatives_are_right_where_a_bias_takes_torch_off_its_kernel(dropping, by):
    tensors = inputs(B, 1, i=3, j=5, d=2, e=1) | {"bias": some_bias(3, 5)}
    assert_same(
        penalty(dropping, tensors, by), penalty(naive_attention, tensors, by), largest_score=100
    )


@pytest.mark.parametrize("by", ["query", "key", "value"])
def test_second_derivatives_are_right_where_dropout_takes_torch_off_its_kernel(dropping, by):
    function, formula = partial(dropping, dropout_p=0.3), partial(attention, dropout_p=0.3)
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


@pytest.mark.slow
@pytest.mark.parametrize("dropout_p", [0.0, 0.3])
def test_the_whole_function_compiles_into_one_graph(dropping, dropout_p):
    tensors, mask = inputs(B, H), some_mask(B, 1, I, J)
    function = partial(dropping, mask=mask, dropout_p=dropout_p)
    compiled = torch.compile(lambda **x: function(**x), fullgraph=True, backend="aot_eager")
    torch.manual_seed(1)
    actual = with_gradients(compiled, **tensors)
    torch.manual_seed(1)
    assert_same(actual, with_gradients(function, **tensors))


WHOLE, CUT = "one graph", "several"
COMPILED = {
    "nothing": (WHOLE, dict),
    "a causal rule": (WHOLE, lambda: {"mask": rules.causal(I, J)}),
    "a bias that is a rule": (WHOLE, lambda: {"bias": rules.alibi(H, I, J)}),
    "a mask": (CUT, lambda: {"mask": some_mask(B, 1, I, J)}),
    "a bias": (CUT, lambda: {"bias": some_bias(1, H, I, J)}),
    "lengths that are a rule": (CUT, lambda: {"mask": rules.padding([3, 7], J).per_item()}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", COMPILED)
@pytest.mark.filterwarnings(INSTANTIATED, NO_LEAF)
def test_blocks_compile_and_are_cut_where_they_look_for_keys_to_skip_in_a_tensor(case):
    graphs, make = COMPILED[case]
    function, tensors = partial(blocked_attention, **make()), inputs(B, H)
    compiled = torch.compile(
        lambda **x: function(**x), fullgraph=graphs == WHOLE, backend="aot_eager"
    )
    assert_same(with_gradients(compiled, **tensors), with_gradients(function, **tensors))


@pytest.mark.slow
@pytest.mark.parametrize("case", [name for name, (graphs, _) in COMPILED.items() if graphs == CUT])
def test_compiled_into_one_graph_those_are_an_error(case):
    function = partial(blocked_attention, **COMPILED[case][1]())
    compiled = torch.compile(lambda **x: function(**x), fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match=r"(?i)data-dependent"):
        compiled(**inputs(B, H))


class Call(torch.nn.Module):
    """A function as a module, which is what torch.export takes."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, query, key, value):
        return self.function(query, key, value)


@pytest.mark.slow
def test_an_exported_function_takes_other_lengths(attend):
    i, j = Dim("i"), Dim("j")
    with expectation(attend, "export"):
        exported = export(
            Call(attend), tuple(inputs(B, H).values()), dynamic_shapes=({2: i}, {2: j}, {2: j})
        )
        others = inputs(B, H, i=17, j=19)
        assert_same(exported.module()(*others.values()), attend(**others))


def test_shapes_alone_are_enough(attend):
    tensors = {name: tensor.to("meta") for name, tensor in inputs(B, H).items()}
    output = attend(**tensors, mask=rules.causal(I, J), bias=rules.alibi(H, I, J))
    assert output.shape == (B, H, I, E)
    assert output.is_meta


def test_the_shape_of_a_mask_is_enough_where_nobody_looks_for_keys_to_skip(attend):
    tensors = {name: tensor.to("meta") for name, tensor in inputs(B, H).items()}
    refuses = pytest.raises(NotImplementedError, match="nonzero")
    with refuses if attend is blocked_attention else nullcontext():
        assert attend(**tensors, mask=some_mask(I, J).to("meta")).is_meta


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


def test_recomputing_in_the_backward_pass_drops_the_same_weights(dropping):
    def dropped(query, key, value):
        return dropping(query, key, value, dropout_p=0.3)

    def recomputed(**tensors):
        return checkpoint(dropped, *tensors.values(), use_reentrant=False)

    tensors = inputs(B, H)
    torch.manual_seed(1)
    expected = with_gradients(dropped, **tensors)
    torch.manual_seed(1)
    assert_same(with_gradients(recomputed, **tensors), expected)
