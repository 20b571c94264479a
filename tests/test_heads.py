"""The modules against the formula, against each other and against torch's layer."""

import copy
import io
import os
import pickle
import re
import shutil
from functools import partial

import pytest
import torch
from torch import nn
from torch.export import Dim, export
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from mini_attention import (
    MultiHeadAttention,
    SingleHeadAttention,
    attention,
    blocked_attention,
    causal_mask,
    cost,
    fused_attention,
    padding_mask,
)
from tests.oracles import (
    B,
    H,
    I,
    J,
    assert_same,
    naive_attention,
    some_bias,
    some_mask,
    torch_layer,
    with_gradients,
)

M, KEY_SIZE, VALUE_SIZE, D_HEAD, D_VALUE = 12, 11, 13, 17, 19
TORCH_ITSELF = "ignore:.torch.jit:DeprecationWarning"  # the compiler, inside torch


def reader_attention(query, key, value, mask=None):
    """What a reader writes for an assignment: no bias, no scale, no dropout."""
    scores = query @ key.mT / query.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ value


def many_heads(**options) -> MultiHeadAttention:
    sizes = {"key_size": KEY_SIZE, "value_size": VALUE_SIZE}
    return MultiHeadAttention(M, H, **sizes | options).double()


def one_head(**options) -> SingleHeadAttention:
    sizes = {"key_size": KEY_SIZE, "value_size": VALUE_SIZE, "d_head": D_HEAD, "d_value": D_VALUE}
    return SingleHeadAttention(M, **sizes | options).double()


@pytest.fixture(params=[one_head, many_heads], ids=["one head", "many heads"])
def build(request):
    """Each module in turn, with sizes that differ."""
    return request.param


def sources(dtype=torch.float64) -> dict[str, torch.Tensor]:
    sizes = {"query": (I, M), "key": (J, KEY_SIZE), "value": (J, VALUE_SIZE)}
    return {name: torch.randn(B, *size, dtype=dtype) for name, size in sizes.items()}


