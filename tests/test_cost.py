"""The counts of `cost` against torch's counter, the modules' parameters and the tensors' bytes."""

import math
import re
from functools import partial
from itertools import product

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count

from mini_attention import (
    MultiHeadAttention,
    SingleHeadAttention,
    attention,
    attention_scores,
    attention_weights,
    causal_mask,
    cost,
    fused_attention,
)
from mini_attention.decoding import KVCache
from tests.oracles import B, D, E, H, I, J

M, KEY, VALUE = H * D, 17, 19
LAYERS = {
    "one head": (SingleHeadAttention, cost.single_head_cost, (M, D), {}),
    "one head, other values": (SingleHeadAttention, cost.single_head_cost, (M, D), {"d_value": E}),
    "many heads": (MultiHeadAttention, cost.multi_head_cost, (M, H), {}),
    "no bias": (MultiHeadAttention, cost.multi_head_cost, (M, H), {"proj_bias": False}),
}
OTHER_SIZES = {"key_size": KEY, "value_size": VALUE}


@pytest.fixture(params=LAYERS)
def sized(request):
    """A kind of layer, the function that gives its cost, and the sizes both take."""
    return LAYERS[request.param]


@pytest.fixture(params=[False, True], ids=["constant inputs", "inputs with gradients"])
def needs_gradient(request):
    return request.param


def self_attention(sized, needs_gradient=True, attend=attention):
    """A call of the layer on one sequence, the layer, and the expected cost."""
    module, cost_of, sizes, options = sized
    layer = module(*sizes, **options, attend=attend)
    x = torch.randn(B, I, M, requires_grad=needs_gradient)
    return partial(layer, x), layer, cost_of(*sizes, I, batch=B, **options)


def cross_attention(sized, needs_gradient=True):
    module, cost_of, sizes, options = sized
    layer = module(*sizes, **options, **OTHER_SIZES, attend=attention)
    shapes = (B, I, M), (B, J, KEY), (B, J, VALUE)
    sources = [torch.randn(shape, requires_grad=needs_gradient) for shape in shapes]
    return partial(layer, *sources), layer, cost_of(*sizes, I, J, batch=B, **options, **OTHER_SIZES)


def query_key_value(d=D, e=E, dtype=torch.float32):
    shapes = (B, H, I, d), (B, H, J, d), (B, H, J, e)
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def flops_forward_and_backward(call):
    with FlopCounterMode(display=False) as forward:
        output = call()
    with FlopCounterMode(display=False) as backward:
        output.sum().backward()
    return forward.get_total_flops(), backward.get_total_flops()


