"""Messages between the grader and a student's process: JSON and plain arrays, nothing that runs.

    4 bytes  length of the JSON      8 bytes  length of the arrays, all together
    JSON     {"m": message, "a": [[dtype, shape, gradient, layout], ...]}
    arrays   their bytes in order, each padded to 16

In the message a list is {"list": [...]}, a tuple {"tuple": [...]}, a dict {"dict": [[k, v], ...]},
a tensor {"tensor": index}; what is passed twice is the same index twice, and comes out as one
object. The other side may send anything at all: everything is checked before it is used.
"""

from __future__ import annotations

import json
import math
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
        torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128,
    )
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}
_SIZES = struct.Struct(">IQ")
_PAD = 16
_DEEPEST = 40
_LARGEST = 2**200  # enough for every count, and a float can hold it
_MOST_AXES = 32
_MOST_ARRAYS = 4096

Layout = list[Any]  # the order of the axes in memory, and those that are one number repeated
Refer = Callable[[Any], "dict[str, Any] | None"]
Resolve = Callable[[str, Any], Any]


class ProtocolError(Exception):
    """What came is no message; or too large a one."""


class TooLarge(ProtocolError):
    """An answer that is longer than it may be."""


class Ended(Exception):
    """The other side is gone."""


class TimeOut(Exception):
    """The other side did not answer in time."""


class CannotHandOver(TypeError):
    """A value that is neither a number, a text, a tensor, nor a collection of these."""


@dataclass
class Message:
    """What came: plain data, and the tensors it speaks of."""

    content: Any
    tensors: list[Tensor]
    gradients: list[int]  # of each tensor: 0 none, 1 it is a leaf, 2 it was made from one

    def get(self, tensors: Sequence[Tensor] | None = None, resolve: Resolve | None = None) -> Any:
        """The data, with these tensors in the place of those that came."""
        return _read(self.content, self.tensors if tensors is None else tensors, resolve, 0)


# Writing


