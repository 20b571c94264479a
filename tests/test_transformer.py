"""The blocks and the model against torch's layers, and what their masks promise."""

import copy
import io
import re
from functools import partial

import pytest
import torch
from torch import nn
from torch.export import Dim, export

from mini_attention import (
    MultiHeadAttention,
    RotaryAttention,
    SingleHeadAttention,
    attention,
    causal_mask,
    padding_mask,
    sinusoidal_positions,
)
from mini_attention.transformer import (
    DecoderBlock,
    EncoderBlock,
    FeedForward,
    PostNorm,
    PreNorm,
    Transformer,
    greedy,
    watch_weights,
)
from tests.oracles import B, H, I, J, assert_same, some_mask, with_gradients

M, HIDDEN, LAYERS, SOURCES, TARGETS = 12, 17, 2, 29, 19
RESIDUALS = {"pre-norm": PreNorm, "post-norm": PostNorm}
LENGTHS = [3, J]  # of the sources of a batch


def some(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64)


def tokens(*shape: int, size: int) -> torch.Tensor:
    return torch.randint(size, shape)


def model(**options) -> Transformer:
    sizes = {"d_model": M, "num_heads": H, "num_layers": LAYERS, "d_hidden": HIDDEN}
    built = Transformer(SOURCES, TARGETS, **sizes | options).double()
    return with_norms_that_do_something(built).eval()


def with_norms_that_do_something(module: nn.Module) -> nn.Module:
    """Scales that are not 1 and shifts that are not 0, as after training."""
    for layer in module.modules():
        if isinstance(layer, nn.LayerNorm):
            nn.init.normal_(layer.weight, mean=1.0, std=0.3)
            nn.init.normal_(layer.bias, std=0.3)
    return module


def sources_and_targets():
    return tokens(B, J, size=SOURCES), tokens(B, I, size=TARGETS)


@pytest.fixture(params=RESIDUALS.values(), ids=RESIDUALS)
def residual(request):
    return request.param


# Against torch's layers, whose parameters are copied.


def copy_of(layer: nn.Module, norms: list[nn.Module], block: nn.Module) -> nn.Module:
    """Give `block` the parameters of torch's `layer`, whose norms are named in their order."""
    block.self_attention = MultiHeadAttention.from_torch(layer.self_attn)
    if isinstance(block, DecoderBlock):
        block.cross_attention = MultiHeadAttention.from_torch(layer.multihead_attn)
    block.feed_forward.widen.load_state_dict(layer.linear1.state_dict())
    block.feed_forward.narrow.load_state_dict(layer.linear2.state_dict())
    for ours, theirs in zip(block.residuals, norms, strict=True):
        ours.norm.load_state_dict(theirs.state_dict())
    return block


def encoder_pair(residual):
    layer = nn.TransformerEncoderLayer(
        M, H, HIDDEN, batch_first=True, norm_first=residual is PreNorm, dtype=torch.float64
    )
    with_norms_that_do_something(layer).eval()
    block = EncoderBlock(M, H, HIDDEN, residual=residual).double()
    return layer, copy_of(layer, [layer.norm1, layer.norm2], block)


def decoder_pair(residual):
    layer = nn.TransformerDecoderLayer(
        M, H, HIDDEN, batch_first=True, norm_first=residual is PreNorm, dtype=torch.float64
    )
    with_norms_that_do_something(layer).eval()
    block = DecoderBlock(M, H, HIDDEN, residual=residual).double()
    return layer, copy_of(layer, [layer.norm1, layer.norm2, layer.norm3], block)


def test_an_encoder_block_is_torchs_layer(residual):
    layer, block = encoder_pair(residual)
    mask = some_mask(J, J)
    expected = with_gradients(partial(layer, src_mask=~mask), src=some(B, J, M))
    torch.manual_seed(0)
    layer, block = encoder_pair(residual)
    mask = some_mask(J, J)
    actual = with_gradients(partial(block, mask=mask), x=some(B, J, M))
    assert_same(actual["output"], expected["output"])
    assert_same(actual["x"], expected["src"])


