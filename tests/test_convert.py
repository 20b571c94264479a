"""The converters, judged by what torch's own layer does with its conventions."""

import re

import pytest
import torch
from torch import nn

from mini_attention import MultiHeadAttention, mask_from_torch, mask_to_torch, padding_mask
from tests.oracles import B, H, I, J, assert_same, some_bias, some_mask, torch_layer, with_gradients

M, KEY_SIZE, VALUE_SIZE = 12, 11, 13
INF = torch.inf


def sources(layer: nn.MultiheadAttention) -> dict[str, torch.Tensor]:
    """A query, a key and a value of the sizes that `layer` takes."""
    sizes = {"query": (I, layer.embed_dim), "key": (J, layer.kdim), "value": (J, layer.vdim)}
    return {name: torch.randn(B, *size, dtype=torch.float64) for name, size in sizes.items()}


@pytest.fixture
def pair():
    """torch's layer for cross-attention with unequal sizes, and ours with its parameters."""
    theirs = torch_layer(M, H, kdim=KEY_SIZE, vdim=VALUE_SIZE)
    return theirs, MultiHeadAttention.from_torch(theirs)


HIDDEN = {
    "for all": lambda: ~some_mask(I, J),
    "for each head and item": lambda: ~some_mask(B * H, I, J),
    "added, for all": lambda: some_bias(I, J),
    "added, for each head and item": lambda: some_bias(B * H, I, J),
    "added, with -inf": lambda: some_bias(I, J).masked_fill(~some_mask(I, J), -INF),
}
PADDING = {
    "none": lambda: None,
    "boolean": lambda: torch.arange(J) >= torch.tensor([[J], [4]]),
    "added": lambda: torch.zeros(B, J, dtype=torch.float64).index_fill(1, torch.tensor([5]), -INF),
}


@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask:UserWarning")
def test_masks_from_torch_mean_the_same_here(pair, hidden, padding):
    theirs, ours = pair
    given = {"attn_mask": HIDDEN[hidden](), "key_padding_mask": PADDING[padding]()}
    mask, bias = mask_from_torch(**given, num_heads=H)
    tensors = sources(theirs)
    expected = with_gradients(lambda **x: theirs(**x, **given, need_weights=False)[0], **tensors)
    assert_same(with_gradients(lambda **x: ours(**x, mask=mask, bias=bias), **tensors), expected)


def test_masks_for_one_item_without_a_batch_are_stacked_heads():
    stacked = ~some_mask(H, I, J)
    mask, bias = mask_from_torch(stacked, num_heads=H)
    assert mask.shape == (1, H, I, J)
    assert bias is None


@pytest.mark.parametrize("padding", ["boolean", "added"])
def test_padding_alone_is_converted_too(pair, padding):
    theirs, ours = pair
    hidden = PADDING[padding]()
    mask, bias = mask_from_torch(key_padding_mask=hidden, num_heads=H)
    tensors = sources(theirs)
    expected, _ = theirs(**tensors, key_padding_mask=hidden, need_weights=False)
    assert_same(ours(**tensors, mask=mask, bias=bias), expected)


def test_nothing_from_torch_is_nothing_here():
    assert mask_from_torch(num_heads=H) == (None, None)


@pytest.mark.parametrize("shape", [(I, J), (B, I, J), (B, 1, I, J), (1, H, I, J), (B, H, I, J)])
def test_masks_to_torch_mean_the_same_there(pair, shape):
    theirs, ours = pair
    mask = some_mask(*shape)
    attn_mask = mask_to_torch(mask.expand(B, *shape[1:]) if len(shape) > 2 else mask, num_heads=H)
    tensors = sources(theirs)
    expected = with_gradients(
        lambda **x: theirs(**x, attn_mask=attn_mask, need_weights=False)[0], **tensors
    )
    assert_same(with_gradients(lambda **x: ours(**x, mask=mask), **tensors), expected)


def test_heads_of_an_item_lie_next_to_each_other_in_torch():
    mask = some_mask(B, H, I, J)
    attn_mask = mask_to_torch(mask, num_heads=H)
    assert attn_mask.shape == (B * H, I, J)
    assert torch.equal(attn_mask[1 * H + 2], ~mask[1, 2])


