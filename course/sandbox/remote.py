"""A student's work as the grader sees it: functions and modules whose answers come from afar."""

from __future__ import annotations

import inspect
import json
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FunctionType
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from mini_attention.checks import CheckFailed

from ..model import Function, Missing
from . import bridge
from .errors import described, in_words, rebuilt
from .limits import MIB, Limits
from .parts import Built, build, read_about
from .protocol import Channel, Ended, Message, Packer, ProtocolError, TimeOut, TooLarge

Found = TypeVar("Found")
_START_SECONDS = 30.0  # for a process to begin: our own work, on a machine that may be busy
_SECONDS_TO_SAY_HOW = 2.0  # for its guard to notice that it has ended
_MOST_OF_A_PROGRAM = 2**16  # numbers in a question of a student's test
_LONGEST_AXIS = 256


class Stopped(CheckFailed):
    """A student's program used more than it may, ended its process, or sent what is no answer."""


class Forks(Protocol):
    """What starts a process that has these two ends of sockets, and no others."""

    limits: Limits

    def fork(self, channel: socket.socket, control: socket.socket) -> None: ...


class Process:
    """One process with a student's code, from its start to its end."""

    def __init__(self, sandbox: Forks) -> None:
        limits = sandbox.limits
        ours, theirs = socket.socketpair()
        self.control, guards = socket.socketpair()
        with theirs, guards:
            sandbox.fork(theirs, guards)
        ours.setblocking(False)
        self.channel = Channel(
            ours,
            most_text=limits.text_bytes,
            most_numbers=limits.answer_bytes,
            gone=self.control,
        )
        self.heard = b""
        self._begin()

    def _begin(self) -> None:
        self.pid = self._said().get("pid", 0)
        try:
            hello = self.channel.receive(time.monotonic() + _START_SECONDS).get()
        except (Ended, TimeOut):
            hello = {"failed": "it ended at once"}
        if "ready" not in hello:
            self.stop(ended=False)
            raise RuntimeError(f"a student's process could not be started: {hello['failed']}")

    def _said(self, seconds: float = _START_SECONDS) -> dict[str, Any]:
        """The next line of the guard; nothing when it has hung up, or does not answer."""
        try:
            self.control.settimeout(seconds)
            while b"\n" not in self.heard:
                if not (more := self.control.recv(1000)):
                    return {}
                self.heard += more
            line, _, self.heard = self.heard.partition(b"\n")
            return dict(json.loads(line))
        except OSError:
            return {}

    def allow(self, more_bytes: int) -> bool:
        """Let it take so many bytes beyond the present; False where the system can't."""
        self.control.sendall(json.dumps({"memory": more_bytes}).encode())
        return bool(self._said().get("able"))

    def stop(self, ended: bool) -> str:
        """End it and all that it has started; if it has ended by itself, say how."""
        said = self._said(_SECONDS_TO_SAY_HOW) if ended else {}
        self.channel.close()
        with suppress(OSError):
            self.control.shutdown(socket.SHUT_WR)
        while self._said():  # until the guard has hung up, and nothing is left
            pass
        self.control.close()
        return str(said.get("ended", ""))


