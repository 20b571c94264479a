"""Keras' layers with copied weights: the same numbers, and what they do differently.

Keras has two ways through a layer. Asked for the weights (or with a dropout above 0) it computes
them itself; else it calls the attention function of its backend, JAX's here. The names of the
tests on differences are true of Keras 3.15 on JAX 0.10. Where one fails after an update of the
pins, the chapter "Carry masks between libraries, shapes and dtypes" has to change with it.
"""

from functools import partial

import keras
import pytest
import torch
from einops import einsum, repeat
from torch.func import functional_call

from mini_attention import MultiHeadAttention, causal_mask, padding_mask, window_mask
from tests.frameworks.bridge import keras_attention, keras_parameters, to_jax, to_torch
from tests.oracles import (
    B,
    D,
    E,
    H,
    I,
    J,
    assert_same,
    some_mask,
    with_gradients,
)

M, KEY_SIZE, VALUE_SIZE = 12, 11, 13
HEAD = M // H
OUTPUT, WEIGHTS = 0, 1  # what Keras returns when it is asked for both


@pytest.fixture(params=[None, OUTPUT], ids=["output alone", "asked for weights"])
def way(request):
    """The two ways through a Keras layer, and the dtype in which each is compared."""
    return request.param, torch.float32 if request.param is None else torch.float64


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


def layers(attend, dtype=torch.float64, *, key_size=M, value_size=M, **options):
    """Our layer with biases that are not 0, and a Keras layer of the same sizes."""
    ours = MultiHeadAttention(M, H, key_size=key_size, value_size=value_size, attend=attend)
    for parameter in ours.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    theirs = keras.layers.MultiHeadAttention(H, HEAD, dtype=name_of(dtype), **options)
    theirs.build((B, I, M), (B, J, value_size), (B, J, key_size))
    return ours.to(dtype), theirs


def as_ours(layer, mask=None):
    """Our layer as a function of its inputs and parameters."""

    def call(**tensors):
        sources = [tensors.pop(name) for name in ("query", "key", "value") if name in tensors]
        return functional_call(layer, tensors, tuple(sources), {"mask": mask})

    return call


def as_keras(layer, mask=None, *, returned=None, layout=None, **options):
    """The Keras layer as the same function: parameters come in our layout and are moved."""

    def call(query, key=None, value=None, **parameters):
        key = query if key is None else key
        value = key if value is None else value
        parameters = keras_parameters(parameters, H, **(layout or {}))
        settings = {"parameters": parameters, "returned": returned, **options}
        return keras_attention(layer, query, key, value, mask, **settings)

    return call


def tensors_of(layer, *, i=I, j=J) -> dict:
    """Inputs for cross-attention, and the layer's parameters."""
    sizes = {"query": (i, layer.q_proj), "key": (j, layer.k_proj), "value": (j, layer.v_proj)}
    dtype = layer.q_proj.weight.dtype
    return {
        name: torch.randn(B, n, projection.in_features, dtype=dtype)
        for name, (n, projection) in sizes.items()
    } | dict(layer.named_parameters())


def give(theirs, ours):
    """Copy the parameters of our layer into the Keras layer."""
    copied = keras_parameters(dict(ours.named_parameters()), H)
    for variable, parameter in zip(theirs.trainable_variables, copied, strict=True):
        variable.assign(parameter.detach().numpy())


def assert_same_layers(ours, theirs, tensors: dict) -> None:
    """A parameter's gradient is a sum over all positions: its rounding grows with its size."""
    expected = with_gradients(theirs, **tensors)
    largest = max(tensor.abs().max().item() for tensor in expected.values())
    assert_same(with_gradients(ours, **tensors), expected, largest_score=largest)


def self_attention(tensors: dict) -> dict:
    return {name: tensor for name, tensor in tensors.items() if name not in ("key", "value")}


# Where the two agree


MASKS = pytest.mark.parametrize(
    "shape",
    [None, (I, J), (B, I, J), (B, H, I, J), (B, 1, J)],
    ids=["nothing", "i j", "b i j", "b h i j", "b 1 j"],
)


@MASKS
def test_cross_attention_and_all_its_gradients_are_those_of_keras(attend, way, shape):
    returned, dtype = way
    ours, theirs = layers(attend, dtype, key_size=KEY_SIZE, value_size=VALUE_SIZE)
    mask = None if shape is None else some_mask(*shape)
    tensors = tensors_of(ours)
    assert_same_layers(as_ours(ours, mask), as_keras(theirs, mask, returned=returned), tensors)


