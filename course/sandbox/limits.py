"""What one submission may use."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True)
class Limits:
    """The defaults are many times what an assignment needs.

    All bytes and seconds are for one submission; `wall_seconds` are for one operation: a cell
    that is loaded, or a function that is called.
    """

    wall_seconds: float = 10.0
    cpu_seconds: int = 60  # of one process, and of all processes that live at the same time
    total_seconds: float = 120.0  # of waiting for a submission, over all its processes
    memory_bytes: int = 2048 * MIB  # beyond what Python and torch take themselves
    disk_bytes: int = 64 * MIB  # all files together (contained), or each (limited)
    processes: int = 32  # threads are counted as well
    open_files: int = 128
    answer_bytes: int = 256 * MIB  # of the numbers in one answer
    text_bytes: int = 4 * MIB  # of everything else in one answer
