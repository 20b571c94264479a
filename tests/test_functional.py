"""The formula and its twins against a triple loop and against torch."""

from functools import partial

import pytest
import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from mini_attention import attention_scores, attention_weights, fused_attention
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
    naive_weights,
    some_bias,
    some_mask,
    torch_attention,
    with_gradients,
)

CASES = {
    "nothing": dict,
    "a scale": lambda: {"scale": 0.7},
    "a mask for all": lambda: {"mask": some_mask(I, J)},
    "a mask per item": lambda: {"mask": some_mask(B, 1, I, J)},
    "a mask per head": lambda: {"mask": some_mask(1, H, I, J)},
    "a mask for each": lambda: {"mask": some_mask(B, H, I, J)},
    "a mask of keys": lambda: {"mask": some_mask(B, 1, 1, J)},
    "a bias for all": lambda: {"bias": some_bias(I, J)},
    "a bias per head": lambda: {"bias": some_bias(H, I, J)[None]},
    "a bias of keys": lambda: {"bias": some_bias(B, 1, 1, J)},
    "all of it": lambda: {
        "mask": some_mask(B, 1, I, J), "bias": some_bias(1, H, 1, J), "scale": 0.3
    },
}  # fmt: skip


@pytest.fixture(params=CASES)
def given(request):
    """The optional arguments, in each combination of CASES."""
    return CASES[request.param]()


def test_outputs_and_gradients_are_those_of_a_triple_loop(attend, given):
    tensors = inputs(B, H)
    actual = with_gradients(partial(attend, **given), **tensors)
    assert_same(actual, with_gradients(partial(naive_attention, **given), **tensors))


def test_outputs_and_gradients_are_those_of_torch(attend, given):
    tensors = inputs(B, H)
    actual = with_gradients(partial(attend, **given), **tensors)
    assert_same(actual, with_gradients(partial(torch_attention, **given), **tensors))


@pytest.mark.parametrize("shape", [(I, J), (1, J), (B, 1, I, 1), (B, H, I, J)])
def test_the_gradient_of_a_bias_is_that_of_a_triple_loop(attend, shape):
    tensors, mask = inputs(B, H) | {"bias": some_bias(*shape)}, some_mask(I, J)
    actual = with_gradients(partial(attend, mask=mask), **tensors)
    assert_same(actual, with_gradients(partial(naive_attention, mask=mask), **tensors))


@pytest.mark.parametrize("shape", [(I, J), (1, J), (B, 1, I, 1), (B, H, I, J)])
def test_the_gradient_of_a_bias_is_that_of_torch(attend, shape):
    tensors, mask = inputs(B, H) | {"bias": some_bias(*shape)}, some_mask(I, J)
    actual = with_gradients(partial(attend, mask=mask), **tensors)
    assert_same(actual, with_gradients(partial(torch_attention, mask=mask), **tensors))


@pytest.mark.parametrize("leading", [(), (B,), (B, H), (B, H, 17)], ids=str)
def test_any_number_of_leading_axes_is_taken(attend, leading):
    tensors, mask = inputs(*leading), some_mask(*leading, I, J)
    actual = with_gradients(partial(attend, mask=mask), **tensors)
    assert_same(actual, with_gradients(partial(torch_attention, mask=mask), **tensors))


@pytest.mark.parametrize(("d", "e"), [(11, 13), (13, 11), (11, 11), (1, 3), (3, 1)])
def test_values_may_have_more_or_fewer_features_than_keys(attend, d, e):
    tensors = inputs(B, H, d=d, e=e)
    actual = with_gradients(attend, **tensors)
    assert_same(actual, with_gradients(naive_attention, **tensors))


@pytest.mark.parametrize("shared", ["query", "key", "value"])
@pytest.mark.parametrize("leading", [(), (1, 1), (B, 1), (1, H), (H,)], ids=str)
def test_a_leading_axis_that_is_one_or_missing_is_shared(attend, shared, leading):
    tensors = inputs(B, H)
    tensors[shared] = inputs(*leading)[shared]
    mask = some_mask(B, H, I, J)
    actual = with_gradients(partial(attend, mask=mask), **tensors)
    assert_same(actual, with_gradients(partial(naive_attention, mask=mask), **tensors))


def test_further_leading_axes_fold_and_unfold_in_order(attend):
    tensors = {
        "query": inputs(B, 1, H)["query"],
        "key": inputs(1, 17, 1)["key"],
        "value": inputs(B, 17, 1)["value"],
    }
    mask = some_mask(1, 17, H, I, J)
    actual = with_gradients(partial(attend, mask=mask), **tensors)
    assert_same(actual, with_gradients(partial(torch_attention, mask=mask), **tensors))


