"""Heads watched and switched off are those of the layer, and nothing else changes."""

import pytest
import torch
from einops import einsum, rearrange
from torch import nn

from mini_attention import MultiHeadAttention, SingleHeadAttention
from mini_attention.reading import ablate, attention_layers, watch_heads
from mini_attention.transformer import EncoderBlock
from tests.oracles import B, H, I, J, assert_same

M, E = 12, 4  # so that H heads have E features each


def some(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def layer(**options) -> MultiHeadAttention:
    torch.manual_seed(5)
    return MultiHeadAttention(M, H, **options).double()


def by_hand(built, x, memory, heads):
    """A layer's output as the sum over these heads alone."""
    _, weights = built(x, memory, return_weights=True)
    values = rearrange(built.v_proj(memory), "b j (h e) -> b h j e", h=H)
    rows = rearrange(built.out_proj.weight, "m (h e) -> h e m", h=H)
    found = einsum(weights, values, "b h i j, b h j e -> b h i e")
    added = einsum(found, rows, "b h i e, h e m -> b h i m")
    return built.out_proj.bias + sum((added[:, h] for h in heads), torch.zeros_like(x))


def test_the_layers_are_those_with_several_heads_by_their_names():
    model = nn.Sequential(SingleHeadAttention(M), layer(), EncoderBlock(M, H))
    assert list(attention_layers(model)) == ["1", "2.self_attention"]
    assert attention_layers(model)["1"] is model[1]
    assert list(attention_layers(layer())) == [""]


@pytest.mark.parametrize("shared", [H, 1])
def test_watched_heads_are_the_weighted_means_of_values(shared):
    built, x, memory = layer(num_kv_heads=shared), some(B, I, M), some(B, J, M)
    plain = built(x, memory)
    with watch_heads(built) as heads:
        output, weights = built(x, memory, return_weights=True)
    assert torch.equal(output, plain)
    values = rearrange(built.v_proj(memory), "b j (g e) -> b g j e", g=shared)
    assert_same(heads[""], weights @ values.expand(B, H, J, E))
    assert not heads[""].requires_grad
    heads.clear()
    built(x, memory)
    assert heads == {}


@pytest.mark.parametrize("off", [[], [1], [0, 2], [0, 1, 2]])
def test_zero_ablation_leaves_the_sum_of_the_other_heads(off):
    built, x, memory = layer(), some(B, I, M), some(B, J, M)
    expected = by_hand(built, x, memory, set(range(H)) - set(off))
    with ablate(built, {"": off}):
        assert_same(built(x, memory), expected)
    assert_same(built(x, memory), by_hand(built, x, memory, range(H)))


def test_mean_ablation_puts_the_means_in_the_place_of_the_heads():
    built, x, memory = layer(), some(B, I, M), some(B, J, M)
    means = {"": some(H, E)}
    rows = rearrange(built.out_proj.weight, "m (h e) -> h e m", h=H)
    with ablate(built, {"": [2]}, means):
        actual = built(x, memory)
    assert_same(actual, by_hand(built, x, memory, [0, 1]) + means[""][2] @ rows[2])


def test_what_was_found_for_one_position_as_a_mean_changes_nothing_there():
    built, x = layer(), some(1, 1, M)
    with watch_heads(built) as heads:
        expected = built(x)
    with ablate(built, {"": range(H)}, {"": heads[""].mean((0, 2))}):
        assert_same(built(x), expected)


def test_layers_that_are_not_named_keep_their_heads():
    model = nn.Sequential(layer(), layer()).double()
    x = some(B, I, M)
    with ablate(model, {"1": [0]}):
        assert torch.equal(model[0](x), layer()(x))
        assert not torch.allclose(model[1](x), layer()(x))


def test_an_error_inside_switches_the_heads_on_again():
    built, x = layer(), some(B, I, M)
    expected = built(x)
    with pytest.raises(ValueError, match="query must have"), ablate(built, {"": [0]}):
        built(x[0])
    with pytest.raises(ValueError, match="query must have"), watch_heads(built) as heads:
        built(x[0])
    assert torch.equal(built(x), expected)
    assert heads == {}


def test_gradients_pass_a_head_that_is_off_by():
    built, x = layer(), some(B, I, M)
    with ablate(built, {"": [1]}):
        built(x).sum().backward()
    of_values = rearrange(built.v_proj.weight.grad, "(h e) m -> h e m", h=H)
    assert (of_values.abs().amax((1, 2)) > 0).tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("heads", "means", "message"),
    [
        ({"0": [0]}, None, r"the model has no layer '0'; it has 1, 2\.self_attention"),
        ({"1": [3]}, None, "'1' has the heads 0 to 2; got 3"),
        ({"1": [-1]}, None, "'1' has the heads 0 to 2; got -1"),
        ({"1": [0]}, {"1": torch.zeros(4, 3)}, r"means of '1' must .* \(3, 4\), h e; got \(4, 3\)"),
        ({"1": [0]}, {"2": torch.zeros(3, 4)}, r"means of '1' must .*; got nothing"),
    ],
    ids=["layer", "head", "below", "shape", "missing"],
)
def test_a_mistake_is_an_error_with_its_numbers(heads, means, message):
    model = nn.Sequential(nn.Identity(), layer(), EncoderBlock(M, H))
    with pytest.raises(ValueError, match=message), ablate(model, heads, means):
        pass
    assert not model[1].out_proj._forward_pre_hooks


def test_a_model_without_such_layers_says_so():
    with (
        pytest.raises(ValueError, match="no layer 'a'; it has none"),
        ablate(nn.Identity(), {"a": [0]}),
    ):
        pass
