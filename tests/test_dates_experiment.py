"""The experiment on dates: Babel's formats, models that lack one thing, and their record."""

import datetime as dt
import json
from collections import defaultdict
from dataclasses import asdict
from random import Random

import pytest
import torch
from babel.dates import format_date

from experiments import date_formats
from experiments import dates as experiment
from mini_attention import MultiHeadAttention, attention, causal_mask, dates
from mini_attention.dates import ALL, START, Example, draw, source_of, write
from mini_attention.transformer import PostNorm, watch_weights
from tests.oracles import assert_same, inputs, some_mask

TINY = experiment.Setting(
    steps=2, batch=3, asked=5, sizes={"d_model": 8, "num_heads": 2, "num_layers": 1}
)


# Formats.


def test_the_formats_are_those_of_babel():
    assert dates.FOLDER.joinpath("formats.json").read_text("utf-8") == date_formats.as_text()


@pytest.mark.parametrize("language", dates.WORDS)
def test_dates_are_written_as_babel_writes_them(language):
    days = [dt.date(2005, month, 2 * month) for month in range(1, 13)] + [
        dt.date(1950 + 7 * n, 1 + n % 12, 28) for n in range(14)
    ]
    for form in ALL:
        for day in days if form.language == language else ():
            assert write(form, day) == format_date(day, form.pattern, locale=language)


def test_a_language_with_another_field_is_an_error(monkeypatch):
    monkeypatch.setattr(date_formats, "STYLES", (*date_formats.STYLES, "GyMMM"))
    monkeypatch.setattr(date_formats, "FIELDS", ())
    monkeypatch.setattr(
        date_formats.Locale,
        "date_formats",
        property(lambda self: defaultdict(lambda: type("P", (), {"pattern": "G y"}))),
    )
    with pytest.raises(ValueError, match=r"de has fields that no date here has: \['G'\]"):
        date_formats.formats_of("de")


# The experiments.


def test_uniform_weights_give_the_mean_of_what_may_be_seen():
    tensors, mask = inputs(2, 3, e=11), some_mask(5, 7)
    expected = (mask.double() / mask.sum(-1, keepdim=True)) @ tensors["value"]
    assert_same(experiment.uniform(**tensors, mask=mask), expected)
    assert_same(
        experiment.uniform(**tensors),
        attention(0 * tensors["query"], tensors["key"], tensors["value"]),
    )


def tiny_model(name: str):
    torch.manual_seed(1)
    chosen = experiment.EXPERIMENTS[name]
    return dates.build(chosen.kind, **{**TINY.sizes, **chosen.options}).eval()


def test_without_positions_the_order_of_a_text_is_unknown():
    texts = [Example("de", "12/2021", ""), Example("de", "21/2012", "")]
    source, target = source_of(texts)[0], torch.tensor([[START], [START]])
    with torch.no_grad():
        for name in ("whole", "no positions"):
            one, other = tiny_model(name)(source, target)
            assert torch.allclose(one, other, atol=1e-5) == (name == "no positions")


def test_without_the_causal_mask_rows_depend_on_what_follows():
    source, target = source_of([Example("de", "4/2021", "")])[0], torch.tensor([[1, 5, 6]])
    for name in ("whole", "no causal mask"):
        model = tiny_model(name)
        with watch_weights(model) as weights:
            model(source, target)
        seen = (weights["decoder.0.self_attention"] > 0).all(1)[0]
        assert torch.equal(seen, causal_mask(3) | (name == "no causal mask"))


def test_the_other_experiments_change_what_they_say():
    assert {m.num_heads for m in tiny_model("one head").modules() if hasattr(m, "num_heads")} == {1}
    uniform = tiny_model("uniform weights").modules()
    attends = {m.attend for m in uniform if isinstance(m, MultiHeadAttention)}
    assert attends == {experiment.uniform}
    assert any(isinstance(m, PostNorm) for m in tiny_model("norm last").modules())


@pytest.mark.parametrize("name", experiment.EXPERIMENTS)
def test_the_loss_depends_on_padding_only_where_a_mask_is_forgotten(name):
    model, chosen = tiny_model(name), experiment.EXPERIMENTS[name]
    day, month = Example("en", "April 3, 2021", "2021-04-03"), Example("en", "4/2021", "2021-04")
    with torch.no_grad():
        both = experiment.loss_of(model, [day, month], chosen)
        one, other = (experiment.loss_of(model, [each], chosen) for each in (day, month))
    characters = (11 * one + 8 * other) / 19
    forgets = name in {"no padding mask", "no loss mask", "no causal mask"}
    assert torch.allclose(both, characters, atol=1e-5) != forgets


def test_training_goes_the_same_way_twice_and_another_with_another_seed():
    one, same = (experiment.train(experiment.EXPERIMENTS["whole"], TINY)[0] for _ in range(2))
    other, _ = experiment.train(experiment.EXPERIMENTS["whole"], experiment.replace(TINY, seed=2))
    source, target = source_of(draw(2, Random(1)))[0], torch.tensor([[START], [START]])
    assert torch.equal(one(source, target), same(source, target))
    assert not torch.equal(one(source, target), other(source, target))


def test_training_lowers_the_loss():
    chosen = experiment.EXPERIMENTS["whole"]
    _, short = experiment.train(chosen, TINY)
    _, long = experiment.train(chosen, experiment.replace(TINY, steps=60, batch=8))
    assert long < 0.9 * short


def test_the_command_goes_on_where_it_was_broken_off(tmp_path, capsys):
    file, model = tmp_path / "dates.json", tmp_path / "model.pt"
    given = ["--steps", "1", "--file", str(file), "--model", str(model)]
    experiment.main([*given, "--only", "whole", "one head"], TINY)
    assert "still lacks uniform weights" in capsys.readouterr().out
    first = json.loads(file.with_suffix(".unfinished").read_text("utf-8"))["found"]
    assert list(first) == ["whole", "one head"]
    parameters = torch.load(model, weights_only=True)
    experiment.main(given, TINY)
    told = capsys.readouterr().out
    assert "one head" not in told
    assert f"written to {file}" in told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dates.json", "model.pt"]
    record = json.loads(file.read_text("utf-8"))
    assert list(record["found"]) == list(experiment.EXPERIMENTS)
    assert record["found"]["one head"] == first["one head"]
    assert all(p.dtype == torch.float16 for p in parameters.values())


def test_an_unfinished_record_of_another_setting_is_begun_anew(tmp_path, capsys):
    given = ["--file", str(tmp_path / "r.json"), "--model", str(tmp_path / "m.pt")]
    for steps in ("1", "2"):
        experiment.main([*given, "--only", "one head", "--steps", steps], TINY)
        assert "one head  " in capsys.readouterr().out


def test_the_record_of_the_book_is_one_of_the_setting_as_it_is():
    record = json.loads(experiment.BOOK.read_text("utf-8"))
    assert record["setting"] == json.loads(json.dumps(asdict(experiment.FULL)))
    assert list(record["found"]) == list(experiment.EXPERIMENTS)
    for found in record["found"].values():
        assert all(0 <= found[kind] <= 1 for kind in ("seen", "unseen", "padded"))
        assert found["seconds"] < 120
    assert record["found"]["whole"]["seen"] >= 0.99
