"""The nine points of the contract, for every implementation."""

import copy
import re
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import func

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
INF = torch.inf


# 1. A mask is boolean, True where a query may attend to a key.


def test_true_in_a_mask_allows_and_false_forbids(attend):
    query, _, value = inputs().values()
    mask = torch.zeros(I, J, dtype=torch.bool)
    mask[:, 3] = True
    output = attend(query, torch.randn(J, D, dtype=torch.float64), value, mask)
    assert_same(output, value[3].expand(I, E))


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.float64, torch.float32], ids=str)
def test_a_mask_that_is_not_boolean_is_a_type_error(attend, dtype):
    message = f"mask must be boolean.*got {dtype}.*mask.bool.*bias="
    with pytest.raises(TypeError, match=message):
        attend(**inputs(B, H), mask=torch.ones(I, J, dtype=dtype))
    with pytest.raises(TypeError, match=message):
        attention_weights(torch.ones(I, D), torch.ones(J, D), torch.ones(I, J, dtype=dtype))


def test_a_bias_that_is_boolean_is_a_type_error(attend):
    with pytest.raises(TypeError, match=r"bias is added.*must be a float.*boolean as mask="):
        attend(**inputs(B, H), bias=some_mask(I, J))


@pytest.mark.parametrize("allowed", [0.0, 3.0])
def test_a_bias_of_minus_infinity_forbids_as_a_mask_does(attend, allowed):
    tensors, mask = inputs(B, H), some_mask(B, 1, I, J)
    bias = torch.full(mask.shape, allowed, dtype=torch.float64).masked_fill(~mask, -INF)
    assert_same(attend(**tensors, bias=bias), attend(**tensors, mask=mask))


# 2. Ranks are never guessed.


@pytest.mark.parametrize("b", [B, H])
def test_a_mask_per_item_without_a_head_axis_is_an_error_that_says_which_to_insert(attend, b):
    mask = torch.ones(b, I, J, dtype=torch.bool)
    message = (
        rf"mask of shape \({b}, 5, 7\) does not say.*scores of shape \({b}, 3, 5, 7\) "
        rf"take rank 2 \(i j\) or rank 4.*insert the missing axis.*\({b}, 1, 5, 7\)"
    )
    with pytest.raises(ValueError, match=message):
        attend(**inputs(b, H), mask=mask)


def test_a_bias_per_item_without_a_head_axis_is_an_error_too(attend):
    with pytest.raises(ValueError, match=r"bias of shape \(2, 5, 7\).*\(2, 1, 5, 7\)"):
        attend(**inputs(B, H), bias=some_bias(B, I, J))


def test_two_missing_axes_are_both_inserted_after_the_items(attend):
    with pytest.raises(ValueError, match=r"rank 5; for one mask an item.*\(2, 1, 1, 5, 7\)"):
        attend(**inputs(B, H, 17), mask=some_mask(B, I, J))


@pytest.mark.parametrize("shape", [(), (J,), (1, B, H, I, J)], ids=str)
def test_a_rank_that_scores_cannot_have_is_an_error_without_a_hint(attend, shape):
    mask = torch.ones(shape, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"does not say which axes it has.*or rank 4$"):
        attend(**inputs(B, H), mask=mask)


@pytest.mark.parametrize("shape", [(J, I), (I, J + 1), (B, H + 1, I, J), (B + 1, 1, 1, J)], ids=str)
def test_a_size_that_is_neither_that_of_the_scores_nor_one_is_an_error(attend, shape):
    wanted = f"of shape {shape} must match scores of shape {(B, H, I, J)}; an axis may be 1"
    for name, pairs in {"mask": some_mask(*shape), "bias": some_bias(*shape)}.items():
        with pytest.raises(ValueError, match=re.escape(f"{name} {wanted}")):
            attend(**inputs(B, H), **{name: pairs})


