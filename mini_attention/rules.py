"""Masks and biases that are never stored: a rule answers for any block of queries and keys.

A mask of 32,768 queries and keys is a tensor of 1 GiB, a bias for 8 heads one of 32 GiB; a rule
is a few numbers. Everything that takes a mask or a bias takes a rule as well. `blocked_attention`
asks it block by block and skips the blocks that it empties; `fused_attention` hands a causal rule
over squares to torch's causal kernel; everything else works with the rule's `tensor()`. A layer
hands that to a function of your own, unless the function has an attribute `takes_rules` that is
true.

Rules of masks combine with `&`, with each other and with tensors:

>>> print((window(4, before=1) & torch.tensor([True, True, False, True])[None]).tensor().int())
tensor([[1, 0, 0, 0],
        [1, 1, 0, 0],
        [0, 1, 0, 0],
        [0, 0, 0, 1]], dtype=torch.int32)

A rule of your own is a class with a method `block`:

>>> class EverySecond(MaskRule):
...     def block(self, queries, keys, device=None):
...         i, j = positions(queries, keys, device)
...         return (i - j) % 2 == 0
>>> EverySecond((2, 3)).tensor().int()
tensor([[1, 0, 1],
        [0, 1, 0]], dtype=torch.int32)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

import torch
from einops import rearrange
from torch import Tensor

Align = Literal["end", "start"]
Side = Literal["right", "left"]
Device = torch.device | str | None


class Rule(ABC):
    """What stands for a tensor `... i j` and computes the blocks of it that are asked for.

    shape   of the tensor; an axis of 1 holds for all items, queries or keys
    device  of the tensors that the rule keeps; None if it keeps none
    """

    def __init__(self, shape: Sequence[int], device: torch.device | None = None) -> None:
        self.shape = torch.Size(shape)
        self.device = device

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @abstractmethod
    def block(self, queries: range, keys: range, device: Device = None) -> Tensor:
        """The part of the tensor for these queries and keys.

        Where it is the same along an axis, that may be 1, or be left out if it is a leading one.
        """

    def tensor(self, device: Device = None) -> Tensor:
        """The whole tensor, of i × j elements."""
        i, j = self.shape[-2:]
        return self.block(range(i), range(j), device).expand(self.shape)


class MaskRule(Rule):
    """A mask as a rule: True where query i may attend to key j."""

    def reach(self, queries: range) -> tuple[range, range]:
        """The keys that some of these queries may attend to, and those that all of them may.

        Keys outside the first range are skipped, those inside the second need no mask. A first
        range too wide or a second too narrow costs time and changes nothing: unless a rule
        knows better these are all keys, and none.
        """
        return range(self.shape[-1]), range(0)

    def seen(self, device: Device = None) -> Tensor | None:
        """The keys that some query may attend to, `... j`; None if the rule leaves none out."""
        i, j = self.shape[-2:]
        seen = torch.zeros(*self.shape[:-2], j, dtype=torch.bool, device=self.device or device)
        for start in range(0, i, 128):
            queries = range(start, min(start + 128, i))
            keys, every = self.reach(queries)
            if len(keys) > len(every):
                seen[..., keys.start : keys.stop] |= self.block(queries, keys, device).any(-2)
            elif keys:
                seen[..., keys.start : keys.stop] = True
        return None if seen.all() else seen

    def per_item(self) -> MaskRule:
        """A rule `b i j` for the scores of all heads, `b 1 i j`."""
        return PerItemMask(self)

    def __and__(self, other: MaskRule | Tensor) -> MaskRule:
        if isinstance(other, Tensor):
            other = Stored(other)
        return Both(self, other) if isinstance(other, MaskRule) else NotImplemented

    __rand__ = __and__


class BiasRule(Rule):
    """A bias as a rule: what is added to the scores, finite and without a gradient."""

    def per_item(self) -> BiasRule:
        """A rule `b i j` for the scores of all heads, `b 1 i j`."""
        return PerItemBias(self)


def positions(queries: range, keys: range, device: Device = None) -> tuple[Tensor, Tensor]:
    """The positions of queries, `i 1`, and of keys, `j`, as integers that broadcast to `i j`."""
    i = torch.arange(queries.start, queries.stop, device=device)
    return rearrange(i, "i -> i 1"), torch.arange(keys.start, keys.stop, device=device)


def part(pairs: Tensor, queries: range, keys: range) -> Tensor:
    """The block of a tensor `... i j` for these queries and keys; axes that are 1 stay 1."""
    rows = slice(None) if pairs.shape[-2] == 1 else slice(queries.start, queries.stop)
    columns = slice(None) if pairs.shape[-1] == 1 else slice(keys.start, keys.stop)
    return pairs[..., rows, columns]


def block_for(rule: Rule, queries: range, keys: range, device: Device = None) -> Tensor:
    """The block of a rule whose axes of 1 hold for all queries or for all keys."""
    i, j = rule.shape[-2:]
    return rule.block(range(1) if i == 1 else queries, range(1) if j == 1 else keys, device)


def reach_for(mask: MaskRule, queries: range, j: int) -> tuple[range, range]:
    """The reach, among j keys, of a mask whose axes of 1 hold for all queries or for all keys."""
    some, every = mask.reach(range(1) if mask.shape[-2] == 1 else queries)
    if mask.shape[-1] == 1:
        return range(j * len(some)), range(j * len(every))
    return some, every


def common(one: range, other: range) -> range:
    """What two ranges have in common."""
    start = max(one.start, other.start)
    return range(start, max(start, min(one.stop, other.stop)))


# Rules for masks: what the builders below make


class Window(MaskRule):
    """Keys from `before` earlier ones to `after` later ones; None for all on that side."""

    def __init__(self, shape: tuple[int, int], first: int, before: int | None, after: int | None):
        super().__init__(shape)
        self.first = first  # the key position at which query 0 stands
        self.before, self.after = before, after

    def block(self, queries: range, keys: range, device: Device = None) -> Tensor:
        mask = torch.ones(len(queries), len(keys), dtype=torch.bool, device=device)
        ahead = queries.start + self.first - keys.start  # the column of the first query's own key
        if self.before is not None:
            mask.triu_(ahead - self.before)
        if self.after is not None:
            mask.tril_(ahead + self.after)
        return mask

    def reach(self, queries: range) -> tuple[range, range]:
        first, last = self._keys(queries.start), self._keys(queries.stop - 1)
        return range(first.start, last.stop), range(last.start, first.stop)

    def seen(self, device: Device = None) -> Tensor | None:
        i, j = self.shape  # what the queries see moves on by one key at a time, without a gap
        keys = self.reach(range(i))[0] if i else range(0)
        if len(keys) == j:
            return None
        at = torch.arange(j, device=device)
        return (at >= keys.start) & (at < keys.stop)

    def _keys(self, query: int) -> range:
        at, end = query + self.first, self.shape[-1]
        start = 0 if self.before is None else at - self.before
        stop = end if self.after is None else at + self.after + 1
        return range(min(max(start, 0), end), min(max(stop, 0), end))

    @property
    def is_causal_square(self) -> bool:
        """Whether torch's kernel knows this mask by name; one of 1 × 1 may stand for any size."""
        i, j = self.shape
        return i == j > 1 and (self.first, self.before, self.after) == (0, None, 0)


