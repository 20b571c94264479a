"""What holds for every size, rank, mask, dtype and layout, asked of inputs that nobody chose."""

from functools import partial
from itertools import product

import pytest
import torch
from einops import rearrange, repeat
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from mini_attention import (
    MultiHeadAttention,
    SingleHeadAttention,
    attention,
    attention_weights,
    causal_mask,
    cost,
    document_mask,
    mask_from_torch,
    mask_to_torch,
    padding_mask,
    window_mask,
)
from tests.oracles import assert_same, torch_layer, with_gradients
from tests.strategies import (
    DTYPES,
    INF,
    LAYOUTS,
    along,
    axes,
    cases,
    factors,
    features,
    few,
    layer_cases,
    layouts,
    lengths,
    looped,
    random_mask,
    seeds,
    value_features,
    within,
)

pytestmark = pytest.mark.slow

windows = st.sampled_from((None, 0, 1, 2, 4))

# The functions.


@given(case=cases())
def test_outputs_and_gradients_are_those_of_a_loop(attend, case):
    case.assert_same(attend, looped)


@given(case=cases())
def test_weights_and_their_gradients_turn_values_into_outputs(case):
    def by_weights(query, key, value, mask=None, **given):
        return attention_weights(query, key, mask, **given) @ value

    case.assert_same(by_weights, looped)


@given(case=cases())
def test_keys_may_come_in_any_order(attend, case):
    order = torch.randperm(case.leaves["key"].shape[-2])

    def shuffled(query, key, value, mask=None, *, bias=None, **scale):
        key, value = key[..., order, :], value[..., order, :]
        mask, bias = along(-1, order, mask), along(-1, order, bias)
        return attend(query, key, value, mask, bias=bias, **scale)

    case.assert_same(shuffled, attend)


@given(case=cases())
def test_outputs_come_in_the_order_of_the_queries(attend, case):
    order = torch.randperm(case.leaves["query"].shape[-2])

    def shuffled(query, key, value, mask=None, *, bias=None, **scale):
        mask, bias = along(-2, order, mask), along(-2, order, bias)
        output = attend(query[..., order, :], key, value, mask, bias=bias, **scale)
        return output[..., order.argsort(), :]

    case.assert_same(shuffled, attend)


@given(case=cases())
def test_a_constant_added_to_all_scores_of_a_query_changes_nothing(attend, case):
    constant = torch.randn(case.leaves["query"].shape[-2], 1).to(case.leaves["query"].dtype)

    def lifted(*, bias=None, **given):
        return attend(bias=constant if bias is None else bias + constant, **given)

    case.assert_same(lifted, attend)


@given(case=cases(), factor=factors)
def test_outputs_grow_with_the_values(attend, case, factor):
    def grown(value, **given):
        return attend(value=factor * value, **given)

    expected = {name: factor * tensor for name, tensor in case.run(attend).items()}
    assert_same(case.run(grown), expected, largest_score=case.largest_score * abs(factor))


@given(case=cases(dtypes=DTYPES))
def test_values_of_the_opposite_sign_give_exactly_the_opposite_in_every_dtype(attend, case):
    output = attend(**case.given)
    case.leaves["value"] = -case.leaves["value"]
    assert torch.equal(attend(**case.given), -output)


@given(case=cases())
def test_what_is_added_to_all_values_is_added_to_the_outputs_of_queries_that_see(attend, case):
    value = case.leaves["value"]
    added = torch.randn(value.shape[-1]).to(value.dtype)
    seeing = case.allowed.any(-1, keepdim=True)
    expected = attend(**case.given) + added * seeing
    case.leaves["value"] = value + added
    assert_same(attend(**case.given), expected, largest_score=case.largest_score)


@given(case=cases(dtypes=DTYPES))
def test_outputs_lie_between_the_least_and_the_largest_value_that_is_seen(attend, case):
    output, allowed = attend(**case.given), case.allowed.unsqueeze(-1)
    assume(allowed.shape[-2])
    value = case.leaves["value"].unsqueeze(-3)
    seeing = allowed.any(-2)
    least = torch.where(allowed, value, INF).amin(-2).where(seeing, 0)
    largest = torch.where(allowed, value, -INF).amax(-2).where(seeing, 0)
    rounding = 4 * torch.finfo(value.dtype).eps * value.abs().amax() if value.numel() else 0
    assert ((output >= least - rounding) & (output <= largest + rounding)).all()