def test_scores_are_scaled_dot_products(given):
    tensors = inputs(B, H)
    query, key = tensors["query"], tensors["key"]
    scale, bias = given.get("scale", D**-0.5), given.get("bias", torch.zeros(()))
    expected = (query[:, :, :, None] * key[:, :, None]).sum(-1) * scale + bias
    options = {name: given[name] for name in ("bias", "scale") if name in given}
    assert_same(attention_scores(query, key, **options), expected)


def test_a_scale_multiplies_the_scores_before_the_bias_is_added():
    query, key = torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    bias = torch.tensor([[10.0, 20.0]])
    expected = torch.tensor([[16.0, 28.0]])
    assert_same(attention_scores(query, key, bias=bias, scale=2.0), expected)


def test_weights_and_their_gradients_are_those_of_a_triple_loop(given):
    tensors = inputs(B, H)
    del tensors["value"]
    actual = with_gradients(partial(attention_weights, **given), **tensors)
    assert_same(actual, with_gradients(partial(naive_weights, **given), **tensors))


def test_weights_are_the_softmax_of_the_scores_over_the_keys():
    query, key, _ = inputs(B, H).values()
    scores = attention_scores(query, key)
    assert_same(attention_weights(query, key), scores.exp() / scores.exp().sum(3, keepdim=True))


def test_outputs_are_the_values_weighted_with_the_weights(attend, given):
    query, key, value = inputs(B, H).values()
    weights = attention_weights(query, key, **given)
    assert_same(attend(query, key, value, **given), weights @ value)


def test_weights_are_positive_and_sum_to_one_for_each_query(given):
    query, key, _ = inputs(B, H).values()
    weights = attention_weights(query, key, **given)
    assert (weights >= 0).all()
    assert_same(weights.sum(3), torch.ones(B, H, I))


def test_forbidden_keys_get_no_weight_and_allowed_ones_some():
    query, key, _ = inputs(B, H).values()
    mask = some_mask(B, H, I, J)
    assert torch.equal(attention_weights(query, key, mask) > 0, mask)


def test_keys_that_are_all_alike_give_the_mean_of_the_values(attend):
    query, _, value = inputs(B, H).values()
    key = torch.randn(B, H, 1, D, dtype=torch.float64).expand(B, H, J, D)
    assert_same(attend(query, key, value), value.mean(2, keepdim=True).expand(B, H, I, E))


def test_a_key_far_ahead_of_the_others_gives_its_value(attend):
    _, key, value = inputs(B, H).values()
    key = key / key.norm(dim=3, keepdim=True)
    query = 1e4 * key[:, :, 3:4]
    assert_same(attend(query, key, value), value[:, :, 3:4])


def test_each_query_attends_alone(attend):
    query, key, value = inputs(B, H).values()
    rows = [attend(query[:, :, [i]], key, value) for i in range(I)]
    assert_same(torch.cat(rows, 2), attend(query, key, value))


# How torch's kernel is called: in another way the numbers are the same, and slower.


class Calls(TorchFunctionMode):
    """Keep the query, the key and the value of every call of torch's function."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is F.scaled_dot_product_attention:
            self.seen.append(args[:3])
        return function(*args, **kwargs or {})


@pytest.mark.parametrize(("d", "e"), [(D, E), (E, D)])
@pytest.mark.parametrize("leading", [(), (B,), (B, H), (B, H, 17)], ids=str)
def test_the_kernel_gets_four_axes_and_values_as_wide_as_keys(leading, d, e):
    with Calls() as calls:
        fused_attention(**inputs(*leading, d=d, e=e))
    (seen,) = calls.seen
    assert [tensor.ndim for tensor in seen] == [4, 4, 4]
    assert [tensor.shape[-1] for tensor in seen] == [E, E, E]


def test_the_kernel_gets_four_axes_where_there_are_as_many_keys_as_heads():
    query, key, value = inputs(H, H, j=H).values()
    with Calls() as calls:
        fused_attention(query, key[0], value[0])
    (seen,) = calls.seen
    assert [tensor.ndim for tensor in seen] == [4, 4, 4]


@pytest.mark.parametrize("leading", [(), (B,), (B, H), (B, H, 17)], ids=str)
def test_the_kernel_gets_no_copy_of_what_fits_it_already(leading):
    tensors = inputs(*leading, d=D, e=D)
    with Calls() as calls:
        fused_attention(**tensors)
    (seen,) = calls.seen
    assert [t.data_ptr() for t in seen] == [t.data_ptr() for t in tensors.values()]


def test_the_kernel_is_asked_for_the_gradient_of_a_bias_too():
    with Calls() as calls:
        fused_attention(**inputs(B, H), bias=some_bias(I, J).requires_grad_())
    assert len(calls.seen) == 1