def test_a_decoder_block_is_torchs_layer(residual):
    layer, block = decoder_pair(residual)
    x, memory, mask, across = some(B, I, M), some(B, J, M), causal_mask(I), some_mask(I, J)
    expected = with_gradients(
        lambda x, memory: layer(x, memory, tgt_mask=~mask, memory_mask=~across),
        x=x,
        memory=memory,
    )
    actual = with_gradients(lambda x, memory: block(x, memory, mask, across), x=x, memory=memory)
    assert_same(actual, expected)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")  # torch, about a fast path
def test_the_whole_model_is_torchs_stack(residual):
    theirs = nn.Transformer(
        M,
        H,
        LAYERS,
        LAYERS,
        HIDDEN,
        batch_first=True,
        norm_first=residual is PreNorm,
        dtype=torch.float64,
    )
    with_norms_that_do_something(theirs).eval()
    if residual is PostNorm:  # torch normalises once more, which the paper does not
        theirs.encoder.norm = theirs.decoder.norm = None
    ours = model(residual=residual)
    for layer, block in zip(theirs.encoder.layers, ours.encoder, strict=True):
        copy_of(layer, [layer.norm1, layer.norm2], block)
    for layer, block in zip(theirs.decoder.layers, ours.decoder, strict=True):
        copy_of(layer, [layer.norm1, layer.norm2, layer.norm3], block)
    if residual is PreNorm:
        ours.encoder_closing.load_state_dict(theirs.encoder.norm.state_dict())
        ours.decoder_closing.load_state_dict(theirs.decoder.norm.state_dict())
    source, target = sources_and_targets()
    mask = padding_mask(LENGTHS, J)
    added = sinusoidal_positions(J, M, dtype=torch.float64)
    expected = theirs(
        ours.source_embedding(source) + added,
        ours.target_embedding(target) + added[:I],
        tgt_mask=~causal_mask(I),
        src_key_padding_mask=~mask[:, 0],
        memory_key_padding_mask=~mask[:, 0],
    )
    assert_same(ours(source, target, mask), ours.to_logits(expected))


# The small parts.


def test_feed_forward_thinks_about_each_position_by_itself():
    layer, x = FeedForward(M, HIDDEN).double(), some(B, I, M)
    widened = (x @ layer.widen.weight.T + layer.widen.bias).clamp(min=0)
    assert_same(layer(x), widened @ layer.narrow.weight.T + layer.narrow.bias)
    assert FeedForward(M).widen.out_features == 4 * M


def test_post_norm_normalises_the_sum():
    around, x = with_norms_that_do_something(PostNorm(M)).double(), some(B, I, M)
    total = x + torch.sin(x)
    mean, var = total.mean(-1, keepdim=True), total.var(-1, keepdim=True, correction=0)
    expected = (total - mean) / (var + 1e-5).sqrt() * around.norm.weight + around.norm.bias
    assert_same(around(x, torch.sin), expected)


def test_pre_norm_normalises_what_is_read_and_leaves_the_sum_alone():
    around, x = with_norms_that_do_something(PreNorm(M)).double(), some(B, I, M)
    assert_same(around(x, torch.sin), x + torch.sin(around.norm(x)))


def test_only_pre_norm_has_a_norm_left_to_do_at_the_end():
    assert isinstance(model(residual=PreNorm).decoder_closing, nn.LayerNorm)
    assert isinstance(model(residual=PostNorm).encoder_closing, nn.Identity)


def test_dropout_acts_on_what_a_sublayer_adds_in_training_only(residual):
    around, x = residual(M, dropout=0.5).double(), some(1, 97, M)

    def added(x):
        return torch.full_like(x, 2.0)

    kept = residual(M).double()(x, added)
    assert_same(around.eval()(x, added), kept)
    if residual is PreNorm:
        dropped = around.train()(x, added) - x
        is_zero = dropped.abs() < 1e-9
        assert_same(dropped, torch.where(is_zero, 0.0, 4.0).double())
        assert 0.4 < is_zero.double().mean() < 0.6
    else:
        assert (around.train()(x, added) - kept).abs().max() > 0.1


