"""Attention beside its rivals: time, memory, and how both grow with the length.

All rivals of a case compute the same thing from the same numbers, which is asserted first. They
run in one process in turns; printed are medians of the quotients of times that were measured side
by side, with their quartiles in brackets. A share is the rate of the work that can't be avoided,
over the rate of a large matrix product in the same turns. The parts are those of a forward pass
with blocks, one more in each row. Bytes are those of the allocator at the peak of a call, and
beside them the growth of a fresh process. With a GPU all is measured there as well, in float32
and bfloat16.

A section is written into the data file when it is finished, in one step: an interrupted run keeps
the sections that were done, and what the file held of the others. The full setting writes the
file that chapters draw from; the short one, or other lengths, write beside the built book.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks import record
from benchmarks.rivals import BARE, Case, missing
from benchmarks.sections import FULL, SHORT, Setting, growth, longest, measure_grid, measure_parts

MIB = 2**20


def main(arguments: list[str] | None = None) -> None:
    given = parse(arguments)
    print(f"torch {torch.__version__}, {record.processor()}, threads {given.threads}")
    for name, why in missing().items():
        print(f"without {name}: {why}")
    for place, (device, dtype) in record.PLACES.items():
        if device == "cuda" and not torch.cuda.is_available():
            continue
        base = Case(n=0, device=device, dtype=dtype)
        for section in given.only:
            print(f"\n{section}, {device}, {dtype}", flush=True)
            measured = measure(section, given.setting, base, given.threads)
            facts = {"setting": "full" if given.full else "short", "missing": list(missing())}
            record.store(given.file, place, section, {**record.facts(device), **facts, **measured})
    print(f"\nwritten to {given.file}")


def measure(section: str, setting: Setting, base: Case, threads: list[int]) -> dict[str, Any]:
    if section == "growth":
        base = replace(base, num_heads=4)
        measured: dict[str, Any] = {"batch": 1, "num_heads": 4, "d_head": base.d_head, "threads": 1}
        measured |= {"n": setting.lengths, "n_of_bytes": setting.longer}
        for mode, training in (("forward", False), ("training", True)):
            measured[mode] = growth(setting, replace(base, training=training))
            show_growth(mode, measured)
        return measured
    if section == "longest":
        measured = longest(setting, base)
        show_longest(measured)
        return measured
    rows = []
    if section == "parts":
        measuring, show = measure_parts(setting, base), show_parts
    else:
        measuring, show = measure_grid(section, setting, base, threads), show_row
    for row in measuring:
        show(row)
        rows.append(row)
    return {"rows": rows}


def show_row(row: dict[str, Any]) -> None:
    mode = "training" if row["training"] else "evaluation"
    mask = "causal" if row["causal"] else "no mask"
    print(
        f"\nn {row['n']}, batch {row['batch']}, {row['num_heads']} heads of {row['d_head']}, "
        f"{mode}, {mask}, threads {row['threads']}, {row['repeats']} repeats"
    )
    print(f"  {'':37}{'ms':>9}{'share':>7}{'MiB':>9}")
    for name, time in row["milliseconds"].items():
        share, peak = row["share_of_matrix_product"][name], row["peak_bytes"].get(name)
        print(f"  {name:37}{time:9.3f}{share:7.2f}{'' if peak is None else f'{peak / MIB:9.2f}'}")
    for pair, (low, middle, high) in row["ratios"].items():
        print(f"  {pair:66}{middle:7.3f} [{low:.3f}, {high:.3f}]", flush=True)


def show_parts(row: dict[str, Any]) -> None:
    print(f"\nn {row['n']}, {row['num_heads']} heads of {row['d_head']}, {row['repeats']} repeats")
    for part, (low, middle, high) in row["ratios"].items():
        print(f"  {part:38} / {BARE}{middle:7.3f} [{low:.3f}, {high:.3f}]", flush=True)


def show_growth(mode: str, measured: dict[str, Any]) -> None:
    for what, lengths, unit, title in (
        ("milliseconds", "n", 1, "milliseconds"),
        ("peak_bytes", "n_of_bytes", MIB, "MiB by the allocator"),
        ("process_bytes", "n_of_bytes", MIB, "MiB of a fresh process"),
    ):
        header = "".join(f"{n:>10}" for n in measured[lengths])
        print(f"\n{mode + ', ' + title:34}{header}   slope")
        for name, values in measured[mode][what].items():
            cells = "".join(f"{'' if v is None else f'{v / unit:.2f}':>10}" for v in values)
            fitted = measured[mode][f"slopes_of_{what}"][name]
            print(f"  {name:32}{cells}{'' if fitted is None else f'{fitted:8.2f}'}", flush=True)


def show_longest(measured: dict[str, Any]) -> None:
    fresh = measured["process_bytes"]
    print(
        f"a layer of {measured['num_heads']} heads of {measured['d_head']} with blocks, causal, "
        f"n {measured['n']}, forward and backward:\n"
        f"  {measured['peak_bytes'] / MIB:.0f} MiB by the allocator"
        + ("" if fresh is None else f", {fresh / MIB:.0f} MiB of a fresh process")
        + f"; scores and weights of the formula: "
        f"{measured['bytes_of_scores_and_weights'] / MIB:.0f} MiB"
    )


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--full", action="store_true", help="all cases: about 45 minutes on two cores"
    )
    parser.add_argument("--only", nargs="+", choices=record.SECTIONS, default=record.SECTIONS)
    parser.add_argument("--threads", nargs="+", type=positive, default=[1], help="such as 1 2")
    parser.add_argument("--n", nargs="+", type=positive, help="these lengths in every section")
    parser.add_argument("--repeats", type=positive, help="exactly so many for every case")
    parser.add_argument("--file", type=Path, help="write here")
    given = parser.parse_args(arguments)
    cores = os.cpu_count() or 1
    if max(given.threads) > cores:
        parser.error(f"--threads {max(given.threads)}: this machine has {cores} cores")
    given.setting, given.file = chosen(given)
    try:  # better now than after minutes
        given.file.parent.mkdir(parents=True, exist_ok=True)
        record.read(given.file)
    except (OSError, ValueError) as error:
        parser.error(f"--file {given.file} can't be continued: {error}")
    return given


def positive(text: str) -> int:
    """An argument that is an integer of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer of at least 1; got {text}")
    return int(text)


def chosen(given: argparse.Namespace) -> tuple[Setting, Path]:
    """The setting with what the arguments change, and the file for it."""
    setting = FULL if given.full else SHORT
    as_it_is = given.full and not given.n and not given.repeats
    path = given.file or (record.BOOK if as_it_is else record.ELSEWHERE)
    if given.repeats:
        effort = replace(setting.effort, least=given.repeats, most=given.repeats)
        setting = replace(setting, effort=effort)
    if given.n:
        lengths = tuple(sorted(set(given.n)))
        grids = {kind: {**grid, "n": lengths} for kind, grid in setting.grids.items()}
        setting = replace(
            setting, grids=grids, lengths=lengths, longer=lengths, longest=lengths[-1]
        )
    return setting, path


if __name__ == "__main__":
    main()
