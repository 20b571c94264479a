"""Point 6 of the contract: exact, and no overflow."""

from collections import defaultdict
from functools import cache, partial

import pytest
import torch

from mini_attention import attention, attention_scores, attention_weights, fused_attention
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
    torch_attention,
    with_gradients,
)

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
HALF = (torch.bfloat16, torch.float16)


def test_float32_agrees_with_float64(attend):
    tensors, mask = inputs(B, H, i=53, j=71, dtype=torch.float32), some_mask(53, 71)
    exact = {name: tensor.double() for name, tensor in tensors.items()}
    actual = with_gradients(partial(attend, mask=mask), **tensors)
    assert_same(actual, with_gradients(partial(torch_attention, mask=mask), **exact))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("factor", [10.0, 100.0, 1000.0])
def test_the_error_grows_no_faster_than_the_largest_score(attend, factor, dtype):
    query, key, value = inputs(B, H, dtype=dtype).values()
    query = factor * query
    expected = naive_attention(query, key, value)
    largest = attention_scores(query, key).abs().max().item()
    assert_same(attend(query, key, value), expected, largest_score=largest)


def test_float64_agrees_with_the_loop_at_larger_sizes_too(attend):
    tensors = inputs(i=19, j=101, d=67, e=71)
    given = {"mask": some_mask(19, 101), "bias": some_bias(1, 101)}
    actual = with_gradients(partial(attend, **given), **tensors)
    assert_same(actual, with_gradients(partial(naive_attention, **given), **tensors))


def test_float32_agrees_with_float64_over_thousands_of_keys(attend):
    tensors = inputs(i=I, j=10_007, dtype=torch.float32)
    exact = {name: tensor.double() for name, tensor in tensors.items()}
    assert_same(with_gradients(attend, **tensors), with_gradients(torch_attention, **exact))


def half_errors(attend, given, dtype, seed):
    """The largest errors of `attend` and of torch's kernel, for the output and each gradient."""
    torch.manual_seed(seed)
    tensors = inputs(B, H, d=E, dtype=dtype)
    given = {name: make(dtype) for name, make in given.items()}
    exact = {n: t.double() if t.is_floating_point() else t for n, t in given.items()}
    wide = {name: tensor.double() for name, tensor in tensors.items()}
    reference = with_gradients(partial(torch_attention, **exact), **wide)

    def errors(function):
        run = with_gradients(partial(function, **given), **tensors)
        return {n: (run[n].double() - reference[n]).abs().max().item() for n in run}

    return errors(attend), errors(torch_attention)


HALF_CASES = {
    "nothing": {},
    "mask": {"mask": lambda dtype: some_mask(B, H, I, J)},
    "bias": {"bias": lambda dtype: some_bias(B, H, I, J, dtype=dtype)},
}


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("case", HALF_CASES)
def test_half_precision_errs_at_most_twice_as_much_as_the_kernel(attend, case, dtype):
    for seed in range(7):
        ours, kernels = half_errors(attend, HALF_CASES[case], dtype, seed)
        assert 0 < kernels["output"] < 0.1
        for name, error in ours.items():
            assert error <= 2 * kernels[name], (seed, name)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_autocast_errs_at_most_twice_as_much_as_the_kernel_under_autocast(attend, dtype):
    for seed in range(7):
        torch.manual_seed(seed)
        tensors = inputs(B, H, d=E, dtype=torch.float32)
        exact = torch_attention(**{name: tensor.double() for name, tensor in tensors.items()})
        with torch.autocast("cpu", dtype=dtype):
            output, kernels = attend(**tensors), torch_attention(**tensors)
        assert output.dtype == kernels.dtype == dtype
        assert (output - exact).abs().max() <= 2 * (kernels - exact).abs().max()


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_autocast_casts_the_bias_as_the_inputs(attend, dtype):
    tensors = inputs(B, H, d=E, dtype=torch.float32) | {"bias": some_bias(I, J).float()}
    with torch.autocast("cpu", dtype=dtype):
        output = attend(**tensors)
    assert torch.equal(output, attend(**cast(tensors, dtype)))


def half_case(case, dtype, length, seed):
    """Inputs and optional arguments of `dtype`, and what float64 makes of them."""
    torch.manual_seed(seed)
    (d, e), (i, j) = [(D, E), (E, D), (E, E)][seed % 3], (length, length + 6)
    tensors, given = inputs(B, H, i=i, j=j, d=d, e=e, dtype=dtype), PAIRS[case](i, j, dtype)
    return tensors, given, with_gradients(partial(torch_attention, **wide(given)), **wide(tensors))


