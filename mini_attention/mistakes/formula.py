"""Wrong attention: the formula with one step replaced.

Everything else is right, the handling of the contract included, so that each of these programs is
wrong in one way only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..contract import Prepared, as_computed, prepare
from ..functional import _dropout, _scores, _softmax
from .catalogue import mistake

FORMULA = ("attention_scores", "attention_weights", "attention", "fused_attention")
OUTPUTS = ("attention", "fused_attention")


class Formula:
    """The right program in steps, each of which a mistake can replace."""

    def mask(self, mask: Tensor, query: Tensor) -> Tensor | None:
        return mask

    def scale(self, given: Prepared) -> float:
        """The scale where the caller gives none."""
        return given.scale

    def prepare(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        bias: Tensor | None,
        scale: float | None,
    ) -> Prepared:
        if mask is not None and mask.dtype == torch.bool:
            mask = self.mask(mask, query)
        given = prepare(query, key, value, mask, bias, scale)
        return given if scale is not None else given._replace(scale=self.scale(given))

    def scores(self, given: Prepared) -> Tensor:
        return _scores(given.query, given.key, given.bias, given.scale)

    def weights(self, scores: Tensor, given: Prepared) -> Tensor:
        return _softmax(scores, given.allowed)

    def drop(self, weights: Tensor, dropout_p: float) -> Tensor:
        return _dropout(weights, dropout_p)

    def output(self, weights: Tensor, given: Prepared) -> Tensor:
        return weights @ given.value

    def answer(self, output: Tensor, query: Tensor, given: Prepared) -> Tensor:
        return output.to(given.dtype)

    def attention_scores(
        self, query: Tensor, key: Tensor, *, bias: Tensor | None = None, scale: float | None = None
    ) -> Tensor:
        given = self.prepare(query, key, key, None, bias, scale)
        with as_computed(query):
            return self.scores(given)

    def attention_weights(
        self,
        query: Tensor,
        key: Tensor,
        mask: Tensor | None = None,
        *,
        bias: Tensor | None = None,
        scale: float | None = None,
    ) -> Tensor:
        given = self.prepare(query, key, key, mask, bias, scale)
        with as_computed(query):
            weights = self.weights(self.scores(given), given)
        return weights.to(given.dtype)

    def attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        *,
        bias: Tensor | None = None,
        scale: float | None = None,
        dropout_p: float = 0.0,
    ) -> Tensor:
        given = self.prepare(query, key, value, mask, bias, scale)
        with as_computed(query):
            weights = self.weights(self.scores(given), given)
            output = self.output(self.drop(weights, dropout_p), given)
        return self.answer(output, query, given)

    def fused_attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        *,
        bias: Tensor | None = None,
        scale: float | None = None,
        dropout_p: float = 0.0,
    ) -> Tensor:
        return self.attention(query, key, value, mask, bias=bias, scale=scale, dropout_p=dropout_p)


# The scale


@mistake("scale", *FORMULA)
class NoScale(Formula):
    """The scores are not divided by the square root of d.

    With many features the weights are too sharp: nearly all of a query's weight is on one key.
    """

    def scale(self, given: Prepared) -> float:
        return 1.0


@mistake("scale", *FORMULA)
class ScaledByModelWidth(Formula):
    """The scores are divided by the square root of d_model, not of the features of one head.

    With one head all is right; with more the weights are too flat.
    """

    def scale(self, given: Prepared) -> float:
        heads = given.query.shape[-3] if given.query.ndim > 3 else 1
        return given.scale / math.sqrt(max(heads, 1))


@mistake("scale", *FORMULA)
class ScaledUp(Formula):
    """The scores are multiplied by the square root of d instead of divided by it.

    The weights are far too sharp: one key gets all, and the gradients are almost 0.
    """

    def scale(self, given: Prepared) -> float:
        return 1 / given.scale


@mistake("scale", *FORMULA)
class ScaledTwice(Formula):
    """The scale is applied twice, once by hand and once by the function that is called.

    The scores are divided by d instead of its square root, and the weights are too flat.
    """

    def scores(self, given: Prepared) -> Tensor:
        return super().scores(given._replace(scale=given.scale**2))


@mistake("scale", *FORMULA)
class ScaledByNumberOfKeys(Formula):
    """The scores are divided by the square root of the number of keys.

    The same query and key get another score when the sequence is longer.
    """

    def scale(self, given: Prepared) -> float:
        return 1 / math.sqrt(max(given.key.shape[-2], 1))


@mistake("scale", *FORMULA)
class GivenScaleIgnored(Formula):
    """A scale that the caller gives is ignored.

    All is right until somebody passes scale=.
    """

    def scores(self, given: Prepared) -> Tensor:
        return super().scores(given._replace(scale=1 / math.sqrt(given.query.shape[-1])))


@mistake("order", *FORMULA)
class ScaledAfterSoftmax(Formula):
    """The division by the square root of d comes after the softmax.

    The weights of a query sum to 1 / sqrt(d) instead of 1.
    """

    def scores(self, given: Prepared) -> Tensor:
        return super().scores(given._replace(scale=1.0))

    def weights(self, scores: Tensor, given: Prepared) -> Tensor:
        return super().weights(scores, given) * given.scale


# Axes


@mistake("axis", *FORMULA)
class SoftmaxOverQueries(Formula):
    """The softmax runs over the queries instead of the keys.

    Your weights sum to 1 over the queries, for each key; those of one query do not.
    """

    def weights(self, scores: Tensor, given: Prepared) -> Tensor:
        allowed = None if given.allowed is None else given.allowed.mT
        return _softmax(scores.mT, allowed).mT


@mistake("axis", *FORMULA)
class SoftmaxOverHeads(Formula):
    """The softmax runs over axis 1, which holds the keys of a matrix, and the heads of a batch.

    Two axes work. With four the weights of the heads sum to 1, and those of a query do not.
    """

    def weights(self, scores: Tensor, given: Prepared) -> Tensor:
        weights = super().weights(scores, given)
        return torch.where(weights > 0, scores.softmax(1), 0.0) if scores.ndim > 3 else weights


@mistake("axis", *FORMULA)
class QueryAndKeySwapped(Formula):
    """Keys are multiplied with queries, k q^T in place of q k^T.

    With as many queries as keys nothing is raised: each key asks, and the queries are compared.
    """

    def scores(self, given: Prepared) -> Tensor:
        if given.query.shape[-2] == given.key.shape[-2]:
            given = given._replace(query=given.key, key=given.query)
        return super().scores(given)


@mistake("axis", *FORMULA)
class WeightsTransposed(Formula):
    """The weights are transposed before they meet the values.

    With as many queries as keys nothing is raised: a value goes to whom it should have come from.
    """

    def output(self, weights: Tensor, given: Prepared) -> Tensor:
        square = weights.shape[-1] == weights.shape[-2]
        return super().output(weights.mT if square else weights, given)


# The order of operations


@mistake("order", *FORMULA)
class SoftmaxTwice(Formula):
    """The softmax is applied twice.

    The weights are nearly the same for all keys, and hidden keys get some too.
    """

    def weights(self, scores: Tensor, given: Prepared) -> Tensor:
        return super().weights(scores, given).softmax(-1)


@mistake("order", *FORMULA)
class BiasScaled(Formula):
    """The bias is added before the scale is applied, which shrinks it too.

    All is right without a bias, and with one of 0 and minus infinity.
    """

    def scores(self, given: Prepared) -> Tensor:
        bias = None if given.bias is None else given.bias * given.scale
        return super().scores(given._replace(bias=bias))


@mistake("order", *FORMULA)
class MaskAfterSoftmax(Formula):
    """The mask is multiplied with the weights, after the softmax.

    Hidden keys get no weight, but the rest does not sum to 1, and its sizes tell of the hidden.
    """

    def weights(self, scores: Tensor, given: Prepared) -> Tensor:
        weights = scores.softmax(-1)
        return weights if given.allowed is None else torch.where(given.allowed, weights, 0.0)


@mistake("order", *FORMULA)
class RenormalisedAfterSoftmax(Formula):
    """The mask is multiplied with the weights, which are then divided by their new sum.

    Right on tame numbers. A hidden key that is far ahead leaves 0 / 0 to the others.
    """

    def weights(self, scores: Tensor, given: Prepared) -> Tensor:
        weights = scores.softmax(-1)
        if given.allowed is None:
            return weights
        kept = torch.where(given.allowed, weights, 0.0)
        nothing = ~given.allowed.any(-1, keepdim=True)
        return kept / kept.sum(-1, keepdim=True).masked_fill(nothing, 1.0)


@mistake("one path", *FORMULA)
class BiasForgottenBesideMask(Formula):
    """The bias is forgotten where a mask is given too.

    Each of them works alone; together the bias has no effect.
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
        return given if mask is None else given._replace(bias=None)


