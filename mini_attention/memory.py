"""How much memory a call takes at its peak, from the allocator's own records."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile


def peak_bytes(function: Callable[[], object]) -> int:
    """The most bytes of tensors on the CPU that a call holds at once, beyond those before it.

    What the call returns is among them. The count is exact and the same in every run: the
    allocator reports each tensor that comes and goes. The call runs on one thread, because
    fast kernels take scratch space for each thread. It has to leave tensors from before alone:
    one that it freed would be missing from the sum.

    >>> peak_bytes(lambda: torch.zeros(100).exp().sum())  # 100 zeros, 100 exponentials
    800
    """
    profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
    threads = torch.get_num_threads()
    gc.collect()  # or garbage from before could be freed during the call
    torch.set_num_threads(1)
    try:
        with _no_standard_error():
            profiler.start()
        try:
            result = function()
        finally:
            with _no_standard_error():
                profiler.stop()
    finally:
        torch.set_num_threads(threads)
    del result
    records: Any = profiler.profiler  # typed as if it could be missing
    events = [e for e in records.kineto_results.events() if e.name() == "[memory]"]
    changes: list[int] = [
        event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())
    ]
    return max(accumulate(changes, initial=0))


@contextmanager
def _no_standard_error() -> Iterator[None]:
    """Hide what the profiler's C++ code prints as it starts and stops: a time, a process number.

    Python's own sys.stderr is not the way it takes, so the file descriptor is redirected.
    """
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
