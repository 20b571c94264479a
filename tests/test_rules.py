"""Rules: each block is that of the tensor they stand for, and the tensor is never needed."""

import re
from functools import partial
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from mini_attention import (
    MultiHeadAttention,
    SingleHeadAttention,
    attention,
    attention_scores,
    attention_weights,
    blocked_attention,
    causal_mask,
    document_mask,
    fused_attention,
    padding_mask,
    rules,
    window_mask,
)
from mini_attention.contract import takes_rules
from mini_attention.rules import BiasRule, MaskRule, positions
from tests.oracles import (
    B,
    H,
    I,
    J,
    assert_same,
    inputs,
    some_bias,
    some_mask,
    with_another_default,
    with_gradients,
)
from tests.strategies import lengths, random_mask, seeds

META = torch.device("meta")


def table(i: int, j: int, allowed) -> torch.Tensor:
    """Ask `allowed(query, key)` for each pair of positions."""
    rows = [[allowed(query, key) for key in range(j)] for query in range(i)]
    return torch.tensor(rows, dtype=torch.bool).reshape(i, j)


class EverySecond(MaskRule):
    """A reader's own rule, which knows nothing but its blocks."""

    def block(self, queries, keys, device=None):
        i, j = positions(queries, keys, device)
        return (i - j) % 2 == 0


class Nearer(BiasRule):
    """A reader's own bias."""

    def block(self, queries, keys, device=None):
        i, j = positions(queries, keys, device)
        return 1.0 / (1 + (i - j).abs())


class Distance(BiasRule):
    """Another one, of whole numbers."""

    def block(self, queries, keys, device=None):
        i, j = positions(queries, keys, device)
        return -(i - j).abs()


# What they say, pair by pair.

sides = st.sampled_from(("right", "left"))
aligned = st.sampled_from(("end", "start"))
steps = st.sampled_from((None, 0, 1, 2, 4))
numbers = st.integers(0, 2)


@st.composite
def windows(draw, i: int, j: int):
    """A window, and what it says of a pair."""
    before, after, align = draw(steps), draw(steps), draw(aligned)
    shift = j - i if align == "end" else 0

    def near(query, key):
        earlier = query + shift - key
        return (before is None or earlier <= before) and (after is None or -earlier <= after)

    return rules.window(i, j, before=before, after=after, align=align), table(i, j, near)


@st.composite
def paddings(draw, i: int, j: int):
    real, side = draw(st.lists(st.integers(0, j), max_size=3)), draw(sides)
    items = [
        table(1, j, lambda _, key, n=n: key < n if side == "right" else key >= j - n) for n in real
    ]
    expected = torch.stack(items) if items else torch.ones(0, 1, j, dtype=torch.bool)
    return rules.padding(real, j, side=side), expected


@st.composite
def packed(draw, i: int, j: int):
    documents, of_keys = (draw(st.lists(numbers, min_size=n, max_size=n)) for n in (i, j))
    rule = rules.document(torch.tensor(documents).long(), torch.tensor(of_keys).long())
    return rule, table(i, j, lambda query, key: documents[query] == of_keys[key])


@st.composite
def tensors(draw, i: int, j: int):
    torch.manual_seed(draw(seeds))
    shape = draw(st.sampled_from([(i, j), (2, i, j), (2, 1, j), (i, 1), (1, 1)]))
    mask = random_mask(shape, draw(st.sampled_from((0.5, 0.9, 0.1, 0.0, 1.0))))
    return rules.Stored(mask), mask


@st.composite
def finites(draw, i: int, j: int):
    _, mask = draw(tensors(i, j))
    return rules.Finite(torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)), mask


def own(i: int, j: int):
    return st.just((EverySecond((i, j)), table(i, j, lambda query, key: (query - key) % 2 == 0)))


KINDS = {
    "window": windows,
    "padding": paddings,
    "document": packed,
    "a tensor": tensors,
    "a bias": finites,
    "a reader's own": own,
}


