"""Assignment 7: decode with a cache, `book/assignments/a7_decoding.ipynb`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache as once
from random import Random
from typing import Any

import numpy as np
import torch
from einops import rearrange, repeat
from torch import Tensor, nn

from course.assignments.a1 import ATTENTION
from course.assignments.compare import as_tensor, ask, expect, same
from course.assignments.counts import check_predicted, number
from course.model import Assignment, Draw, Question, Step, Student
from mini_attention import attention, causal_mask, dates, rules, window_mask
from mini_attention.checks import CheckFailed
from mini_attention.decoding import DecoderCache, KVCache
from mini_attention.rules import MaskRule
from mini_attention.transformer import Transformer

Text = tuple[Tensor, Tensor, Tensor]  # query and key b h n d, value b h n e
Cut = Sequence[int]  # how many positions come in each call
Kept = tuple[Tensor, Tensor]  # keys b h j d, values b h j e
Masked = Callable[[int, int], Tensor]  # the mask of i new queries over j keys


# Question 1: predict on paper


HIDDEN_TOO = "Scores are counted with the hidden ones: queries times keys in each call."
WORK = ("keys with a cache", "keys without", "scores with a cache", "scores without")
CALLS = ("first call", "second call", "third call", "fourth call")
SIZES = ("one text", "one text without sharing", "16 texts of 4,096 tokens")
CASES = ("one text", "64 texts", "nothing shared", "one byte a number", "new positions")
ROLLED = "What is kept, at most 3, and what is new."
ANSWERS: dict[str, tuple[Sequence[float], Sequence[str], Sequence[Mapping[float | None, str]]]] = {
    "work": (
        (6, 15, 27, 77),
        WORK,
        (
            {
                15: "With a cache a key is made once.",
                3: "The prompt has a key for each of its words: 4 in the first call.",
                12: "Keys alone are asked for, not keys and values.",
                None: "With a cache a key is made once, for each of the 6 words.",
            },
            {
                6: "Without a cache each call makes the keys of all words so far.",
                21: "The prompt comes in one call: there are three calls, not six.",
                18: "A call makes the keys of the words so far, not of all 6.",
                None: "Without a cache each call makes the keys of all words so far: 4, 5 and 6.",
            },
            {
                21: HIDDEN_TOO,
                36: "With a cache a call has the queries of new words alone.",
                77: "With a cache a call has the queries of new words alone.",
                18: "A new word's query meets the kept keys as well as its own: 16 + 5 + 6.",
                25: "A new word's query meets its own key too: 16 + 5 + 6.",
                None: "A call computes new queries times all keys: 4 · 4, then 1 · 5 and 1 · 6.",
            },
            {
                46: HIDDEN_TOO,
                36: "Each of the three calls has a square of its own.",
                91: "The prompt comes in one call: there are three calls, not six.",
                None: "Each call has a square of all words so far: 16 + 25 + 36.",
            },
        ),
    ),
    "compared": (
        (2, 3, 7, 4),
        CALLS,
        (
            {3: "Nothing is kept yet at the first call.", None: ROLLED},
            {1: "The kept words are there as well.", None: ROLLED},
            {
                4: "The kept words are there as well.",
                3: "Three are kept between calls; in the call the new ones are there as well.",
                6: "Three words are kept, and four come: does the window count its own word?",
                None: ROLLED,
            },
            {
                8: "All words are there only without a window: 3 are kept.",
                3: "Three are kept, and the new word comes to them.",
                5: "Of the four words in the call before, the last three are kept.",
                1: "The kept words are there as well.",
                None: ROLLED,
            },
        ),
    ),
    "gibibytes": (
        (63, 1008, 31.5),
        SIZES,
        (
            {
                31.5: "A key and a value are kept for each token, or two bytes a number: a 2 is "
                "missing.",
                1008: "The 128 query heads share 8 heads: those are kept.",
                0.5: "Each of the 126 layers has a cache of its own.",
                67.6457: "That is in units of 10⁹ bytes; a GiB has 2³⁰.",
                None: "2 · layers · heads of keys · features · tokens · bytes a number, over 2³⁰.",
            },
            {
                63: "Without sharing there are 128 heads of keys, where there were 8.",
                504: "A key and a value are kept for each token, or two bytes a number: a 2 is "
                "missing.",
                1082.33: "That is in units of 10⁹ bytes; a GiB has 2³⁰.",
                None: "Without sharing each of the 128 query heads has keys and values of its own.",
            },
            {
                63: "16 texts of 4,096 tokens are 65,536 tokens, half of the first case.",
                1.96875: "That is one text; there are 16, each with a cache of its own.",
                504: "The 128 query heads share 8 heads: those are kept.",
                15.75: "A key and a value are kept for each token, or two bytes a number: a 2 is "
                "missing.",
                33.8229: "That is in units of 10⁹ bytes; a GiB has 2³⁰.",
                None: "16 texts of 4,096 tokens: as many bytes as 65,536 tokens of one text.",
            },
        ),
    ),
    "intensity": (
        (16, 16, 1, 32, 13),
        CASES,
        (
            {
                8: "A multiply-add is two FLOPs.",
                32: "That is FLOPs a number; a number has two bytes.",
                1: "Each number serves all query heads that share it: 16 of them.",
                128: "A head of keys is shared by 128 / 8 query heads, not by all.",
                4: "Both bytes and FLOPs count keys and values: no 4 is left.",
                None: "A number has 2 bytes, and 2 FLOPs for each query head that shares it: 16.",
            },
            {
                1024: "Each text has a cache of its own: 64 times the FLOPs, 64 times the bytes.",
                None: "Each text has a cache of its own, so FLOPs and bytes grow alike.",
            },
            {
                2: "That is FLOPs a number; a number has two bytes.",
                0.5: "A multiply-add is two FLOPs.",
                16: "Without sharing a number serves one query head.",
                None: "Without sharing a number of two bytes serves one multiply-add.",
            },
            {
                16: "Half the bytes, and as many FLOPs.",
                8: "Half the bytes, and as many FLOPs: what is divided grows.",
                None: "Half the bytes, and as many FLOPs.",
            },
            {
                12: "12 new positions do 192 FLOPs a byte: it still waits.",
                12.5: "Positions are whole: with 12 it still waits.",
                200: "Each new position does 16 FLOPs a byte, not one.",
                7: "That is for one byte a number; case (1) has two.",
                None: "A byte that is read serves 16 FLOPs for each new position: 200 / 16.",
            },
        ),
    ),
}


def _predicted(name: str) -> Step:
    right, entries, hints = ANSWERS[name]

    def run(student: Student, draw: Draw) -> None:
        check_predicted(student, name, right, entries, hints)

    return Step(name, 1, run)


# Question 2: go on where you stopped


def _text(draw: Draw, n: int, b: int = 2, h: int = 3) -> Text:
    """As many features in no two of query and value, so that nobody can mix them up."""
    return draw.randn(b, h, n, 5), draw.randn(b, h, n, 5), draw.randn(b, h, n, 4)


def _cuts(n: int) -> Iterator[list[int]]:
    """All ways to cut n positions, 2 to the power of n - 1."""
    if n == 0:
        yield []
    for first in range(1, n + 1):
        yield from ([first, *rest] for rest in _cuts(n - first))


def _calls(text: Text, cut: Cut) -> Iterator[tuple[Text, Text]]:
    """For each call what is new, and all that came until then."""
    seen = 0
    for new in cut:
        first, seen = seen, seen + new
        query, key, value = (x[:, :, first:seen] for x in text)
        yield (
            (query, key, value),
            (text[0][:, :, :seen], text[1][:, :, :seen], text[2][:, :, :seen]),
        )


def _in_calls(
    student: Student, name: str, text: Text, cut: Cut, *more: int
) -> Iterator[tuple[str, Tensor, Kept]]:
    """Call after call: what is asked, the output, and the cache that the next call gets."""
    function, cache = student.function(name), None
    for new, (_, keys, _) in _calls(text, cut):
        i, j = new[0].shape[2], keys.shape[2]
        said = f"{name}{', before=' + str(*more) if more else ''}, {i} new and {j - i} before"
        try:
            got = ask(name, function, *new, cache, *more)
        except CheckFailed as error:
            if cache is None or "raised" not in str(error):
                raise
            raise CheckFailed(
                f"{error} In this call {i} new queries meet {j} keys: the kept ones, "
                f"{tuple(cache[0].shape)}, and the new ones, {tuple(new[1].shape)}, joined along "
                "the axis of positions."
            ) from error
        output, cache = _output_and_cache(said, got)
        _check_axes(said, cache, new)
        yield said, output, cache


def _output_and_cache(what: str, got: Any) -> tuple[Tensor, Kept]:
    if not _is_pair(got) or not _is_pair(got[1]):
        raise CheckFailed(f"{what}: a pair is expected, (output, (keys, values))")
    keys, values = (as_tensor(f"{what}, the cache", x) for x in got[1])
    return as_tensor(what, got[0]), (keys, values)


def _is_pair(got: Any) -> bool:
    return isinstance(got, list | tuple) and len(got) == 2


def _check_axes(what: str, cache: Kept, new: Text) -> None:
    """Whether a cache has new keys and values on the axis of positions, however many."""
    for name, kept, came in zip(("keys", "values"), cache, new[1:], strict=True):
        others = [(n, kept.shape[n]) for n in (0, 1, 3)] if kept.ndim == 4 else []
        if not others:
            raise CheckFailed(f"{what}: {name} of a cache have 4 axes; these have {kept.ndim}")
        for (axis, size), called in zip(others, ("texts", "heads", "features"), strict=True):
            if size != came.shape[axis]:
                raise CheckFailed(
                    f"{what}: the cache has {name} with {size} {called}, where there are "
                    f"{came.shape[axis]}. New ones are joined along the axis of positions, 2."
                )


def _masked(text: Text, cut: Cut, mask: Masked) -> Tensor:
    """All outputs of attention with this mask in each call."""
    return torch.cat(
        [
            attention(query, keys, values, mask(query.shape[2], keys.shape[2]))
            for (query, _, _), (_, keys, values) in _calls(text, cut)
        ],
        dim=2,
    )


def _all_allowed(i: int, j: int) -> Tensor:
    return torch.ones(i, j, dtype=torch.bool)


def _wrong_calls(text: Text, cut: Cut) -> dict[str, Tensor]:
    query, key, value = text
    n, roots = key.shape[2], (math.sqrt(query.shape[-1]), math.sqrt(value.shape[-1]))

    def mean(of: Callable[[Text, Text], Tensor]) -> Tensor:
        return torch.cat([of(new, so_far) for new, so_far in _calls(text, cut)], dim=2)

    def alone(new: Text, so_far: Text) -> Tensor:
        return attention(*new, causal_mask(new[0].shape[2]))

    def in_front(new: Text, so_far: Text) -> Tensor:
        """The call's own keys come first, then those of the call before it, and so on."""
        ends = [sum(cut[: n + 1]) for n in range(len(cut))]
        calls = ends[: ends.index(so_far[0].shape[2]) + 1]
        pieces = [slice(e - c, e) for e, c in zip(calls, cut, strict=False)][::-1]
        keys, values = (torch.cat([x[:, :, p] for p in pieces], 2) for x in (key, value))
        return attention(new[0], keys, values, causal_mask(new[0].shape[2], keys.shape[2]))

    def last_call(new: Text, so_far: Text) -> Tensor:
        """What is kept are the keys of the call before alone."""
        i, j = new[0].shape[2], so_far[0].shape[2]
        before = [0, *cut][[sum(cut[:n]) for n in range(len(cut))].index(j - i)]
        _, keys, values = (x[:, :, j - i - before :] for x in so_far)
        return attention(new[0], keys, values, causal_mask(i, i + before))

    def scaled(by: float) -> Tensor:
        return attention(query, key, value, causal_mask(n), scale=by)

    return {
        "the mask lines up with the first key: the last new query stands beside the last key, and "
        "sees all": _masked(text, cut, lambda i, j: causal_mask(i, j, align="start")),
        "new positions see those that come after them in the same call: a call of several needs "
        "a mask": _masked(text, cut, _all_allowed),
        "what was kept is not used: each call attends to its own positions alone": mean(alone),
        "a position does not see itself: its own key is allowed": (
            _masked(text, cut, lambda i, j: causal_mask(i, j).roll(-1, -1).tril(j - i - 1))
        ),
        "a position sees one key too many": (
            _masked(text, cut, lambda i, j: _all_allowed(i, j).tril(j - i + 1))
        ),
        "new keys stand in front of the kept ones: the mask takes the last for the new ones": (
            mean(in_front)
        ),
        "only the keys of the call before are kept, and not those before them": mean(last_call),
        "the scores are not divided by √d": scaled(1.0),
        "the scores are divided by d, not by its root": scaled(roots[0] ** -2),
        "the scores are divided by √e, where d is the number of key features": (
            scaled(1 / roots[1])
        ),
    }