class RemoteStudent:
    """See `course.model.Student`. Cells are counted from 1."""

    def __init__(self, sandbox: Forks, cells: Sequence[str], forbidden: Sequence[str] = ()) -> None:
        self.sandbox, self.limits = sandbox, sandbox.limits
        self.cells = dict(enumerate(cells, 1))
        self.forbidden = list(dict.fromkeys(forbidden))
        self.errors: dict[int, str] = {}
        self.told: list[str] = []
        self._left = self.limits.total_seconds
        self._process: Process | None = None
        self._loaded = False  # whether it has run the cells
        self._fresh = False  # whether nothing was asked of it since
        self._skipped: set[int] = set()  # the cells that ended a process
        self._binds: dict[int, list[str]] = {}
        self._mentions: list[tuple[int, str]] = []
        self._used: dict[str, None] = {}
        self._extra: int | None = None
        self._programs: list[Function] = []

    def __enter__(self) -> RemoteStudent:
        try:
            self._scan()
            self._alive()
        except Stopped:  # the time of the submission is used up: every question will say so
            self._stop()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    # What course.model.Student promises

    def value(self, name: str) -> Any:
        return self._ask("value", name, name=name)

    def function(self, name: str) -> RemoteFunction:
        about = self._ask("describe", name, name=name, read=read_about)
        if not about.callable:
            raise Missing(f"{name} is no function: it is a {about.type}.")
        return RemoteFunction(self, name, about.signature)

    def module(self, name: str, **sizes: Any) -> nn.Module:
        about = self._ask("describe", name, name=name, read=read_about)
        if not about.module:
            raise Missing(f"{name} is no class of modules: class {name}(nn.Module) is expected.")
        birth = int(torch.randint(2**62, ()))
        question = {"name": name, "sizes": sizes, "birth": birth}
        built: Built = self._ask(
            "make", name, read=lambda reply: build(reply["result"]), **question
        )
        return built.as_module(name, _Link(self, question))

    def catches(self, name: str, program: Function) -> str:
        if not self._fresh:
            self._stop()
        process = self._alive()
        packer = Packer(self._refer)
        question = {"do": "test", "name": name, "arguments": [_Program(program)]}
        content = packer.pack(question)
        says, copied = self._put(process, content, packer, _says, name)
        if not copied:  # there were threads, which can't be copied
            self._stop()
        return says

    # What goes beyond it

    @contextmanager
    def extra_memory(self, count: int) -> Iterator[None]:
        """Until the end a call may allocate so many bytes, its inputs and outputs among them.

        What it says where a call needs more is a CheckFailed. Where the system can't limit a
        process from outside this is told, and nothing is limited.
        """
        self._extra = count
        self._stop()  # what is free now, but not given back, would not be counted
        try:
            yield
        finally:
            self._extra = None
            self._stop()

    def used(self, names: Sequence[str] | None = None) -> list[str]:
        """The forbidden functions, or those among `names`, that calls since the last time used."""
        found = [name for name in self._used if names is None or name in names]
        self._used = {}
        return found

    def mentions(self, names: Sequence[str]) -> list[str]:
        """Where the text of the notebook speaks of these: of import, no proof of use."""
        return [
            f"cell {cell} mentions {mentioned}"
            for cell, mentioned in self._mentions
            if any(f"{mentioned}.".startswith(f"{name}.") for name in names)
        ]

    # Questions

    def _ask(
        self,
        do: str,
        what: str,
        *,
        read: Callable[[dict[str, Any]], Any] = lambda reply: reply["result"],
        **question: Any,
    ) -> Any:
        packer = Packer(self._refer, layouts=True)
        content = packer.pack({"do": do, **question})
        return self.put(content, packer, lambda reply: read(reply.get()), what)

    def put(
        self, content: Any, packer: Packer, read: Callable[[Message], Found], what: str
    ) -> Found:
        """Send a question to a process with the cells loaded, and read the answer."""
        process = self._alive()
        self._fresh = False
        return self._put(process, content, packer, read, what)

    def _put(
        self,
        process: Process,
        content: Any,
        packer: Packer,
        read: Callable[[Message], Found],
        what: str,
    ) -> Found:
        start = time.monotonic()
        seconds = min(self.limits.wall_seconds, self._left)
        if seconds <= 0:
            raise self._stopped(f"{what} was not run: the time of the submission is used up.")
        try:
            reply = self._exchange(process, content, packer, start + seconds)
            return self._read(reply, read, what)
        except TimeOut:
            self._stop()
            raise self._stopped(f"{what} did not end within {seconds:.3g} seconds.") from None
        except TooLarge as error:
            self._stop()
            raise self._stopped(f"{what} gives {error}: too much.") from None
        except ProtocolError as error:
            self._stop()
            raise self._stopped(f"{what} sent what is no answer: {error}.") from None
        except Ended:
            why = self._stop(ended=True)
            raise self._stopped(f"{what} {self._ending(why)}.") from None
        finally:
            self._left -= time.monotonic() - start

    def _exchange(self, process: Process, content: Any, packer: Packer, deadline: float) -> Message:
        """Until the answer is there, answer what the student's test asks of its program."""
        number = secrets.randbits(60)
        content = {"dict": [*content["dict"], ["question", number]]}
        while True:
            process.channel.send_packed(content, packer, deadline)
            reply = process.channel.receive(deadline)
            plain = reply.get()
            if not isinstance(plain, dict) or plain.get("question") != number:
                raise ProtocolError("nobody asked for it")
            if "program" not in plain:
                return reply
            packer = Packer()
            content = self._program_says(reply, plain, packer)

    def _read(self, reply: Message, read: Callable[[Message], Found], what: str) -> Found:
        plain = reply.get()
        if "error" in plain:
            raise self._raised(plain["error"], what)
        self._notice(plain.get("used"))
        try:
            return read(reply)
        except (TypeError, KeyError, ValueError, AttributeError, IndexError, RuntimeError):
            raise ProtocolError("it is not made as it should be") from None

    def _notice(self, used: Any) -> None:
        names = used if isinstance(used, list) else []
        self._used.update(dict.fromkeys(name for name in self.forbidden if name in names))

    def _refer(self, thing: Any) -> dict[str, Any] | None:
        if isinstance(thing, RemoteFunction) and thing.student is self:
            return {"own": thing.name}
        if isinstance(thing, _Program):
            self._programs = [thing.function]
            return {"program": 0}
        return {"package": name} if (name := _name_in_package(thing)) else None

    def _program_says(self, message: Message, plain: dict[str, Any], packer: Packer) -> Any:
        if type(plain["program"]) is not int or not self._programs:
            raise ProtocolError("there is no such program")
        numbers = sum(t.numel() for t in message.tensors)
        if numbers > _MOST_OF_A_PROGRAM or any(
            size > _LONGEST_AXIS for t in message.tensors for size in t.shape
        ):
            error = ValueError("a test of small inputs is expected: these are too large")
            return packer.pack({"error": described(error)})
        program = self._programs[0]
        try:
            with torch.random.fork_rng(devices=[]):
                return bridge.answer(
                    lambda question: program(*question["arguments"], **question["named"]),
                    message,
                    packer,
                    seed=lambda seed: void(torch.default_generator.manual_seed(seed)),
                )
        except ProtocolError:
            raise
        except Exception as error:  # a wrong program may raise anything
            packer.clear()
            return packer.pack({"error": described(error)})

    # What goes wrong

    def _raised(self, error: Any, what: str) -> Exception:
        if not isinstance(error, dict):
            raise ProtocolError("this is no error")
        kind, text, where = (str(error.get(key, "")) for key in ("type", "text", "where"))
        if kind == "absent":
            return Missing(self._why_missing(what))
        if kind == "unwritten":
            return Missing(f"{what} is still `...`: write your answer in its place.")
        if kind == "unfit":
            return TypeError(f"what {what} gives {text}")
        if kind == "ended":
            return self._stopped(f"{what} {self._ending(text)}.")
        if kind == "memory":
            return self._stopped(f"{what} {self._ending('memory')}.")
        found = rebuilt({"type": kind, "text": text})
        if where:
            found.add_note(where)
        return found

    def _why_missing(self, name: str) -> str:
        for cell, names in self._binds.items():
            if name in names and cell in self.errors:
                return f"{name} is not there, because cell {cell} failed: {self.errors[cell]}"
        return f"{name} is not there: no cell of the notebook defines it."

    def _ending(self, why: str) -> str:
        limits = self.limits
        if why == "memory":
            most = limits.memory_bytes if self._extra is None else self._extra
            return f"needs more memory than the {most / MIB:,.3g} MiB that it may take"
        if why == "cpu":
            return f"computes for longer than {limits.cpu_seconds} seconds"
        return f"ended its process ({why or 'it was killed'})"

    def _stopped(self, text: str) -> Stopped:
        if text not in self.told:
            self.told.append(text)
        return Stopped(text)

    # Processes

    def _stop(self, *, ended: bool = False) -> str:
        process, self._process = self._process, None
        self._loaded = self._fresh = False
        return process.stop(ended) if process else ""

    def _scan(self) -> None:
        """Read all cells before one of them runs: what they bind and mention."""
        for cell, text in self.cells.items():
            try:
                found = self._scanned(text)
            except Stopped as error:
                self._give_up(cell, str(error))
                continue
            except Exception:  # it will say so again when it is run
                continue
            self._binds[cell], mentioned = found
            self._mentions += [(cell, name) for name in mentioned]

    def _scanned(self, text: str) -> tuple[list[str], list[str]]:
        process = self._process or self._started()
        packer = Packer()
        content = packer.pack({"do": "scan", "text": text})

        def read(reply: Message) -> tuple[list[str], list[str]]:
            found = reply.get()["result"]
            return [*map(str, found["binds"])], [*map(str, found["mentions"])]

        return self._put(process, content, packer, read, "a cell")

    def _started(self) -> Process:
        process = self._process = Process(self.sandbox)
        packer = Packer()
        content = packer.pack({"do": "forbid", "names": self.forbidden})
        try:
            self._put(process, content, packer, lambda reply: None, "the start")
        except BaseException:  # a name that can't be forbidden, or no time is left
            self._stop()
            raise
        return process

    def _alive(self) -> Process:
        """The process, a new one where there is none, with the cells loaded."""
        while self._process is None or not self._loaded:
            self._load(self._process or self._started())
        return self._process

    def _load(self, process: Process) -> None:
        """Run the cells; one that ends the process is left out from now on."""
        for cell, text in self.cells.items():
            if cell in self._skipped:
                continue
            packer = Packer()
            content = packer.pack({"do": "load", "cell": cell, "text": text, "seed": cell})
            try:
                self._put(process, content, packer, lambda reply: None, f"cell {cell}")
            except Stopped as error:
                self._give_up(cell, str(error))
                if self._process is None:
                    return
            except Exception as error:  # whatever a student's cell raises
                self.errors[cell] = in_words(error)
        self._limit_memory(process)
        self._loaded = self._fresh = True

    def _limit_memory(self, process: Process) -> None:
        if self._extra is None:
            return
        packer = Packer()
        content = packer.pack({"do": "settle"})
        self._put(process, content, packer, lambda reply: None, "the start")
        if not process.allow(self._extra):
            self._stopped("memory can't be limited from outside on this system: it was not")

    def _give_up(self, cell: int, why: str) -> None:
        self.errors[cell] = why
        self._skipped.add(cell)