@st.composite
def combined(draw, i: int, j: int):
    """One rule, or two of them joined by `&`: the rule, and its tensor by other means."""
    kinds = st.sampled_from([windows, packed, paddings, tensors, finites, own])
    rule, mask = draw(draw(kinds)(i, j))
    if draw(st.booleans()):
        other, other_mask = draw(draw(kinds)(i, j))
        if len(mask) == len(other_mask) or 2 in (mask.ndim, other_mask.ndim):
            as_tensor = draw(st.sampled_from(("neither", "one", "other")))
            one = mask if as_tensor == "one" else rule
            rule = one & (other_mask if as_tensor == "other" else other)
            mask = mask & other_mask
    return rule, mask


rules_and_tensors = lengths.flatmap(lambda i: lengths.flatmap(lambda j: combined(i, j)))


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), i=lengths, j=lengths)
def test_the_tensor_of_a_rule_is_its_answer_pair_by_pair(kind, data, i, j):
    rule, expected = data.draw(KINDS[kind](i, j))
    assert rule.ndim == expected.ndim
    assert rule.shape == expected.shape
    assert torch.equal(rule.tensor(), expected)


def spans(n: int) -> list[range]:
    """All stretches of n positions."""
    return [range(start, stop) for start in range(n) for stop in range(start + 1, n + 1)]


@given(pair=rules_and_tensors)
def test_a_block_is_the_part_of_the_tensor(pair):
    rule, mask = pair
    for queries, keys in product(*map(spans, mask.shape[-2:])):
        expected = mask[..., queries.start : queries.stop, keys.start : keys.stop]
        block = rule.block(queries, keys)
        assert block.dtype == torch.bool
        assert torch.equal(block.expand(expected.shape), expected)


@given(pair=rules_and_tensors)
def test_nothing_out_of_reach_is_allowed_and_everything_in_the_sure_part_is(pair):
    rule, mask = pair
    for queries in spans(mask.shape[-2]):
        some, every = rule.reach(queries)
        rows, keys = mask[..., queries.start : queries.stop, :], torch.arange(mask.shape[-1])
        assert not rows[..., (keys < some.start) | (keys >= some.stop)].any()
        assert rows[..., (keys >= every.start) & (keys < every.stop)].all()


@given(data=st.data(), i=lengths, j=lengths)
def test_the_reach_of_a_window_is_no_wider_than_it_must_be(data, i, j):
    rule, mask = data.draw(windows(i, j))
    for queries in spans(i):
        some, every = rule.reach(queries)
        rows = mask[queries.start : queries.stop]
        assert list(some) == rows.any(0).nonzero().flatten().tolist()
        assert list(every) == rows.all(0).nonzero().flatten().tolist()


@given(pair=rules_and_tensors)
def test_the_keys_that_are_seen_are_those_that_some_query_may_attend_to(pair):
    rule, mask = pair
    seen, expected = rule.seen(), mask.any(-2)
    assert seen is None if expected.all() else torch.equal(seen, expected)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_tensor_of_lengths_reaches_as_far_as_their_rule(side):
    rule = rules.padding([3], J, side=side)
    assert rules.Stored(rule.tensor()).reach(range(1)) == rule.reach(range(1))


NOTHING_TO_REACH = {
    "no such document among the keys": lambda: rules.document(
        torch.tensor([5]), torch.tensor([1, 2])
    ),
    "documents of no item": lambda: rules.document(torch.zeros(0, I).long()),
    "a tensor that forbids all": lambda: rules.Stored(torch.zeros(I, J, dtype=torch.bool)),
    "lengths of no item": lambda: rules.padding([], J),
}


@pytest.mark.parametrize("name", NOTHING_TO_REACH)
def test_where_nothing_is_allowed_nothing_is_reached(name):
    some, every = NOTHING_TO_REACH[name]().reach(range(1))
    assert list(some) == list(every) == []


def test_documents_of_items_and_of_keys_alone_broadcast():
    of_items, of_keys = torch.tensor([[[0, 1]], [[1, 1]]]), torch.tensor([[0, 1, 2]] * 3)
    rule = rules.document(of_items, of_keys)
    assert rule.shape == (2, 3, 2, 3)
    expected = of_items[..., :, None] == of_keys[..., None, :]
    assert torch.equal(rule.tensor(), expected)
    assert rules.document(of_keys, of_items).shape == (2, 3, 3, 2)