def _check_calls(student: Student, text: Text, cut: Cut) -> None:
    found = list(_in_calls(student, "attend_new", text, cut))
    outputs = [output for _, output, _ in found]
    for (said, output, _), (new, _) in zip(found, _calls(text, cut), strict=True):
        _check_shape(said, output, (*new[0].shape[:3], new[2].shape[3]))
    right = attention(*text, causal_mask(text[0].shape[2]))
    what = f"attend_new, calls of {', '.join(map(str, cut))}"
    expect(what, torch.cat(outputs, dim=2), right, _wrong_calls(text, cut))


def _check_shape(what: str, output: Tensor, wanted: Sequence[int]) -> None:
    if output.shape != torch.Size(wanted):
        raise CheckFailed(
            f"{what}: the output of the new positions is {tuple(wanted)}; got {tuple(output.shape)}"
        )


def _one_by_one(student: Student, draw: Draw) -> None:
    _check_calls(student, _text(draw, 6), [1] * 6)


def _prompt(student: Student, draw: Draw) -> None:
    _check_calls(student, _text(draw, 6), [4, 1, 1])


def _every_cut(student: Student, draw: Draw) -> None:
    text = _text(draw, 5)
    for cut in [[2, 3], *_cuts(5)]:
        _check_calls(student, text, cut)


