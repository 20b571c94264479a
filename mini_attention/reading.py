"""Look at the heads of a trained model one by one, and switch them off.

A layer's output is a sum over its heads: each head's values, weighted, times its own rows of the
output projection. So a head can be watched, or replaced, where its values enter that projection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from einops import rearrange
from torch import Tensor, nn

from .heads import MultiHeadAttention


def attention_layers(model: nn.Module) -> dict[str, MultiHeadAttention]:
    """The layers with several heads in `model`, by their names.

    >>> from mini_attention import dates
    >>> list(attention_layers(dates.build()))[:2]
    ['encoder.0.self_attention', 'encoder.1.self_attention']
    """
    modules = model.named_modules()
    return {name: layer for name, layer in modules if isinstance(layer, MultiHeadAttention)}


@contextmanager
def watch_heads(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """What each head of each layer found, b h i e, by the layer's name, of its last call.

    That is the weighted mean of the values, before the output projection.

    >>> import torch
    >>> layer = MultiHeadAttention(d_model=6, num_heads=2)
    >>> with watch_heads(layer) as heads:
    ...     output = layer(torch.randn(1, 5, 6))
    >>> heads[""].shape
    torch.Size([1, 2, 5, 3])
    """
    found: dict[str, Tensor] = {}

    def keep(name: str, h: int, projection: nn.Module, args: tuple[Tensor]) -> None:
        found[name] = rearrange(args[0].detach(), "b i (h e) -> b h i e", h=h)

    hooks = [
        layer.out_proj.register_forward_pre_hook(partial(keep, name, layer.num_heads))
        for name, layer in attention_layers(model).items()
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def ablate(
    model: nn.Module,
    heads: Mapping[str, Sequence[int]],
    means: Mapping[str, Tensor] | None = None,
) -> Iterator[None]:
    """Switch heads off: what they found is replaced, as long as the context lasts.

        heads  the layer's name -> the numbers of its heads, counted from 0
        means  the layer's name -> h e, what takes a head's place (mean ablation); 0 unless given

    Raises ValueError for a layer or a head that the model lacks, and for means that do not fit.

    >>> import torch
    >>> layer, x = MultiHeadAttention(d_model=6, num_heads=2), torch.randn(1, 5, 6)
    >>> with ablate(layer, {"": [0, 1]}):
    ...     print(torch.equal(layer(x), layer.out_proj.bias.expand(1, 5, 6)))
    True
    """
    layers = attention_layers(model)
    for name, numbers in heads.items():
        _check(layers, name, numbers, means)

    def replace(name: str, projection: nn.Module, args: tuple[Tensor]) -> Any:
        found = rearrange(args[0], "b i (h e) -> b h i e", h=layers[name].num_heads).clone()
        for head in heads[name]:
            found[:, head] = 0.0 if means is None else means[name][head]
        return (rearrange(found, "b h i e -> b i (h e)"),)

    hooks = [
        layers[name].out_proj.register_forward_pre_hook(partial(replace, name)) for name in heads
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _check(
    layers: Mapping[str, MultiHeadAttention],
    name: str,
    numbers: Sequence[int],
    means: Mapping[str, Tensor] | None,
) -> None:
    if name not in layers:
        raise ValueError(f"the model has no layer {name!r}; it has {', '.join(layers) or 'none'}")
    layer = layers[name]
    h = layer.num_heads
    if wrong := [number for number in numbers if not 0 <= number < h]:
        raise ValueError(f"{name!r} has the heads 0 to {h - 1}; got {wrong[0]}")
    if means is not None:
        shape = (h, layer.out_proj.in_features // h)
        got = tuple(means[name].shape) if name in means else "nothing"
        if got != shape:
            raise ValueError(f"means of {name!r} must have shape {shape}, h e; got {got}")
