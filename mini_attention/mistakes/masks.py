"""Wrong masks: builders and converters that answer another question."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from einops import rearrange
from torch import Tensor

from ..convert import mask_from_torch, mask_to_torch
from ..masks import causal_mask, document_mask, padding_mask, window_mask
from ..rules import Align, Device, Side
from .catalogue import mistake


@mistake("alignment", "causal_mask")
def causal_from_the_start(
    i: int, j: int | None = None, *, align: Align = "start", device: Device = None
) -> Tensor:
    """The first query is lined up with the first key unless told otherwise.

    All is right for as many queries as keys. In decoding the newest word sees the oldest only.
    """
    return causal_mask(i, j, align=align, device=device)


@mistake("alignment", "causal_mask")
def causal_without_itself(
    i: int, j: int | None = None, *, align: Align = "end", device: Device = None
) -> Tensor:
    """A token may not see itself.

    The diagonal is empty, and the first token may attend to nothing at all.
    """
    return window_mask(i, j, before=None, after=0, align=align, device=device) & ~(
        window_mask(i, j, before=0, after=0, align=align, device=device)
    )


@mistake("alignment", "causal_mask")
def causal_one_ahead(
    i: int, j: int | None = None, *, align: Align = "end", device: Device = None
) -> Tensor:
    """A token may see the next one.

    The loss in training is splendid, and generated text is noise: the answer was among the keys.
    """
    return window_mask(i, j, before=None, after=1, align=align, device=device)


@mistake("sense", "causal_mask")
def causal_reversed(
    i: int, j: int | None = None, *, align: Align = "end", device: Device = None
) -> Tensor:
    """The mask is true where a key is hidden: above the diagonal.

    Queries attend to the future only, and the last one to nothing.
    """
    return ~causal_mask(i, j, align=align, device=device)


@mistake("alignment", "window_mask")
def window_too_narrow(
    i: int,
    j: int | None = None,
    *,
    before: int | None,
    after: int | None = 0,
    align: Align = "end",
    device: Device = None,
) -> Tensor:
    """The token itself is counted among those before it.

    A window of two earlier tokens holds one.
    """
    before = max(before - 1, 0) if before else before
    return window_mask(i, j, before=before, after=after, align=align, device=device)


@mistake("alignment", "window_mask")
def window_looks_ahead(
    i: int,
    j: int | None = None,
    *,
    before: int | None,
    after: int | None = 0,
    align: Align = "end",
    device: Device = None,
) -> Tensor:
    """The window is cut by the distance, whatever its direction.

    As many later tokens are seen as earlier ones: the future leaks.
    """
    after = before if before is not None else after
    return window_mask(i, j, before=before, after=after, align=align, device=device)


@mistake("sense", "padding_mask")
def padding_inverted(lengths: Tensor | Sequence[int], j: int, *, side: Side = "right") -> Tensor:
    """The mask is true on the padding.

    Queries attend to the padding, and of a full item to nothing.
    """
    return ~padding_mask(lengths, j, side=side)


@mistake("axis", "padding_mask")
def padding_hides_queries(
    lengths: Tensor | Sequence[int], j: int, *, side: Side = "right"
) -> Tensor:
    """The rows of padded queries are hidden instead of the columns of padded keys.

    The padding is seen by every word, and its own rows are empty.
    """
    return padding_mask(lengths, j, side=side).mT.expand(-1, -1, j)


@mistake("alignment", "padding_mask")
def padding_one_too_many(
    lengths: Tensor | Sequence[int], j: int, *, side: Side = "right"
) -> Tensor:
    """A length is compared with <= in place of <.

    One position of the padding is seen in every item that has any.
    """
    padding_mask(lengths, j, side=side)  # for its errors
    longer = (torch.as_tensor(lengths).long() + 1).clamp(max=j)
    return padding_mask(longer, j, side=side)


@mistake("one path", "padding_mask")
def padding_always_right(
    lengths: Tensor | Sequence[int], j: int, *, side: Side = "right"
) -> Tensor:
    """The side of the padding is ignored.

    Batches that are padded on the left, as for generating text, lose their newest words.
    """
    padding_mask(lengths, j, side=side)  # for its errors
    return padding_mask(lengths, j)


@mistake("sense", "document_mask")
def documents_see_earlier_ones(documents: Tensor, key_documents: Tensor | None = None) -> Tensor:
    """Documents are compared with >= in place of ==.

    With a causal mask nothing looks wrong, and each document reads those packed before it.
    """
    same = document_mask(documents, key_documents)
    keys = documents if key_documents is None else key_documents
    earlier = rearrange(documents, "... i -> ... i 1") > rearrange(keys, "... j -> ... 1 j")
    return same | earlier


@mistake("convert", "mask_from_torch")
def sense_of_torch_kept(
    attn_mask: Tensor | None = None, key_padding_mask: Tensor | None = None, *, num_heads: int
) -> tuple[Tensor | None, Tensor | None]:
    """A mask of nn.MultiheadAttention is taken over with its sense, True for "hide".

    A query attends to just those keys that it may not see.
    """
    inverted = [
        ~mask if mask is not None and mask.dtype == torch.bool else mask
        for mask in (attn_mask, key_padding_mask)
    ]
    return mask_from_torch(*inverted, num_heads=num_heads)


@mistake("convert", "mask_from_torch")
def masks_joined_with_or(
    attn_mask: Tensor | None = None, key_padding_mask: Tensor | None = None, *, num_heads: int
) -> tuple[Tensor | None, Tensor | None]:
    """A mask and a padding mask are joined so that a key is seen if one of them allows it.

    Each alone works. Together, padding is seen where the causal mask allows it.
    """
    mask, bias = mask_from_torch(attn_mask, key_padding_mask, num_heads=num_heads)
    single, _ = mask_from_torch(attn_mask, num_heads=num_heads)
    padding, _ = mask_from_torch(None, key_padding_mask, num_heads=num_heads)
    return (mask if single is None or padding is None else single | padding), bias


@mistake("repeat", "mask_to_torch")
def heads_stacked_first(mask: Tensor, *, num_heads: int) -> Tensor:
    """Masks of single heads are stacked as (h b) i j where torch reads (b h) i j.

    One mask for all works, and one item. Else items get the masks of others.
    """
    stacked = mask_to_torch(mask, num_heads=num_heads)
    if stacked.ndim == 2:
        return stacked
    return rearrange(stacked, "(b h) i j -> (h b) i j", h=num_heads)
