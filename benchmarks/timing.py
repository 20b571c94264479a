"""Times that can be compared on a machine that does other things too."""

from __future__ import annotations

import argparse
import gc
import math
import random
import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

import torch

Name = TypeVar("Name", bound=Hashable)


def interleaved(
    calls: Mapping[Name, Callable[[], object]], *, repeats: int, seconds: float
) -> dict[Name, list[float]]:
    """Seconds a call of each rival, once in each repeat, on one thread of processor time.

    All rivals run in every repeat, in an order that changes, so that what slows the machine
    down slows them all: divide two times of one repeat, and take the median of the quotients.
    A rival runs as often in a repeat as `seconds` allow, at least once.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    number = {name: math.ceil(seconds / _warm(call)) for name, call in calls.items()}
    order = list(calls)
    times: dict[Name, list[float]] = {name: [] for name in calls}
    shuffle = random.Random(0).shuffle
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeats):
            shuffle(order)
            for name in order:
                times[name].append(_time(calls[name], number[name]))
    finally:
        gc.enable()
        torch.set_num_threads(threads)
    return times


def _warm(call: Callable[[], object]) -> float:
    for _ in range(2):
        call()
    return _time(call, 1)


def _time(call: Callable[[], object], number: int) -> float:
    start = time.process_time()
    for _ in range(number):
        call()
    return (time.process_time() - start) / number


def positive(text: str) -> int:
    """An argument that is an integer of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer of at least 1; got {text}")
    return int(text)
