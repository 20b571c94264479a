"""`jax.nn.dot_product_attention`: the same numbers, and what it does differently.

The names of the tests on differences are true of JAX 0.10. Where one fails after an update of
the pins, the chapter "Carry masks between libraries, shapes and dtypes" has to change with it.
"""

from functools import partial

import jax.numpy as jnp
import pytest
import torch
from einops import repeat

from mini_attention import causal_mask, padding_mask, window_mask
from tests.frameworks.bridge import jax_attention
from tests.oracles import (
    B,
    D,
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

INF = torch.inf
f32_inputs = partial(inputs, e=D, dtype=torch.float32)  # JAX's own default, and its only size of e


def f32_bias(*shape: int):
    return some_bias(*shape, dtype=torch.float32)


# Where the two agree


@pytest.mark.parametrize(
    "options",
    [
        dict,
        lambda: {"scale": 0.7},
        lambda: {"scale": -2.0},
        lambda: {"mask": some_mask(I, J)},
        lambda: {"mask": some_mask(B, 1, I, J)},
        lambda: {"mask": some_mask(1, H, I, J)},
        lambda: {"mask": some_mask(B, H, I, J), "scale": 0.3},
        lambda: {"mask": some_mask(B, 1, 1, J)},
    ],
    ids=["nothing", "scale", "negative scale", "i j", "b 1 i j", "1 h i j", "b h i j", "b 1 1 j"],
)
def test_outputs_and_gradients_are_those_of_jax(attend, options):
    tensors, options = f32_inputs(B, H), options()
    expected = with_gradients(partial(jax_attention, **options), **tensors)
    assert_same(with_gradients(partial(attend, **options), **tensors), expected)


@pytest.mark.parametrize("shape", [(I, J), (1, H, I, J), (B, 1, 1, J), (B, H, I, J)], ids=str)
@pytest.mark.parametrize("mask", [None, (B, H, I, J)], ids=["alone", "with a mask"])
def test_a_bias_and_its_gradient_are_those_of_jax(attend, shape, mask):
    tensors = f32_inputs(B, H) | {"bias": f32_bias(*shape)}
    mask = None if mask is None else some_mask(*mask)
    expected = with_gradients(partial(jax_attention, mask=mask), **tensors)
    assert_same(with_gradients(partial(attend, mask=mask), **tensors), expected)


def test_a_bias_of_minus_infinity_forbids_in_jax_too(attend):
    tensors, mask = f32_inputs(B, H), some_mask(B, H, I, J)
    bias = f32_bias(B, H, I, J).masked_fill(~mask, -INF)
    expected = with_gradients(partial(jax_attention, bias=bias), **tensors)
    assert_same(with_gradients(partial(attend, bias=bias), **tensors), expected)


@pytest.mark.parametrize("sizes", [(I, J), (J, I), (J, J)], ids=["i < j", "i > j", "i = j"])
def test_jax_lines_up_the_first_query_of_a_causal_mask_with_the_first_key(attend, sizes):
    i, j = sizes
    tensors, mask = f32_inputs(B, H, i=i, j=j), causal_mask(i, j, align="start")
    expected = with_gradients(partial(jax_attention, is_causal=True), **tensors)
    assert_same(with_gradients(partial(attend, mask=mask), **tensors), expected)


@pytest.mark.parametrize("sizes", [(I, J), (J, I)], ids=["i < j", "i > j"])
@pytest.mark.parametrize("window", [(2, 0), (2, 1), (3, 1)], ids=str)  # no query sees nothing
def test_jax_lines_up_a_window_at_the_first_key_and_counts_itself_on_neither_side(
    attend, sizes, window
):
    (i, j), (before, after) = sizes, window
    tensors = f32_inputs(B, H, i=i, j=j)
    mask = window_mask(i, j, before=before, after=after, align="start")
    expected = with_gradients(partial(jax_attention, local_window_size=window), **tensors)
    assert_same(with_gradients(partial(attend, mask=mask), **tensors), expected)


def test_one_number_is_a_window_of_so_many_keys_on_either_side_in_jax(attend):
    tensors, mask = f32_inputs(B, H), window_mask(I, J, before=2, after=2, align="start")
    expected = with_gradients(partial(jax_attention, local_window_size=2), **tensors)
    assert_same(with_gradients(partial(attend, mask=mask), **tensors), expected)


def test_a_causal_window_in_jax_is_the_two_masks_together(attend):
    tensors, mask = f32_inputs(B, H), window_mask(I, J, before=1, after=0, align="start")
    options = {"is_causal": True, "local_window_size": (1, 3)}
    expected = with_gradients(partial(jax_attention, **options), **tensors)
    assert_same(with_gradients(partial(attend, mask=mask), **tensors), expected)


def test_key_value_lengths_are_padding_on_the_right(attend):
    tensors, lengths = f32_inputs(B, H), [4, 1]
    mask = padding_mask(lengths, J)[:, None]
    options = {"key_value_seq_lengths": jnp.array(lengths, dtype="int32")}
    expected = with_gradients(partial(jax_attention, **options), **tensors)
    assert_same(with_gradients(partial(attend, mask=mask), **tensors), expected)


def test_query_lengths_give_0_after_the_end_as_an_empty_row_does_here(attend):
    tensors, queries, keys = f32_inputs(B, H), [2, I], [J, 3]
    mask = (padding_mask(queries, I).mT & padding_mask(keys, J))[:, None]
    options = {
        "query_seq_lengths": jnp.array(queries, dtype="int32"),
        "key_value_seq_lengths": jnp.array(keys, dtype="int32"),
    }
    expected = with_gradients(partial(jax_attention, **options), **tensors)
    assert (expected["output"][0, :, 2:] == 0).all()
    assert_same(with_gradients(partial(attend, mask=mask), **tensors), expected)


def shared_heads(attend, order: str, query, key, value, mask=None):
    key, value = (repeat(x, f"b h j d -> b ({order}) j d", g=2) for x in (key, value))
    return attend(query, key, value, mask)


def grouped_inputs():
    """Six query heads on three key heads: two query heads share one."""
    return f32_inputs(B, H) | {"query": torch.randn(B, 2 * H, I, D)}


@pytest.mark.parametrize("mask", [None, (B, 2 * H, I, J)], ids=["nothing", "mask per query head"])
def test_neighbouring_query_heads_share_a_key_head_in_jax(attend, mask):
    tensors = grouped_inputs()
    mask = None if mask is None else some_mask(*mask)
    expected = with_gradients(partial(jax_attention, mask=mask), **tensors)
    assert_same(
        with_gradients(partial(shared_heads, attend, "h g", mask=mask), **tensors), expected
    )


def test_sharing_key_heads_in_turn_gives_something_else_than_jax(attend):
    tensors = grouped_inputs()
    ours, theirs = shared_heads(attend, "g h", **tensors), jax_attention(**tensors)
    same = torch.isclose(ours, theirs, rtol=1e-5, atol=1e-5).all(-1).all(-1)
    assert same.tolist() == [[True, False, False, False, False, True]] * B  # 0 and 5 stay put


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32], ids=str)
def test_jax_refuses_a_mask_that_is_not_boolean_too(dtype):
    with pytest.raises(ValueError, match="mask dtype should be bool"):
        jax_attention(**f32_inputs(B, H), mask=torch.ones(I, J, dtype=dtype))