def test_a_mask_never_makes_the_scores_larger(attend):
    with pytest.raises(ValueError, match=r"\(2, 1, 5, 7\) must match scores of shape \(1, 3, 5, 7"):
        attend(**inputs(1, H), mask=some_mask(B, 1, I, J))


# 4. A query that may attend to nothing gets 0, forward and backward.


def nothing_for_query_3(by: str, dtype=torch.float64):
    """Three ways to leave query 3 without a key; the others keep at least one."""
    mask = some_mask(B, H, I, J)
    bias = some_bias(B, H, I, J).to(dtype)
    if by == "mask":
        mask[:, :, 3] = False
        return {"mask": mask}
    if by == "bias":
        bias[:, :, 3] = -INF
        return {"bias": bias}
    mask[:, :, 3] = torch.arange(J) < 4  # the mask leaves four keys, the bias forbids those
    bias[:, :, 3, :4] = -INF
    return {"mask": mask, "bias": bias}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dropout_p", [0.0, 0.4])
@pytest.mark.parametrize("by", ["mask", "bias", "both"])
def test_a_query_that_may_attend_to_nothing_gets_zeros(attend, by, dropout_p, dtype):
    given = nothing_for_query_3(by, dtype)
    run = with_gradients(partial(attend, dropout_p=dropout_p, **given), **inputs(B, H, dtype=dtype))
    assert all(tensor.isfinite().all() for tensor in run.values())
    assert (run["output"][:, :, 3] == 0).all()
    assert (run["query"][:, :, 3] == 0).all()
    assert run["query"][:, :, :3].any()


@pytest.mark.parametrize("by", ["mask", "bias", "both"])
def test_a_query_that_may_attend_to_nothing_leaves_the_others_as_they_are(attend, by):
    given, tensors = nothing_for_query_3(by), inputs(B, H)
    actual = with_gradients(partial(attend, **given), **tensors)
    assert_same(actual, with_gradients(partial(naive_attention, **given), **tensors))


@pytest.mark.parametrize("by", ["mask", "bias", "both"])
def test_no_step_of_the_way_back_returns_nan(attend, by):
    given = nothing_for_query_3(by)
    with torch.autograd.set_detect_anomaly(True):
        run = with_gradients(partial(attend, **given), **inputs(B, H))
    assert run["query"].any()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("by", ["bias", "both"])
def test_the_bias_of_a_query_that_may_attend_to_nothing_gets_no_gradient(attend, by, dtype):
    given = nothing_for_query_3(by, dtype)
    fixed = partial(attend, mask=given.pop("mask", None))
    run = with_gradients(fixed, **inputs(B, H, dtype=dtype), **given)
    assert (run["bias"][:, :, 3] == 0).all()
    assert all(tensor.isfinite().all() for tensor in run.values())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("by", ["mask", "bias", "both"])
def test_the_weights_of_a_query_that_may_attend_to_nothing_are_zeros(by, dtype):
    given = nothing_for_query_3(by, dtype)
    query, key, _ = inputs(B, H, dtype=dtype).values()
    run = with_gradients(partial(attention_weights, **given), query=query, key=key)
    assert all(tensor.isfinite().all() for tensor in run.values())
    assert (run["output"][:, :, 3] == 0).all()
    assert run["output"][:, :, 2].any()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_without_any_keys_outputs_and_gradients_are_zeros(attend, masked, dtype):
    mask = torch.ones(I, 0, dtype=torch.bool) if masked else None
    run = with_gradients(partial(attend, mask=mask), **inputs(B, H, j=0, dtype=dtype))
    assert run["output"].shape == (B, H, I, E)
    assert not run["output"].any()
    assert not run["query"].any()


def test_without_any_keys_there_are_no_weights():
    query, key, _ = inputs(B, H, j=0).values()
    assert attention_weights(query, key).shape == (B, H, I, 0)


def test_nothing_allowed_anywhere_is_zero_everywhere(attend):
    mask = torch.zeros(I, J, dtype=torch.bool)
    run = with_gradients(partial(attend, mask=mask), **inputs(B, H))
    assert not any(tensor.any() for tensor in run.values())


