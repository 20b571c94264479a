"""Linux namespaces and limits around a process, from the standard library alone.

A contained process sees a small read-only part of the files, no network and no process but its
own; it has no rights, can't get any, and can't use the system calls that no answer needs.

Run as a script, this file says whether the system allows all of that: nothing, or why not.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import secrets
import signal
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
NEW_MOUNTS, NEW_USERS, NEW_PIDS = 0x20000, 0x10000000, 0x20000000
_NEW_NAMES, _NEW_QUEUES, _NEW_NETWORK, _NEW_CGROUPS = 0x4000000, 0x8000000, 0x40000000, 0x2000000
_READ_ONLY, _NO_SUID, _NO_DEVICES, _REMOUNT, _BIND = 1, 2, 4, 32, 4096
_RECURSIVE, _PRIVATE, _DETACH = 16384, 1 << 18, 2
_NO_NEW_RIGHTS, _SECCOMP, _SUBREAPER, _PARENT_DEATH, _DUMPABLE = 38, 22, 36, 1, 4
_DEVICES = ("null", "zero", "full", "random", "urandom")
_SYSTEM = ("/lib", "/lib64", "/lib32", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")

# Numbers of system calls on the two machines that are known here.
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_PIVOT_ROOT, _CLONE, _SOCKET = (155, 41), (56, 220), (41, 198)
_CLONE3, _MOUNT_SETATTR = 435, 442
_REFUSED = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "kcmp": (312, 272), "pidfd_getfd": (438, 438), "perf_event_open": (298, 241),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": _PIVOT_ROOT, "chroot": (161, 51),
    "unshare": (272, 97), "setns": (308, 268), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    # Memory that belongs to no process is not counted in any.
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194),
    "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "bpf": (321, 280),
    "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "kexec_load": (246, 104), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "swapon": (167, 224),
    "reboot": (169, 142), "acct": (163, 89), "quotactl": (179, 60), "syslog": (103, 116),
    "personality": (135, 92),
}  # fmt: skip


@dataclass(frozen=True)
class Rights:
    """Who the student's process is: another user where we are root, ourselves otherwise."""

    user: int
    group: int


def own_rights() -> Rights:
    return Rights(os.getuid(), os.getgid())


def rights() -> Rights:
    """An unused number of a user where we are root: root has no limit on processes."""
    if os.getuid():
        return own_rights()
    nobody = 65534
    number = 2_000_000_000 + secrets.randbelow(100_000_000)  # no order can be read from it
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/uid_map").read_text().splitlines():
            first, _, count = map(int, line.split())
            if first <= number < first + count:
                return Rights(number, number)
    return Rights(nobody, nobody)


# In the process that stays outside


def leave_users_and_pids() -> None:
    """Unshare what a child of this process will be born into."""
    if os.getuid() == 0:
        _unshare(NEW_PIDS)
        return
    user, group = os.getuid(), os.getgid()
    _unshare(NEW_USERS | NEW_PIDS)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def adopt_orphans() -> None:
    """Become the parent of all descendants that lose theirs (Linux)."""
    if sys.platform == "linux":
        _LIBC.prctl(_SUBREAPER, 1, 0, 0, 0)


# In the student's process


def contain(folders: Iterable[str], disk_bytes: int, who: Rights) -> None:
    """Leave all that is outside; only these folders and files remain, and a small /tmp."""
    _unshare(NEW_MOUNTS | _NEW_NAMES | _NEW_QUEUES | _NEW_NETWORK | _NEW_CGROUPS)
    _mount(None, "/", None, _RECURSIVE | _PRIVATE)
    root = "/proc"  # nothing that we need lies below it
    _mount("tmpfs", root, "tmpfs", _NO_SUID | _NO_DEVICES, "size=4m,mode=755")
    os.mkdir(f"{root}/tmp")
    sizes = f"size={disk_bytes},nr_inodes=4096,mode=1777"
    _mount("tmpfs", f"{root}/tmp", "tmpfs", _NO_SUID | _NO_DEVICES, sizes)
    for folder in _outermost([*_SYSTEM, *folders]):  # after /tmp, where one may lie
        _show(folder, root)
    for device in _DEVICES:
        _show(f"/dev/{device}", root, device=True)
    os.chdir(root)
    _check(_LIBC.syscall(_number(_PIVOT_ROOT), b".", b"."), "pivot_root")
    _check(_LIBC.umount2(b".", _DETACH), "umount")
    _mount(None, "/", None, _REMOUNT | _BIND | _READ_ONLY | _NO_SUID | _NO_DEVICES)
    os.chdir("/tmp")
    become(who)
    _drop_capabilities()
    _LIBC.prctl(_PARENT_DEATH, signal.SIGKILL, 0, 0, 0)
    _check(_LIBC.prctl(_NO_NEW_RIGHTS, 1, 0, 0, 0), "no_new_privs")
    _refuse_calls()


