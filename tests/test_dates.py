"""The dates: what is written, what is held out, and what the trained model reads of it."""

import datetime as dt
import re
from collections import defaultdict
from itertools import product
from random import Random

import pytest
import torch

from mini_attention import dates, padding_mask
from mini_attention.dates import (
    ALL,
    PAD,
    SEEN,
    SOURCE_TOKENS,
    START,
    STOP,
    TARGET_TOKENS,
    UNSEEN,
    Example,
    Format,
    answers,
    draw,
    in_iso,
    is_held_out,
    share_right,
    source_of,
    target_of,
    write,
    written,
)
from mini_attention.transformer import Transformer

GERMAN = Format("de", "long", "d. MMMM y")
GERMAN_MONTH = Format("de", "yMMM", "MMM y")


def some_days(count: int, seed: int = 1) -> list[dt.date]:
    random = Random(seed)
    return [dt.date.fromordinal(random.randint(dates.FIRST, dates.LAST)) for _ in range(count)]


def test_quoted_letters_of_a_pattern_are_no_fields():
    form = Format("es", "long", "d 'de' MMMM 'de' yy")
    assert write(form, dt.date(2007, 1, 9)) == "9 de enero de 07"


@pytest.mark.slow
@pytest.mark.parametrize("language", dates.WORDS)
def test_a_text_says_one_date_in_its_language(language):
    meant = defaultdict(set)
    numeric = [
        form for form in ALL if form.language == language and not re.search("MMM|LLL", form.pattern)
    ]
    for year, month, day in product((*range(2001, 2013), 1999), range(1, 13), range(1, 29)):
        for form in numeric:
            date = dt.date(year, month, day)
            meant[write(form, date)].add(in_iso(form, date))
    assert meant
    assert all(len(found) == 1 for found in meant.values())


def test_iso_has_a_day_where_the_format_has_one():
    day = dt.date(2021, 4, 3)
    for form in ALL:
        has_day = re.search("d", re.sub("'[^']*'", "", form.pattern)) is not None
        assert in_iso(form, day) == ("2021-04-03" if has_day else "2021-04")


# What is held out.


def test_formats_that_are_held_out_have_a_short_weekday_and_no_other_has():
    assert len(SEEN) + len(UNSEEN) == len(ALL)
    assert [form.language for form in UNSEEN] == list(dates.WORDS)
    for form in ALL:
        fields = re.sub("'[^']*'", "", form.pattern)
        short_weekday = re.search("(?<!E)E(?!E)", fields) is not None
        assert short_weekday == (form in UNSEEN)


@pytest.mark.parametrize("form", [GERMAN, GERMAN_MONTH], ids=["day", "month"])
def test_one_date_in_ten_is_held_out_and_none_is_both(form):
    days = [dt.date.fromordinal(number) for number in range(dates.FIRST, dates.LAST + 1, 7)]
    out = {in_iso(form, day) for day in days if is_held_out(form, day)}
    trained = {in_iso(form, day) for day in days if not is_held_out(form, day)}
    assert not out & trained
    assert 0.095 < len(out) / len(out | trained) < 0.105


@pytest.mark.slow
def test_the_dates_that_the_stored_model_never_saw_stay_held_out():
    april = [dt.date(2021, 4, day) for day in range(1, 31)]
    months = [dt.date(year, month, 1) for year in (2021, 2022) for month in range(1, 13)]
    assert [day.day for day in april if is_held_out(GERMAN, day)] == [7, 17, 27]
    held_out = [day.isoformat()[:7] for day in months if is_held_out(GERMAN_MONTH, day)]
    assert held_out == ["2021-05", "2022-03"]


@pytest.mark.parametrize("held_out", [False, True])
def test_drawn_examples_are_on_the_side_that_was_asked_for(held_out):
    texts = {}
    for form in SEEN:
        for day in some_days(600):
            if is_held_out(form, day) == held_out:
                texts[form.language, write(form, day)] = in_iso(form, day)
    known = [e for e in draw(4000, Random(3), held_out=held_out) if (e[0], e[1]) in texts]
    assert len(known) > 20
    assert all(texts[e.language, e.text] == e.iso for e in known)
    other = [e.iso for e in draw(500, Random(3), [GERMAN], held_out=held_out)]
    assert {is_held_out(GERMAN, dt.date.fromisoformat(iso)) for iso in other} == {held_out}


def test_examples_are_drawn_the_same_way_twice_and_from_all_formats_and_years():
    assert draw(50, Random(4)) == draw(50, Random(4))
    assert draw(50, Random(4)) != draw(50, Random(5))
    many = draw(5000, Random(4))
    assert {e.language for e in many} == set(dates.WORDS)
    years = {int(e.iso[:4]) for e in many}
    assert (min(years), max(years)) == (1950, 2049)
    assert {len(e.iso) for e in many} == {7, 10}


class Loaded(Random):
    """Always the first or the last of what may be drawn."""

    def __init__(self, which):
        super().__init__()
        self.which = which

    def randrange(self, start, stop=None):
        return range(start)[self.which] if stop is None else range(start, stop)[self.which]


