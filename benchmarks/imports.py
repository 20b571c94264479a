"""What `import mini_attention` adds to `import torch`, in processor time of fresh processes.

    python -m benchmarks.imports

Prints the median of quotients of processes that ran one after the other, and their quartiles;
below 1.1 is wanted. The files are in the system's cache: the first import after an installation
takes longer, of both.
"""

from __future__ import annotations

import resource
import subprocess
import sys

from benchmarks.measure import spread

ROUNDS = 11


def processor_time(code: str) -> float:
    """Seconds that a fresh Python takes for this code, its own start included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def quotients(rounds: int) -> list[float]:
    """The time of both imports over that of torch's, once a round."""
    return [
        processor_time("import torch, mini_attention") / processor_time("import torch")
        for _ in range(rounds)
    ]


if __name__ == "__main__":
    low, middle, high = spread(quotients(ROUNDS))
    print(f"import torch, mini_attention / import torch: {middle:.3f} [{low:.3f}, {high:.3f}]")
