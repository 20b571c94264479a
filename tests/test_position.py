"""Positions against plain loops, and what they promise of distances, devices and layers."""

import cmath
import copy
import pickle
import re
from functools import partial
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import func
from torch.export import Dim, export

from mini_attention import (
    MultiHeadAttention,
    RotaryAttention,
    SingleHeadAttention,
    attention,
    attention_scores,
    attention_weights,
    blocked_attention,
    causal_mask,
    document_mask,
    fused_attention,
    padding_mask,
    position,
    rotary_embedding,
    rules,
    sinusoidal_positions,
)
from tests.oracles import (
    TOLERANCE,
    B,
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
    with_another_default,
    with_gradients,
)
from tests.vectors import assert_is, load, rotated

N, D, M = 7, 22, 18  # features go in pairs
PAIRINGS = tuple(position.PAIRS)
PREFIX = "test_rotary_embedding"
VECTORS = {name.removeprefix(PREFIX) or "_plain": v for name, v in load("RotaryEmbedding").items()}
TORCH_ITSELF = "ignore:.torch.jit:DeprecationWarning"  # the compiler, inside torch
HALF = (torch.float16, torch.bfloat16)


@pytest.fixture(params=PAIRINGS)
def pairing(request):
    """Each pairing in turn."""
    return request.param


def some(*shape: int, dtype=torch.float64) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype)


