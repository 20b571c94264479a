"""One position at a time, held to the whole sequence at once."""

import copy
import re
from collections.abc import Iterator
from functools import partial
from itertools import combinations, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mini_attention import (
    MultiHeadAttention,
    RotaryAttention,
    causal_mask,
    padding_mask,
    rules,
    window_mask,
)
from mini_attention.decoding import (
    BlockCache,
    Cache,
    DecoderCache,
    KVCache,
    MemoryCache,
    RollingCache,
)
from mini_attention.transformer import DecoderBlock, PostNorm, PreNorm, Transformer, greedy
from tests.oracles import B, assert_same
from tests.strategies import few, seeds

N, H, D = 6, 6, 2
M = H * D
GROUPS = {"a head each": 6, "grouped heads": 2, "one head for all": 1}


@pytest.fixture(params=GROUPS.values(), ids=GROUPS)
def num_kv_heads(request):
    """How many heads of keys and values six query heads share."""
    return request.param


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def some_layer(**options) -> MultiHeadAttention:
    return MultiHeadAttention(M, H, **options).double()


def some_words(b=B, n=N) -> Tensor:
    return torch.randn(b, n, M, dtype=torch.float64)


def splits(n: int) -> Iterator[list[int]]:
    """All ways to cut n positions into pieces, 2 to the power of n - 1."""
    for count in range(n):
        for cuts in combinations(range(1, n), count):
            yield [stop - start for start, stop in pairwise((0, *cuts, n))]


def in_steps(layer, x: Tensor, split: list[int], cache: Cache, **given) -> Tensor:
    """What a layer makes of a sequence that comes in pieces."""
    outputs = []
    for new in x.split(split, dim=1):
        mask = cache.mask(new.shape[1])
        outputs.append(layer(new, mask=mask, cache=cache, **given))
    return torch.cat(outputs, dim=1)


def keys_and_values(b=B, g=3, n=2, d=5, e=7, dtype=torch.float64) -> tuple[Tensor, Tensor]:
    return torch.randn(b, g, n, d, dtype=dtype), torch.randn(b, g, n, e, dtype=dtype)


# The same as the whole run.


def test_there_are_32_ways_to_cut_six_positions():
    assert len(list(splits(N))) == len({tuple(split) for split in splits(N)}) == 32
    assert all(sum(split) == N and min(split) > 0 for split in splits(N))


def test_every_split_gives_what_the_whole_run_gives(attend, num_kv_heads):
    layer, x = some_layer(attend=attend, num_kv_heads=num_kv_heads), some_words()
    expected = layer(x, mask=causal_mask(N))
    for split in splits(N):
        assert_same(in_steps(layer, x, split, KVCache(N)), expected)


@pytest.mark.parametrize("before", range(N + 2))
def test_every_split_through_a_window_gives_what_the_whole_run_gives(attend, before):
    layer, x = some_layer(attend=attend, num_kv_heads=2), some_words()
    expected = layer(x, mask=window_mask(N, before=before))
    for split in splits(N):
        assert_same(in_steps(layer, x, split, RollingCache(before)), expected)


ROTARY = {
    "halves": RotaryAttention(pairing="halves"),
    "neighbours": RotaryAttention(pairing="neighbours"),
}


@pytest.mark.parametrize("pairing", ROTARY)
def test_rotary_places_go_on_where_the_cache_ends(num_kv_heads, pairing):
    layer, x = some_layer(attend=ROTARY[pairing], num_kv_heads=num_kv_heads), some_words()
    expected = layer(x, mask=causal_mask(N))
    through_a_window = layer(x, mask=window_mask(N, before=2))
    for split in splits(N):
        assert_same(in_steps(layer, x, split, KVCache(N)), expected)
        assert_same(in_steps(layer, x, split, RollingCache(2)), through_a_window)