@given(case=cases(dtypes=DTYPES))
def test_a_query_that_sees_one_key_gets_exactly_its_value_in_every_dtype(attend, case):
    i, j = case.allowed.shape[-2:]
    assume(j)
    chosen = torch.randint(j, (i,))
    case.fixed["mask"] = torch.arange(j) == chosen[:, None]
    value = case.leaves["value"].expand(*case.leading, -1, -1)
    expected = torch.where(case.allowed.any(-1, keepdim=True), value[..., chosen, :], 0)
    assert torch.equal(attend(**case.given), expected)


@given(case=cases(dtypes=DTYPES))
def test_queries_that_see_nothing_get_zeros_and_gradients_stay_finite(attend, case):
    run, blind = case.run(attend), ~case.allowed.any(-1)
    assert not run["output"][blind].any()
    assert not run["query"][within(run["query"].shape[:-1], blind)].any()
    assert all(tensor.isfinite().all() for tensor in run.values())


@given(case=cases(dtypes=DTYPES), junk=st.sampled_from((torch.nan, INF, -INF)))
def test_what_no_query_sees_can_hold_anything_and_changes_no_bit(attend, case, junk):
    assume(0 not in case.leading)  # where there are no items, nothing is forbidden
    expected = case.run(attend)
    unseen = ~case.allowed.any(-2)
    for name in ("key", "value"):
        tensor = case.leaves[name]
        tensor[within(tensor.shape[:-1], unseen)] = junk
    for name, tensor in case.run(attend).items():
        assert torch.equal(tensor, expected[name]), name


@given(case=cases(leading=st.lists(axes.filter(bool), min_size=1, max_size=3)))
def test_a_batch_is_its_items_one_by_one(attend, case):
    scale, leading = case.fixed.pop("scale", None), case.leading
    assume(leading)

    def one_by_one(**given):
        full = {name: x.expand(*leading, *x.shape[-2:]) for name, x in given.items()}
        items = [
            attend(**{name: x[item] for name, x in full.items()}, scale=scale)
            for item in product(*map(range, leading))
        ]
        return torch.stack(items).unflatten(0, leading)

    case.assert_same(one_by_one, partial(attend, scale=scale))


@given(case=cases())
def test_an_axis_that_is_shared_may_be_expanded(attend, case):
    scale, pairs = case.fixed.pop("scale", None), case.allowed.shape

    def expanded(*, mask=None, bias=None, **tensors):
        tensors = {name: x.expand(*case.leading, *x.shape[-2:]) for name, x in tensors.items()}
        mask, bias = (None if x is None else x.expand(pairs) for x in (mask, bias))
        return attend(**tensors, mask=mask, bias=bias, scale=scale)

    case.assert_same(expanded, partial(attend, scale=scale))


@given(case=cases(), chosen=st.tuples(*[layouts] * 5))
def test_arguments_may_lie_in_memory_in_any_way(attend, case, chosen):
    scale = case.fixed.pop("scale", None)

    def laid_out(**given):
        pairs = zip(chosen, given.items(), strict=False)
        return attend(**{name: LAYOUTS[how](x) for how, (name, x) in pairs}, scale=scale)

    case.assert_same(laid_out, partial(attend, scale=scale))


@given(b=axes, g=few, r=few, i=lengths, j=lengths, d=features, e=value_features, seed=seeds)
def test_heads_that_share_keys_are_heads_with_repeated_keys(attend, b, g, r, i, j, d, e, seed):
    torch.manual_seed(seed)
    shapes = {"query": (b, g, r, i, d), "key": (b, g, 1, j, d), "value": (b, g, 1, j, e)}
    tensors = {name: torch.randn(*shape, dtype=torch.float64) for name, shape in shapes.items()}

    def repeated(query, key, value):
        key, value = (repeat(x, "b g 1 j f -> b (g r) j f", r=r) for x in (key, value))
        output = attend(rearrange(query, "b g r i d -> b (g r) i d"), key, value)
        return output.unflatten(1, (g, r))

    assert_same(with_gradients(attend, **tensors), with_gradients(repeated, **tensors))


