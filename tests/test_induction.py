"""The experiment on rows that repeat: what it trains and asks, and its record."""

import json
from dataclasses import asdict

import pytest
import torch

from experiments import induction
from experiments.induction import FULL, NAMES, Setting, ask, loss_of, train
from mini_attention import repeats
from mini_attention.repeats import AttentionOnly, draw, in_second_copy

TINY = Setting(steps=2, batch=3, every=1, asked=4)


def test_the_loss_is_that_of_each_next_letter():
    torch.manual_seed(1)
    model, tokens = AttentionOnly(1), draw(3, seed=1)[0]
    loss = loss_of(model, tokens)
    assert loss.shape == (3, repeats.LENGTH - 1)
    expected = -model(tokens)[1, 7].log_softmax(-1)[tokens[1, 8]]
    torch.testing.assert_close(loss[1, 7], expected)


def test_a_model_that_knows_nothing_is_asked_at_chance():
    model = AttentionOnly(1)
    with torch.no_grad():
        model.to_logits.weight.zero_()
        model.to_logits.bias.zero_()
    found = ask(model, Setting(asked=50))
    assert list(found) == ["random", "fixed"]
    for kind in found.values():
        assert kind["loss"] == round(torch.tensor(26.0).log().item(), 3)
        assert kind["right"] < 0.1


def test_each_kind_of_rows_has_its_own_periods(monkeypatch):
    seen = []

    def noted(model, tokens, periods):
        seen.append(set(periods.flatten().tolist()))
        return 0.5

    monkeypatch.setattr(induction, "share_right", noted)
    found = ask(AttentionOnly(1), Setting(asked=500))
    assert seen == [set(repeats.PERIODS), {16}]
    assert found["fixed"]["right"] == 0.5


@pytest.mark.parametrize("name", NAMES)
def test_training_goes_the_same_way_twice_and_another_with_another_seed(name):
    one, curve = train(name, TINY)
    same, _ = train(name, TINY)
    other, _ = train(name, induction.replace(TINY, seed=2))
    assert len(one.layers) == int(name[0])
    tokens = draw(2, seed=1)[0]
    assert torch.equal(one(tokens), same(tokens))
    assert not torch.equal(one(tokens), other(tokens))
    assert [entry["step"] for entry in curve] == [0, 1]


def test_training_on_one_period_never_draws_another(monkeypatch):
    seen = []

    def noted(count, seed, periods):
        tokens, drawn = draw(count, seed, periods)
        if isinstance(seed, torch.Generator):
            seen.extend(drawn.flatten().tolist())
        return tokens, drawn

    monkeypatch.setattr(induction, "draw", noted)
    train("1 fixed", TINY)
    assert set(seen) == {16}


def test_one_layer_soon_copies_rows_of_one_period():
    before, after = (
        ask(train("1 fixed", induction.replace(TINY, steps=steps, batch=32, every=200))[0], TINY)
        for steps in (1, 200)
    )
    assert before["fixed"]["right"] < 0.2
    assert after["fixed"]["right"] > 0.9


def test_the_command_goes_on_where_it_was_broken_off(tmp_path, capsys):
    file, model = tmp_path / "record.json", tmp_path / "models.pt"
    given = ["--steps", "1", "--file", str(file), "--model", str(model)]
    induction.main([*given, "--only", "1 random", "2 fixed"], TINY)
    assert "still lacks 1 fixed, 2 random" in capsys.readouterr().out
    first = json.loads(file.with_suffix(".unfinished").read_text("utf-8"))["found"]
    assert list(first) == ["1 random", "2 fixed"]
    induction.main(given, TINY)
    told = capsys.readouterr().out
    assert "2 fixed" not in told
    assert f"written to {file}" in told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["models.pt", "record.json"]
    found = json.loads(file.read_text("utf-8"))["found"]
    assert list(found) == NAMES
    assert found["2 fixed"] == first["2 fixed"]
    parameters = torch.load(model, weights_only=True)
    assert list(parameters) == NAMES
    assert {p.dtype for state in parameters.values() for p in state.values()} == {torch.float16}


def test_an_unfinished_record_of_another_setting_is_begun_anew(tmp_path, capsys):
    given = ["--file", str(tmp_path / "r.json"), "--model", str(tmp_path / "m.pt")]
    for steps in ("1", "2"):
        induction.main([*given, "--only", "1 fixed", "--steps", steps], TINY)
        assert "1 fixed  " in capsys.readouterr().out


def test_the_record_of_the_book_is_one_of_the_setting_as_it_is_and_of_the_models_as_they_are():
    record = json.loads(induction.BOOK.read_text("utf-8"))
    assert record["setting"] == json.loads(json.dumps(asdict(FULL)))
    assert list(record["found"]) == NAMES
    for name, found in record["found"].items():
        assert [entry["step"] for entry in found["curve"]] == list(range(0, FULL.steps, FULL.every))
        num_layers, periods = name.split()
        asked = ask(repeats.trained(int(num_layers), periods), FULL)
        for kind in repeats.MODELS:
            assert asked[kind]["right"] == pytest.approx(found[kind]["right"], abs=0.005)
            assert asked[kind]["loss"] == pytest.approx(found[kind]["loss"], abs=0.02)
            for entry in found["curve"]:
                assert 0 <= entry[kind]["right"] <= 1
    assert in_second_copy(draw(FULL.asked, 101)[1]).sum() > 2000
