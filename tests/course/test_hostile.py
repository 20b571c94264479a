"""What a submission may try: it earns nothing, and harms nobody.

Every test is a submission's cells, run as any submission's, at both levels; those that ask for
`contained` hold there alone, as `PROMISES` says.
"""

import builtins
import contextlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from course.sandbox import (
    Limits,
    RemoteStudent,
    Sandbox,
    Stopped,
    contain,
    level,
    why_not_contained,
)
from course.sandbox.guard import descendants
from mini_attention import check_attention, check_multi_head
from mini_attention.checks import CheckFailed

MIB = 2**20
SECRET = "secret-" + secrets.token_hex(8)
LIMITS = Limits(
    wall_seconds=20, cpu_seconds=30, memory_bytes=512 * MIB, disk_bytes=16 * MIB, processes=16,
    answer_bytes=16 * MIB, text_bytes=MIB,
)  # fmt: skip
WRONG = """
import torch
def attention(query, key, value, mask=None):
    return value.mean(-2, keepdim=True).expand(*query.shape[:-1], value.shape[-1])
"""
HONEST = "import torch\ndef double(x): return 2 * x"


@dataclass
class Hasty:
    """The same sandbox for what does not end by itself."""

    sandbox: Sandbox
    limits: Limits

    def student(self, cells):
        return RemoteStudent(self, cells)

    def fork(self, channel, control):
        self.sandbox.fork(channel, control)


LEVELS = ["contained", "limited"]
# For what is tried in many ways, and does not meet the level: the other one is for `make full`.
MOSTLY_HERE = pytest.mark.parametrize(
    "sandbox",
    [
        pytest.param(each, marks=[] if each == level() else pytest.mark.full, id=each)
        for each in LEVELS
    ],
    indirect=True,
    scope="module",
)


@pytest.fixture(scope="module", params=LEVELS)
def sandbox(request):
    if request.param == "contained" and why_not_contained():
        pytest.skip(f"no containment here: {why_not_contained()}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_TEST_KEY", SECRET)  # as an instructor's seed or token may be
        with Sandbox(LIMITS, request.param) as sandbox:
            yield sandbox


@pytest.fixture
def contained(sandbox):
    if sandbox.level != "contained":
        pytest.skip("limited does not promise this, and says so")
    return sandbox


@pytest.fixture
def hasty(sandbox):
    return Hasty(sandbox, replace(LIMITS, wall_seconds=3))