WINDOWS_THAT_LEAVE_KEYS_OUT = {
    "at the start": (lambda: rules.window(2, 9, before=1, align="start"), range(2)),
    "at the end": (lambda: rules.window(2, 9, before=1), range(6, 9)),
    "in the middle": (lambda: rules.Window((2, 9), first=4, before=1, after=1), range(3, 7)),
    "before all keys": (lambda: rules.Window((2, 9), first=-4, before=None, after=0), range(0)),
    "no query": (lambda: rules.causal(0, 9), range(0)),
}


@pytest.mark.parametrize("where", WINDOWS_THAT_LEAVE_KEYS_OUT)
def test_a_window_sees_the_keys_from_its_first_query_to_its_last(where):
    build, keys = WINDOWS_THAT_LEAVE_KEYS_OUT[where]
    rule = build()
    assert rule.seen().tolist() == [key in keys for key in range(9)]
    assert rule.seen(META).device == META


def test_a_window_that_lies_before_all_keys_reaches_none():
    some, every = rules.Window((2, 9), first=-4, before=None, after=0).reach(range(2))
    assert list(some) == list(every) == []


def test_seen_keys_are_found_over_many_blocks_of_queries():
    rule = rules.window(1000, 2000, before=3, align="start") & rules.causal(1000, 2000)
    assert rule.seen().tolist() == [True] * 1000 + [False] * 1000


class OneSeesAll(MaskRule):
    """All queries see the first key, and one of them sees the others too."""

    def __init__(self, shape, query):
        super().__init__(shape)
        self.query = query

    def block(self, queries, keys, device=None):
        i, j = positions(queries, keys, device)
        return (i == self.query) | (j == 0)


@pytest.mark.parametrize("query", [0, 127, 128, 299])
def test_a_key_is_seen_whichever_query_sees_it(query):
    assert OneSeesAll((300, J), query).seen() is None
    assert OneSeesAll((300, J), 300).seen().tolist() == [True] + [False] * (J - 1)


class StopsAt(MaskRule):
    """Each query stops at a key of its own, of which a list is kept."""

    def __init__(self, stops, j):
        super().__init__((len(stops), j))
        self.stops = stops

    def block(self, queries, keys, device=None):
        _, j = positions(queries, keys, device)
        return j < torch.tensor([[self.stops[query]] for query in queries], device=device)

    def reach(self, queries):
        stops = [self.stops[query] for query in queries]
        return range(max(stops)), range(min(stops))


def test_a_rule_is_asked_about_the_queries_that_it_has(attend):
    tensors = inputs(B, H)
    for rule in (
        StopsAt([4], J),
        StopsAt([2, 3, 3, 4, 6], J),
        StopsAt([4], J) & rules.causal(I, J),
    ):
        assert_same(attend(**tensors, mask=rule), attention(**tensors, mask=rule.tensor()))


@given(h=st.integers(1, 5), i=lengths, j=lengths, align=aligned)
def test_alibi_is_minus_a_slope_times_the_distance(h, i, j, align):
    rule, shift = rules.alibi(h, i, j, align=align), j - i if align == "end" else 0
    assert rule.shape == (1, h, i, j)
    expected = torch.tensor(
        [
            [
                [-(2 ** (-8 * (head + 1) / h)) * abs(q + shift - k) for k in range(j)]
                for q in range(i)
            ]
            for head in range(h)
        ]
    ).reshape(1, h, i, j)
    whole = rule.tensor()
    torch.testing.assert_close(whole, expected)
    for queries, keys in product(spans(i), spans(j)):
        part = whole[..., queries.start : queries.stop, keys.start : keys.stop]
        assert torch.equal(rule.block(queries, keys), part)


