"""Wrong blocked attention: a softmax whose pieces are put together wrongly.

A piece of a row is known by three numbers: the largest score (the top), the sum of the
exponentials measured from it (the total), and the sum of the values weighted with them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..functional import _scores
from .catalogue import RUNNING, mistake

State = tuple[Tensor, Tensor, Tensor]
BOTH = ("blocked_attention", "merge")


class Running:
    """The right program in steps, each of which a mistake can replace. Blocks are of keys."""

    def allowed(self, mask: Tensor, keys: slice) -> Tensor:
        """The part of a mask for some of the keys."""
        return mask[..., keys]

    def blocks(self, scores: Tensor, value: Tensor, size: int) -> list[tuple[Tensor, Tensor]]:
        return [*zip(torch.split(scores, size, -1), torch.split(value, size, -2), strict=True)]

    def piece(self, scores: Tensor, value: Tensor) -> State:
        top = scores.amax(-1, keepdim=True)
        weights = (scores - self.finite(top)).exp()
        return top, weights.sum(-1, keepdim=True), weights @ value

    def finite(self, top: Tensor) -> Tensor:
        """What is subtracted: 0 for a piece with nothing in it."""
        return top.masked_fill(top == -torch.inf, 0.0)

    def top(self, one: Tensor, other: Tensor) -> Tensor:
        return torch.maximum(one, other)

    def factor(self, old: Tensor, new: Tensor) -> Tensor:
        return (old - self.finite(new)).exp()

    def join(self, one: State, other: State, mine: Tensor, theirs: Tensor) -> tuple[Tensor, Tensor]:
        """The total and the values of both pieces, with a factor for each."""
        return mine * one[1] + theirs * other[1], mine * one[2] + theirs * other[2]

    def merge(self, one: State, other: State) -> State:
        top = self.top(one[0], other[0])
        return top, *self.join(one, other, self.factor(one[0], top), self.factor(other[0], top))

    def end(self, state: State) -> Tensor:
        _, total, values = state
        return values / total.masked_fill(total == 0, 1.0)

    def blocked_attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        *,
        bias: Tensor | None = None,
        scale: float | None = None,
        block_size: int,
    ) -> Tensor:
        scores = _scores(query, key, bias, query.shape[-1] ** -0.5 if scale is None else scale)
        if mask is not None:
            parts = [slice(n, n + block_size) for n in range(0, key.shape[-2], block_size)]
            seen = torch.cat([self.allowed(mask, k).expand_as(scores[..., k]) for k in parts], -1)
            scores = scores.masked_fill(~seen, -torch.inf)
        state: State | None = None
        for block in self.blocks(scores, value, block_size):
            new = self.piece(*block)
            state = new if state is None else self.merge(state, new)
        if state is None:
            return scores.new_zeros(*scores.shape[:-1], value.shape[-1])
        return self.end(state)


# What is done with a piece when another one has a larger score


@mistake("rescale", *BOTH, among=RUNNING)
class NothingRescaled(Running):
    """Total and values of the earlier blocks stay as they are when a larger score comes.

    All is right while the largest score of a row is in its first block.
    """

    def factor(self, old: Tensor, new: Tensor) -> Tensor:
        return torch.ones_like(old).masked_fill(old == -torch.inf, 0.0)


@mistake("rescale", *BOTH, among=RUNNING)
class OnlyOldRescaled(Running):
    """The earlier piece is measured from the new top, and the later one from its own.

    All is right while scores rise: a later block with lower scores weighs too much.
    """

    def merge(self, one: State, other: State) -> State:
        top = self.top(one[0], other[0])
        theirs = torch.ones_like(top).masked_fill(other[0] == -torch.inf, 0.0)
        return top, *self.join(one, other, self.factor(one[0], top), theirs)


@mistake("rescale", *BOTH, among=RUNNING)
class ValuesNotRescaled(Running):
    """The total is rescaled, and the weighted values are not.

    All is right while the largest score of a row is in its first block.
    """

    def join(self, one: State, other: State, mine: Tensor, theirs: Tensor) -> tuple[Tensor, Tensor]:
        return mine * one[1] + theirs * other[1], one[2] + theirs * other[2]


@mistake("rescale", *BOTH, among=RUNNING)
class TotalNotRescaled(Running):
    """The weighted values are rescaled, and the total is not.

    Outputs are too small, in rows whose largest score is not in the first block.
    """

    def join(self, one: State, other: State, mine: Tensor, theirs: Tensor) -> tuple[Tensor, Tensor]:
        return one[1] + theirs * other[1], mine * one[2] + theirs * other[2]


@mistake("rescale", *BOTH, among=RUNNING)
class RescaledTheWrongWay(Running):
    """The factor is e^(new top - old top), where e^(old top - new top) is right.

    A piece with lower scores grows where it should shrink.
    """

    def factor(self, old: Tensor, new: Tensor) -> Tensor:
        return (self.finite(new) - old).exp().masked_fill(old == -torch.inf, 0.0)


@mistake("numbers", *BOTH, among=RUNNING)
class TopOfTheLastBlock(Running):
    """The top is that of the last block alone, not the largest so far.

    Right on tame numbers. An earlier block that is far ahead grows to infinity.
    """

    def top(self, one: Tensor, other: Tensor) -> Tensor:
        return torch.where(other == -torch.inf, one, other)


@mistake("numbers", *BOTH, among=RUNNING)
class TopOfTheFirstBlock(Running):
    """The top stays that of the first block.

    Right on tame numbers. A later block that is far ahead grows to infinity.
    """

    def top(self, one: Tensor, other: Tensor) -> Tensor:
        return torch.where(one == -torch.inf, other, one)


# Shares


@mistake("order", *BOTH, among=RUNNING)
class DividedInEachBlock(Running):
    """Each block is divided by its own total, and the results are added up.

    Each block has a softmax of its own, and the weights of a row sum to the number of blocks.
    """

    def piece(self, scores: Tensor, value: Tensor) -> State:
        top, total, values = super().piece(scores, value)
        return top, total, values / total.masked_fill(total == 0, 1.0)

    def join(self, one: State, other: State, mine: Tensor, theirs: Tensor) -> tuple[Tensor, Tensor]:
        return mine * one[1] + theirs * other[1], one[2] + other[2]

    def end(self, state: State) -> Tensor:
        return state[2]


@mistake("order", "blocked_attention", among=RUNNING)
class BlocksAveraged(DividedInEachBlock):
    """Each block has a softmax of its own, and the output is the mean of theirs.

    Right where all blocks have the same total; else a block of low scores weighs too much.
    """

    def blocked_attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        *,
        bias: Tensor | None = None,
        scale: float | None = None,
        block_size: int,
    ) -> Tensor:
        output = super().blocked_attention(
            query, key, value, mask, bias=bias, scale=scale, block_size=block_size
        )
        return output / max(-(-key.shape[-2] // block_size), 1)


@mistake("order", "merge", among=RUNNING)
class ValuesDividedAlready(Running):
    """The merged values are divided by the total.

    That is done once, after the last piece; a second merge would weigh them wrongly.
    """

    def merge(self, one: State, other: State) -> State:
        top, total, values = super().merge(one, other)
        return top, total, values / total.masked_fill(total == 0, 1.0)


@mistake("order", "merge", among=RUNNING)
class MergedAsMeans(Running):
    """The values are taken for outputs that are divided already, and weighted with the totals.

    They are sums: adding them up is all, once both are measured from one top.
    """

    def join(self, one: State, other: State, mine: Tensor, theirs: Tensor) -> tuple[Tensor, Tensor]:
        shares = mine * one[1], theirs * other[1]
        total = shares[0] + shares[1]
        values = shares[0] * one[2] + shares[1] * other[2]
        return total, values / total.masked_fill(total == 0, 1.0)


@mistake("order", "blocked_attention", among=RUNNING)
class NeverDivided(Running):
    """The division by the total, after the last block, is forgotten.

    The weights of a row sum to its total, which is at least 1, and more with more keys.
    """

    def end(self, state: State) -> Tensor:
        return state[2]


# Which keys


@mistake("one path", "blocked_attention", among=RUNNING)
class LastBlockAlone(Running):
    """Each block takes the place of what came before it.

    The output is the attention to the keys of the last block.
    """

    def merge(self, one: State, other: State) -> State:
        return other


@mistake("one path", "blocked_attention", among=RUNNING)
class RaggedBlockDropped(Running):
    """The number of blocks is rounded down: the keys after the last whole one are lost.

    All is right where the block size divides the number of keys.
    """

    def blocks(self, scores: Tensor, value: Tensor, size: int) -> list[tuple[Tensor, Tensor]]:
        whole = scores.shape[-1] // size
        return super().blocks(scores, value, size)[:whole]


@mistake("one path", "blocked_attention", among=RUNNING)
class RaggedBlockFilledWithZeros(Running):
    """The last block is filled up with keys of 0, which are not hidden.

    A score of 0 has a share of e^0 = 1: rows give some of their weight to nothing.
    """

    def blocks(self, scores: Tensor, value: Tensor, size: int) -> list[tuple[Tensor, Tensor]]:
        missing = -scores.shape[-1] % size
        filled = F.pad(scores, (0, missing)), F.pad(value, (0, 0, 0, missing))
        return super().blocks(*filled, size)


@mistake("axis", "blocked_attention", among=RUNNING)
class MaskOfTheFirstBlock(Running):
    """Every block gets the columns of the mask that belong to the first one.

    All is right with one block, and with a mask that is the same in all of them.
    """

    def allowed(self, mask: Tensor, keys: slice) -> Tensor:
        width = min(keys.stop, mask.shape[-1]) - keys.start
        return mask[..., :width]


@mistake("empty rows", *BOTH, among=RUNNING)
class EmptyBlockGivesNan(Running):
    """The top of a block that is all hidden is minus infinity, and is subtracted from itself.

    The row is NaN from there on, though other blocks have keys for it.
    """

    def finite(self, top: Tensor) -> Tensor:
        return top


@mistake("one path", "merge", among=RUNNING)
class TopForgotten(Running):
    """The top that is returned is that of the first piece; total and values are measured right.

    One merge looks right. The next one measures this piece from where it is not.
    """

    def merge(self, one: State, other: State) -> State:
        return one[0], *super().merge(one, other)[1:]


# Memory


@mistake("memory", "blocked_attention", among=RUNNING)
class ScoresStoredWhole(Running):
    """All scores are computed at once, and cut into blocks afterwards.

    Every number is right, and the matrix of i x j elements, which blocks are to avoid, is there.
    """
