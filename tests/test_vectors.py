"""Attention as another project computes it: the test vectors of ONNX's operator.

None of them is left out: what lies outside the contract (softcap, the split of 3-D inputs,
caches) is composed from public names in `vectors`.
"""

import importlib
from collections import Counter

import pytest
import torch

from tests.vectors import Vector, assert_is, load, output, present, stage

PREFIX = "test_attention_"
VECTORS = {name.removeprefix(PREFIX): vector for name, vector in load("Attention").items()}
CACHED = [name for name, vector in VECTORS.items() if "present_key" in vector.outputs]
STAGED = [name for name, vector in VECTORS.items() if "qk_matmul_output" in vector.outputs]


@pytest.mark.parametrize("name", VECTORS)
def test_the_output_is_that_of_the_vector(attend, name):
    assert_is(output(VECTORS[name], attend), VECTORS[name].outputs["Y"])


@pytest.mark.parametrize("name", STAGED)
def test_scores_and_weights_are_those_of_the_vector(name):
    assert_is(stage(VECTORS[name]), VECTORS[name].outputs["qk_matmul_output"])


@pytest.mark.parametrize("name", CACHED)
def test_the_cache_after_a_step_is_that_of_the_vector(name):
    for which, tensor in present(VECTORS[name]).items():
        assert_is(tensor, VECTORS[name].outputs[which])


# What the vectors hold. Another release of onnx can't thin them out in silence.


def shapes(vector: Vector) -> tuple[torch.Size, ...]:
    return tuple(vector.inputs[name].shape for name in "QKV")


def lengths_differ(vector: Vector) -> bool:
    query, key, _ = shapes(vector)
    return query[-2] != key[-2]


def heads_are_shared(vector: Vector) -> bool:
    query, key, _ = shapes(vector)
    split = vector.attributes.get
    return split("q_num_heads", query[1]) != split("kv_num_heads", key[1])


def values_have_another_size(vector: Vector) -> bool:
    _, key, value = shapes(vector)
    return key[-1] != value[-1]  # both have the same number of heads


def a_window_limits(vector: Vector) -> bool:
    return any(vector.attributes.get(f"{side}_window_size", -1) >= 0 for side in ("left", "right"))


def a_query_attends_to_nothing(vector: Vector) -> bool:
    return (vector.outputs["Y"] == 0).all(-1).any().item()


KINDS = {
    "lengths that differ": (84, lengths_differ),
    "causal": (32, lambda vector: vector.attributes.get("is_causal") == 1),
    "a cache": (21, lambda vector: "past_key" in vector.inputs),
    "heads that are shared": (17, heads_are_shared),
    "a length for each item": (13, lambda vector: "nonpad_kv_seqlen" in vector.inputs),
    "a window": (10, a_window_limits),
    "softcap": (11, lambda vector: "softcap" in vector.attributes),
    "a scale": (6, lambda vector: "scale" in vector.attributes),
    "half precision": (11, lambda vector: vector.inputs["Q"].dtype.itemsize == 2),
    "a query that attends to nothing": (8, a_query_attends_to_nothing),
    "values of another size": (17, values_have_another_size),
    "inputs of three axes": (25, lambda vector: vector.inputs["Q"].ndim == 3),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_vectors_hold_as_many_of_a_kind_as_ever(kind):
    number, belongs = KINDS[kind]
    assert sum(map(belongs, VECTORS.values())) == number


def test_the_vectors_hold_masks_of_both_sorts_in_every_rank():
    masks = [v.inputs["attn_mask"] for v in VECTORS.values() if "attn_mask" in v.inputs]
    ranks = {
        sort: {mask.ndim for mask in masks if (mask.dtype == torch.bool) == sort}
        for sort in (True, False)
    }
    assert ranks == {True: {1, 2, 4}, False: {2, 3, 4}}


def test_the_vectors_hold_all_four_stages():
    modes = Counter(VECTORS[name].attributes.get("qk_matmul_output_mode", 0) for name in STAGED)
    assert modes == {0: 3, 1: 2, 2: 7, 3: 6}


def test_no_vector_holds_nan():
    for vector in VECTORS.values():
        for tensor in (vector.inputs | vector.outputs).values():
            assert not tensor.isnan().any()


# The loader and the comparison.

NUMBERS = {"Attention": 93, "RotaryEmbedding": 8}


@pytest.mark.parametrize("first", NUMBERS)
def test_one_process_loads_several_operators_in_any_order(first):
    load.cache_clear()
    for operator in sorted(NUMBERS, key=lambda operator: operator != first):
        assert len(load(operator)) == NUMBERS[operator]


def test_a_module_that_was_imported_before_still_gives_its_cases():
    importlib.import_module("onnx.backend.test.case.node.rotaryembedding")
    load.cache_clear()
    assert len(load("RotaryEmbedding")) == NUMBERS["RotaryEmbedding"]


def test_inputs_that_a_vector_leaves_out_are_not_mistaken_for_others():
    given = VECTORS["4d_gqa_causal_nonpad_decode"].inputs
    assert list(given) == ["Q", "K", "V", "nonpad_kv_seqlen"]
    assert given["nonpad_kv_seqlen"].tolist() == [8, 5]


WRONG = {
    "a number": torch.tensor([[0.5, 0.2501]]),
    "NaN": torch.tensor([[0.5, torch.nan]]),
    "a shape": torch.tensor([0.5, 0.25]),
    "a dtype": torch.tensor([[0.5, 0.25]], dtype=torch.float64),
}


@pytest.mark.parametrize("what", WRONG)
def test_the_comparison_sees(what):
    right = torch.tensor([[0.5, 0.25]])
    assert_is(right.clone(), right)
    with pytest.raises(AssertionError):
        assert_is(WRONG[what], right)


def test_the_comparison_sees_nan_in_a_vector():
    number = torch.tensor([torch.nan])
    with pytest.raises(AssertionError, match="the vector holds NaN"):
        assert_is(number, number)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_the_comparison_forgives_half_precision_a_few_roundings_and_no_more(dtype):
    one, step = torch.ones(1, dtype=dtype), torch.finfo(dtype).eps
    assert_is(one + 4 * step, one)
    with pytest.raises(AssertionError):
        assert_is(one + 9 * step, one)
