"""What the tests compare with: slow and obvious references, one tolerance rule, and inputs.

The sizes are different primes, so that no two axes can be taken for each other.
"""

import math
from collections.abc import Callable, Mapping
from itertools import product

import torch
from torch import Tensor, nn
from torch.nn import functional as F

B, H, I, J, D, E = 2, 3, 5, 7, 11, 13  # noqa: E741, the alphabet's letters
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def assert_same(actual, expected, *, largest_score: float = 1.0) -> None:
    """The one tolerance rule: 1e-12 in float64, 1e-5 in float32, more for larger scores.

    Takes two tensors, or two dictionaries of tensors. A NaN in the reference is a failure too.
    """
    if isinstance(expected, Mapping):
        assert actual.keys() == expected.keys()
        for name in expected:
            assert_same(actual[name], expected[name], largest_score=largest_score)
        return
    assert not expected.isnan().any(), "the reference holds NaN"
    bound = TOLERANCE[actual.dtype] * max(1.0, largest_score)
    torch.testing.assert_close(actual, expected.to(actual.dtype), rtol=bound, atol=bound)


def inputs(*leading: int, i=I, j=J, d=D, e=E, dtype=torch.float64) -> dict[str, Tensor]:
    """A query, a key and a value with standard-normal entries."""
    shapes = {"query": (i, d), "key": (j, d), "value": (j, e)}
    return {name: torch.randn(*leading, *shape, dtype=dtype) for name, shape in shapes.items()}


def some_mask(*shape: int) -> Tensor:
    """About half of the pairs, and at least one key for every query."""
    mask = torch.rand(shape) > 0.5
    mask[..., 1] = True
    return mask


def some_bias(*shape: int, dtype=torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype)


def naive_weights(query, key, mask=None, *, bias=None, scale=None) -> Tensor:
    """One item, one query and one key at a time; a forbidden key is never looked at."""
    query, key = query.double(), key.double()
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    leading = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    pairs = (*leading, query.shape[-2], key.shape[-2])
    query, key = query.expand(*leading, -1, -1), key.expand(*leading, -1, -1)
    allowed = torch.ones(pairs, dtype=torch.bool) if mask is None else mask.expand(pairs)
    added = torch.zeros(pairs, dtype=torch.float64) if bias is None else bias.double().expand(pairs)
    rows = []
    for item in product(*map(range, pairs[:-1])):
        scores = {}
        for j in range(pairs[-1]):
            if allowed[item][j] and added[item][j] != -math.inf:
                scores[j] = scale * (query[item] * key[item[:-1]][j]).sum() + added[item][j]
        highest = max((score.item() for score in scores.values()), default=0.0)
        exps = {j: (score - highest).exp() for j, score in scores.items()}
        total = sum(exps.values())
        zero = query.new_zeros(())
        rows.append(torch.stack([exps[j] / total if j in exps else zero for j in range(pairs[-1])]))
    return torch.stack(rows).reshape(pairs)


def naive_attention(query, key, value, mask=None, *, bias=None, scale=None) -> Tensor:
    """For one query at a time, add up the values, each times its weight."""
    weights = naive_weights(query, key, mask, bias=bias, scale=scale)
    leading = torch.broadcast_shapes(weights.shape[:-2], value.shape[:-2])
    weights = weights.expand(*leading, -1, -1)
    value = value.double().expand(*leading, -1, -1)
    rows = []
    for item in product(*map(range, weights.shape[:-1])):
        rows.append(sum(w * v for w, v in zip(weights[item], value[item[:-1]], strict=True)))
    return torch.stack(rows).reshape(*weights.shape[:-1], value.shape[-1])


def torch_attention(query, key, value, mask=None, *, bias=None, scale=None) -> Tensor:
    """torch's own function, which takes a mask and a bias as one argument."""
    pairs = mask
    if bias is not None:
        pairs = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
    return F.scaled_dot_product_attention(query, key, value, pairs, scale=scale)


def with_gradients(function: Callable[..., Tensor], **tensors: Tensor) -> dict[str, Tensor]:
    """The output of `function(**tensors)` and the gradient of each tensor."""
    leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in tensors.items()}
    output = function(**leaves)
    fixed = torch.Generator().manual_seed(1)
    upstream = torch.randn(output.shape, dtype=torch.float64, generator=fixed, device="cpu")
    gradients = torch.autograd.grad(output, list(leaves.values()), upstream.to(output.dtype))
    return {"output": output.detach(), **dict(zip(leaves, gradients, strict=True))}


def with_another_default(function: Callable[..., Tensor], **tensors: Tensor) -> dict[str, Tensor]:
    """The same where torch puts a tensor on another device unless it is told which."""
    with torch.device("meta"):
        return with_gradients(function, **tensors)


def torch_layer(d_model: int, num_heads: int, **options) -> nn.MultiheadAttention:
    """torch's layer in float64 and in evaluation, with biases that are not 0."""
    layer = nn.MultiheadAttention(
        d_model, num_heads, batch_first=True, dtype=torch.float64, **options
    )
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer.eval()