@pytest.mark.parametrize("shape", [None, (I, I), (B, I, I)], ids=["nothing", "i i", "b i i"])
def test_self_attention_and_all_its_gradients_are_those_of_keras(attend, way, shape):
    returned, dtype = way
    ours, theirs = layers(attend, dtype)
    mask = None if shape is None else some_mask(*shape)
    tensors = self_attention(tensors_of(ours))
    assert_same_layers(as_ours(ours, mask), as_keras(theirs, mask, returned=returned), tensors)


@MASKS
def test_the_weights_are_those_of_keras(attend, shape):
    ours, theirs = layers(attend, key_size=KEY_SIZE, value_size=VALUE_SIZE)
    mask, tensors = None if shape is None else some_mask(*shape), tensors_of(ours)
    sources = [tensors[name] for name in ("query", "key", "value")]
    _, weights = ours(*sources, mask, return_weights=True)
    assert weights.shape == (B, H, I, J)
    assert_same(weights, as_keras(theirs, mask, returned=WEIGHTS)(**tensors))


@pytest.mark.parametrize("name", ["q_proj.weight", "v_proj.weight", "out_proj.weight"])
def test_heads_that_are_split_in_the_other_order_give_another_layer(attend, name):
    ours, theirs = layers(attend)
    order = {"out_proj.weight": "m (e h) -> h e m"}.get(name, "(d h) m -> m h d")
    tensors = self_attention(tensors_of(ours))
    mixed_up = as_keras(theirs, returned=OUTPUT, layout={name: order})(**tensors)
    assert (mixed_up - as_ours(ours)(**tensors)).abs().max() > 0.1


@pytest.mark.parametrize("sizes", [(I, J), (J, I), (J, J)], ids=["i < j", "i > j", "i = j"])
def test_keras_lines_up_the_first_query_of_a_causal_mask_with_the_first_key(attend, way, sizes):
    returned, dtype = way
    ours, theirs = layers(attend, dtype)
    i, j = sizes
    tensors, mask = tensors_of(ours, i=i, j=j), causal_mask(i, j, align="start")
    causal = as_keras(theirs, returned=returned, use_causal_mask=True)
    assert_same_layers(as_ours(ours, mask), causal, tensors)


def test_keras_counts_a_query_itself_in_its_window_and_looks_to_both_sides(attend, way):
    returned, dtype = way
    ours, theirs = layers(attend, dtype, sliding_window=3)
    tensors, mask = tensors_of(ours), window_mask(I, J, before=2, after=2, align="start")
    assert_same_layers(as_ours(ours, mask), as_keras(theirs, returned=returned), tensors)


@pytest.mark.parametrize("name", ["key_mask", "value_mask"])
def test_a_mask_of_keys_or_of_values_is_padding(attend, way, name):
    returned, dtype = way
    ours, theirs = layers(attend, dtype)
    tensors, mask = tensors_of(ours), padding_mask([4, 1], J)
    padded = as_keras(theirs, returned=returned, **{name: to_jax(mask[:, 0])})
    assert_same_layers(as_ours(ours, mask), padded, tensors)


def test_padding_and_causal_and_a_mask_combine_with_and(attend, way):
    returned, dtype = way
    ours, theirs = layers(attend, dtype)
    tensors, mask, padding = tensors_of(ours), some_mask(B, I, J), padding_mask([J, 4], J)
    mask[..., 0] = True  # the key that every query of a causal mask sees
    options = {"key_mask": to_jax(padding[:, 0]), "use_causal_mask": True}
    assert_same_layers(
        as_ours(ours, mask & padding & causal_mask(I, J, align="start")),
        as_keras(theirs, mask, returned=returned, **options),
        tensors,
    )


