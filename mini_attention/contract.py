"""What every implementation promises around the formula: checks, precision and forbidden keys.

The formula in `functional` stays bare because `prepare` has done all of this before it starts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from .rules import BiasRule, MaskRule, Rule

Mask = Tensor | MaskRule
Bias = Tensor | BiasRule
HALF_PRECISION = (torch.float16, torch.bfloat16)


class Prepared(NamedTuple):
    """The arguments of an attention function, checked and ready for the formula."""

    query: Tensor
    key: Tensor
    value: Tensor
    allowed: Tensor | None  # mask and bias of -inf in one; None when every pair is allowed
    bias: Tensor | None
    scale: float
    dtype: torch.dtype  # the caller's, for the result


def prepare(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask | None = None,
    bias: Bias | None = None,
    scale: float | None = None,
    *,
    widen: bool = True,
) -> Prepared:
    """Check the arguments, shield them from forbidden keys, and widen half precision.

    With `widen`, half precision becomes float32: products summed in half precision err up to
    20 times more than torch's kernel, and their scores can overflow.
    """
    query, key, value, bias, _ = check_arguments(query, key, value, mask, bias)
    mask, bias = stored(mask, query), stored(bias, query)
    allowed = _allowed(mask, bias)
    if allowed is not None:
        key, value = shield(key, value, allowed.any(-2))
    dtype = query.dtype
    if widen and dtype in HALF_PRECISION:
        query, key, value = query.float(), key.float(), value.float()
        bias = None if bias is None else bias.float()
    return Prepared(query, key, value, allowed, bias, scale_or_default(scale, query), dtype)


def check_arguments(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask | None, bias: Bias | None
) -> tuple[Tensor, Tensor, Tensor, Bias | None, torch.Size]:
    """Raise unless the arguments fit each other; return all but the mask, and the leading axes.

    Under autocast, floats become autocast's dtype first, as they do for torch's own kernel.
    """
    if _autocast_enabled(query):
        query, key, value = _autocast(query), _autocast(key), _autocast(value)
        bias = _autocast(bias) if isinstance(bias, Tensor) else bias
    _check_inputs(query, key, value)
    leading = broadcast_leading(query=query, key=key, value=value)
    if mask is not None:
        check_mask(mask, scores_shape(query, key), query.device)
    if bias is not None:
        check_bias(bias, scores_shape(query, key), query)
    return query, key, value, bias, leading


def stored(pairs: Tensor | Rule | None, query: Tensor) -> Tensor | None:
    """A mask or bias as a tensor: rules become one, on the device and in the dtype of query."""
    if not isinstance(pairs, Rule):
        return pairs
    tensor = pairs.tensor(query.device)
    return tensor.to(query.dtype) if isinstance(pairs, BiasRule) else tensor


def scale_or_default(scale: float | None, query: Tensor) -> float:
    """1 / sqrt(d) unless a scale is given."""
    return float(query.shape[-1] ** -0.5) if scale is None else scale


def takes_rules(function: Callable[..., Tensor]) -> None:
    """Mark a function as one that takes rules: a layer hands others the tensor of a rule."""
    function.takes_rules = True  # type: ignore[attr-defined]


def as_computed(tensor: Tensor) -> AbstractContextManager[object]:
    """Switch autocast off, which would undo the widening of half precision."""
    if _autocast_enabled(tensor):
        return torch.autocast(tensor.device.type, enabled=False)
    return nullcontext()


def scores_shape(query: Tensor, key: Tensor) -> torch.Size:
    """The shape `... i j` of the scores of `query` `... i d` and `key` `... j d`."""
    leading = broadcast_leading(query=query, key=key)
    return leading + query.shape[-2:-1] + key.shape[-2:-1]


def broadcast_leading(**tensors: Tensor) -> torch.Size:
    """The leading axes that the named tensors have together, when the last two are left out."""
    first, *rest = [tensor.shape[:-2] for tensor in tensors.values()]
    if all(shape == first for shape in rest):  # the usual case, and torch's function is slow
        return first
    try:
        return torch.Size(torch.broadcast_shapes(first, *rest))  # type: ignore[no-untyped-call]
    except RuntimeError:
        if tensors.get("value") is tensors["key"]:  # the caller gave no value
            del tensors["value"]
        got = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
        raise ValueError(f"the leading axes must agree or be 1; got {got}") from None


def check_mask(mask: Mask, shape: torch.Size, device: torch.device) -> None:
    """Raise unless `mask` is boolean and fits scores of `shape`: ranks are never guessed."""
    if isinstance(mask, BiasRule):
        raise TypeError("mask is a rule for a bias, which is added to the scores: pass it as bias=")
    if isinstance(mask, Tensor) and mask.dtype != torch.bool:
        raise TypeError(
            f"mask must be boolean, True where a query may attend to a key; got {mask.dtype}. "
            "Convert a mask of ones and zeros with mask.bool(); "
            "pass a float that is added to the scores as bias="
        )
    _check_pairs("mask", mask, shape, device)


def check_like(name: str, tensor: Tensor, weight: Tensor) -> None:
    """Raise unless a projection by `weight` can take `tensor`, after what autocast casts."""
    if not tensor.is_floating_point():
        raise TypeError(f"{name} must be a float tensor; got {tensor.dtype}")
    if tensor.device != weight.device:
        raise ValueError(f"{name} is on {tensor.device}, the parameters are on {weight.device}")
    if tensor.dtype != weight.dtype and _cast_dtype(tensor) != _cast_dtype(weight):
        raise TypeError(f"{name} is {tensor.dtype}, the parameters are {weight.dtype}")


def check_bias(bias: Bias, shape: torch.Size, query: Tensor) -> None:
    """Raise unless `bias` has the dtype of `query` and fits scores of `shape`."""
    if isinstance(bias, MaskRule) or (isinstance(bias, Tensor) and bias.dtype == torch.bool):
        raise TypeError("bias is added to the scores and must be a float; pass a boolean as mask=")
    if isinstance(bias, Tensor) and _cast_dtype(bias) != _cast_dtype(query):
        raise TypeError(f"bias must have the dtype of query, {query.dtype}; got {bias.dtype}")
    _check_pairs("bias", bias, shape, query.device)


def check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1; got {size}")


def check_divides(**sizes: int) -> None:
    """The second of two sizes has to divide the first."""
    (name, size), (other, by) = sizes.items()
    if size % by:
        raise ValueError(f"{name} ({size}) must be divisible by {other} ({by})")


def check_dropout(dropout_p: float) -> None:
    """Raise unless `dropout_p` is a share: torch's kernel would name another reason, or none."""
    if not 0 <= dropout_p <= 1:  # this way round NaN is an error too
        raise ValueError(f"dropout_p must be between 0 and 1; got {dropout_p}")


