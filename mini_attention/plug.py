"""Functions that are plugged in: called with what was given and no more, so that a short one does.

`attend` may be any function with the signature of `attention`. Two things it may add: an attribute
`takes_rules` that is true, and a method `weights` with the signature of `attention_weights`, where
its weights are not those of the queries and keys that it is given.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial

from torch import Tensor

from .contract import Bias, Mask, check_bias, check_mask, scores_shape, stored
from .functional import attention_weights

Attend = Callable[..., Tensor]  # any function with the signature of `attention`


def call(
    attend: Attend,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask | None = None,
    *,
    bias: Bias | None = None,
    scale: float | None = None,
    dropout_p: float,
) -> Tensor:
    """Call a plugged-in function, with tensors in place of rules unless it takes rules.

    Raises TypeError for a mask or bias of a wrong dtype and for a function that cannot drop
    weights where some have to be, ValueError for a mask or bias that does not fit.
    """
    options: dict[str, Bias | float | None] = {}
    if mask is not None:
        check_mask(mask, scores_shape(query, key), query.device)
        mask = mask if accepts_rules(attend) else stored(mask, query)
    if bias is not None:
        check_bias(bias, scores_shape(query, key), query)
        options["bias"] = bias if accepts_rules(attend) else stored(bias, query)
    if scale is not None:
        options["scale"] = scale
    if dropout_p > 0:
        if "dropout_p" not in inspect.signature(attend).parameters:
            raise TypeError(
                f"attend={attend} has no keyword dropout_p, which dropout = {dropout_p} needs in "
                "training: add one, or set dropout = 0"
            )
        options["dropout_p"] = dropout_p
    return attend(query, key, value, mask, **options)


def weights_of(attend: Attend) -> Attend:
    """The function that gives the weights of a plugged-in one: its own, or `attention_weights`.

    What `partial` has fixed, such as a scale, is fixed for the weights too.
    """
    if isinstance(attend, partial):
        weights = weights_of(attend.func)
        known = inspect.signature(weights).parameters
        fixed = {name: given for name, given in attend.keywords.items() if name in known}
        return partial(weights, **fixed)
    own = getattr(attend, "weights", None)  # which may be a tensor that a reader keeps there
    return own if callable(own) else attention_weights


def accepts_rules(attend: Attend) -> bool:
    """Whether a plugged-in function takes rules as they are."""
    while isinstance(attend, partial):
        attend = attend.func
    return getattr(attend, "takes_rules", False)
