"""The Transformer of the first paper: an encoder that reads, a decoder that writes.

The alphabet again, now with two sequences: j counts the positions of the source, which the encoder
reads, and i those of the target, which the decoder writes. A target asks (queries), a source
answers (keys and values).

Source: Vaswani et al., Attention Is All You Need (2017), section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .contract import Mask, check_sizes
from .decoding import BlockCache, DecoderCache, all_or_nothing
from .functional import fused_attention
from .heads import MultiHeadAttention, SingleHeadAttention
from .masks import causal_mask
from .plug import Attend
from .position import sinusoidal_positions

Sublayer = Callable[[Tensor], Tensor]


class FeedForward(nn.Module):
    """Two projections with a ReLU between them, for each position by itself.

        x         ... m, with m = d_model features
        d_hidden  features in between, 4 * d_model unless given
        output    ... m

    Raises ValueError for sizes below 1.
    Source: section 3.3 of the paper.

    >>> layer, x = FeedForward(d_model=4), torch.randn(2, 5, 4)
    >>> torch.allclose(layer(x)[:, 3], layer(x[:, 3]), atol=1e-6)  # alone as among others
    True
    """

    def __init__(self, d_model: int, d_hidden: int | None = None) -> None:
        super().__init__()
        d_hidden = 4 * d_model if d_hidden is None else d_hidden
        check_sizes(d_model=d_model, d_hidden=d_hidden)
        self.widen = nn.Linear(d_model, d_hidden)
        self.narrow = nn.Linear(d_hidden, d_model)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.narrow(torch.relu(self.widen(x)))
        return output


# Two ways to put a sublayer between a residual connection and a norm.


class PostNorm(nn.Module):
    """Add what a sublayer makes of x to x, then normalise: the way of the paper.

    Every sum goes through a norm, the way back of the gradient too. After the last block nothing
    is left to do: `closing` does nothing.

    >>> around = PostNorm(d_model=4)
    >>> around(torch.randn(2, 4), torch.zeros_like).var(-1, correction=0).round(decimals=2)
    tensor([1., 1.], grad_fn=<RoundBackward1>)
    """

    closing: type[nn.Module] = nn.Identity

    def __init__(self, d_model: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        output: Tensor = self.norm(x + self.dropout(sublayer(x)))
        return output


class PreNorm(nn.Module):
    """Normalise what a sublayer reads, and add what it makes of that to x itself.

    From the first block to the last runs a sum that no norm touches, so the sum is normalised
    once after the last block: that is `closing`. Most models since GPT-2 are built this way.

    Source: Xiong et al., On Layer Normalization in the Transformer Architecture (2020).

    >>> around, x = PreNorm(d_model=4), torch.randn(2, 4)
    >>> torch.equal(around(x, torch.zeros_like), x)
    True
    """

    closing: type[nn.Module] = nn.LayerNorm

    def __init__(self, d_model: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        output: Tensor = x + self.dropout(sublayer(self.norm(x)))
        return output


Residual = type[PreNorm] | type[PostNorm]


# The blocks, and what they are stacked to.


class EncoderBlock(nn.Module):
    """Look around in the source, then think about it, position by position.

        x       b j m, with m = d_model features
        mask    j j for all, b 1 j or b j j per item, or b h j j; boolean, True where a position
                may attend to another
        output  b j m

    `d_hidden` is for `FeedForward`, `residual` is PreNorm or PostNorm. `dropout` is the share of
    what each sublayer adds that is dropped in training, and of the weights. `attend` is any
    function with the signature of `attention`.

    >>> from mini_attention import padding_mask
    >>> block, x = EncoderBlock(d_model=8, num_heads=2), torch.randn(1, 5, 8)
    >>> padded = block(x, padding_mask([3], 5))
    >>> torch.allclose(padded[:, :3], block(x[:, :3]), atol=1e-6)
    True
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_hidden: int | None = None,
        *,
        dropout: float = 0.0,
        residual: Residual = PreNorm,
        attend: Attend = fused_attention,
    ) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, num_heads, dropout=dropout, attend=attend)
        self.feed_forward = FeedForward(d_model, d_hidden)
        self.residuals = nn.ModuleList(residual(d_model, dropout) for _ in range(2))

    def forward(self, x: Tensor, mask: Mask | None = None) -> Tensor:
        around_attention, around_feed_forward = self.residuals
        x = around_attention(x, lambda x: self.self_attention(x, mask=mask))
        output: Tensor = around_feed_forward(x, self.feed_forward)
        return output