@pytest.mark.parametrize("what", ["embedding", "residual", "weights"])
def test_a_model_hands_its_dropout_on(what):
    built = model(dropout=0.3)
    rates = {
        "embedding": [built.dropout.p],
        "residual": [m.dropout.p for m in built.modules() if isinstance(m, PreNorm)],
        "weights": [m.dropout for m in built.modules() if isinstance(m, MultiHeadAttention)],
    }[what]
    assert rates == [0.3] * {"embedding": 1, "residual": 5 * LAYERS, "weights": 3 * LAYERS}[what]


def test_dropout_acts_on_the_embedded_tokens_in_training():
    built, source = model(dropout=0.5), tokens(B, J, size=SOURCES)
    still = built.embed(source, built.source_embedding)
    dropped = built.train().embed(source, built.source_embedding)
    is_zero = dropped == 0
    assert_same(dropped, (2 * still).masked_fill(is_zero, 0.0))
    assert 0.3 < is_zero.double().mean() < 0.7


def test_another_function_can_be_plugged_in_everywhere():
    seen = []

    def recorded(query, key, value, mask=None):
        seen.append((query.shape[-2], key.shape[-2]))
        return attention(query, key, value, mask)

    source, target = sources_and_targets()
    built, plain = model(attend=recorded), model()
    plain.load_state_dict(built.state_dict())
    assert_same(built(source, target), plain(source, target))
    assert seen == [(J, J)] * LAYERS + [(I, I), (I, J)] * LAYERS


# What may be seen.


def test_no_logits_depend_on_later_tokens_of_the_target(residual):
    built = model(residual=residual)
    source, target = sources_and_targets()
    changed = target.clone()
    changed[:, 3:] = (changed[:, 3:] + 1) % TARGETS
    before, after = built(source, target), built(source, changed)
    assert_same(after[:, :3], before[:, :3])
    assert ((after - before).abs().amax((0, 2)) > 0.01).tolist() == [False] * 3 + [True] * 2


def test_the_rows_of_a_target_are_those_of_its_beginnings(residual):
    built = model(residual=residual)
    source, target = sources_and_targets()
    whole = built(source, target)
    for i in range(1, I):
        assert_same(built(source, target[:, :i]), whole[:, :i])


def test_padding_of_the_source_changes_nothing(residual):
    built = model(residual=residual)
    source, target = sources_and_targets()
    mask = padding_mask(LENGTHS, J)
    padded = built(source, target, mask)
    for item, n in enumerate(LENGTHS):
        alone = built(source[item : item + 1, :n], target[item : item + 1])
        assert_same(padded[item : item + 1], alone)
    assert (padded - built(source, target))[0].abs().max() > 0.01


def test_padding_of_the_source_gets_no_gradient():
    built, (source, target) = model(), sources_and_targets()
    embedded = []
    built.source_embedding.register_forward_hook(lambda m, a, output: embedded.append(output))
    built(source, target, padding_mask(LENGTHS, J)).sum().backward(inputs=embedded)
    assert (embedded[0].grad[0, 3:] == 0).all()
    assert (embedded[0].grad[0, :3].abs().amax(-1) > 0).all()


def test_an_encoder_block_keeps_nan_in_padding_from_the_others(residual):
    block, x = EncoderBlock(M, H, HIDDEN, residual=residual).double(), some(B, J, M)
    expected = block(x, padding_mask(LENGTHS, J))[0, :3]
    x[0, 3:] = torch.nan
    assert_same(block(x, padding_mask(LENGTHS, J))[0, :3], expected)


def test_a_decoder_block_keeps_nan_in_padded_memory_out(residual):
    block = DecoderBlock(M, H, HIDDEN, residual=residual).double()
    x, memory, mask = some(B, I, M), some(B, J, M), padding_mask(LENGTHS, J)
    expected = block(x, memory, causal_mask(I), mask)
    memory[0, 3:] = torch.nan
    assert_same(block(x, memory, causal_mask(I), mask), expected)


def test_a_source_of_padding_alone_gives_finite_logits_and_gradients(residual):
    built, (source, target) = model(residual=residual), sources_and_targets()
    logits = built(source, target, padding_mask([0, J], J))
    logits.sum().backward()
    assert logits.isfinite().all()
    assert all(p.grad.isfinite().all() for p in built.parameters())


