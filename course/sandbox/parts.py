"""What a student's process tells of a module or a signature, made into one of here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from .protocol import ProtocolError


class Opaque:
    """A default value that stays where it is."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class Forward(Protocol):
    """Runs a module's forward in the student's process."""

    def forward(self, module: nn.Module, arguments: Any, named: Any) -> Any: ...


@dataclass(frozen=True)
class Built:
    """All parts of a student's module, and how its forward is called."""

    root: nn.Module
    signature: inspect.Signature | None

    def as_module(self, name: str, link: Forward) -> nn.Module:
        """A module with these parts whose forward is the student's."""

        def forward(self: nn.Module, *arguments: Any, **named: Any) -> Any:
            return link.forward(self, arguments, named)

        if self.signature is not None:
            itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
            given = [p for p in self.signature.parameters.values() if p.name != "self"]
            signature = inspect.Signature([itself, *given])
            forward.__signature__ = signature  # type: ignore[attr-defined]
        self.root.__class__ = type(name, (nn.Module,), {"forward": forward})
        return self.root


@dataclass(frozen=True)
class About:
    """What a name stands for."""

    callable: bool
    module: bool  # a class of modules
    type: str
    signature: inspect.Signature | None


def read_about(reply: dict[str, Any]) -> About:
    told = reply["result"]
    flags = told["callable"] is True, told["module"] is True
    return About(*flags, str(told["type"]), read_signature(told["signature"]))


def read_signature(told: Any) -> inspect.Signature | None:
    """A signature from the names, kinds and defaults of its parameters."""
    if told is None:
        return None
    try:
        return inspect.Signature([_parameter(*one) for one in told])
    except (TypeError, ValueError, IndexError):
        raise ProtocolError("this is no signature") from None


def _parameter(name: str, kind: int, default: list[Any]) -> inspect.Parameter:
    kinds = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.KEYWORD_ONLY,
        inspect.Parameter.VAR_KEYWORD,
    )
    if not default:
        return inspect.Parameter(name, kinds[kind])
    value = default[0] if len(default) == 1 else Opaque(str(default[0]))
    return inspect.Parameter(name, kinds[kind], default=value)


def build(told: dict[str, Any]) -> Built:
    """The same tree of modules; linear layers are linear layers, all others have no forward."""
    root = nn.Module()
    for part in told["parts"]:
        made = _part(part["linear"])
        if part["name"] == "":
            root = made
        else:
            owner, _, last = part["name"].rpartition(".")
            root.get_submodule(owner).add_module(last, made)
        made.train(bool(part["training"]))
        for name, value in part["attributes"].items():
            if not hasattr(nn.Module, name) and name not in vars(made):
                setattr(made, name, value)
    for names, tensor in told["parameters"]:
        wants = tensor.is_floating_point() or tensor.is_complex()
        _place_all(root, names, nn.Parameter(tensor.clone(), requires_grad=wants))
    for names, tensor in told["buffers"]:
        _place_all(root, names, tensor.clone())
    _check_linear(root)
    return Built(root, read_signature(told["signature"]))


def _part(linear: list[Any] | None) -> nn.Module:
    if linear is None:
        return nn.Module()
    features_in, features_out, bias = linear
    with torch.device("meta"):  # however many it says that there are, they are not made
        return nn.Linear(int(features_in), int(features_out), bool(bias))


def _place_all(root: nn.Module, names: list[str], tensor: Tensor) -> None:
    for name in names:
        owner, _, last = name.rpartition(".")
        part = root.get_submodule(owner)
        place: Callable[..., None] = part.register_buffer
        if isinstance(tensor, nn.Parameter):
            place = part.register_parameter
        place(last, tensor)


def _check_linear(root: nn.Module) -> None:
    for part in root.modules():
        if isinstance(part, nn.Linear):
            shapes = [(part.out_features, part.in_features), (part.out_features,)]
            found = [part.weight, part.bias] if part.bias is not None else [part.weight]
            for tensor, shape in zip(found, shapes, strict=False):
                if tensor.is_meta or tensor.shape != shape:
                    raise ProtocolError("a linear layer is not as large as it says")