@cache  # both implementations are compared with the same errors of torch's function
def typical_errors(function, case, dtype, length, autocast):
    """The root mean square of the errors of the output and of each gradient, over several seeds.

    A largest error hangs on one unlucky rounding; a mean square hardly varies with the seed.
    """
    squares = defaultdict(list)
    for seed in range(3 if length > 100 else 6):
        tensors, given, exact = half_case(case, dtype, length, seed)
        if autocast:  # numbers that its cast does not round, or that alone would be the error
            tensors, given = cast(tensors, torch.float32), cast(given, torch.float32)
        with torch.autocast("cpu", dtype=dtype, enabled=autocast):
            run = with_gradients(partial(function, **given), **tensors)
        for name in run:
            squares[name].append((run[name].double() - exact[name]).square().mean())
    return {name: torch.stack(each).mean().sqrt() for name, each in squares.items()}


def cast(tensors, dtype):
    return {n: t.to(dtype) if t.is_floating_point() else t for n, t in tensors.items()}


def wide(tensors):
    return cast(tensors, torch.float64)


PAIRS = {
    "nothing": lambda i, j, dtype: {},
    "mask": lambda i, j, dtype: {"mask": some_mask(B, 1, i, j)},
    "mask and bias": lambda i, j, dtype: {
        "mask": some_mask(i, j), "bias": some_bias(1, H, 1, j, dtype=dtype)
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("autocast", [False, True], ids=["half", "autocast"])
@pytest.mark.parametrize("length", [5, 31, 127])
@pytest.mark.parametrize("case", PAIRS)
def test_typical_errors_are_at_most_twice_those_of_torchs_function(
    attend, case, length, autocast, dtype
):
    ours = typical_errors(attend, case, dtype, length, autocast)
    theirs = typical_errors(torch_attention, case, dtype, length, autocast)
    for name, error in ours.items():
        assert 0 < theirs[name] < 0.1
        assert error <= 2 * theirs[name], name


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_weights_in_half_precision_are_rounded_once(dtype):
    query, key, _ = inputs(B, H, dtype=dtype).values()
    weights, exact = attention_weights(query, key), attention_weights(query.double(), key.double())
    assert weights.dtype == dtype
    torch.testing.assert_close(weights.double(), exact, rtol=torch.finfo(dtype).eps / 1.9, atol=0)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_scores_of_half_precision_are_computed_in_float32(dtype):
    query, key, _ = inputs(B, H, dtype=dtype).values()
    bias = some_bias(I, J, dtype=dtype)
    scores = attention_scores(query, key, bias=bias)
    assert scores.dtype == torch.float32
    exact = attention_scores(query.double(), key.double(), bias=bias.double())
    assert_same(scores, exact)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_autocast_does_not_undo_the_float32_inside(dtype):
    query, key, _ = inputs(B, H, dtype=dtype).values()
    with torch.autocast("cpu", dtype=dtype):
        scores, weights = attention_scores(query, key), attention_weights(query, key)
    assert torch.equal(scores, attention_scores(query, key))
    assert torch.equal(weights, attention_weights(query, key))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scores_that_dwarf_the_exponential_give_no_nan(attend, dtype):
    large = {torch.float16: 250.0, torch.float64: 1e100}.get(dtype, 1e15)
    query, key, value = inputs(B, H, dtype=dtype).values()
    query, key = large * query.sign(), large * key.sign()
    run = with_gradients(attend, query=query, key=key, value=value)
    assert attention_scores(query, key).abs().max() > large**2
    assert all(tensor.isfinite().all() for tensor in run.values())


def test_products_that_overflow_float16_are_summed_in_float32(attend):
    query = torch.full((I, D), 250.0, dtype=torch.float16)  # 11 * 250 * 250 > 65504
    value = torch.randn(J, E, dtype=torch.float16)
    output = attend(query, query[:1].expand(J, D), value)
    torch.testing.assert_close(output[0].float(), value.float().mean(0), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_allowed_score_is_so_low_that_a_forbidden_key_gets_weight(attend, dtype):
    query, key, value = inputs(dtype=dtype).values()
    mask = torch.arange(J).expand(I, J) == 4
    bias = torch.full((I, J), torch.finfo(dtype).min, dtype=dtype)
    output = attend(query, key, value, mask, bias=bias)
    assert torch.equal(output, value[4].expand(I, E))
    assert torch.equal(attention_weights(query, key, mask, bias=bias), mask.to(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scores_of_ten_thousand_and_minus_ten_thousand_share_a_row(attend, dtype):
    query, key = torch.zeros(2, D, dtype=dtype), torch.zeros(J, D, dtype=dtype)
    query[:, 0], key[:, 0] = torch.tensor([100, -100]), torch.full((J,), -100)
    key[3, 0], key[5, 0] = 100, 0  # query 0 scores 1e4 with key 3 alone, query 1 with five keys
    value = torch.randint(-8, 9, (J, E)).to(dtype)
    run = with_gradients(partial(attend, scale=1.0), query=query, key=key, value=value)
    assert all(tensor.isfinite().all() for tensor in run.values())
    assert torch.equal(run["output"][0], value[3])
    mean = value[[0, 1, 2, 4, 6]].double().mean(0)
    torch.testing.assert_close(run["output"][1], mean.to(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_huge_key_takes_the_queries_that_point_its_way_and_no_other(attend, dtype):
    query, key, value = inputs(i=17, dtype=dtype).values()
    query[:, 0] = torch.arange(17) % 2 * 4 - 2
    key[3] = 0
    key[3, 0] = 1e4
    run = with_gradients(attend, query=query, key=key, value=value)
    assert all(tensor.isfinite().all() for tensor in run.values())
    output, rest = run["output"], [j for j in range(J) if j != 3]
    assert torch.equal(output[1::2], value[3].expand(8, E))
    torch.testing.assert_close(output[::2], attend(query[::2], key[rest], value[rest]))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_equal_scores_give_exactly_the_mean(attend, dtype):
    # small whole numbers and an eighth for each key: nothing is rounded in any dtype
    query = torch.randint(-4, 5, (I, D)).to(dtype)
    key = torch.randint(-4, 5, (1, D)).to(dtype).expand(8, D)
    value = torch.randint(-8, 9, (8, E)).to(dtype)
    assert torch.equal(attend(query, key, value, scale=0.25), value.mean(0).expand(I, E))
    assert (attention_weights(query, key, scale=0.25) == 0.125).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scores_too_small_for_a_normal_number_give_the_mean(attend, dtype):
    query, key, value = inputs(dtype=dtype).values()
    query = query * torch.finfo(dtype).tiny  # with keys below 1 that leaves subnormal scores
    run = with_gradients(attend, query=query, key=key / 100, value=value)
    torch.testing.assert_close(run["output"], value.double().mean(0).expand(I, E).to(dtype))
    assert all(tensor.isfinite().all() for tensor in run.values())
    assert (run["query"] != 0).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scores_that_differ_by_less_than_the_precision_still_have_gradients(attend, dtype):
    small = torch.finfo(dtype).eps / 8
    query, value = torch.ones(1, 1, dtype=dtype), torch.tensor([[0.0], [1.0]], dtype=dtype)
    key = torch.tensor([[0.0], [small]], dtype=dtype)
    run = with_gradients(attend, query=query, key=key, value=value)
    upstream = run["value"].sum()  # each value gets half of it
    assert run["output"].item() == pytest.approx(0.5, rel=8 * small)
    quarter = (upstream / 4).item()
    assert run["key"].flatten().tolist() == pytest.approx([-quarter, quarter], rel=16 * small)
    assert run["query"].item() == pytest.approx(quarter * small, rel=16 * small)


# The bfloat16 products of some processors take subnormal numbers for 0, whatever torch says.
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_subnormal_values_are_averaged_too(attend, dtype):
    torch.set_flush_denormal(False)  # code that torch 2.5 compiled turns it on when it is loaded
    query, key, value = inputs(dtype=dtype).values()
    value = value * (torch.finfo(dtype).tiny / 8)
    output = attend(query, key, value)
    step = torch.finfo(dtype).tiny * torch.finfo(dtype).eps  # the smallest number above 0
    exact = naive_attention(query, key, value / step) * step
    assert (output != 0).all()
    assert ((output.double() - exact).abs() <= J * step).all()  # each product is rounded


def test_flushing_subnormal_numbers_gives_zeros_and_no_nan(attend):
    query, key, value = inputs(dtype=torch.float32).values()
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush")
    try:
        subnormal = torch.finfo(torch.float32).tiny / 8
        run = with_gradients(attend, query=query, key=key, value=value * subnormal)
        flat = attend(query * subnormal, key, value)
    finally:
        torch.set_flush_denormal(False)
    assert not run["output"].any()
    assert all(tensor.isfinite().all() for tensor in run.values())
    assert_same(flat, value.double().mean(0).expand(I, E))


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_a_scale_far_from_one_is_no_harm_where_both_products_fit(attend, scale):
    query, key, value = inputs(dtype=torch.float32).values()
    fitting = {1e-30: (query * 1e15, key * 1e15), 1e30: (query * 1e-15, key * 1e-15)}
    query, key = fitting[scale]
    run = with_gradients(partial(attend, scale=scale), query=query, key=key, value=value)
    exact = wide({"query": query, "key": key, "value": value})
    assert_same(run["output"], naive_attention(**exact, scale=scale), largest_score=10)
    assert all(tensor.isfinite().all() and tensor.any() for tensor in run.values())


def test_the_formula_scales_before_a_product_that_would_overflow():
    query, key, value = inputs(dtype=torch.float32).values()
    query, key = query * 3e19, key * 3e19
    assert (query @ key.mT).isinf().any()
    output = attention(query, key, value, scale=1e-39)
    assert_same(output, naive_attention(query, key, value, scale=1e-39), largest_score=10)


def test_the_kernel_multiplies_before_a_scale_that_would_overflow():
    query, key, value = inputs(dtype=torch.float32).values()
    query, key = query * 1e30, key * 1e-40
    assert (query * 1e10).isinf().any()
    output = fused_attention(query, key, value, scale=1e10)
    assert_same(output, naive_attention(query, key, value, scale=1e10), largest_score=10)
