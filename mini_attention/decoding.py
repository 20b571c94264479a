"""Decoding, one position at a time: caches that keep the keys and values of earlier positions.

A layer with a `cache` projects new positions alone and attends to the kept ones as well. A cache
keeps keys and values as they were projected, a pair for each key head, before heads share them
and before `RotaryAttention` turns them.

Shapes: keys `b g j d` and values `b g j e`, where `g` counts the heads of keys and values.

A call that fails leaves its cache as it was, so that the same words may be given again.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor

from . import rules
from .rules import MaskRule

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Cache(ABC):
    """What a layer hands its new keys and values to, and gets all back that new queries need.

    What is kept is not written over by new positions, so that a call that fails can be undone.
    """

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.seen = 0  # positions so far, and so the number of the next one

    @abstractmethod
    def __len__(self) -> int:
        """How many keys are kept."""

    @abstractmethod
    def mask(self, i: int) -> MaskRule:
        """The mask of the next i queries over the keys that `append` will return, i j."""

    @property
    def bytes(self) -> int:
        """What the cache takes in memory."""
        return sum(x.nbytes for x in (self.keys, self.values) if x is not None)

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keep new keys b g j d and values b g j e; return them behind those kept before.

        What is returned is valid until the next call. Raises TypeError for another dtype than
        that of the kept ones, ValueError for another shape or device, for gradients, and where
        there is no room.
        """
        self._check(key, value)
        together = self._extend(key, value)
        self.seen += key.shape[-2]
        return together

    @abstractmethod
    def _extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]: ...

    def _check(self, key: Tensor, value: Tensor) -> None:
        if key.ndim != 4 or key.shape[:-1] != value.shape[:-1]:
            raise ValueError(
                "a cache takes keys b g j d and values b g j e; "
                f"got shapes {tuple(key.shape)} and {tuple(value.shape)}"
            )
        if key.requires_grad or value.requires_grad:
            raise ValueError("a cache keeps no gradients: call the layer under torch.no_grad()")
        named = {"key": (key, self.keys), "value": (value, self.values)}
        for name, (new, kept) in named.items():
            if kept is None:
                continue
            if new.dtype != kept.dtype:
                raise TypeError(f"{name} is {new.dtype}, the kept ones are {kept.dtype}")
            if new.device != kept.device:
                raise ValueError(f"{name} is on {new.device}, the kept ones are on {kept.device}")
            (*sizes, _, features), (*wanted, _, kept_features) = new.shape, kept.shape
            if (sizes, features) != (wanted, kept_features):
                raise ValueError(
                    f"{name} has {sizes[0]} items, {sizes[1]} heads and {features} features, "
                    f"the kept ones have {wanted[0]}, {wanted[1]} and {kept_features}"
                )


