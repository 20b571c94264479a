"""Watches one student's process from outside, and ends it with all that it has started.

A guard is the parent of the student's process. It stays outside of the student's namespaces,
holds nothing worth stealing, and ends when the grader hangs up.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from .contain import Rights, address_space, limit_memory_of
from .limits import Limits

_LOOK = 0.05  # seconds between two looks
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = resource.getpagesize()


class Guard:
    def __init__(self, pid: int, who: Rights, control: socket.socket, limits: Limits) -> None:
        self.pid, self.who, self.control, self.limits = pid, who, control, limits
        self.shared = _own_memory(os.getpid())  # by all that are forked, as long as it is not used

    def watch(self) -> None:
        """Until the process or the grader ends; then leave none of the processes alive."""
        control, poll, said = self.control, select.poll(), ""
        with contextlib.suppress(OSError):
            poll.register(os.pidfd_open(self.pid), select.POLLIN)  # wakes us when it ends
        poll.register(control, select.POLLIN)
        while not said:
            ready = dict(poll.poll(_LOOK * 1000))
            if control.fileno() in ready and not self._obey():
                break
            said = self._ended() or self._too_much()
        self.end_all()
        with contextlib.suppress(OSError):
            control.sendall(json.dumps({"ended": said}).encode() + b"\n")

    def _obey(self) -> bool:
        """Do what the grader wants; False when it has hung up."""
        with contextlib.suppress(OSError):
            if text := self.control.recv(1000):
                most = address_space(self.pid) + int(json.loads(text)["memory"])
                able = limit_memory_of(self.pid, self.who, most)
                self.control.sendall(json.dumps({"able": able}).encode() + b"\n")
                return True
        return False

    def _ended(self) -> str:
        if self.pid == 0:
            return ""
        found, status = os.waitpid(self.pid, os.WNOHANG)
        if found == 0:
            return ""
        self.pid = 0
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGXCPU:
            return "cpu"
        return f"exit code {code}" if code >= 0 else signal.Signals(-code).name

    def _too_much(self) -> str:
        """Whether all processes of the student together use more than they may."""
        memory, seconds = 0, 0.0
        for pid in self._processes():
            memory += max(_own_memory(pid) - self.shared, 0)
            seconds += _cpu_seconds(pid)
        if memory > self.limits.memory_bytes:
            return "memory"
        return "cpu" if seconds > self.limits.cpu_seconds else ""

    def _processes(self) -> list[int]:
        return [*descendants(os.getpid())]

    def end_all(self) -> None:
        """Kill until none is left: the first kill of a contained process ends all of them."""
        for _ in range(200):
            for pid in self._processes() or [self.pid]:
                with contextlib.suppress(OSError):
                    if pid:
                        os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
                time.sleep(0.001)
                continue
            return


def descendants(pid: int) -> Iterator[int]:
    """All processes below one, where the system tells (Linux)."""
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            children = Path(f"/proc/{pid}/task/{task}/children").read_text()
            for child in map(int, children.split()):
                yield child
                yield from descendants(child)


def _own_memory(pid: int) -> int:
    """Bytes in memory that are not a file's."""
    with contextlib.suppress(OSError, IndexError):
        resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
        return (int(resident) - int(shared)) * _PAGE
    return 0


def _cpu_seconds(pid: int) -> float:
    with contextlib.suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / _TICKS  # with children that have ended
    return 0.0
