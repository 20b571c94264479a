"""Which forbidden functions a call uses, seen by Python's own profiler.

A function of Python is known by the place of its code, under whatever name it was imported and
whoever calls it; a function of C by its name, so that `x.softmax(-1)` is `torch.softmax` too.

What this can't see: the text of a forbidden function pasted into the notebook (that is copied,
not imported), what a compiled program does inside, and the answer of a program that sets out to
deceive the profiler. `mentions` in cells.py, from the text, helps against the last alone.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

Place = tuple[str, int]
_PACKET = torch._ops.OpOverloadPacket.__call__.__code__
_OVERLOAD = torch._ops.OpOverload.__call__.__code__


class Observer:
    """Knows the forbidden functions before a student's code can change anything."""

    def __init__(self, names: Sequence[str]) -> None:
        self.places: dict[Place, str] = {}
        self.builtins: dict[str, str] = {}
        self.seen: dict[str, None] = {}
        for name in names:
            self._learn(name)

    def _learn(self, name: str) -> None:
        thing = _resolved(name)
        for code in _codes(thing):
            self.places.setdefault((code.co_filename, code.co_firstlineno), name)
        if name.startswith("torch.") and not inspect.isclass(thing):
            self.builtins[name.rpartition(".")[2]] = name

    @contextmanager
    def watching(self) -> Iterator[dict[str, None]]:
        """What is used until the end, as the keys of a dict."""
        self.seen = {}
        if not self.places and not self.builtins:
            yield self.seen
            return
        watch = self._watch
        threading.setprofile(watch)
        sys.setprofile(watch)
        try:
            yield self.seen
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _watch(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            name = self.builtins.get(getattr(argument, "__name__", ""))
        elif event == "call":
            code = frame.f_code
            name = self.places.get((code.co_filename, code.co_firstlineno))
            if code is _PACKET or code is _OVERLOAD:
                name = self._operator(frame)
        else:
            return
        if name is not None:
            self.seen[name] = None

    def _operator(self, frame: FrameType) -> str | None:
        """Such as torch.ops.aten.softmax or torch.ops.aten._softmax.default."""
        operator = str(frame.f_locals.get("self")).split(".")
        return self.builtins.get(operator[1].lstrip("_")) if len(operator) > 1 else None


def _resolved(name: str) -> Any:
    """The object that a dotted name stands for; ImportError where there is none."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            thing: Any = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            if not hasattr(thing, part):
                break
            thing = getattr(thing, part)
        else:
            return thing
    raise ImportError(f"there is no {name} that could be forbidden")


def _codes(thing: Any) -> Iterator[Any]:
    """The code of a function, of a class's methods, or of all that a package defines."""
    thing = inspect.unwrap(thing)
    if inspect.ismodule(thing):
        inside = [m for n, m in sys.modules.items() if f"{n}.".startswith(f"{thing.__name__}.")]
        for part in [x for module in inside for x in vars(module).values()]:
            if str(getattr(part, "__module__", "")).startswith(thing.__name__):
                yield from _codes(part)
    elif inspect.isclass(thing):
        for method in vars(thing).values():
            function = inspect.unwrap(getattr(method, "__func__", method))
            if inspect.isfunction(function):
                yield function.__code__
    elif inspect.isfunction(thing):
        yield thing.__code__