class KVCache(Cache):
    """A cache with room for so many positions. What does not fit is an error.

        capacity  number of positions; memory for all of them is taken with the first ones

    Raises ValueError for a negative capacity.

    >>> from mini_attention import MultiHeadAttention, causal_mask
    >>> layer, x = MultiHeadAttention(d_model=12, num_heads=3), torch.randn(2, 5, 12)
    >>> cache, steps = KVCache(capacity=5), []
    >>> with torch.no_grad():
    ...     for new in x.split(1, dim=1):
    ...         steps.append(layer(new, mask=cache.mask(1), cache=cache))
    >>> torch.allclose(torch.cat(steps, dim=1), layer(x, mask=causal_mask(5)), atol=1e-6)
    True
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        if capacity < 0:
            raise ValueError(f"capacity must be at least 0; got {capacity}")
        self.capacity = capacity

    def __len__(self) -> int:
        return self.seen

    def mask(self, i: int) -> MaskRule:
        """The causal mask of the next i queries, the last of which stands at the last key."""
        return rules.causal(i, self.seen + i)

    def reset(self) -> None:
        """Forget all positions, and keep the memory for others of the same batch size."""
        self.seen = 0

    def _extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        start, stop = self.seen, self.seen + key.shape[-2]
        if stop > self.capacity:
            raise ValueError(
                f"the cache has room for {self.capacity} positions, holds {start} "
                f"and was given {stop - start} more"
            )
        if self.keys is None or self.values is None:
            self.keys, self.values = self._room_for(key), self._room_for(value)
        self.keys[:, :, start:stop] = key
        self.values[:, :, start:stop] = value
        return self.keys[:, :, :stop], self.values[:, :, :stop]

    def _room_for(self, new: Tensor) -> Tensor:
        b, g, _, features = new.shape
        return new.new_empty(b, g, self.capacity, features)


class RollingCache(Cache):
    """A cache for attention through a window: it keeps the last positions and forgets the rest.

        before  how many earlier positions a query sees beside its own, as in `window_mask`

    With it a layer computes what it computes for the whole sequence with
    `window_mask(n, before=before)`, in memory that stops growing.

    Raises ValueError for a negative number.

    >>> from mini_attention import MultiHeadAttention, window_mask
    >>> layer, x = MultiHeadAttention(d_model=12, num_heads=3), torch.randn(2, 9, 12)
    >>> cache, steps = RollingCache(before=2), []
    >>> with torch.no_grad():
    ...     for new in x.split(4, dim=1):
    ...         steps.append(layer(new, mask=cache.mask(new.shape[1]), cache=cache))
    >>> expected = layer(x, mask=window_mask(9, before=2))
    >>> torch.allclose(torch.cat(steps, dim=1), expected, atol=1e-6), len(cache)
    (True, 2)
    """

    def __init__(self, before: int) -> None:
        super().__init__()
        if before < 0:
            raise ValueError(f"before must be at least 0; got {before}")
        self.before = before

    def __len__(self) -> int:
        return min(self.seen, self.before)

    def mask(self, i: int) -> MaskRule:
        """The window of the next i queries, the last of which stands at the last key."""
        return rules.window(i, len(self) + i, before=self.before)

    def reset(self) -> None:
        """Forget all positions."""
        self.keys, self.values, self.seen = None, None, 0

    def _extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if self.keys is not None and self.values is not None:
            key = torch.cat([self.keys, key], dim=-2)
            value = torch.cat([self.values, value], dim=-2)
        self.keys, self.values = self._last_of(key), self._last_of(value)
        return key, value

    def _last_of(self, x: Tensor) -> Tensor:
        first = max(x.shape[-2] - self.before, 0)
        return x[:, :, first:].clone()  # a view would keep the forgotten ones in memory


class MemoryCache(KVCache):
    """A cache for cross-attention: the keys and values of a memory, which are projected once.

    Its capacity is the length of the memory that comes.

    >>> from mini_attention import MultiHeadAttention
    >>> layer, memory = MultiHeadAttention(d_model=12, num_heads=3), torch.randn(2, 7, 12)
    >>> x, cache = torch.randn(2, 5, 12), MemoryCache()
    >>> with torch.no_grad():
    ...     steps = [layer(new, cache.new_of(memory), cache=cache) for new in x.split(1, dim=1)]
    >>> torch.allclose(torch.cat(steps, dim=1), layer(x, memory), atol=1e-6)
    True
    """

    def __init__(self) -> None:
        super().__init__(capacity=0)
        self.memory: Tensor | None = None

    def new_of(self, memory: Tensor) -> Tensor:
        """The positions of a memory b j m whose keys are not kept yet: all at first, then none.

        Raises ValueError for another memory than the first.
        """
        if self.memory is None:
            self.memory, self.capacity = memory, memory.shape[1]
        if memory is not self.memory:
            raise ValueError("the cache holds the keys of another memory: make a new one, or reset")
        return memory[:, self.seen :]

    def mask(self, i: int) -> MaskRule:
        """Every query may attend to all of the memory; a mask for its padding is the caller's."""
        return rules.window(i, self.capacity, before=None, after=None)

    def reset(self) -> None:
        """Forget the memory."""
        super().reset()
        self.memory = self.keys = self.values = None

    def __deepcopy__(self, memo: dict[int, Any]) -> MemoryCache:
        """A copy that goes its own way with the same memory, by which calls are told apart."""
        memo[id(self.memory)] = self.memory
        copied = type(self)()
        vars(copied).update(copy.deepcopy(vars(self), memo))
        return copied


