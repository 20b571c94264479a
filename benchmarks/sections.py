"""What is measured: growth with the length, a grid of cases for functions and for layers, parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from statistics import median
from typing import Any

import torch

from benchmarks.measure import (
    PLAIN,
    Effort,
    allocated_bytes,
    interleaved,
    matrix_product,
    paired,
    process_bytes,
    slope,
    spread,
)
from benchmarks.parts import PARTS, parts
from benchmarks.rivals import BARE, KINDS, Case, assert_same, flops

PRODUCT = "matrix product"
START = {"milliseconds": 512, "peak_bytes": 1024, "process_bytes": 1024}  # fixed costs before


@dataclass(frozen=True)
class Setting:
    """Which cases, and how long for each."""

    effort: Effort
    lengths: tuple[int, ...]  # of which time is measured
    longer: tuple[int, ...]  # the same and more, of which bytes are measured
    fresh: tuple[int, ...]  # of which a fresh process is weighed
    longest: int  # of a layer alone
    grids: Mapping[str, Mapping[str, Sequence[Any]]]


BOTH = {"training": (False, True), "causal": (False, True)}
SHORT = Setting(
    Effort(least=5, most=9, seconds=1.0),
    lengths=(128, 256, 512, 1024),
    longer=(128, 256, 512, 1024, 2048, 4096),
    fresh=(4096,),
    longest=4096,
    grids={
        "functions": {"batch": (1,), "d_head": (64,), "n": (512, 1024), **BOTH},
        "layers": {"d_head": (8, 64), "n": (16, 128, 512), **BOTH},
        "parts": {"d_head": (64,), "n": (512, 1024)},
    },
)
FULL = Setting(
    Effort(least=3, most=15, seconds=3.0),
    lengths=(128, 256, 512, 1024, 2048, 4096),
    longer=(128, 256, 512, 1024, 2048, 4096, 8192, 16384),
    fresh=(1024, 4096, 16384),
    longest=32768,
    grids={
        "functions": {"batch": (1, 8), "d_head": (32, 64), "n": (512, 1024, 2048, 4096), **BOTH},
        "layers": {"d_head": (8, 64), "n": (16, 128, 512, 1024, 2048, 4096), **BOTH},
        "parts": {"d_head": (32, 64), "n": (512, 1024, 2048, 4096)},
    },
)


def cases(grid: Mapping[str, Sequence[Any]], base: Case) -> list[Case]:
    """Every combination, the short and small ones first."""
    made = [
        replace(base, **dict(zip(grid, values, strict=True))) for values in product(*grid.values())
    ]
    return sorted(made, key=lambda case: case.n * case.batch)


def measure_grid(
    kind: str, setting: Setting, base: Case, threads: Iterable[int]
) -> Iterator[dict[str, Any]]:
    for count in threads:
        for case in cases(setting.grids[kind], base):
            yield measure_case(kind, case, setting.effort, count)


def measure_case(kind: str, case: Case, effort: Effort, threads: int) -> dict[str, Any]:
    """One row of a section: its rivals side by side, and a matrix product beside them."""
    torch.set_num_threads(threads)  # before anything is compiled
    calls = KINDS[kind](case)
    assert_same(calls)
    multiply, product_flops = matrix_product(case.device, case.dtype)
    timed = {**calls, PRODUCT: multiply}
    times = interleaved(timed, effort, threads=threads, device=case.device)
    work = flops(kind, case) / product_flops
    return {
        **asdict(case),
        "threads": threads,
        "repeats": len(times[PRODUCT]),
        "gflops_of_matrix_product": round(product_flops / median(times[PRODUCT]) / 1e9, 1),
        "milliseconds": {name: milliseconds(times[name]) for name in calls},
        "ratios": {
            f"{ours} / {theirs}": rounded(spread(paired(times, ours, theirs)))
            for ours, theirs in pairs(kind, calls)
        },
        "share_of_matrix_product": {
            name: round(work * median(paired(times, PRODUCT, name)), 3) for name in calls
        },
        # A batch takes minutes and tells nothing new: see the growth with the length.
        "peak_bytes": {
            name: allocated_bytes(call, case.device)
            for name, call in calls.items()
            if case.batch == 1
        },
    }


def measure_parts(setting: Setting, base: Case) -> Iterator[dict[str, Any]]:
    """What the parts of a forward pass with blocks take, over the bare kernel, on one thread."""
    torch.set_num_threads(1)
    for case in cases(setting.grids["parts"], base):
        times = interleaved(parts(case), setting.effort, device=case.device)
        ratios = {part: rounded(spread(paired(times, part, BARE))) for part in PARTS}
        yield {**asdict(case), "repeats": len(times[BARE]), "ratios": ratios}


def pairs(kind: str, names: Iterable[str]) -> list[tuple[str, str]]:
    """Everybody over the bare kernel; then our layer over each rival that returns as much."""
    names = list(names)
    made = [(name, BARE) for name in names if name != BARE]
    if kind == "layers":
        ours, weighing = "MultiHeadAttention", "MultiHeadAttention, weights"
        theirs = [name for name in names if not name.startswith((ours, BARE))]
        made += [(weighing if "weights" in name else ours, name) for name in theirs]
    return made


def growth(setting: Setting, base: Case) -> dict[str, dict[str, Any]]:
    """Time and bytes of the functions by length, on one thread: a column for each rival."""
    torch.set_num_threads(1)
    each = [replace(base, n=n) for n in setting.longer]
    rows: dict[str, list[Mapping[str, float]]] = {
        "milliseconds": [time_of(c, setting.effort) for c in each if c.n in setting.lengths],
        "peak_bytes": [bytes_of(c) for c in each],
        "process_bytes": [process_bytes_of(c) if c.n in setting.fresh else {} for c in each],
    }
    columns: dict[str, dict[str, Any]] = {what: by_rival(rows[what]) for what in rows}
    slopes = {
        f"slopes_of_{what}": {
            name: slope(setting.longer[: len(values)], values, start=START[what])
            for name, values in column.items()
        }
        for what, column in columns.items()
    }
    return {**columns, **slopes}


def longest(setting: Setting, base: Case) -> dict[str, Any]:
    """The bytes of one layer with blocks, forward and backward, beside those of the formula."""
    torch.set_num_threads(1)
    case = replace(base, n=setting.longest, training=True, causal=True)
    name = "MultiHeadAttention, blocked"
    fresh = process_bytes("layers", case, name) if case.device == "cpu" else None
    return {
        **asdict(case),
        "peak_bytes": allocated_bytes(KINDS["layers"](case)[name], case.device),
        "process_bytes": fresh,
        "bytes_of_scores_and_weights": 2 * case.matrix_bytes,
    }


def time_of(case: Case, effort: Effort) -> dict[str, float]:
    calls = PLAIN["functions"](case)
    assert_same(calls)
    times = interleaved(calls, effort, device=case.device)
    return {name: milliseconds(values) for name, values in times.items()}


def bytes_of(case: Case) -> dict[str, int]:
    calls = PLAIN["functions"](case)
    return {name: allocated_bytes(call, case.device) for name, call in calls.items()}


def process_bytes_of(case: Case) -> dict[str, int]:
    if case.device != "cpu":
        return {}
    return {name: process_bytes("functions", case, name) for name in PLAIN["functions"](case)}


def by_rival(rows: Sequence[Mapping[str, float]]) -> dict[str, list[float | None]]:
    """A column for each name; None where a rival did not take part."""
    names = {name: None for row in rows for name in row}
    return {name: [row.get(name) for row in rows] for name in names}


def milliseconds(seconds: Sequence[float]) -> float:
    return round(1000 * median(seconds), 4)


def rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 3) for value in values]
