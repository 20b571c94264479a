"""Attention in blocks: one result however the scores are cut, and never all scores at once."""

import math
from functools import partial
from itertools import product
from operator import itemgetter

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mini_attention import attention, blocked_attention, blocks, rules
from mini_attention.memory import peak_bytes
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


@pytest.fixture
def cut(monkeypatch):
    """Cut the scores into pieces of so many queries, keys and heads; the result is a function."""

    def cut_into(queries: int, keys: int, heads: int = 2):
        tile = heads * queries * keys
        monkeypatch.setattr(blocks, "KEYS", keys)
        monkeypatch.setattr(blocks, "TILE", (tile, tile))
        return partial(blocked_attention, block_size=queries)

    return cut_into


def assert_is_attention(function, tensors, mask=None, *, bias=None, reference=attention):
    """Outputs and gradients, that of a bias too, are the reference's, which gets no rules."""
    given, plain = {"mask": mask}, {"mask": mask}
    if isinstance(mask, rules.Rule):
        plain["mask"] = mask.tensor()
    if isinstance(bias, rules.Rule):
        given["bias"], plain["bias"] = bias, bias.tensor().double()
    elif bias is not None:
        tensors = tensors | {"bias": bias}
    expected = with_gradients(partial(reference, **plain), **tensors)
    assert_same(with_gradients(partial(function, **given), **tensors), expected)


# However the scores are cut.


@pytest.mark.parametrize("heads", [1, 4, B * H])
@pytest.mark.parametrize("keys", [1, 3, 100])
@pytest.mark.parametrize("queries", [1, 2, 3, I, 100])
def test_blocks_of_any_size_give_one_result(cut, queries, keys, heads):
    given = {"mask": some_mask(B, 1, I, J), "bias": some_bias(1, H, I, J)}
    assert_is_attention(cut(queries, keys, heads), inputs(B, H), **given)


def documents(*leading: int, n: int):
    return torch.randint(3, (*leading, n)).sort(-1).values