MASKS = {
    "causal": (lambda: causal_mask(I, J), lambda: rules.causal(I, J)),
    "window": (
        lambda: window_mask(I, J, before=1, after=2, align="start"),
        lambda: rules.window(I, J, before=1, after=2, align="start"),
    ),
    "padding": (lambda: padding_mask([3, 6], J), lambda: rules.padding([3, 6], J)),
    "document": (
        lambda: document_mask(torch.tensor([[0, 0, 1], [2, 3, 3]])),
        lambda: rules.document(torch.tensor([[0, 0, 1], [2, 3, 3]])),
    ),
}


@pytest.mark.parametrize("name", MASKS)
def test_a_builder_of_masks_returns_the_tensor_of_the_rule(name):
    mask, rule = (build() for build in MASKS[name])
    assert torch.equal(mask, rule.tensor())


# How they combine.


def test_rules_and_tensors_combine_in_either_order():
    rule, mask = rules.causal(I, J), some_mask(B, 1, J)
    expected = causal_mask(I, J) & mask
    for both in (rule & mask, mask & rule, rules.Stored(mask) & rule):
        assert isinstance(both, MaskRule)
        assert torch.equal(both.tensor(), expected)


@pytest.mark.parametrize(
    "other", [True, 1, None, rules.alibi(H, I, J)], ids=["True", "1", "None", "alibi"]
)
def test_a_rule_combines_with_masks_only(other):
    with pytest.raises(TypeError, match="unsupported operand"):
        rules.causal(I, J) & other
    with pytest.raises(TypeError, match="unsupported operand"):
        other & rules.causal(I, J)


def test_biases_do_not_combine():
    with pytest.raises(TypeError, match="unsupported operand"):
        rules.alibi(H, I, J) & rules.alibi(H, I, J)


def test_rules_that_do_not_broadcast_do_not_combine():
    with pytest.raises(RuntimeError, match="broadcast"):
        rules.causal(I, J) & rules.causal(J, I)


PER_ITEM = {
    "lengths": lambda: rules.padding([3, 6], J),
    "documents": lambda: rules.document(torch.tensor([[0, 1, 1], [2, 2, 3]])),
    "a reader's mask": lambda: EverySecond((B, I, J)),
    "a reader's bias": lambda: Nearer((B, I, J)),
}


@pytest.mark.parametrize("name", PER_ITEM)
def test_a_rule_per_item_holds_for_every_head(name):
    rule = PER_ITEM[name]()
    per_item = rule.per_item()
    assert isinstance(per_item, MaskRule if isinstance(rule, MaskRule) else BiasRule)
    assert per_item.shape == (B, 1, *rule.shape[1:])
    assert torch.equal(per_item.tensor(), rule.tensor().unsqueeze(1))


def test_a_rule_per_item_reaches_as_far_as_the_rule():
    rule = rules.padding([3, 6], J)
    assert rule.per_item().reach(range(2)) == rule.reach(range(2)) == (range(6), range(3))


# Where they live.

DEVICES = {
    "causal": (lambda: rules.causal(I, J), None),
    "alibi": (lambda: rules.alibi(H, I, J), None),
    "padding": (lambda: rules.Padding(torch.tensor([3, 6], device=META), J, "right"), META),
    "document": (lambda: rules.document(torch.zeros(I, dtype=torch.long, device=META)), META),
    "a tensor": (lambda: rules.Stored(some_mask(I, J).to(META)), META),
    "a bias": (lambda: rules.Finite(some_bias(I, J).to(META)), META),
    "both": (lambda: rules.causal(I, J) & some_mask(I, J).to(META), META),
    "per item": (lambda: Nearer((B, I, J)).per_item(), None),
    "lengths per item": (
        lambda: rules.Padding(torch.tensor([3, 6], device=META), J, "right").per_item(),
        META,
    ),
}


@pytest.mark.parametrize("name", DEVICES)
def test_the_device_of_a_rule_is_that_of_the_tensors_it_keeps(name):
    build, device = DEVICES[name]
    rule = build()
    assert rule.device == device
    assert rule.tensor(META).device == META


def test_a_rule_without_tensors_goes_to_any_device():
    tensors = {name: tensor.to(META) for name, tensor in inputs(B, H).items()}
    assert attention(**tensors, mask=rules.causal(I, J), bias=rules.alibi(H, I, J)).is_meta
    assert rules.causal(I, J).tensor().device == torch.device("cpu")


