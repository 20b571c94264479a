"""JAX and Keras as functions of torch tensors, so that every oracle of `tests` can take them.

Outputs and gradients are computed by the other framework; here they only change hands.
"""

import jax
import jax.numpy as jnp
import numpy as np
import torch
from einops import rearrange
from torch import Tensor

# How Keras keeps our parameters, in the order of a layer's `trainable_variables`: it computes
# x W with an axis of its own for the heads, we compute W x with all heads in one matrix.
KERAS_LAYOUT = {
    "q_proj.weight": "(h d) m -> m h d",
    "q_proj.bias": "(h d) -> h d",
    "k_proj.weight": "(h d) m -> m h d",
    "k_proj.bias": "(h d) -> h d",
    "v_proj.weight": "(h e) m -> m h e",
    "v_proj.bias": "(h e) -> h e",
    "out_proj.weight": "m (h e) -> h e m",
    "out_proj.bias": "m -> m",
}


def to_jax(tensor: Tensor) -> jax.Array:
    return jnp.asarray(tensor.detach().numpy())


def to_torch(array: jax.Array) -> Tensor:
    return torch.from_numpy(np.array(array))


class _Computed(torch.autograd.Function):
    """A function of JAX arrays, called with torch tensors and differentiated by JAX."""

    @staticmethod
    def forward(ctx, function, *tensors):
        output, ctx.pull_back = jax.vjp(function, *map(to_jax, tensors))
        return to_torch(output)

    @staticmethod
    def backward(ctx, upstream):
        return None, *map(to_torch, ctx.pull_back(to_jax(upstream)))


def jax_attention(query, key, value, mask=None, *, bias=None, scale=None, **options) -> Tensor:
    """`jax.nn.dot_product_attention`, called as `attention` is, for inputs `b h n d`."""
    mask = None if mask is None else to_jax(mask)

    def function(q, k, v, bias=None):
        q, k, v = (rearrange(x, "b h n d -> b n h d") for x in (q, k, v))
        output = jax.nn.dot_product_attention(q, k, v, bias, mask, scale=scale, **options)
        return rearrange(output, "b i h e -> b h i e")

    return _Computed.apply(function, query, key, value, *([] if bias is None else [bias]))


def keras_attention(
    layer, query, key, value, mask=None, *, parameters, returned=None, **options
) -> Tensor:
    """A built Keras layer on inputs `b n m`, with `parameters` in the place of its own.

    `returned` is None for the output as it comes when no weights are asked for; with weights
    asked for it is 0 for the output and 1 for the weights.
    """
    if mask is not None:
        options["attention_mask"] = to_jax(mask)
    if returned is not None:
        options["return_attention_scores"] = True

    def function(q, k, v, *parameters):
        fixed = [variable.value for variable in layer.non_trainable_variables]
        result, _ = layer.stateless_call(parameters, fixed, q, v, k, **options)
        return result if returned is None else result[returned]

    return _Computed.apply(function, query, key, value, *parameters)


def keras_parameters(parameters: dict[str, Tensor], h: int, **other_layout) -> list[Tensor]:
    """The parameters of a `MultiHeadAttention` of `h` heads, as a Keras layer keeps them."""
    layout = KERAS_LAYOUT | other_layout
    assert parameters.keys() == layout.keys()
    return [
        rearrange(parameters[name], pattern, **({"h": h} if "h" in pattern else {}))
        for name, pattern in layout.items()
    ]