def test_a_bias_by_distance_goes_on_where_the_cache_ends():
    layer, x = some_layer(num_kv_heads=3), some_words()
    expected = layer(x, mask=causal_mask(N), bias=rules.alibi(H, N))
    for split in splits(N):
        cache, outputs = KVCache(N), []
        for new in x.split(split, dim=1):
            i = new.shape[1]
            bias = rules.alibi(H, i, len(cache) + i)
            outputs.append(layer(new, mask=cache.mask(i), bias=bias, cache=cache))
        assert_same(torch.cat(outputs, dim=1), expected)


def test_padding_in_front_stays_hidden(attend):
    layer, x = some_layer(attend=attend), some_words()
    padding = padding_mask([N, 4], N, side="left")
    expected = layer(x, mask=causal_mask(N) & padding)
    for split in splits(N):
        cache, outputs = KVCache(N), []
        for new in x.split(split, dim=1):
            mask = cache.mask(new.shape[1])
            mask = mask & padding[..., : mask.shape[-1]]
            outputs.append(layer(new, mask=mask, cache=cache))
        assert_same(torch.cat(outputs, dim=1), expected)


def test_weights_of_steps_are_rows_of_all_weights():
    layer, x, cache = some_layer(num_kv_heads=2), some_words(), KVCache(N)
    _, expected = layer(x, mask=causal_mask(N), return_weights=True)
    for n in range(N):
        new = x[:, n : n + 1]
        _, weights = layer(new, mask=cache.mask(1), cache=cache, return_weights=True)
        assert_same(weights, expected[:, :, n : n + 1, : n + 1])


@pytest.mark.slow
@given(seeds, few, few, st.lists(few, min_size=1, max_size=5), st.integers(0, 9))
def test_any_batch_heads_and_split_give_what_the_whole_run_gives(seed, b, g, split, before):
    torch.manual_seed(seed)
    layer, x, n = some_layer(num_kv_heads=g), some_words(b, sum(split)), sum(split)
    for cache, mask in {
        KVCache(n): causal_mask(n),
        RollingCache(before): window_mask(n, before=before),
    }.items():
        assert_same(in_steps(layer, x, split, cache), layer(x, mask=mask))


@pytest.mark.parametrize("kind", [partial(KVCache, N), partial(RollingCache, 2)])
def test_without_gradients_any_mode_will_do(kind):
    layer, x = some_layer(), some_words()
    with torch.inference_mode():
        inferred = in_steps(layer, x, [2, 1, 3], kind())
    assert_same(inferred.clone(), in_steps(layer, x, [2, 1, 3], kind()))


@pytest.mark.parametrize("kind", [partial(KVCache, N), partial(RollingCache, 2)])
def test_what_is_made_for_a_cache_is_made_where_the_inputs_are(attend, kind):
    layer, x = some_layer(attend=attend, num_kv_heads=2), some_words()
    expected = in_steps(layer, x, [3, 1, 2], kind())
    with torch.device("meta"):  # for what nobody says a device for
        assert_same(in_steps(layer, x, [3, 1, 2], kind()), expected)


def test_no_positions_are_an_empty_step():
    layer, x, cache = some_layer(), some_words(), KVCache(N)
    assert_same(in_steps(layer, x, [0, 4, 0, 2], cache), layer(x, mask=causal_mask(N)))


# What is wrong, and would be so in silence.


def test_a_mask_lined_up_at_the_start_shows_a_step_the_first_key_alone():
    layer, x, cache = some_layer(), some_words(), KVCache(N)
    layer(x[:, :4], mask=cache.mask(4), cache=cache)
    mask = causal_mask(1, 5, align="start")
    _, weights = layer(x[:, 4:5], mask=mask, cache=cache, return_weights=True)
    assert weights[0, 0, 0].tolist() == [1, 0, 0, 0, 0]


def test_a_mask_of_the_whole_run_does_not_fit_a_step():
    layer, x, cache = some_layer(), some_words(), KVCache(N)
    with pytest.raises(ValueError, match=r"mask of shape \(6, 6\) must match scores of shape"):
        layer(x[:, :1], mask=causal_mask(N), cache=cache)


# What a layer computes, and what a cache keeps.