def kept_for_backward(call, *, but=()):
    """Bytes that autograd keeps while `call` runs; views of one tensor count once."""
    storages = {}

    def pack(tensor):
        storages[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        output = call()
    assert output.requires_grad
    for tensor in but:
        storages.pop(tensor.untyped_storage().data_ptr(), None)
    return sum(tensor.untyped_storage().nbytes() for tensor in storages.values())


@pytest.mark.parametrize("case", [self_attention, cross_attention])
def test_flops_are_those_that_torch_counts(case, sized, needs_gradient):
    call, _, expected = case(sized, needs_gradient)
    backward = 2 * expected.backward_multiply_adds(inputs_need_gradient=needs_gradient)
    assert flops_forward_and_backward(call) == (expected.total.flops, backward)


def test_the_inputs_of_a_layer_need_gradients_unless_told_otherwise(sized):
    call, _, expected = self_attention(sized)
    assert flops_forward_and_backward(call)[1] == 2 * expected.backward_multiply_adds()


def test_flops_of_the_core_are_those_that_torch_counts():
    expected = cost.attention_cost(b=B, h=H, i=I, j=J, d=D, e=E)
    counted = flops_forward_and_backward(lambda: attention(*query_key_value()))
    assert counted == (expected.total.flops, 2 * expected.backward_multiply_adds())


def test_flops_are_the_same_with_a_mask():
    q, k, v = query_key_value()
    masked = cost.attention_cost(b=B, h=H, i=I, j=J, d=D, e=E, mask=True)
    forward, backward = flops_forward_and_backward(lambda: attention(q, k, v, causal_mask(I, J)))
    assert (forward, backward) == (masked.total.flops, 2 * masked.backward_multiply_adds())


def test_a_backward_pass_that_recomputes_costs_what_torch_says_of_its_fused_kernel():
    expected = cost.attention_cost(b=B, h=H, i=I, j=J, d=D, e=E)
    query, key, value, output = (B, H, I, D), (B, H, J, D), (B, H, J, E), (B, H, I, E)
    flops = 2 * (expected.backward_multiply_adds() + expected.recomputed_multiply_adds())
    assert flops == sdpa_backward_flop_count(output, query, key, value)


def test_recomputing_adds_half_of_the_core_when_keys_and_values_have_as_many_features():
    core = cost.attention_cost(b=B, h=H, i=I, j=J, d=D, e=D)
    assert 2 * core.recomputed_multiply_adds() == core.total.multiply_adds


@pytest.mark.parametrize("case", [self_attention, cross_attention])
def test_parameters_are_those_of_the_module(case, sized):
    _, layer, expected = case(sized)
    assert expected.total.parameters == sum(p.numel() for p in layer.parameters())


def test_parameters_of_each_step_are_those_of_its_projection():
    _, layer, expected = cross_attention(LAYERS["many heads"])
    for name, projection in {
        "query": layer.q_proj, "key": layer.k_proj, "value": layer.v_proj, "output": layer.out_proj
    }.items():  # fmt: skip
        assert expected[name].parameters == sum(p.numel() for p in projection.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bytes_of_each_step_are_those_of_its_tensor(dtype):
    layer = MultiHeadAttention(M, H, **OTHER_SIZES).to(dtype)
    query, key, value = (
        torch.randn(B, positions, size, dtype=dtype)
        for positions, size in ((I, M), (J, KEY), (J, VALUE))
    )
    q, k, v = layer.q_proj(query), layer.k_proj(key), layer.v_proj(value)
    heads = [projected.unflatten(-1, (H, D)).transpose(1, 2) for projected in (q, k, v)]
    made = {
        "query": q, "key": k, "value": v,
        "scores": attention_scores(*heads[:2]),
        "mask": attention_scores(*heads[:2]).masked_fill(~causal_mask(I, J), -torch.inf),
        "softmax": attention_weights(*heads[:2]),
        "weighted sum": attention(*heads),
        "output": layer(query, key, value),
    }  # fmt: skip
    expected = cost.multi_head_cost(
        M, H, I, J, batch=B, **OTHER_SIZES, mask=True, itemsize=dtype.itemsize
    )
    assert {step.name: step.bytes for step in expected.steps} == {
        name: tensor.nbytes for name, tensor in made.items()
    }
    assert expected.total.bytes == sum(tensor.nbytes for tensor in made.values())


def test_bytes_of_the_core_tell_values_from_keys():
    output = attention(*query_key_value())
    expected = cost.attention_cost(b=B, h=H, i=I, j=J, d=D, e=E)
    assert expected["weighted sum"].bytes == output.nbytes


SIZES = {"b": B, "i": I, "j": J, "d": D, "m": M}
SHAPED = {
    "the core": (partial(cost.attention_cost, b=B, h=H, i=I, j=J, d=D, e=E), {"h": H, "e": E}),
    "one head": (partial(cost.single_head_cost, M, D, I, J, d_value=E, batch=B), {"e": E}),
    "many heads": (partial(cost.multi_head_cost, M, H, I, J, batch=B), {"h": H, "e": D}),
    "with a cache": (
        partial(cost.decoding_cost, M, H, J, new=I, batch=B, num_kv_heads=1),
        {"h": H, "e": D, "g": 1},
    ),
}


@pytest.mark.parametrize("what", SHAPED)
def test_the_letters_of_a_shape_multiply_to_the_bytes_of_its_tensor(what):
    cost_of, own = SHAPED[what]
    expected, sizes = cost_of(mask=True, itemsize=8), SIZES | own
    assert "mask" in [step.name for step in expected.steps]
    for step in expected.steps:
        elements = math.prod(sizes[letter] for letter in re.findall(r"\w+", step.shape))
        assert step.bytes == elements * 8, step


def test_elementwise_work_follows_the_written_convention():
    counted = {
        "query": B * I * M,
        "key": B * J * M,
        "value": B * J * M,
        "scores": B * I * M,
        "mask": B * H * I * J,
        "softmax": 5 * B * H * I * J,
        "weighted sum": 0,
        "output": B * I * M,
    }
    expected = cost.multi_head_cost(M, H, I, J, batch=B, mask=True)
    assert {step.name: step.elementwise for step in expected.steps} == counted


def test_a_projection_without_bias_adds_nothing_elementwise():
    expected = cost.multi_head_cost(M, H, I, J, proj_bias=False)
    assert [expected[name].elementwise for name in ("query", "key", "value", "output")] == [0] * 4


def test_elementwise_work_grows_with_the_heads_and_products_do_not():
    few, many = cost.multi_head_cost(M, H, I), cost.multi_head_cost(M, D, I)
    assert few.total.flops == many.total.flops
    assert D * few["softmax"].elementwise == H * many["softmax"].elementwise > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_bare_formula_keeps_what_is_predicted(dtype):
    query, key, value = query_key_value(dtype=dtype)
    scaled = query * D**-0.5
    kept = kept_for_backward(lambda: (scaled @ key.mT).softmax(-1) @ value)
    predicted = cost.kept_by_formula(b=B, h=H, i=I, j=J, d=D, e=E, itemsize=dtype.itemsize)
    assert kept == sum(predicted.values())
    weights = B * H * I * J * dtype.itemsize
    assert predicted == {
        "query": query.nbytes, "key": key.nbytes, "value": value.nbytes, "weights": weights
    }  # fmt: skip


def test_attention_keeps_what_the_bare_formula_keeps():
    kept = kept_for_backward(lambda: attention(*query_key_value()))
    assert kept == sum(cost.kept_by_formula(b=B, h=H, i=I, j=J, d=D, e=E).values())


@pytest.mark.parametrize(("d", "e"), [(D, D), (D, E), (E, D)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_fused_attention_keeps_what_is_predicted(d, e, dtype):
    kept = kept_for_backward(lambda: fused_attention(*query_key_value(d, e, dtype)))
    predicted = cost.kept_by_fused(b=B, h=H, i=I, j=J, d=d, e=e, itemsize=dtype.itemsize)
    assert kept == sum(predicted.values())
    assert list(predicted) == ["query", "key", "value", "output", "logsumexp"]


@pytest.mark.parametrize(
    ("attend", "kept_by"),
    [(attention, cost.kept_by_formula), (fused_attention, cost.kept_by_fused)],
)
def test_a_layer_keeps_its_input_and_joined_heads_beside_the_core(attend, kept_by):
    call, layer, expected = self_attention(LAYERS["many heads"], attend=attend)
    predicted = kept_by(b=B, h=H, i=I, j=I, d=D, e=D)
    predicted |= {"input": B * I * M * 4, "output": expected["weighted sum"].bytes}
    kept = kept_for_backward(call, but=layer.parameters())
    assert kept == sum(predicted.values())


class Moved(TorchDispatchMode):
    """Adds up the bytes that every operation but a view reads and writes."""

    def __init__(self):
        super().__init__()
        self.bytes = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if not function.is_view:
            tensors = [x for x in (*args, result) if isinstance(x, torch.Tensor)]
            name = function.overloadpacket.__name__
            self.bytes[name] = [*self.bytes.get(name, []), sum(x.nbytes for x in tensors)]
        return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_formula_moves_what_its_steps_read_and_write(dtype):
    query, key, value = (x.detach().flatten(0, 1) for x in query_key_value(dtype=dtype))
    with Moved() as moved:
        torch.bmm(torch.softmax(torch.bmm(query, key.mT), -1), value)
    scores, weighted_sum = moved.bytes["bmm"]
    predicted = cost.moved_by_formula(b=B, h=H, i=I, j=J, d=D, e=E, itemsize=dtype.itemsize)
    assert predicted == {
        "scores": scores, "softmax": sum(moved.bytes["_softmax"]), "weighted sum": weighted_sum
    }  # fmt: skip


@pytest.mark.parametrize("rows", [1, 2, I, I + 2])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_blocks_move_their_own_queries_and_all_keys_and_values(rows, dtype):
    tensors = {name: [] for name in ("query", "key", "value", "output", "logsumexp")}
    query, key, value = (x.detach() for x in query_key_value(dtype=dtype))
    for block in query.split(rows, -2):
        output = attention(block, key, value)
        log_sum = attention_scores(block, key).to(torch.promote_types(dtype, torch.float32))
        moved = (block, key, value, output, log_sum.logsumexp(-1))
        for name, tensor in zip(tensors, moved, strict=True):
            tensors[name].append(tensor)
    predicted = cost.moved_by_blocks(
        b=B, h=H, i=I, j=J, d=D, e=E, rows=rows, itemsize=dtype.itemsize
    )
    assert predicted == {name: sum(x.nbytes for x in all_) for name, all_ in tensors.items()}


# With a cache.


def cached_layer(num_kv_heads=1, dtype=torch.float32, **options):
    return MultiHeadAttention(M, H, num_kv_heads=num_kv_heads, **options).to(dtype)


@torch.no_grad()
@pytest.mark.parametrize("new", [1, 2, J])
@pytest.mark.parametrize("num_kv_heads", [H, 1])
def test_kept_keys_are_attended_to_and_not_projected(num_kv_heads, new):
    layer, cache = cached_layer(num_kv_heads, attend=attention), KVCache(J)
    layer(torch.randn(B, J - new, M), cache=cache)
    with FlopCounterMode(display=False) as counter:
        layer(torch.randn(B, new, M), cache=cache)
    expected = cost.decoding_cost(M, H, J, new=new, num_kv_heads=num_kv_heads, batch=B)
    assert counter.get_total_flops() == expected.total.flops
    assert expected.total.parameters == sum(p.numel() for p in layer.parameters())


@pytest.mark.parametrize("flags", list(product((True, False), repeat=2)))
def test_the_first_pass_over_all_positions_costs_what_a_layer_costs(flags):
    given = dict(zip(("proj_bias", "mask"), flags, strict=True)) | {"batch": B, "itemsize": 2}
    ours = cost.decoding_cost(M, H, J, new=J, **given)
    whole = cost.multi_head_cost(M, H, J, **given)
    assert [step.name for step in ours.steps] == [step.name for step in whole.steps]
    assert ours.total == whole.total


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("num_kv_heads", [H, 1])
def test_a_cache_takes_what_is_predicted(num_kv_heads, dtype):
    layers = [cached_layer(num_kv_heads, dtype) for _ in range(5)]
    caches, x = [KVCache(J) for _ in layers], torch.randn(B, I, M, dtype=dtype)
    for layer, cache in zip(layers, caches, strict=True):
        x = layer(x, cache=cache)
    assert sum(cache.bytes for cache in caches) == cost.kv_cache_bytes(
        num_kv_heads=num_kv_heads, d_head=D, n=J, layers=5, batch=B, itemsize=dtype.itemsize
    )


def test_a_cache_is_that_of_one_item_in_one_layer_in_float32_unless_told_otherwise():
    sizes = {"num_kv_heads": H, "d_head": D, "n": J}
    assert cost.kv_cache_bytes(**sizes) == 2 * H * D * J * 4
    assert cost.kv_cache_bytes(**sizes, layers=1, batch=1, itemsize=4) == 2 * H * D * J * 4


@torch.no_grad()
@pytest.mark.parametrize("proj_bias", [True, False])
@pytest.mark.parametrize("num_kv_heads", [H, 1])
def test_a_step_moves_its_parameters_its_cache_and_what_goes_in_and_out(num_kv_heads, proj_bias):
    layer = cached_layer(num_kv_heads, torch.float64, proj_bias=proj_bias)
    cache, x = KVCache(J), torch.randn(B, J, M, dtype=torch.float64)
    layer(x[:, 2:], cache=cache)
    output = layer(x[:, :2], cache=cache)
    sizes = {"new": 2, "num_kv_heads": num_kv_heads, "proj_bias": proj_bias}
    assert cost.moved_by_decoding(M, H, J, **sizes, batch=B, itemsize=8) == {
        "parameters": sum(p.nbytes for p in layer.parameters()),
        "keys and values": cache.bytes,
        "inputs and outputs": x[:, :2].nbytes + output.nbytes,
    }


def test_a_step_is_one_position_of_one_item_in_float32_unless_told_otherwise():
    usual = {"new": 1, "num_kv_heads": H, "batch": 1, "proj_bias": True, "itemsize": 4}
    assert cost.decoding_cost(M, H, J) == cost.decoding_cost(M, H, J, **usual, mask=False)
    assert cost.moved_by_decoding(M, H, J) == cost.moved_by_decoding(M, H, J, **usual)


def test_sizes_default_as_they_do_in_the_modules():
    assert cost.multi_head_cost(M, H, I) == cost.multi_head_cost(
        M, H, I, I, key_size=M, value_size=M, batch=1, proj_bias=True, mask=False, itemsize=4
    )
    assert cost.single_head_cost(M, D, I) == cost.single_head_cost(
        M, D, I, I, d_value=D, key_size=M, value_size=M, batch=1, proj_bias=True, mask=False,
        itemsize=4,
    )  # fmt: skip


@pytest.mark.parametrize(
    "of_the_core",
    [
        cost.attention_cost,
        cost.kept_by_formula,
        cost.kept_by_fused,
        cost.moved_by_formula,
        partial(cost.moved_by_blocks, rows=2),
    ],
)
def test_the_core_is_one_head_on_one_item_in_float32_unless_told_otherwise(of_the_core):
    sizes = {"i": I, "j": J, "d": D, "e": E}
    assert of_the_core(**sizes) == of_the_core(**sizes, b=1, h=1, itemsize=4)


def test_no_keys_and_no_items_cost_nothing_but_parameters():
    assert cost.attention_cost(i=I, j=0, d=D, e=E)["softmax"].elementwise == 0
    nothing = cost.multi_head_cost(M, H, I, batch=0).total
    assert (nothing.flops, nothing.elementwise, nothing.bytes) == (0, 0, 0)
    assert nothing.parameters == 4 * (M + 1) * M


TABLE = """
step         shape     parameters multiply-adds elementwise  bytes
query        b i (h d)        272         8,192         512  2,048
key          b j (h d)        272         8,192         512  2,048
value        b j (h e)        272         8,192         512  2,048
scores       b h i j            0        16,384         512  8,192
mask         b h i j            0             0       2,048  8,192
softmax      b h i j            0             0      10,240  8,192
weighted sum b h i e            0        16,384           0  2,048
output       b i m            272         8,192         512  2,048
total                       1,088        65,536      14,848 34,816
"""


def test_the_table_has_a_step_a_row_with_words_to_the_left_and_numbers_to_the_right():
    assert str(cost.multi_head_cost(16, 2, 32, mask=True)) == TABLE.strip("\n")


def test_a_step_that_is_not_there_is_named():
    with pytest.raises(KeyError, match=r"no step 'mask' among \['scores', 'softmax', 'weighted"):
        cost.attention_cost(i=I, j=J, d=D, e=E)["mask"]


core = partial(cost.attention_cost, i=I, j=J, d=D, e=E)
kept = partial(cost.kept_by_formula, i=I, j=J, d=D, e=E)
moved = partial(cost.moved_by_formula, i=I, j=J, d=D, e=E)
blocks = partial(cost.moved_by_blocks, i=I, j=J, d=D, e=E, rows=2)
cached = partial(cost.kv_cache_bytes, num_kv_heads=H, d_head=D, n=J)
step = partial(cost.decoding_cost, M, H, J)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (partial(core, i=-1), ValueError, "i must be at least 0; got -1"),
        (partial(core, b=-2), ValueError, "b must be at least 0; got -2"),
        (partial(core, h=0), ValueError, "h must be at least 1; got 0"),
        (partial(core, d=0), ValueError, "d must be at least 1; got 0"),
        (partial(core, e=0), ValueError, "e must be at least 1; got 0"),
        (partial(core, itemsize=0), ValueError, "itemsize must be at least 1; got 0"),
        (partial(core, j=7.0), TypeError, "j must be an integer; got 7.0"),
        (partial(cost.multi_head_cost, 10, 3, I), ValueError, r"d_model \(10\) must be divisible"),
        (partial(cost.multi_head_cost, 0, H, I), ValueError, "d_model must be at least 1; got 0"),
        (partial(cost.multi_head_cost, M, 0, I), ValueError, "num_heads must be at least 1; got 0"),
        (partial(cost.multi_head_cost, M, 1.5, I), TypeError, "num_heads must be an integer; got"),
        (partial(cost.multi_head_cost, M, H, I, batch=-1), ValueError, "batch must be at least 0"),
        (partial(cost.multi_head_cost, M, H, I, key_size=0), ValueError, "key_size must be at"),
        (partial(cost.multi_head_cost, M, H, I, value_size=0), ValueError, "value_size must be at"),
        (partial(cost.single_head_cost, 0, D, I), ValueError, "d_model must be at least 1; got 0"),
        (partial(cost.single_head_cost, M, D, I, key_size=0), ValueError, "key_size must be at"),
        (partial(cost.single_head_cost, M, 0, I), ValueError, "d_head must be at least 1; got 0"),
        (partial(cost.single_head_cost, M, D, I, d_value=0), ValueError, "d_value must be at"),
        (partial(cost.single_head_cost, M, D, I, value_size=0), ValueError, "value_size must be"),
        (partial(cost.single_head_cost, M, D, I, batch=-1), ValueError, "batch must be at least 0"),
        (partial(kept, b=-1), ValueError, "b must be at least 0"),
        (partial(kept, i=-1), ValueError, "i must be at least 0"),
        (partial(kept, j=-1), ValueError, "j must be at least 0"),
        (partial(kept, h=0), ValueError, "h must be at least 1"),
        (partial(kept, e=0), ValueError, "e must be at least 1"),
        (partial(kept, itemsize=0), ValueError, "itemsize must be at least 1"),
        (partial(cost.kept_by_fused, i=I, j=J, d=0, e=0), ValueError, "d must be at least 1"),
        *(
            (partial(call, **{size: least - 1}), ValueError, f"{size} must be at least {least}")
            for call, least in product((moved, blocks), (0, 1))
            for size in (("b", "i", "j"), ("h", "d", "e", "itemsize"))[least]
        ),
        (partial(blocks, rows=0), ValueError, "rows must be at least 1; got 0"),
        *(
            (partial(cached, **{size: least - 1}), ValueError, f"{size} must be at least {least}")
            for least in (0, 1)
            for size in (("n", "batch"), ("num_kv_heads", "d_head", "layers", "itemsize"))[least]
        ),
        (partial(step, new=-1), ValueError, "new must be at least 0; got -1"),
        (partial(step, new=8), ValueError, "new must be at most n = 7; got 8"),
        (partial(step, batch=-1), ValueError, "batch must be at least 0; got -1"),
        (partial(step, num_kv_heads=0), ValueError, "num_kv_heads must be at least 1; got 0"),
        (
            partial(step, num_kv_heads=2),
            ValueError,
            r"num_heads \(3\) must be divisible by num_kv_heads \(2\)",
        ),
        (partial(cost.decoding_cost, 0, H, J), ValueError, "d_model must be at least 1; got 0"),
        (partial(cost.decoding_cost, M, 0, J), ValueError, "num_heads must be at least 1; got 0"),
        (partial(cost.moved_by_decoding, M, H, J, new=8), ValueError, "new must be at most n = 7"),
        (partial(cost.moved_by_decoding, M, 2, J), ValueError, r"d_model \(33\) must be divisible"),
    ],
)
def test_bad_sizes_are_named(call, error, message):
    with pytest.raises(error, match=f"^{message}"):
        call()
