"""Masks: who may attend to whom. True means that query i may attend to key j.

Every builder returns a boolean tensor, and masks combine with `&`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from einops import rearrange
from torch import Tensor

Align = Literal["end", "start"]
Side = Literal["right", "left"]


def causal_mask(
    i: int, j: int | None = None, *, align: Align = "end", device: torch.device | str | None = None
) -> Tensor:
    """No query may attend to a later key.

        i, j   numbers of queries and keys; j is i unless given
        align  "end": the last query stands at the last key, as in decoding with a cache;
               "start": the first query stands at the first key
        mask   i j

    Raises ValueError for negative sizes or another alignment.

    >>> causal_mask(2, 4).int()
    tensor([[1, 1, 1, 0],
            [1, 1, 1, 1]], dtype=torch.int32)
    """
    return window_mask(i, j, before=None, after=0, align=align, device=device)


def window_mask(
    i: int,
    j: int | None = None,
    *,
    before: int | None,
    after: int | None = 0,
    align: Align = "end",
    device: torch.device | str | None = None,
) -> Tensor:
    """A query may attend to the keys near it: `before` earlier ones, itself, `after` later ones.

        i, j           numbers of queries and keys; j is i unless given
        before, after  how many keys on each side; None for all of them
        align          as in `causal_mask`
        mask           i j

    Raises ValueError for negative sizes or another alignment.

    >>> window_mask(4, before=1).int()
    tensor([[1, 0, 0, 0],
            [1, 1, 0, 0],
            [0, 1, 1, 0],
            [0, 0, 1, 1]], dtype=torch.int32)
    """
    j = i if j is None else j
    for name, size in {"i": i, "j": j, "before": before, "after": after}.items():
        if size is not None and size < 0:
            raise ValueError(f"{name} must be at least 0; got {size}")
    if align not in ("end", "start"):
        raise ValueError(f'align must be "end" or "start"; got {align!r}')
    first_query = j - i if align == "end" else 0
    query = rearrange(torch.arange(i, device=device) + first_query, "i -> i 1")
    key = torch.arange(j, device=device)
    mask = torch.ones(i, j, dtype=torch.bool, device=device)
    if before is not None:
        mask = mask & (key >= query - before)
    if after is not None:
        mask = mask & (key <= query + after)
    return mask


def padding_mask(lengths: Tensor | Sequence[int], j: int, *, side: Side = "right") -> Tensor:
    """No query may attend to padding: it hides key columns and leaves query rows alone.

        lengths  b, how many of its j keys each item really has
        j        number of keys, padding included
        side     where the padding is
        mask     b 1 j, for any number of queries

    For scores b h i j insert the head axis (`MultiHeadAttention` does so itself):
    `rearrange(mask, "b i j -> b 1 i j")`.
    Raises TypeError for lengths that are not integers, ValueError for one outside 0 to j.

    >>> padding_mask([3, 1], 4).int()
    tensor([[[1, 1, 1, 0]],
    <BLANKLINE>
            [[1, 0, 0, 0]]], dtype=torch.int32)
    """
    lengths = torch.as_tensor(lengths)
    if lengths.numel() == 0:
        lengths = lengths.long()  # an empty list has no integers to tell its dtype by
    if lengths.ndim != 1:
        raise ValueError(f"lengths must have one axis, b; got shape {tuple(lengths.shape)}")
    _check_integers("lengths", lengths)
    if ((lengths < 0) | (lengths > j)).any():
        raise ValueError(f"lengths must be between 0 and j = {j}; got {lengths.tolist()}")
    if side not in ("right", "left"):
        raise ValueError(f'side must be "right" or "left"; got {side!r}')
    key, lengths = torch.arange(j, device=lengths.device), rearrange(lengths, "b -> b 1 1")
    return key < lengths if side == "right" else key >= j - lengths


def document_mask(documents: Tensor, key_documents: Tensor | None = None) -> Tensor:
    """Sequences packed into one: a query may attend to the keys of its own document.

        documents      ... i, an integer a position that names its document
        key_documents  ... j, the same for the keys; `documents` unless given
        mask           ... i j

    Raises TypeError for documents that are not integers, ValueError for no axis.

    >>> document_mask(torch.tensor([0, 0, 1])).int()
    tensor([[1, 1, 0],
            [1, 1, 0],
            [0, 0, 1]], dtype=torch.int32)
    """
    key_documents = documents if key_documents is None else key_documents
    for name, ids in {"documents": documents, "key_documents": key_documents}.items():
        _check_integers(name, ids)
        if ids.ndim == 0:
            raise ValueError(f"{name} needs an axis of positions; got a single number")
    return rearrange(documents, "... i -> ... i 1") == rearrange(key_documents, "... j -> ... 1 j")


def _check_integers(name: str, tensor: Tensor) -> None:
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{name} must be integers; got {tensor.dtype}")
