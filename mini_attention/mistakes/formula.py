"""Wrong attention: the formula with one step replaced; here its scale, axes and order.

Everything else is right, the handling of the contract included, so that each of these programs is
wrong in one way only.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..contract import Prepared, as_computed, prepare, stored
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
        mask, bias = stored(mask, query), stored(bias, query)
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

    Right where one head has all the features; else the weights are too flat.
    """

    def scale(self, given: Prepared) -> float:
        heads = given.query.shape[-3] if given.query.ndim > 3 else 1
        return given.scale / math.sqrt(max(heads, 1))


@mistake("scale", *OUTPUTS)
class ScaledByValueWidth(Formula):
    """The scores are divided by the square root of e, the features of a value.

    Right as long as queries, keys and values have as many features.
    """

    def scale(self, given: Prepared) -> float:
        return 1 / math.sqrt(max(given.value.shape[-1], 1))


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
        return super().scores(given._replace(query=given.key, key=given.query))


@mistake("axis", *FORMULA)
class WeightsTransposed(Formula):
    """The weights are transposed before they meet the values.

    With as many queries as keys nothing is raised: a value goes to whom it should have come from.
    """

    def output(self, weights: Tensor, given: Prepared) -> Tensor:
        return super().output(weights.mT, given)


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