def _kept(student: Student, draw: Draw) -> None:
    cut, text = [2, 1, 3], _text(draw, 6)
    calls = list(_calls(text, cut))
    for (said, _, cache), (new, so_far) in zip(
        _in_calls(student, "attend_new", text, cut), calls, strict=True
    ):
        _check_kept(said, cache, so_far, new)


def _check_kept(what: str, cache: Kept, wanted: Text, new: Text) -> None:
    """The cache after a call has these keys and values, in their order."""
    for name, kept, right, came in zip(("keys", "values"), cache, wanted[1:], new[1:], strict=True):
        j, i = right.shape[2], came.shape[2]
        scaled = right * right.shape[-1] ** -0.5
        expect(
            f"{what}, {name} of the cache",
            kept,
            right,
            {
                "these are the new ones alone": came if i < j else None,
                "the new ones are missing": right[:, :, : j - i],
                "the new ones stand in front of the kept ones": (
                    torch.cat([came, right[:, :, : j - i]], dim=2)
                ),
                "they are scaled: keep them as they came, or they are scaled again": scaled,
                "the new ones are there twice": torch.cat([right, came], dim=2),
            },
        )


# Question 3: a room that loses nothing


Room = tuple[Tensor, Tensor]


def _room(draw: Draw, c: int) -> Room:
    """Memory for c positions, with what was there before in it."""
    return draw.randn(2, 3, c, 5), draw.randn(2, 3, c, 4)


def _pieces(draw: Draw, lengths: Sequence[int]) -> list[Room]:
    return [_room(draw, n) for n in lengths]


def _append(student: Student, room: Room, seen: int, piece: Room) -> tuple[Room, float]:
    """What append returns; the room is written to, as it is there."""
    got = ask("append", student.function("append"), *room, seen, *piece)
    if not isinstance(got, list | tuple) or len(got) != 3:
        raise CheckFailed("append returns three things: taken keys, taken values, their number")
    keys, values = (as_tensor("append", x) for x in got[:2])
    return (keys, values), number("append, the last of three", got[2])


def _fits(student: Student, draw: Draw) -> None:
    room, lengths, seen = _room(draw, 9), [3, 1, 2, 3], 0
    before = tuple(x.clone() for x in room)
    pieces = _pieces(draw, lengths)
    for at, piece in enumerate(pieces):
        new = piece[0].shape[2]
        said = f"append, room for 9, {seen} taken, {new} new"
        try:
            taken, now = _append(student, room, seen, piece)
        except CheckFailed as error:
            if "raised ValueError" not in str(error):
                raise
            raise CheckFailed(f"{said}: they fit, and it is refused. {error}") from error
        seen += new
        for place, name in enumerate(("keys", "values")):
            right = torch.cat([p[place] for p in pieces[: at + 1]], dim=2)
            _check_taken(f"{said}, the taken {name}", taken[place], right, new, before[place])
            _check_written(f"{said}, {name}", room[place], right, before[place], new)
        if now != seen:
            hint = ", which is how many were new" if now == new else ""
            hint = ", which is how many were taken before" if now == seen - new else hint
            raise CheckFailed(f"{said}: {seen} positions are taken then, not {now}{hint}")


def _check_taken(what: str, taken: Tensor, right: Tensor, new: int, before: Tensor) -> None:
    if taken.shape[2:3] == before.shape[2:3] and right.shape[2] < before.shape[2]:
        raise CheckFailed(f"{what}: this is the whole room; the part that is taken is asked for")
    hints = {"these are the new ones alone": right[:, :, -new:]}
    expect(what, taken, right, hints if new < right.shape[2] else None)


