"""The experiments ask what they say they ask, and the book has their whole record."""

import json
import re
from dataclasses import asdict

import pytest
import torch

from experiments import positions
from experiments.positions import NOTHING, TASKS, WAYS, Setting, shares, train
from mini_attention import rules

TINY = Setting(symbols=5, d_model=12, num_heads=3, trained=7, longest=20, steps=2, asked=3)


def draw() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_three_back_asks_for_the_symbol_three_places_before():
    symbols, targets = TASKS["three back"](5, 11, 7, draw())
    assert (targets[:, :3] == NOTHING).all()
    assert torch.equal(targets[:, 3:], symbols[:, :-3])
    assert set(symbols.unique().tolist()) == set(range(7))


def test_last_letter_asks_for_the_newest_symbol_that_is_no_blank():
    symbols, targets = TASKS["last letter"](5, 61, 7, draw())
    for row, wanted in zip(symbols.tolist(), targets.tolist(), strict=True):
        last = NOTHING
        for symbol, target in zip(row, wanted, strict=True):
            last = symbol or last
            assert target == last
    assert 0.1 < (symbols > 0).float().mean() < 0.3
    assert (targets == NOTHING).any()


def test_the_bands_are_the_trained_places_and_then_twice_as_far_each_time():
    assert Setting().bands == [(0, 32), (32, 64), (64, 128), (128, 256)]
    assert TINY.bands == [(0, 7), (7, 14), (14, 20)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("task", TASKS)
def test_training_goes_the_same_way_twice_and_another_with_another_seed(way, task):
    one, same, other = (train(way, TASKS[task], seed, TINY).state_dict() for seed in (1, 1, 2))
    for name in one:
        assert torch.equal(one[name], same[name])
    assert any(not torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("way", WAYS)
def test_no_network_sees_the_future(way):
    network = positions.Network(way, TINY)
    symbols = torch.randint(5, (2, 9), generator=draw())
    changed = symbols.clone()
    changed[:, 6:] = (changed[:, 6:] + 1) % 5
    before, after = (network(s, rules.causal(9)) for s in (symbols, changed))
    torch.testing.assert_close(before[:, :6], after[:, :6])
    assert (before[:, 6:] - after[:, 6:]).abs().max() > 0.01


@pytest.mark.parametrize("way", WAYS)
def test_each_way_tells_the_order_except_none(way):
    network = positions.Network(way, TINY)
    both = torch.tensor([[1, 2, 3, 4, 0], [2, 1, 3, 4, 0]])
    answer, swapped = network(both, rules.causal(5))[:, -1]
    assert torch.allclose(answer, swapped, atol=1e-5) == (way == "none")


def test_rows_of_a_learned_table_beyond_the_trained_places_stay_as_drawn():
    torch.manual_seed(3)
    drawn = positions.Network("learned", TINY).table.detach().clone()
    trained = train("learned", TASKS["three back"], 3, TINY).table.detach()
    assert torch.equal(trained[7:], drawn[7:])
    assert not torch.equal(trained[:7], drawn[:7])


def test_shares_count_right_answers_and_skip_places_without_a_target():
    class Perfect(torch.nn.Module):
        def forward(self, symbols, mask):
            answers = torch.nn.functional.one_hot(symbols.roll(3, dims=1), 5).float()
            wrong = torch.nn.functional.one_hot((symbols.roll(3, dims=1) + 1) % 5, 5).float()
            answers[:, 14:] = wrong[:, 14:]
            return answers if mask.before is None else wrong

    found = shares(Perfect(), TASKS["three back"], TINY)
    assert found == {"all": [1.0, 1.0, 0.0], "window": [0.0, 0.0, 0.0]}


def test_the_command_writes_a_whole_record_and_nothing_beside(tmp_path, capsys):
    file = tmp_path / "positions.json"
    positions.main(["--steps", "1", "--seeds", "1", "2", "--file", str(file)], TINY)
    assert f"written to {file}" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [file]
    record = json.loads(file.read_text("utf-8"))
    assert record["torch"] == torch.__version__
    assert record["setting"]["seeds"] == [1, 2]
    assert_whole(record, seeds=2, bands=3)


def assert_whole(record, seeds: int, bands: int) -> None:
    assert list(record["right"]) == list(TASKS)
    for ways in record["right"].values():
        assert list(ways) == list(WAYS)
        for masks in ways.values():
            assert list(masks) == ["all", "window"]
            for numbers in masks.values():
                assert torch.tensor(numbers).shape == (seeds, bands)
                assert all(0 <= share <= 1 for row in numbers for share in row)


def test_the_record_of_the_book_is_one_of_the_setting_as_it_is():
    record = json.loads(positions.BOOK.read_text("utf-8"))
    assert record["setting"] == json.loads(json.dumps(asdict(Setting())))
    assert record["bands"] == [list(band) for band in Setting().bands]
    assert re.match(r"\d+\.\d+", record["torch"])
    assert_whole(record, seeds=3, bands=4)
