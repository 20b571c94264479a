"""Masks: who may attend to whom. True means that query i may attend to key j.

Every builder returns a boolean tensor, and masks combine with `&`. The builders of `rules` have
the same arguments and return what never becomes a tensor, for sequences too long for one.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from . import rules
from .rules import Align, Device, Side


def causal_mask(
    i: int, j: int | None = None, *, align: Align = "end", device: Device = None
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
    return rules.causal(i, j, align=align).tensor(device)


def window_mask(
    i: int,
    j: int | None = None,
    *,
    before: int | None,
    after: int | None = 0,
    align: Align = "end",
    device: Device = None,
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
    return rules.window(i, j, before=before, after=after, align=align).tensor(device)


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
    return rules.padding(lengths, j, side=side).tensor()


def document_mask(documents: Tensor, key_documents: Tensor | None = None) -> Tensor:
    """Sequences packed into one: a query may attend to the keys of its own document.

        documents      ... i, an integer a position that names its document
        key_documents  ... j, the same for the keys; `documents` unless given
        mask           ... i j

    Raises TypeError for documents that are not integers, ValueError for no axis.

    >>> import torch
    >>> document_mask(torch.tensor([0, 0, 1])).int()
    tensor([[1, 1, 0],
            [1, 1, 0],
            [0, 0, 1]], dtype=torch.int32)
    """
    return rules.document(documents, key_documents).tensor()