@given(case=cases(square=True, masked=False), part=lengths, before=windows)
def test_what_comes_later_changes_no_output_under_a_causal_mask(attend, case, part, before):
    n = case.leaves["query"].shape[-2]
    assume(part <= n)

    def first_part(query, key, value, *, bias=None, **scale):
        first, mask = slice(part), window_mask(part, before=before)
        query, key, value = (x[..., first, :] for x in (query, key, value))
        bias = along(-1, first, along(-2, first, bias))
        return attend(query, key, value, mask, bias=bias, **scale)

    def full(**given):
        return attend(**given, mask=window_mask(n, before=before))[..., :part, :]

    case.assert_same(first_part, full)


@given(case=cases(square=True, masked=False), part=lengths, before=windows)
def test_the_last_queries_see_what_they_see_in_the_causal_run(attend, case, part, before):
    n = case.leaves["query"].shape[-2]
    assume(part <= n)

    def last_part(query, key, value, *, bias=None, **scale):
        last, mask = slice(n - part, n), window_mask(part, n, before=before)
        bias = along(-2, last, bias)
        return attend(query[..., last, :], key, value, mask, bias=bias, **scale)

    def full(**given):
        return attend(**given, mask=window_mask(n, before=before))[..., n - part :, :]

    case.assert_same(last_part, full)


@given(case=cases(leading=st.lists(few, max_size=2), masked=False), before=windows)
def test_a_cache_may_drop_the_keys_that_left_the_window(attend, case, before):
    query, key, value = (case.leaves[name] for name in ("query", "key", "value"))
    i, j = query.shape[-2], key.shape[-2]
    assume(0 < i <= j)
    steps = []
    for step in range(i):
        end = j - i + step + 1  # the last query stands at the last key
        kept = slice(0 if before is None else max(0, end - before - 1), end)
        steps.append(attend(query[..., [step], :], key[..., kept, :], value[..., kept, :]))
    full = attend(query, key, value, window_mask(i, j, before=before))
    assert_same(full, torch.cat(steps, -2), largest_score=case.largest_score)


# The masks.

sides = st.sampled_from(("right", "left"))
aligned = st.sampled_from(("end", "start"))


def table(i, j, allowed):
    """Ask `allowed(query, key)` for each pair of positions."""
    rows = [[allowed(query, key) for key in range(j)] for query in range(i)]
    return torch.tensor(rows, dtype=torch.bool).reshape(i, j)


def is_near(before, after, shift):
    """Whether a key is in the window of a query that stands `shift` places further right."""

    def allowed(query, key):
        earlier, later = query + shift - key, key - query - shift
        return (before is None or earlier <= before) and (after is None or later <= after)

    return allowed


@given(i=lengths, j=lengths, before=windows, after=windows, align=aligned)
def test_masks_of_positions_are_the_answers_pair_by_pair(i, j, before, after, align):
    shift = j - i if align == "end" else 0
    window = window_mask(i, j, before=before, after=after, align=align)
    assert torch.equal(window, table(i, j, is_near(before, after, shift)))
    causal = causal_mask(i, j, align=align)
    assert torch.equal(causal, table(i, j, is_near(None, 0, shift)))


@given(data=st.data(), i=lengths, j=lengths, before=windows, side=sides)
def test_combined_masks_allow_what_each_of_them_allows(data, i, j, before, side):
    real = data.draw(st.lists(st.integers(0, j), max_size=3))
    documents, of_keys = (
        torch.tensor(data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))).long()
        for n in (i, j)
    )
    near = is_near(before, 0, j - i)

    def allowed(length):
        def pair(query, key):
            is_real = key < length if side == "right" else j - key <= length
            return near(query, key) and is_real and documents[query] == of_keys[key]

        return pair

    combined = window_mask(i, j, before=before) & padding_mask(real, j, side=side)
    combined = combined & document_mask(documents, of_keys)
    assert combined.shape == (len(real), i, j)
    for mask, length in zip(combined, real, strict=True):
        assert torch.equal(mask, table(i, j, allowed(length)))


@given(
    b=axes, h=few, i=lengths, j=lengths, rank=st.integers(2, 4), shared=st.booleans(), seed=seeds
)
def test_a_mask_that_went_to_torch_and_back_is_the_same_mask(b, h, i, j, rank, shared, seed):
    torch.manual_seed(seed)
    shape = {2: (i, j), 3: (b, i, j), 4: (b, 1 if shared else h, i, j)}[rank]
    mask = random_mask(shape, 0.5)
    back, bias = mask_from_torch(mask_to_torch(mask, num_heads=h), num_heads=h)
    per_head = mask.unsqueeze(1) if rank == 3 else mask
    assert bias is None
    assert torch.equal(back, mask if rank == 2 else per_head.expand(b, h, i, j))