def test_no_source_no_target_and_no_items_work():
    built, (source, target) = model(), sources_and_targets()
    assert built(source[:, :0], target).isfinite().all()
    assert built(source, target[:, :0]).shape == (B, 0, TARGETS)
    assert built(source[:0], target[:0]).shape == (0, I, TARGETS)


def test_a_mask_per_head_reaches_a_block():
    block, x, mask = EncoderBlock(M, H, HIDDEN).double(), some(B, J, M), some_mask(B, H, J, J)
    with watch_weights(block) as weights:
        block(x, mask)
    assert torch.equal(weights["self_attention"] > 0, mask)


# Positions and tokens.


def test_tokens_are_told_their_places():
    built, source = model(), tokens(B, J, size=SOURCES)
    expected = built.source_embedding(source) + sinusoidal_positions(J, M, dtype=torch.float64)
    assert_same(built.embed(source, built.source_embedding), expected)
    assert_same(built.embed(source[:, 4:], built.source_embedding, 4), expected[:, 4:])


def test_decoding_can_begin_at_a_later_place():
    built, (source, target) = model(), sources_and_targets()
    memory = built.encode(source)
    assert_same(built.decode(target, memory), built(source, target))
    here, there = (built.decode(target, memory, start=start) for start in (0, 3))
    assert (there - here).abs().max() > 0.01
    table = sinusoidal_positions(I + 3, M, dtype=torch.float64)
    with torch.no_grad():  # the same shift, said in another way
        moved = copy.deepcopy(built)
        moved.embed = lambda tokens, embedding, start: embedding(tokens) + table[3:]
    assert_same(moved.decode(target, memory), there)


def test_without_positions_a_rotary_model_still_sees_the_order():
    built, (source, target) = model(attend=RotaryAttention()), sources_and_targets()
    built.embed = lambda tokens, embedding, start=0: embedding(tokens)
    turned = built(source.flip(1), target)
    assert (turned - built(source, target)).abs().max() > 0.01


MISTAKES = {
    "tokens must have the axes batch and position; got (7,)": lambda m: m(
        tokens(J, size=3), tokens(1, I, size=3)
    ),
    "tokens must be integers, int64 or int32; got torch.float32": lambda m: m(
        torch.rand(B, J), tokens(B, I, size=3)
    ),
    f"tokens must be from 0 to {SOURCES - 1}; got 2 to 29": lambda m: m(
        torch.tensor([[2, 29]]), tokens(1, I, size=3)
    ),
    f"tokens must be from 0 to {TARGETS - 1}; got -1 to 4": lambda m: m(
        tokens(1, J, size=3), torch.tensor([[-1, 4]])
    ),
    "mask must be boolean": lambda m: m(*sources_and_targets(), torch.ones(B, 1, J)),
    "num_layers must be at least 1; got 0": lambda m: model(num_layers=0),
    "source_size must be at least 1; got 0": lambda m: Transformer(
        0, 3, d_model=M, num_heads=H, num_layers=1
    ),
    "target_size must be at least 1; got -2": lambda m: Transformer(
        3, -2, d_model=M, num_heads=H, num_layers=1
    ),
    "d_hidden must be at least 1; got 0": lambda m: model(d_hidden=0),
    "d_model must be at least 1; got 0": lambda m: FeedForward(0),
    "d_model (12) must be divisible by num_heads (5)": lambda m: model(num_heads=5),
    "d_model must be even": lambda m: model(d_model=9)(*sources_and_targets()),
    "dropout must be at least 0 and below 1; got 1.0": lambda m: model(dropout=1.0),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_is_an_error_with_its_numbers(message):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)) as caught:
        MISTAKES[message](model())
    is_of_type = "integers" in message or "boolean" in message
    assert caught.type is (TypeError if is_of_type else ValueError)


def test_sizes_of_1_will_do():
    smallest = {"num_heads": 1, "num_layers": 1, "d_hidden": 1}
    built = Transformer(1, 1, d_model=2, **smallest).double().eval()
    zeros = torch.zeros(B, I, dtype=torch.long)
    assert built(zeros, zeros).shape == (B, I, 1)
    assert FeedForward(1, 1)(torch.ones(B, 1)).shape == (B, 1)