def _check_pairs(name: str, pairs: Tensor | Rule, shape: torch.Size, device: torch.device) -> None:
    if pairs.device not in (None, device):  # a rule that keeps no tensor goes anywhere
        raise ValueError(f"{name} must be on the device of query, {device}; got {pairs.device}")
    given, wanted = tuple(pairs.shape), tuple(shape)
    if pairs.ndim not in (2, len(shape)):
        hint = ""
        if 2 < pairs.ndim < len(shape):
            inserted = (given[0], *(1,) * (len(shape) - pairs.ndim), *given[1:])
            hint = f"; for one {name} an item insert the missing axis after the first: {inserted}"
        raise ValueError(
            f"{name} of shape {given} does not say which axes it has: scores of shape {wanted} "
            f"take rank 2 (i j) or rank {len(shape)}{hint}"
        )
    if any(g not in (1, w) for g, w in zip(given, wanted[-pairs.ndim :], strict=True)):
        raise ValueError(
            f"{name} of shape {given} must match scores of shape {wanted}; an axis may be 1"
        )


def _check_inputs(query: Tensor, key: Tensor, value: Tensor) -> None:
    named = {"query": query, "key": key, "value": value}
    for name, tensor in named.items():
        if not tensor.is_floating_point():
            raise TypeError(f"{name} must be a float tensor; got {tensor.dtype}")
        if tensor.ndim < 2:
            raise ValueError(
                f"{name} needs at least two axes, positions and features; "
                f"got shape {tuple(tensor.shape)}"
            )
    if not query.dtype == key.dtype == value.dtype:
        dtypes = ", ".join(f"{name} {tensor.dtype}" for name, tensor in named.items())
        raise TypeError(f"query, key and value must have one dtype; got {dtypes}")
    if not query.device == key.device == value.device:
        devices = ", ".join(f"{name} {tensor.device}" for name, tensor in named.items())
        raise ValueError(f"query, key and value must be on one device; got {devices}")
    if query.shape[-1] != key.shape[-1] or query.shape[-1] == 0:
        raise ValueError(
            "query and key are compared feature by feature and need the same number, "
            f"at least 1; got {query.shape[-1]} and {key.shape[-1]}"
        )
    if key.shape[-2] != value.shape[-2]:
        raise ValueError(
            f"every key needs a value; got {key.shape[-2]} keys and {value.shape[-2]} values"
        )


def _allowed(mask: Tensor | None, bias: Tensor | None) -> Tensor | None:
    """Which query may attend to which key: a bias of -inf forbids, as a mask does."""
    if bias is None:
        return mask
    finite = bias.detach() != -torch.inf
    return finite if mask is None else mask & finite


def shield(key: Tensor, value: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Put 0 in place of the keys that are not `seen`, `... j`, by any query, whatever they hold.

    Their weights are 0 anyway, but 0 times NaN is NaN, forward and backward.
    """
    seen = seen.unsqueeze(-1)
    return torch.where(seen, key, 0.0), torch.where(seen, value, 0.0)


def _autocast_enabled(tensor: Tensor) -> bool:
    device = tensor.device.type
    return device != "meta" and torch.is_autocast_enabled(device)  # "meta" has none to ask for


def _cast_dtype(tensor: Tensor) -> torch.dtype:
    """The dtype that autocast computes with: float64 and integers stay what they are."""
    cast = tensor.is_floating_point() and tensor.dtype != torch.float64
    if cast and _autocast_enabled(tensor):
        return torch.get_autocast_dtype(tensor.device.type)
    return tensor.dtype


def _autocast(tensor: Tensor) -> Tensor:
    return tensor.to(_cast_dtype(tensor))
