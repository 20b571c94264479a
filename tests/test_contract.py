"""The contract, for every implementation.

Point 3 is tested with the masks, point 6 in test_numerics, most of point 9 in test_differentiation.
"""

import copy
import math
import re
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
    with_another_default,
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


def assert_query_3_gets_nothing(attend, by: str, dtype):
    given = nothing_for_query_3(by, dtype)
    run = with_gradients(partial(attend, **given), **inputs(B, H, dtype=dtype))
    assert all(tensor.isfinite().all() for tensor in run.values())
    assert (run["output"][:, :, 3] == 0).all()
    assert (run["query"][:, :, 3] == 0).all()
    assert run["query"][:, :, :3].any()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("by", ["mask", "bias", "both"])
def test_a_query_that_may_attend_to_nothing_gets_zeros(attend, by, dtype):
    assert_query_3_gets_nothing(attend, by, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("by", ["mask", "bias", "both"])
def test_a_query_that_may_attend_to_nothing_gets_zeros_with_dropout_too(dropping, by, dtype):
    assert_query_3_gets_nothing(partial(dropping, dropout_p=0.4), by, dtype)


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


# 7. Unequal sizes, empty and unusual inputs; no input is written to.


def test_an_empty_batch_and_no_queries_give_empty_outputs(attend):
    mask = some_mask(1, J)
    empty = with_gradients(partial(attend, mask=mask), **inputs(0, H))
    assert empty["output"].shape == (0, H, I, E)
    run = with_gradients(partial(attend, mask=mask), **inputs(B, H, i=0))
    assert run["output"].shape == (B, H, 0, E)
    assert not run["key"].any()


@pytest.mark.parametrize("sizes", [{"b": 0}, {"i": 0}, {"j": 0}], ids=str)
def test_a_bias_for_nothing_gets_gradients_of_zero(attend, sizes):
    b, i, j = (sizes.get(letter, size) for letter, size in {"b": B, "i": I, "j": J}.items())
    run = with_gradients(attend, **inputs(b, H, i=i, j=j), bias=some_bias(1, H, i, j))
    assert run["bias"].shape == (1, H, i, j)
    assert not run["bias"].any()


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


@pytest.mark.parametrize("by", ["mask", "bias", "both"])
def test_what_is_made_is_made_where_the_inputs_are(attend, by):
    function, tensors = partial(attend, **nothing_for_query_3(by)), inputs(B, H)
    expected = with_gradients(function, **tensors)
    assert_same(with_another_default(function, **tensors), expected)


@pytest.fixture
def float64_by_default():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.usefixtures("float64_by_default")
def test_what_is_made_has_the_dtype_of_the_inputs_whatever_torchs_default(attend, dtype):
    given, tensors = nothing_for_query_3("both", dtype), inputs(B, H, dtype=dtype)
    actual = with_gradients(partial(attend, **given), **tensors)
    torch.set_default_dtype(torch.float32)
    expected = with_gradients(partial(attend, **given), **tensors)
    assert all(torch.equal(actual[name], expected[name]) for name in expected)


# 8. Dropout acts on the weights.


def test_dropout_drops_weights_and_scales_up_the_others(dropping):
    query, key, _ = inputs(B, H).values()
    kept = dropping(query, key, torch.eye(J, dtype=torch.float64), dropout_p=0.3)
    weights = attention_weights(query, key) / 0.7
    assert (kept == 0).any()
    assert_same(kept, torch.where(kept == 0, 0, weights))


def test_the_mean_over_many_dropouts_is_the_output_without(dropping):
    query, key, value = inputs(d=2, e=3).values()
    many = dropping(query.expand(20_000, I, 2), key, value, dropout_p=0.3)
    error = many.mean(0) - dropping(query, key, value)
    standard_error = many.std(0) / len(many) ** 0.5
    assert (error.abs() < 5 * standard_error).all()


def test_the_share_of_dropped_weights_is_the_rate(dropping):
    query, key, _ = inputs(1000, d=2).values()
    kept = dropping(query, key, torch.eye(J, dtype=torch.float64), dropout_p=0.2)
    assert (kept == 0).double().mean().item() == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan])
def test_a_dropout_that_is_no_share_is_an_error(dropping, rate):
    with pytest.raises(ValueError, match=f"^dropout_p must be between 0 and 1; got {rate}$"):
        dropping(**inputs(B, H), dropout_p=rate)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dropping_every_weight_leaves_zeros(dropping, dtype):
    run = with_gradients(partial(dropping, dropout_p=1.0), **inputs(B, H, dtype=dtype))
    assert not any(tensor.any() for tensor in run.values())  # NaN would count as any


# 9. Mixed dtypes or devices and integers are named errors.

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


WHOLE = {
    "mask must be boolean, True where a query may attend to a key; got torch.int64. Convert a mask "
    "of ones and zeros with mask.bool(); pass a float that is added to the scores as bias=": {
        "mask": torch.ones(I, J, dtype=INT)
    },
    "bias is added to the scores and must be a float; pass a boolean as mask=": {
        "bias": torch.ones(I, J, dtype=torch.bool)
    },
    "query and key are compared feature by feature and need the same number, at least 1; got 11 "
    "and 12": {"key": torch.ones(B, H, J, D + 1, dtype=torch.float64)},
    "query needs at least two axes, positions and features; got shape (11,)": {
        "query": torch.ones(D, dtype=torch.float64)
    },
}


@pytest.mark.parametrize("message", WHOLE)
def test_an_error_says_all_that_it_should_and_no_more(attend, message):
    with pytest.raises((TypeError, ValueError), match=f"^{re.escape(message)}$"):
        attend(**inputs(B, H) | WHOLE[message])


@pytest.mark.parametrize("leading", [(), (B,), (B, H, 1)], ids=str)
def test_keys_and_values_are_counted_in_every_rank(attend, leading):
    tensors = inputs(*leading) | {"value": inputs(*leading, j=J - 1)["value"]}
    with pytest.raises(ValueError, match=r"^every key needs a value; got 7 keys and 6 values$"):
        attend(**tensors)


def test_an_error_of_the_weights_names_no_value():
    query, key = torch.ones(B, I, D), torch.ones(B + 1, J, D)
    with pytest.raises(ValueError, match=r"got query \(2, 5, 11\), key \(3, 7, 11\)$"):
        attention_weights(query, key)


def test_features_of_which_there_are_none_cannot_be_compared(attend):
    with pytest.raises(ValueError, match="at least 1; got 0 and 0"):
        attend(**inputs(B, H, d=0))
