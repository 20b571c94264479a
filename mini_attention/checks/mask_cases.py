"""What is asked of a function that builds a mask, from the smallest sizes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from .case import Case

UP_TO = 7  # sizes that a mask can still be read at


class Draw:
    """Sizes that nobody knows before, beside those that are always asked."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def integer(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def two(self, low: int = 2) -> tuple[int, int]:
        """A smaller size and a larger one."""
        small = self.integer(low, UP_TO - 2)
        return small, self.integer(small + 1, UP_TO)


def _case(mechanism: str, expects: str, **sizes: Any) -> Case:
    return Case(mechanism, expects, {}, options=sizes)


def _causal(seed: int) -> Iterator[Case]:
    draw = Draw(seed)
    for n in (1, 2, 3, draw.integer(4, UP_TO)):
        yield _case(
            "as many queries as keys",
            "Query i may attend to the keys up to i, itself among them.",
            i=n, j=n, align="end",
        )  # fmt: skip
    for i, j in ((1, 2), (2, 3), draw.two()):
        yield _case(
            "more keys than queries",
            "The last query stands at the last key: it sees all keys, and each before it one less.",
            i=i, j=j, align="end",
        )  # fmt: skip
    for j, i in ((1, 2), (2, 3), draw.two()):
        yield _case(
            "more queries than keys",
            "The last query stands at the last key: the first ones come before all keys.",
            i=i, j=j, align="end",
        )  # fmt: skip
    for i, j in ((1, 2), (3, 2), draw.two()):
        yield _case(
            "alignment",
            "Lined up at the start, the first query sees the first key and no other.",
            i=i, j=j, align="start",
        )  # fmt: skip


def _window(seed: int) -> Iterator[Case]:
    draw = Draw(seed)
    n = draw.integer(5, UP_TO)
    for size, before in ((1, 1), (2, 0), (3, 1), (4, 2), (n, draw.integer(1, n - 2))):
        yield _case(
            "as many queries as keys",
            f"A query sees itself and the {before} before it, and none behind it.",
            i=size, j=size, before=before, after=0, align="end",
        )  # fmt: skip
    yield _case(
        "wide window",
        "A window that is wider than the row is cut where the row begins.",
        i=3, j=3, before=draw.integer(4, 9), after=0, align="end",
    )  # fmt: skip
    for i, j in ((1, 3), (2, 5), (5, 2), draw.two()):
        yield _case(
            "unequal numbers",
            "The last query stands at the last key, and sees it and the one before it.",
            i=i, j=j, before=1, after=0, align="end",
        )  # fmt: skip
    for before, after in ((0, 1), (1, 2), (draw.integer(2, 3), 1)):
        yield _case(
            "later keys",
            f"A query sees {before} before it, itself and {after} behind it.",
            i=5, j=5, before=before, after=after, align="end",
        )  # fmt: skip
    for i, j in ((1, 3), (5, 2), draw.two()):
        yield _case(
            "alignment",
            "Lined up at the start, the first query stands at the first key.",
            i=i, j=j, before=1, after=0, align="start",
        )  # fmt: skip


def _padding(seed: int) -> Iterator[Case]:
    draw = Draw(seed)

    def ask(mechanism: str, expects: str, lengths: list[int], j: int, side: str = "right") -> Case:
        return _case(mechanism, expects, lengths=torch.tensor(lengths), j=j, side=side)

    for lengths, j in (([1], 1), ([1], 2), ([2, 1], 3)):
        yield ask(
            "lengths",
            "The keys before an item's length are words, and the others padding: b 1 j.",
            lengths, j,
        )  # fmt: skip
    yield ask("empty items", "An item of length 0 is all padding.", [0, 1], 2)
    n = draw.integer(3, 5)
    several = [n, *(draw.integer(0, n - 1) for _ in range(n - 1))]
    yield ask(
        "as many items as keys",
        "Items are rows and keys columns, also where there are as many of both.",
        several, n,
    )  # fmt: skip
    small, large = draw.two(3)
    yield ask(
        "lengths",
        "Each item has its own length, which may leave no padding.",
        [small, large, draw.integer(1, small - 1)], large,
    )  # fmt: skip
    for lengths, j in (([1], 2), ([2, 0, small], small + 1)):
        yield ask(
            "left", "With the padding on the left the last keys are the words.", lengths, j, "left"
        )


def _document(seed: int) -> Iterator[Case]:
    draw = Draw(seed)

    def ask(mechanism: str, expects: str, documents: Any, keys: Any = None) -> Case:
        queries = torch.tensor(documents)
        keys = queries if keys is None else torch.tensor(keys)
        return _case(mechanism, expects, documents=queries, key_documents=keys)

    for documents in ([0], [0, 1], [0, 0, 1]):
        yield ask("documents", "A query sees the keys of its own document.", documents)
    names = torch.randperm(9, generator=draw.generator).tolist()
    yield ask(
        "names", "Any numbers can name the documents.", [names[0], names[1], names[1], names[2]]
    )
    yield ask(
        "names", "A document may come in pieces: they see each other.", [names[0], names[1]] * 2
    )
    items = [[0, 0, 1, 1], [0, 1, 1, 1], [2, 2, 2, names[3] + 3]]
    yield ask("items", "Each item of a batch has its own documents.", items)
    yield ask(
        "other keys", "Queries and keys may be different positions.", [0, 1], [0, 0, names[4] + 1]
    )
    yield ask("other keys", "Queries and keys may be different positions.", [0, 1, 2], [2, 0, 1])


CASES: dict[str, Callable[[int], Iterator[Case]]] = {
    "causal_mask": _causal,
    "window_mask": _window,
    "padding_mask": _padding,
    "document_mask": _document,
}