class Padding(MaskRule):
    """The first or the last keys of each item, as many as its length says."""

    def __init__(self, lengths: Tensor, j: int, side: Side):
        super().__init__((len(lengths), 1, j), lengths.device)
        starts = torch.zeros_like(lengths) if side == "right" else j - lengths
        self.starts, self.stops = starts, starts + lengths

    def block(self, queries: range, keys: range, device: Device = None) -> Tensor:
        j = torch.arange(keys.start, keys.stop, device=self.device)
        starts, stops = (rearrange(x, "b -> b 1 1") for x in (self.starts, self.stops))
        return (j >= starts) & (j < stops)

    def reach(self, queries: range) -> tuple[range, range]:
        if not len(self.starts):
            return range(0), range(0)
        (first, last), (low, high) = (map(int, x.aminmax()) for x in (self.starts, self.stops))
        return range(first, high), range(last, low)


class Documents(MaskRule):
    """The keys of the document that the query belongs to."""

    def __init__(self, documents: Tensor, key_documents: Tensor):
        leading = torch.broadcast_shapes(  # type: ignore[no-untyped-call]
            documents.shape[:-1], key_documents.shape[:-1]
        )
        super().__init__((*leading, documents.shape[-1], key_documents.shape[-1]), documents.device)
        self.documents, self.key_documents = documents, key_documents

    def block(self, queries: range, keys: range, device: Device = None) -> Tensor:
        documents = self.documents[..., queries.start : queries.stop]
        key_documents = self.key_documents[..., keys.start : keys.stop]
        documents = rearrange(documents, "... i -> ... i 1")
        return documents == rearrange(key_documents, "... j -> ... 1 j")

    def reach(self, queries: range) -> tuple[range, range]:
        documents = self.documents[..., queries.start : queries.stop]
        if not documents.numel():
            return range(0), range(0)
        low, high = documents.aminmax()
        keys = ((self.key_documents >= low) & (self.key_documents <= high)).nonzero()[:, -1]
        if not len(keys):
            return range(0), range(0)
        return range(int(keys.min()), int(keys.max()) + 1), range(0)


