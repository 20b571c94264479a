"""The test vectors of ONNX's operators, and two of them said with this package's names.

Another project made their inputs and their outputs, by an implementation of its own in NumPy.
Sources: the operators `Attention`, opset 25, https://onnx.ai/onnx/operators/onnx__Attention.html,
and `RotaryEmbedding`, opset 23, https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html.
"""

import importlib
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from einops import rearrange, repeat
from onnx.backend.test.case import node as onnx_cases
from onnx.helper import get_node_attr_value
from torch import Tensor
from torch.nn import functional as F

from mini_attention import (
    attention_scores,
    attention_weights,
    causal_mask,
    padding_mask,
    window_mask,
)
from mini_attention.position import rotate
from tests.oracles import TOLERANCE


class Vector(NamedTuple):
    """One case: what goes into an operator, and what has to come out."""

    name: str
    attributes: dict[str, Any]
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]


# The loader.


@cache
def load(operator: str) -> dict[str, Vector]:
    """All cases of an operator, by name, without their twins that are expanded into a graph.

    `collect_testcases` serves one operator a process and imports the cases of every other one,
    which takes seconds. A module of cases hands each to `expect` while it is imported: here
    it finds another `expect`, and is imported again if somebody did so before.
    """
    vectors = {}

    def record(node, inputs, outputs, name, **_):
        attributes = {a.name: get_node_attr_value(node, a.name) for a in node.attribute}
        given, wanted = _named(node.input, inputs), _named(node.output, outputs)
        vectors[name] = Vector(name, attributes, given, wanted)

    with patch.object(onnx_cases, "expect", record):
        module = importlib.import_module(f"{onnx_cases.__name__}.{operator.lower()}")
        if not vectors:
            importlib.reload(module)
    return vectors


def _named(names: Sequence[str], arrays: Sequence[np.ndarray]) -> dict[str, Tensor]:
    """Arrays by the names of a node, where an empty name stands for what is left out."""
    return dict(zip(filter(None, names), map(_tensor, arrays), strict=True))


def _tensor(array: np.ndarray) -> Tensor:
    if array.dtype.name == "bfloat16":  # which NumPy has no dtype of its own for
        return torch.from_numpy(array.astype(np.float32)).bfloat16()
    return torch.from_numpy(array)


# The adapter of Attention. Where ONNX calls a float that is added a mask, here it is a bias.


def arguments(vector: Vector) -> dict[str, Any]:
    """What `attention` and its kind have to be called with.

    `softmax_precision` is not among it: what it changes is far below the tolerance.
    """
    query, key, value = heads(vector)
    mask, bias = mask_and_bias(vector)
    given = {"query": query, "key": key, "value": value, "mask": mask, "bias": bias}
    given["scale"] = vector.attributes.get("scale")
    if "softcap" not in vector.attributes:
        return given
    # A query of 0 scores 0 everywhere, and leaves the scores to the bias.
    capped = capped_scores(vector)
    return given | {
        "query": torch.zeros_like(query),
        "bias": capped if bias is None else capped + bias,
    }


def output(vector: Vector, attend) -> Tensor:
    """The output Y of `attend`, with the axes that the query came with."""
    result = attend(**arguments(vector))
    return result if vector.inputs["Q"].ndim == 4 else rearrange(result, "b h i e -> b i (h e)")


def stage(vector: Vector) -> Tensor:
    """The output qk_matmul_output: one of four stages on the way from scores to weights."""
    mode = vector.attributes.get("qk_matmul_output_mode", 0)
    if mode == 0:
        return raw_scores(vector)
    if mode == 1:
        return capped_scores(vector)
    given = arguments(vector)
    del given["value"]
    if mode == 3:
        return attention_weights(**given)
    mask = given.pop("mask")
    scores = attention_scores(**given)
    return scores if mask is None else scores.masked_fill(~mask, -torch.inf)


def raw_scores(vector: Vector) -> Tensor:
    query, key, _ = heads(vector)
    return attention_scores(query, key, scale=vector.attributes.get("scale"))


def capped_scores(vector: Vector) -> Tensor:
    softcap = vector.attributes["softcap"]
    return softcap * (raw_scores(vector) / softcap).tanh()


def heads(vector: Vector) -> tuple[Tensor, Tensor, Tensor]:
    """The query, and for each of its heads the key and the value, cached ones first."""
    query = split_heads(vector.inputs["Q"], vector.attributes.get("q_num_heads"))
    key, value = present(vector).values()
    # Query heads that share a key head are neighbours: 0 0 0 1 1 1, and not 0 1 0 1 0 1.
    group = query.shape[1] // key.shape[1]
    key, value = (repeat(x, "b h j f -> b (h group) j f", group=group) for x in (key, value))
    return query, key, value