class DecoderBlock(nn.Module):
    """Look back over the target, then across at the source, then think.

        x            b i m, with m = d_model features
        memory       b j m, what the encoder made of the source
        mask         i i for all, b i i per item, or b h i i; boolean, True where a position of
                     the target may attend to another; `causal_mask(i)` where it may not see
                     what is still to be written
        memory_mask  i j, b 1 j, b i j or b h i j: where it may attend to the source
        cache        of `mini_attention.decoding`; then x and mask are those of new positions
        output       b i m

    Further arguments are those of `EncoderBlock`.

    >>> block, x, memory = DecoderBlock(8, 2), torch.randn(1, 3, 8), torch.randn(1, 5, 8)
    >>> output = block(x, memory, causal_mask(3))
    >>> torch.allclose(output[:, :2], block(x[:, :2], memory, causal_mask(2)), atol=1e-6)
    True
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_hidden: int | None = None,
        *,
        dropout: float = 0.0,
        residual: Residual = PreNorm,
        attend: Attend = fused_attention,
    ) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, num_heads, dropout=dropout, attend=attend)
        self.cross_attention = MultiHeadAttention(
            d_model, num_heads, dropout=dropout, attend=attend
        )
        self.feed_forward = FeedForward(d_model, d_hidden)
        self.residuals = nn.ModuleList(residual(d_model, dropout) for _ in range(3))

    @all_or_nothing
    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Mask | None = None,
        memory_mask: Mask | None = None,
        *,
        cache: BlockCache | None = None,
    ) -> Tensor:
        back, across = (None, None) if cache is None else cache
        memory = memory if across is None else across.new_of(memory)
        around_self, around_cross, around_feed_forward = self.residuals
        x = around_self(x, lambda x: self.self_attention(x, mask=mask, cache=back))
        x = around_cross(
            x, lambda x: self.cross_attention(x, memory, mask=memory_mask, cache=across)
        )
        output: Tensor = around_feed_forward(x, self.feed_forward)
        return output


class Transformer(nn.Module):
    """Read a source, write a target: for each target position, logits of the token that follows.

        source       b j, integers from 0 to source_size - 1
        target       b i, integers from 0 to target_size - 1, what is written so far
        source_mask  b 1 j or j j, boolean, True where a token of the source may be attended to,
                     as from `padding_mask`; for the encoder and for the decoder's look across
        logits       b i target_size

    No target position sees a later one: the causal mask is built in. Padding behind a target
    needs no mask, then, but has to stay out of the loss.

    As in the paper, but for three things: the norm comes first unless `residual` is PostNorm, the
    matrices of embeddings and output are not shared, and embeddings aren't multiplied by √m,
    because torch draws them that large.

    Raises ValueError for sizes and tokens that do not fit, TypeError for tokens that are no
    integers.

    >>> model = Transformer(source_size=50, target_size=12, d_model=8, num_heads=2, num_layers=2)
    >>> source, target = torch.randint(50, (3, 7)), torch.randint(12, (3, 5))
    >>> model(source, target).shape
    torch.Size([3, 5, 12])
    """

    def __init__(
        self,
        source_size: int,
        target_size: int,
        *,
        d_model: int,
        num_heads: int,
        num_layers: int,
        d_hidden: int | None = None,
        dropout: float = 0.0,
        residual: Residual = PreNorm,
        attend: Attend = fused_attention,
    ) -> None:
        super().__init__()
        check_sizes(source_size=source_size, target_size=target_size, num_layers=num_layers)
        how: dict[str, Any] = {"dropout": dropout, "residual": residual, "attend": attend}
        sizes = (d_model, num_heads, d_hidden)
        self.source_embedding = nn.Embedding(source_size, d_model)
        self.target_embedding = nn.Embedding(target_size, d_model)
        self.dropout = nn.Dropout(dropout)
        self.encoder = nn.ModuleList(EncoderBlock(*sizes, **how) for _ in range(num_layers))
        self.decoder = nn.ModuleList(DecoderBlock(*sizes, **how) for _ in range(num_layers))
        self.encoder_closing = residual.closing(d_model)
        self.decoder_closing = residual.closing(d_model)
        self.to_logits = nn.Linear(d_model, target_size)

    def forward(self, source: Tensor, target: Tensor, source_mask: Mask | None = None) -> Tensor:
        memory = self.encode(source, source_mask)
        return self.decode(target, memory, source_mask)

    def encode(self, source: Tensor, source_mask: Mask | None = None) -> Tensor:
        """The memory, b j m: what the encoder makes of each token among all the others."""
        x = self.embed(source, self.source_embedding)
        for block in self.encoder:
            x = block(x, source_mask)
        memory: Tensor = self.encoder_closing(x)
        return memory

    @all_or_nothing
    def decode(
        self,
        target: Tensor,
        memory: Tensor,
        source_mask: Mask | None = None,
        *,
        start: int = 0,
        cache: DecoderCache | None = None,
    ) -> Tensor:
        """The logits, b i target_size, of the token after each of the target.

        The first token stands at the place `start`. With a cache, `target` holds the tokens
        behind those of earlier calls, and the first of all stands there.
        """
        i = target.shape[1]
        mask: Mask = causal_mask(i, device=target.device)
        blocks: Sequence[BlockCache | None] = [None] * len(self.decoder)
        if cache is not None:
            start, mask, blocks = start + cache.seen, cache.mask(i), cache.of(self.decoder)
        x = self.embed(target, self.target_embedding, start)
        for block, kept in zip(self.decoder, blocks, strict=True):
            x = block(x, memory, mask, source_mask, cache=kept)
        logits: Tensor = self.to_logits(self.decoder_closing(x))
        return logits

    def embed(self, tokens: Tensor, embedding: nn.Embedding, start: int = 0) -> Tensor:
        """A vector for each token, b n m, with the one of its place added."""
        x = _looked_up(tokens, embedding)
        table = sinusoidal_positions(start + x.shape[1], x.shape[2], device=x.device, dtype=x.dtype)
        embedded: Tensor = self.dropout(x + table[start:])
        return embedded


@torch.no_grad()
@all_or_nothing
def greedy(
    model: Transformer,
    source: Tensor,
    source_mask: Mask | None = None,
    *,
    start: int,
    steps: int,
    cache: DecoderCache | None = None,
) -> Tensor:
    """Write a target of `steps` tokens, each the likeliest after those that are written.

        source       b j, as for the model
        source_mask  b 1 j, as for the model
        start        the token that targets begin with, which is not returned
        cache        an empty one saves computing what was computed, and changes nothing else
        written      b steps

    >>> model = Transformer(50, 12, d_model=8, num_heads=2, num_layers=1).eval()
    >>> source = torch.randint(50, (3, 7))
    >>> written = greedy(model, source, start=0, steps=4)
    >>> torch.equal(written[:, :2], greedy(model, source, start=0, steps=2))
    True
    """
    memory = model.encode(source, source_mask)
    target = torch.full((len(source), 1), start, device=source.device)
    for _ in range(steps):
        new = target if cache is None else target[:, cache.seen :]
        logits = model.decode(new, memory, source_mask, cache=cache)
        target = torch.cat([target, logits[:, -1:].argmax(-1)], dim=1)
    return target[:, 1:]


@contextmanager
def watch_weights(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """The weights of each attention layer in `model`, b h i j, by its name, of its last call.

    >>> model = Transformer(50, 12, d_model=8, num_heads=2, num_layers=1)
    >>> with watch_weights(model) as weights:
    ...     logits = model(torch.randint(50, (3, 7)), torch.randint(12, (3, 5)))
    >>> weights["decoder.0.cross_attention"].shape
    torch.Size([3, 2, 5, 7])
    """
    weights: dict[str, Tensor] = {}
    wanted: list[bool] = []  # whether who called the layer wants them, too

    def ask(layer: nn.Module, args: Any, given: dict[str, Any]) -> Any:
        wanted.append(given.get("return_weights", False))
        return args, {**given, "return_weights": True}

    def keep(name: str, layer: nn.Module, args: Any, both: tuple[Tensor, Tensor]) -> Any:
        weights[name] = both[1].detach()
        return both if wanted.pop() else both[0]

    hooks = []
    for name, layer in model.named_modules():
        if isinstance(layer, SingleHeadAttention | MultiHeadAttention):
            hooks.append(layer.register_forward_pre_hook(ask, with_kwargs=True))
            hooks.append(layer.register_forward_hook(partial(keep, name)))
    try:
        yield weights
    finally:
        for hook in hooks:
            hook.remove()


def _looked_up(tokens: Tensor, embedding: nn.Embedding) -> Tensor:
    if tokens.ndim != 2:
        raise ValueError(f"tokens must have the axes batch and position; got {tuple(tokens.shape)}")
    if tokens.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"tokens must be integers, int64 or int32; got {tokens.dtype}")
    try:
        rows: Tensor = embedding(tokens)
    except IndexError:  # which does not say which token
        raise ValueError(
            f"tokens must be from 0 to {embedding.num_embeddings - 1}; "
            f"got {tokens.min()} to {tokens.max()}"
        ) from None
    return rows