class RemoteFunction:
    """A student's function: called here, it runs there. Its gradients come from there too."""

    def __init__(
        self, student: RemoteStudent, name: str, signature: inspect.Signature | None
    ) -> None:
        self.student, self.name, self.__name__ = student, name, name
        self._signature = signature
        self._over: Stopped | None = None

    @property
    def __signature__(self) -> inspect.Signature:
        """The student's own; ValueError where Python can't tell it, as for a builtin."""
        if self._signature is None:
            raise ValueError(f"no signature found for {self.name}")
        return self._signature

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        question = {"do": "call", "name": self.name, "arguments": arguments, "named": named}
        return self._call(question)

    def _call(self, question: dict[str, Any]) -> Any:
        """Where it had to be stopped it is not tried again: a check may call it a hundred times."""
        if self._over:
            raise Stopped(str(self._over))
        try:
            return bridge.call(self._put, question, Packer(self.student._refer, layouts=True))
        except Stopped as error:
            self._over = error
            raise

    def _put(self, content: Any, packer: Packer, read: Callable[[Message], Found]) -> Found:
        return self.student.put(content, packer, read, self.name)


class _Link(RemoteFunction):
    """What a module of here and its copies know of the student's module."""

    def __init__(self, student: RemoteStudent, made: dict[str, Any]) -> None:
        super().__init__(student, made["name"], None)
        self.made = made

    def __deepcopy__(self, _: object) -> _Link:
        return self

    def forward(self, module: nn.Module, arguments: Any, named: Any) -> Any:
        state: dict[str, Tensor] = dict(module.named_parameters(remove_duplicate=False))
        state |= dict(module.named_buffers(remove_duplicate=False))
        question = {"do": "forward", **self.made, "state": state, "training": module.training}
        return self._call({**question, "arguments": arguments, "named": named})


class _Program:
    """A function that stays here, whatever it is, and answers a student's test."""

    def __init__(self, function: Function) -> None:
        self.function = function


def _says(reply: Message) -> tuple[str, bool]:
    """What a student's test said, and whether the process is as it was before."""
    said = reply.get()["result"]
    return str(said["says"]), said["in a copy"] is True


def _built(reply: dict[str, Any]) -> Built:
    return build(reply["result"])


def _name_in_package(thing: Any) -> str:
    """The dotted name of one of the package's own functions, which a student's process has too."""
    if not isinstance(thing, FunctionType) or not thing.__module__.startswith("mini_attention"):
        return ""
    module, name = str(thing.__module__), str(thing.__name__)
    return f"{module}.{name}" if getattr(sys.modules[module], name, None) is thing else ""


def void(_: object) -> None:
    """For what is called for its effect."""
