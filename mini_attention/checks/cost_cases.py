"""The sizes at which a function of sizes is asked, from the smallest on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from ..mistakes.costs import HEADS
from .case import Case

PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43)
MODEL = ("m", "d_model")  # what heads divide among them
BYTES = ("itemsize",)


def cases_of_costs(defaults: Mapping[str, Any], seed: int) -> Iterator[Case]:
    """Questions for these arguments; True and False are asked of those with such a default."""
    flags = {name: default for name, default in defaults.items() if isinstance(default, bool)}
    counts = [name for name in defaults if name not in flags]
    draw = _Draw(counts, flags, seed)
    yield Case("ones", "Every size is 1.", {}, options=draw.sizes([1] * len(counts)))
    for place, name in enumerate(counts):
        yield Case(
            "one by one",
            f"{name} alone is larger.",
            {},
            options=draw.sizes([3 if n == place else 1 for n in range(len(counts))]),
        )
    for first in (0, 1, 2):
        yield Case(
            "all together", "No two sizes are alike.", {}, options=draw.sizes(draw.primes(first))
        )
    for flag, default in flags.items():
        other = draw.sizes(draw.primes(0)) | {flag: not default}
        yield Case(flag, f"{flag} is {other[flag]}.", {}, options=other)
    large = [64 * prime for prime in draw.primes(3)]
    yield Case("large sizes", "Sizes as they are in use.", {}, options=draw.sizes(large))


class _Draw:
    """Sizes that fit each other."""

    def __init__(self, counts: Sequence[str], flags: Mapping[str, bool], seed: int) -> None:
        self.counts, self.flags = counts, flags
        self.generator = torch.Generator().manual_seed(seed)

    def primes(self, first: int) -> list[int]:
        """Distinct primes in any order, none of the `first` ones."""
        some = PRIMES[first : first + len(self.counts) + 1]
        order = torch.randperm(len(some), generator=self.generator).tolist()
        return [some[place] for place in order[: len(self.counts)]]

    def sizes(self, numbers: Sequence[int]) -> dict[str, Any]:
        sizes: dict[str, Any] = dict(zip(self.counts, numbers, strict=True))
        for name in sizes:
            if name in BYTES:  # which are no prime but 2
                sizes[name] = 1 if sizes[name] == 1 else 2 ** (sizes[name] % 3 + 1)
            if name in MODEL:
                sizes[name] *= max([1, *(sizes[n] for n in sizes if n in HEADS)])
        return sizes | dict(self.flags)
