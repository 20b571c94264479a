"""The peak of a call's memory against tensors whose bytes are known."""

import gc
import os

import pytest
import torch

from mini_attention import attention, fused_attention
from mini_attention.memory import peak_bytes
from tests.oracles import B, D, E, H, I, J

pytestmark = pytest.mark.slow


def test_a_call_that_makes_no_tensor_takes_nothing():
    assert peak_bytes(lambda: None) == 0


def test_tensors_that_are_there_at_once_add_up():
    assert peak_bytes(lambda: [torch.empty(I), torch.empty(J)]) == (I + J) * 4


def test_tensors_that_follow_each_other_do_not():
    def one_after_the_other():
        for size in (I, E, J):
            torch.empty(size)

    assert peak_bytes(one_after_the_other) == E * 4


def test_garbage_from_before_does_not_count():
    def leave_garbage():
        cycle = [torch.empty(1000)]
        cycle.append(cycle)

    def collect_and_make():
        gc.collect()
        return torch.empty(I)

    gc.disable()
    try:
        peak_bytes(leave_garbage)
        assert peak_bytes(collect_and_make) == I * 4
    finally:
        gc.enable()


def test_the_formula_holds_scores_and_weights_at_once():
    query, key, value = (torch.randn(B, H, *shape) for shape in ((I, D), (J, D), (J, E)))
    pairs, output = B * H * I * J, B * H * I * E
    assert peak_bytes(lambda: attention(query, key, value)) == 4 * (2 * pairs + output)


def test_the_fused_kernel_holds_no_scores():
    n, d = 1024, 8
    query, key, value = (torch.randn(1, 1, n, d) for _ in range(3))
    scores = 4 * n * n
    assert peak_bytes(lambda: fused_attention(query, key, value)) < scores / 4
    assert peak_bytes(lambda: attention(query, key, value)) > 2 * scores


def test_the_count_does_not_depend_on_the_number_of_threads():
    query, key, value = (torch.randn(1, 4, 512, 16) for _ in range(3))
    threads = torch.get_num_threads()
    counts = []
    try:
        for number in (1, 2):
            torch.set_num_threads(number)
            counts.append(peak_bytes(lambda: fused_attention(query, key, value)))
            assert torch.get_num_threads() == number
    finally:
        torch.set_num_threads(threads)
    assert counts[0] == counts[1] > 0


def test_the_profiler_prints_nothing_and_standard_error_comes_back(capfd):
    peak_bytes(lambda: torch.empty(I))
    os.write(2, b"still here")
    assert capfd.readouterr().err == "still here"


def test_no_file_stays_open():
    peak_bytes(lambda: torch.empty(I))
    files = os.listdir("/dev/fd")
    peak_bytes(lambda: torch.empty(I))
    assert len(os.listdir("/dev/fd")) == len(files)


def test_an_error_in_the_call_is_raised_and_the_next_count_is_right(capfd):
    threads = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError):
        peak_bytes(lambda: 1 / 0)
    assert torch.get_num_threads() == threads
    assert capfd.readouterr().err == ""
    assert peak_bytes(lambda: torch.empty(I)) == I * 4
