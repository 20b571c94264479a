"""Dates as people write them in fourteen languages, and what they are in ISO 8601.

    en  April 3, 2021      de  3. April 2021      ja  2021年4月3日      ->  2021-04-03
    en  4/3/21             de  03.04.21           ja  2021/04/03
    en  Apr 2021           de  4/2021             ja  2021年4月         ->  2021-04

The languages' words and formats are those of Unicode's CLDR, as Babel has them: formats.json is
made by `python -m experiments.date_formats`, under the licence in LICENSE.unicode. One could not
read 4/3/21 without the language, so a text begins with a token for it. Years are 1950 to 2049, so
that two figures name one of them.

Kept from training: one day and one month in ten, and all formats with a weekday cut short
(Sat, Apr 3, 2021).
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import as_file, files
from random import Random
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ..masks import padding_mask
from ..transformer import Transformer, greedy

FOLDER = files(__package__)
WORDS: dict[str, Any] = json.loads(FOLDER.joinpath("formats.json").read_text("utf-8"))
FIRST, LAST = dt.date(1950, 1, 1).toordinal(), dt.date(2049, 12, 31).toordinal()
PAD, START, STOP = 0, 1, 2
FIELD = re.compile(r"'([^']*)'|([a-zA-Z])\2*")  # of a pattern: 'quoted', or letters such as MMMM
LONGEST = len("2021-04-03") + 1  # of what is written, with the stop


class Format(NamedTuple):
    """One way of a language to write a date, as a pattern of CLDR: `MMMM d, y`."""

    language: str
    name: str  # CLDR's: full, long, medium, short, or the fields that it has
    pattern: str

    @property
    def has_day(self) -> bool:
        return self.name not in {"yM", "yMMM", "yMMMM"}


class Example(NamedTuple):
    """A text in a language, and the date that it says."""

    language: str
    text: str
    iso: str


ALL = [
    Format(language, name, pattern)
    for language, words in WORDS.items()
    for name, pattern in words["patterns"].items()
]
UNSEEN = [form for form in ALL if form.name == "yMMMEd"]
SEEN = [form for form in ALL if form not in UNSEEN]


# Dates


def write(form: Format, day: dt.date) -> str:
    """The date in this format.

    >>> write(Format("en", "long", "MMMM d, y"), dt.date(2021, 4, 3))
    'April 3, 2021'
    """

    def field(found: re.Match[str]) -> str:
        quoted, letters = found[1], found[0]
        if quoted is not None:
            return str(quoted)
        numbers = {"y": day.year, "M": day.month, "L": day.month, "d": day.day}
        if letters == "yy":
            return f"{day.year % 100:02}"
        if letters[0] in numbers and len(letters) < 3:
            return f"{numbers[letters[0]]:0{len(letters)}}"
        index = day.month - 1 if letters[0] in "ML" else day.weekday()
        return str(WORDS[form.language][letters][index])

    return FIELD.sub(field, form.pattern)


def in_iso(form: Format, day: dt.date) -> str:
    """What the text in this format says, in ISO 8601: a day, or a month."""
    return day.isoformat() if form.has_day else day.isoformat()[:7]


def is_held_out(form: Format, day: dt.date) -> bool:
    """Whether training never sees this day, or month where the format says no day."""
    number = day.toordinal() if form.has_day else 12 * day.year + day.month
    return number % 10 == 7


def draw(
    count: int, random: Random, forms: Sequence[Format] = SEEN, *, held_out: bool = False
) -> list[Example]:
    """So many examples, of dates for training or of those that are held out.

    >>> draw(2, Random(8))
    [Example(language='es', text='junio de 2016', iso='2016-06'),
     Example(language='de', text='22.07.1974', iso='1974-07-22')]
    """
    found: list[Example] = []
    while len(found) < count:
        form = forms[random.randrange(len(forms))]
        day = dt.date.fromordinal(random.randrange(FIRST, LAST + 1))
        if is_held_out(form, day) == held_out:
            found.append(Example(form.language, write(form, day), in_iso(form, day)))
    return found


# Tokens


_TEXTS = [
    *(FIELD.sub(lambda found: found[1] or "", form.pattern) for form in ALL),
    *(word for words in WORDS.values() for names in words.values() for word in names),
]
# A language is one token, a character is one.
SOURCE_TOKENS = ["pad", *WORDS, *sorted({*"0123456789", *"".join(_TEXTS)})]
TARGET_TOKENS = ["pad", "start", "stop", *"-0123456789"]
_SOURCE = {token: number for number, token in enumerate(SOURCE_TOKENS)}
_TARGET = {token: number for number, token in enumerate(TARGET_TOKENS)}


def source_of(examples: Sequence[Example], length: int | None = None) -> tuple[Tensor, Tensor]:
    """The texts as tokens, padded to the longest or to `length`, and the mask of their padding.

        source  b j, the language and then each character
        mask    b 1 j, True where there is text

    Raises ValueError for languages and characters that there are no tokens for.

    >>> source, mask = source_of([Example("en", "4/3/21", ""), Example("de", "4/2021", "")], 9)
    >>> source.shape, mask.sum(-1).tolist()
    (torch.Size([2, 9]), [[7], [7]])
    """
    rows = [_numbers(_SOURCE, [example.language, *example.text]) for example in examples]
    longest = max((len(row) for row in rows), default=0) if length is None else length
    mask = padding_mask([len(row) for row in rows], longest)
    padded = [row + [PAD] * (longest - len(row)) for row in rows]
    return torch.tensor(padded, dtype=torch.long).reshape(len(rows), longest), mask


def target_of(examples: Sequence[Example]) -> Tensor:
    """What is to be written, b i: a start, the characters, a stop, and padding.

    >>> [TARGET_TOKENS[n] for n in target_of([Example("en", "4/2021", "2021-04")])[0]]
    ['start', '2', '0', '2', '1', '-', '0', '4', 'stop']
    """
    rows = [[START, *_numbers(_TARGET, example.iso), STOP] for example in examples]
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


def written(target: Tensor) -> list[str]:
    """The texts of rows of target tokens, each up to its stop.

    >>> written(target_of([Example("en", "4/2021", "2021-04")])[:, 1:])
    ['2021-04']
    """
    rows = [[TARGET_TOKENS[number] for number in row] for row in target.tolist()]
    return ["".join(row[: row.index("stop")] if "stop" in row else row) for row in rows]


def _numbers(tokens: dict[str, int], text: Sequence[str]) -> list[int]:
    unknown = [token for token in text if token not in tokens]
    if unknown:
        raise ValueError(f"there is no token for {unknown[0]!r} in {''.join(text)!r}")
    return [tokens[token] for token in text]


# The model


def build(kind: type[Transformer] = Transformer, **options: Any) -> Transformer:
    """A model of the size that learns this; `options` are those of `Transformer`."""
    sizes = {"d_model": 64, "num_heads": 4, "num_layers": 2, "d_hidden": 128}
    return kind(len(SOURCE_TOKENS), len(TARGET_TOKENS), **{**sizes, **options})


@cache
def _parameters() -> dict[str, Tensor]:
    with as_file(FOLDER.joinpath("model.pt")) as path:
        parameters: dict[str, Tensor] = torch.load(path, weights_only=True)
    return parameters


def trained() -> Transformer:
    """The model that `python -m experiments.dates` trained, each time a new copy, in evaluation."""
    model = build()
    model.load_state_dict(_parameters())
    return model.eval()


def answers(
    model: Transformer, examples: Sequence[Example], *, hides_padding: bool = True, more: int = 0
) -> list[str]:
    """What the model writes for these texts, with so many places `more` of padding.

    >>> answers(trained(), [Example("de", "3. April 2021", "")])
    ['2021-04-03']
    """
    longest = max((len(example.text) for example in examples), default=0)
    source, mask = source_of(examples, 1 + longest + more)
    mask_or_none = mask if hides_padding else None
    return written(greedy(model, source, mask_or_none, start=START, steps=LONGEST))


def share_right(model: Transformer, examples: Sequence[Example], **options: Any) -> float:
    """The share of texts for which each character of the answer is right; options of `answers`."""
    found = answers(model, examples, **options)
    right = [answer == example.iso for answer, example in zip(found, examples, strict=True)]
    return sum(right) / len(right)
