"""The lines of a wrong program beside the right ones, as a diff."""

from __future__ import annotations

import ast
import difflib
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

import mini_attention

from .catalogue import MISTAKES, RUNNING, Mistake

SOURCES = {mistake.source for mistake in (*MISTAKES.values(), *RUNNING.values())}
SHORT = 4  # lines of a step that is shown as the right one
FIRST, WIDE = 4, 60  # arguments that are shown of more, and characters that all of them may take


def lines_of(mistake: Mistake) -> str:
    """The wrong lines with a minus, the right ones with a plus, as a diff."""
    source = mistake.source
    if isinstance(source, FunctionType):
        (right,) = (getattr(mini_attention, name) for name in mistake.programs)
        return _diff(source, [f"return {right.__name__}({_given(source)})"], right)
    text, beside = inspect.getsource(source), vars(inspect.getmodule(source))
    helpers = [beside[name] for name in dict.fromkeys(re.findall(r"\b_[A-Z]\w*", text))]
    steps = [_step(kind, name, step) for kind in (*helpers, source) for name, step in _own(kind)]
    return "\n\n".join(steps or map(_whole, mistake.programs.items()))


def _whole(named: tuple[str, Any]) -> str:
    """A program that is wrong in no step but as a whole: the package's own is the right one."""
    name, program = named
    return _diff(program.__func__, [f"return {name}({_given(program)})"])


def _own(kind: type) -> Iterator[tuple[str, FunctionType]]:
    for name, member in vars(kind).items():
        function = getattr(member, "__func__", member)  # of a class or static method
        if isinstance(function, FunctionType):
            yield name, function


def _step(source: Any, name: str, wrong: FunctionType) -> str:
    """A step of a class that replaces one of the right program, or helps another that does."""
    bases = [base for base in source.__mro__[1:] if name in vars(base)]
    if not bases or not bases[0].__module__.startswith(mini_attention.__name__):
        return _diff(wrong, [])
    right = next(base for base in bases if base not in SOURCES)
    body = _body(vars(right)[name])
    if f"super().{name}(" in inspect.getsource(wrong) and (right is bases[0] or len(body) > SHORT):
        body = [f"return super().{name}({_given(wrong)})"]
    return _diff(wrong, body)


def _diff(wrong: FunctionType, right: Sequence[str], like: Callable[..., Any] | None = None) -> str:
    """Two bodies below one first line, or two where the right one takes something else."""
    name = wrong.__name__
    first, header = _header(name, wrong), _header(name, like or wrong)
    if first == header:
        first = header = _header(name, wrong, whole=False)
    top = [f" {first}"] if first == header else [f"-{first}", f"+{header}"]
    before, after = ([f"    {line}" for line in lines] for lines in (_body(wrong), right))
    _, _, _, *body = (
        difflib.unified_diff(before, after, n=len(before), lineterm="")
        if (before != after)
        else [*"   ", *(f" {line}" for line in before)]
    )
    return "\n".join(top + [line.rstrip() for line in body])


def _header(name: str, function: Callable[..., Any], *, whole: bool = True) -> str:
    """`def` with the names of the arguments alone, and what they are unless given."""
    shown = []
    for parameter in _parameters(function):
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        default = parameter.default
        told = json.dumps(default) if isinstance(default, str) else None
        told = told or getattr(default, "__name__", repr(default))
        shown.append(parameter.name + f"={told}" * (default is not parameter.empty))
    return f"def {name}({', '.join(shown) if whole else _few(shown)}):"


def _few(arguments: list[str]) -> str:
    """The arguments, or the first of them where they are many."""
    listed = ", ".join(arguments)
    return listed if len(listed) <= WIDE else ", ".join([*arguments[:FIRST], "..."])


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    given = inspect.signature(function).parameters.values()
    return [parameter for parameter in given if parameter.name != "device"]


def _given(function: Callable[..., Any]) -> str:
    """The arguments of a function, handed on."""
    return _few(
        [
            f"{p.name}={p.name}" if p.kind is p.KEYWORD_ONLY else p.name
            for p in _parameters(function)
            if p.name not in ("self", "cls")
        ]
    )


def _body(function: Callable[..., Any]) -> list[str]:
    """The lines of a function without its docstring, and without what no reader looks for."""
    source = textwrap.dedent(inspect.getsource(function))
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.FunctionDef)
    statements = definition.body[ast.get_docstring(definition) is not None :]
    lines = source.splitlines()[statements[0].lineno - 1 :]
    return _plainer(textwrap.dedent("\n".join(lines))).splitlines()


def _plainer(text: str) -> str:
    """The text without types and devices, and without lines that are there for their errors."""
    for what, instead in ((r", device=device", ""), (r"  # type: ignore.*", "")):
        text = re.sub(what, instead, text)
    text = re.sub(r".*# for its errors\n", "", text)
    return re.sub(r"^( *\w+): .+? = ", r"\1 = ", text, flags=re.MULTILINE)
