"""The process that imports torch once, and forks a process for each student.

It is started by exec with a clean environment and never hears of a solution, a seed, an expected
answer or a second submission, so neither does what is forked from it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import site
import socket
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import contain
from .guard import Guard, descendants
from .limits import Limits


@dataclass(frozen=True)
class Settings:
    level: str
    limits: Limits
    changes_user: bool  # where we are root, and another user can read what Python needs

    @property
    def contained(self) -> bool:
        return self.level == "contained"


def main(requests: int, settings: str) -> None:
    """Fork for every request on this descriptor, until it is closed."""
    given = json.loads(settings)
    needed = [os.__file__, __file__]
    readable = os.getuid() == 0 and contain.can_read(contain.rights(), needed)
    chosen = Settings(given["level"], Limits(**given["limits"]), readable)
    _import_everything()
    contain.adopt_orphans()
    _be_private()
    gc.collect()
    gc.freeze()  # what is there now is shared by all, as long as nobody touches it
    with socket.socket(fileno=requests) as sock:
        sock.sendall(b"ready")
        _serve(sock, chosen)


def _import_everything() -> None:
    """What students use, and what that imports when it is used first, which can take seconds."""
    import torch
    from einops import einsum, rearrange

    from . import worker  # noqa: F401

    torch.set_num_threads(1)
    x = torch.ones(2, 3).softmax(-1)
    torch.testing.assert_close(einsum(x, x, "i d, j d -> i j"), x @ x.mT)
    torch.testing.assert_close(rearrange(x, "i d -> d i"), x.mT)
    others = ["mini_attention.cost", "mini_attention.memory", "mini_attention.mistakes"]
    # Students may draw, and need not.
    for name in [*others, "torch.utils.flop_counter", "mini_attention.plots", "matplotlib.pyplot"]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _be_private() -> None:
    """Read nothing from the terminal, and write nothing to it."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nowhere, descriptor)


def _serve(sock: socket.socket, settings: Settings) -> None:
    guards: set[int] = set()
    woken, poll = _woken_by_ends(), select.poll()
    for each in (sock, woken):
        poll.register(each, select.POLLIN)
    while True:
        ready = dict(poll.poll())
        if woken.fileno() in ready:
            woken.recv(1000)
            _reap(guards)
        if sock.fileno() in ready and not _fork(sock, guards, settings):
            signal.set_wakeup_fd(-1)
            return


def _woken_by_ends() -> socket.socket:
    """A socket that can be read as soon as a child has ended."""
    read, write = socket.socketpair()
    write.setblocking(False)
    signal.set_wakeup_fd(write.detach(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return read


def _fork(sock: socket.socket, guards: set[int], settings: Settings) -> bool:
    """Start a guard with the descriptors that come; False where the grader has hung up."""
    request, descriptors, _, _ = socket.recv_fds(sock, 1, 2)
    if not request:
        return False
    if (pid := os.fork()) == 0:
        sock.close()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _guard(descriptors[0], descriptors[1], settings)
    guards.add(pid)
    for descriptor in descriptors:
        os.close(descriptor)
    return True


def _reap(guards: set[int]) -> None:
    """Forget guards that have ended, and end what a guard that was killed has left."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            guards.discard(ended)
    everybody = set(descendants(os.getpid()))  # before the rest: a guard may fork meanwhile
    guarded = {pid for guard in guards for pid in descendants(guard)}
    for pid in everybody - guards - guarded:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _guard(channel: int, control: int, settings: Settings) -> None:
    """Start the student's process and watch it; never returns."""
    try:
        contain.adopt_orphans()
        changes = settings.contained or settings.changes_user
        who = contain.rights() if changes else contain.own_rights()
        with _working_folder(settings, who) as folder:
            seen = _folders() if settings.contained else []
            if settings.contained:
                contain.leave_users_and_pids()
            if (pid := os.fork()) == 0:
                os.close(control)
                os.chdir(folder)
                _be_student(channel, settings, seen, who)
            os.close(channel)
            with socket.socket(fileno=control) as sock:
                sock.sendall(json.dumps({"pid": pid}).encode() + b"\n")
                Guard(pid, who, sock, settings.limits).watch()
    except Exception:  # a mistake of ours: the grader's terminal shows it
        traceback.print_exc()
    finally:
        os._exit(0)


@contextlib.contextmanager
def _working_folder(settings: Settings, who: contain.Rights) -> Iterator[str]:
    """Where a student's files go: what is contained has a file system of its own for them."""
    if settings.contained:
        yield "/"
        return
    with tempfile.TemporaryDirectory(prefix="course-", ignore_cleanup_errors=True) as folder:
        os.chown(folder, who.user, who.group)
        yield folder


def _be_student(channel: int, settings: Settings, folders: list[str], who: contain.Rights) -> None:
    """Become a process that may do nothing but answer; never returns."""
    try:
        sock = _alone_with(channel)
        try:
            _confine(settings, folders, who)
        except Exception as error:  # no student's code has run yet: this is ours to tell
            _refuse(sock, f"{type(error).__name__}: {error}")
        from .worker import run

        run(sock)
    finally:
        os._exit(0)


def _alone_with(channel: int) -> socket.socket:
    os.setsid()
    os.dup2(0, 2)
    os.dup2(channel, 3)
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    return socket.socket(fileno=3)


def _confine(settings: Settings, folders: list[str], who: contain.Rights) -> None:
    limits = settings.limits
    sizes = {
        "memory_bytes": limits.memory_bytes,
        "cpu_seconds": limits.cpu_seconds + 1,  # the guard, which says why, comes first
        "file_bytes": limits.disk_bytes,
        "processes": limits.processes,
        "open_files": limits.open_files,
    }
    os.environ.clear()
    home = "/tmp" if settings.contained else os.getcwd()
    os.environ.update(HOME=home, TMPDIR=home, LANG="C.UTF-8", MPLBACKEND="agg")
    if settings.contained:
        address = contain.address_space()
        contain.contain(folders, limits.disk_bytes, who)
        contain.limit(**sizes, base_bytes=address)
        return
    contain.become(who)
    contain.limit(**sizes, base_bytes=contain.address_space())
    contain.die_with_parent()


def _refuse(sock: socket.socket, why: str) -> None:
    from .protocol import Channel

    Channel(sock).send({"failed": why})
    os._exit(0)


def _folders() -> list[str]:
    """What a student's process has to read: Python, its packages, and mini_attention."""
    import mini_attention

    paths = sysconfig.get_paths()
    libraries = [paths["stdlib"], paths["platstdlib"], str(Path(sys.base_prefix, "lib"))]
    packages = [paths["purelib"], paths["platlib"], *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        packages.append(site.getusersitepackages())
    loaded = [sys.modules[name] for name in ("torch", "numpy", "einops") if name in sys.modules]
    files = [str(module.__file__) for module in (mini_attention, *loaded)]
    return [*libraries, *packages, *(os.path.dirname(file) for file in files)]
