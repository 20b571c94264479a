"""A function on the other side of a channel that can be differentiated on this one.

The side that calls sends the arguments, and the side that answers keeps nothing: to
differentiate, it is asked again with the same arguments, the same seed, and the gradient of each
output. So an answer is a function of one message, whatever was asked before.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from .protocol import Message, Packer, ProtocolError, Resolve, bytes_of

Found = TypeVar("Found")


class Ask(Protocol):
    """Sends a packed question, waits for the answer, and gives what `read` finds in it.

    Whatever `read` raises is the fault of the side that answered.
    """

    def __call__(self, content: Any, packer: Packer, read: Callable[[Message], Found]) -> Found: ...


# The side that calls


def call(ask: Ask, question: dict[str, Any], packer: Packer) -> Any:
    """The result of what a question asks for, joined to the graph of its arguments."""
    content = packer.pack({**question, "seed": _seed()})
    tensors = list(packer.tensors)
    leaves = [t for t, wants in zip(tensors, packer.gradients, strict=True) if wants]
    kept = [t.detach().clone() for t in tensors] if leaves else []  # as they were before the call

    def read(reply: Message) -> tuple[Message, list[tuple[Tensor, Tensor]]]:
        if "result" not in reply.get():
            raise ProtocolError("this is no result")
        return reply, list(_changes(reply, tensors))

    reply, changes = ask(content, packer, read)
    with torch.no_grad():
        for old, new in changes:
            old.detach().copy_(new)
    found = reply.tensors
    if leaves and any(reply.gradients):
        again = _Again(ask, content, packer, kept)
        found = list(_Across.apply(again, reply, *leaves))  # type: ignore[no-untyped-call]
    return reply.get(found)["result"]


def _seed() -> int:
    """From the caller's random numbers: who seeds them gets the same answer again."""
    return int(torch.randint(2**62, ()))


def _changes(reply: Message, tensors: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """What the function wrote into its arguments is to be written into the caller's."""
    changed = reply.get().get("changed")
    if not isinstance(changed, dict):
        raise ProtocolError("this says of no argument that it was changed")
    for place, new in changed.items():
        if type(place) is not int or not 0 <= place < len(tensors):
            raise ProtocolError("there is no such argument")
        if not _alike(new, tensors[place]):
            raise ProtocolError("an argument keeps its shape")
        yield tensors[place], new


def _alike(new: Any, old: Tensor) -> bool:
    return isinstance(new, Tensor) and new.shape == old.shape and new.dtype == old.dtype


class _Again:
    """The question that gives gradients: the first one with those of the outputs."""

    def __init__(self, ask: Ask, content: Any, packer: Packer, kept: list[Tensor]) -> None:
        self.ask, self.content, self.kept = ask, content, kept
        self.wants, self.layouts = packer.gradients[: len(kept)], packer.layouts

    def gradients(self, upstream: Sequence[Tensor | None]) -> list[Tensor | None]:
        packer = Packer(layouts=self.layouts)
        packer.tensors, packer.gradients = [*self.kept], [*self.wants]
        more = packer.pack({"upstream": dict(enumerate(upstream))})
        return self.ask({"dict": [*self.content["dict"], *more["dict"]]}, packer, self._read)

    def _read(self, reply: Message) -> list[Tensor | None]:
        found = reply.get().get("gradients")
        wanted = [t for t, wants in zip(self.kept, self.wants, strict=True) if wants]
        if not isinstance(found, list) or len(found) != len(wanted):
            raise ProtocolError("these are not the gradients")
        for gradient, tensor in zip(found, wanted, strict=True):
            if gradient is not None and not _alike(gradient, tensor):
                raise ProtocolError("a gradient is like its tensor")
        return found


class _Across(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, again: _Again, reply: Message, *leaves: Tensor) -> Any:
        ctx.again = again
        ctx.set_materialize_grads(False)
        fixed = [
            t for t, wants in zip(reply.tensors, reply.gradients, strict=True)
            if not wants or not (t.is_floating_point() or t.is_complex())
        ]  # fmt: skip
        ctx.mark_non_differentiable(*fixed)
        return tuple(reply.tensors)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> Any:
        if torch.is_grad_enabled():  # create_graph=True: a part of the graph would be missing
            raise RuntimeError("what is computed in another process can be differentiated once")
        return (None, None, *ctx.again.gradients(upstream))


# The side that answers


def answer(
    function: Callable[[dict[str, Any]], Any],
    message: Message,
    packer: Packer,
    *,
    seed: Callable[[int], None],
    resolve: Resolve | None = None,
) -> Any:
    """What a function of a question gives: plain data for the other side, packed."""
    leaves = [
        t.requires_grad_() if wants else t
        for t, wants in zip(message.tensors, message.gradients, strict=True)
    ]
    given = [
        leaf.clone() if wants == 2 else leaf  # what is no leaf may be written to
        for leaf, wants in zip(leaves, message.gradients, strict=True)
    ]
    question = message.get(given, resolve)
    before = [_digest(t) for t in given]
    seed(question["seed"])
    result = function(question)
    content = packer.pack({"result": result})
    if (upstream := question.get("upstream")) is not None:
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        return _gradients(packer, upstream, wanted)
    changed = {
        place: given[place].detach()
        for place, digest in enumerate(before)
        if _digest(given[place]) != digest
    }
    content["dict"] += packer.pack({"changed": changed})["dict"]
    return content


def _gradients(packer: Packer, upstream: dict[int, Tensor | None], wanted: list[Tensor]) -> Any:
    outputs = [(t, upstream.get(i)) for i, t in enumerate(packer.tensors)]
    used = [(t, g) for t, g in outputs if g is not None and t.requires_grad]
    found: Sequence[Tensor | None] = [None] * len(wanted)
    if used:
        ends, starts = [t for t, _ in used], [g for _, g in used]
        found = torch.autograd.grad(ends, wanted, starts, allow_unused=True)
    packer.clear()
    return packer.pack({"gradients": [None if g is None else g.detach() for g in found]})


def _digest(tensor: Tensor) -> int:
    """Tells whether numbers were changed, without a copy of them."""
    plain = tensor.detach()
    for axis in [i for i, step in enumerate(plain.stride()) if step == 0]:
        plain = plain.narrow(axis, 0, min(1, plain.shape[axis]))
    steps = plain.stride()
    order = sorted(range(plain.ndim), key=lambda axis: -steps[axis])
    plain = plain.permute(order).contiguous()
    return zlib.crc32(bytes_of(plain)) if plain.numel() else 0


def seed_everything(seed: int) -> None:
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  what students may use
