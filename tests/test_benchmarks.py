"""The benchmarks compare like with like, and say so when they don't."""

import json
import re

import pytest
import torch

from benchmarks import layer, time_and_memory
from benchmarks.timing import interleaved


@pytest.mark.parametrize("mask", layer.MASKS)
@pytest.mark.parametrize("mode", layer.MODES)
def test_the_rivals_give_the_same_outputs_and_gradients(mode, mask):
    calls = layer.rivals(n=7, d_model=15, num_heads=3, batch=2, mode=mode, mask=mask)
    assert len(calls["layer"]()) == (10 if mode == "training" else 1)
    layer.assert_same(calls)


@pytest.mark.parametrize("rival", ["bare", "torch"])
@pytest.mark.parametrize("mode", ["evaluation", "training"])
def test_a_rival_that_computes_something_else_is_refused(rival, mode):
    calls = layer.rivals(n=7, d_model=15, num_heads=3, batch=2, mode=mode, mask="none")
    *most, last = calls[rival]()
    calls[rival] = lambda: (*most, last + 0.01)
    with pytest.raises(AssertionError, match="not close"):
        layer.assert_same(calls)


def test_quotients_are_taken_within_a_repeat():
    times = {"layer": [2.0, 4.0, 30.0], "bare": [1.0, 2.0, 10.0]}
    assert layer.quotients(times, "bare").startswith("2.000 [")


def test_every_rival_is_timed_once_a_repeat_on_one_thread():
    threads, seen = torch.get_num_threads(), set()
    torch.set_num_threads(2)
    try:
        call = lambda: seen.add(torch.get_num_threads())
        times = interleaved({"one": call, "other": call}, repeats=5, seconds=1e-5)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert {name: len(values) for name, values in times.items()} == {"one": 5, "other": 5}
    assert seen == {1}


def test_the_recorded_file_has_a_number_for_every_length_and_names_no_machine():
    recorded = json.loads(time_and_memory.FILE.read_text())
    fresh = time_and_memory.measure([8, 16], heads=1, features=4, repeats=1)
    assert recorded.keys() == fresh.keys()
    for column in ("milliseconds", "peak_bytes"):
        for numbers in recorded[column].values():
            assert len(numbers) == len(recorded["n"]) > 5
            assert numbers == sorted(numbers)
            assert min(numbers) > 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", recorded["date"])
    assert recorded["threads"] == 1
