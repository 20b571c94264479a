"""What a wrong program is called, what it does wrong, and what that looks like from outside."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

Program = TypeVar("Program", bound=Callable[..., Any])


@dataclass(frozen=True)
class Mistake:
    """One mistake that someone has made, and the programs that make it.

    name        a few words
    kind        what it gets wrong: axis, scale, order, sense, reshape, ...
    what        the mistake in a sentence
    looks_like  what one sees from outside
    programs    public name -> the wrong program that can stand in its place
    source      the class or function that makes the mistake, for showing its code
    """

    name: str
    kind: str
    what: str
    looks_like: str
    programs: Mapping[str, Callable[..., Any]]
    source: Callable[..., Any]


MISTAKES: dict[str, Mistake] = {}
RUNNING: dict[str, Mistake] = {}  # of a softmax piece by piece: these replace nothing


def mistake(
    kind: str, *names: str, among: dict[str, Mistake] = MISTAKES
) -> Callable[[Program], Program]:
    """Register a wrong program: its name and its docstring say all there is to say.

    A class with a method of each public name in `names` stands for these with its methods, any
    other class or function stands for the one name itself.
    """

    def register(program: Program) -> Program:
        what, looks_like = inspect.cleandoc(program.__doc__ or "").split("\n\n")
        words = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", program.__name__)
        name = words.lower()
        if hasattr(program, names[0]):
            instance = program()
            programs = {public: getattr(instance, public) for public in names}
        else:
            programs = dict.fromkeys(names, program)
        among[name] = Mistake(name, kind, _one_line(what), _one_line(looks_like), programs, program)
        return program

    return register


def _one_line(text: str) -> str:
    return " ".join(text.split())