def present(vector: Vector) -> dict[str, Tensor]:
    """The cache after the step: the old keys and values, then the new ones."""
    shared = {}
    for name, new in {"key": vector.inputs["K"], "value": vector.inputs["V"]}.items():
        new = split_heads(new, vector.attributes.get("kv_num_heads"))
        past = vector.inputs.get(f"past_{name}", new[:, :, :0])
        shared[f"present_{name}"] = torch.cat([past, new], dim=2)
    return shared


def split_heads(tensor: Tensor, num_heads: int | None) -> Tensor:
    return tensor if tensor.ndim == 4 else rearrange(tensor, "b n (h f) -> b h n f", h=num_heads)


def mask_and_bias(vector: Vector) -> tuple[Tensor | None, Tensor | None]:
    """The mask is where all of them allow: the given one, positions and lengths."""
    mask, given = positions(vector), vector.inputs.get("attn_mask")
    if given is None:
        return mask, None
    # A mask may be too short, but reaches every key that is not padding.
    missing = present(vector)["present_key"].shape[2] - given.shape[-1]
    given = F.pad(given, (0, missing))
    if given.ndim in (1, 3):  # ranks that this package does not guess about
        given = rearrange(given, {1: "j -> 1 j", 3: "h i j -> 1 h i j"}[given.ndim])
    if given.dtype != torch.bool:
        return mask, given
    return (given if mask is None else mask & given), None


def positions(vector: Vector) -> Tensor | None:
    """Who may attend to whom by where they stand, or None where that limits nobody."""
    causal = vector.attributes.get("is_causal", 0)
    sides = {"before": "left_window_size", "after": "right_window_size"}
    window = {side: vector.attributes.get(name, -1) for side, name in sides.items()}
    window = {side: None if size < 0 else size for side, size in window.items()}
    lengths = vector.inputs.get("nonpad_kv_seqlen")
    if not causal and set(window.values()) == {None} and lengths is None:
        return None

    def near(i, j, align):
        mask = window_mask(i, j, **window, align=align)
        return mask & causal_mask(i, j, align=align) if causal else mask

    i, j = vector.inputs["Q"].shape[-2], present(vector)["present_key"].shape[2]
    if lengths is None:
        # The first query stands behind the cache, and without one at the first key, however
        # many keys come after: position p is row p of the mask that starts at the first key.
        past = j - vector.inputs["K"].shape[-2]
        return near(past + i, j, "start")[past:]
    # The last query of an item stands at the last of its own keys. Padding comes after those.
    own = [near(i, length, "end") for length in lengths.tolist()]
    own = [F.pad(mask, (0, j - mask.shape[1]), value=True) for mask in own]
    padding = padding_mask(lengths, j)
    return rearrange(own, "b i j -> b 1 i j") & rearrange(padding, "b 1 j -> b 1 1 j")


# The adapter of RotaryEmbedding, which is given cosines and sines and asks for no angle.


def rotated(vector: Vector) -> Tensor:
    """The output: the first features rotated, by rows of the caches that positions choose."""
    given, attributes = vector.inputs, vector.attributes
    x = split_heads(given["input"], attributes.get("num_heads"))
    cos, sin = given["cos_cache"], given["sin_cache"]
    if "position_ids" in given:  # without them the caches are b n d already
        cos, sin = cos[given["position_ids"]], sin[given["position_ids"]]
    cos, sin = (rearrange(cache, "b n d -> b 1 n d") for cache in (cos, sin))
    size = attributes.get("rotary_embedding_dim", 0) or x.shape[-1]
    pairing = "neighbours" if attributes.get("interleaved", 0) else "halves"
    turned = rotate(x[..., :size], cos, sin, pairing)
    result = torch.cat([turned, x[..., size:]], dim=-1)
    return result if given["input"].ndim == 4 else rearrange(result, "b h n d -> b n (h d)")


def assert_is(actual: Tensor, expected: Tensor) -> None:
    """Shape, dtype and numbers are those of a vector, which may hold no NaN.

    float32 has the tolerance of every other test. In half precision the vectors were rounded
    on the way: queries, keys, scores, biased scores, exponentials, their sum, weights and output.
    """
    assert not expected.isnan().any(), "the vector holds NaN"
    bound = TOLERANCE.get(expected.dtype, 4 * torch.finfo(expected.dtype).eps)
    torch.testing.assert_close(actual, expected, rtol=bound, atol=bound)
