"""Record how time and memory of attention grow with the length of a sequence.

Makes `book/data/time_by_length.json` anew, which the chapter on complexity draws. Times are
medians of processor time on one thread, for a forward pass without gradients; bytes are the
peak of the call. Takes about a minute on a machine that does nothing else, which it should:

    python -m benchmarks.time_and_memory
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from benchmarks.timing import interleaved, positive
from mini_attention import attention, fused_attention
from mini_attention.memory import peak_bytes

FILE = Path(__file__).parent.parent / "book" / "data" / "time_by_length.json"
RIVALS = {"attention": attention, "fused_attention": fused_attention}


def measure(lengths: list[int], heads: int, features: int, repeats: int) -> dict[str, object]:
    """Everything the file says, for query, key and value of shape `1 heads n features`."""
    torch.manual_seed(0)
    calls: dict[tuple[str, int], Callable[[], Tensor]] = {}
    for n in lengths:
        q, k, v = torch.randn(3, 1, heads, n, features)
        calls |= {(name, n): partial(attend, q, k, v) for name, attend in RIVALS.items()}
        torch.testing.assert_close(calls["attention", n](), calls["fused_attention", n]())
    times = interleaved(calls, repeats=repeats, seconds=0.01)
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": 1,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "clock": "processor time of the process, median",
        "repeats": repeats,
        "batch": 1,
        "num_heads": heads,
        "d_head": features,
        "n": lengths,
        "milliseconds": {
            name: [round(1000 * median(times[name, n]), 3) for n in lengths] for name in RIVALS
        },
        "peak_bytes": {name: [peak_bytes(calls[name, n]) for n in lengths] for name in RIVALS},
    }


def processor() -> str:
    """The model of the processor, where the system tells it, else its family."""
    cpuinfo = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.+)", cpuinfo.read_text()) if cpuinfo.exists() else None
    return found[1] if found else platform.processor() or platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    lengths = [128, 256, 512, 1024, 2048, 4096]
    parser.add_argument("--n", type=positive, nargs="+", default=lengths)
    parser.add_argument("--num-heads", type=positive, default=4)
    parser.add_argument("--d-head", type=positive, default=64)
    parser.add_argument("--repeats", type=positive, default=15)
    parser.add_argument("--file", type=Path, default=FILE)
    given = parser.parse_args()
    measured = measure(given.n, given.num_heads, given.d_head, given.repeats)
    given.file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(measured, indent=2)
    text = re.sub(r"\[\s+([^]]*?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text)
    given.file.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
