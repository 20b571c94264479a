"""A student's process from within: loads cells, answers questions about what they define.

Nothing that it says is believed. It measures nothing, knows no expected answer, and what it could
be made to claim is the answer of the student's own program.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import linecache
import os
import random
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from . import bridge
from .cells import binds, compiled, mentions
from .contain import trim
from .errors import Absent, described, ended, rebuilt, text_of
from .observe import Observer
from .protocol import Channel, Message, Packer, frame

_ANSWERED = 70  # the exit code of a copy that has answered


def file_of(cell: int) -> str:
    return f"<cell {cell}>"


class Worker:
    """One student's names, and the operations of the grader on them."""

    def __init__(self, channel: Channel, forbidden: Sequence[str] = ()) -> None:
        self.channel = channel
        self.forbidden = tuple(forbidden)
        self.observer = Observer(())
        self.main = ModuleType("__main__")
        sys.modules["__main__"] = self.main
        self.main.__dict__.update(input=_no_input, display=print, get_ipython=lambda: None)
        self.question = 0
        self.forked = False
        self.aliases: dict[str, str] = {}

    def serve(self) -> None:
        """Answer until the grader hangs up."""
        while True:
            message = self.channel.receive()
            plain = message.get(resolve=lambda kind, inside: None)
            self.question = plain["question"]
            if plain["do"] == "test" and threading.active_count() == 1:
                self._in_a_copy(message)
            else:
                self._respond(partial(self._answer, message))

    def _respond(self, answer: Callable[[Packer], Any]) -> None:
        try:
            parts = self._framed(answer)
        except BaseException as error:  # a student may raise anything
            told = {"error": described(error)}
            parts = self._framed(lambda packer: packer.pack(told))
        for part in parts:
            self.channel.send_chunk(part, None)

    def _framed(self, answer: Callable[[Packer], Any]) -> list[memoryview]:
        packer = Packer()
        content = answer(packer)
        more = packer.pack({"question": self.question})
        return frame({"dict": [*content["dict"], *more["dict"]]}, packer)

    def _in_a_copy(self, message: Message) -> None:
        """Answer from a process that ends afterwards: the next one knows nothing of it."""
        if (pid := os.fork()) == 0:
            self.forked = True
            self._respond(partial(self._answer, message))
            os._exit(_ANSWERED)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code != _ANSWERED:
            self._respond(lambda packer: packer.pack({"error": ended(code)}))

    def _answer(self, message: Message, packer: Packer) -> Any:
        plain = message.get(resolve=lambda kind, inside: None)
        operation: Callable[..., Any] = getattr(self, f"do_{plain['do']}")
        if plain["do"] == "load":  # what the notebook does for itself is its own affair
            return packer.pack({"result": operation(plain)})
        if plain["do"] in ("call", "forward"):
            with self.observer.watching() as seen:
                content = bridge.answer(
                    operation, message, packer, seed=bridge.seed_everything, resolve=self._resolve
                )
            content["dict"] += packer.pack({"used": list(seen)})["dict"]
            return content
        with self.observer.watching() as seen:
            found = operation(message.get(resolve=self._resolve))
        return packer.pack({"result": found, "used": list(seen)})

    # Operations

    def do_forbid(self, question: dict[str, Any]) -> None:
        self.observer = Observer(question["names"])

    def do_scan(self, question: dict[str, Any]) -> dict[str, Any]:
        text = question["text"]
        return {"binds": binds(text), "mentions": mentions(text, self.aliases)}

    def do_load(self, question: dict[str, Any]) -> None:
        file, text = file_of(question["cell"]), question["text"]
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        bridge.seed_everything(question["seed"])
        code = compiled(text, file)
        exec(code, self.main.__dict__)

    def do_describe(self, question: dict[str, Any]) -> dict[str, Any]:
        thing = self._named(question["name"])
        return {
            "callable": callable(thing),
            "module": isinstance(thing, type) and issubclass(thing, nn.Module),
            "type": type(thing).__name__,
            "signature": signature_of(thing),
        }

    def do_value(self, question: dict[str, Any]) -> Any:
        return self._named(question["name"])

    def do_call(self, question: dict[str, Any]) -> Any:
        function = self._named(question["name"])
        return function(*question["arguments"], **question["named"])

    def do_test(self, question: dict[str, Any]) -> dict[str, Any]:
        says = ""
        try:
            self._named(question["name"])(*question["arguments"])
        except AssertionError as error:
            says = text_of(error) or "AssertionError"
        return {"says": says, "in a copy": self.forked}

    def do_make(self, question: dict[str, Any]) -> dict[str, Any]:
        bridge.seed_everything(question["birth"])
        module = self._made(question)
        parts = [
            {
                "name": name,
                "linear": _linear(part),
                "attributes": {n: x for n, x in vars(part).items() if _is_plain(n, x)},
                "training": part.training,
            }
            for name, part in module.named_modules(remove_duplicate=False)
        ]
        return {
            "parts": parts,
            "parameters": _by_identity(module.named_parameters(remove_duplicate=False)),
            "buffers": _by_identity(module.named_buffers(remove_duplicate=False)),
            "signature": signature_of(module.forward),
        }

    def do_forward(self, question: dict[str, Any]) -> Any:
        bridge.seed_everything(question["birth"])  # what is no parameter is made the same again
        module = self._made(question)
        bridge.seed_everything(question["seed"])
        module.train(question["training"])
        _put(module, question["state"])
        return module(*question["arguments"], **question["named"])

    def do_settle(self, question: dict[str, Any]) -> None:
        gc.collect()
        trim()

    # Names and programs

    def _named(self, name: str) -> Any:
        if name not in self.main.__dict__:
            raise Absent("absent")
        thing = self.main.__dict__[name]
        if thing is ...:
            raise Absent("unwritten")
        return thing

    def _made(self, question: dict[str, Any]) -> nn.Module:
        made: nn.Module = self._named(question["name"])(**question["sizes"])
        if not isinstance(made, nn.Module):
            raise TypeError(f"{question['name']} makes no nn.Module but a {type(made).__name__}")
        return made

    def _resolve(self, kind: str, inside: Any) -> Any:
        if kind == "own":
            return self._named(inside)
        if kind == "package":
            module, _, name = inside.rpartition(".")
            return getattr(importlib.import_module(module), name)
        return self._program(inside)

    def _program(self, place: int) -> Callable[..., Any]:
        """A function that lives in the grader's process."""

        def ask(content: Any, packer: Packer, read: Callable[[Message], Any]) -> Any:
            self.channel.send_packed(content, packer)
            reply = self.channel.receive()
            if (error := reply.get().get("error")) is not None:
                raise rebuilt(error)
            return read(reply)

        def program(*arguments: Any, **named: Any) -> Any:
            question = {"program": place, "arguments": arguments, "named": named}
            return bridge.call(ask, {**question, "question": self.question}, Packer())

        return program


