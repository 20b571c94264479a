"""Starts the zygote, and asks it for processes."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from .levels import PROMISES, level, why_not_contained
from .limits import Limits
from .remote import RemoteStudent

_KEPT = ("PATH", "HOME", "LANG", "TZ", "LD_LIBRARY_PATH", "MPLCONFIGDIR", "XDG_CACHE_HOME")
_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_SECONDS_TO_START = 120.0
_PROGRAM = (
    "import sys; sys.path[:] = {path!r}; "
    "from course.sandbox.zygote import main; main({descriptor}, {settings!r})"
)


class Sandbox:
    """Where students' processes come from. Use it as a context manager; threads may share it.

    limits  what one submission may use
    level   "contained" or "limited"; the stronger one that works here unless given

    Raises ValueError where the system can't contain a process and `level` asks for it.
    """

    def __init__(self, limits: Limits | None = None, level: str | None = None) -> None:
        self.limits = limits or Limits()
        self.level = _chosen(level)
        self._zygote: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Sandbox:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def student(self, cells: Sequence[str], forbidden: Sequence[str] = ()) -> RemoteStudent:
        """A student whose notebook has these code cells; a context manager.

        Cells run in their order, and an error in one costs that cell alone: `errors` of the
        student has its text by the cell's number, counted from 1. `forbidden` are dotted names
        of functions, classes or modules whose use is noticed, see `used`.
        """
        return RemoteStudent(self, cells, forbidden)

    def fork(self, channel: socket.socket, control: socket.socket) -> None:
        """Start a process with these ends of sockets; a zygote that was killed is replaced."""
        with self._lock:
            for last in (False, True):
                try:
                    assert self._requests is not None, "a sandbox is used in a with statement"
                    socket.send_fds(self._requests, [b"+"], [channel.fileno(), control.fileno()])
                    return
                except OSError:
                    if last:
                        raise
                    self._end()
                    self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        settings = {"level": self.level, "limits": dataclasses.asdict(self.limits)}
        program = _PROGRAM.format(
            path=_path(), descriptor=theirs.fileno(), settings=json.dumps(settings)
        )
        with theirs:
            self._zygote = subprocess.Popen(
                [sys.executable, "-I", "-c", program],
                env=_environment(),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        ours.settimeout(_SECONDS_TO_START)
        if ours.recv(5, socket.MSG_WAITALL) != b"ready":
            raise RuntimeError("the process that starts students' processes did not start")
        self._requests = ours

    def _end(self) -> None:
        if self._requests is not None:
            self._requests.close()
        if self._zygote is not None:
            try:
                self._zygote.wait(10)
            except subprocess.TimeoutExpired:
                self._zygote.kill()
                self._zygote.wait()
        self._requests = self._zygote = None


def _chosen(wanted: str | None) -> str:
    if wanted is None:
        return level()
    if wanted not in PROMISES:
        raise ValueError(f"level must be among {list(PROMISES)}; got {wanted!r}")
    if wanted == "contained" and (why := why_not_contained()):
        raise ValueError(f"this system can't contain a process ({why}); level limited is left")
    return wanted


def _path() -> list[str]:
    """Where the grader finds modules, the folder of this package first."""
    here = str(Path(__file__).parents[2])
    found = [os.path.abspath(entry) for entry in sys.path if os.path.exists(entry or ".")]
    return list(dict.fromkeys([here, *found]))


def _environment() -> dict[str, str]:
    """What Python needs, and nothing that could be a secret."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return kept | dict.fromkeys(_ONE_THREAD, "1") | {"MPLBACKEND": "agg"}
