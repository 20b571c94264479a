"""Wrong attention: what is done with the mask, and with queries that may attend to nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from ..contract import Prepared
from .catalogue import mistake
from .formula import FORMULA, OUTPUTS, Formula


@mistake("sense", *FORMULA)
class MaskInverted(Formula):
    """True in the mask is read as "hide".

    A query attends to just those keys that it may not see: under a causal mask, to the future.
    """

    def mask(self, mask: Tensor, query: Tensor) -> Tensor:
        return ~mask


@mistake("one path", *OUTPUTS)
class MaskIgnored(Formula):
    """The function takes a mask and does nothing with it.

    Every key is seen, those of the future too.
    """

    def mask(self, mask: Tensor, query: Tensor) -> None:
        return None


@mistake("one path", "fused_attention")
class MaskForgottenByFused(Formula):
    """The fast path forgets the mask.

    The readable function is right, and the layer that uses the fast one sees the future.
    """

    def mask(self, mask: Tensor, query: Tensor) -> None:
        return None


@mistake("one path", "attention_weights")
class MaskForgottenByWeights(Formula):
    """The weights that are shown are computed without the mask.

    The outputs are right, and the map shows weight where there is none.
    """

    def mask(self, mask: Tensor, query: Tensor) -> None:
        return None


@mistake("axis", *FORMULA)
class MaskTransposed(Formula):
    """The rows of the mask are taken for keys and its columns for queries.

    With as many queries as keys nothing is raised, and a causal mask shows the future.
    """

    def mask(self, mask: Tensor, query: Tensor) -> Tensor:
        return mask.mT


@mistake("one rank", *FORMULA)
class MaskLandsOnHeads(Formula):
    """A mask b i j meets scores b h i j, and broadcasting lays it on the heads.

    An error, unless there are as many items as heads, or one of them: then head 0 of every item
    gets the mask of item 0.
    """

    def mask(self, mask: Tensor, query: Tensor) -> Tensor:
        return mask.unsqueeze(0) if mask.ndim == 3 and query.ndim == 4 else mask


@mistake("one rank", *FORMULA)
class FirstMaskForAll(Formula):
    """Every item of a batch gets the mask of the first one.

    A batch of one works, and so does one mask for all.
    """

    def mask(self, mask: Tensor, query: Tensor) -> Tensor:
        return mask[:1].expand_as(mask) if mask.ndim > 2 else mask


@mistake("fill", *FORMULA)
class MaskAdded(Formula):
    """The mask is added to the scores as ones and zeros.

    A hidden key has a score that is lower by 1, and still gets weight.
    """

    def weights(self, scores: Tensor, given: Prepared) -> Tensor:
        return (scores if given.allowed is None else scores + given.allowed).softmax(-1)


@mistake("fill", *FORMULA)
class MaskMultiplied(Formula):
    """The scores of hidden keys are set to 0 (or 1e-9) instead of minus infinity.

    A hidden key gets a share of e^0 = 1, more than a seen one with a negative score.
    """

    def weights(self, scores: Tensor, given: Prepared) -> Tensor:
        if given.allowed is not None:
            scores = torch.where(given.allowed, scores, 0.0)
        return scores.softmax(-1)


@mistake("fill", *FORMULA)
class FiniteFill(Formula):
    """The scores of hidden keys are set to a large negative number, -1e9.

    A query that may attend to nothing gets the mean of all values, hidden ones included; a seen
    key with a lower score loses its weight to hidden ones.
    """

    def weights(self, scores: Tensor, given: Prepared) -> Tensor:
        if given.allowed is not None:
            scores = torch.where(given.allowed, scores, -1e9)
        return scores.softmax(-1)


@mistake("fill", *FORMULA)
class JunkGetsThrough(Formula):
    """Hidden keys and values are multiplied with a weight of 0.

    0 times NaN is NaN: whatever stands in the padding reaches outputs or gradients.
    """

    def prepare(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        bias: Tensor | None,
        scale: float | None,
    ) -> Prepared:
        given = super().prepare(query, key, value, mask, bias, scale)
        dtype = given.query.dtype
        return given._replace(key=key.to(dtype), value=value.to(dtype))


@mistake("empty rows", *FORMULA)
class EmptyRowsGiveNan(Formula):
    """A query that may attend to nothing gets the softmax of minus infinities.

    Its output is NaN, and after one backward pass the whole model is.
    """

    def weights(self, scores: Tensor, given: Prepared) -> Tensor:
        if given.allowed is not None:
            scores = torch.where(given.allowed, scores, -torch.inf)
        return scores.softmax(-1)


@mistake("gradient only", *FORMULA)
class EmptyRowsPoisonGradients(Formula):
    """Minus infinity is added to the scores, and NaN is cleared after the softmax.

    The outputs are right. The gradients are NaN as soon as one query may attend to nothing.
    """

    def weights(self, scores: Tensor, given: Prepared) -> Tensor:
        if given.allowed is None:
            return scores.softmax(-1)
        hidden = torch.where(given.allowed, 0.0, -torch.inf).to(scores.dtype)
        return (scores + hidden).softmax(-1).nan_to_num()