def partners(k: int, size: int, pairing: str) -> tuple[int, int]:
    """Which two of `size` features turn together as pair k."""
    return (k, k + size // 2) if pairing == "halves" else (2 * k, 2 * k + 1)


def naive_rotary(x, positions=None, *, pairing="halves", features=None, base=10_000.0):
    """One item, one position and one pair at a time, as one complex number that is turned."""
    size = x.shape[-1] if features is None else features
    at = torch.arange(x.shape[-2]) if positions is None else positions
    at = at.expand(x.shape[:-1])
    rows = []
    for place in product(*map(range, x.shape[:-1])):
        row = list(x[place].double())
        for k in range(size // 2):
            one, other = partners(k, size, pairing)
            turn = cmath.exp(1j * at[place].item() * base ** (-2 * k / size))
            a, b = row[one], row[other]
            row[one], row[other] = a * turn.real - b * turn.imag, a * turn.imag + b * turn.real
        rows.append(torch.stack(row))
    return torch.stack(rows).reshape(x.shape)


# Sines and cosines.


@pytest.mark.parametrize("base", [10_000.0, 7.0])
def test_the_table_is_that_of_the_paper(base):
    table = sinusoidal_positions(N, M, base=base, dtype=torch.float64)
    for at, k in product(range(N), range(M // 2)):
        turn = cmath.exp(1j * at * base ** (-2 * k / M))
        assert_same(
            table[at, 2 * k : 2 * k + 2], torch.tensor([turn.imag, turn.real], dtype=torch.float64)
        )


def test_row_p_plus_s_is_row_p_turned_by_an_angle_that_depends_on_s_alone():
    table = sinusoidal_positions(1000, M, dtype=torch.float64)
    sine, cosine = table[:, ::2], table[:, 1::2]
    for shift in (1, 17, 400):
        c, s = cosine[shift], sine[shift]
        assert_same(sine[shift:], sine[:-shift] * c + cosine[:-shift] * s)
        assert_same(cosine[shift:], cosine[:-shift] * c - sine[:-shift] * s)


def test_the_product_of_two_rows_depends_on_their_distance_alone():
    table = sinusoidal_positions(50, M, dtype=torch.float64)
    products = table @ table.mT
    for distance in range(50):
        along = products.diagonal(distance)
        assert_same(along, along[:1].expand_as(along), largest_score=M / 2)


def test_the_table_has_the_dtype_and_the_device_that_were_asked_for():
    assert sinusoidal_positions(N, M).dtype == torch.get_default_dtype()
    half = sinusoidal_positions(N, M, dtype=torch.bfloat16, device="cpu")
    assert half.dtype == torch.bfloat16
    assert sinusoidal_positions(N, M, device="meta").is_meta
    assert sinusoidal_positions(0, M).shape == (0, M)


def test_a_far_row_of_the_table_is_as_exact_as_the_first():
    far = sinusoidal_positions(100_001, 4)[-1]
    turns = [cmath.exp(1j * 100_000 * speed) for speed in (1.0, 0.01)]
    expected = [number for turn in turns for number in (turn.imag, turn.real)]
    assert_same(far, torch.tensor(expected, dtype=torch.float64))


# Rotations.


OPTIONS = {
    "as it is": {},
    "other positions": {"positions": torch.tensor([3, 1, 4, 1, 5, 9, -2])},
    "positions between": {"positions": torch.linspace(0, 1.5, N, dtype=torch.float64)},
    "positions per item": {"positions": torch.arange(B * N).reshape(B, 1, N) ** 2},
    "positions per head": {"positions": torch.arange(H * N).reshape(1, H, N)},
    "one position": {"positions": torch.tensor([12])},
    "some of the features": {"features": 6},
    "two features": {"features": 2},
    "all features by number": {"features": D},
    "another base": {"base": 50.0},
    "a base below 1": {"base": 0.5},
    "a base that is an integer": {"base": 500_000},
}


@pytest.mark.parametrize("what", OPTIONS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_rotation_is_that_of_complex_numbers(what, dtype, pairing):
    x, how = some(B, H, N, D, dtype=dtype), OPTIONS[what] | {"pairing": pairing}
    actual = with_gradients(partial(rotary_embedding, **how), x=x)
    assert_same(actual, with_gradients(partial(naive_rotary, **how), x=x))
    assert actual["output"].dtype == dtype


@pytest.mark.parametrize("name", VECTORS)
def test_rotation_is_that_of_onnx(name):
    assert_is(rotated(VECTORS[name]), VECTORS[name].outputs["output"])


def test_onnx_has_vectors_of_every_kind():
    attributes = [vector.attributes for vector in VECTORS.values()]
    assert len(VECTORS) == 8
    assert sum(bool(given.get("interleaved")) for given in attributes) == 3
    assert sum(bool(given.get("rotary_embedding_dim")) for given in attributes) == 3
    assert sum("position_ids" in vector.inputs for vector in VECTORS.values()) == 5
    assert sum(vector.inputs["input"].ndim == 3 for vector in VECTORS.values()) == 1


@given(
    distance=st.integers(-60, 60),
    shift=st.integers(-100_000, 100_000),
    features=st.sampled_from([2, 8, D]),
    pairing=st.sampled_from(PAIRINGS),
)
def test_a_score_depends_on_the_distance_alone(distance, shift, features, pairing):
    query, key = some(1, D), some(1, D)
    turn = partial(rotary_embedding, features=features, pairing=pairing)

    def score(at: int) -> torch.Tensor:
        q, k = turn(query, torch.tensor([at + distance])), turn(key, torch.tensor([at]))
        return attention_scores(q, k)

    # An angle of 100,000 has lost five digits of float64 before anybody sees it.
    torch.testing.assert_close(score(shift), score(0), rtol=0, atol=1e-9)


def test_a_score_differs_between_distances(pairing):
    query, key = some(1, D).expand(N, D), some(1, D).expand(N, D)
    turn = partial(rotary_embedding, pairing=pairing)
    scores = attention_scores(turn(query), turn(key))
    assert (scores.diagonal(1)[0] - scores.diagonal(2)[0]).abs() > 0.01
    assert (scores.diagonal(1)[0] - scores.diagonal(-1)[0]).abs() > 0.01


def test_lengths_stay_and_position_0_changes_nothing(pairing):
    x = some(B, H, N, D)
    turned = rotary_embedding(x, pairing=pairing)
    assert_same(turned.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(turned[..., 0, :], x[..., 0, :])
    assert torch.equal(rotary_embedding(x, torch.zeros(N), pairing=pairing), x)


@pytest.mark.parametrize("features", [6, D])
def test_the_pairings_are_the_same_up_to_an_order_of_the_features(features):
    order = torch.cat([torch.arange(0, features, 2), torch.arange(1, features, 2)])
    order = torch.cat([order, torch.arange(features, D)])
    x = some(B, H, N, D)
    one = rotary_embedding(x, pairing="neighbours", features=features)[..., order]
    assert_same(one, rotary_embedding(x[..., order], pairing="halves", features=features))
    other = rotary_embedding(x, pairing="halves", features=features)[..., order]
    assert (other - one).abs().max() > 0.1


def test_halves_are_paired_unless_neighbours_are_asked_for():
    x = some(N, D)
    assert torch.equal(rotary_embedding(x), rotary_embedding(x, pairing="halves"))
    assert not torch.equal(rotary_embedding(x), rotary_embedding(x, pairing="neighbours"))


def test_features_that_are_not_rotated_pass_untouched(pairing):
    x = some(H, N, D)
    turned = rotary_embedding(x, pairing=pairing, features=6)
    assert torch.equal(turned[..., 6:], x[..., 6:])
    assert_same(turned[..., :6], rotary_embedding(x[..., :6], pairing=pairing))


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_half_precision_is_rounded_once(dtype, pairing):
    x = some(B, N, D, dtype=dtype)
    far = torch.arange(N) + 100_000
    upstream = some(B, N, D, dtype=dtype)

    def run(x, upstream):
        x = x.detach().requires_grad_()
        turned = rotary_embedding(x, far, pairing=pairing)
        return turned, *torch.autograd.grad(turned, x, upstream)

    for turned, exact in zip(run(x, upstream), run(x.double(), upstream.double()), strict=True):
        assert turned.dtype == dtype
        rounding = torch.finfo(dtype).eps / 2 * exact.abs() + torch.finfo(dtype).tiny
        assert ((turned.double() - exact).abs() <= 1.01 * rounding + 1e-6).all()


def test_far_positions_are_as_exact_as_the_first_in_float32(pairing):
    x, far = some(N, D), torch.arange(N) + 1_000_000
    expected = naive_rotary(x, far, pairing=pairing)
    assert_same(rotary_embedding(x.float(), far, pairing=pairing), expected)


def test_only_a_device_without_float64_gets_angles_in_float32():
    assert position._widest(torch.device("mps")) == torch.float32
    for device in ("cpu", "cuda", "meta"):
        assert position._widest(torch.device(device)) == torch.float64


def test_positions_are_counted_where_the_inputs_are(pairing):
    for function, tensors in (
        (partial(rotary_embedding, pairing=pairing), {"x": some(B, H, N, D)}),
        (RotaryAttention(attention, pairing=pairing), inputs(B, H, d=D)),
    ):
        expected = with_gradients(function, **tensors)
        assert_same(with_another_default(function, **tensors), expected)


def test_inputs_are_read_and_never_written(pairing):
    x, at = some(B, H, N, D), torch.arange(N)
    before, places = x.clone(), at.clone()
    rotary_embedding(x, at, pairing=pairing, features=6)
    assert torch.equal(x, before)
    assert torch.equal(at, places)


def test_expanded_strided_and_empty_inputs_work(pairing):
    turn = partial(rotary_embedding, pairing=pairing)
    x = some(1, N, D).expand(B, N, D)
    assert_same(turn(x), turn(x.contiguous()))
    strided = some(D, N).mT
    assert_same(turn(strided), turn(strided.contiguous()))
    for shape in [(0, N, D), (B, 0, D)]:
        assert turn(some(*shape)).shape == shape


# Differentiation and tooling.


def test_a_rotation_can_be_differentiated_twice(pairing):
    x = some(2, 3, 6).requires_grad_()
    turn = partial(rotary_embedding, pairing=pairing, features=4)
    assert torch.autograd.gradcheck(turn, x)
    assert torch.autograd.gradgradcheck(turn, x)


@pytest.mark.filterwarnings(TORCH_ITSELF)
def test_forward_and_reverse_jacobians_agree(pairing):
    turn, x = partial(rotary_embedding, pairing=pairing), some(3, 4)
    assert_same(func.jacfwd(turn)(x), func.jacrev(turn)(x))


def test_a_mapped_rotation_is_a_loop_over_items(pairing):
    x, at = some(B, N, D), torch.arange(B * N).reshape(B, N)
    turn = partial(rotary_embedding, pairing=pairing)
    assert_same(func.vmap(turn)(x, at), turn(x, at))


def layer_with(attend, **options) -> MultiHeadAttention:
    return MultiHeadAttention(M, H, attend=attend, **options).double()


def test_a_layer_whose_queries_turn_can_be_mapped_twice_differentiated():
    turned = RotaryAttention(attention)
    tensors = tuple(t.requires_grad_() for t in inputs(i=3, j=4, d=4, e=3).values())
    assert torch.autograd.gradcheck(turned, tensors)
    assert torch.autograd.gradgradcheck(turned, tensors)


@pytest.mark.slow
@pytest.mark.filterwarnings(TORCH_ITSELF)
def test_a_layer_whose_queries_turn_compiles_into_one_graph():
    layer, x = layer_with(RotaryAttention()), some(B, N, M)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    run = partial(layer, mask=causal_mask(N), return_weights=True)
    for actual, expected in zip(
        compiled(x, mask=causal_mask(N), return_weights=True), run(x), strict=True
    ):
        assert_same(actual, expected)


@pytest.mark.slow
@pytest.mark.filterwarnings(TORCH_ITSELF)
def test_an_exported_layer_whose_queries_turn_takes_other_lengths():
    layer = layer_with(RotaryAttention()).eval()
    shapes = {"query": {0: Dim("b"), 1: Dim("n")}}
    exported = export(layer, (), {"query": some(B, N, M)}, dynamic_shapes=shapes).module()
    longer = some(B + 1, N + 4, M)
    assert_same(exported(query=longer), layer(query=longer))


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_a_layer_whose_queries_turn_runs_under_autocast(dtype):
    layer = MultiHeadAttention(M, H, attend=RotaryAttention())
    x = some(B, N, M, dtype=torch.float32)
    with torch.autocast("cpu", dtype):
        output, weights = layer(x, return_weights=True)
    assert output.dtype == weights.dtype == dtype
    expected = layer(x)
    assert (output - expected).abs().max() < 20 * torch.finfo(dtype).eps * expected.abs().max()


def test_states_pickles_and_copies_are_the_same_layer(attend):
    layer = layer_with(RotaryAttention(attend, pairing="neighbours", features=4, base=99.0))
    x = some(B, N, M)
    assert layer.state_dict().keys() == layer_with(attend).state_dict().keys()
    for other in (pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
        assert other.attend == layer.attend
        assert_same(other(x), layer(x))


# Attention on rotated queries and keys.


def turned_inputs(query_positions=None, key_positions=None, **how):
    """Queries and keys rotated by the loop, and the values."""
    tensors = inputs(B, H, d=D)
    if query_positions is None:
        query_positions = torch.arange(I) + J - I
    expected = {
        "query": naive_rotary(tensors["query"], query_positions, **how),
        "key": naive_rotary(tensors["key"], key_positions, **how),
    }
    return tensors, expected | {"value": tensors["value"]}


@pytest.mark.parametrize("how", [{}, {"pairing": "neighbours", "features": 4, "base": 50.0}])
def test_the_last_query_stands_at_the_last_key(attend, how):
    tensors, turned = turned_inputs(**how)
    given = {"mask": some_mask(I, J), "scale": 0.4}
    if attend is not blocked_attention:
        given["bias"] = some_bias(I, J)
    actual = RotaryAttention(attend, **how)(**tensors, **given)
    assert_same(actual, naive_attention(**turned, **given))


def test_positions_can_be_given_for_each_item(attend):
    places = {
        "query_positions": torch.randint(50, (B, 1, I)),
        "key_positions": torch.randint(50, (B, 1, J)),
    }
    tensors, turned = turned_inputs(**places)
    assert_same(RotaryAttention(attend)(**tensors, **places), naive_attention(**turned))


@pytest.mark.parametrize("which", ["query_positions", "key_positions"])
def test_positions_of_one_side_can_be_given_alone(which):
    places = {which: torch.tensor([3])}
    tensors, turned = turned_inputs(**places)
    assert_same(RotaryAttention()(**tensors, **places), naive_attention(**turned))


def test_a_query_alone_gets_what_it_gets_among_all(attend):
    tensors = inputs(B, H, i=J, d=D)
    turned = RotaryAttention(attend)
    whole = turned(**tensors, mask=causal_mask(J))
    newest = {**tensors, "query": tensors["query"][..., -2:, :]}
    assert_same(turned(**newest, mask=causal_mask(2, J)), whole[..., -2:, :])


def test_a_shift_of_the_whole_sequence_changes_nothing(attend):
    tensors, at = inputs(B, H, i=J, d=D), torch.arange(J)
    turned = RotaryAttention(attend)
    moved = turned(**tensors, query_positions=at + 1000, key_positions=at + 1000)
    torch.testing.assert_close(moved, turned(**tensors), rtol=0, atol=1e-10)


def test_padding_in_front_needs_no_positions(attend):
    layer, x = layer_with(RotaryAttention(attend)), some(1, N, M)
    padded = torch.cat([some(1, 4, M), x], dim=1)
    mask = padding_mask([N], N + 4, side="left") & causal_mask(N + 4)
    alone = layer(x, mask=causal_mask(N))
    torch.testing.assert_close(layer(padded, mask=mask)[:, 4:], alone, rtol=0, atol=1e-10)


def test_packed_documents_need_no_positions(attend):
    layer, one, other = layer_with(RotaryAttention(attend)), some(1, N, M), some(1, 4, M)
    documents = torch.tensor([0] * N + [1] * 4)
    packed = layer(torch.cat([one, other], dim=1), mask=document_mask(documents))
    expected = torch.cat([layer(one), layer(other)], dim=1)
    torch.testing.assert_close(packed, expected, rtol=0, atol=1e-10)


def test_rotated_self_attention_sees_the_order():
    layer, plain = layer_with(RotaryAttention()), layer_with(fused_attention)
    plain.load_state_dict(layer.state_dict())
    x, order = some(B, N, M), torch.randperm(N)
    assert_same(plain(x[:, order]), plain(x)[:, order])
    assert (layer(x[:, order]) - layer(x)[:, order]).abs().max() > 0.01


@pytest.mark.parametrize("build", [SingleHeadAttention, MultiHeadAttention])
def test_returned_weights_are_those_that_made_the_output(build, attend):
    sizes = (M,) if build is SingleHeadAttention else (M, H)
    layer = build(*sizes, attend=RotaryAttention(attend, features=4)).double()
    query, key, mask, bias = some(B, I, M), some(B, J, M), some_mask(B, I, J), some_bias(I, J)
    output, weights = layer(query, key, mask=mask, bias=bias, return_weights=True)
    value = layer.v_proj(key)
    if build is SingleHeadAttention:
        assert_same(output, weights @ value)
    else:
        heads = [weights[:, h] @ v for h, v in enumerate(value.chunk(H, dim=-1))]
        assert_same(output, layer.out_proj(torch.cat(heads, dim=-1)))
    assert (weights[~mask] if build is SingleHeadAttention else weights[:, 0][~mask]).eq(0).all()


def test_weights_take_what_the_call_takes():
    places = {"query_positions": torch.tensor([9]), "key_positions": torch.arange(J) * 2}
    tensors, turned = turned_inputs(**places, pairing="neighbours")
    given = {"mask": some_mask(I, J), "bias": some_bias(I, J), "scale": 0.3}
    weights = RotaryAttention(pairing="neighbours").weights(
        tensors["query"], tensors["key"], **given, **places
    )
    assert_same(weights, naive_weights(turned["query"], turned["key"], **given))


def test_positions_that_partial_fixes_hold_for_the_weights_too():
    places = {"query_positions": torch.arange(N) * 3, "key_positions": torch.arange(N) * 3}
    layer, x = layer_with(RotaryAttention()), some(B, N, M)
    _, plain = layer(x, return_weights=True)
    layer.attend = partial(layer.attend, **places)
    output, weights = layer(x, return_weights=True)
    assert_same(output, layer(x))
    heads = [weights[:, h] @ v for h, v in enumerate(layer.v_proj(x).chunk(H, dim=-1))]
    assert_same(output, layer.out_proj(torch.cat(heads, dim=-1)))
    assert (weights - plain).abs().max() > 0.001


def test_one_rotation_around_another_adds_up_for_output_and_weights():
    tensors = inputs(B, H, i=J, d=D)
    twice, at = RotaryAttention(RotaryAttention(attention)), torch.arange(J) * 2
    once = RotaryAttention(attention)
    places = {"query_positions": at, "key_positions": at}
    assert_same(twice(**tensors), once(**tensors, **places))
    del tensors["value"]
    assert_same(twice.weights(**tensors), once.weights(**tensors, **places))


# What is plugged in behind it.


def test_rules_reach_a_function_that_takes_them_as_they_are(attend):
    mask, bias = rules.causal(I, J), rules.alibi(H, I, J)
    tensors, turned = turned_inputs()
    assert RotaryAttention(attend).takes_rules
    assert RotaryAttention(partial(attend, scale=1.0)).takes_rules
    actual = RotaryAttention(attend)(**tensors, mask=mask, bias=bias)
    expected = naive_attention(**turned, mask=mask.tensor(), bias=bias.tensor())
    assert_same(actual.float(), expected)  # the slopes of a rule are float32


def test_a_rule_stays_a_rule_on_its_way_through_a_layer():
    seen = []

    def recorded(query, key, value, mask=None, *, bias=None):
        seen.append((mask, bias))
        return value[..., : query.shape[-2], :]

    x, mask, bias = some(B, N, M), rules.causal(N), rules.alibi(H, N)
    layer_with(RotaryAttention(recorded))(x, mask=mask, bias=bias)
    recorded.takes_rules = True
    layer_with(RotaryAttention(recorded))(x, mask=mask, bias=bias)
    (as_tensor, added), (as_rule, added_rule) = seen
    assert torch.equal(as_tensor, causal_mask(N))
    assert added.dtype == torch.float64
    assert as_rule is mask
    assert added_rule is bias


def test_a_short_function_of_a_reader_will_do():
    def reader(query, key, value):
        return (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1) @ value

    tensors, turned = turned_inputs()
    with pytest.raises(TypeError, match="positional argument"):
        RotaryAttention(reader)(**tensors)  # which takes no mask at all

    def with_mask(query, key, value, mask):
        assert mask is None
        return reader(query, key, value)

    assert_same(RotaryAttention(with_mask)(**tensors), naive_attention(**turned))


def test_a_tensor_that_a_reader_keeps_as_weights_is_no_function():
    def reader(query, key, value, mask):
        return attention(query, key, value, mask)

    reader.weights = torch.zeros(3)
    layer, x = layer_with(reader), some(B, N, M)
    output, weights = layer(x, return_weights=True)
    assert_same(output, layer(x))
    assert_same(weights.sum(-1), torch.ones(B, H, N))


def test_a_scale_that_partial_fixes_holds_for_the_weights_too(attend):
    layer = layer_with(partial(attend, scale=0.01))
    x = some(B, N, M)
    output, weights = layer(x, return_weights=True)
    heads = [weights[:, h] @ v for h, v in enumerate(layer.v_proj(x).chunk(H, dim=-1))]
    assert_same(output, layer.out_proj(torch.cat(heads, dim=-1)))


def test_a_scale_of_0_is_a_scale_too():
    tensors = inputs(B, H, d=D)
    mean = tensors["value"].mean(-2, keepdim=True).expand(B, H, I, E)
    assert_same(RotaryAttention()(**tensors, scale=0.0), mean)


def test_what_the_weights_have_no_use_for_is_left_out():
    layer, x = layer_with(partial(blocked_attention, block_size=2)), some(B, N, M)
    plain = layer_with(blocked_attention)
    plain.load_state_dict(layer.state_dict())
    for actual, expected in zip(
        layer(x, return_weights=True), plain(x, return_weights=True), strict=True
    ):
        assert_same(actual, expected)


def test_dropout_reaches_a_function_that_can_drop(dropping):
    layer, x = layer_with(RotaryAttention(dropping), dropout=0.5), some(B, N, M)
    plain = layer.eval()(x)
    assert (layer.train()(x) - plain).abs().max() > 0.01
    tensors, _ = turned_inputs()
    torch.manual_seed(1)
    actual = RotaryAttention(dropping)(**tensors, dropout_p=0.3)
    query, key = RotaryAttention()._rotated(tensors["query"], tensors["key"], None, None)
    torch.manual_seed(1)
    assert_same(actual, dropping(query, key, tensors["value"], dropout_p=0.3))


def test_dropout_in_a_function_that_cannot_drop_is_an_error_that_names_it():
    layer = layer_with(RotaryAttention(blocked_attention), dropout=0.3)
    layer.eval()(some(B, N, M))
    message = "blocked_attention.* has no keyword dropout_p, which dropout = 0.3 needs"
    with pytest.raises(TypeError, match=message):
        layer.train()(some(B, N, M))


# The contract.


def test_a_query_that_may_attend_to_nothing_gets_zeros_and_finite_gradients(attend):
    mask = some_mask(I, J)
    mask[2] = False
    run = with_gradients(partial(RotaryAttention(attend), mask=mask), **inputs(B, H, d=D))
    assert (run["output"][..., 2, :] == 0).all()
    assert (run["query"][..., 2, :] == 0).all()
    assert all(tensor.isfinite().all() for tensor in run.values())


def test_a_key_that_nobody_sees_can_hold_anything(attend):
    mask, tensors = some_mask(I, J), inputs(B, H, d=D)
    mask[:, 4] = False
    expected = with_gradients(partial(RotaryAttention(attend), mask=mask), **tensors)
    for name in ("key", "value"):
        tensors[name][..., 4, :] = torch.nan
    actual = with_gradients(partial(RotaryAttention(attend), mask=mask), **tensors)
    assert_same(actual, expected)


def test_no_keys_no_queries_and_no_items_work(attend):
    turned = RotaryAttention(attend)
    assert (turned(**inputs(B, H, j=0, d=D)) == 0).all()
    assert turned(**inputs(B, H, i=0, d=D)).shape == (B, H, 0, E)
    assert turned(**inputs(0, H, d=D)).shape == (0, H, I, E)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_half_precision_errs_little(attend, dtype):
    tensors = {name: t.to(dtype) for name, t in inputs(B, H, d=D).items()}
    exact = RotaryAttention(attention)(**{name: t.double() for name, t in tensors.items()})
    error = (RotaryAttention(attend)(**tensors).double() - exact).abs().max()
    assert error < 4 * torch.finfo(dtype).eps * exact.abs().max()


# Errors.


def int_input():
    return torch.ones(N, D, dtype=torch.long)


TURN = {
    "x must be a float tensor; got torch.int64": lambda: rotary_embedding(int_input()),
    "x must be a float tensor; got torch.complex64": lambda: rotary_embedding(
        torch.ones(N, D, dtype=torch.complex64)
    ),
    "x needs at least two axes, positions and features; got shape (22,)": lambda: rotary_embedding(
        some(D)
    ),
    "query must be a float tensor; got torch.int64": lambda: RotaryAttention()(
        int_input(), some(J, D), some(J, E)
    ),
    "key needs at least two axes, positions and features; got shape (22,)": lambda: (
        RotaryAttention()(some(I, D), some(D), some(J, E))
    ),
    "features must be even and at least 2, to go in pairs; got 11": lambda: rotary_embedding(
        some(N, 11)
    ),
    "features must be even and at least 2, to go in pairs; got 0": lambda: rotary_embedding(
        some(N, D), features=0
    ),
    "features must be even and at least 2, to go in pairs; got 3": lambda: RotaryAttention(
        features=3
    ),
    "features must be at most the 22 that there are; got 24": lambda: rotary_embedding(
        some(B, H, N, D), features=24
    ),
    'pairing must be "halves" or "neighbours"; got \'interleaved\'': lambda: rotary_embedding(
        some(N, D), pairing="interleaved"
    ),
    'pairing must be "halves" or "neighbours"; got True': lambda: RotaryAttention(pairing=True),
    "base must be positive and finite; got 0": lambda: rotary_embedding(some(N, D), base=0),
    "base must be positive and finite; got nan": lambda: RotaryAttention(base=float("nan")),
    "base must be positive and finite; got inf": lambda: sinusoidal_positions(
        N, M, base=float("inf")
    ),
    "n must be at least 0; got -1": lambda: sinusoidal_positions(-1, M),
    "d_model must be even and at least 2, to go in pairs; got 7": lambda: sinusoidal_positions(
        N, 7
    ),
    "d_model must be even and at least 2, to go in pairs; got 0": lambda: sinusoidal_positions(
        N, 0
    ),
    "positions must be integers or floats; got torch.bool": lambda: rotary_embedding(
        some(N, D), torch.ones(N, dtype=torch.bool)
    ),
    "positions must be integers or floats; got torch.complex64": lambda: rotary_embedding(
        some(N, D), torch.ones(N, dtype=torch.complex64)
    ),
    "positions are on meta, what they rotate is on cpu": lambda: rotary_embedding(
        some(N, D), torch.ones(N, device="meta")
    ),
    "positions of shape (2, 7) do not say which axes they have: for (2, 3, 7) they take rank 1, "
    "for all, or rank 3": lambda: rotary_embedding(some(B, H, N, D), torch.ones(B, N)),
    "positions of shape () do not say which axes they have": lambda: rotary_embedding(
        some(N, D), torch.tensor(3)
    ),
    "positions of shape (6,) must match (2, 3, 7); an axis may be 1": lambda: rotary_embedding(
        some(B, H, N, D), torch.ones(6)
    ),
    "positions of shape (2, 2, 7) must match (2, 3, 7)": lambda: rotary_embedding(
        some(B, H, N, D), torch.ones(B, 2, N)
    ),
    "query_positions of shape (6,) must match (5,)": lambda: RotaryAttention()(
        **inputs(d=D), query_positions=torch.ones(6)
    ),
    "key_positions of shape (6,) must match (7,)": lambda: RotaryAttention()(
        **inputs(d=D), key_positions=torch.ones(6)
    ),
    "mask must be boolean": lambda: RotaryAttention()(**inputs(d=D), mask=torch.ones(I, J)),
    "query and key are compared feature by feature": lambda: RotaryAttention(features=4)(
        some(I, D), some(J, 10), some(J, E)
    ),
}


@pytest.mark.parametrize("message", TURN, ids=lambda message: message[:60])
def test_a_mistake_is_an_error_with_its_numbers(message):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)) as caught:
        TURN[message]()
    is_of_type = "must be a float" in message or "must be boolean" in message
    is_of_type = is_of_type or "integers or floats" in message
    assert caught.type is (TypeError if is_of_type else ValueError)


def test_the_weights_of_a_plain_function_are_those_of_the_formula(attend):
    assert position.plug.weights_of(attend) is attention_weights