def become(who: Rights) -> None:
    if who != own_rights():
        os.setgroups([])
        os.setresgid(who.group, who.group, who.group)
        os.setresuid(who.user, who.user, who.user)


def can_read(who: Rights, paths: Iterable[str]) -> bool:
    """Whether that user could read these files: tried in a process of its own."""
    if (pid := os.fork()) == 0:
        try:
            become(who)
            for path in paths:
                open(path, "rb").close()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def limit_memory_of(pid: int, who: Rights, most: int) -> bool:
    """Lower the limit of that user's process, which can't raise it again.

    It is done in the user's name: root may lack the right to do it to others.
    """
    if not hasattr(resource, "prlimit"):
        return False
    ourselves = own_rights()
    os.setresgid(who.group, -1, -1)
    os.setresuid(who.user, -1, -1)
    try:
        resource.prlimit(pid, resource.RLIMIT_AS, (most, most))
    except OSError:
        return False
    finally:
        os.setresuid(ourselves.user, -1, -1)
        os.setresgid(ourselves.group, -1, -1)
    return True


def die_with_parent() -> None:
    if sys.platform == "linux":
        _LIBC.prctl(_PARENT_DEATH, signal.SIGKILL, 0, 0, 0)
        _LIBC.prctl(_DUMPABLE, 1, 0, 0, 0)


def limit(
    *,
    base_bytes: int,
    memory_bytes: int,
    cpu_seconds: int,
    file_bytes: int,
    processes: int,
    open_files: int,
) -> None:
    """Limits that the kernel keeps for this process and for each that it starts.

    Memory is counted beyond the address space that the process begins with.
    """
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: cpu_seconds,
        resource.RLIMIT_FSIZE: file_bytes,
        resource.RLIMIT_NPROC: processes,
        resource.RLIMIT_NOFILE: open_files,
        resource.RLIMIT_AS: base_bytes + memory_bytes,
    }
    for kind, most in wanted.items():
        hard = resource.getrlimit(kind)[1]
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with contextlib.suppress(OSError, ValueError):  # macOS knows some by name only
            resource.setrlimit(kind, (value, value))