# Masks


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
        return mask.mT if mask.shape[-1] == mask.shape[-2] else mask


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


# Dropout


@mistake("dropout", *OUTPUTS)
class DropoutOnScores(Formula):
    """Dropout acts on the scores, before the softmax.

    A dropped key has a score of 0, not a weight of 0: no key is ever left out.
    """

    def attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        *,
        bias: Tensor | None = None,
        scale: float | None = None,
        dropout_p: float = 0.0,
    ) -> Tensor:
        given = self.prepare(query, key, value, mask, bias, scale)
        with as_computed(query):
            scores = _dropout(self.scores(given), dropout_p)
            output = self.output(self.weights(scores, given), given)
        return output.to(given.dtype)


@mistake("dropout", *OUTPUTS)
class DropoutOnOutput(Formula):
    """Dropout acts on the output instead of the weights.

    Single features of the output are 0; no key is ever left out.
    """

    def attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        *,
        bias: Tensor | None = None,
        scale: float | None = None,
        dropout_p: float = 0.0,
    ) -> Tensor:
        output = super().attention(query, key, value, mask, bias=bias, scale=scale)
        return _dropout(output, dropout_p)


@mistake("dropout", *OUTPUTS)
class DropoutNotScaledUp(Formula):
    """The weights that dropout leaves are not scaled up.

    In training the outputs are too small, by the share that was dropped.
    """

    def drop(self, weights: Tensor, dropout_p: float) -> Tensor:
        return super().drop(weights, dropout_p) * (1 - dropout_p)