class BlockCache(NamedTuple):
    """The two caches of a decoder block: of the target that it looks back at, and of the memory."""

    back: Cache
    across: MemoryCache


class DecoderCache:
    """The caches of all blocks of a decoder, which go on together.

        caches  one for each block, all alike: `KVCache(100) for _ in model.decoder`

    The keys and values of the memory are kept beside them. Raises ValueError for no caches.

    >>> from mini_attention.transformer import Transformer, greedy
    >>> model = Transformer(50, 12, d_model=8, num_heads=2, num_layers=2).eval()
    >>> source = torch.randint(50, (3, 7))
    >>> cache = DecoderCache(KVCache(capacity=4) for _ in model.decoder)
    >>> written = greedy(model, source, start=0, steps=4, cache=cache)
    >>> torch.equal(written, greedy(model, source, start=0, steps=4)), cache.seen
    (True, 4)
    """

    def __init__(self, caches: Iterable[Cache]) -> None:
        self.blocks = [BlockCache(cache, MemoryCache()) for cache in caches]
        if not self.blocks:
            raise ValueError("a decoder has at least one block: give a cache for each")

    @property
    def seen(self) -> int:
        """Positions of the target so far, and so the number of the next one."""
        return self.blocks[0].back.seen

    @property
    def bytes(self) -> int:
        """What all caches take in memory."""
        return sum(cache.bytes for block in self.blocks for cache in block)

    def mask(self, i: int) -> MaskRule:
        """The mask of the next i positions of the target."""
        return self.blocks[0].back.mask(i)

    def of(self, decoder: Sized) -> list[BlockCache]:
        """The caches of its blocks. Raises ValueError where their numbers differ."""
        if len(self.blocks) != len(decoder):
            raise ValueError(
                f"the decoder has {len(decoder)} blocks, the cache is for {len(self.blocks)}"
            )
        return self.blocks


# Calls that fail.


@contextmanager
def undone_by_errors(cache: Cache | BlockCache | DecoderCache) -> Iterator[None]:
    """Leave a cache, or several that go on together, as they were if what follows fails.

    >>> cache = KVCache(capacity=5)
    >>> try:
    ...     with undone_by_errors(cache):
    ...         kept = cache.append(torch.zeros(1, 1, 3, 2), torch.zeros(1, 1, 3, 2))
    ...         cache.append(*kept)
    ... except ValueError as error:
    ...     print(error)
    the cache has room for 5 positions, holds 3 and was given 3 more
    >>> cache.seen
    0
    """
    before = [(one, vars(one).copy()) for one in _all_of(cache)]
    try:
        yield
    except BaseException:
        for one, state in before:
            vars(one).clear()
            vars(one).update(state)
        raise


def all_or_nothing(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Let a function that takes the keyword `cache` leave the cache as it was when it fails."""

    @wraps(function)
    def call(*args: Given.args, **given: Given.kwargs) -> Result:
        cache: Any = given.get("cache")
        if cache is None:
            return function(*args, **given)
        with undone_by_errors(cache):
            return function(*args, **given)

    return call


def _all_of(cache: Cache | BlockCache | DecoderCache) -> list[Cache]:
    if isinstance(cache, DecoderCache):
        return [one for block in cache.blocks for one in block]
    return list(cache) if isinstance(cache, BlockCache) else [cache]