def _no_input(prompt: object = "") -> str:
    raise EOFError("input() has nobody to ask here")


# What is told of things


def signature_of(function: Any) -> list[Any] | None:
    """Name, kind and default of each parameter; None where Python can't tell."""
    try:
        given = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    return [[p.name, int(p.kind), _default(p.default)] for p in given]


def _default(default: Any) -> list[Any]:
    if default is inspect.Parameter.empty:
        return []
    plain = default is None or type(default) in (bool, int, float, str)
    return [default] if plain else [f"a {type(default).__name__}", "opaque"]


def _linear(part: nn.Module) -> list[Any] | None:
    if type(part) is not nn.Linear:
        return None
    return [part.in_features, part.out_features, part.bias is not None]


def _is_plain(name: str, value: Any) -> bool:
    return (
        not name.startswith("_") and name != "training" and type(value) in (bool, int, float, str)
    )


def _by_identity(named: Any) -> list[Any]:
    """Each tensor once, with all the names that it has."""
    found: dict[int, tuple[list[str], Tensor]] = {}
    for name, tensor in named:
        found.setdefault(id(tensor), ([], tensor))[0].append(name)
    return [[names, tensor.detach()] for names, tensor in found.values()]


def _put(module: nn.Module, state: dict[str, Tensor]) -> None:
    """Let a module compute with these very tensors, so that they get the gradients."""
    for name, tensor in state.items():
        owner, _, last = name.rpartition(".")
        part = module.get_submodule(owner)
        if last in part._parameters:
            part._parameters[last] = tensor  # type: ignore[assignment]
        else:
            part._buffers[last] = tensor


def run(sock: socket.socket) -> None:
    """Be a student's process."""
    random.seed()
    worker = Worker(Channel(sock, trusted=True))
    worker.channel.send({"ready": True})
    worker.serve()