def address_space(pid: int | str = "self") -> int:
    """The bytes of a process's address space, 0 where the system does not tell."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    except OSError:
        return 0
    return pages * resource.getpagesize()


def trim() -> None:
    """Give memory that is free, but kept for later, back to the system (glibc)."""
    with contextlib.suppress(AttributeError):
        _LIBC.malloc_trim(0)


# The pieces


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def _unshare(flags: int) -> None:
    _check(_LIBC.unshare(flags), "unshare")


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    _check(_LIBC.mount(*texts, ctypes.c_ulong(flags), data.encode() or None), f"mount {target}")


def _number(numbers: tuple[int, int]) -> int:
    return numbers[_ARCHITECTURES[platform.machine()][1]]


def _outermost(folders: Iterable[str]) -> list[str]:
    """Without those that lie in another of them, or that are not there."""
    paths = dict.fromkeys(os.path.abspath(folder) for folder in folders if os.path.exists(folder))
    return [
        path for path in paths
        if not any(path != other and path.startswith(other + "/") for other in paths
                   if not os.path.islink(other))
    ]  # fmt: skip


def _show(source: str, root: str, *, device: bool = False) -> None:
    """Let a file or folder be seen, read-only, at the same place."""
    target = root + source
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(source) and source in _SYSTEM:
        os.symlink(os.readlink(source), target)
        return
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.close(os.open(target, os.O_CREAT, 0o644))
    _mount(source, target, None, _BIND | _RECURSIVE)
    _read_only(target, _READ_ONLY | _NO_SUID | (0 if device else _NO_DEVICES))


def _read_only(target: str, flags: int) -> None:
    """With everything that is mounted below; older kernels can do the top alone."""
    attributes = struct.pack("QQQQ", flags, 0, 0, 0)  # these three flags have the same numbers
    at_recursive, at_cwd = 0x8000, -100
    result = _LIBC.syscall(
        _MOUNT_SETATTR, at_cwd, os.fsencode(target), at_recursive, attributes, len(attributes)
    )
    if result != 0:
        kept = os.statvfs(target).f_flag & (2 | 4 | 8 | 1024 | 2048)  # what may not be taken off
        renamed = kept | ((os.statvfs(target).f_flag & 4096) << 9)  # relatime
        _mount(None, target, None, _REMOUNT | _BIND | flags | (renamed & ~4096))


def _drop_capabilities() -> None:
    version = 0x20080522
    header = struct.pack("Ii", version, 0)
    _check(_LIBC.capset(header, bytes(24)), "capset")


def _refuse_calls() -> None:
    """A seccomp filter: what no answer needs fails, as if it were not permitted."""
    load, jump_equal, jump_set, jump_least, give = 0x20, 0x15, 0x45, 0x35, 0x06
    allow, kill, error = 0x7FFF0000, 0x80000000, 0x50000
    not_permitted, not_implemented, no_family = error | 1, error | 38, error | 97
    architecture, _ = _ARCHITECTURES[platform.machine()]
    namespaces = (
        NEW_MOUNTS | NEW_USERS | NEW_PIDS | _NEW_NAMES | _NEW_QUEUES | _NEW_NETWORK | _NEW_CGROUPS
    )
    unix_and_internet = (1, 2, 10)
    program = [(load, 0, 0, 4), (jump_equal, 1, 0, architecture), (give, 0, 0, kill)]
    program += [(load, 0, 0, 0), (jump_least, 0, 1, 0x40000000), (give, 0, 0, not_permitted)]
    for numbers in _REFUSED.values():
        program += [(jump_equal, 0, 1, _number(numbers)), (give, 0, 0, not_permitted)]
    program += [(jump_equal, 0, 1, _CLONE3), (give, 0, 0, not_implemented)]  # then it is clone
    program += [(jump_equal, 0, 4, _number(_CLONE)), (load, 0, 0, 16)]
    program += [(jump_set, 0, 1, namespaces), (give, 0, 0, not_permitted), (give, 0, 0, allow)]
    program += [(jump_equal, 0, len(unix_and_internet) + 2, _number(_SOCKET)), (load, 0, 0, 16)]
    for left, family in reversed(list(enumerate(unix_and_internet))):
        program += [(jump_equal, left + 1, 0, family)]
    program += [(give, 0, 0, no_family), (give, 0, 0, allow)]
    code = b"".join(struct.pack("HBBI", *line) for line in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    whole = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(buffer))
    _check(_LIBC.prctl(_SECCOMP, 2, whole, 0, 0), "seccomp")


def _probe() -> str:
    """Do it in a process of its own: nothing where it works, else what was refused."""
    if sys.platform != "linux":
        return "it needs Linux"
    if platform.machine() not in _ARCHITECTURES:
        return f"the system calls of {platform.machine()} are not known here"
    read, write = os.pipe()
    if (outside := os.fork()) == 0:
        try:
            who = rights()
            leave_users_and_pids()
            if os.fork() == 0:
                contain([], 2**20, who)
                os.write(write, b"works")
                os._exit(0)
            os.wait()
        except OSError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(outside, 0)
    said = os.read(read, 1000).decode()
    return "" if said == "works" else said or "the process ended"


if __name__ == "__main__":
    print(_probe())