# Where they differ


@pytest.mark.parametrize("sizes", [(I, J), (J, I)], ids=["i < j", "i > j"])
def test_causal_in_jax_is_not_the_causal_mask_of_decoding(attend, sizes):
    i, j = sizes
    tensors = f32_inputs(B, H, i=i, j=j)
    theirs = jax_attention(**tensors, is_causal=True)
    ours = attend(**tensors, mask=causal_mask(i, j))
    different = ((theirs - ours).abs() > 1e-3).any(-1)
    assert different[..., :-1].all()
    assert different[..., -1].all() == (i < j)  # else the last query sees all keys in both


def test_a_row_with_nothing_allowed_gets_the_mean_of_all_values_in_jax_and_0_here(attend):
    tensors, mask = f32_inputs(B, H), some_mask(B, 1, I, J)
    mask[:, :, 3], mask[..., 4] = False, False  # query 3 sees nothing, key 4 is never seen
    tensors["value"][..., 4, :] = 1000.0
    expected = tensors["value"].mean(-2)
    assert expected.min() > 100  # the hidden value is in the mean
    assert_same(jax_attention(**tensors, mask=mask)[:, :, 3], expected)
    assert (attend(**tensors, mask=mask)[:, :, 3] == 0).all()


def test_a_row_with_nothing_allowed_moves_every_value_in_jax_and_none_here(attend):
    tensors, mask = f32_inputs(B, H), some_mask(I, J)
    mask[3] = False
    row_3 = lambda function: lambda query, key, value: function(query, key, value, mask)[:, :, 3]
    theirs = with_gradients(row_3(jax_attention), **tensors)
    ours = with_gradients(row_3(attend), **tensors)
    mean = with_gradients(lambda value: value.mean(-2), value=tensors["value"])
    assert_same(theirs["value"], mean["value"])
    assert (theirs["query"] == 0).all()
    assert all((ours[name] == 0).all() for name in ("output", "query", "key", "value"))