# 5. What a padded key and its value hold can't matter.

PADDED = [2, 6]
REAL = [0, 1, 3, 4, 5]


def hide(hidden, by: str):
    """A mask or a bias that forbids the pairs where `hidden` is true."""
    if by == "mask":
        return {"mask": ~hidden}
    return {"bias": some_bias(*hidden.shape).masked_fill(hidden, -INF)}


@pytest.mark.parametrize("junk", [torch.nan, INF, -INF])
@pytest.mark.parametrize("by", ["mask", "bias"])
def test_junk_in_a_padded_key_and_value_changes_nothing(attend, by, junk):
    tensors = inputs(B, H)
    given = hide(torch.isin(torch.arange(J), torch.tensor(PADDED)).expand(I, J), by)
    without = {name: pairs[:, REAL] for name, pairs in given.items()}
    short = {n: t if n == "query" else t[:, :, REAL] for n, t in tensors.items()}
    tensors["key"][:, :, PADDED] = tensors["value"][:, :, PADDED] = junk

    run = with_gradients(partial(attend, **given), **tensors)
    for name in ("key", "value"):
        assert not run[name][:, :, PADDED].any()
        run[name] = run[name][:, :, REAL]
    assert_same(run, with_gradients(partial(attend, **without), **short))


@pytest.mark.parametrize("by", ["mask", "bias"])
def test_each_item_has_its_own_padding(attend, by):
    tensors, lengths = inputs(B, H), [4, 6]
    hidden = torch.arange(J) >= torch.tensor(lengths)[:, None, None, None]
    given = hide(hidden, by)
    for item, length in enumerate(lengths):
        tensors["key"][item, :, length:] = tensors["value"][item, :, length:] = torch.nan
    output = attend(**tensors, **given)
    for item, length in enumerate(lengths):
        query, key, value = (tensor[item] for tensor in tensors.values())
        bias = given["bias"][item, ..., :length] if by == "bias" else None
        assert_same(output[item], attend(query, key[:, :length], value[:, :length], bias=bias))


def test_junk_that_one_head_hides_does_not_hide_it_from_the_others(attend):
    tensors = inputs(B, H)
    hidden = torch.zeros(1, H, 1, J, dtype=torch.bool)
    hidden[:, 1, :, 4] = True
    tensors["value"][:, :, 4] = torch.nan
    output = attend(**tensors, mask=~hidden)
    assert output[:, 1].isfinite().all()
    assert output[:, [0, 2]].isnan().all()


def test_junk_in_keys_that_items_share_is_hidden_item_by_item(attend):
    query, key, value = inputs(B, H)["query"], *list(inputs(1, 1).values())[1:]
    key[..., 4, :] = value[..., 4, :] = torch.nan
    allowed = torch.ones(B, 1, 1, J, dtype=torch.bool)
    allowed[0, ..., 4] = False
    rest = [j for j in range(J) if j != 4]
    output = attend(query, key, value, allowed)
    assert_same(output[0], attend(query[0], key[0, :, rest], value[0, :, rest]))
    assert output[1].isnan().all()


@pytest.mark.parametrize("junk", [torch.nan, INF, -INF])
@pytest.mark.parametrize("by", ["mask", "bias"])
def test_junk_in_a_padded_key_changes_no_weight(by, junk):
    query, key, _ = inputs(B, H).values()
    given = hide(torch.isin(torch.arange(J), torch.tensor(PADDED)).expand(I, J), by)
    without = {name: pairs[:, REAL] for name, pairs in given.items()}
    expected = with_gradients(
        partial(attention_weights, **without), query=query, key=key[:, :, REAL]
    )
    key[:, :, PADDED] = junk
    weights = attention_weights(query, key, **given)
    assert not weights[..., PADDED].any()
    assert_same(weights[..., REAL], expected["output"])