@pytest.mark.parametrize("name", ["causal", "lengths", "a rule and a tensor", "a reader's own"])
def test_a_mask_is_made_where_the_query_is(attend, name):
    function, tensors = partial(attend, mask=MASK_RULES[name]()), inputs(B, H)
    expected = with_gradients(function, **tensors)
    assert_same(with_another_default(function, **tensors), expected)


@pytest.mark.parametrize("name", ["ALiBi", "a reader's own"])
def test_a_bias_is_made_where_the_query_is(attend, name):
    function, tensors = partial(attend, bias=BIAS_RULES[name]()), inputs(B, H)
    expected = with_gradients(function, **tensors)
    assert_same(with_another_default(function, **tensors), expected)


def test_the_keys_that_are_seen_are_found_on_the_device_that_is_asked_for():
    own = EverySecond((1, J))
    for rule in (own, own & (torch.arange(J) > 2)[None], rules.causal(I, J) & own):
        expected = rule.seen()
        with META:
            assert torch.equal(rule.seen("cpu"), expected)


def test_a_rule_on_another_device_is_an_error(attend):
    rule = rules.causal(I, J) & some_mask(I, J).to(META)
    with pytest.raises(ValueError, match="mask must be on the device of query, cpu; got meta"):
        attend(**inputs(B, H), mask=rule)


# Functions take them wherever they take a mask or a bias.

MASK_RULES = {
    "causal": lambda: rules.causal(I, J),
    "lengths": lambda: rules.padding([3, 6], J).per_item(),
    "a rule and a tensor": lambda: rules.causal(I, J) & some_mask(B, H, I, J),
    "a reader's own": lambda: EverySecond((I, J)),
    "a reader's own per item": lambda: EverySecond((B, 1, I, J)),
}
BIAS_RULES = {
    "ALiBi": lambda: rules.alibi(H, I, J),
    "a reader's own": lambda: Nearer((I, J)),
    "whole numbers": lambda: Distance((I, J)),
}


@pytest.mark.parametrize("name", MASK_RULES)
def test_a_rule_masks_as_its_tensor_does(attend, name):
    rule, tensors = MASK_RULES[name](), inputs(B, H)
    expected = with_gradients(partial(attention, mask=rule.tensor()), **tensors)
    assert_same(with_gradients(partial(attend, mask=rule), **tensors), expected)


@pytest.mark.parametrize("name", BIAS_RULES)
def test_a_rule_adds_what_its_tensor_adds(attend, name):
    rule, tensors = BIAS_RULES[name](), inputs(B, H)
    expected = with_gradients(partial(attention, bias=rule.tensor().double()), **tensors)
    assert_same(with_gradients(partial(attend, bias=rule), **tensors), expected)


def test_a_rule_of_one_query_or_key_holds_for_all(attend):
    tensors = inputs(B, H)
    for rule in (rules.window(1, J, before=2), rules.causal(I, 1, align="start"), rules.causal(1)):
        assert_same(attend(**tensors, mask=rule), attention(**tensors, mask=rule.tensor()))


