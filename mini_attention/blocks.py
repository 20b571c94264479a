"""The scores of `blocked_attention`, cut into blocks: which there are, and what holds in each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .rules import BiasRule, MaskRule, common, part

TILE = 2**18  # scores computed at a time, 1 MiB in float32: about what a core's caches hold
KEYS = 4096  # longer rows of scores are cut


@dataclass(frozen=True)
class Layout:
    """How the scores of i queries and j keys are cut; all `leading` axes count as one, `h`."""

    leading: torch.Size
    i: int
    j: int
    mask: MaskRule | None
    bias: BiasRule | None
    rows: int  # queries in a block
    device: torch.device

    @property
    def heads(self) -> int:
        """How many heads are computed at a time: many when their scores are few."""
        return max(1, min(self.leading.numel(), TILE // (self.rows * max(1, min(self.j, KEYS)))))

    @property
    def tile(self) -> int:
        """The most scores that are computed at a time."""
        return self.heads * min(self.rows, self.i) * min(self.j, KEYS)

    def __iter__(self) -> Iterator[tuple[slice, slice, list[Piece]]]:
        """Heads, queries, and the pieces that the scores of these are made of."""
        for start in range(0, self.i, self.rows):
            queries = range(start, min(start + self.rows, self.i))
            pieces = self._pieces(queries)
            for first in range(0, self.leading.numel(), self.heads):
                last = min(first + self.heads, self.leading.numel())
                yield slice(first, last), slice(queries.start, queries.stop), pieces

    def _pieces(self, queries: range) -> list[Piece]:
        some = every = range(self.j)
        if self.mask is not None:
            some, every = self.mask.reach(queries)
        starts = range(some.start, some.stop, KEYS)
        return [self._piece(queries, range(j, min(j + KEYS, some.stop)), every) for j in starts]

    def _piece(self, queries: range, keys: range, every: range) -> Piece:
        forbidden = []
        if self.mask is not None:
            for edge in _without(keys, common(keys, every)):
                allowed = self.mask.block(queries, edge, self.device)
                where = slice(edge.start - keys.start, edge.stop - keys.start)
                forbidden.append((where, allowed.logical_not()))
        bias = None if self.bias is None else self.bias.block(queries, keys, self.device)
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
            scores.add_(self._of(heads, self.bias).to(scores.dtype), alpha=unit)
        elif bias is not None:
            scores.add_(self._of(heads, part(bias, self.queries, self.keys)), alpha=unit)
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
            index = zip(self._index(heads, block.device), block.shape[:-2], strict=True)
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