@pytest.mark.parametrize("shape", [(I, J), (B, H, I, J)])
def test_there_and_back_is_the_same_mask(shape):
    mask = some_mask(*shape)
    back, bias = mask_from_torch(mask_to_torch(mask, num_heads=H), num_heads=H)
    assert torch.equal(back, mask)
    assert bias is None


def test_a_padding_mask_hides_the_same_keys_as_key_padding_mask(pair):
    theirs, ours = pair
    mask, tensors = padding_mask([J, 4], J), sources(theirs)
    expected, _ = theirs(**tensors, key_padding_mask=~mask[:, 0], need_weights=False)
    assert_same(ours(**tensors, mask=mask), expected)


def test_converting_writes_to_no_argument():
    hidden, padding = some_bias(I, J), some_bias(B, J)
    before = hidden.clone(), padding.clone()
    mask_from_torch(hidden, padding, num_heads=H)
    assert torch.equal(hidden, before[0])
    assert torch.equal(padding, before[1])


VALUE_ERRORS = {
    "attn_mask must have the axes i j or (b h) i j with h = 3; got shape (4, 5, 7)": lambda: (
        mask_from_torch(some_mask(4, I, J), num_heads=H)
    ),
    "attn_mask must have the axes i j or (b h) i j with h = 3; got shape (2, 3, 5, 7)": lambda: (
        mask_from_torch(some_mask(B, H, I, J), num_heads=H)
    ),
    "key_padding_mask must have the axes b j; got shape (7,)": lambda: mask_from_torch(
        key_padding_mask=some_mask(J), num_heads=H
    ),
    "mask must be i j, b i j or b h i j with h = 3 or 1; got shape (2, 4, 5, 7)": lambda: (
        mask_to_torch(some_mask(B, 4, I, J), num_heads=H)
    ),
    "mask must be i j, b i j or b h i j with h = 3 or 1; got shape (7,)": lambda: mask_to_torch(
        some_mask(J), num_heads=H
    ),
}
INTEGERS = torch.ones(I, J, dtype=torch.int64)
TYPE_ERRORS = {
    "attn_mask must be boolean or a float; got torch.int64": lambda: mask_from_torch(
        INTEGERS, num_heads=H
    ),
    "key_padding_mask must be boolean or a float; got torch.int64": lambda: mask_from_torch(
        key_padding_mask=INTEGERS, num_heads=H
    ),
    "mask must be boolean; got torch.int64": lambda: mask_to_torch(INTEGERS, num_heads=H),
}


@pytest.mark.parametrize("message", VALUE_ERRORS)
def test_masks_of_other_ranks_are_errors_that_show_the_shape(message):
    with pytest.raises(ValueError, match=re.escape(message)):
        VALUE_ERRORS[message]()


@pytest.mark.parametrize("message", TYPE_ERRORS)
def test_masks_of_other_dtypes_are_errors_that_name_them(message):
    with pytest.raises(TypeError, match=re.escape(message)):
        TYPE_ERRORS[message]()


# Layers, both ways.

LAYERS = {
    "self-attention": {},
    "without biases": {"bias": False},
    "other keys": {"kdim": KEY_SIZE},
    "other values": {"vdim": VALUE_SIZE},
    "other keys and values": {"kdim": KEY_SIZE, "vdim": VALUE_SIZE},
    "all of it": {"kdim": KEY_SIZE, "vdim": VALUE_SIZE, "bias": False},
}


@pytest.mark.parametrize("options", LAYERS.values(), ids=list(LAYERS))
def test_a_layer_from_torch_computes_what_that_one_computes(attend, options):
    theirs = torch_layer(M, H, **options)
    ours = MultiHeadAttention.from_torch(theirs, attend=attend)
    tensors = sources(theirs)
    expected = with_gradients(lambda **x: theirs(**x, need_weights=False)[0], **tensors)
    assert_same(with_gradients(ours, **tensors), expected)
    assert ours.attend is attend