@given(b=axes, h=few, i=lengths, j=lengths, seed=seeds)
def test_two_masks_from_torch_allow_what_neither_of_them_hides(b, h, i, j, seed):
    torch.manual_seed(seed)
    hidden, padding = random_mask((i, j), 0.5), random_mask((b, j), 0.5)
    mask, bias = mask_from_torch(hidden, padding, num_heads=h)
    assert bias is None
    assert torch.equal(mask, ~(hidden | rearrange(padding, "b j -> b 1 1 j")))


# The modules.


def small(module):
    """The module in float64, with biases that are not 0."""
    for parameter in module.double().parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module


@given(sized=layer_cases())
def test_many_heads_are_single_heads_side_by_side(attend, sized):
    sizes, tensors, given = sized
    layer, h = small(MultiHeadAttention(**sizes, attend=attend)), sizes.pop("num_heads")
    heads = [
        SingleHeadAttention(d_head=sizes["d_model"] // h, **sizes, attend=attend).double()
        for _ in range(h)
    ]
    for name, parameter in layer.named_parameters():
        if not name.startswith("out_proj"):
            for head, share in zip(heads, parameter.chunk(h), strict=True):
                head.get_parameter(name).data = share.detach()

    def of_head(number, pairs):
        return pairs[:, number % pairs.shape[1]] if pairs.ndim == 4 else pairs

    def side_by_side(**tensors):
        outputs = [
            head(**tensors, **{name: of_head(number, x) for name, x in given.items()})
            for number, head in enumerate(heads)
        ]
        return layer.out_proj(torch.cat(outputs, -1))

    actual = with_gradients(partial(layer, **given), **tensors)
    assert_same(actual, with_gradients(side_by_side, **tensors), largest_score=10)


@given(sized=layer_cases())
def test_the_weights_of_a_layer_turn_its_values_into_its_output(attend, sized):
    sizes, tensors, given = sized
    layer = small(MultiHeadAttention(**sizes, attend=attend))

    def by_weights(**tensors):
        _, weights = layer(**tensors, **given, return_weights=True)
        values = layer.v_proj(tensors["value"])
        value = values.unflatten(-1, (sizes["num_heads"], -1)).transpose(1, 2)
        return layer.out_proj((weights @ value).transpose(1, 2).flatten(2))

    actual = with_gradients(partial(layer, **given), **tensors)
    assert_same(actual, with_gradients(by_weights, **tensors), largest_score=10)


@given(sized=layer_cases(seeing=True))
def test_dropout_acts_on_outputs_in_training_and_never_on_the_weights_that_are_shown(
    dropping, sized
):
    sizes, tensors, given = sized
    layer = small(MultiHeadAttention(**sizes, dropout=0.9, attend=dropping))
    expected, weights = layer.eval()(**tensors, **given, return_weights=True)
    output, shown = layer.train()(**tensors, **given, return_weights=True)
    assert torch.equal(shown, weights)
    assert not torch.equal(output, expected) or not output.numel()


@given(sized=layer_cases(), part=lengths, before=windows)
def test_a_causal_layer_computes_prefixes_and_last_queries_alike(attend, sized, part, before):
    sizes, x = sized[0], sized[1]["query"]
    n = x.shape[1]
    assume(part <= n)
    del sizes["key_size"], sizes["value_size"]
    layer = small(MultiHeadAttention(**sizes, attend=attend))
    full = layer(x, mask=window_mask(n, before=before))
    prefix = layer(x[:, :part], mask=window_mask(part, before=before))
    assert_same(prefix, full[:, :part], largest_score=10)
    last = layer(x[:, n - part :], x, mask=window_mask(part, n, before=before))
    assert_same(last, full[:, n - part :], largest_score=10)


def like_torch(sizes):
    """torch's layer of these sizes."""
    names = {"d_model": "d_model", "num_heads": "num_heads", "proj_bias": "bias"}
    names |= {"key_size": "kdim", "value_size": "vdim"}
    return torch_layer(**{names[name]: size for name, size in sizes.items()})


@given(sized=layer_cases(seeing=True))
def test_a_layer_made_from_torch_computes_the_same(attend, sized):
    sizes, tensors, given = sized
    theirs = like_torch(sizes)
    ours = MultiHeadAttention.from_torch(theirs, attend=attend)
    b, i, j, h = *tensors["query"].shape[:2], tensors["key"].shape[1], sizes["num_heads"]
    mask = given.get("mask", torch.ones(i, j, dtype=torch.bool))
    full = (i, j) if mask.ndim == 2 else (b, *mask.shape[1:-2], i, j)
    hidden = mask_to_torch(mask.expand(full), num_heads=h)

    def theirs_alone(**tensors):
        return theirs(**tensors, attn_mask=hidden, need_weights=False)[0]

    expected = with_gradients(theirs_alone, **tensors)
    assert_same(with_gradients(partial(ours, mask=mask), **tensors), expected, largest_score=10)


@given(sized=layer_cases(seeing=True), learned=st.booleans())
def test_a_layer_given_to_torch_computes_the_same(attend, sized, learned):
    sizes, tensors, _ = sized
    ours = small(MultiHeadAttention(**sizes, attend=attend))
    theirs = ours.to_torch()
    b, i, j, h = *tensors["query"].shape[:2], tensors["key"].shape[1], sizes["num_heads"]
    added = torch.randn((b * h, i, j) if learned else (i, j), dtype=torch.float64)
    padding = torch.arange(j) >= torch.randint(1, j + 1, (b, 1))
    padding = torch.zeros(b, j, dtype=torch.float64).masked_fill(padding, -INF)
    hidden = {"attn_mask": added, "key_padding_mask": padding}
    mask, bias = mask_from_torch(**hidden, num_heads=h)

    def theirs_alone(**tensors):
        return theirs(**tensors, **hidden, need_weights=False)[0]

    expected = with_gradients(theirs_alone, **tensors)
    actual = with_gradients(partial(ours, mask=mask, bias=bias), **tensors)
    assert_same(actual, expected, largest_score=10)


# The costs.


def counted(call):
    """The FLOPs forward and backward."""
    with FlopCounterMode(display=False) as forward:
        output = call()
    with FlopCounterMode(display=False) as backward:
        output.sum().backward()
    return forward.get_total_flops(), backward.get_total_flops()


@given(b=axes, h=few, i=lengths, j=lengths, d=features, e=features, masked=st.booleans())
def test_the_core_costs_what_torch_counts(b, h, i, j, d, e, masked):
    query, key, value = (
        torch.randn(b, h, *shape, requires_grad=True) for shape in ((i, d), (j, d), (j, e))
    )
    mask = causal_mask(i, j) if masked else None
    expected = cost.attention_cost(b=b, h=h, i=i, j=j, d=d, e=e, mask=masked)
    flops = expected.total.flops, 2 * expected.backward_multiply_adds()
    assert counted(lambda: attention(query, key, value, mask)) == flops


KINDS = {
    "one head": (SingleHeadAttention, cost.single_head_cost),
    "many heads": (MultiHeadAttention, cost.multi_head_cost),
}


@pytest.mark.parametrize("kind", KINDS)
@given(sized=layer_cases(), learned=st.booleans(), d=features, e=features)
def test_a_layer_costs_what_torch_counts_and_holds(kind, sized, learned, d, e):
    (module, cost_of), (sizes, tensors, _) = KINDS[kind], sized
    if kind == "one head":
        sizes = sizes | {"d_head": d, "d_value": e}
        del sizes["num_heads"]
    layer = module(**sizes, attend=attention).double()
    tensors = [tensor.requires_grad_(learned) for tensor in tensors.values()]
    b, i, j = *tensors[0].shape[:2], tensors[1].shape[1]
    expected = cost_of(**sizes, i=i, j=j, batch=b, itemsize=8)
    backward = 2 * expected.backward_multiply_adds(inputs_need_gradient=learned)
    assert counted(lambda: layer(*tensors)) == (expected.total.flops, backward)
    assert expected.total.parameters == sum(p.numel() for p in layer.parameters())
    made = layer(*tensors, return_weights=True)
    last = "output" if kind == "many heads" else "weighted sum"
    assert [expected[name].bytes for name in (last, "softmax")] == [x.nbytes for x in made]