def test_what_a_model_makes_is_made_where_its_tokens_are():
    built, (source, target) = model(), sources_and_targets()
    expected, written = built(source, target), greedy(built, source, start=5, steps=4)
    with torch.device("meta"):  # for what nobody says a device for
        assert_same(built(source, target), expected)
        assert torch.equal(greedy(built, source, start=5, steps=4), written)


def test_tokens_of_32_bits_do_as_well():
    built, (source, target) = model(), sources_and_targets()
    assert_same(built(source.int(), target.int()), built(source, target))


# Writing.


def test_greedy_writes_the_likeliest_token_each_time():
    built, source = model(), tokens(B, J, size=SOURCES)
    mask = padding_mask(LENGTHS, J)
    written = greedy(built, source, mask, start=5, steps=4)
    assert written.shape == (B, 4)
    target = torch.cat([torch.full((B, 1), 5), written], dim=1)
    assert torch.equal(built(source, target, mask)[:, :-1].argmax(-1), written)
    assert greedy(built, source, start=5, steps=0).shape == (B, 0)
    assert not written.requires_grad


# The weights of a model.


def test_watched_weights_are_those_that_made_the_logits(residual):
    built, (source, target) = model(residual=residual), sources_and_targets()
    mask = padding_mask(LENGTHS, J)
    plain = built(source, target, mask)
    with watch_weights(built) as weights:
        assert torch.equal(built(source, target, mask), plain)
    assert list(weights) == [
        *(f"encoder.{n}.self_attention" for n in range(LAYERS)),
        *(f"decoder.{n}.{kind}_attention" for n in range(LAYERS) for kind in ("self", "cross")),
    ]
    block = built.encoder[0]
    x = built.embed(source, built.source_embedding)
    normed = block.residuals[0].norm(x) if residual is PreNorm else x
    expected = block.self_attention(normed, mask=mask, return_weights=True)[1]
    assert torch.equal(weights["encoder.0.self_attention"], expected)
    assert not weights["decoder.1.cross_attention"].requires_grad


def test_a_layer_is_watched_no_longer_than_asked_for():
    layer, x = MultiHeadAttention(M, H).double(), some(B, J, M)
    with watch_weights(layer) as weights:
        output, returned = layer(x, return_weights=True)
        assert torch.equal(weights[""], returned)
    weights.clear()
    assert torch.equal(layer(x), output)
    assert weights == {}
    with pytest.raises(ValueError, match="query must have"), watch_weights(layer):
        layer(x[0])
    assert layer(x).shape == x.shape


def test_single_heads_are_watched_too():
    module = nn.Sequential(SingleHeadAttention(M), SingleHeadAttention(M)).double()
    with watch_weights(module) as weights:
        module(some(B, J, M))
    assert {name: w.shape for name, w in weights.items()} == dict.fromkeys("01", (B, J, J))


# Tooling.


def test_a_model_survives_copying_and_saving():
    built, (source, target) = model(), sources_and_targets()
    other, file = model(), io.BytesIO()
    torch.save(built.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    for same in (copy.deepcopy(built), other):
        assert torch.equal(same(source, target), built(source, target))


@pytest.mark.slow
@pytest.mark.parametrize(
    "residual", [PreNorm, pytest.param(PostNorm, marks=pytest.mark.full)], ids=RESIDUALS
)
def test_a_model_compiles_into_one_graph(residual):
    built, (source, target) = model(residual=residual), sources_and_targets()
    compiled = torch.compile(built, fullgraph=True, backend="aot_eager")
    mask = padding_mask(LENGTHS, J)
    assert_same(compiled(source, target, mask), built(source, target, mask))


@pytest.mark.slow
def test_an_exported_model_takes_other_sources():
    built, (source, target) = model(), sources_and_targets()
    b, j = Dim("b"), Dim("j")
    shapes = {"source": {0: b, 1: j}, "target": {0: b}, "source_mask": {0: b, 2: j}}
    given = (source, target, padding_mask(LENGTHS, J))
    exported = export(built, given, dynamic_shapes=shapes).module()
    source, target = tokens(3, 11, size=SOURCES), tokens(3, I, size=TARGETS)
    mask = padding_mask([2, 5, 11], 11)
    assert_same(exported(source, target, mask), built(source, target, mask))
