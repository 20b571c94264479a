"""Wrong attention: dropout, gradients, precision and what is written to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..contract import Prepared, as_computed
from ..functional import _dropout
from .catalogue import mistake
from .formula import FORMULA, OUTPUTS, Formula

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
