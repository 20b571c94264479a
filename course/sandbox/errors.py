"""A student's errors as plain data, and the exceptions that are made of them again."""

from __future__ import annotations

import builtins
import linecache
import signal
import traceback
from typing import Any

from .protocol import CannotHandOver

_LONGEST = 4000  # characters of an error's text
# What torch says then; with no memory left for the text itself it is cut short.
_NO_MEMORY = ("can't allocate memory", "std::bad_alloc", "[enforce fail a")


class Absent(Exception):
    """There is no such name; or it still holds what the notebook had in its place."""


def described(error: BaseException) -> dict[str, Any]:
    """An error as plain data: its kind, text and place in the student's cells."""
    if isinstance(error, Absent):
        return {"type": text_of(error), "text": "", "where": ""}
    if isinstance(error, CannotHandOver):
        return {"type": "unfit", "text": text_of(error), "where": ""}
    text = text_of(error)
    if isinstance(error, MemoryError) or any(sign in text for sign in _NO_MEMORY):
        return {"type": "memory", "text": text, "where": _where(error)}
    return {"type": type(error).__name__, "text": text, "where": _where(error)}


def ended(code: int) -> dict[str, Any]:
    """What is told of a process that ended before it had answered."""
    text = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
    return {"type": "ended", "text": text, "where": ""}


def text_of(error: BaseException) -> str:
    try:
        single = len(error.args) == 1 and isinstance(error.args[0], str)
        text = error.args[0] if single else str(error)
        return str(text)[:_LONGEST]
    except BaseException:  # a student's own __str__
        return ""


def _where(error: BaseException) -> str:
    """The last line of a student's cell on the way to an error."""
    if isinstance(error, SyntaxError) and str(error.filename).startswith("<cell"):
        return f"{str(error.filename)[1:-1]}, line {error.lineno}: {(error.text or '').strip()}"
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        file = frame.f_code.co_filename
        if file.startswith("<cell "):
            return f"{file[1:-1]}, line {line}: {linecache.getline(file, line).strip()}"
    return ""


def rebuilt(error: dict[str, Any]) -> Exception:
    """The exception of the same name, if it is one of Python's, and else a RuntimeError."""
    name, text = str(error["type"]), str(error["text"])
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(text)
        except TypeError:  # such as UnicodeDecodeError
            pass
    return RuntimeError(f"{name}: {text}" if text else name)


def in_words(error: BaseException) -> str:
    """The kind, the text and the place of an error that was rebuilt."""
    text = ": ".join(filter(None, [type(error).__name__, text_of(error)]))
    notes = getattr(error, "__notes__", [])
    return f"{text} ({'; '.join(notes)})" if notes else text