def test_junk_in_a_padded_key_does_not_reach_the_gradients_of_the_weights():
    query, key, _ = inputs(B, H).values()
    mask = torch.arange(J).expand(I, J) < 5
    key[:, :, 5:] = torch.nan
    run = with_gradients(partial(attention_weights, mask=mask), query=query, key=key)
    assert run["query"].isfinite().all()
    assert run["key"].isfinite().all()
    assert not run["key"][:, :, 5:].any()


def test_the_score_of_a_padded_key_is_minus_infinity_whatever_it_holds():
    query, key, _ = inputs(B, H).values()
    key[:, :, 4] = torch.nan
    bias = torch.zeros(1, J, dtype=torch.float64).index_fill(1, torch.tensor([4]), -INF)
    scores = attention_scores(query, key, bias=bias)
    assert (scores[..., 4] == -INF).all()
    assert scores[..., [0, 1, 2, 3, 5, 6]].isfinite().all()


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_junk_is_kept_out_in_half_precision_too(attend, dtype):
    tensors = inputs(B, H, dtype=dtype)
    mask = torch.arange(J).expand(I, J) < 5
    tensors["key"][:, :, 5:] = tensors["value"][:, :, 5:] = INF
    run = with_gradients(partial(attend, mask=mask), **tensors)
    assert all(tensor.isfinite().all() for tensor in run.values())


# 6. Exact, and no overflow.


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


# 7. Unequal sizes, empty and unusual inputs; no input is written to.


def test_an_empty_batch_and_no_queries_give_empty_outputs(attend):
    mask = some_mask(1, J)
    empty = with_gradients(partial(attend, mask=mask), **inputs(0, H))
    assert empty["output"].shape == (0, H, I, E)
    run = with_gradients(partial(attend, mask=mask), **inputs(B, H, i=0))
    assert run["output"].shape == (B, H, 0, E)
    assert not run["key"].any()


def test_inputs_may_lie_in_memory_in_any_order(attend):
    tensors, mask = inputs(B, H), some_mask(B, H, I, J)
    strided = {name: tensor.mT.contiguous().mT for name, tensor in tensors.items()}
    assert not strided["key"].is_contiguous()
    turned = mask.mT.contiguous().mT
    actual = with_gradients(partial(attend, mask=turned), **strided)
    assert_same(actual, with_gradients(partial(attend, mask=mask), **tensors))


def test_expanded_inputs_are_as_good_as_copies(attend):
    tensors = {name: t.expand(B, H, -1, -1) for name, t in inputs(1, 1).items()}
    mask, bias = some_mask(1, J).expand(B, H, I, J), some_bias(1, J).expand(I, J)
    copies = {name: tensor.clone() for name, tensor in tensors.items()}
    expected = attend(**copies, mask=mask.clone(), bias=bias.clone())
    assert_same(attend(**tensors, mask=mask, bias=bias), expected)


def test_no_input_is_written_to(attend):
    given = inputs(B, H) | nothing_for_query_3("both")
    given["key"][:, :, 6], given["mask"][..., 6] = torch.nan, False
    before = copy.deepcopy(given)
    attend(**given)
    attention_weights(given["query"], given["key"], given["mask"], bias=given["bias"])
    attention_scores(given["query"], given["key"], bias=given["bias"])
    for name, tensor in given.items():
        assert torch.equal(tensor.nan_to_num(), before[name].nan_to_num()), name


# 8. Dropout acts on the weights.


def test_dropout_drops_weights_and_scales_up_the_others(attend):
    query, key, _ = inputs(B, H).values()
    kept = attend(query, key, torch.eye(J, dtype=torch.float64), dropout_p=0.3)
    weights = attention_weights(query, key) / 0.7
    assert (kept == 0).any()
    assert_same(kept, torch.where(kept == 0, 0, weights))