@pytest.mark.parametrize("options", LAYERS.values(), ids=list(LAYERS))
def test_a_layer_to_torch_computes_what_this_one_computes(options):
    ours = MultiHeadAttention.from_torch(torch_layer(M, H, **options))
    for parameter in ours.parameters():
        nn.init.normal_(parameter, std=0.5)
    theirs = ours.to_torch()
    tensors = sources(theirs)
    expected = with_gradients(ours, **tensors)
    actual = with_gradients(lambda **x: theirs(**x, need_weights=False)[0], **tensors)
    assert_same(actual, expected)


@pytest.mark.parametrize("options", LAYERS.values(), ids=list(LAYERS))
def test_to_torch_and_back_and_forth_are_exact(options):
    theirs = torch_layer(M, H, dropout=0.3, **options)
    again = MultiHeadAttention.from_torch(theirs).to_torch()
    assert again.dropout == 0.3
    assert again.state_dict().keys() == theirs.state_dict().keys()
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


def test_shared_key_heads_cannot_be_carried_over():
    layer = MultiHeadAttention(M, 6, num_kv_heads=2)
    message = r"num_kv_heads \(2\) must be num_heads \(6\): nn.MultiheadAttention has keys and"
    with pytest.raises(ValueError, match=message):
        layer.to_torch()


def test_gradients_of_parameters_are_those_of_torch(attend):
    theirs = torch_layer(M, H)
    ours = MultiHeadAttention.from_torch(theirs, attend=attend)
    tensors, upstream = sources(theirs), torch.randn(B, I, M, dtype=torch.float64)
    theirs(**tensors, need_weights=False)[0].backward(upstream)
    ours(**tensors).backward(upstream)
    for kind in ("weight", "bias"):
        projections = (ours.q_proj, ours.k_proj, ours.v_proj)
        actual = torch.cat([getattr(projection, kind).grad for projection in projections])
        assert_same(actual, getattr(theirs, f"in_proj_{kind}").grad)
        assert_same(getattr(ours.out_proj, kind).grad, getattr(theirs.out_proj, kind).grad)


def test_weights_are_those_of_torch_head_by_head(pair):
    theirs, ours = pair
    tensors, mask = sources(theirs), some_mask(B, H, I, J)
    _, expected = theirs(
        **tensors, attn_mask=mask_to_torch(mask, num_heads=H), average_attn_weights=False
    )
    _, weights = ours(**tensors, mask=mask, return_weights=True)
    assert_same(weights, expected)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_dtype_and_mode_are_carried_over_both_ways(dtype, training):
    theirs = torch_layer(M, H).to(dtype).train(training)
    ours = MultiHeadAttention.from_torch(theirs)
    for layer in (ours, ours.to_torch()):
        assert {parameter.dtype for parameter in layer.parameters()} == {dtype}
        assert all(module.training == training for module in layer.modules())


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_device_is_carried_over_both_ways(device):
    ours = MultiHeadAttention.from_torch(torch_layer(M, H).to(device))
    for layer in (ours, ours.to_torch()):
        assert {parameter.device.type for parameter in layer.parameters()} == {device}


def test_parameters_are_copied_and_not_shared():
    theirs = torch_layer(M, H)
    ours = MultiHeadAttention.from_torch(theirs)
    back = ours.to_torch()
    before = ours.q_proj.weight.detach().clone()
    with torch.no_grad():
        theirs.in_proj_weight.zero_()
        back.in_proj_weight.zero_()
    assert torch.equal(ours.q_proj.weight, before)


WITHOUT_COUNTERPART = {
    "add_bias_kv=True adds a learned key and value: it can't be carried over": {
        "add_bias_kv": True
    },
    "add_zero_attn=True adds a key and value of 0: it can't be carried over": {
        "add_zero_attn": True
    },
    "batch_first=False expects inputs n b m, which can't be carried over: inputs here are b n m. "
    "The parameters don't depend on it: set source.batch_first = True first": {
        "batch_first": False
    },
}


@pytest.mark.parametrize("message", WITHOUT_COUNTERPART)
def test_what_cannot_be_carried_over_is_an_error_that_says_why(message):
    theirs = nn.MultiheadAttention(M, H, **{"batch_first": True} | WITHOUT_COUNTERPART[message])
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        MultiHeadAttention.from_torch(theirs)