def test_scores_and_weights_take_rules_too():
    query, key, _ = inputs(B, H).values()
    mask, bias = rules.causal(I, J), rules.alibi(H, I, J)
    stored = bias.tensor().double()
    assert_same(attention_scores(query, key, bias=bias), attention_scores(query, key, bias=stored))
    assert_same(
        attention_weights(query, key, mask, bias=bias),
        attention_weights(query, key, mask.tensor(), bias=stored),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_bias_that_is_a_rule_takes_the_dtype_of_the_query(attend, dtype):
    output = attend(**inputs(B, H, dtype=dtype), bias=rules.alibi(H, I, J))
    assert output.dtype == dtype


class Sizes(TorchDispatchMode):
    """Remembers how many elements every tensor has that an operation returns."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        made = result if isinstance(result, tuple | list) else [result]
        self.seen |= {x.numel() for x in made if isinstance(x, torch.Tensor)}
        return result


def test_the_kernel_gets_a_causal_rule_by_name_and_makes_no_mask():
    tensors, rule = inputs(B, H, i=J), rules.causal(J)
    expected = with_gradients(partial(attention, mask=rule.tensor()), **tensors)
    with Sizes() as sizes:
        actual = with_gradients(partial(fused_attention, mask=rule), **tensors)
    assert_same(actual, expected)
    assert sizes.seen
    assert J * J not in sizes.seen


def test_the_smallest_square_has_that_name_too_but_a_single_pair_has_not():
    assert rules.causal(2).is_causal_square
    assert not rules.causal(1).is_causal_square  # which may stand for masks of any size


NOT_BY_NAME = {
    "fewer queries than keys": (I, lambda: rules.causal(I, J), {}),
    "a window": (J, lambda: rules.window(J, before=3), {}),
    "two rules": (J, lambda: rules.causal(J) & rules.causal(J), {}),
    "a bias": (J, lambda: rules.causal(J), {"bias": torch.zeros(J, J).double()}),
}


@pytest.mark.parametrize("case", NOT_BY_NAME)
def test_the_kernel_gets_a_tensor_where_it_has_no_name_for_the_rule(case):
    i, build, options = NOT_BY_NAME[case]
    tensors, rule = inputs(B, H, i=i), build()
    with Sizes() as sizes:
        actual = fused_attention(**tensors, mask=rule, **options)
    assert_same(actual, attention(**tensors, mask=rule.tensor(), **options))
    assert i * J in sizes.seen


def test_a_causal_rule_of_another_size_is_an_error(attend):
    with pytest.raises(ValueError, match=r"mask of shape \(5, 5\) must match scores of shape"):
        attend(**inputs(B, H), mask=rules.causal(I))


# Layers.

M = 12


def many_heads(**options):
    return MultiHeadAttention(M, H, **options).double()


def one_head(**options):
    return SingleHeadAttention(M, 5, **options).double()


@pytest.fixture(params=[one_head, many_heads], ids=["one head", "many heads"])
def build(request):
    return request.param


def plain(query, key, value, mask=None, *, bias=None):
    """A reader's function, which has never heard of rules."""
    assert not isinstance(mask, rules.Rule)
    assert not isinstance(bias, rules.Rule)
    return attention(query, key, value, mask, bias=bias)


FUNCTIONS = {
    "formula": attention,
    "kernel": fused_attention,
    "blocks": blocked_attention,
    "small blocks": partial(partial(blocked_attention, block_size=2), scale=None),
    "a reader's": plain,
    "part of a reader's": partial(plain),
}
LAYER_RULES = {
    "for all": lambda: (rules.causal(I, J), Nearer((I, J))),
    "per item": lambda: (rules.padding([3, 6], J), Nearer((B, I, J))),
    "per head": lambda: (EverySecond((B, H, I, J)), rules.alibi(H, I, J)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("rank", LAYER_RULES)
def test_a_layer_takes_rules_of_every_rank(name, rank):
    layer, (mask, bias) = many_heads(attend=FUNCTIONS[name]), LAYER_RULES[rank]()
    x, y = (torch.randn(B, n, M, dtype=torch.float64) for n in (I, J))
    output, weights = layer(x, y, mask=mask, bias=bias, return_weights=True)
    given = {"mask": mask.tensor(), "bias": bias.tensor().double()}
    layer.attend = attention
    expected, expected_weights = layer(x, y, **given, return_weights=True)
    assert_same(output, expected)
    assert_same(weights, expected_weights)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("rank", ["for all", "per item"])
def test_a_single_head_takes_rules_of_two_and_three_axes(name, rank):
    layer, (mask, bias) = one_head(attend=FUNCTIONS[name]), LAYER_RULES[rank]()
    x, y = (torch.randn(B, n, M, dtype=torch.float64) for n in (I, J))
    output = layer(x, y, mask=mask, bias=bias)
    layer.attend = attention
    assert_same(output, layer(x, y, mask=mask.tensor(), bias=bias.tensor().double()))


@pytest.mark.parametrize("function", [attention, fused_attention, blocked_attention])
def test_the_functions_of_the_package_take_rules(function):
    assert function.takes_rules is True


@pytest.mark.parametrize("name", ["formula", "kernel", "blocks", "small blocks"])
def test_a_function_that_takes_rules_gets_the_rule_itself(build, name):
    got = []

    def recorded(query, key, value, mask=None, *, bias=None):
        got.extend([mask, bias])
        return FUNCTIONS[name](query, key, value, mask, bias=bias)

    takes_rules(recorded)
    x, mask, bias = torch.randn(B, I, M, dtype=torch.float64), rules.causal(I), Nearer((I, I))
    build(attend=partial(recorded))(x, mask=mask, bias=bias)
    assert got == [mask, bias]


# What is refused.


def test_a_bias_is_no_mask_and_a_mask_no_bias(attend):
    tensors = inputs(B, H)
    message = "^mask is a rule for a bias, which is added to the scores: pass it as bias=$"
    with pytest.raises(TypeError, match=message):
        attend(**tensors, mask=rules.alibi(H, I, J))
    message = "^bias is added to the scores and must be a float; pass a boolean as mask=$"
    with pytest.raises(TypeError, match=message):
        attend(**tensors, bias=rules.causal(I, J))


def test_a_layer_says_so_too(build):
    x = torch.randn(B, I, M, dtype=torch.float64)
    with pytest.raises(TypeError, match="mask is a rule for a bias"):
        build()(x, mask=Nearer((I, I)))
    with pytest.raises(TypeError, match="pass a boolean as mask="):
        build()(x, bias=rules.causal(I))


def test_a_rule_per_item_has_no_place_without_an_axis_of_heads(attend):
    message = r"mask of shape \(2, 1, 7\) does not say which axes it has.*\(2, 1, 1, 7\)$"
    with pytest.raises(ValueError, match=message):
        attend(**inputs(B, H), mask=rules.padding([3, 6], J))


VALUE_ERRORS = {
    "i must be at least 0; got -1": lambda: rules.causal(-1),
    "j must be at least 0; got -2": lambda: rules.causal(I, -2),
    "before must be at least 0; got -3": lambda: rules.window(I, before=-3),
    "after must be at least 0; got -4": lambda: rules.window(I, before=None, after=-4),
    'align must be "end" or "start"; got \'left\'': lambda: rules.causal(I, align="left"),
    "lengths must have one axis, b; got shape (1, 2)": lambda: rules.padding([[1, 2]], J),
    "lengths must be between 0 and j = 7; got [3, 8]": lambda: rules.padding([3, 8], J),
    "lengths must be between 0 and j = 7; got [-1]": lambda: rules.padding([-1], J),
    'side must be "right" or "left"; got \'both\'': lambda: rules.padding([3], J, side="both"),
    "documents needs an axis of positions; got a single number": lambda: rules.document(
        torch.tensor(1)
    ),
    "key_documents needs an axis of positions; got a single number": lambda: rules.document(
        torch.tensor([1]), torch.tensor(1)
    ),
    "num_heads must be at least 1; got 0": lambda: rules.alibi(0, I),
    "i must be at least 0; got -5": lambda: rules.alibi(H, -5),
    "j must be at least 0; got -6": lambda: rules.alibi(H, I, -6),
    'align must be "end" or "start"; got \'right\'': lambda: rules.alibi(H, I, align="right"),
}
TYPE_ERRORS = {
    "lengths must be integers; got torch.float32": lambda: rules.padding([1.5], J),
    "lengths must be integers; got torch.bool": lambda: rules.padding([True], J),
    "documents must be integers; got torch.complex64": lambda: rules.document(torch.tensor([1j])),
    "key_documents must be integers; got torch.float32": lambda: rules.document(
        torch.tensor([1]), torch.tensor([1.0])
    ),
}


@pytest.mark.parametrize("message", VALUE_ERRORS)
def test_wrong_values_are_errors_with_their_numbers(message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        VALUE_ERRORS[message]()


@pytest.mark.parametrize("message", TYPE_ERRORS)
def test_wrong_dtypes_are_errors_that_name_them(message):
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        TYPE_ERRORS[message]()