def rows_projected(layer: MultiHeadAttention) -> list[int]:
    """How many positions come to the key projection, call by call."""
    rows = []
    layer.k_proj.register_forward_hook(lambda module, args, output: rows.append(args[0].shape[1]))
    return rows


def test_new_positions_alone_are_projected():
    layer, x = some_layer(), some_words()
    rows = rows_projected(layer)
    in_steps(layer, x, [3, 1, 2], KVCache(N))
    assert rows == [3, 1, 2]


def test_keys_are_kept_as_they_were_projected_one_for_each_shared_head():
    layer, x, cache = some_layer(num_kv_heads=2, attend=ROTARY["halves"]), some_words(), KVCache(7)
    in_steps(layer, x, [4, 2], cache)
    for kept, projection in ((cache.keys, layer.k_proj), (cache.values, layer.v_proj)):
        expected = projection(x).unflatten(-1, (2, D)).transpose(1, 2)
        assert_same(kept[:, :, :N], expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_a_cache_takes_its_memory_at_once(dtype):
    cache, (key, value) = KVCache(11), keys_and_values(dtype=dtype)
    assert cache.bytes == 0
    for n in (2, 4):
        cache.append(key, value)
        assert cache.bytes == B * 3 * 11 * (5 + 7) * dtype.itemsize
        assert len(cache) == cache.seen == n


def test_a_rolling_cache_stops_growing():
    cache, lengths, sizes = RollingCache(3), [], []
    for n in (2, 2, 1, 5):
        cache.append(*keys_and_values(n=n))
        lengths.append(len(cache))
        sizes.append(cache.bytes)
        stored = cache.keys.untyped_storage().nbytes() + cache.values.untyped_storage().nbytes()
        assert stored == cache.bytes
    assert lengths == [2, 3, 3, 3]
    assert sizes == [B * 3 * length * (5 + 7) * 8 for length in lengths]
    assert cache.seen == 10


@pytest.mark.parametrize("kind", [KVCache, RollingCache])
def test_what_is_kept_does_not_follow_what_came_in(kind):
    cache, (key, value) = kind(4), keys_and_values()
    before = key.clone(), value.clone()
    cache.append(key, value)
    key.zero_()
    value.zero_()
    together = cache.append(*keys_and_values(n=0))
    assert_same(together[0], before[0])
    assert_same(together[1], before[1])


def test_a_copy_goes_its_own_way():
    layer, x, cache = some_layer(), some_words(), KVCache(N)
    layer(x[:, :4], mask=cache.mask(4), cache=cache)
    other, others = copy.deepcopy(cache), some_words(n=2)
    in_steps(layer, others, [1, 1], other)
    expected = layer(x, mask=causal_mask(N))[:, 4:]
    assert_same(in_steps(layer, x[:, 4:], [1, 1], cache), expected)


@pytest.mark.parametrize("kind", [partial(KVCache, N), partial(RollingCache, 2)])
def test_a_cache_that_is_reset_begins_anew(kind):
    layer, x, cache = some_layer(), some_words(), kind()
    expected = in_steps(layer, x, [4, 2], cache)
    cache.reset()
    assert len(cache) == cache.seen == 0
    assert_same(in_steps(layer, x, [1, 5], cache), expected)


# A memory, whose keys and values come once.


def test_a_memory_is_projected_once():
    layer, x, memory = some_layer(key_size=5, value_size=5), some_words(), torch.randn(B, 7, 5)
    memory, cache = memory.double(), MemoryCache()
    mask = padding_mask([7, 4], 7)
    expected = layer(x, memory, mask=mask)
    rows = rows_projected(layer)
    outputs = [
        layer(new, cache.new_of(memory), mask=mask, cache=cache) for new in x.split(2, dim=1)
    ]
    assert rows == [7, 0, 0]
    assert_same(torch.cat(outputs, dim=1), expected)


def test_a_memory_cache_takes_room_for_its_memory_and_no_more():
    layer, memory, cache = some_layer(), some_words(n=7), MemoryCache()
    layer(some_words(n=1), cache.new_of(memory), cache=cache)
    assert cache.bytes == 2 * memory.nbytes


def test_a_memory_comes_again_until_its_keys_are_kept():
    layer, x, memory, cache = some_layer(), some_words(), some_words(n=7), MemoryCache()
    with pytest.raises(ValueError, match="mask of shape"):
        layer(x, cache.new_of(memory), mask=torch.ones(2, 2, dtype=torch.bool))
    for _ in range(2):
        assert_same(layer(x, cache.new_of(memory), cache=cache), layer(x, memory))


def test_all_of_a_memory_may_be_attended_to():
    layer, x, memory, cache = some_layer(), some_words(), some_words(n=7), MemoryCache()
    for _ in range(2):
        new, mask = cache.new_of(memory), cache.mask(N)
        assert mask.tensor().all()
        assert_same(layer(x, new, mask=mask, cache=cache), layer(x, memory))


def test_before_a_memory_comes_there_is_room_for_no_key():
    with pytest.raises(ValueError, match="room for 0 positions, holds 0 and was given 1 more"):
        MemoryCache().append(*keys_and_values(n=1))


def test_another_memory_is_an_error():
    layer, x, cache = some_layer(), some_words(), MemoryCache()
    layer(x, cache.new_of(some_words(n=7)), cache=cache)
    message = "^the cache holds the keys of another memory: make a new one, or reset$"
    with pytest.raises(ValueError, match=message):
        cache.new_of(some_words(n=7))
    cache.reset()
    other = some_words(n=5)
    assert_same(layer(x, cache.new_of(other), cache=cache), layer(x, other))


# Blocks, and a whole decoder.


@pytest.mark.parametrize("residual", [PreNorm, PostNorm], ids=["pre-norm", "post-norm"])
def test_every_split_of_a_block_gives_what_the_whole_run_gives(attend, residual):
    block = DecoderBlock(M, H, residual=residual, attend=attend).double()
    x, memory, memory_mask = some_words(), some_words(n=7), padding_mask([7, 4], 7)
    kinds = {
        partial(KVCache, N): causal_mask(N),
        partial(RollingCache, 2): window_mask(N, before=2),
    }
    for kind, whole_mask in kinds.items():
        expected = block(x, memory, whole_mask, memory_mask)
        for split in splits(N):
            cache, outputs = BlockCache(kind(), MemoryCache()), []
            for new in x.split(split, dim=1):
                mask = cache.back.mask(new.shape[1])
                outputs.append(block(new, memory, mask, memory_mask, cache=cache))
            assert_same(torch.cat(outputs, dim=1), expected)


def some_model(**options) -> Transformer:
    sizes = {"d_model": M, "num_heads": H, "num_layers": 2}
    return Transformer(29, 19, **sizes | options).double().eval()


def room_for(model: Transformer, capacity: int) -> DecoderCache:
    return DecoderCache(KVCache(capacity) for _ in model.decoder)


def test_every_split_of_a_target_gives_the_logits_of_the_whole_run():
    model, source, target = some_model(), torch.randint(29, (B, 7)), torch.randint(19, (B, N))
    mask = padding_mask([7, 4], 7)
    memory, expected = model.encode(source, mask), model(source, target, mask)
    for split in splits(N):
        cache = room_for(model, N)
        logits = [model.decode(new, memory, mask, cache=cache) for new in target.split(split, 1)]
        assert_same(torch.cat(logits, dim=1), expected)
        assert cache.seen == N


def test_places_are_counted_from_where_the_first_token_stands():
    model, memory, target = some_model(), some_words(n=7), torch.randint(19, (B, N))
    expected, cache = model.decode(target, memory, start=3), room_for(model, N)
    logits = [model.decode(new, memory, start=3, cache=cache) for new in target.split(2, 1)]
    assert_same(torch.cat(logits, dim=1), expected)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_written_with_a_cache_is_what_is_written_without(seed):
    torch.manual_seed(seed)
    model, source, mask = some_model(), torch.randint(29, (B, 7)), padding_mask([7, 4], 7)
    expected = greedy(model, source, mask, start=1, steps=9)
    assert len(expected.unique()) > 1
    cache = room_for(model, 9)
    assert torch.equal(greedy(model, source, mask, start=1, steps=9, cache=cache), expected)


def test_to_write_projects_each_token_and_the_memory_once():
    model, source = some_model(), torch.randint(29, (B, 7))
    of_target = rows_projected(model.decoder[1].self_attention)
    of_memory = rows_projected(model.decoder[1].cross_attention)
    greedy(model, source, start=1, steps=4, cache=room_for(model, 4))
    assert (of_target, of_memory) == ([1, 1, 1, 1], [7, 0, 0, 0])


def test_a_decoder_takes_the_bytes_of_all_its_caches():
    model, source = some_model(), torch.randint(29, (B, 7))
    cache = room_for(model, 5)
    greedy(model, source, start=1, steps=3, cache=cache)
    a_position = 2 * B * M * 8  # a key and a value
    assert cache.bytes == 2 * (5 + 7) * a_position


WRONG_TARGETS = {
    "the cache has room for 3 positions, holds 3 and was given 1 more": 3,
    "the decoder has 2 blocks, the cache is for 1": None,
}


@pytest.mark.parametrize("message", WRONG_TARGETS)
def test_a_cache_that_does_not_fit_the_decoder_is_an_error(message):
    model, capacity = some_model(), WRONG_TARGETS[message]
    cache = room_for(model, capacity) if capacity else DecoderCache([KVCache(9)])
    with pytest.raises(ValueError, match=f"^{message}$"):
        greedy(model, torch.randint(29, (B, 7)), start=1, steps=4, cache=cache)


def test_a_decoder_without_caches_is_an_error():
    message = "^a decoder has at least one block: give a cache for each$"
    with pytest.raises(ValueError, match=message):
        DecoderCache([])


def test_another_source_is_an_error():
    model = some_model()
    cache = room_for(model, 9)
    greedy(model, torch.randint(29, (B, 7)), start=1, steps=4, cache=cache)
    with pytest.raises(ValueError, match="the cache holds the keys of another memory"):
        greedy(model, torch.randint(29, (B, 7)), start=1, steps=5, cache=cache)


# Errors.


def test_what_does_not_fit_is_an_error_and_changes_nothing():
    layer, x, cache = some_layer(), some_words(), KVCache(5)
    layer(x[:, :4], mask=cache.mask(4), cache=cache)
    kept = cache.keys.clone()
    message = "the cache has room for 5 positions, holds 4 and was given 2 more"
    with pytest.raises(ValueError, match=message):
        layer(x[:, 4:], mask=cache.mask(2), cache=cache)
    assert len(cache) == 4
    assert torch.equal(cache.keys[:, :, :4], kept[:, :, :4])
    expected = layer(x[:, :5], mask=causal_mask(5))[:, 4:]
    assert_same(layer(x[:, 4:5], mask=cache.mask(1), cache=cache), expected)


WRONG = {
    "a cache takes keys b g j d and values b g j e; got shapes (2, 2, 5) and (2, 3, 2, 7)": (
        lambda key, value: (key[:, 0], value)
    ),
    "a cache takes keys b g j d and values b g j e; got shapes (2, 3, 2, 5) and (2, 3, 1, 7)": (
        lambda key, value: (key, value[:, :, 1:])
    ),
    "key has 1 items, 3 heads and 5 features, the kept ones have 2, 3 and 5": (
        lambda key, value: (key[:1], value[:1])
    ),
    "key has 2 items, 1 heads and 5 features, the kept ones have 2, 3 and 5": (
        lambda key, value: (key[:, :1], value[:, :1])
    ),
    "value has 2 items, 3 heads and 6 features, the kept ones have 2, 3 and 7": (
        lambda key, value: (key, value[..., 1:])
    ),
    "key is on meta, the kept ones are on cpu": lambda key, value: (key.to("meta"), value),
    "value is on meta, the kept ones are on cpu": lambda key, value: (key, value.to("meta")),
}
WRONG_DTYPES = {
    "key is torch.float32, the kept ones are torch.float64": lambda k, v: (k.float(), v),
    "value is torch.bfloat16, the kept ones are torch.float64": lambda k, v: (k, v.bfloat16()),
}


@pytest.mark.parametrize("kind", [partial(KVCache, N), partial(RollingCache, 2)])
@pytest.mark.parametrize("message", [*WRONG, *WRONG_DTYPES])
def test_keys_that_do_not_go_on_from_the_kept_ones_are_errors(kind, message):
    cache = kind()
    cache.append(*keys_and_values())
    change = (WRONG | WRONG_DTYPES)[message]
    error = TypeError if message in WRONG_DTYPES else ValueError
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        cache.append(*change(*keys_and_values()))
    assert cache.seen == 2


def test_a_cache_that_would_need_gradients_is_an_error():
    layer, x, cache = some_layer(), some_words(), KVCache(N)
    message = r"^a cache keeps no gradients: call the layer under torch.no_grad\(\)$"
    with torch.enable_grad(), pytest.raises(ValueError, match=message):
        layer(x, cache=cache)
    frozen = layer.requires_grad_(False)
    with torch.enable_grad():
        assert_same(in_steps(frozen, x, [2, 4], cache), layer(x, mask=causal_mask(N)))


@pytest.mark.parametrize("which", range(2))
def test_gradients_of_keys_or_values_alone_are_an_error_too(which):
    pair = keys_and_values()
    pair[which].requires_grad_()
    with torch.enable_grad(), pytest.raises(ValueError, match="a cache keeps no gradients"):
        KVCache(N).append(*pair)


NEGATIVE = {
    "capacity must be at least 0; got -1": lambda: KVCache(-1),
    "before must be at least 0; got -2": lambda: RollingCache(-2),
}


@pytest.mark.parametrize("message", NEGATIVE)
def test_sizes_below_0_are_errors(message):
    with pytest.raises(ValueError, match=message):
        NEGATIVE[message]()


# Calls that fail, and leave a cache as it was.


def breaks_with(error: BaseException):
    """A function to attend with that breaks after the cache has the new keys."""

    def attend(query, key, value, mask=None, *, bias=None, scale=None):
        raise error

    return attend


FAULTS = {
    "a mask that does not fit": (ValueError, {"mask": torch.ones(3, 3, dtype=torch.bool)}, None),
    "a mask of floats": (TypeError, {"mask": torch.ones(2, 6)}, None),
    "a bias that does not fit": (ValueError, {"bias": torch.zeros(3, 3).double()}, None),
    "no memory": (MemoryError, {}, breaks_with(MemoryError())),
    "a key pressed": (KeyboardInterrupt, {}, breaks_with(KeyboardInterrupt())),
}


def unchanged(cache: Cache, before: dict) -> bool:
    return len(vars(cache)) == len(before) and all(
        vars(cache)[name] is what for name, what in before.items()
    )


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("start", [0, 4], ids=["at first", "later"])
@pytest.mark.parametrize("kind", [partial(KVCache, N), partial(RollingCache, 2)])
def test_a_call_that_fails_leaves_the_cache_as_it_was(kind, start, fault):
    error, given, broken = FAULTS[fault]
    layer, x, cache = some_layer(num_kv_heads=2), some_words(), kind()
    mask = window_mask(N, before=2) if isinstance(cache, RollingCache) else causal_mask(N)
    expected, attend = layer(x, mask=mask), layer.attend
    outputs = [layer(x[:, :start], mask=cache.mask(start), cache=cache)] if start else []
    before = dict(vars(cache))
    layer.attend = broken or attend
    with pytest.raises(error):
        layer(x[:, start : start + 2], cache=cache, **given)
    assert unchanged(cache, before)
    layer.attend = attend
    outputs.append(in_steps(layer, x[:, start:], [1, N - start - 1], cache))
    assert_same(torch.cat(outputs, dim=1), expected)


def test_what_a_cache_of_ones_own_notes_is_taken_back_too():
    class Noting(KVCache):
        def _extend(self, key, value):
            self.newest = key
            return super()._extend(key, value)

    layer, x, cache = some_layer(), some_words(), Noting(N)
    with pytest.raises(ValueError, match="mask of shape"):
        layer(x[:, :2], mask=causal_mask(3), cache=cache)
    assert not hasattr(cache, "newest")
    layer(x[:, :2], mask=cache.mask(2), cache=cache)
    assert cache.newest.shape[-2] == 2


def test_a_block_that_fails_across_takes_back_what_it_looked_back_at():
    block, x, memory = DecoderBlock(M, H).double(), some_words(), some_words(n=7)
    expected, cache = block(x, memory, causal_mask(N)), BlockCache(KVCache(N), MemoryCache())
    outputs = []
    for new in x.split(2, dim=1):
        before = [dict(vars(one)) for one in cache]
        with pytest.raises(ValueError, match="mask of shape"):
            block(new, memory, cache.back.mask(2), padding_mask([5, 4], 6), cache=cache)
        assert all(map(unchanged, cache, before))
        outputs.append(block(new, memory, cache.back.mask(2), cache=cache))
    assert_same(torch.cat(outputs, dim=1), expected)


def test_the_caches_of_a_decoder_stay_in_step_when_a_later_block_fails():
    model, memory, target = some_model(), some_words(n=7), torch.randint(19, (B, N))
    expected, cache = model.decode(target, memory), DecoderCache([KVCache(N), KVCache(4)])
    logits = [model.decode(target[:, :3], memory, cache=cache)]
    with pytest.raises(ValueError, match="room for 4 positions, holds 3 and was given 2 more"):
        model.decode(target[:, 3:5], memory, cache=cache)
    assert [block.back.seen for block in cache.blocks] == [3, 3]
    logits.append(model.decode(target[:, 3:4], memory, cache=cache))
    assert_same(torch.cat(logits, dim=1), expected[:, :4])


def test_a_memory_that_does_not_fit_is_not_taken_for_the_first():
    model, memory, target = some_model(), some_words(n=7), torch.randint(19, (B, N))
    cache = room_for(model, N)
    with pytest.raises(ValueError, match="key must have the axes"):
        model.decode(target, memory[..., 1:], cache=cache)
    assert cache.bytes == cache.seen == 0
    assert_same(model.decode(target, memory, cache=cache), model.decode(target, memory))


def test_what_was_written_without_room_may_be_written_again():
    model, source = some_model(), torch.randint(29, (B, 7))
    cache = room_for(model, 4)
    with pytest.raises(ValueError, match="room for 4 positions, holds 4 and was given 1 more"):
        greedy(model, source, start=1, steps=5, cache=cache)
    assert cache.bytes == cache.seen == 0
    written = greedy(model, source, start=1, steps=4, cache=cache)
    assert torch.equal(written, greedy(model, source, start=1, steps=4))


def test_copies_of_a_decoders_cache_go_on_with_the_same_memory():
    model, memory, target = some_model(), some_words(n=7), torch.randint(19, (B, N))
    cache = room_for(model, N)
    model.decode(target[:, :4], memory, cache=cache)
    for tail in (target[:, 4:], torch.randint(19, (B, 2))):
        whole = torch.cat([target[:, :4], tail], dim=1)
        copied = copy.deepcopy(cache)
        with pytest.raises(ValueError, match="another memory"):
            model.decode(tail, memory.clone(), cache=copied)
        logits = model.decode(tail, memory, cache=copied)
        assert_same(logits, model.decode(whole, memory)[:, 4:])
        assert (cache.seen, copied.seen) == (4, N)
        with pytest.raises(ValueError, match="another memory"):
            model.decode(tail[:, :0], memory.clone(), cache=copied)
