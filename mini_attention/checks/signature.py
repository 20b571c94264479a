"""What a reader's function or layer takes, told by the names of its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from torch import nn

Parameters = list[inspect.Parameter]
Sequenced = TypeVar("Sequenced")
REQUIRED = inspect.Parameter.empty


def parameters(function: Callable[..., Any]) -> Parameters | None:
    """The parameters of a function, or None where Python can't tell, as for a builtin."""
    try:
        called = function.forward if isinstance(function, nn.Module) else function
        given = inspect.signature(called).parameters.values()
    except ValueError:
        return None
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [parameter for parameter in given if parameter.kind not in variable]


def mask_among(given: Parameters) -> inspect.Parameter | None:
    """The parameter that takes the mask: one that is called so."""
    return next((parameter for parameter in given if "mask" in parameter.name), None)


def in_order(given: Parameters, sequences: Sequence[Sequenced]) -> Sequence[Sequenced]:
    """Query, key and value in the order in which the parameters name them, by first letters."""
    letters = [parameter.name[0].lower() for parameter in given[:3]]
    if sorted(letters) != ["k", "q", "v"]:
        return sequences
    return [sequences["qkv".index(letter)] for letter in letters]


def name_of(function: Callable[..., Any]) -> str:
    """What a message calls it: its name, or the class of a module."""
    name = getattr(function, "__name__", type(function).__name__)
    return "your function" if name == "<lambda>" else name


def matched(
    function: Callable[..., Any], like: Callable[..., Any], *, without: str = ""
) -> dict[str, inspect.Parameter]:
    """What a function takes, by the names that `like` has for it.

    Those of the same name are the same; the others are in the order of `like`. Where there are
    fewer, those without a default come first.
    """
    asked = [p for p in inspect.signature(like).parameters.values() if p.name != without]
    order = [p.name for p in asked]
    given = parameters(function) or []
    named = {p.name: p for p in given if p.name in order}
    others = [p for p in given if p.name not in order and p.default in (REQUIRED, None)]
    needed = [p.name for p in asked if p.default is REQUIRED]
    free = [n for n in [*needed, *(n for n in order if n not in needed)] if n not in named]
    chosen = sorted(free[: len(others)], key=order.index)
    return named | dict(zip(chosen, others, strict=False))


def by_name(
    function: Callable[..., Any], names: Mapping[str, inspect.Parameter] | None = None
) -> Callable[..., Any]:
    """The function as a program without a mask, called by its own names for what is given.

    Where it tells no names, it is called by position.
    """

    def call(no_mask: None, /, **given: Any) -> Any:
        if names == {}:
            return function(*given.values())
        theirs = {name: parameter.name for name, parameter in (names or {}).items()}
        return function(**{theirs.get(name, name): x for name, x in given.items()})

    return call