def _check_written(what: str, room: Tensor, right: Tensor, before: Tensor, new: int) -> None:
    """A room has what was appended, and behind that what was there before."""
    seen = right.shape[2]
    if same(room, torch.cat([right, before[:, :, seen:]], dim=2)):
        return
    if same(room, torch.cat([right[:, :, : seen - new], before[:, :, seen - new :]], dim=2)):
        raise CheckFailed(
            f"{what}: nothing was written into the room that was given: write into the tensor "
            "itself, without a new one"
        )
    if same(room[:, :, seen:], before[:, :, seen:]):
        expect(f"{what} in the room", room[:, :, :seen], right)
    raise CheckFailed(f"{what}: what is behind the {seen} taken positions was changed")


def _overflow(student: Student, draw: Draw) -> None:
    for seen, new in ((6, 3), (8, 1), (0, 11), (5, 17)):
        room, piece = _room(draw, 8), _room(draw, new)
        before = tuple(x.clone() for x in room)
        said = f"append, room for 8, {seen} taken, {new} new"
        message = _refusal(student, said, room, seen, piece)
        if message is None:
            raise CheckFailed(f"{said}: no error. {_lost(room[0], before[0], piece[0], seen)}")
        numbers = set(re.findall(r"\d+", message))
        if missing := {"8", str(seen), str(new)} - numbers:
            raise CheckFailed(
                f"{said}: the message should have the three numbers 8, {seen} and {new}; "
                f"{', '.join(sorted(missing))} is not in “{message}”"
            )


def _refusal(student: Student, what: str, room: Room, seen: int, piece: Room) -> str | None:
    """The text of the ValueError, or None where there is no error."""
    try:
        student.function("append")(*room, seen, *piece)
    except ValueError as error:
        return str(error)
    except CheckFailed:
        raise
    except NotImplementedError as error:
        raise CheckFailed("append: not written yet") from error
    except Exception as error:  # whatever a student's program raises
        kind, text = type(error).__name__, str(error).strip()
        raise CheckFailed(
            f"{what}: raised {kind}: {text}. Whoever gets that can't know that the room is full: "
            "raise a ValueError that says so, before anything is written"
        ) from error
    return None


def _lost(room: Tensor, before: Tensor, new: Tensor, seen: int) -> str:
    """What became of positions that came silently to a room of c which was too small."""
    c, i = room.shape[2], new.shape[2]
    left = c - seen
    last = before.clone()
    last[:, :, max(c - i, 0) :] = new[:, :, :c]
    tail = torch.cat([before[:, :, :seen], new[:, :, :left]], dim=2)
    tail[:, :, -1:] = new[:, :, -1:]
    both = torch.cat([before[:, :, :seen], new], dim=2)
    ring = before.clone()
    for n in range(i):
        ring[:, :, (seen + n) % c] = new[:, :, n]
    known = {
        "They were written over the last ones that were taken.": last,
        "They were written over the last one that was taken.": tail,
        "Those that fit were written, and the others are lost.": (
            torch.cat([before[:, :, :seen], new[:, :, :left]], dim=2)
        ),
        "The first ones were forgotten to make room.": both[:, :, -c:],
        "They were written over the first ones.": ring,
        "The room is as it was, and who called goes on without them.": before,
    }
    return next((hint for hint, wrong in known.items() if same(room, wrong)), "Something is lost.")


def _refused(student: Student, draw: Draw) -> None:
    for c, lengths, wanted in ((6, (4, 3, 2, 1), [1, 3]), (7, (4, 9, 2, 2), [1, 3])):
        room, pieces = _room(draw, c), _pieces(draw, lengths)
        before = tuple(x.clone() for x in room)
        said = f"append_all, room for {c}, pieces of {', '.join(map(str, lengths))}"
        got = ask("append_all", student.function("append_all"), *room, pieces)
        if not _is_pair(got):
            raise CheckFailed(f"{said}: a pair is expected, (seen, refused)")
        _check_refused(said, got, lengths, wanted)
        for place, name in enumerate(("keys", "values")):
            fit = [p[place] for n, p in enumerate(pieces) if n not in wanted]
            whole = torch.cat([p[place] for p in pieces], dim=2)[:, :, :c]
            right = torch.cat([*fit, before[place][:, :, 6:]], dim=2)
            if same(room[place], before[place]):
                raise CheckFailed(f"{said}: nothing is in the room that was given, of {name}")
            expect(
                f"{said}, {name} in the room",
                room[place],
                right,
                {
                    "a part of a refused piece was written": whole,
                    **_parts_left(room[place], right),
                },
            )


def _check_refused(
    what: str, got: Sequence[Any], lengths: Sequence[int], wanted: list[int]
) -> None:
    seen, refused = number(f"{what}, the first of two", got[0]), got[1]
    if isinstance(refused, Tensor | np.ndarray):
        refused = refused.flatten().tolist()
    if not isinstance(refused, list | tuple):
        raise CheckFailed(f"{what}: the refused pieces are a list of their numbers")
    listed = [number(f"{what}, a refused piece", each) for each in refused]
    if listed == wanted and seen == 6:
        return
    hints = {
        "They are counted from 0.": [n + 1 for n in wanted],
        "These are their lengths: their numbers are asked for.": [lengths[n] for n in wanted],
        "Those are the numbers of the pieces that fit.": [0, 2],
        "A piece that comes after a refused one can be refused as well: tell of all.": [1],
        "Nothing is refused: the room is too small for all of them.": [],
    }
    hint = next((hint for hint, numbers in hints.items() if listed == numbers), "")
    if seen == 4:
        hint = "The first refusal ends it: a shorter piece that comes later may still fit."
    raise CheckFailed(
        f"{what}: 6 positions are taken and {wanted} are refused; got {seen} and {listed}. "
        f"{hint}".strip()
    )


