"""The two levels of containment, and which of them this system allows."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

PROMISES = {
    "contained": (
        "contained: a submission sees no files but Python and the package, no network and no "
        "process but its own. Time, memory, processes, files and answers are limited, and all "
        "that it has started ends with it."
    ),
    "limited": (
        "limited: time, memory, open files and answers are limited, and the comparison happens "
        "in the grader's process. A submission can still read whatever this user can read (other "
        "submissions, solutions, keys), write wherever this user can write, use the network, and "
        "send signals to this user's processes, the grader among them. Grade on Linux with user "
        "namespaces, or as a user who has nothing to lose."
    ),
}


def level() -> str:
    """The stronger level that works here, found by trying."""
    return "limited" if why_not_contained() else "contained"


@functools.cache
def why_not_contained() -> str:
    """What the system refused when a process tried to contain itself; "" where it works."""
    script = Path(__file__).with_name("contain.py")
    done = subprocess.run(
        [sys.executable, "-I", str(script)], capture_output=True, text=True, timeout=60, check=False
    )
    failed = done.stderr.strip().splitlines()[-1:] if done.returncode else []
    return "".join(failed) or done.stdout.strip()
