"""The data file that chapters draw from: per device and section, with the facts of its making.

    {"cpu": {"growth": ..., "longest": ..., "functions": ..., "layers": ..., "parts": ...},
     "cuda": ..., ...}

A section is null until it was measured. Each carries its own machine, versions and date, since
sections can be made anew one by one.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "book" / "data" / "benchmark.json"  # the full setting writes here
ELSEWHERE = ROOT / "_build" / "benchmark.json"  # and all others here: the book stays as it is
PLACES = {"cpu": ("cpu", "float32"), "cuda": ("cuda", "float32")}
PLACES["cuda bfloat16"] = ("cuda", "bfloat16")
SECTIONS = ("growth", "longest", "functions", "layers", "parts")

Section = Mapping[str, object]


def facts(device: str) -> dict[str, object]:
    """What measured and when, without the name of the machine."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "x-transformers": version("x-transformers"),
        "date": datetime.now(UTC).date().isoformat(),
    }


def version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def processor() -> str:
    """The model of the processor, where the system tells it, else its family."""
    cpuinfo = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.+)", cpuinfo.read_text()) if cpuinfo.exists() else None
    return found[1] if found else platform.processor() or platform.machine()


def read(path: Path) -> dict[str, dict[str, Section | None]]:
    """The file, with an empty place for every section that it lacks."""
    known = json.loads(path.read_text()) if path.exists() else {}
    return {
        place: {section: known.get(place, {}).get(section) for section in SECTIONS}
        for place in PLACES
    }


def store(path: Path, place: str, section: str, measured: Section) -> None:
    """Put one finished section into the file, in one step: nothing ever sees half a file."""
    record = read(path)
    record[place][section] = measured
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(as_text(record) + "\n")
    unfinished.replace(path)


def as_text(record: object) -> str:
    """JSON with a list of numbers on one line, and a row of a table on one line."""
    text = json.dumps(record, indent=1)
    innermost = re.compile(r"([\[{])\s+([^][{}]*?)\s+([]}])")
    return innermost.sub(lambda m: f"{m[1]}{' '.join(m[2].split())}{m[3]}", text)