class Stored(MaskRule):
    """A mask that is a tensor already."""

    def __init__(self, mask: Tensor):
        super().__init__(mask.shape, mask.device)
        self.mask = mask

    def block(self, queries: range, keys: range, device: Device = None) -> Tensor:
        return part(self.mask, queries, keys)

    def reach(self, queries: range) -> tuple[range, range]:
        keys = range(self.shape[-1])
        rows = self.block(queries, keys).expand(*self.shape[:-2], -1, len(keys))
        rows = rows.flatten(0, -2)
        some, missing = rows.any(0).nonzero(), (~rows.all(0)).nonzero()
        if not len(some):
            return range(0), range(0)
        first, last = int(some[0]), int(some[-1])
        missing = missing[missing >= first]
        every = range(first, int(missing[0]) if len(missing) else len(keys))
        return range(first, last + 1), every


class Finite(MaskRule):
    """Where a bias does not forbid: it is not -inf there."""

    def __init__(self, bias: Tensor):
        super().__init__(bias.shape, bias.device)
        self.bias = bias.detach()

    def block(self, queries: range, keys: range, device: Device = None) -> Tensor:
        return part(self.bias, queries, keys) != -torch.inf


class Both(MaskRule):
    """What two rules allow together."""

    def __init__(self, one: MaskRule, other: MaskRule):
        shape = torch.broadcast_shapes(one.shape, other.shape)  # type: ignore[no-untyped-call]
        super().__init__(shape, one.device or other.device)
        self.rules = one, other

    def block(self, queries: range, keys: range, device: Device = None) -> Tensor:
        one, other = (block_for(rule, queries, keys, device) for rule in self.rules)
        return one & other

    def reach(self, queries: range) -> tuple[range, range]:
        j = self.shape[-1]
        (some, every), (other_some, other_every) = (
            reach_for(rule, queries, j) for rule in self.rules
        )
        return common(some, other_some), common(every, other_every)


class PerItem(Rule):
    """A rule `b i j` that is the same in every head: `b 1 i j`."""

    def __init__(self, rule: Rule):
        b, i, j = rule.shape
        super().__init__((b, 1, i, j), rule.device)
        self.rule = rule

    def block(self, queries: range, keys: range, device: Device = None) -> Tensor:
        block = self.rule.block(queries, keys, device)
        return block if block.ndim == 2 else rearrange(block, "b i j -> b 1 i j")


class PerItemMask(PerItem, MaskRule):
    rule: MaskRule

    def reach(self, queries: range) -> tuple[range, range]:
        return self.rule.reach(queries)


class PerItemBias(PerItem, BiasRule):
    rule: BiasRule


class Alibi(BiasRule):
    """Minus a multiple of the distance between query and key, another multiple in each head."""

    def __init__(self, num_heads: int, shape: tuple[int, int], first: int):
        super().__init__((1, num_heads, *shape))
        self.first = first  # the key position at which query 0 stands

    def block(self, queries: range, keys: range, device: Device = None) -> Tensor:
        i, j = positions(queries, keys, device)
        num_heads = self.shape[1]
        slopes = 2.0 ** (-8 * torch.arange(1, num_heads + 1, device=device) / num_heads)
        return rearrange(slopes, "h -> 1 h 1 1") * -(i + self.first - j).abs()


