"""Point 6 of the contract: exact, and no overflow."""

from functools import partial

import pytest
import torch

from mini_attention import attention_scores, attention_weights
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
