"""Wrong layers: multi-head attention with one step replaced."""

from __future__ import annotations

import math

import torch
from einops import rearrange, repeat
from torch import Tensor, nn
from torch.nn import functional as F

from ..contract import Bias, Mask, stored
from ..decoding import Cache
from ..functional import attention_weights, fused_attention
from ..heads import MultiHeadAttention, _attend, _per_head, _sources
from ..plug import Attend
from .catalogue import mistake

LAYER = "MultiHeadAttention"


class Layer(MultiHeadAttention):
    """The right layer in steps, each of which a mistake can replace."""

    def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.q_proj(query), self.k_proj(key), self.v_proj(value)

    def split(self, x: Tensor) -> Tensor:
        return rearrange(x, "b n (h d) -> b h n d", h=self.num_heads)

    def item_mask(self, mask: Tensor) -> Tensor:
        """One mask an item, b i j, for the scores of all heads."""
        per_head = _per_head(mask)
        assert per_head is not None
        return per_head

    def heads(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        return _attend(self, q, k, v, mask, bias)

    def merge(self, heads: Tensor) -> Tensor:
        return rearrange(heads, "b h n e -> b n (h e)")

    def join(self, merged: Tensor) -> Tensor:
        output: Tensor = self.out_proj(merged)
        return output

    def shown(self, q: Tensor, k: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
        return attention_weights(q, k, mask, bias=bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Mask | None = None,
        *,
        bias: Bias | None = None,
        cache: Cache | None = None,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        query, key, value = _sources(self, query, key, value)
        mask, bias = stored(mask, query), _per_head(stored(bias, query))
        if mask is not None and mask.ndim == 3:
            mask = self.item_mask(mask)
        q, k, v = map(self.split, self.project(query, key, value))
        if cache is not None:
            k, v = cache.append(k, v)
        output = self.join(self.merge(self.heads(q, k, v, mask, bias)))
        return (output, self.shown(q, k, mask, bias)) if return_weights else output


# Heads and shapes


@mistake("reshape", LAYER)
class SplitByView(Layer):
    """The features are cut into heads by a view, without moving an axis.

    Each "head" gets a stretch of the sequence with all its features: a token sees the tokens of its
    own stretch only.
    """

    def split(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), self.num_heads, -1, x.shape[-1] // self.num_heads)

    def merge(self, heads: Tensor) -> Tensor:
        b, h, n, e = heads.shape
        return heads.reshape(b, n, h * e)


@mistake("reshape", LAYER)
class MergedByView(Layer):
    """The heads are put back together by a view, without moving their axis back.

    The output has the right shape, and the positions are mixed: the last token's value reaches
    the first token even under a causal mask.
    """

    def merge(self, heads: Tensor) -> Tensor:
        b, h, n, e = heads.shape
        return heads.reshape(b, n, h * e)


@mistake("axis", LAYER)
class AttendsOverHeads(Layer):
    """One transpose is missing or one too many: inside each position the heads are compared.

    Another token's change moves nothing, and the weights are n h h where they should be h n n.
    """

    def heads(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        q, k, v = (rearrange(x, "b h n d -> b n h d") for x in (q, k, v))
        return rearrange(super().heads(q, k, v, None, None), "b n h e -> b h n e")


@mistake("reshape", LAYER)
class FeaturesInterleaved(Layer):
    """The features are dealt out to the heads one by one, not in blocks.

    A layer trained like this works; parameters copied from elsewhere give another output.
    """

    def split(self, x: Tensor) -> Tensor:
        return rearrange(x, "b n (d h) -> b h n d", h=self.num_heads)

    def merge(self, heads: Tensor) -> Tensor:
        return rearrange(heads, "b h n e -> b n (e h)")


@mistake("reshape", LAYER)
class MergedOutOfOrder(Layer):
    """The heads are split in blocks of features and put back one feature at a time.

    A layer trained like this works; parameters copied from elsewhere give another output.
    """

    def merge(self, heads: Tensor) -> Tensor:
        return rearrange(heads, "b h n e -> b n (e h)")


@mistake("order", LAYER)
class SplitBeforeProjecting(Layer):
    """The input is cut into heads first, and each part is projected alone.

    A head knows its own share of the input features only: a change of the others moves it not.
    """

    def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        pairs = ((self.q_proj, query), (self.k_proj, key), (self.v_proj, value))
        q, k, v = (F.linear(x, self._own_share(p.weight), p.bias) for p, x in pairs)
        return q, k, v

    def _own_share(self, weight: Tensor) -> Tensor:
        """The weight with zeros outside the blocks of the heads on the diagonal."""
        blocks = [torch.ones(math.ceil(size / self.num_heads)) for size in weight.shape]
        kept: Tensor = torch.block_diag(  # type: ignore[no-untyped-call]
            *[torch.outer(*blocks)] * self.num_heads
        )
        return weight * kept[: len(weight), : weight.shape[1]].to(weight)


@mistake("order", LAYER)
class NoOutputProjection(Layer):
    """The heads are concatenated and returned, without the output projection.

    The output has the right shape, and no feature of it comes from more than one head.
    """

    def join(self, merged: Tensor) -> Tensor:
        return merged


# Projections and sources


@mistake("sources", LAYER)
class KeysByQueryProjection(Layer):
    """The keys are projected with the matrix of the queries.

    In self-attention every token looks for tokens like itself; nothing has a wrong shape.
    """

    def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        same = self.q_proj.in_features == self.k_proj.in_features
        return self.q_proj(query), (self.q_proj if same else self.k_proj)(key), self.v_proj(value)


@mistake("sources", LAYER)
class ValuesByKeyProjection(Layer):
    """The values are projected with the matrix of the keys.

    Nothing has a wrong shape where keys and values are alike in size; v_proj never learns.
    """

    def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        same = self.k_proj.in_features == self.v_proj.in_features
        return self.q_proj(query), self.k_proj(key), (self.k_proj if same else self.v_proj)(value)


@mistake("sources", LAYER)
class ProjectionsSwapped(Layer):
    """The queries are projected with the matrix of the keys, and the keys with that of the queries.

    A fresh layer learns all the same; parameters copied from elsewhere give another output.
    """

    def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q_proj, k_proj = self.q_proj, self.k_proj
        if q_proj.in_features == k_proj.in_features:
            q_proj, k_proj = k_proj, q_proj
        return q_proj(query), k_proj(key), self.v_proj(value)


@mistake("sources", LAYER)
class ValuesFromKeys(Layer):
    """The values are projected from the keys' input, whatever is given as value.

    All is right as long as the value is the key, as in self-attention.
    """

    def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        same = key.shape == value.shape
        return self.q_proj(query), self.k_proj(key), self.v_proj(key if same else value)


@mistake("sources", LAYER)
class KeysFromQuery(Layer):
    """Keys and values are made from the query's input, whatever is given as key.

    All is right in self-attention. In cross-attention the other sequence is never looked at.
    """

    def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if query.shape == key.shape == value.shape:
            key = value = query
        return self.q_proj(query), self.k_proj(key), self.v_proj(value)


@mistake("sources", LAYER)
class TheOtherAsks(Layer):
    """The queries are made from the other sequence, and keys and values from the first.

    All is right in self-attention. In cross-attention there is an output for each key.
    """

    def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.q_proj.in_features == self.k_proj.in_features == self.v_proj.in_features:
            query, key, value = key, query, query
        return self.q_proj(query), self.k_proj(key), self.v_proj(value)


@mistake("sources", LAYER)
class ProjectionBiasForgotten(Layer):
    """The biases of the query, key and value projections are left out.

    All is right in a fresh torch layer, where they are 0; a trained one gives another output.
    """

    def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        pairs = ((self.q_proj, query), (self.k_proj, key), (self.v_proj, value))
        q, k, v = (F.linear(x, p.weight) for p, x in pairs)
        return q, k, v


@mistake("convert", LAYER)
class CopiedInAnotherOrder(Layer):
    """Copied parameters are unpacked as keys, queries, values.

    The copy runs, and gives another output than the layer it was copied from.
    """

    @classmethod
    def from_torch(
        cls, module: nn.MultiheadAttention, *, attend: Attend = fused_attention
    ) -> MultiHeadAttention:
        layer = super().from_torch(module, attend=attend)
        layer.q_proj, layer.k_proj = layer.k_proj, layer.q_proj
        return layer


@mistake("convert", LAYER)
class CopiedTransposed(Layer):
    """Copied matrices are transposed: x W in the text, W x in the code.

    Only square matrices fit, and their output is another one; symmetric ones hide it.
    """

    @classmethod
    def from_torch(
        cls, module: nn.MultiheadAttention, *, attend: Attend = fused_attention
    ) -> MultiHeadAttention:
        layer = super().from_torch(module, attend=attend)
        with torch.no_grad():
            for projection in (layer.q_proj, layer.k_proj, layer.v_proj):
                projection.weight.copy_(projection.weight.T.clone())
        return layer


# Masks and biases


@mistake("one rank", LAYER)
class ItemMaskOnHeads(Layer):
    """A mask b i j meets the scores b h i j, and broadcasting lays it on the heads.

    Right for a batch of one, an error for most others; with as many items as heads, head 0 of
    every item silently gets the mask of item 0.
    """

    def item_mask(self, mask: Tensor) -> Tensor:
        return rearrange(mask, "b i j -> 1 b i j")


@mistake("repeat", LAYER)
class ItemMaskRepeated(Layer):
    """The masks of the items are repeated as a whole where each should be repeated in place.

    One mask for all works. Else an item's heads get the masks of several items.
    """

    def item_mask(self, mask: Tensor) -> Tensor:
        stacked = repeat(mask, "b i j -> (h b) i j", h=self.num_heads)
        return rearrange(stacked, "(b h) i j -> b h i j", h=self.num_heads)


@mistake("one path", LAYER)
class BiasForgotten(Layer):
    """The layer takes a bias and does not hand it on.

    The bias has no effect on the output, though the weights that are shown have it.
    """

    def heads(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        return super().heads(q, k, v, mask, None)


# Training and what is returned


@mistake("dropout", LAYER)
class DropoutInEvaluation(Layer):
    """Dropout acts in evaluation too.

    The same input gives another output in each call.
    """

    def heads(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        training, self.training = self.training, True
        heads = super().heads(q, k, v, mask, bias)
        self.training = training
        return heads


@mistake("dropout", LAYER)
class DropoutNeverActs(Layer):
    """The layer takes a dropout rate and does nothing with it.

    Training and evaluation give the same output.
    """

    def heads(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        training, self.training = self.training, False
        heads = super().heads(q, k, v, mask, bias)
        self.training = training
        return heads


@mistake("dropout", LAYER)
class ShownAfterDropout(Layer):
    """The weights that are returned are those after dropout.

    In training they do not sum to 1, and a map has holes.
    """

    def shown(self, q: Tensor, k: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
        return F.dropout(super().shown(q, k, mask, bias), self.dropout, self.training)


@mistake("reshape", LAYER)
class ShownAsAverage(Layer):
    """The weights that are returned are the mean of all heads.

    No head can be seen any more; the rows sum to 1 all the same.
    """

    def shown(self, q: Tensor, k: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
        weights = super().shown(q, k, mask, bias)
        return weights.mean(1, keepdim=True).expand_as(weights)


@mistake("one path", LAYER)
class ShownWithoutMask(Layer):
    """The weights that are returned are computed without the mask.

    The outputs are right, and the map shows weight where there is none.
    """

    def shown(self, q: Tensor, k: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
        return super().shown(q, k, None, bias)
