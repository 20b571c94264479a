"""Times side by side, bytes two ways, slopes.

On one thread of the CPU the clock is the processor time of the process, which other programs on
the machine hardly disturb; with more threads, and on a GPU, it is the time that passes.
"""

from __future__ import annotations

import math
import multiprocessing
import random
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from statistics import linear_regression, quantiles

import torch
from torch.utils.benchmark import Timer
from torch.utils.benchmark.utils.timer import timer as wall_clock

from benchmarks.rivals import KINDS, Case, functions
from mini_attention.memory import peak_bytes

Times = dict[str, list[float]]
PLAIN = KINDS | {"functions": partial(functions, compiled=False)}


@dataclass(frozen=True)
class Effort:
    """How long to measure: at least `least` repeats, then more until the seconds are spent."""

    least: int = 3
    most: int = 15
    seconds: float = 10.0  # for all rivals of a case together
    turn: float = 0.02  # for one rival in one repeat


def interleaved(
    calls: Mapping[str, Callable[[], object]],
    effort: Effort,
    *,
    threads: int = 1,
    device: str = "cpu",
) -> Times:
    """Seconds a call of each rival, one number a repeat.

    All rivals run in every repeat, in an order that changes, so that what slows the machine
    down slows them all: divide two times of one repeat, and take the median of the quotients.
    """
    clock = time.process_time if threads == 1 and device == "cpu" else wall_clock
    timers = {
        name: Timer("call()", globals={"call": call}, timer=clock, num_threads=threads)
        for name, call in calls.items()
    }
    order, shuffle = list(timers), random.Random(0).shuffle
    times: Times = {name: [] for name in timers}
    begin = time.monotonic()
    for repeat in range(effort.most):
        if repeat >= effort.least and time.monotonic() - begin > effort.seconds:
            break
        shuffle(order)
        for name in order:
            # Each turn begins with calls that don't count and warm the caches.
            turn = timers[name].blocked_autorange(min_run_time=effort.turn)
            times[name].append(turn.median)
    return times


def paired(times: Times, ours: str, theirs: str) -> list[float]:
    """The quotients of two rivals' times, each within one repeat."""
    return [one / other for one, other in zip(times[ours], times[theirs], strict=True)]


def spread(values: Sequence[float]) -> list[float]:
    """Lower quartile, median, upper quartile."""
    if len(values) < 2:
        return [values[0]] * 3
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return [low, middle, high]


def slope(lengths: Sequence[int], values: Sequence[float | None], *, start: int) -> float | None:
    """How often a value doubles when the length doubles, fitted from length `start` on."""
    points = [
        (math.log2(n), math.log2(value))
        for n, value in zip(lengths, values, strict=True)
        if n >= start and value is not None
    ]
    if len(points) < 2:
        return None
    return round(linear_regression(*zip(*points, strict=True)).slope, 3)


def matrix_product(device: str, dtype: str) -> tuple[Callable[[], object], float]:
    """A product large enough to run at the machine's peak rate, and its FLOPs."""
    size = 1024 if device == "cpu" else 8192
    left, right = torch.randn(2, size, size, device=device, dtype=getattr(torch, dtype))
    return (lambda: left @ right), 2.0 * size**3


def allocated_bytes(call: Callable[[], object], device: str) -> int:
    """The most bytes that a call holds at once beyond those before it, as the allocator counts."""
    if device == "cpu":
        return peak_bytes(call)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    return torch.cuda.max_memory_allocated() - before


def process_bytes(kind: str, case: Case, name: str) -> int:
    """By how much a rival raises the peak memory of a fresh process, on one thread.

    The process has called the same rival for a short sequence before. A child that was
    started from here would inherit our own peak; one of the fork server, which is small, does
    not.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(_raised_peak, kind, case, name).result()


def _raised_peak(kind: str, case: Case, name: str) -> int:
    torch.set_num_threads(1)
    PLAIN[kind](replace(case, n=16))[name]()
    call = PLAIN[kind](case)[name]
    start, ballast = _peak_of_process(), []
    while _peak_of_process() == start:  # fill what was freed since the peak, or the call would
        ballast.append(torch.ones(2**14))
    before = _peak_of_process()
    call()
    return _peak_of_process() - before


def _peak_of_process() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
