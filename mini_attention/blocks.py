"""The scores of `blocked_attention`, cut into blocks: which there are, and what holds in each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from .rules import BiasRule, MaskRule, Window, block_for, common, part, reach_for

KEYS = 4096  # longer rows of scores are cut
# Scores computed at a time, as far as a row of queries may cost 20 of them in memory: few enough
# for a core's caches (1 to 2 MiB), and enough to be worth a call.
TILE = 2**18, 2**19


@dataclass(frozen=True)
class Layout:
    """How the scores of i queries and j keys are cut; all `leading` axes count as one, `h`."""

    leading: torch.Size
    i: int
    j: int
    mask: MaskRule | None
    bias: BiasRule | None
    rows: int  # queries in a block
    heads: int  # heads computed at a time
    device: torch.device

    @classmethod
    def of(
        cls,
        query: Tensor,
        key: Tensor,
        leading: torch.Size,
        mask: MaskRule | None,
        bias: BiasRule | None,
        rows: int | None,
    ) -> Layout:
        """The layout for these tensors, with blocks of a good size unless `rows` is given."""
        i, j, count = query.shape[-2], key.shape[-2], leading.numel()
        tile = min(max(20 * count * i, TILE[0]), TILE[1])
        width = max(1, min(j, KEYS))
        if rows is None:  # a mask is followed the closer, the smaller the blocks
            most = 256 if mask is None else 64 if j <= 1024 else 128
            rows = min(max(tile // width, 64), most)
        heads = max(1, min(count, tile // (rows * width)))
        return cls(leading, i, j, mask, bias, rows, heads, query.device)

    @property
    def tile(self) -> int:
        """The most scores that are computed at a time."""
        return self.heads * min(self.rows, self.i) * min(self.j, KEYS)

    def __iter__(self) -> Iterator[tuple[slice, slice, list[Piece]]]:
        """Heads, queries, and the pieces that the scores of these are made of."""
        starts = range(0, self.i, self.rows)
        bands = (range(start, min(start + self.rows, self.i)) for start in starts)
        count = self.leading.numel()
        heads = [slice(h, min(h + self.heads, count)) for h in range(0, count, self.heads)]
        rows = ((slice(band.start, band.stop), self._pieces(band)) for band in bands)
        if self.bias is None and (self.mask is None or isinstance(self.mask, Window)):
            # Little to remember: head by head is faster, as the keys of one fit into the caches.
            return ((h, *row) for h, row in product(heads, rows))
        return ((h, *row) for row in rows for h in heads)

    def _pieces(self, queries: range) -> list[Piece]:
        some = every = range(self.j)
        if self.mask is not None:
            some, every = reach_for(self.mask, queries, self.j)
        starts = range(some.start, some.stop, KEYS)
        return [self._piece(queries, range(j, min(j + KEYS, some.stop)), every) for j in starts]

    def _piece(self, queries: range, keys: range, every: range) -> Piece:
        forbidden = []
        if self.mask is not None:
            for edge in _without(keys, common(keys, every)):
                allowed = block_for(self.mask, queries, edge, self.device)
                where = slice(edge.start - keys.start, edge.stop - keys.start)
                forbidden.append((where, allowed.logical_not()))
        rule = self.bias
        bias = None if rule is None else block_for(rule, queries, keys, self.device)
        return Piece(self.leading, queries, keys, forbidden, bias)


@dataclass(frozen=True)
class Piece:
    """The scores of some queries and some keys: what is forbidden, and what is added to them."""

    leading: torch.Size
    queries: range
    keys: range
    forbidden: list[tuple[slice, Tensor]]  # keys of this piece, and where the mask forbids them
    bias: Tensor | None  # of a rule

    @property
    def span(self) -> slice:
        return slice(self.keys.start, self.keys.stop)

    def restrict_(self, scores: Tensor, heads: slice, bias: Tensor | None, unit: float) -> None:
        """Add the bias, in units, to scores `h i j`, and put -inf where the mask forbids."""
        if self.bias is not None:
            scores.add_(self._of(heads, self.bias), alpha=unit)
        elif bias is not None:
            added = self._of(heads, part(bias, self.queries, self.keys))
            limit = torch.finfo(scores.dtype).max / 2  # what is finite stays so in other units
            scores.add_(added.clamp(-limit, limit), alpha=unit)
        for keys, forbidden in self.forbidden:
            scores[..., keys].masked_fill_(self._of(heads, forbidden), -torch.inf)

    def add_to_(self, bias_grad: Tensor, scores_grad: Tensor, heads: slice) -> None:
        """Add what scores `h i j` give to the gradient of a bias, whose axes may be 1 for all."""
        block = part(bias_grad, self.queries, self.keys)
        for axis in (-2, -1):
            if block.shape[axis] == 1:
                scores_grad = scores_grad.sum(axis, keepdim=True)
        if block.ndim == 2:
            block.add_(scores_grad.sum(0))
        else:
            shape = block.shape[:-2]  # without the axes that values alone have
            index = zip(self._index(heads, block.device)[-len(shape) :], shape, strict=True)
            block.index_put_(tuple(at % size for at, size in index), scores_grad, accumulate=True)

    def _of(self, heads: slice, block: Tensor) -> Tensor:
        """What a block `i j` or `... i j` says of these heads: `i j` or `h i j`."""
        if block.ndim == 2:
            return block
        block = block.expand(*self.leading, *block.shape[-2:])
        return block[self._index(heads, block.device)]

    def _index(self, heads: slice, device: torch.device) -> tuple[Tensor, ...]:
        counted = torch.arange(heads.start, heads.stop, device=device)
        return torch.unravel_index(counted, self.leading)


def _without(span: range, middle: range) -> list[range]:
    """What is left of a range when a part of it is taken out."""
    if not middle:
        return [span]
    sides = range(span.start, middle.start), range(middle.stop, span.stop)
    return [side for side in sides if side]