def test_an_item_without_keys_gets_the_mean_of_its_padding_in_jax_and_0_here(attend):
    tensors, lengths = f32_inputs(B, H), [J, 0]
    theirs = jax_attention(**tensors, key_value_seq_lengths=jnp.array(lengths, dtype="int32"))
    mean = repeat(tensors["value"].mean(-2), "b h e -> b h i e", i=I)
    assert_same(theirs[1], mean[1])
    assert (attend(**tensors, mask=padding_mask(lengths, J)[:, None])[1] == 0).all()


def test_a_bias_that_forbids_everything_gives_nan_in_jax_and_0_here(attend):
    tensors, bias = f32_inputs(B, H), f32_bias(I, J)
    bias[3] = -INF
    assert jax_attention(**tensors, bias=bias)[:, :, 3].isnan().all()
    assert (attend(**tensors, bias=bias)[:, :, 3] == 0).all()


def hidden_nan(name: str):
    """Key 4, which no query may attend to, holds a NaN in its features or in its value."""
    tensors, mask = f32_inputs(B, H), some_mask(I, J)
    mask[:, 4] = False
    clean = {x: tensor.clone() for x, tensor in tensors.items()}
    tensors[name][..., 4, :] = torch.nan
    return tensors, clean, mask


def test_a_nan_in_a_masked_key_reaches_the_gradient_of_the_query_in_jax_and_nothing_here(attend):
    tensors, clean, mask = hidden_nan("key")
    theirs = with_gradients(partial(jax_attention, mask=mask), **tensors)
    expected = with_gradients(partial(jax_attention, mask=mask), **clean)
    assert_same(theirs["output"], expected["output"])
    assert theirs["query"].isnan().all()
    assert_same(with_gradients(partial(attend, mask=mask), **tensors), expected)


def test_a_nan_in_a_masked_value_reaches_every_output_in_jax_and_none_here(attend):
    tensors, clean, mask = hidden_nan("value")
    assert jax_attention(**tensors, mask=mask).isnan().all()
    expected = with_gradients(partial(jax_attention, mask=mask), **clean)
    assert_same(with_gradients(partial(attend, mask=mask), **tensors), expected)


def test_a_mask_per_item_lands_on_the_heads_in_jax_and_is_an_error_here(attend):
    tensors, mask = f32_inputs(H, H), some_mask(H, I, J)  # as many items as heads
    theirs = jax_attention(**tensors, mask=mask)
    assert_same(theirs, jax_attention(**tensors, mask=mask[None]))
    assert (theirs - jax_attention(**tensors, mask=mask[:, None])).abs().max() > 0.1
    with pytest.raises(ValueError, match="insert the missing axis after the first"):
        attend(**tensors, mask=mask)


def test_jax_takes_no_values_of_another_size_than_the_keys(attend):
    tensors = inputs(B, H)
    with pytest.raises(ValueError, match="value shape should be"):
        jax_attention(**tensors)
    assert_same(attend(**tensors), naive_attention(**tensors))


def test_jax_computes_the_softmax_of_float64_in_float32(attend):
    tensors = inputs(B, H, e=D)
    theirs, ours = jax_attention(**tensors), attend(**tensors)
    assert theirs.dtype == torch.float64
    assert 1e-9 < (theirs - ours).abs().max() < 1e-6