def test_the_mean_over_many_dropouts_is_the_output_without(attend):
    query, key, value = inputs(d=2, e=3).values()
    many = attend(query.expand(20_000, I, 2), key, value, dropout_p=0.3)
    error = many.mean(0) - attend(query, key, value)
    standard_error = many.std(0) / len(many) ** 0.5
    assert (error.abs() < 5 * standard_error).all()


def test_the_share_of_dropped_weights_is_the_rate(attend):
    query, key, _ = inputs(1000, d=2).values()
    kept = attend(query, key, torch.eye(J, dtype=torch.float64), dropout_p=0.2)
    assert (kept == 0).double().mean().item() == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize("rate", [-0.1, 1.1])
def test_a_dropout_that_is_no_share_is_an_error(attend, rate):
    with pytest.raises((ValueError, RuntimeError), match="dropout"):
        attend(**inputs(B, H), dropout_p=rate)


# 9. Differentiation and tooling: what each implementation can do, and what it raises instead.

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


INT, META = torch.int64, torch.device("meta")
ERRORS = {
    "integers": (
        {"key": torch.ones(B, H, J, D, dtype=INT)},
        TypeError,
        "key must be a float tensor; got torch.int64",
    ),
    "mixed dtypes": (
        {"value": torch.ones(B, H, J, E)},
        TypeError,
        "one dtype; got query torch.float64, key torch.float64, value torch.float32",
    ),
    "mixed devices": (
        {"key": torch.ones(B, H, J, D, dtype=torch.float64, device=META)},
        ValueError,
        "one device; got query cpu, key meta, value cpu",
    ),
    "one axis": (
        {"query": torch.ones(D, dtype=torch.float64)},
        ValueError,
        r"query needs at least two axes, positions and features; got shape \(11,\)",
    ),
    "features of keys": (
        {"key": torch.ones(B, H, J, D + 1, dtype=torch.float64)},
        ValueError,
        "compared feature by feature.*got 11 and 12",
    ),
    "values that are missing": (
        {"value": torch.ones(B, H, J - 1, E, dtype=torch.float64)},
        ValueError,
        "every key needs a value; got 7 keys and 6 values",
    ),
    "leading axes": (
        {"key": torch.ones(B, H + 1, J, D, dtype=torch.float64)},
        ValueError,
        r"leading axes must agree or be 1; got query \(2, 3, 5, 11\), key \(2, 4, 7, 11\)",
    ),
    "leading axes of values": (
        {"value": torch.ones(B + 1, H, J, E, dtype=torch.float64)},
        ValueError,
        r"leading axes must agree or be 1; got .*value \(3, 3, 7, 13\)",
    ),
    "a bias of another dtype": (
        {"bias": torch.zeros(I, J)},
        TypeError,
        "bias must have the dtype of query, torch.float64; got torch.float32",
    ),
    "a bias of integers": (
        {"bias": torch.zeros(I, J, dtype=INT)},
        TypeError,
        "bias must have the dtype of query, torch.float64; got torch.int64",
    ),
    "a mask elsewhere": (
        {"mask": torch.ones(I, J, dtype=torch.bool, device=META)},
        ValueError,
        "mask must be on the device of query, cpu; got meta",
    ),
    "a bias elsewhere": (
        {"bias": torch.ones(I, J, dtype=torch.float64, device=META)},
        ValueError,
        "bias must be on the device of query, cpu; got meta",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_wrong_inputs_are_errors_that_name_what_came(attend, name):
    wrong, error, message = ERRORS[name]
    with pytest.raises(error, match=message):
        attend(**inputs(B, H) | wrong)


def test_an_error_of_the_weights_names_no_value():
    query, key = torch.ones(B, I, D), torch.ones(B + 1, J, D)
    with pytest.raises(ValueError, match=r"got query \(2, 5, 11\), key \(3, 7, 11\)$"):
        attention_weights(query, key)


def test_features_of_which_there_are_none_cannot_be_compared(attend):
    with pytest.raises(ValueError, match="at least 1; got 0 and 0"):
        attend(**inputs(B, H, d=0))