def parameter_gradients(layer: nn.Module, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    names, parameters = zip(*layer.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


# What they compute.


def test_one_head_is_the_formula_on_projections(attend):
    layer, mask, tensors = one_head(attend=attend), some_mask(B, I, J), sources()

    def by_hand(query, key, value):
        q = query @ layer.q_proj.weight.mT + layer.q_proj.bias
        k = key @ layer.k_proj.weight.mT + layer.k_proj.bias
        v = value @ layer.v_proj.weight.mT + layer.v_proj.bias
        return naive_attention(q, k, v, mask)

    expected = with_gradients(by_hand, **tensors)
    assert expected["output"].shape == (B, I, D_VALUE)
    assert_same(with_gradients(partial(layer, mask=mask), **tensors), expected)


def test_one_head_is_torchs_layer_with_one_head(attend):
    theirs = torch_layer(M, 1)
    with torch.no_grad():
        theirs.out_proj.weight.copy_(torch.eye(M))
        theirs.out_proj.bias.zero_()
    ours = SingleHeadAttention(M, attend=attend).double()
    copied = MultiHeadAttention.from_torch(theirs).state_dict()
    ours.load_state_dict({name: copied[name] for name in ours.state_dict()})
    x = {"query": torch.randn(B, I, M, dtype=torch.float64)}
    expected = with_gradients(lambda query: theirs(query, query, query)[0], **x)
    assert_same(with_gradients(ours, **x), expected)


def single_head_of(layer: MultiHeadAttention, h: int) -> SingleHeadAttention:
    """Head `h` alone: its share of the rows of each projection."""
    size = M // H
    head = one_head(attend=layer.attend, d_head=size, d_value=size)
    share = slice(h * size, (h + 1) * size)
    state = layer.state_dict()
    head.load_state_dict({name: state[name][share] for name in head.state_dict()})
    return head


def test_many_heads_are_single_heads_side_by_side(attend):
    layer, mask, tensors = many_heads(attend=attend), some_mask(B, H, I, J), sources()
    heads = [single_head_of(layer, h) for h in range(H)]

    def side_by_side(query, key, value):
        outputs = [head(query, key, value, mask[:, h]) for h, head in enumerate(heads)]
        return layer.out_proj(torch.cat(outputs, -1))

    expected = with_gradients(side_by_side, **tensors)
    assert_same(with_gradients(partial(layer, mask=mask), **tensors), expected)


PAIRS = {"i j": (I, J), "b i j": (B, I, J), "1 i j": (1, I, J), "b h i j": (B, H, I, J)}


@pytest.mark.parametrize("axes", PAIRS)
def test_the_rank_of_a_mask_or_bias_says_what_it_is_for(attend, axes):
    shape, layer, tensors = PAIRS[axes], many_heads(attend=attend), sources()
    mask, bias = some_mask(*shape), some_bias(*shape)
    each = (B, H, I, J)
    if len(shape) == 3:
        full = {"mask": mask[:, None].expand(each), "bias": bias[:, None].expand(each)}
    else:
        full = {"mask": mask.expand(each), "bias": bias.expand(each)}
    expected = with_gradients(partial(layer, **full), **tensors)
    assert_same(with_gradients(partial(layer, mask=mask, bias=bias), **tensors), expected)


def test_a_mask_per_item_is_not_taken_for_one_per_head():
    layer, x = many_heads(key_size=M, value_size=M), torch.randn(H, I, M, dtype=torch.float64)
    mask = some_mask(H, I, I)  # as many items as heads
    for item in range(H):
        assert_same(layer(x, mask=mask)[[item]], layer(x[[item]], mask=mask[item]))


def test_the_gradient_of_a_bias_per_head_is_that_of_torch(attend):
    theirs = torch_layer(M, H, kdim=KEY_SIZE, vdim=VALUE_SIZE)
    ours = MultiHeadAttention.from_torch(theirs, attend=attend)
    tensors = sources() | {"bias": some_bias(B, H, I, J)}

    def reference(query, key, value, bias):
        return theirs(query, key, value, attn_mask=bias.flatten(0, 1), need_weights=False)[0]

    assert_same(with_gradients(ours, **tensors), with_gradients(reference, **tensors))


def test_without_a_key_a_module_attends_to_its_query(build):
    layer = build(key_size=M, value_size=M)
    x = torch.randn(B, I, M, dtype=torch.float64)
    assert_same(layer(x), layer(x, x, x))


def test_without_a_value_the_value_is_the_key(build):
    layer = build(value_size=KEY_SIZE)
    query, key, _ = sources().values()
    assert_same(layer(query, key), layer(query, key, key))


def test_sizes_that_are_not_given_follow_from_the_others():
    head = SingleHeadAttention(M, D_HEAD)
    assert [p.weight.shape for p in head.children()] == [(D_HEAD, M)] * 3
    assert [p.weight.shape for p in SingleHeadAttention(M).children()] == [(M, M)] * 3
    assert [p.weight.shape for p in MultiHeadAttention(M, H).children()] == [(M, M)] * 4


def test_projections_have_biases_unless_told_otherwise(build):
    for wanted in (True, False):
        projections = build(proj_bias=wanted).children()
        assert all((projection.bias is not None) == wanted for projection in projections)


def test_a_module_without_biases_is_torchs_without_biases(attend):
    layer = many_heads(proj_bias=False, attend=attend)
    theirs, tensors = layer.to_torch(), sources()
    assert_same(layer(**tensors), theirs(**tensors, need_weights=False)[0])


# Key heads that are shared.

SHARED = {"each has its own": 6, "two share one": 3, "three share one": 2, "one for all": 1}


@pytest.fixture(params=SHARED.values(), ids=SHARED)
def num_kv_heads(request):
    """How many heads of keys and values six query heads share."""
    return request.param


def with_shared_heads(num_kv_heads: int, **options) -> MultiHeadAttention:
    sizes = {"key_size": KEY_SIZE, "value_size": VALUE_SIZE, "num_kv_heads": num_kv_heads}
    return MultiHeadAttention(M, 6, **sizes | options).double()


def with_a_copy_for_each_head(shared: MultiHeadAttention) -> MultiHeadAttention:
    """The layer without sharing that has the rows of a shared head once for each of its sharers."""
    state, whose = dict(shared.state_dict()), []
    for h in range(6):  # neighbours share: 0 0 0 1 1 1, and not 0 1 0 1 0 1
        head = h // (6 // shared.num_kv_heads)
        whose += [2 * head, 2 * head + 1]
    for name in ("k_proj.weight", "k_proj.bias", "v_proj.weight", "v_proj.bias"):
        state[name] = state[name][whose]
    layer = with_shared_heads(6, attend=shared.attend)
    layer.load_state_dict(state)
    return layer


def test_a_shared_head_is_as_many_equal_heads(attend, num_kv_heads):
    shared, tensors = with_shared_heads(num_kv_heads, attend=attend), sources()
    whole = with_a_copy_for_each_head(shared)
    given = {"mask": some_mask(B, 6, I, J), "bias": some_bias(B, I, J)}
    expected = with_gradients(partial(whole, **given), **tensors)
    assert_same(with_gradients(partial(shared, **given), **tensors), expected)
    weights = [layer(**tensors, **given, return_weights=True)[1] for layer in (shared, whole)]
    assert_same(*weights)


def test_a_shared_head_learns_from_all_its_sharers(attend, num_kv_heads):
    shared, tensors = with_shared_heads(num_kv_heads, attend=attend), sources()
    whole = with_a_copy_for_each_head(shared)
    ours, theirs = (
        parameter_gradients(layer, layer(**tensors).square().sum()) for layer in (shared, whole)
    )
    for name in ("k_proj.weight", "v_proj.weight", "v_proj.bias"):
        split = theirs[name].unflatten(0, (num_kv_heads, 6 // num_kv_heads, 2))
        theirs[name] = split.sum(1).flatten(0, 1)
    del ours["k_proj.bias"], theirs["k_proj.bias"]  # 0: it adds the same to a whole row of scores
    assert_same(ours, theirs, largest_score=10)


def test_heads_are_shared_as_torchs_kernel_shares_them(num_kv_heads):
    layer, (query, key, value) = with_shared_heads(num_kv_heads), sources().values()
    projected = (layer.q_proj(query), 6), (layer.k_proj(key), num_kv_heads)
    q, k, v = (
        x.unflatten(-1, (heads, 2)).transpose(1, 2)
        for x, heads in (*projected, (layer.v_proj(value), num_kv_heads))
    )
    heads = nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    assert_same(layer(query, key, value), layer.out_proj(heads.transpose(1, 2).flatten(2)))


def test_a_plugged_in_function_gets_keys_for_every_head(num_kv_heads):
    shapes = []

    def recorded(query, key, value, mask=None):
        shapes.append((query.shape[:2], key.shape[:2], value.shape[:2]))
        return reader_attention(query, key, value, mask)

    with_shared_heads(num_kv_heads, attend=recorded)(**sources())
    assert shapes == [((B, 6),) * 3]


def test_keys_of_one_head_for_all_are_not_copied():
    seen = []

    def recorded(query, key, value, mask=None):
        seen.extend(x.untyped_storage().nbytes() for x in (key, value))
        return reader_attention(query, key, value, mask)

    with_shared_heads(1, attend=recorded)(**sources())
    assert seen == [B * J * 2 * 8] * 2


def test_shared_heads_have_fewer_parameters(num_kv_heads):
    layer = with_shared_heads(num_kv_heads)
    shapes = [tuple(p.weight.shape) for p in layer.children()]
    rows = num_kv_heads * 2
    assert shapes == [(M, M), (rows, KEY_SIZE), (rows, VALUE_SIZE), (M, M)]
    loaded = with_shared_heads(num_kv_heads)
    loaded.load_state_dict(layer.state_dict())
    tensors = sources()
    for other in (loaded, pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
        assert_same(other(**tensors), layer(**tensors))


def test_every_head_has_keys_of_its_own_unless_told_otherwise():
    assert with_shared_heads(None).num_kv_heads == 6
    assert "num_heads=6, num_kv_heads=2, dropout" in repr(with_shared_heads(2))
    assert "num_heads=6, dropout" in repr(with_shared_heads(None))


# Weights.


@pytest.mark.parametrize("training", [False, True])
def test_weights_come_with_the_same_output(build, attend, training):
    layer, tensors = build(attend=attend).train(training), sources()
    mask, bias = some_mask(B, I, J), some_bias(I, J)
    output, weights = layer(**tensors, mask=mask, bias=bias, return_weights=True)
    assert_same(output, layer(**tensors, mask=mask, bias=bias))
    assert_same(weights.sum(-1), torch.ones(weights.shape[:-1]))


def test_the_output_of_one_head_is_its_weights_times_its_values(attend):
    layer, tensors = one_head(attend=attend), sources()
    given = {"mask": some_mask(B, I, J), "bias": some_bias(B, 1, J)}
    output, weights = layer(**tensors, **given, return_weights=True)
    assert weights.shape == (B, I, J)
    assert_same(output, weights @ layer.v_proj(tensors["value"]))


def test_the_output_of_many_heads_is_their_weights_times_their_values(attend):
    layer, tensors = many_heads(attend=attend), sources()
    given = {"mask": some_mask(B, I, J), "bias": some_bias(B, H, 1, J)}
    output, weights = layer(**tensors, **given, return_weights=True)
    assert weights.shape == (B, H, I, J)
    values = layer.v_proj(tensors["value"]).chunk(H, dim=-1)
    heads = [weights[:, h] @ values[h] for h in range(H)]
    assert_same(output, layer.out_proj(torch.cat(heads, -1)))


# Dropout.


def test_dropout_acts_in_training_only(build, dropping):
    layer, plain = build(dropout=0.5, attend=dropping), build(attend=dropping)
    plain.load_state_dict(layer.state_dict())
    tensors = sources()
    expected = plain(**tensors)
    assert_same(layer.eval()(**tensors), expected)
    assert (layer.train()(**tensors) - expected).abs().max() > 0.01


def test_returned_weights_are_those_before_dropout(build, dropping):
    layer, tensors = build(dropout=0.5, attend=dropping), sources()
    _, trained = layer.train()(**tensors, return_weights=True)
    _, evaluated = layer.eval()(**tensors, return_weights=True)
    assert_same(trained, evaluated)


def test_the_mean_over_many_dropouts_is_the_output_in_evaluation(build, dropping):
    layer = build(dropout=0.3, attend=dropping)
    tensors = {name: tensor[:1] for name, tensor in sources().items()}
    many = {name: tensor.expand(10_000, -1, -1) for name, tensor in tensors.items()}
    with torch.no_grad():
        outputs = layer.train()(**many)
        error = outputs.mean(0) - layer.eval()(**tensors)[0]
    assert (error.abs() < 5 * outputs.std(0) / 100).all()


def test_torchs_layer_drops_the_same_weights(dropping):
    theirs = torch_layer(M, H, dropout=0.5).train()
    ours = MultiHeadAttention.from_torch(theirs, attend=dropping)
    x = torch.randn(B, I, M, dtype=torch.float64)
    torch.manual_seed(1)
    expected, _ = theirs(x, x, x, need_weights=False)
    torch.manual_seed(1)
    assert_same(ours(x), expected)


# Any function can be plugged in.


def test_a_function_of_a_reader_takes_the_place_of_the_packages(build):
    mine, theirs = build(attend=reader_attention), build()
    theirs.load_state_dict(mine.state_dict())
    tensors, mask = sources(), some_mask(I, J)
    assert_same(mine(**tensors), theirs(**tensors))
    output, weights = mine(**tensors, mask=mask, return_weights=True)
    expected, expected_weights = theirs(**tensors, mask=mask, return_weights=True)
    assert_same(output, expected)
    assert_same(weights, expected_weights)


def test_a_function_is_called_with_what_was_given_and_no_more(build):
    calls = []

    def recorded(query, key, value, mask=None, **options):
        calls.append((mask, options))
        return reader_attention(query, key, value)

    layer = build(attend=recorded)
    layer(**sources())
    layer(**sources(), bias=some_bias(I, J))
    assert calls[0] == (None, {})
    assert calls[1][1].keys() == {"bias"}


def test_dropout_is_passed_only_in_training_and_only_when_positive(build):
    rates = []

    def recorded(query, key, value, mask=None, *, dropout_p=0.0):
        rates.append(dropout_p)
        return reader_attention(query, key, value, mask)

    for rate, training in [(0.3, True), (0.3, False), (0.0, True)]:
        build(attend=recorded, dropout=rate).train(training)(**sources())
    assert rates == [0.3, 0.0, 0.0]


def test_a_function_that_cannot_drop_weights_is_an_error_in_training_only(build):
    layer = build(attend=reader_attention, dropout=0.3)
    layer.eval()(**sources())
    message = r"reader_attention.* has no keyword dropout_p, which dropout = 0.3 needs in training"
    with pytest.raises(TypeError, match=message):
        layer.train()(**sources())


def test_masks_are_checked_before_a_readers_function_sees_them(build):
    layer = build(attend=reader_attention)
    with pytest.raises(TypeError, match="mask must be boolean"):
        layer(**sources(), mask=torch.ones(I, J))
    with pytest.raises(ValueError, match=r"must match scores of shape"):
        layer(**sources(), mask=some_mask(I, J + 1))


def test_lengths_are_checked_before_a_readers_function_sees_them(build):
    query, key, value = sources().values()
    with pytest.raises(ValueError, match="every key needs a value; got 7 keys and 6 values"):
        build(attend=reader_attention)(query, key, value[:, :6])


# The contract.


def assert_query_3_gets_the_bias_of_the_output(layer: MultiHeadAttention, by: str):
    tensors, mask = sources(), some_mask(B, I, J)
    mask[:, 3] = False
    bias = torch.zeros(B, I, J, dtype=torch.float64).masked_fill(~mask, -torch.inf)
    given = {"mask": mask} if by == "mask" else {"bias": bias}
    output, weights = layer(**tensors, **given, return_weights=True)
    assert_same(output[:, 3], layer.out_proj.bias.detach().expand(B, M))
    assert not weights[:, :, 3].any()
    gradients = parameter_gradients(layer, output.square().sum() + weights.square().sum())
    assert all(gradient.isfinite().all() for gradient in gradients.values())


@pytest.mark.parametrize("by", ["mask", "bias"])
def test_a_query_that_may_attend_to_nothing_gets_the_bias_of_the_output(attend, by):
    assert_query_3_gets_the_bias_of_the_output(many_heads(attend=attend), by)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("by", ["mask", "bias"])
def test_dropout_leaves_it_that_bias(dropping, by, training):
    layer = many_heads(attend=dropping, dropout=0.4).train(training)
    assert_query_3_gets_the_bias_of_the_output(layer, by)


def test_one_head_gives_zeros_to_a_query_that_may_attend_to_nothing(attend):
    layer, mask = one_head(attend=attend), some_mask(I, J)
    mask[3] = False
    run = with_gradients(partial(layer, mask=mask), **sources())
    assert not run["output"][:, 3].any()
    assert not run["query"][:, 3].any()
    assert all(tensor.isfinite().all() for tensor in run.values())


def test_without_any_keys_a_module_returns_the_bias_of_its_output(attend):
    layer, (query, key, value) = many_heads(attend=attend), sources().values()
    output, weights = layer(query, key[:, :0], value[:, :0], return_weights=True)
    assert_same(output, layer.out_proj.bias.detach().expand(B, I, M))
    assert weights.shape == (B, H, I, 0)


def test_a_nan_in_a_padded_input_reaches_gradients_unless_it_is_filled(build, attend):
    layer, tensors = build(attend=attend), sources()
    mask, padded = padding_mask([J, 4], J), torch.arange(J) >= torch.tensor([[J], [4]])
    expected = layer(**tensors, mask=mask)
    tensors["key"][padded] = tensors["value"][padded] = torch.nan
    output = layer(**tensors, mask=mask)
    assert_same(output, expected)
    assert parameter_gradients(layer, output.sum())["v_proj.weight"].isnan().any()

    filled = {n: t.masked_fill(padded[..., None], 0) for n, t in tensors.items() if n != "query"}
    output = layer(tensors["query"], **filled, mask=mask)
    gradients = parameter_gradients(layer, output.sum())
    assert_same(output, expected)
    assert all(gradient.isfinite().all() for gradient in gradients.values())


def test_the_future_does_not_leak_into_the_past(build, attend):
    layer = build(key_size=M, value_size=M, attend=attend)
    x = torch.randn(B, I, M, dtype=torch.float64, requires_grad=True)
    layer(x, mask=causal_mask(I))[:, 2].sum().backward()
    reached = x.grad.abs().sum((0, 2)) > 0
    assert reached.tolist() == [True, True, True, False, False]


def test_every_position_reaches_every_other_without_a_mask(build, attend):
    layer = build(key_size=M, value_size=M, attend=attend)
    x = torch.randn(1, I, M, dtype=torch.float64)

    def summed(x):
        return layer(x).sum(-1)[0]

    reached = torch.autograd.functional.jacobian(summed, x)[:, 0].abs().sum(-1)
    assert (reached > 1e-6).all()


def test_permuting_tokens_permutes_outputs(build, attend):
    layer, order = build(key_size=M, value_size=M, attend=attend), torch.randperm(I)
    x = torch.randn(B, I, M, dtype=torch.float64)
    assert_same(layer(x[:, order]), layer(x)[:, order])


def test_an_empty_batch_and_no_queries_give_empty_outputs(build, attend):
    layer, tensors = build(attend=attend), sources()
    empty = layer(**{name: tensor[:0] for name, tensor in tensors.items()}, mask=some_mask(1, I, J))
    assert empty.shape[:2] == (0, I)
    tensors["query"] = tensors["query"][:, :0]
    output, weights = layer(**tensors, return_weights=True)
    assert output.shape[:2] == (B, 0)
    assert weights.shape[-2:] == (0, J)


def test_no_input_is_written_to(build, attend):
    given = sources() | {"mask": some_mask(B, I, J), "bias": some_bias(I, J)}
    before = copy.deepcopy(given)
    build(attend=attend)(**given, return_weights=True)
    assert all(torch.equal(given[name], before[name]) for name in given)


# Tooling.


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("floats", [torch.float32, torch.bfloat16], ids=str)
def test_autocast_computes_in_half_precision(build, attend, dtype, floats):
    layer, tensors = build(attend=attend), sources()
    bias = some_bias(I, J)
    exact = layer(**tensors, bias=bias)
    narrow = {name: tensor.to(floats) for name, tensor in tensors.items()}
    with torch.autocast("cpu", dtype=dtype):
        output, weights = layer.float()(**narrow, bias=bias.float(), return_weights=True)
    assert output.dtype == weights.dtype == dtype
    torch.testing.assert_close(output.double(), exact, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_errs_at_most_twice_as_much_as_torchs_layer(attend, dtype):
    for seed in range(5):
        torch.manual_seed(seed)
        theirs = torch_layer(M, H)
        ours = MultiHeadAttention.from_torch(theirs, attend=attend)
        x = torch.randn(B, I, M, dtype=torch.float64)
        exact, _ = theirs(x, x, x, need_weights=False)
        x, ours, theirs = x.float(), ours.float(), theirs.float()
        with torch.autocast("cpu", dtype=dtype):
            error = (ours(x) - exact).abs().max()
            kernels = (theirs(x, x, x, need_weights=False)[0] - exact).abs().max()
        assert error <= 2 * kernels


def everything(call, layer: nn.Module, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """The output and the gradients of the input and of all parameters, as float64."""
    x = x.clone().requires_grad_()
    output = call(x)
    upstream = torch.arange(output.numel()).reshape(output.shape) % 7 - 3  # exact in any dtype
    parameters = sorted(layer.parameters(), key=lambda p: -p.ndim)  # torch joins q, k and v
    of_x, *rest = torch.autograd.grad(output, [x, *parameters], upstream.to(output.dtype))
    flat = torch.cat([gradient.flatten().double() for gradient in rest])
    return {"output": output.detach().double(), "x": of_x.double(), "parameters": flat}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("autocast", [False, True], ids=["half", "autocast"])
@pytest.mark.parametrize("length", [5, 31])
def test_typical_errors_are_at_most_twice_those_of_torchs_layer(attend, length, autocast, dtype):
    mask, errors = some_mask(length, length), {"ours": [], "torch": []}
    start = torch.float32 if autocast else dtype
    for _ in range(3):
        theirs = torch_layer(M, H).to(dtype)  # autocast too starts from numbers it won't round
        theirs, x = theirs.to(start), torch.randn(B, length, M, dtype=dtype).to(start)
        ours = MultiHeadAttention.from_torch(theirs, attend=attend)
        wide = copy.deepcopy(theirs).double()  # torch's: ours would share its mistakes
        exact = everything(lambda x, f=wide: f(x, x, x, attn_mask=~mask)[0], wide, x.double())
        with torch.autocast("cpu", dtype=dtype, enabled=autocast):
            runs = {
                "ours": everything(partial(ours, mask=mask), ours, x),
                "torch": everything(lambda x, f=theirs: f(x, x, x, attn_mask=~mask)[0], theirs, x),
            }
        for name, run in runs.items():
            errors[name].append([(run[n] - exact[n]).square().mean() for n in exact])
    ours, theirs = (torch.tensor(errors[name]).mean(0).sqrt() for name in ("ours", "torch"))
    assert (ours <= 2 * theirs).all()


def test_state_dicts_pickles_and_copies_are_the_same_layer(build, attend):
    layer, tensors = build(attend=attend), sources()
    expected = layer(**tensors)
    loaded = build(attend=attend)
    loaded.load_state_dict(layer.state_dict())
    for other in (loaded, pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
        assert_same(other(**tensors), expected)
        assert other.attend is attend


def test_a_copy_shares_no_parameter_with_the_original(build):
    layer = build()
    for other in (pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
        before = {name: value.clone() for name, value in layer.state_dict().items()}
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.add_(1)
        assert_same(layer.state_dict(), before)


def test_a_saved_state_is_loaded_as_weights_only(build, attend):
    layer, loaded, tensors = build(attend=attend), build(attend=attend), sources()
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    assert_same(loaded(**tensors), layer(**tensors))


def without(state: dict, name: str) -> dict:
    return {key: value for key, value in state.items() if key != name}


WRONG_STATES = {
    'Missing key(s) in state_dict: "k_proj.bias"': (
        many_heads, lambda: without(many_heads().state_dict(), "k_proj.bias")
    ),
    'Unexpected key(s) in state_dict: "out_proj.weight", "out_proj.bias"': (
        one_head, lambda: many_heads().state_dict()
    ),
    "size mismatch for v_proj.weight: copying a param with shape torch.Size([12, 17])": (
        many_heads, lambda: many_heads(value_size=17).state_dict()
    ),
    'Unexpected key(s) in state_dict: "in_proj_weight", "in_proj_bias"': (
        many_heads, lambda: torch_layer(M, H).state_dict()
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", WRONG_STATES)
def test_a_state_that_does_not_fit_is_an_error_that_names_the_parameter(message):
    build, state = WRONG_STATES[message]
    with pytest.raises(RuntimeError, match=re.escape(message)):
        build().load_state_dict(state())


def test_the_names_of_the_parameters_are_those_of_the_projections(build):
    projections = ["q_proj", "k_proj", "v_proj", "out_proj"][: 4 if build is many_heads else 3]
    names = [f"{name}.{kind}" for name in projections for kind in ("weight", "bias")]
    assert list(build().state_dict()) == names


def test_shapes_alone_are_enough(build, attend):
    layer = build(attend=attend).to("meta")
    output = layer(**{name: tensor.to("meta") for name, tensor in sources().items()})
    assert output.is_meta
    assert output.shape[:2] == (B, I)


COUNTED = {
    "one head": (SingleHeadAttention, cost.single_head_cost, (4096, 128)),
    "many heads": (MultiHeadAttention, cost.multi_head_cost, (4096, 32)),
}


@pytest.mark.parametrize("kind", COUNTED)
def test_flops_are_counted_without_memory_or_time(kind, dropping):
    module, cost_of, sizes = COUNTED[kind]
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        module(*sizes, attend=dropping)(torch.empty(B, 100_003, 4096))
    assert counter.get_total_flops() == cost_of(*sizes, 100_003, batch=B).total.flops


@pytest.mark.slow
@pytest.mark.parametrize("training", [False, True])
def test_a_module_compiles_into_one_graph(training):
    layer, tensors = many_heads(dropout=0.3).train(training), sources()
    mask = some_mask(B, I, J)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.manual_seed(1)
    actual = with_gradients(partial(compiled, mask=mask), **tensors)
    torch.manual_seed(1)
    assert_same(actual, with_gradients(partial(layer, mask=mask), **tensors))


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.filterwarnings(TORCH_ITSELF)
def test_compiled_code_computes_the_same():
    layer, tensors, mask = many_heads().eval(), sources(), some_mask(B, I, J)
    # Where a processor plays one without vectors, inductor writes vector code all the same.
    vectors = os.environ.get("ATEN_CPU_CAPABILITY") != "default"
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    backend = "inductor" if compiler and vectors else "aot_eager"
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    with torch.no_grad():
        assert_same(compiled(**tensors, mask=mask), layer(**tensors, mask=mask))


@pytest.mark.slow
@pytest.mark.parametrize("masked", [False, True])
def test_an_exported_module_takes_other_lengths(dropping, masked):
    layer, tensors = many_heads(attend=dropping).eval(), sources()
    b, i, j = Dim("b"), Dim("i"), Dim("j")
    shapes = {"query": {0: b, 1: i}, "key": {0: b, 1: j}, "value": {0: b, 1: j}}
    others = {n: torch.randn(3, 2 * x.shape[1], x.shape[2]).double() for n, x in tensors.items()}
    if masked:
        tensors["mask"], others["mask"] = some_mask(I, J), some_mask(2 * I, 2 * J)
        shapes["mask"] = {0: i, 1: j}
    exported = export(layer, (), tensors, dynamic_shapes=shapes).module()
    assert_same(exported(**others), layer(**others))


@pytest.mark.slow
def test_an_exported_layer_in_blocks_takes_the_lengths_that_it_was_exported_with():
    layer, tensors, others = many_heads(attend=blocked_attention), sources(), sources()
    with torch.no_grad():
        exported = export(layer, (), tensors).module()
        assert_same(exported(**others), layer(**others))


@pytest.mark.parametrize("what", ["other lengths", "a mask", "a bias"])
def test_a_layer_in_blocks_that_cannot_be_exported_is_an_error(what):
    layer, tensors, shapes = many_heads(attend=blocked_attention), sources(), None
    if what == "a mask":
        tensors["mask"] = some_mask(I, J)
    elif what == "a bias":
        tensors["bias"] = some_bias(I, J)
    else:
        shapes = {"query": {1: Dim("i")}, "key": {}, "value": {}}
    refused = r"specialized it to be a constant|data-dependent"
    with torch.no_grad(), pytest.raises(Exception, match=refused):
        export(layer, (), tensors, dynamic_shapes=shapes)


def test_a_module_with_the_formula_can_be_differentiated_twice():
    layer, tensors = many_heads(attend=attention), sources()
    names, values = zip(*layer.named_parameters(), strict=True)

    def call(*values):
        parameters = dict(zip(names, values, strict=True))
        return torch.func.functional_call(layer, parameters, (), tensors)

    assert torch.autograd.gradgradcheck(call, values, fast_mode=True)


KERNEL_CASES = {
    "nothing": dict,
    "a mask": lambda: {"mask": some_mask(B, I, J)},
    "a bias": lambda: {"bias": some_bias(B, I, J)},
    "half": lambda: {"dtype": torch.bfloat16},
    "autocast": lambda: {"autocast": True},
}


@pytest.mark.parametrize("by", ["query", "key", "value"])
@pytest.mark.parametrize("case", KERNEL_CASES)
def test_a_gradient_penalty_through_the_kernel_is_an_error(build, case, by):
    given = KERNEL_CASES[case]()
    autocast = given.pop("autocast", False)
    dtype = given.pop("dtype", torch.float32 if autocast else torch.float64)
    layer, tensors = build(attend=fused_attention).to(dtype), sources(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        output = layer(**tensors | {by: tensors[by].requires_grad_()}, **given)
        (gradient,) = torch.autograd.grad(output.square().sum(), tensors[by], create_graph=True)
        with pytest.raises(RuntimeError, match=r"flash_attention.*_backward is not implemented"):
            gradient.square().sum().backward()


@pytest.mark.parametrize("by", ["query", "key", "value"])
def test_a_gradient_penalty_in_training_with_dropout_is_that_of_the_formula(build, by):
    layer, tensors = build(dropout=0.3), sources()
    penalties = {}
    for layer.attend in (attention, fused_attention):
        torch.manual_seed(1)
        loss = layer(**tensors | {by: tensors[by].requires_grad_()}).square().sum()
        (gradient,) = torch.autograd.grad(loss, tensors[by], create_graph=True)
        penalties[layer.attend] = parameter_gradients(layer.q_proj, gradient.square().sum())
    assert penalties[attention]["weight"].any()
    assert_same(penalties[fused_attention], penalties[attention], largest_score=10)


def assert_recomputing_changes_nothing(layer: nn.Module):
    tensors, mask = sources(), None

    def recomputed(query, key, value):
        return checkpoint(layer, query, key, value, mask, use_reentrant=False)

    runs = {}
    for call in (layer, recomputed):
        torch.manual_seed(1)
        output = call(**tensors | {"query": tensors["query"].requires_grad_()})
        loss = output.square().sum()
        (of_query,) = torch.autograd.grad(loss, tensors["query"], retain_graph=True)
        runs[call] = parameter_gradients(layer, loss) | {"output": output, "query": of_query}
    assert_same(runs[recomputed], runs[layer])


def test_recomputing_in_the_backward_pass_changes_nothing(build, attend):
    assert_recomputing_changes_nothing(build(attend=attend))


@pytest.mark.parametrize("training", [False, True])
def test_recomputing_in_the_backward_pass_drops_the_same_weights(build, dropping, training):
    assert_recomputing_changes_nothing(build(attend=dropping, dropout=0.4).train(training))


def test_a_layer_shows_its_heads_and_its_dropout():
    assert "num_heads=3, dropout=0.1" in repr(MultiHeadAttention(M, H, dropout=0.1))


# Errors.

WRONG_SIZES = {
    "d_model (10) must be divisible by num_heads (3)": lambda: MultiHeadAttention(10, 3),
    "num_heads must be at least 1; got 0": lambda: MultiHeadAttention(M, 0),
    "num_kv_heads must be at least 1; got 0": lambda: MultiHeadAttention(M, H, num_kv_heads=0),
    "num_heads (6) must be divisible by num_kv_heads (4)": lambda: MultiHeadAttention(
        M, 6, num_kv_heads=4
    ),
    "num_heads (3) must be divisible by num_kv_heads (6)": lambda: MultiHeadAttention(
        M, 3, num_kv_heads=6
    ),
    "d_model must be at least 1; got 0": lambda: MultiHeadAttention(0, H),
    "d_model must be at least 1; got -1": lambda: SingleHeadAttention(-1),
    "key_size must be at least 1; got -1": lambda: MultiHeadAttention(M, H, key_size=-1),
    "key_size must be at least 1; got 0": lambda: SingleHeadAttention(M, key_size=0),
    "value_size must be at least 1; got 0": lambda: SingleHeadAttention(M, value_size=0),
    "value_size must be at least 1; got -1": lambda: MultiHeadAttention(M, H, value_size=-1),
    "d_head must be at least 1; got 0": lambda: SingleHeadAttention(M, 0),
    "d_value must be at least 1; got -2": lambda: SingleHeadAttention(M, d_value=-2),
    "dropout must be at least 0 and below 1; got 1.0": lambda: MultiHeadAttention(
        M, H, dropout=1.0
    ),
    "dropout must be at least 0 and below 1; got -0.1": lambda: SingleHeadAttention(
        M, dropout=-0.1
    ),
}


@pytest.mark.parametrize("message", WRONG_SIZES)
def test_sizes_that_do_not_fit_are_errors_with_their_numbers(message):
    with pytest.raises(ValueError, match=re.escape(message)):
        WRONG_SIZES[message]()


def double(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.float64)


WRONG_INPUTS = {
    "a value needs a key: give both, or the key alone": {"key": None},
    "query must have the axes batch, position and 12 features; got shape (2, 5, 10)": {
        "query": double(B, I, 10)
    },
    "query must have the axes batch, position and 12 features; got shape (5, 12)": {
        "query": double(I, M)
    },
    "key must have the axes batch, position and 11 features; got shape (2, 7, 12)": {
        "key": double(B, J, M)
    },
    "value must have the axes batch, position and 13 features; got shape (2, 7, 11)": {
        "value": double(B, J, KEY_SIZE)
    },
    "key has 3 items and query 2": {"key": double(3, J, KEY_SIZE)},
    "value has 1 items and query 2": {"value": double(1, J, VALUE_SIZE)},
    "every key needs a value; got 7 keys and 6 values": {"value": double(B, 6, VALUE_SIZE)},
    "key is on meta, the parameters are on cpu": {"key": double(B, J, KEY_SIZE).to("meta")},
    "mask must be on the device of query, cpu; got meta": {
        "mask": torch.ones(I, J, dtype=torch.bool, device="meta")
    },
}
WRONG_DTYPES = {
    "query must be a float tensor; got torch.int64": {"query": double(B, I, M).long()},
    "value is torch.float32, the parameters are torch.float64": {
        "value": double(B, J, VALUE_SIZE).float()
    },
    "mask must be boolean, True where a query may attend to a key; got torch.uint8": {
        "mask": torch.ones(I, J, dtype=torch.uint8)
    },
    "bias is added to the scores and must be a float; pass a boolean as mask=": {
        "bias": torch.ones(I, J, dtype=torch.bool)
    },
    "bias must have the dtype of query, torch.float64; got torch.float32": {
        "bias": torch.zeros(I, J)
    },
}


@pytest.mark.parametrize("message", WRONG_INPUTS)
def test_inputs_that_do_not_fit_are_errors_with_their_numbers(build, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        build()(**sources() | WRONG_INPUTS[message])


@pytest.mark.parametrize("message", WRONG_DTYPES)
def test_wrong_dtypes_are_errors_that_name_them(build, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        build()(**sources() | WRONG_DTYPES[message])


def test_float64_under_autocast_is_an_error_unless_the_parameters_are_float64(build):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert build()(**sources()).dtype == torch.float64
        message = "query is torch.float64, the parameters are torch.float32"
        with pytest.raises(TypeError, match=message):
            build().float()(**sources())


def test_a_mask_with_a_head_axis_is_none_for_one_head():
    with pytest.raises(ValueError, match=r"mask of shape \(2, 3, 5, 7\) does not say"):
        one_head()(**sources(), mask=some_mask(B, H, I, J))
