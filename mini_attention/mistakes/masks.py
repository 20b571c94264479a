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


@mistake("axis", "causal_mask")
def causal_transposed(
    i: int, j: int | None = None, *, align: Align = "end", device: Device = None
) -> Tensor:
    """Rows and columns are exchanged: a token sees itself and what comes after it.

    The first token sees all, and the last one itself alone.
    """
    return window_mask(i, j, before=0, after=None, align=align, device=device)


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


@mistake("alignment", "window_mask")
def window_too_wide(
    i: int,
    j: int | None = None,
    *,
    before: int | None,
    after: int | None = 0,
    align: Align = "end",
    device: Device = None,
) -> Tensor:
    """The distance is compared with <= where < is meant, or one is added to it.

    A window of two earlier tokens holds three.
    """
    before = before + 1 if before is not None else None
    return window_mask(i, j, before=before, after=after, align=align, device=device)


@mistake("alignment", "window_mask")
def window_from_the_start(
    i: int,
    j: int | None = None,
    *,
    before: int | None,
    after: int | None = 0,
    align: Align = "start",
    device: Device = None,
) -> Tensor:
    """The first query is lined up with the first key unless told otherwise.

    All is right for as many queries as keys. In decoding the newest word sees the oldest only.
    """
    return window_mask(i, j, before=before, after=after, align=align, device=device)


@mistake("alignment", "window_mask")
def window_without_itself(
    i: int,
    j: int | None = None,
    *,
    before: int | None,
    after: int | None = 0,
    align: Align = "end",
    device: Device = None,
) -> Tensor:
    """A token may not see itself.

    The diagonal is empty, and the first token may attend to nothing at all.
    """
    itself = window_mask(i, j, before=0, after=0, align=align, device=device)
    return window_mask(i, j, before=before, after=after, align=align, device=device) & ~itself


@mistake("sense", "window_mask")
def window_reversed(
    i: int,
    j: int | None = None,
    *,
    before: int | None,
    after: int | None = 0,
    align: Align = "end",
    device: Device = None,
) -> Tensor:
    """The mask is true outside of the window.

    Queries attend to all that is far away, and to the future.
    """
    return ~window_mask(i, j, before=before, after=after, align=align, device=device)


@mistake("axis", "window_mask")
def window_transposed(
    i: int,
    j: int | None = None,
    *,
    before: int | None,
    after: int | None = 0,
    align: Align = "end",
    device: Device = None,
) -> Tensor:
    """Rows and columns are exchanged: the window lies on the other side of the token.

    Later tokens are seen in place of earlier ones.
    """
    return window_mask(i, j, before=after, after=before, align=align, device=device)


@mistake("one path", "window_mask")
def window_forgotten(
    i: int,
    j: int | None = None,
    *,
    before: int | None,
    after: int | None = 0,
    align: Align = "end",
    device: Device = None,
) -> Tensor:
    """The window is open to the past: `before` does nothing.

    It is a causal mask, whatever is asked for.
    """
    return window_mask(i, j, before=None, after=after, align=align, device=device)


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


@mistake("alignment", "padding_mask")
def padding_one_too_few(lengths: Tensor | Sequence[int], j: int, *, side: Side = "right") -> Tensor:
    """A length is compared with one less, as if positions began at 1.

    The last word of every item is hidden, and an item of one word has none.
    """
    padding_mask(lengths, j, side=side)  # for its errors
    shorter = (torch.as_tensor(lengths).long() - 1).clamp(min=0)
    return padding_mask(shorter, j, side=side)


@mistake("alignment", "padding_mask")
def padding_on_the_left(lengths: Tensor | Sequence[int], j: int, *, side: Side = "left") -> Tensor:
    """The padding is looked for on the left unless told otherwise.

    The first words of an item are hidden, and its padding is seen.
    """
    return padding_mask(lengths, j, side=side)


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


@mistake("sense", "document_mask")
def documents_inverted(documents: Tensor, key_documents: Tensor | None = None) -> Tensor:
    """The mask is true where documents differ.

    Each query attends to every document but its own.
    """
    return ~document_mask(documents, key_documents)


@mistake("sense", "document_mask")
def documents_see_later_ones(documents: Tensor, key_documents: Tensor | None = None) -> Tensor:
    """Documents are compared with <= in place of ==.

    Each document reads those packed behind it.
    """
    same = document_mask(documents, key_documents)
    keys = documents if key_documents is None else key_documents
    later = rearrange(documents, "... i -> ... i 1") < rearrange(keys, "... j -> ... 1 j")
    return same | later


@mistake("sources", "document_mask")
def documents_of_the_keys(documents: Tensor, key_documents: Tensor | None = None) -> Tensor:
    """The documents of the keys stand for those of the queries too.

    All is right where queries and keys are one sequence.
    """
    return document_mask(documents if key_documents is None else key_documents)


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