MASKS = {
    "nothing": lambda: None,
    "a mask for all": lambda: some_mask(I, J),
    "a mask for each": lambda: some_mask(B, H, I, J),
    "a mask per head": lambda: some_mask(1, H, I, J),
    "a mask of keys": lambda: some_mask(B, 1, 1, J),
    "a mask of queries": lambda: torch.rand(B, 1, I, 1) > 0.5,
    "one answer for all": lambda: torch.ones(1, 1, dtype=torch.bool),
    "nothing allowed": lambda: torch.zeros(I, J, dtype=torch.bool),
    "a causal rule": lambda: rules.causal(I, J),
    "fewer keys than queries": lambda: rules.window(I, J, before=1, align="start"),
    "a window": lambda: rules.window(I, J, before=2, after=1),
    "lengths": lambda: rules.padding([3, 6], J, side="left").per_item(),
    "documents": lambda: rules.document(documents(B, n=I), documents(B, n=J)).per_item(),
    "unsorted documents": lambda: rules.document(torch.randint(3, (I,)), torch.randint(3, (J,))),
    "documents without keys": lambda: rules.document(torch.arange(I), torch.arange(J) // 3),
    "a rule and a tensor": lambda: rules.causal(I, J) & some_mask(B, 1, 1, J),
    "a rule and answers for queries": lambda: rules.causal(I, J) & (torch.rand(I, 1) > 0.3),
    "two rules": lambda: (rules.window(I, J, before=3) & rules.padding([3, 6], J)).per_item(),
    "a window for one query": lambda: rules.window(1, J, before=2),
    "a window for one key": lambda: rules.window(I, 1, before=1, align="start"),
    "a document for all queries": lambda: rules.document(torch.tensor([1]), documents(n=J)),
}
BIASES = {
    "nothing": lambda: None,
    "a bias for all": lambda: some_bias(I, J),
    "a bias for each": lambda: some_bias(B, H, I, J),
    "a bias of keys": lambda: some_bias(B, 1, 1, J),
    "one number": lambda: some_bias(1, 1),
    "a bias that forbids": lambda: some_bias(H, I, J)[None].masked_fill(
        ~some_mask(I, J), -torch.inf
    ),
    "a bias that forbids queries": lambda: torch.tensor([0, 1, 0, 0, 1.0]).log().double()[:, None],
    "ALiBi": lambda: rules.alibi(H, I, J),
    "ALiBi for one query": lambda: rules.alibi(H, 1, J),
}


PAIRS = [(mask, bias) for mask in MASKS for bias in ("nothing", "a bias that forbids", "ALiBi")]
PAIRS += [(mask, bias) for mask in ("nothing", "a rule and a tensor") for bias in BIASES]


@pytest.mark.parametrize(("mask", "bias"), sorted({*PAIRS}))
def test_masks_and_biases_of_every_kind_hold_in_each_block(cut, mask, bias):
    assert_is_attention(cut(2, 3), inputs(B, H), MASKS[mask](), bias=BIASES[bias]())


@pytest.mark.parametrize("mask", MASKS)
def test_blocks_of_the_size_that_is_chosen_give_the_same(mask):
    assert_is_attention(blocked_attention, inputs(B, H), MASKS[mask]())


BIAS_SHAPES = [
    *((I, J), (1, J), (I, 1), (1, 1)),
    *((B, H, I, J), (1, H, I, J), (B, 1, 1, J), (B, 1, I, 1), (1, H, 1, 1), (1, 1, 1, 1)),
]


@pytest.mark.parametrize("shape", BIAS_SHAPES, ids=str)
def test_the_gradient_of_a_bias_is_summed_over_all_that_share_it(cut, shape):
    bias, mask = some_bias(*shape), some_mask(I, J)
    assert_is_attention(cut(2, 3), inputs(B, H), mask, bias=bias, reference=naive_attention)


def test_values_may_have_axes_that_neither_scores_nor_bias_have(cut):
    tensors = inputs(H) | {"value": inputs(2, B, H)["value"]}
    assert_is_attention(cut(2, 3, 5), tensors, bias=some_bias(H, I, J))


def test_five_leading_axes_count_as_one(cut):
    tensors = {
        "query": inputs(B, 1, H, 1, 2)["query"],
        "key": inputs(1, 2, 1, 3, 1)["key"],
        "value": inputs(H, 3, 1)["value"],
    }
    mask, bias = some_mask(B, 1, 1, 3, 1, 1, J), some_bias(1, 2, H, 1, 2, I, 1)
    assert_is_attention(cut(2, 3, 7), tensors, mask, bias=bias)


def test_heads_may_share_keys_in_groups(cut):
    tensors = inputs(B, 2, 1) | {"query": inputs(B, 2, H)["query"]}
    assert_is_attention(cut(2, 3, 4), tensors, some_mask(B, 1, 1, I, J))


@pytest.mark.parametrize("sizes", [{"d": E, "e": D}, {"e": 1}, {"d": 1}, {"i": 17}, {"j": 19}])
def test_sizes_may_differ(cut, sizes):
    assert_is_attention(cut(3, 4), inputs(B, H, **sizes))


def test_float64_is_exact_over_many_pieces(cut):
    tensors, mask = inputs(2, i=101, j=211), rules.window(101, 211, before=150)
    assert_is_attention(cut(7, 13, 3), tensors, mask, bias=some_bias(2, 101, 211))


@pytest.mark.parametrize("first", [0, 1000.0, -1000.0])
def test_pieces_of_very_different_scores_are_merged(cut, first):
    tensors, bias = inputs(), torch.zeros(I, J, dtype=torch.float64)
    bias[:, :3] = first
    expected = with_gradients(partial(naive_attention, bias=bias), **tensors)
    actual = with_gradients(partial(cut(2, 3), bias=bias), **tensors)
    assert_same(actual, expected, largest_score=abs(first))


@pytest.mark.parametrize("hidden", [slice(0, 3), slice(3, 6), slice(6, 7)])
def test_a_piece_with_nothing_allowed_adds_nothing(cut, hidden):
    mask = torch.ones(I, J, dtype=torch.bool)
    mask[2, hidden] = False
    assert_is_attention(cut(5, 3), inputs(B, H), mask)


@pytest.mark.parametrize("side", [{"before": 6}, {"before": 1, "after": 8}, {"before": None}])
def test_a_piece_may_lie_on_either_side_of_the_keys_that_all_queries_see(cut, side):
    assert_is_attention(cut(4, 2), inputs(i=17, j=19), rules.window(17, 19, **side))


@pytest.mark.parametrize("b", [1, B])
@pytest.mark.parametrize("by", [(0, 1, 2), (0, 1, 2, 3)], ids=["no bias", "the bias too"])
def test_vmap_goes_through_its_items_one_by_one(cut, by, b):
    query, key, value = inputs(b, H).values()
    bias, function = some_bias(I, J), cut(2, 3)

    def loss(query, key, value, bias):
        return function(query, key, value, bias=bias).square().sum()

    gradient = torch.func.grad(loss, by)
    mapped = torch.func.vmap(gradient, (0, None, 1, None))(query, key[0], value.movedim(0, 1), bias)
    each = [gradient(query[item], key[0], value[item], bias) for item in range(b)]
    for actual, expected in zip(mapped, zip(*each, strict=True), strict=True):
        assert_same(actual, torch.stack(expected))


# What no key or bias can do.


@pytest.mark.parametrize("junk", [torch.nan, torch.inf])
@pytest.mark.parametrize("by", ["a rule", "a rule and a tensor", "a bias"])
def test_keys_that_nobody_sees_can_hold_anything(cut, by, junk):
    real = torch.arange(J) < 4
    given = {
        "a rule": {"mask": rules.padding([4, 4], J).per_item()},
        "a rule and a tensor": {"mask": rules.window(I, J, before=None, after=None) & real[None]},
        "a bias": {"bias": torch.zeros(1, J).double().masked_fill(~real, -torch.inf)},
    }[by]
    tensors = inputs(B, H)
    expected = with_gradients(
        attention, **{n: x if n == "query" else x[:, :, :4] for n, x in tensors.items()}
    )
    tensors["key"][:, :, 4:] = tensors["value"][:, :, 4:] = junk
    actual = with_gradients(partial(cut(2, 3), **given), **tensors)
    for name in ("key", "value"):
        assert not actual[name][:, :, 4:].any()
        actual[name] = actual[name][:, :, :4]
    assert_same(actual, expected)


@pytest.mark.parametrize("end", ["min", "max"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_the_lowest_and_the_largest_bias_there_are_forbid_nothing(cut, dtype, end):
    tensors = inputs(B, H, dtype=dtype)
    bias = torch.full((I, J), getattr(torch.finfo(dtype), end), dtype=dtype)
    mean = tensors["value"].double().mean(-2, keepdim=True).expand(B, H, I, E).to(dtype)
    torch.testing.assert_close(cut(2, 3)(**tensors, bias=bias), mean)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("sign", [1, -1])
def test_biases_up_to_half_of_the_largest_number_are_told_apart(cut, dtype, sign):
    tensors, half = inputs(B, H, dtype=dtype), torch.finfo(dtype).max / 2
    bias = torch.full((I, J), sign * half, dtype=dtype)
    bias[:, 3] = bias[:, 4] = 0.9 * sign * half
    chosen = [3, 4] if sign < 0 else [0, 1, 2, 5, 6]
    mean = tensors["value"][:, :, chosen].mean(-2, keepdim=True).expand(B, H, I, E)
    assert_same(cut(2, 3)(**tensors, bias=bias), mean)


def test_nan_in_a_bias_stays_in_its_row(cut):
    tensors, bias = inputs(B, H), torch.zeros(I, J, dtype=torch.float64)
    bias[1], bias[3] = torch.nan, -torch.inf
    output = cut(2, 3)(**tensors, bias=bias)
    assert output[:, :, 1].isnan().all()
    assert not output[:, :, 3].any()
    assert_same(output[:, :, ::2], attention(**tensors)[:, :, ::2])


# What is refused.


@pytest.mark.parametrize("block_size", [0, -3])
def test_a_block_holds_a_query_at_least(block_size):
    with pytest.raises(ValueError, match=f"^block_size must be at least 1; got {block_size}$"):
        blocked_attention(**inputs(), block_size=block_size)


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("by", ["query", "key", "value", "bias"])
def test_a_gradient_penalty_is_an_error(by, learned):
    tensors = inputs(B, H) | {"bias": some_bias(I, J)}
    tensors = {name: tensor.requires_grad_() for name, tensor in tensors.items()}
    output = blocked_attention(**tensors)
    upstream = torch.ones_like(output, requires_grad=learned)
    (gradient,) = torch.autograd.grad(output, tensors[by], upstream, create_graph=True)
    message = "^blocked_attention has no second derivative; differentiate attention twice instead$"
    with pytest.raises(RuntimeError, match=message):
        (output.sum() + gradient.square().sum()).backward()


def test_there_is_no_dropout():
    with pytest.raises(TypeError, match="unexpected keyword argument 'dropout_p'"):
        blocked_attention(**inputs(), dropout_p=0.1)


# Where it is computed.


@pytest.mark.parametrize("bias", ["nothing", "a bias for each", "a bias that forbids", "ALiBi"])
@pytest.mark.parametrize("mask", ["nothing", "a window", "a mask for each", "two rules"])
def test_what_is_made_is_made_where_the_inputs_are(cut, mask, bias):
    function, tensors, given = cut(2, 3), inputs(B, H), BIASES[bias]()
    function = partial(function, mask=MASKS[mask]())
    if isinstance(given, torch.Tensor):
        tensors["bias"] = given
    else:
        function = partial(function, bias=given)
    expected = with_gradients(function, **tensors)
    assert_same(with_another_default(function, **tensors), expected)


# How it is cut unless somebody says so: in another way the numbers are the same, and slower.


def layout_of(count: int, i: int, j: int, mask=None, bias=None, rows=None) -> blocks.Layout:
    query, key = (torch.empty(count, n, 1, device="meta") for n in (i, j))
    return blocks.Layout.of(query, key, torch.Size([count]), mask, bias, rows)


SIZES = {  # heads, queries, keys, whether there is a mask: queries and heads at a time
    "all fit": ((1, 100, 100, False), (256, 1)),
    "many keys": ((8, 1024, 1024, False), (256, 1)),
    "a mask is followed closely": ((8, 1024, 1024, True), (64, 4)),
    "less closely by more keys": ((8, 1025, 1025, True), (128, 1)),
    "a row of scores is cut": ((1, 9000, 9000, False), (64, 1)),
    "20 scores a query": ((1, 20_000, 4096, False), (97, 1)),
    "one key and many heads": ((2000, 1, 1, False), (256, 1024)),
    "no keys": ((3, 5, 0, False), (256, 3)),
}


@pytest.mark.parametrize("case", SIZES)
def test_blocks_have_the_sizes_that_were_fastest(case):
    (count, i, j, masked), expected = SIZES[case]
    layout = layout_of(count, i, j, rules.causal(i, j) if masked else None)
    assert (layout.rows, layout.heads) == expected


@pytest.mark.parametrize(("i", "j"), list(product([1, 300, 5000, 40_000], repeat=2)))
@pytest.mark.parametrize("count", [1, 12, 5000])
@pytest.mark.parametrize("masked", [False, True])
def test_scores_at_a_time_cost_a_query_no_more_than_20(count, i, j, masked):
    layout = layout_of(count, i, j, rules.causal(i, j) if masked else None)
    assert layout.tile <= min(max(20 * count * i, 2**18), 2**19)


ORDERS = {
    "nothing": (None, None, "heads"),
    "a window": (rules.window(I, J, before=2), None, "heads"),
    "a tensor": (rules.Stored(torch.ones(I, J, dtype=torch.bool)), None, "queries"),
    "ALiBi": (None, rules.alibi(4, I, J), "queries"),
    "a window and ALiBi": (rules.window(I, J, before=2), rules.alibi(4, I, J), "queries"),
}


@pytest.mark.parametrize("case", ORDERS)
def test_what_is_much_to_remember_is_made_once_for_all_heads(cut, case):
    mask, bias, first = ORDERS[case]
    cut(2, 3)
    layout = layout_of(4, I, J, mask, bias, rows=2)
    order = [(heads.start, queries.start) for heads, queries, _ in layout]
    expected = list(product([0, 2], [0, 2, 4]))
    assert order == sorted(expected, key=itemgetter(0 if first == "heads" else 1))


def test_a_mask_is_asked_about_no_pair_that_its_reach_has_answered(cut):
    asked = []

    class Asked(rules.Window):
        def block(self, queries, keys, device=None):
            asked.append(len(queries) * len(keys))
            return super().block(queries, keys, device)

    tensors = inputs(i=101, j=101)
    cut(7, 13)(**tensors, mask=Asked((101, 101), first=0, before=None, after=0))
    assert sum(asked) == 14 * (7 * 6) + 3 * 2  # of 14 squares on the diagonal, and of a smaller one


# What is computed, and what is never there.


class Watch(TorchDispatchMode):
    """Sees every tensor that an operation returns, and counts the multiply-adds of products."""

    def __init__(self):
        super().__init__()
        self.largest = 0  # bytes
        self.multiply_adds = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        made = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
        self.largest = max([self.largest, *(x.untyped_storage().nbytes() for x in made)])
        if operation.overloadpacket in (
            torch.ops.aten.bmm, torch.ops.aten.baddbmm, torch.ops.aten.baddbmm_
        ):  # fmt: skip
            one, other = args[-2:]
            self.multiply_adds += one.numel() * other.shape[-1]
        return result


def watched(mask=None, *, bias=None, n: int, block_size=None) -> Watch:
    """What a forward and a backward pass over n positions do."""
    tensors = inputs(1, 1, i=n, j=n, d=2, e=3, dtype=torch.float32)
    function = partial(blocked_attention, mask=mask, bias=bias, block_size=block_size)
    with Watch() as watch:
        with_gradients(function, **tensors)
    return watch


# For each pair forward d + e multiply-adds, backward 3 d + 2 e.
PER_PAIR = 4 * 2 + 3 * 3


def test_every_pair_of_a_block_is_multiplied_seven_times():
    assert watched(n=101, block_size=7).multiply_adds == 101 * 101 * PER_PAIR


def test_blocks_in_the_future_are_not_computed():
    pairs = sum(min(7, 101 - i) * min(i + 7, 101) for i in range(0, 101, 7))
    watch = watched(rules.causal(101), n=101, block_size=7)
    assert watch.multiply_adds == pairs * PER_PAIR


def test_a_tensor_that_is_causal_saves_the_same_blocks():
    mask = rules.causal(101)
    by_tensor = watched(mask.tensor(), n=101, block_size=7)
    assert by_tensor.multiply_adds == watched(mask, n=101, block_size=7).multiply_adds


def test_keys_that_left_the_window_are_not_computed():
    pairs = sum(min(7, 101 - i) * (min(i + 7, 101) - max(i - 10, 0)) for i in range(0, 101, 7))
    watch = watched(rules.window(101, before=10), n=101, block_size=7)
    assert watch.multiply_adds == pairs * PER_PAIR


def test_other_documents_are_not_computed():
    packed = rules.document(torch.arange(100) // 20)
    watch = watched(packed, n=100, block_size=10)
    assert watch.multiply_adds == 100 * 20 * PER_PAIR


def test_nothing_is_computed_where_nothing_is_allowed():
    nothing = rules.causal(101) & rules.padding([0], 101)
    assert watched(nothing.per_item(), n=101).multiply_adds == 0


LONG = {
    "nothing": lambda n: {},
    "causal": lambda n: {"mask": rules.causal(n)},
    "documents in a window": lambda n: {
        "mask": rules.document(torch.arange(n) // 700) & rules.window(n, before=500)
    },
    "ALiBi": lambda n: {"bias": rules.alibi(1, n)},
}


@pytest.mark.parametrize("case", LONG)
def test_no_tensor_of_all_pairs_is_ever_made(case):
    n = 3001
    assert 0 < watched(**LONG[case](n), n=n).largest < n * n / 2  # bytes: half of the smallest mask


# Memory, exact to the byte.


def peak_of_gradients(function, n: int) -> int:
    """The peak of a forward and a backward pass of 8 heads of 64 features."""
    *leaves, upstream = (torch.randn(1, 8, n, 64, requires_grad=True) for _ in range(4))
    return peak_bytes(lambda: torch.autograd.grad(function(*leaves), leaves, upstream))


@pytest.mark.slow
@pytest.mark.parametrize("n", [1024, 2048])
def test_memory_is_that_of_the_fused_kernel(n):
    kernel = peak_of_gradients(F.scaled_dot_product_attention, n)
    assert peak_of_gradients(blocked_attention, n) < 1.3 * kernel


@pytest.mark.slow
def test_no_gradient_is_made_of_a_bias_that_needs_none():
    *leaves, upstream = (torch.randn(1500, 8, requires_grad=True) for _ in range(4))
    bias = torch.randn(1500, 1500)

    def gradients():
        return torch.autograd.grad(blocked_attention(*leaves, bias=bias), leaves, upstream)

    assert peak_bytes(gradients) < bias.nbytes / 2


@pytest.mark.slow
def test_memory_grows_with_the_length_and_not_with_its_square():
    def near(query, key, value):  # few pairs, so that long sequences do not take long
        return blocked_attention(query, key, value, rules.window(len(query[0, 0]), before=0))

    short, long = peak_of_gradients(near, 1024), peak_of_gradients(near, 16_384)
    assert math.log(long / short) / math.log(16) == pytest.approx(1, abs=0.05)


def test_scores_are_finite_as_far_as_the_docstring_says():
    key, value = torch.tensor([[2.3e38], [0.0]]), torch.tensor([[1.0], [2.0]])
    largest = blocked_attention(torch.ones(1, 1), key, value, scale=1.0)
    assert largest.item() == attention(torch.ones(1, 1), key, value, scale=1.0).item() == 1
    beyond = blocked_attention(torch.ones(1, 1), 1.1 * key, value, scale=1.0)
    assert not beyond.isfinite()  # else the docstring promises too little