@pytest.mark.parametrize(("which", "iso"), [(0, "1950-01-01"), (-1, "2049-12-31")])
def test_the_first_and_the_last_day_can_be_drawn(which, iso):
    held_out = is_held_out(GERMAN, dt.date.fromisoformat(iso))
    (example,) = draw(1, Loaded(which), [GERMAN], held_out=held_out)
    assert example.iso == iso


# Tokens.


def test_a_source_is_the_language_and_then_each_character():
    source, mask = source_of([Example("de", "4/2021", ""), Example("en", "4/3/21", "")])
    texts = [[SOURCE_TOKENS[token] for token in row] for row in source]
    assert texts == [["de", *"4/2021"], ["en", *"4/3/21"]]
    assert mask.all()


def test_a_source_is_padded_and_its_mask_says_where():
    source, mask = source_of([Example("de", "4", ""), Example("en", "4/3", "")])
    assert source[0, 2:].tolist() == [PAD] * 2
    assert torch.equal(mask, padding_mask([2, 4], 4))
    wider, mask = source_of([Example("de", "4", ""), Example("en", "4/3", "")], 9)
    assert torch.equal(wider[:, :4], source)
    assert torch.equal(mask, padding_mask([2, 4], 9))


def test_no_examples_are_an_empty_batch():
    source, mask = source_of([])
    assert source.shape == (0, 0)
    assert mask.shape == (0, 1, 0)
    assert answers(dates.build(), []) == []


def test_a_target_begins_stops_and_is_padded():
    target = target_of([Example("de", "", "2021-04-03"), Example("de", "", "2021-04")])
    assert target.shape == (2, 12)
    assert target[:, 0].tolist() == [START] * 2
    assert target[1, 8:].tolist() == [STOP] + [PAD] * 3
    assert written(target[:, 1:]) == ["2021-04-03", "2021-04"]


def test_what_never_stops_is_read_to_its_end():
    numbers = [TARGET_TOKENS.index(character) for character in "2021"]
    assert written(torch.tensor([numbers])) == ["2021"]


@pytest.mark.slow
def test_every_text_has_tokens_and_every_token_but_padding_occurs():
    random = Random(6)
    seen = draw(30_000, random) + draw(5000, random, UNSEEN)
    used = {*(e.language for e in seen), *"".join(e.text for e in seen)}
    assert used == set(SOURCE_TOKENS[1:])
    assert len(set(SOURCE_TOKENS)) == len(SOURCE_TOKENS)


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (Example("xx", "4/3/21", ""), "there is no token for 'xx' in 'xx4/3/21'"),
        (Example("en", "4§3", ""), "there is no token for '§' in 'en4§3'"),
    ],
    ids=["language", "character"],
)
def test_what_has_no_token_is_an_error_that_says_what(example, message):
    with pytest.raises(ValueError, match=message):
        source_of([example])


# The trained model.


def test_the_trained_model_reads_dates_that_it_never_saw():
    model = dates.trained()
    assert not model.training
    assert share_right(model, draw(300, Random(11), held_out=True)) >= 0.99


def test_the_trained_model_tells_languages_apart():
    texts = [Example("en", "4/3/21", ""), Example("es", "4/3/21", "")]
    assert answers(dates.trained(), texts) == ["2021-04-03", "2021-03-04"]


@pytest.mark.slow
def test_padding_changes_no_answer_unless_it_can_be_seen():
    model, texts = dates.trained(), draw(100, Random(12), held_out=True)
    expected = answers(model, texts)
    assert answers(model, texts, more=20) == expected
    assert answers(model, texts, hides_padding=False) != expected
    alone = [answers(model, [text], hides_padding=False)[0] for text in texts[:20]]
    assert alone == expected[:20]
    in_company = [answers(model, [text], hides_padding=False, more=20)[0] for text in texts[:20]]
    assert in_company != alone


class Looked(Transformer):
    """A model that remembers the sources that it has read."""

    def encode(self, source, source_mask=None):
        self.source, self.hides = source, source_mask is not None
        return super().encode(source, source_mask)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_source_takes_no_more_places_than_its_longest_text_and_those_asked_for(count):
    model, texts = dates.build(Looked), draw(count, Random(14))
    longest = max((len(example.text) for example in texts), default=0)
    for more in (None, 0, 5):
        answers(model, texts, **({} if more is None else {"more": more}))
        assert model.source.shape == (count, 1 + longest + (more or 0))
        assert model.hides


def test_a_share_is_that_of_the_answers_to_the_same_question():
    model, texts = dates.build(Looked), draw(2, Random(15))
    share_right(model, texts, more=3, hides_padding=False)
    assert model.source.shape[1] == 1 + max(len(example.text) for example in texts) + 3
    assert not model.hides


def test_a_share_counts_whole_answers():
    model, (one, other) = dates.trained(), draw(2, Random(13))
    assert share_right(model, [one, other._replace(iso="2021-04-03")]) == 0.5


def test_each_call_gives_a_model_of_its_own():
    one, other = dates.trained(), dates.trained()
    torch.nn.init.zeros_(one.to_logits.weight)
    assert other.to_logits.weight.abs().max() > 0


def test_the_model_file_is_small():
    assert len(dates.FOLDER.joinpath("model.pt").read_bytes()) < 500_000