def _parts_left(room: Tensor, right: Tensor) -> dict[str, Tensor]:
    """The first six positions are right: behind them lies something new."""
    if same(room[:, :, :6], right[:, :, :6]):
        return {"a part of a refused piece lies behind those that are taken": room}
    return {}


# Question 4: share heads


def _shared_text(draw: Draw, h: int, g: int, i: int, j: int = 7) -> Text:
    return draw.randn(2, h, i, 5), draw.randn(2, g, j, 5), draw.randn(2, g, j, 4)


def _for_each(shared: Tensor, r: int) -> Tensor:
    return repeat(shared, "b g j d -> b (g r) j d", r=r)


def _in_turns(shared: Tensor, r: int) -> Tensor:
    return repeat(shared, "b g j d -> b (r g) j d", r=r)


def _right_shared(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    r, (i, j) = query.shape[1] // keys.shape[1], (query.shape[2], keys.shape[2])
    return attention(query, _for_each(keys, r), _for_each(values, r), causal_mask(i, j))


def _wrong_shared(query: Tensor, keys: Tensor, values: Tensor) -> dict[str, Tensor]:
    g, r = keys.shape[1], query.shape[1] // keys.shape[1]
    i, j = query.shape[2], keys.shape[2]
    each, mask = (_for_each(keys, r), _for_each(values, r)), causal_mask(i, j)
    right = _right_shared(query, keys, values)
    mean = [x.mean(1, keepdim=True).expand(-1, g * r, -1, -1) for x in (keys, values)]
    first = [x[:, :1].expand(-1, g * r, -1, -1) for x in (keys, values)]
    turned = rearrange(right, "b (g r) i e -> b (r g) i e", g=g)
    taken = rearrange(query, "b (r g) i d -> b (g r) i d", g=g)
    return {
        "query heads take turns with the key heads: neighbours share one": (
            attention(query, _in_turns(keys, r), _in_turns(values, r), mask)
        ),
        "keys are shared by neighbours and values are taken in turns": (
            attention(query, each[0], _in_turns(values, r), mask)
        ),
        "keys are taken in turns and values are shared by neighbours": (
            attention(query, _in_turns(keys, r), each[1], mask)
        ),
        "the heads come out in another order than that of the queries: split and join them by the "
        "same pattern": turned,
        "the queries are split so that they take turns, and joined so that neighbours share": (
            attention(taken, *each, mask)
        ),
        "all query heads have the first key head": attention(query, first[0], first[1], mask),
        "key heads are averaged: each has queries of its own": (
            attention(query, mean[0], mean[1], mask)
        ),
        "no key is hidden: new positions see those that come after them": (attention(query, *each)),
        "the mask lines up with the first key: the last new query stands beside the last key": (
            attention(query, *each, causal_mask(i, j, align="start"))
        ),
        "the scores are not divided by √d": attention(query, *each, mask, scale=1.0),
        "the scores are divided by √e, where d is the number of key features": (
            attention(query, *each, mask, scale=values.shape[-1] ** -0.5)
        ),
    }


def _check_shared(student: Student, inputs: Text) -> None:
    name = "attend_shared"
    (_, h, i, _), (_, g, j, _) = inputs[0].shape, inputs[1].shape
    said = f"{name}, {h} query heads share {g}, {i} new of {j} positions"
    got = as_tensor(said, ask(name, student.function(name), *inputs))
    right = _right_shared(*inputs)
    if got.ndim == 5:
        raise CheckFailed(f"{said}: join the heads again, b h i e; got {tuple(got.shape)}")
    if got.ndim == 4 and got.shape[1] == g != h:
        raise CheckFailed(f"{said}: there are as many outputs as query heads, {h}; these are {g}")
    expect(said, got, right, _wrong_shared(*inputs))


def _one_new(student: Student, draw: Draw) -> None:
    for h, g in ((6, 2), (12, 3), (12, 4), (5, 1), (3, 3)):
        _check_shared(student, _shared_text(draw, h, g, 1))


def _several_new(student: Student, draw: Draw) -> None:
    for h, g, i in ((6, 2, 3), (12, 3, 2), (5, 1, 4), (3, 3, 2), (6, 3, 7)):
        _check_shared(student, _shared_text(draw, h, g, i))


# Keys of MANY positions in float32 take 16 MiB, and so do the values; repeated for each of WIDE
# query heads, each of the two takes 256 MiB. In float64 the inputs take 64 MiB more, and scores
# and weights 16 MiB each.
WIDE, SHARED, MANY = 32, 2, 2**16
MIB = 2**20
SPACE = 192 * MIB
NO_COPIES = (
    f"The kept keys take {SHARED * MANY * 32 * 4 // MIB} MiB, and repeated for {WIDE} query heads "
    f"{WIDE * MANY * 32 * 4 // MIB}: let the queries of a group stand beside each other instead."
)


def _no_copies(student: Student, draw: Draw) -> None:
    name, single = "attend_shared", torch.float32
    query = draw.randn(1, WIDE, 1, 32, dtype=single)
    keys, values = (draw.randn(1, SHARED, MANY, 32, dtype=single) for _ in range(2))
    values = values * 30  # of so many values the mean is small
    function = student.function(name)
    said = f"{name}, {WIDE} query heads share {SHARED}, 1 new of {MANY:,} positions"
    try:
        with student.extra_memory(SPACE):
            got = ask(name, function, query, keys, values)
    except CheckFailed as error:
        if "memory" not in str(error):
            raise
        raise CheckFailed(f"{said}: {error} {NO_COPIES}") from error
    grouped = attention(rearrange(query, "b (g r) i d -> b g (r i) d", g=SHARED), keys, values)
    expect(said, got, rearrange(grouped, "b g (r i) e -> b (g r) i e", i=1))


# Question 5: forget what no one asks for


def _rolled(text: Text, cut: Cut, kept: int, mask: Masked, *, first: int | None = None) -> Tensor:
    """A cache that keeps so many last positions, or the first ones; a call has at most
    `first` keys, cut before it attends.
    """
    outputs, keys, values = [], text[1][:, :, :0], text[2][:, :, :0]
    for (query, key, value), _ in _calls(text, cut):
        keys, values = torch.cat([keys, key], dim=2), torch.cat([values, value], dim=2)
        if first is not None:
            start = max(keys.shape[2] - first, 0)
            keys, values = keys[:, :, start:], values[:, :, start:]
        i, j = query.shape[2], keys.shape[2]
        outputs.append(attention(query, keys, values, mask(i, j)))
        start = max(j - kept, 0)
        keys, values = keys[:, :, start:], values[:, :, start:]
    return torch.cat(outputs, dim=2)


def _window(before: int) -> Masked:
    return lambda i, j: window_mask(i, j, before=before)


def _wrong_rolled(text: Text, cut: Cut, before: int) -> dict[str, Tensor | None]:
    n, less = sum(cut), max(before - 1, 0)
    root = math.sqrt(text[0].shape[-1])
    return {
        "the window is one too small: its own position is not one of the `before`": (
            _masked(text, cut, _window(less)) if before else None
        ),
        "the window is one too large: `before` positions and itself": (
            _masked(text, cut, _window(before + 1))
        ),
        "the cache keeps one position too few: the next query sees `before` of them": (
            _rolled(text, cut, less, _window(before)) if before else None
        ),
        "nothing is kept, and each call attends to its own positions alone": (
            _rolled(text, cut, 0, _window(before))
        ),
        "the window has no left edge in a call: a later position of it sees kept keys that are too "
        "old": _rolled(text, cut, before, causal_mask),
        "there is no window: all earlier positions are seen": _masked(text, cut, causal_mask),
        "keys are dropped before the call attends: its first positions still need them": (
            _rolled(text, cut, before, _window(before), first=before + 1)
        ),
        "the new positions count among the `before` that are kept: keys are dropped too early": (
            _rolled(text, cut, before, _window(before), first=before) if before else None
        ),
        "no key is hidden in a call: later positions are seen": (
            _rolled(text, cut, before, _all_allowed)
        ),
        "the mask lines up with the first key: the last new query stands beside the last key": (
            _rolled(text, cut, before, lambda i, j: _window_at_the_start(i, j, before))
        ),
        "the scores are not divided by √d": (
            attention(*text, window_mask(n, before=before), scale=1.0)
        ),
        "the scores are divided by d, not by its root": (
            attention(*text, window_mask(n, before=before), scale=root**-2)
        ),
    }


def _window_at_the_start(i: int, j: int, before: int) -> Tensor:
    distance = torch.arange(i)[:, None] - torch.arange(j)
    return (distance >= 0) & (distance <= before)


def _check_rolled(student: Student, text: Text, cut: Cut, before: int) -> None:
    name = "attend_rolling"
    found = list(_in_calls(student, name, text, cut, before))
    for (said, output, _), (new, _) in zip(found, _calls(text, cut), strict=True):
        _check_shape(said, output, (*new[0].shape[:3], new[2].shape[3]))
    expect(
        f"{name}, before={before}, calls of {', '.join(map(str, cut))}",
        torch.cat([output for _, output, _ in found], dim=2),
        attention(*text, window_mask(sum(cut), before=before)),
        _wrong_rolled(text, cut, before),
    )


def _rolling_words(student: Student, draw: Draw) -> None:
    for before in (3, 1, 0, 9):
        _check_rolled(student, _text(draw, 7), [1] * 7, before)


def _rolling_pieces(student: Student, draw: Draw) -> None:
    for before in (2, 4, 0, 1):
        for cut in ([3, 2, 3], [6, 1, 1], [1, 5, 2], [8]):
            _check_rolled(student, _text(draw, 8), cut, before)


def _rolling_kept(student: Student, draw: Draw) -> None:
    name, cut = "attend_rolling", [2, 1, 4, 1]
    for before in (3, 1, 0, 9):
        text, seen = _text(draw, 8), 0
        calls = list(_calls(text, cut))
        for (said, _, cache), (_, (_, keys, values)) in zip(
            _in_calls(student, name, text, cut, before), calls, strict=True
        ):
            seen = keys.shape[2]
            for part, kept, every in zip(("keys", "values"), cache, (keys, values), strict=True):
                _check_last(f"{said}, {part} of the cache", kept, every, before, seen)


def _check_last(what: str, kept: Tensor, every: Tensor, before: int, seen: int) -> None:
    most = min(before, seen)
    if kept.shape[2] != most:
        hints = {
            seen: ": everything is kept" + ("" if before else ", and [-0:] is all of it"),
            before + 1: ": one too many, for the next query brings its own key",
            before - 1: ": one too few",
        }
        hint = hints.get(kept.shape[2], "")
        raise CheckFailed(f"{what}: {most} positions are kept, not {kept.shape[2]}{hint}")
    expect(
        what,
        kept,
        every[:, :, seen - most :],
        {
            "these are the first ones: the last ones are in the window": every[:, :, :most],
            "the order is turned round": every[:, :, seen - most :].flip(2),
        },
    )


# Question 6: write dates


OF_THE_PACKAGE = (
    "mini_attention.transformer.greedy",
    "mini_attention.transformer.Transformer.decode",
    "mini_attention.transformer.Transformer.forward",
    "mini_attention.transformer.DecoderBlock.forward",
    "mini_attention.decoding.Cache.append",
    "mini_attention.dates.answers",
)
Caches = Callable[[Transformer], DecoderCache]


class AtTheStart(KVCache):
    """Its mask puts the first new query beside the first key."""

    def mask(self, i: int) -> MaskRule:
        return rules.causal(i, self.seen + i, align="start")


class Open(KVCache):
    """Its mask hides nothing."""

    def mask(self, i: int) -> MaskRule:
        return rules.window(i, self.seen + i, before=None, after=None)


class BehindAnother(KVCache):
    """It gives back its new keys and values behind those that another cache has kept."""

    def __init__(self, capacity: int, other: KVCache) -> None:
        super().__init__(capacity)
        self.other = other

    def _extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        assert self.other.keys is not None
        assert self.other.values is not None
        keys, values = (x[:, :, : self.seen] for x in (self.other.keys, self.other.values))
        self.keys = torch.cat([keys, key], dim=2)
        self.values = torch.cat([values, value], dim=2)
        return self.keys, self.values


@once
def _model() -> Transformer:
    return dates.trained()


@once
def _unclosed() -> Transformer:
    model = dates.trained()
    model.decoder_closing = nn.Identity()
    return model


def _caches(kind: type[KVCache] = KVCache) -> DecoderCache:
    return DecoderCache(kind(dates.LONGEST) for _ in _model().decoder)


def _first_for_all() -> DecoderCache:
    first = KVCache(dates.LONGEST)
    others = (BehindAnother(dates.LONGEST, first) for _ in _model().decoder[1:])
    return DecoderCache([first, *others])


class Decoder:
    """The model with caches of the package, or with one of the mistakes that people make."""

    def __init__(
        self,
        source: Tensor,
        mask: Tensor | None,
        caches: DecoderCache | None = None,
        *,
        first_place: int = 0,
        forgets_places: bool = False,
        forgets_words: bool = False,
        hides_padding: bool = True,
        model: Transformer | None = None,
    ) -> None:
        self.model = model or _model()
        self.mask = mask if hides_padding else None
        self.memory = self.model.encode(source, mask)
        self.caches = caches or _caches()
        self.first_place, self.seen = first_place, 0
        self.forgets_places, self.forgets_words = forgets_places, forgets_words

    def __call__(self, tokens: Tensor) -> Tensor:
        caches = _caches() if self.forgets_words else self.caches
        place = self.first_place + (0 if self.forgets_places else self.seen)
        self.seen += tokens.shape[1]
        logits: Tensor = self.model.decode(
            tokens, self.memory, self.mask, start=place - caches.seen, cache=caches
        )
        return logits

    @property
    def kept(self) -> list[Kept]:
        """The keys and values of each block so far; none if they are forgotten."""
        found = [(block.back.keys, block.back.values) for block in self.caches.blocks]
        seen = slice(0, self.caches.seen)
        return [(k[:, :, seen], v[:, :, seen]) for k, v in found if k is not None and v is not None]


def _wrong_decoders(source: Tensor, mask: Tensor) -> dict[str, Decoder]:
    return {
        "each call begins at place 0 again: a token's place goes on from the call before": (
            Decoder(source, mask, forgets_places=True)
        ),
        "the places are one too high: the first token stands at place 0": (
            Decoder(source, mask, first_place=1)
        ),
        "what was kept is not used: each call looks back at its own tokens alone": (
            Decoder(source, mask, forgets_words=True)
        ),
        "each call begins anew: neither keys nor places of the call before are used": (
            Decoder(source, mask, forgets_words=True, forgets_places=True)
        ),
        "all blocks look back at the cache of the first: each has its own": (
            Decoder(source, mask, _first_for_all())
        ),
        "the mask of the look back lines up with the first key": (
            Decoder(source, mask, _caches(AtTheStart))
        ),
        "the look back sees later tokens of the same call": Decoder(source, mask, _caches(Open)),
        "the padding of the source is not hidden": Decoder(source, mask, hides_padding=False),
        "the norm behind the blocks, decoder_closing, is missing": (
            Decoder(source, mask, model=_unclosed())
        ),
    }


def _asked(draw: Draw, count: int) -> list[dates.Example]:
    """Some dates that have a day, and some that have none: of two lengths."""
    drawn = dates.draw(60, Random(draw.integer(1, 10**6)), held_out=True)
    days = [example for example in drawn if len(example.iso) == 10]
    months = [example for example in drawn if len(example.iso) == 7]
    return [*days[: count - 2], *months[:2]]


def _decode_new(
    student: Student, source: Tensor, mask: Tensor, tokens: Tensor, cut: Cut
) -> Iterator[tuple[str, Tensor, list[Kept]]]:
    """Call after call: what is asked, the logits, and the caches."""
    name, caches, seen = "decode_new", None, 0
    memory = _model().encode(source, mask)
    for new in torch.split(tokens, list(cut), dim=1):
        said = f"{name}, {new.shape[1]} new tokens and {seen} before"
        seen += new.shape[1]
        got = ask(name, student.function(name), new, memory, mask, caches)
        if not _is_pair(got):
            raise CheckFailed(f"{said}: a pair is expected, (logits, caches)")
        caches = _read_caches(said, got[1])
        logits = as_tensor(said, got[0])
        wanted = (*new.shape, len(dates.TARGET_TOKENS))
        if logits.shape != wanted:
            raise CheckFailed(f"{said}: logits are {wanted}; got {tuple(logits.shape)}")
        yield said, logits, caches


def _read_caches(what: str, got: Any) -> list[Kept]:
    count = len(_model().decoder)
    if not isinstance(got, list | tuple) or len(got) != count or not all(map(_is_pair, got)):
        raise CheckFailed(f"{what}: a list of {count} caches is expected, each (keys, values)")
    named = f"{what}, its caches"
    return [(as_tensor(named, keys), as_tensor(named, values)) for keys, values in got]


@torch.no_grad()
def _logits(student: Student, draw: Draw) -> None:
    asked = _asked(draw, 5)
    source, mask = dates.source_of(asked)
    tokens = dates.target_of(asked)[:, :-1]
    right = Decoder(source, mask)(tokens)
    for cut in ([1] * 11, [6, 1, 4], [11]):
        calls = list(_decode_new(student, source, mask, tokens, cut))
        got = torch.cat([logits for _, logits, _ in calls], dim=1)
        if same(got, right):
            continue
        what = f"decode_new, calls of {', '.join(map(str, cut))}"
        held = calls[-1][2][0][0].shape
        if held[2:3] == (cut[-1],) != (11,):
            raise CheckFailed(
                f"{what}: at the end the caches hold the {cut[-1]} positions of the last call, and "
                "not those of the calls before"
            )
        for hint, decoder in _wrong_decoders(source, mask).items():
            if same(
                got, torch.cat([decoder(t) for t in torch.split(tokens, list(cut), dim=1)], dim=1)
            ):
                raise CheckFailed(f"{what}: {hint}.")
        known = next(n for n in range(11) if not same(got[:, : n + 1], right[:, : n + 1]))
        raise CheckFailed(f"{what}: the logits are right for {known} tokens and wrong behind them")


@torch.no_grad()
def _caches_kept(student: Student, draw: Draw) -> None:
    asked, cut = _asked(draw, 4), [3, 1, 2]
    source, mask = dates.source_of(asked)
    tokens = dates.target_of(asked)[:, : sum(cut)]
    decoder, wrong = Decoder(source, mask), _wrong_decoders(source, mask)
    calls = _decode_new(student, source, mask, tokens, cut)
    for (said, _, caches), new in zip(calls, torch.split(tokens, cut, dim=1), strict=True):
        for each in (decoder, *wrong.values()):
            each(new)
        right, mistaken = decoder.kept, {hint: each.kept for hint, each in wrong.items()}
        for at, (cache, wanted) in enumerate(zip(caches, right, strict=True)):
            others = [kept for n, kept in enumerate(right) if n != at]
            for place, name in enumerate(("keys", "values")):
                expect(
                    f"{said}, {name} of block {at}",
                    _without_axes_of_heads(cache[place], said),
                    wanted[place],
                    _wrong_caches(wanted, place, new.shape[1], others)
                    | {hint: kept[at][place] for hint, kept in mistaken.items() if kept},
                )


def _without_axes_of_heads(kept: Tensor, what: str) -> Tensor:
    if kept.ndim == 3:
        raise CheckFailed(f"{what}: a cache has the keys and values of each head, b 4 j 16")
    return kept


def _wrong_caches(
    wanted: Kept, place: int, new: int, others: Sequence[Kept]
) -> dict[str, Tensor | None]:
    right, j = wanted[place], wanted[place].shape[2]
    joined = rearrange(right, "b h j d -> b j (h d)")
    return {
        "these are those of another block": others[0][place],
        "these are the new ones alone": right[:, :, j - new :] if new < j else None,
        "keys and values are swapped": wanted[1 - place],
        "the features are split so that heads take turns: neighbouring features are one head's": (
            rearrange(joined, "b j (d h) -> b h j d", h=right.shape[1])
        ),
        "a view mixes heads with positions: split the features, then move the heads": (
            joined.reshape(right.shape)
        ),
        "positions and heads are in each other's place: b 4 j 16": (
            rearrange(right, "b h j d -> b j h d")
        ),
    }


@torch.no_grad()
def _written(student: Student, draw: Draw) -> None:
    name, asked = "write", _asked(draw, 12)
    source, mask = dates.source_of(asked)
    got = as_tensor(name, ask(name, student.function(name), source, mask))
    right = _greedy(Decoder(source, mask))
    if got.shape == right.shape and torch.equal(got.long(), right):
        return
    if got.shape == (len(asked), dates.LONGEST + 1) or bool((got[..., :1] == dates.START).all()):
        raise CheckFailed(f"{name}: the token `start` is where it begins, and is not returned")
    if got.shape != right.shape:
        raise CheckFailed(f"{name}: tokens are {tuple(right.shape)}; got {tuple(got.shape)}")
    for hint, decoder in _wrong_decoders(source, mask).items():
        if torch.equal(got, _greedy(decoder)):
            raise CheckFailed(f"{name}: {hint}.")
    if bool(((got < 0) | (got >= len(dates.TARGET_TOKENS))).any()):
        raise CheckFailed(f"{name}: tokens are from 0 to {len(dates.TARGET_TOKENS) - 1}")
    row = int((got != right).any(-1).nonzero()[0])
    mine, theirs = dates.written(got.long())[row], dates.written(right)[row]
    raise CheckFailed(
        f"{name}: for “{asked[row].text}” it writes {mine}, where the model writes {theirs}"
    )


def _greedy(decoder: Decoder) -> Tensor:
    """Token after token, the likeliest; with calls of one token."""
    token = torch.full((len(decoder.memory), 1), dates.START)
    written = []
    for _ in range(dates.LONGEST):
        token = decoder(token).argmax(-1)
        written.append(token)
    return torch.cat(written, dim=1)


ASSIGNMENT = Assignment(
    7,
    "a7_decoding",
    (
        Question("predict", "Predict on paper", [_predicted(name) for name in ANSWERS]),
        Question(
            "attend-new",
            "Go on where you stopped",
            [
                Step("word by word", 1, _one_by_one),
                Step("a prompt, then words", 1, _prompt),
                Step("every cut", 1, _every_cut),
                Step("what the cache holds", 1, _kept),
            ],
            ATTENTION,
        ),
        Question(
            "room",
            "A room that loses nothing",
            [
                Step("pieces that fit", 1, _fits),
                Step("an error where they don't", 1, _overflow),
                Step("what is left after it", 1, _refused),
            ],
        ),
        Question(
            "attend-shared",
            "Share heads",
            [
                Step("one new position", 1, _one_new),
                Step("several new positions", 1, _several_new),
                Step("no copies", 1, _no_copies),
            ],
            ATTENTION,
        ),
        Question(
            "attend-rolling",
            "Forget what no one asks for",
            [
                Step("word by word", 1, _rolling_words),
                Step("several at a time", 1, _rolling_pieces),
                Step("what the cache holds", 1, _rolling_kept),
            ],
            ATTENTION,
        ),
        Question(
            "dates",
            "Write dates",
            [
                Step("logits", 1, _logits),
                Step("what the caches hold", 1, _caches_kept),
                Step("what is written", 1, _written),
            ],
            OF_THE_PACKAGE,
        ),
    ),
)