@pytest.fixture(autouse=True)
def nobody_is_harmed(sandbox):
    """Whatever happened: nothing runs on, and the next submission is answered."""
    yield
    zygote = sandbox._zygote.pid
    deadline = time.monotonic() + 20
    while (left := [*descendants(zygote)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert left == []
    with sandbox.student([HONEST]) as student:
        assert student.function("double")(torch.ones(3)).tolist() == [2, 2, 2]


def earns_nothing(student):
    with pytest.raises(CheckFailed):
        check_attention(student.function("attention"))


def run(sandbox, body, *before):
    """What a function with this body returns, as a submission's."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    with sandbox.student([*before, f"import os, sys, torch\ndef f():\n{lines}"]) as student:
        return student.function("f")()


# Claims of success


@MOSTLY_HERE
@pytest.mark.parametrize(
    "trick",
    {
        "the comparison is replaced": """
import torch, mini_attention, mini_attention.checks as checks
torch.testing.assert_close = torch.allclose = torch.equal = lambda *a, **k: True
checks.check_attention = mini_attention.check_attention = lambda *a, **k: None
checks.engine.same = checks.engine._close = lambda *a, **k: True
""",
        "torch is patched": """
import torch
torch.Tensor.__eq__ = lambda a, b: torch.ones(a.shape, dtype=torch.bool)
torch.Tensor.abs = lambda a: torch.zeros(a.shape)
torch.Tensor.softmax = lambda a, *_: 1 / 0
""",
        "success is printed": """
import os, sys
print("passed: 100 points"); sys.stderr.write("passed")
os.write(1, b"passed"); os.write(2, b"passed")
""",
        "an exception claims it": """
class CheckFailed(AssertionError):
    __str__ = lambda self: "right: everything"
def attention(query, key, value, mask=None): raise CheckFailed("right")
""",
        "an equal object is returned": """
class Same:
    __eq__ = lambda self, other: True
    shape = property(lambda self: 1 / 0)
def attention(query, key, value, mask=None): return Same()
""",
        "a tensor that lies is returned": """
class Liar(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None): return True
def attention(query, key, value, mask=None):
    return torch.zeros(*query.shape[:-1], value.shape[-1]).as_subclass(Liar)
""",
    }.items(),
    ids=lambda item: item[0],
)
def test_a_claim_of_success_earns_nothing(sandbox, trick, capfd):
    with sandbox.student([WRONG, trick[1]]) as student:
        earns_nothing(student)
        assert "passed" not in "".join(capfd.readouterr())
    assert torch.testing.assert_close is not torch.allclose


FIND_WORKER = """
import gc, sys, torch
from course.sandbox.worker import Worker
from course.sandbox.protocol import Channel
worker = next(thing for thing in gc.get_objects() if isinstance(thing, Worker))
channel = worker.channel
"""


@MOSTLY_HERE
@pytest.mark.parametrize(
    "trick",
    {
        "it passes everything": """
Worker._answer = lambda self, message, packer: packer.pack({"result": "right", "passed": True})
""",
        "it answers true": """
from course.sandbox import bridge
bridge.answer = lambda f, m, packer, **k: packer.pack({"result": True, "changed": {}})
""",
        "it lets the input be the output": """
def everything(self, question): return question["arguments"]
Worker.do_call = everything
""",
        "it asks for the answer": """
def ask(self, message, packer):
    self.channel.send({"program": 0, "arguments": (), "named": {}, "question": self.question})
    return packer.pack({"result": self.channel.receive().get(), "changed": {}})
Worker._answer = ask
""",
    }.items(),
    ids=lambda item: item[0],
)
def test_a_worker_that_was_rewritten_earns_nothing(sandbox, trick):
    with sandbox.student([WRONG, FIND_WORKER + trick[1]]) as student, pytest.raises(CheckFailed):
        check_attention(student.function("attention"))


def test_frames_objects_and_environment_hold_no_expected_value(sandbox):
    expected = SECRET  # as a grader holds its answers
    body = """
import gc
frame, seen = sys._getframe(), []
while frame:
    seen += [repr(x)[:2000] for x in frame.f_locals.values()]
    frame = frame.f_back
for thing in gc.get_objects():
    if isinstance(thing, dict) and len(thing) < 1000:
        seen += [x for x in [*thing.values()] if isinstance(x, str)]
seen += [*os.environ.values(), *sys.argv]
graders = [x for x in sys.modules if x.startswith(("course.assignments", "course.grading"))]
return seen, graders
"""
    seen, graders = run(sandbox, body)
    assert [text for text in seen if expected in text] == []
    assert graders == []


def test_a_solution_of_another_submission_is_not_in_memory(sandbox):
    with sandbox.student(["answer = 'of-another-' + 'submission'"]) as first:
        assert first.value("answer") == "of-another-submission"
        found = run(sandbox, "import gc\nreturn [x for x in map(repr, gc.get_objects()) "
                             "if 'another-' + 'sub' in x and 'gc.get' not in x]")  # fmt: skip
    assert found == []


# Ends and endlessness


@pytest.mark.parametrize(
    "body",
    [
        "os._exit(0)",
        "os.abort()",
        "import ctypes; ctypes.string_at(0)",
        "sys.settrace(lambda *a: os._exit(0)); return torch.ones(2)",
        "os.close(3); os.dup2(0, 3); return 1",
        "[os.close(n) for n in range(3, 100)]",
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\n    while True: pass",
    ],
)
def test_an_end_of_the_process_is_a_failed_answer(hasty, body):
    with hasty.student([WRONG, f"import os, sys, torch\ndef f():\n    {body}"]) as student:
        with contextlib.suppress(OSError, RuntimeError), pytest.raises(Stopped):
            student.function("f")()
        earns_nothing(student)


STUBBORN = """
import signal, time
for number in range(1, 65):
    try: signal.signal(number, lambda *a: stay())
    except (OSError, ValueError): pass
def stay():
    while True: pass
"""


ENDLESS = [
    "while True: pass",
    "import time; time.sleep(10**6)",
    "stay()",
    "signal.raise_signal(signal.SIGTERM)",
    "import threading; e = threading.Event(); e.wait()",
    "try:\n        while True: pass\n    finally:\n        while True: pass",
    "while True:\n        try: time.sleep(1)\n        except BaseException: pass",
    "while True: print('x' * 10**6, flush=True)",
]


def test_what_does_not_end_is_ended(hasty):
    """All at once: the limit of each of them has to be waited for."""

    def outcome(function):
        with pytest.raises(Stopped) as stopped:
            function()
        return str(stopped.value)

    with contextlib.ExitStack() as stack:
        cells = [[STUBBORN, f"def f():\n    {body}"] for body in ENDLESS]
        students = [stack.enter_context(hasty.student(each)) for each in cells]
        functions = [student.function("f") for student in students]
        with ThreadPoolExecutor(len(functions)) as pool:
            outcomes = dict(zip(ENDLESS, pool.map(outcome, functions), strict=True))
    told = "f did not end within 3 seconds"
    assert {body: said for body, said in outcomes.items() if told not in said} == {}


def test_an_endless_cell_costs_itself_alone(hasty):
    with hasty.student([HONEST, STUBBORN + "\nstay()"]) as student:
        assert student.function("double")(torch.ones(2)).tolist() == [2, 2]
        assert list(student.errors) == [2]


@MOSTLY_HERE
def test_computing_is_limited_whatever_the_wall_clock_says(sandbox):
    limits = replace(LIMITS, wall_seconds=60, cpu_seconds=2)
    with (
        Sandbox(limits, sandbox.level) as short,
        short.student(["def f():\n    while True: pass"]) as student,
        pytest.raises(Stopped, match="f computes for longer than 2 seconds"),
    ):
        student.function("f")()


# Memory, processes and files


@pytest.mark.parametrize(
    "body",
    [
        "return torch.ones(50 * 2**30 // 4).sum()",
        "return len(bytearray(50 * 2**30))",
        "x = []\nwhile True: x.append(bytearray(10_000))",
        "x = []\nwhile True: x.append(torch.ones(1000))",
        "x = 'x'\nwhile True: x += x",
        "import mmap\nx = mmap.mmap(-1, 50 * 2**30)",
    ],
)
def test_memory_is_limited(sandbox, body):
    with pytest.raises((Stopped, OSError)) as failure:
        run(sandbox, body)
    assert any(word in str(failure.value) for word in ("memory", "ended its process"))


def test_memory_of_many_processes_is_limited_together(contained):
    body = """
import time
for _ in range(8):
    if os.fork() == 0:
        x = bytearray(300 * 2**20)
        time.sleep(1000)
time.sleep(1000)
"""
    with pytest.raises(Stopped, match="needs more memory than the 512 MiB"):
        run(contained, body)


FORK_BOMB = """
import os
count = 0
try:
    while count < 3000:
        if os.fork() == 0:
            import time
            time.sleep(1000)
        count += 1
except OSError:
    pass
"""


def test_a_fork_bomb_is_stopped_at_the_limit(contained):
    with contained.student([FORK_BOMB]) as student:
        assert student.value("count") < LIMITS.processes


def test_threads_are_stopped_at_the_limit(contained):
    body = """
import threading
stop, count = threading.Event(), 0
try:
    while count < 3000:
        threading.Thread(target=stop.wait, daemon=True).start()
        count += 1
except RuntimeError:
    pass
return count
"""
    assert run(contained, body) < LIMITS.processes


def test_a_bomb_that_forks_for_ever_ends_with_its_submission(hasty, sandbox):
    if sandbox.level == "limited" and os.getuid() == 0:
        pytest.skip("root has no limit on processes: limited says so")
    bomb = (
        "import os\ndef f():\n    while True:\n        try: os.fork()\n        except OSError: pass"
    )
    with hasty.student([HONEST, bomb]) as student:
        with pytest.raises(Stopped):
            student.function("f")()
        assert student.function("double")(torch.ones(2)).tolist() == [2, 2]


def test_daemons_end_with_their_submission(sandbox):
    cell = """
import os, time, threading
def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
for _ in range(3):
    daemon()
threading.Thread(target=time.sleep, args=[1000], daemon=True).start()
x = 1
"""
    with sandbox.student([cell]) as student:
        assert student.value("x") == 1
        assert len([*descendants(sandbox._zygote.pid)]) > 3


def test_a_daemon_that_answers_for_its_parent_is_ended_too(hasty, sandbox):
    cell = "import os, time\ndef f():\n    if os.fork(): os._exit(0)\n    time.sleep(1000)"
    with (
        hasty.student([cell]) as student,
        pytest.raises(Stopped),
    ):
        student.function("f")()


def test_a_huge_file_is_not_written(sandbox):
    body = """
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
count = 0
with open("huge", "wb") as file:
    try:
        while count < 4096:
            file.write(bytes(2**20)); file.flush()
            count += 1
    except OSError:
        pass
return count
"""
    assert run(sandbox, body) <= 16


def test_many_files_are_not_written(contained):
    body = """
count = 0
try:
    while count < 10**5:
        open(f"/tmp/{count}", "w").close()
        count += 1
except OSError:
    pass
return count
"""
    assert run(contained, body) < 5000


def test_memory_that_belongs_to_no_process_can_not_be_had(contained):
    body = """
found = []
try: os.memfd_create("x")
except OSError: found.append("memfd")
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
if libc.shmget(0, 2**30, 0o1600) < 0: found.append("shm")
return found
"""
    assert run(contained, body) == ["memfd", "shm"]


@MOSTLY_HERE
@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return torch.ones(2**23)", "f gives an answer of 32 MiB: too much"),
        ("return 'x' * 2**21", "too much"),
        ("return list(range(10**6))", "too much"),
        ("return torch.ones(1).expand(2**40)", "memory"),
    ],
)
def test_a_huge_answer_is_not_taken(sandbox, body, says):
    with pytest.raises(Stopped, match=says):
        run(sandbox, body)


# Files, other submissions, the network, other processes


def test_nothing_of_the_grader_can_be_read(contained, tmp_path):
    other = tmp_path / "s02.ipynb"
    other.write_text("the work of another")
    here = Path(__file__).resolve()
    root = here.parents[2]
    home = Path.home()
    paths = [other, here, root / "course", root / "book", root / "tests", root / ".git",
             root / "README.md", root / "pyproject.toml", home / ".bashrc", home / ".ssh",
             "/etc/passwd", "/etc/hostname", "/home", "/var", "/run", "/sys", "/usr/bin",
             "/proc/self/environ", "/proc/1/environ", "/dev/shm", "/dev/mem"]  # fmt: skip
    texts = [*map(str, paths)]
    found = run(contained, f"return [p for p in {texts} if os.path.exists(p)]")
    assert found == []


def test_the_package_alone_is_there_of_the_repository(contained):
    root = str(Path(__file__).resolve().parents[2])
    assert run(contained, f"return sorted(os.listdir({root!r}))") in (
        ["mini_attention"],
        [".venv", "mini_attention"],
    )


SHOWN = """
import os, sys
sys.path[:0] = [sys.argv[1]]
import contain
who = contain.rights()
contain.leave_users_and_pids()
if os.fork() == 0:
    contain.contain([sys.argv[2]], 2**20, who)
    print(os.listdir(sys.argv[2]), os.listdir("/tmp"), flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.skipif(bool(why_not_contained()), reason="no containment here")
def test_a_repository_may_lie_in_the_folder_for_temporary_files():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        Path(folder, "course.txt").write_text("")
        command = [sys.executable, "-I", "-c", SHOWN, str(Path(contain.__file__).parent), folder]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        said = f"['course.txt'] ['{Path(folder).name}']\n"
    assert (shown.stdout, shown.stderr) == (said, "")


def test_two_submissions_share_no_folder(contained):
    with contained.student(["open('/tmp/note', 'w').write('psst')"]):
        assert run(contained, "return os.path.exists('/tmp/note')") is False


def test_nothing_is_written_outside_of_its_own_folder(contained, tmp_path):
    target = tmp_path / "grades.csv"
    target.write_text("s01,0")
    body = f"""
found = []
for path in [{str(target)!r}, torch.__file__, os.__file__, "/x", "/dev/x", "/etc/x"]:
    try:
        with open(path, "a") as file: file.write("s01,100")
        found.append(path)
    except OSError:
        pass
return found
"""
    assert run(contained, body) == []
    assert target.read_text() == "s01,0"


def test_the_working_folder_is_gone_afterwards(sandbox):
    folder = run(sandbox, "open('x', 'w').close()\nreturn os.getcwd()")
    deadline = time.monotonic() + 20
    while (left := folder != "/tmp" and os.path.exists(folder)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left


@contextlib.contextmanager
def listener():
    """A server of the grader's machine, and who has called it."""
    calls = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    calls.append(server.accept()[0])

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield server.getsockname()[1], calls
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for call in calls:
                call.close()


def test_the_network_is_out_of_reach(contained):
    with listener() as (port, calls):
        body = f"""
import socket
def reach(family, address):
    try:
        with socket.socket(family) as sock:
            sock.settimeout(2)
            sock.connect(address)
        return True
    except OSError:
        return False
return [
    reach(socket.AF_INET, ("127.0.0.1", {port})), reach(socket.AF_INET, ("1.1.1.1", 53)),
    reach(socket.AF_INET6, ("::1", {port})), reach(socket.AF_UNIX, "/run/docker.sock"),
    reach(socket.AF_UNIX, "\\0/tmp/.X11-unix/X0"), reach(40, (2, 1)),
]
"""
        assert run(contained, body) == [False] * 6
        assert calls == []


def test_no_process_outside_can_be_killed(contained):
    body = f"""
import signal
reached = []
for pid in [os.getppid(), {os.getpid()}, {contained._zygote.pid}, *range(2, 3000)]:
    try:
        os.kill(pid, signal.SIGKILL)
        reached.append(pid)
    except OSError:
        pass
return reached, os.getpid(), os.getppid()
"""
    reached, pid, parent = run(contained, body)
    assert (pid, parent) == (1, 0)
    assert [n for n in reached if n != 0] == []  # 0 is its own group


def test_all_that_it_can_kill_is_itself(contained):
    cell = "import os\ndef f():\n    for pid in (-1, 0, 1): os.kill(pid, 9)"
    with contained.student([HONEST, cell]) as student:
        with contextlib.suppress(Stopped, OSError):
            student.function("f")()
        assert student.function("double")(torch.ones(2)).tolist() == [2, 2]


@pytest.mark.parametrize(
    "call",
    [
        "libc.ptrace(16, os.getppid() or 1, 0, 0)",
        "libc.unshare(0x10000000)",
        "libc.mount(b'none', b'/tmp', b'tmpfs', 0, 0)",
        "libc.umount2(b'/tmp', 2)",
        "libc.chroot(b'/tmp')",
        "libc.setns(0, 0)",
        "libc.setuid(0)",
        "libc.setgid(0)",
        "libc.process_vm_readv(1, 0, 0, 0, 0, 0)",
        "libc.syscall(425, 1, 0)",
        "libc.syscall(321, 0, 0, 0)",
        "libc.syscall(435, 0, 0)",
        "libc.syscall(56, 0x10000011, 0, 0, 0, 0)",
    ],
)
def test_no_right_can_be_had_and_no_process_looked_into(contained, call):
    body = f"import ctypes; libc = ctypes.CDLL(None, use_errno=True); return {call}"
    assert run(contained, body) == -1


def test_it_has_no_capability_and_can_get_none(contained):
    body = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
header, data = (ctypes.c_uint * 2)(0x20080522, 0), (ctypes.c_uint * 6)()
libc.capget(header, data)
return list(data), libc.prctl(39, 0, 0, 0, 0), os.getuid() == 0
"""
    assert run(contained, body) == ([0] * 6, 1, False)


def test_no_descriptor_but_its_own_channel_is_open(sandbox):
    body = """
found = []
for number in range(3, 1000):
    try:
        os.fstat(number)
        found.append(number)
    except OSError:
        pass
return found
"""
    assert run(sandbox, body) == [3]


# Messages that no worker sends


RAW = """
import json, os, socket, struct, torch
def send(text, body=b""):
    text = text if isinstance(text, bytes) else json.dumps(text).encode()
    os.write(3, struct.pack(">IQ", len(text), len(body)) + text + body)
def number():
    import gc
    from course.sandbox.worker import Worker
    return next(x for x in gc.get_objects() if isinstance(x, Worker)).question
def reply(result, arrays=(), body=b"", **more):
    pairs = [["question", number()], ["result", result], ["changed", {"dict": []}]]
    pairs += [[k, v] for k, v in more.items()]
    send({"m": {"dict": pairs}, "a": list(arrays)}, body)
"""


@MOSTLY_HERE
@pytest.mark.parametrize(
    "body",
    [
        "os.write(3, b'garbage' * 100)",
        "send(b'{not json')",
        "send(b'[' * 10**5)",
        "send(b'{\"m\":' + b'[' * 10**5 + b']' * 10**5 + b',\"a\":[]}')",
        "send({'m': 1, 'a': []})",
        "send({'m': {'dict': []}, 'a': []})",
        "send({'m': {'dict': [['question', 0], ['result', 1]]}, 'a': []})",
        'send(b\'{"m": NaN, "a": Infinity}\')',
        "os.write(3, struct.pack('>IQ', 2**32 - 1, 2**63))",
        "os.write(3, struct.pack('>IQ', 10, 2**60))",
        "reply({'tensor': 5})",
        "reply({'pickle': 'cos\\nsystem'})",
        "reply({'own': 'f'})",
        "reply({'program': 0})",
        "reply({'tensor': 0}, [['float32', [2**40 - 1, 2**40 - 1], 0, None]])",
        "reply({'tensor': 0}, [['float32', [1000, 1000], 0, [[0, 1], [0, 1]]]], bytes(16))",
        "reply({'tensor': 0}, [['float32', [4], 0, None]], bytes(32))",
        "reply({'tensor': 0}, [['object', [2], 0, None]], bytes(16))",
        "reply(1, changed={'dict': [[0, {'tensor': 0}]]})",
        "reply(1, changed=3)",
        "reply(1, error={'list': []})",
        "reply(1, error={'dict': [['type', {'list': []}]]})",
        "reply(1, program={'list': []})",
        "reply(1, program=-1)",
        "reply(1, used={'dict': []})",
        "reply({'list': [float('nan')]})",
        "reply(10**300)",
    ],
)
def test_a_forged_message_costs_the_question_and_nothing_else(hasty, body):
    cells = [HONEST, WRONG, RAW, f"def f():\n    {body}\n    return 1"]
    with hasty.student(cells) as student:
        found = None
        with contextlib.suppress(Stopped, RuntimeError):
            found = student.function("f")()
        assert not isinstance(found, torch.Tensor)
        with contextlib.suppress(Stopped):  # a second message may wait to be found out
            student.function("double")(torch.ones(2))
        assert student.function("double")(torch.ones(2)).tolist() == [2, 2]
        earns_nothing(student)


def test_an_answer_to_a_question_that_was_not_asked_is_none(hasty):
    cells = [HONEST, RAW, "def f():\n    reply(1)\n    reply(2)\n    reply(3)\n    return 4"]
    with hasty.student(cells) as student:
        assert student.function("f")() == 1  # a student may answer as they like: once
        with pytest.raises(Stopped, match="nobody asked for it"):
            student.function("double")(torch.ones(2))
        assert student.function("double")(torch.ones(2)).tolist() == [2, 2]


@MOSTLY_HERE
@pytest.mark.parametrize(
    "told",
    [
        "{'list': [['x', 1, []]]}",
        "{'list': [{'list': ['x y', 1, {'list': []}]}]}",
        "{'list': [{'list': ['x', 99, {'list': []}]}]}",
        "{'list': [{'list': ['x', 1, {'list': []}]}, {'list': ['x', 1, {'list': []}]}]}",
        "5",
    ],
)
def test_a_forged_signature_is_told(hasty, told):
    about = (
        f"{{'dict': [['callable', True], ['module', True], ['type', ''], ['signature', {told}]]}}"
    )
    forged = (
        RAW
        + f"""
from course.sandbox.worker import Worker
Worker._answer = lambda self, message, packer: {{"dict": [["result", {about}]]}}
"""
    )
    with hasty.student([forged]) as student, pytest.raises(Stopped, match="what is no answer"):
        student.function("f")


@MOSTLY_HERE
@pytest.mark.parametrize(
    "part",
    [
        "{'name': 'a.b.c', 'linear': None, 'attributes': {}, 'training': True}",
        "{'name': 'forward', 'linear': None, 'attributes': {}, 'training': True}",
        "{'name': 'q_proj', 'linear': [10**9, 10**9, True], 'attributes': {}, 'training': True}",
        "{'name': 'q_proj', 'linear': ['x', 1, 1], 'attributes': {}, 'training': True}",
        "{'name': 'a', 'linear': None, 'attributes': [], 'training': True}",
        "{'name': 3}",
        "None",
    ],
)
def test_a_forged_module_is_told(hasty, part):
    cell = f"""
import torch
from torch import nn
from course.sandbox.worker import Worker
class MultiHead(nn.Module): pass
root = {{"name": "", "linear": None, "attributes": {{"eval": 3, "num_heads": 2}}, "training": True}}
Worker.do_make = lambda self, question: {{
    "parts": [root, {part}], "parameters": [], "buffers": [], "signature": None
}}
"""
    with hasty.student([cell]) as student, pytest.raises((Stopped, ValueError)):
        check_multi_head(student.module("MultiHead"))


def test_a_students_test_can_not_make_the_grader_compute_for_ever(hasty):
    cell = "import torch\ndef test_it(program):\n    while True: program(torch.ones(2, 3))"
    with (
        hasty.student([cell]) as student,
        pytest.raises(Stopped, match="test_it did not end within 3 seconds"),
    ):
        student.catches("test_it", lambda x: x)


def test_a_students_test_gets_plain_data_from_the_program(sandbox):
    cell = """
def test_it(program):
    import gc, inspect
    found = [program.__code__.co_filename, repr(program.__closure__)]
    found += [x for x in map(repr, gc.get_objects()) if "_".join(["no", "such", "secret"]) in x]
    assert False, "|".join(found)
"""

    def no_such_secret(x): return x  # fmt: skip

    with sandbox.student([cell]) as student:
        said = student.catches("test_it", no_such_secret)
    assert said.startswith("cell 1") or "worker.py" in said
    assert "no_such_secret" not in said
    assert "test_hostile" not in said


def test_the_compiler_can_be_crashed_in_the_students_process_alone(sandbox):
    cells = [
        HONEST,
        "x = " + "(" * 100_000,
        "y = " + "-" * 1_000_000 + "1",
        "z = \0",
        "w = '\ud800'",
    ]
    with sandbox.student(cells) as student:
        assert student.function("double")(torch.ones(2)).tolist() == [2, 2]
        assert {2, 4} <= set(student.errors)


def test_builtins_that_are_replaced_are_the_submissions_alone(sandbox):
    cell = "import builtins\nbuiltins.len = builtins.isinstance = lambda *a: 1 / 0\nx = 1"
    with sandbox.student([WRONG, cell]) as student, contextlib.suppress(Exception):
        earns_nothing(student)
    assert builtins.len("abc") == 3