def projected(attend, mask, groups, query, key, value, q_kernel, k_kernel, v_kernel, out_kernel):
    """Attention with projections whose kernels have the axes that Keras gives them."""
    q = einsum(query, q_kernel, "b i m, m h d -> b h i d")
    k = einsum(key, k_kernel, "b j m, m h d -> b h j d")
    v = einsum(value, v_kernel, "b j m, m h e -> b h j e")
    k, v = (repeat(x, f"b h j d -> b ({groups}) j d", g=q.shape[1] // k.shape[1]) for x in (k, v))
    return einsum(attend(q, k, v, mask), out_kernel, "b h i e, h e m -> b i m")


def kernels(query_heads: int, key_heads: int) -> dict:
    shapes = {
        "query": (B, I, M),
        "key": (B, J, KEY_SIZE),
        "value": (B, J, VALUE_SIZE),
        "q_kernel": (M, query_heads, D),
        "k_kernel": (KEY_SIZE, key_heads, D),
        "v_kernel": (VALUE_SIZE, key_heads, D),
        "out_kernel": (query_heads, D, M),
    }
    return {name: torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}


def without_biases(layer, mask, **options):
    layer.build((B, I, M), (B, J, VALUE_SIZE), (B, J, KEY_SIZE))

    def call(query, key, value, **parameters):
        parameters = list(parameters.values())
        return keras_attention(layer, query, key, value, mask, parameters=parameters, **options)

    return call


def test_values_of_another_size_than_the_keys_are_attended_as_in_keras(attend):
    tensors, mask = kernels(H, H), some_mask(I, J)
    tensors["v_kernel"] = torch.randn(VALUE_SIZE, H, E, dtype=torch.float64)
    tensors["out_kernel"] = torch.randn(H, E, M, dtype=torch.float64)
    layer = keras.layers.MultiHeadAttention(H, D, value_dim=E, use_bias=False, dtype="float64")
    assert_same_layers(
        partial(projected, attend, mask, "h g"),
        without_biases(layer, mask, returned=OUTPUT),
        tensors,
    )


def grouped(mask):
    layer = keras.layers.GroupQueryAttention(D, 2 * H, H, use_bias=False, dtype="float64")
    return without_biases(layer, mask, returned=OUTPUT)


def test_neighbouring_query_heads_share_a_key_head_in_keras(attend):
    tensors, mask = kernels(2 * H, H), some_mask(I, J)
    assert_same_layers(partial(projected, attend, mask, "h g"), grouped(mask), tensors)


def test_sharing_key_heads_in_turn_gives_something_else_than_keras(attend):
    tensors = kernels(2 * H, H)
    ours = projected(attend, None, "g h", **tensors)
    assert (ours - grouped(None)(**tensors)).abs().max() > 0.1


# Where they differ


def test_keras_takes_the_value_before_the_key(attend):
    ours, theirs = layers(attend, torch.float32)
    tensors = tensors_of(ours)
    query, key, value = (tensors[name] for name in ("query", "key", "value"))
    give(theirs, ours)
    q, k, v = map(to_jax, (query, key, value))
    assert_same(to_torch(theirs(q, v, k)), ours(query, key, value).detach())
    assert_same(to_torch(theirs(q, k, v)), ours(query, value, key).detach())


@pytest.mark.parametrize("sizes", [(I, J), (J, I)], ids=["i < j", "i > j"])
def test_causal_in_keras_is_not_the_causal_mask_of_decoding(attend, way, sizes):
    returned, dtype = way
    ours, theirs = layers(attend, dtype)
    i, j = sizes
    tensors = tensors_of(ours, i=i, j=j)
    causal = as_keras(theirs, returned=returned, use_causal_mask=True)(**tensors)
    different = ((causal - as_ours(ours, causal_mask(i, j))(**tensors)).abs() > 1e-3).any(-1)
    assert different[:, :-1].all()
    assert different[:, -1].all() == (i < j)  # else the last query sees all keys in both


def empty_row(attend, dtype):
    """Query 3 may attend to nothing, and key 4 is hidden from every query."""
    ours, theirs = layers(attend, dtype)
    mask = some_mask(B, I, J)
    mask[:, 3], mask[..., 4] = False, False
    return ours, theirs, tensors_of(ours), mask


def test_a_row_with_nothing_allowed_gets_the_mean_of_all_values_from_keras_output_alone(attend):
    ours, theirs, tensors, mask = empty_row(attend, torch.float32)
    output = as_keras(theirs, mask)(**tensors)
    mean = ours.out_proj(ours.v_proj(tensors["value"]).mean(1))
    assert_same(output[:, 3], mean)
    assert_same(as_ours(ours, mask)(**tensors)[:, 3], ours.out_proj.bias.expand(B, M))


def test_a_row_with_nothing_allowed_gets_0_from_keras_once_it_is_asked_for_weights(attend):
    ours, theirs, tensors, mask = empty_row(attend, torch.float64)
    weights = as_keras(theirs, mask, returned=WEIGHTS)(**tensors)
    assert (weights[:, :, 3] == 0).all()
    expected = with_gradients(as_keras(theirs, mask, returned=OUTPUT), **tensors)
    assert_same(expected["output"][:, 3], ours.out_proj.bias.expand(B, M))
    assert_same(with_gradients(as_ours(ours, mask), **tensors), expected)


def test_a_dropout_above_0_changes_the_empty_row_of_keras_in_evaluation_too(attend):
    ours, plain, tensors, mask = empty_row(attend, torch.float32)
    _, dropping = layers(attend, torch.float32, dropout=0.1)
    without = as_keras(plain, mask, training=False)(**tensors)
    with_it = as_keras(dropping, mask, training=False)(**tensors)
    different = ((with_it - without).abs() > 1e-3).any(-1)
    assert different.tolist() == [[False, False, False, True, False]] * B
    assert_same(with_it, as_ours(ours, mask)(**tensors))


def test_keras_ignores_a_mask_of_queries_that_is_passed_by_hand(attend, way):
    returned, dtype = way
    ours, theirs = layers(attend, dtype)
    tensors, by_hand = tensors_of(ours), to_jax(padding_mask([2, I], I)[:, 0])
    assert_same_layers(
        as_ours(ours), as_keras(theirs, returned=returned, query_mask=by_hand), tensors
    )


def masked_by_a_layer(lengths, dtype):
    """Zeros after the last word, and the same with the mask that Keras' own layer attaches."""
    x = torch.randn(B, I, M, dtype=dtype) * padding_mask(lengths, I).mT
    return x, keras.layers.Masking(dtype=name_of(dtype))(to_jax(x))


def test_a_mask_that_a_keras_layer_attaches_hides_keys_and_empties_the_rows_of_queries(attend):
    ours, theirs = layers(attend)
    x, masked = masked_by_a_layer([2, I], torch.float64)
    give(theirs, ours)
    output, weights = map(to_torch, theirs(masked, masked, return_attention_scores=True))
    words = padding_mask([2, I], I)
    expected, expected_weights = ours(x, mask=words.mT & words, return_weights=True)
    assert_same(output, expected.detach())
    assert_same(weights, expected_weights.detach())


def test_with_that_mask_keras_gives_padded_queries_the_mean_when_no_weights_are_asked_for(attend):
    ours, theirs = layers(attend, torch.float32)
    x, masked = masked_by_a_layer([2, I], torch.float32)
    give(theirs, ours)
    output = to_torch(theirs(masked, masked))
    words = padding_mask([2, I], I)
    expected = ours(x, mask=words.mT & words).detach()
    assert_same(output[0, :2], expected[0, :2])
    assert_same(output[1], expected[1])
    mean = ours.out_proj(ours.v_proj(x[0]).mean(0)).detach()
    assert_same(output[0, 2:], mean.expand(I - 2, M))


def hidden_nan(attend, name: str, dtype):
    ours, theirs = layers(attend, dtype)
    mask = some_mask(B, I, J)
    mask[..., 4] = False
    clean = tensors_of(ours)
    broken = clean | {name: clean[name].clone()}
    broken[name][:, 4] = torch.nan
    return ours, theirs, mask, broken, clean


def test_a_nan_in_a_masked_key_reaches_the_gradients_of_keras(attend, way):
    returned, dtype = way
    ours, theirs, mask, broken, clean = hidden_nan(attend, "key", dtype)
    result = with_gradients(as_keras(theirs, mask, returned=returned), **broken)
    assert_same(result["output"], as_ours(ours, mask)(**clean).detach())
    assert result["query"].isnan().all()
    assert result["q_proj.weight"].isnan().all()


def test_a_nan_in_a_masked_value_reaches_every_output_of_keras_and_none_here(attend, way):
    returned, dtype = way
    ours, theirs, mask, broken, clean = hidden_nan(attend, "value", dtype)
    assert as_keras(theirs, mask, returned=returned)(**broken).isnan().all()
    assert_same(as_ours(ours, mask)(**broken), as_ours(ours, mask)(**clean))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_keras_takes_ones_and_zeros_for_a_mask_that_is_an_error_here(attend, way, dtype):
    returned, float_type = way
    ours, theirs = layers(attend, float_type)
    tensors, mask = tensors_of(ours), some_mask(B, I, J)
    numbers = mask.to(getattr(torch, dtype))
    theirs_with_numbers = as_keras(theirs, numbers, returned=returned)(**tensors)
    assert_same(as_ours(ours, mask)(**tensors), theirs_with_numbers)
    with pytest.raises(TypeError, match="mask must be boolean"):
        as_ours(ours, numbers)(**tensors)