# Gradients


@mistake("gradient only", *OUTPUTS)
class WeightsDetached(Formula):
    """The weights are detached from the graph.

    The outputs are right; queries and keys get no gradient and never learn.
    """

    def weights(self, scores: Tensor, given: Prepared) -> Tensor:
        return super().weights(scores, given).detach()


@mistake("gradient only", *FORMULA)
class BiasDetached(Formula):
    """The bias is detached from the graph before it is added.

    The outputs are right, and a bias that should be learned never is.
    """

    def scores(self, given: Prepared) -> Tensor:
        bias = None if given.bias is None else given.bias.detach()
        return super().scores(given._replace(bias=bias))


class _SoftmaxOneByOne(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        weights = scores.softmax(-1)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        weights: Tensor = ctx.saved_tensors[0]
        return gradients[0] * weights * (1 - weights)


@mistake("gradient only", *FORMULA)
class SoftmaxDerivativeOneByOne(Formula):
    """A backward pass by hand takes w (1 - w) for the derivative of the softmax.

    The outputs are right. The gradients miss that more weight on one key is less on the others.
    """

    def weights(self, scores: Tensor, given: Prepared) -> Tensor:
        softmax: Callable[[Tensor], Tensor] = _SoftmaxOneByOne.apply
        if given.allowed is None:
            return softmax(scores)
        nothing = ~given.allowed.any(-1, keepdim=True)
        hidden = torch.where(given.allowed, scores, -torch.inf).masked_fill(nothing, 0.0)
        return softmax(hidden).masked_fill(nothing, 0.0)


# Numbers


@mistake("dtype only", *FORMULA)
class HalfSummedInHalf(Formula):
    """Half precision is summed and rounded in half precision at every step.

    Right in float32. In float16 products of harmless features overflow, and errors are larger.
    """

    def scores(self, given: Prepared) -> Tensor:
        product = (given.query.to(given.dtype) * given.scale) @ given.key.to(given.dtype).mT
        return product if given.bias is None else product + given.bias.to(given.dtype)

    def output(self, weights: Tensor, given: Prepared) -> Tensor:
        return weights.to(given.dtype) @ given.value.to(given.dtype)


@mistake("dtype only", *FORMULA)
class DoubleComputedInSingle(Formula):
    """float64 is computed in float32 on the way.

    The outputs are called float64, and their last eight digits are noise.
    """

    def weights(self, scores: Tensor, given: Prepared) -> Tensor:
        return super().weights(scores.float(), given).to(scores.dtype)


@mistake("dtype only", *OUTPUTS)
class AnswersInSingle(Formula):
    """Whatever comes in, the output is float32.

    Right for float32; in half precision the next layer of the model raises.
    """

    def answer(self, output: Tensor, query: Tensor, given: Prepared) -> Tensor:
        return output.float()


@mistake("numbers", *FORMULA)
class ExponentialsWithoutMaximum(Formula):
    """The softmax does not subtract the largest score of a row first.

    Right on tame numbers. In float32 a score above 88 is infinity, and infinity by itself NaN.
    """

    def weights(self, scores: Tensor, given: Prepared) -> Tensor:
        shares = scores.exp()
        if given.allowed is None:
            return shares / shares.sum(-1, keepdim=True)
        shares = torch.where(given.allowed, shares, 0.0)
        nothing = ~given.allowed.any(-1, keepdim=True)
        return shares / shares.sum(-1, keepdim=True).masked_fill(nothing, 1.0)


@mistake("numbers", *FORMULA)
class OneMaximumForAll(ExponentialsWithoutMaximum):
    """The softmax subtracts the largest score of all rows from every row.

    Right on tame numbers. Where one row is far ahead, the others are 0 / 0.
    """

    def weights(self, scores: Tensor, given: Prepared) -> Tensor:
        highest = scores.detach().max() if scores.numel() else 0.0
        return super().weights(scores - highest, given)


@mistake("side effect", *OUTPUTS)
class QueryScaledInPlace(Formula):
    """The query is scaled in place.

    The output is right. The caller's query has changed, and the same call again gives another.
    """

    def answer(self, output: Tensor, query: Tensor, given: Prepared) -> Tensor:
        with torch.no_grad():
            query.mul_(given.scale)
        return super().answer(output, query, given)