@dataclass
class Packer:
    """Makes plain data of a value, and collects its tensors."""

    refer: Refer | None = None  # what to write for an object that can't be sent
    layouts: bool = False  # whether the other side is to see how the axes lie in memory
    tensors: list[Tensor] = field(default_factory=list)
    gradients: list[int] = field(default_factory=list)  # as in Message
    places: dict[int, int] = field(default_factory=dict)

    def pack(self, value: Any, depth: int = 0) -> Any:
        if depth > _DEEPEST:
            raise CannotHandOver("can't be handed over: collections that lie in each other")
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, (int, np.integer)):
            return _integer(int(value))
        if isinstance(value, (float, np.floating, Fraction)):
            return float(value)
        if isinstance(value, np.bool_):
            return bool(value)
        if isinstance(value, (list, tuple)):
            kind = "list" if isinstance(value, list) else "tuple"
            return {kind: [self.pack(item, depth + 1) for item in value]}
        if isinstance(value, dict):
            pairs = [[self.pack(k, depth + 1), self.pack(v, depth + 1)] for k, v in value.items()]
            return {"dict": pairs}
        return self._other(value)

    def _other(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return {"tensor": self._place(value, value)}
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiubc":
            return {"array": self._place(value, torch.from_numpy(np.ascontiguousarray(value)))}
        if isinstance(value, torch.dtype) and value in NAMES:
            return {"dtype": NAMES[value]}
        if isinstance(value, complex):
            return {"complex": [value.real, value.imag]}
        if self.refer and (name := self.refer(value)) is not None:
            return name
        raise CannotHandOver(f"can't be handed over: a {type(value).__name__}")

    def _place(self, owner: Any, tensor: Tensor) -> int:
        if tensor.layout != torch.strided or tensor.dtype not in NAMES or tensor.is_meta:
            raise CannotHandOver(f"can't be handed over: a tensor in {tensor.dtype}")
        if id(owner) not in self.places:
            self.places[id(owner)] = len(self.tensors)
            self.tensors.append(tensor)
            wants = tensor.requires_grad and torch.is_grad_enabled()
            self.gradients.append(0 if not wants else 1 if tensor.is_leaf else 2)
        return self.places[id(owner)]

    def described(self) -> list[list[Any]]:
        return [
            [NAMES[t.dtype], list(t.shape), wants, layout_of(t) if self.layouts else None]
            for t, wants in zip(self.tensors, self.gradients, strict=True)
        ]

    def clear(self) -> None:
        self.tensors, self.gradients, self.places = [], [], {}


def _integer(value: int) -> int:
    if abs(value) > _LARGEST:
        raise CannotHandOver("can't be handed over: a number of more than 60 digits")
    return value


def layout_of(tensor: Tensor) -> Layout | None:
    """How to make the same strides again from the numbers in their order, None if contiguous."""
    if tensor.is_contiguous() or 0 in tensor.shape:
        return None
    steps = tensor.stride()
    repeated = [axis for axis, step in enumerate(steps) if step == 0 and tensor.shape[axis] > 1]
    order = sorted(range(tensor.ndim), key=lambda axis: -steps[axis])
    return [order, repeated]


def _chunks(tensors: Sequence[Tensor], layouts: Sequence[Layout | None]) -> Iterator[memoryview]:
    for tensor, layout in zip(tensors, layouts, strict=True):
        plain = tensor.detach().cpu().resolve_conj().resolve_neg()
        if layout is not None:
            for axis in layout[1]:
                plain = plain.narrow(axis, 0, 1)
            plain = plain.permute(layout[0])
        if plain.numel():
            yield bytes_of(plain.contiguous())
        if missing := _missing(plain.numel() * plain.itemsize):
            yield memoryview(bytes(missing))


def _missing(count: int) -> int:
    """How many bytes are needed to fill the last 16."""
    return -count % _PAD


def frame(message: Any, packer: Packer) -> list[memoryview]:
    """All bytes of a message, in parts."""
    described = packer.described()
    text = json.dumps({"m": message, "a": described}).encode()
    chunks = list(_chunks(packer.tensors, [entry[3] for entry in described]))
    return [memoryview(_SIZES.pack(len(text), sum(map(len, chunks))) + text), *chunks]


def bytes_of(tensor: Tensor) -> memoryview:
    """The memory of a contiguous tensor that is not empty, without a copy."""
    flat = tensor.as_strided((tensor.numel(),), (1,))  # a single number can have a stride of 0
    numbers: Any = flat.view(torch.uint8).numpy()
    return memoryview(numbers)


# Reading


def _read(value: Any, tensors: Sequence[Tensor], resolve: Resolve | None, depth: int) -> Any:
    if value is None or isinstance(value, (bool, str, float)):
        return value
    if isinstance(value, int):
        if abs(value) > _LARGEST:
            raise ProtocolError("a number is too large")
        return value
    if depth > _DEEPEST or not isinstance(value, dict) or len(value) != 1:
        raise ProtocolError("this is no value")
    ((kind, inside),) = value.items()
    if kind in ("list", "tuple"):
        items = [_read(item, tensors, resolve, depth + 1) for item in _a_list(inside)]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return dict(_pair(item, tensors, resolve, depth + 1) for item in _a_list(inside))
    if kind in ("tensor", "array"):
        if type(inside) is not int or not 0 <= inside < len(tensors):
            raise ProtocolError("there is no such array")
        return tensors[inside] if kind == "tensor" else _numpy(tensors[inside])
    if kind == "dtype" and isinstance(inside, str) and inside in DTYPES:
        return DTYPES[inside]
    if kind == "complex" and all(type(part) is float for part in _a_list(inside, 2)):
        return complex(*inside)
    if resolve is None:
        raise ProtocolError("this is no value")
    return resolve(kind, inside)


def _numpy(tensor: Tensor) -> Any:
    if tensor.dtype == torch.bfloat16:
        raise ProtocolError("numpy has no such numbers")
    return tensor.detach().numpy()


def _a_list(value: Any, length: int | None = None) -> list[Any]:
    if not isinstance(value, list) or length not in (None, len(value)):
        raise ProtocolError("a list was expected")
    return value


def _pair(item: Any, tensors: Sequence[Tensor], resolve: Resolve | None, depth: int) -> Any:
    key, value = _a_list(item, 2)
    name = _read(key, (), None, depth)
    try:
        hash(name)
    except TypeError:
        raise ProtocolError("this is no key") from None
    return name, _read(value, tensors, resolve, depth)


@dataclass(frozen=True)
class _Described:
    dtype: torch.dtype
    shape: tuple[int, ...]
    gradient: int
    layout: Layout | None

    @property
    def held(self) -> tuple[int, ...]:
        """The shape of what is sent: in the order of memory, and nothing twice."""
        if self.layout is None:
            return self.shape
        order, repeated = self.layout
        return tuple(1 if axis in repeated else self.shape[axis] for axis in order)

    @property
    def bytes(self) -> int:
        return math.prod(self.held) * self.dtype.itemsize

    def made_of(self, body: bytearray, start: int) -> Tensor:
        count = math.prod(self.held)
        if count == 0:
            return torch.empty(self.shape, dtype=self.dtype)
        flat = torch.frombuffer(body, dtype=self.dtype, count=count, offset=start)
        if self.layout is None:
            return flat.view(self.shape)
        order = self.layout[0]
        back = [order.index(axis) for axis in range(len(order))]
        return flat.view(self.held).permute(back).expand(self.shape)


def _described(entry: Any, trusted: bool) -> _Described:
    name, shape, gradient, layout = _a_list(entry, 4)
    whole = isinstance(shape, list) and all(type(n) is int and 0 <= n < 2**40 for n in shape)
    if not isinstance(name, str) or name not in DTYPES or not whole or len(shape) > _MOST_AXES:
        raise ProtocolError("this describes no array")
    if gradient not in (0, 1, 2) or (layout is not None and not trusted):
        raise ProtocolError("this describes no array")
    found = _Described(DTYPES[name], tuple(shape), int(gradient), layout)
    if math.prod(n for n in shape if n) > 2**50:
        raise ProtocolError("an array is too large")
    return found


def _parse(text: bytearray) -> tuple[Any, list[Any]]:
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        raise ProtocolError("this is no JSON") from None
    if not isinstance(whole, dict) or whole.keys() != {"m", "a"}:
        raise ProtocolError("this is no message")
    arrays = _a_list(whole["a"])
    if len(arrays) > _MOST_ARRAYS:
        raise ProtocolError("these are too many arrays")
    return whole["m"], arrays


class Channel:
    """One end of a socket. With `trusted` the other side may say how arrays lie in memory."""

    def __init__(
        self,
        sock: socket.socket,
        *,
        most_text: int = 2**30,
        most_numbers: int = 2**40,
        trusted: bool = False,
        gone: socket.socket | None = None,  # can be read as soon as the other side has ended
    ) -> None:
        self.sock, self.trusted, self.gone = sock, trusted, gone
        self.most_text, self.most_numbers = most_text, most_numbers

    def send(self, value: Any) -> None:
        packer = Packer()
        self.send_packed(packer.pack(value), packer)

    def send_packed(self, message: Any, packer: Packer, deadline: float | None = None) -> None:
        for chunk in frame(message, packer):
            self.send_chunk(chunk, deadline)

    def receive(self, deadline: float | None = None) -> Message:
        text, count = _SIZES.unpack(self._receive(_SIZES.size, deadline))
        if text > self.most_text or count > self.most_numbers:
            raise TooLarge(f"an answer of {(text + count) / 2**20:,.0f} MiB")
        content, entries = _parse(self._receive(text, deadline))
        described = [_described(entry, self.trusted) for entry in entries]
        if sum(d.bytes + _missing(d.bytes) for d in described) != count:
            raise ProtocolError("the arrays are not as long as they should be")
        body = self._receive(count, deadline)
        tensors, start = [], 0
        for d in described:
            tensors.append(d.made_of(body, start))
            start += d.bytes + _missing(d.bytes)
        return Message(content, tensors, [d.gradient for d in described])

    def close(self) -> None:
        self.sock.close()

    def send_chunk(self, chunk: memoryview, deadline: float | None) -> None:
        while chunk:
            self._wait(select.POLLOUT, deadline)
            try:
                chunk = chunk[self.sock.send(chunk) :]
            except BlockingIOError:
                continue
            except OSError:
                raise Ended from None

    def _receive(self, count: int, deadline: float | None) -> bytearray:
        found = bytearray(count)
        rest = memoryview(found)
        while rest:
            self._wait(select.POLLIN, deadline)
            try:
                got = self.sock.recv_into(rest)
            except BlockingIOError:
                continue
            except OSError:
                raise Ended from None
            if got == 0:
                raise Ended
            rest = rest[got:]
        return found

    def _wait(self, event: int, deadline: float | None) -> None:
        """Until the socket is ready; without a deadline the call itself waits."""
        if deadline is None:
            return
        poll = select.poll()
        poll.register(self.sock, event)
        if self.gone is not None:
            poll.register(self.gone, select.POLLIN)
        left = max(deadline - time.monotonic(), 0)
        ready = dict(poll.poll(math.ceil(left * 1000)))
        if not ready:
            raise TimeOut
        if self.sock.fileno() not in ready:
            raise Ended