# Builders


def causal(i: int, j: int | None = None, *, align: Align = "end") -> MaskRule:
    """No query may attend to a later key: `causal_mask` as a rule.

        i, j   numbers of queries and keys; j is i unless given
        align  "end": the last query stands at the last key, as in decoding with a cache;
               "start": the first query stands at the first key

    Raises ValueError for negative sizes or another alignment.

    >>> causal(100_000).block(range(99_998, 100_000), range(99_997, 100_000)).int()
    tensor([[1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)
    """
    return window(i, j, before=None, after=0, align=align)


def window(
    i: int,
    j: int | None = None,
    *,
    before: int | None,
    after: int | None = 0,
    align: Align = "end",
) -> MaskRule:
    """A query may attend to the keys near it: `window_mask` as a rule.

        i, j           numbers of queries and keys; j is i unless given
        before, after  how many keys on each side; None for all of them
        align          as in `causal`

    Raises ValueError for negative sizes or another alignment.

    >>> window(100_000, before=2).reach(range(50_000, 50_001))[0]
    range(49998, 50001)
    """
    j = i if j is None else j
    for name, size in {"i": i, "j": j, "before": before, "after": after}.items():
        if size is not None and size < 0:
            raise ValueError(f"{name} must be at least 0; got {size}")
    return Window((i, j), _first(i, j, align), before, after)


def padding(lengths: Tensor | Sequence[int], j: int, *, side: Side = "right") -> MaskRule:
    """No query may attend to padding: `padding_mask` as a rule, b 1 j.

        lengths  b, how many of its j keys each item really has
        j        number of keys, padding included
        side     where the padding is

    Raises TypeError for lengths that are not integers, ValueError for one outside 0 to j.

    >>> (padding([2, 3], 3) & causal(3)).shape
    torch.Size([2, 3, 3])
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
    return Padding(lengths, j, side)


def document(documents: Tensor, key_documents: Tensor | None = None) -> MaskRule:
    """A query may attend to its own document: `document_mask` as a rule, ... i j.

        documents      ... i, an integer a position that names its document
        key_documents  ... j, the same for the keys; `documents` unless given

    Documents may stand in any order; most blocks are skipped when their numbers only grow.
    Raises TypeError for documents that are not integers, ValueError for no axis.

    >>> document(torch.tensor([0, 0, 1])).tensor().int()
    tensor([[1, 1, 0],
            [1, 1, 0],
            [0, 0, 1]], dtype=torch.int32)
    """
    key_documents = documents if key_documents is None else key_documents
    for name, ids in {"documents": documents, "key_documents": key_documents}.items():
        _check_integers(name, ids)
        if ids.ndim == 0:
            raise ValueError(f"{name} needs an axis of positions; got a single number")
    return Documents(documents, key_documents)


def alibi(num_heads: int, i: int, j: int | None = None, *, align: Align = "end") -> BiasRule:
    """A bias for each head, minus the distance of query and key times its slope, 1 h i j.

        i, j   numbers of queries and keys; j is i unless given
        align  as in `causal`

    Head k of h, from 1 on, has the slope 2 ** (-8 k / h). Raises ValueError for sizes that
    can't be, or another alignment.
    Source: Press et al., Train Short, Test Long (2022), section 3.

    >>> alibi(8, 3).tensor()[0, 0]
    tensor([[ 0.0000, -0.5000, -1.0000],
            [-0.5000,  0.0000, -0.5000],
            [-1.0000, -0.5000,  0.0000]])
    """
    j = i if j is None else j
    for name, size, least in (("num_heads", num_heads, 1), ("i", i, 0), ("j", j, 0)):
        if size < least:
            raise ValueError(f"{name} must be at least {least}; got {size}")
    return Alibi(num_heads, (i, j), _first(i, j, align))


def _first(i: int, j: int, align: Align) -> int:
    if align not in ("end", "start"):
        raise ValueError(f'align must be "end" or "start"; got {align!r}')
    return j - i if align == "end" else 0


def _check_integers(name: str, tensor: Tensor) -> None:
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{name} must be integers; got {tensor.dtype}")
