"""A notebook's code cell as Python, and what it binds and mentions.

This runs in a student's process: what a student wrote can crash even the compiler.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from types import CodeType

_RUNS_PYTHON = {"time", "timeit", "capture", "prun", "memit"}
_MAGIC = re.compile(r"^(\s*)(?:([\w, ]+=\s*)?[%!].*|\?{1,2}[\w.]+\s*|[\w.]+\s*\?{1,2}\s*)$")
_BINDS = re.compile(r"^(?:async\s+)?(?:def|class)\s+(\w+)|^(\w+)\s*(?::[^=]*)?=[^=]", re.MULTILINE)


def compiled(cell: str, file: str) -> CodeType:
    """Compile a cell; where it is not Python, once more without what IPython alone understands."""
    text = _body(cell)
    try:
        return compile(text, file, "exec", dont_inherit=True)
    except SyntaxError as error:
        plain = without_magic(text)
        if plain == text:
            raise
        try:
            return compile(plain, file, "exec", dont_inherit=True)
        except SyntaxError as second:
            raise second from error


def without_magic(text: str) -> str:
    """With lines that begin with % or !, or end with ?, replaced by one that does nothing."""
    return "\n".join(_MAGIC.sub(_nothing, line) for line in text.split("\n"))


def _nothing(line: re.Match[str]) -> str:
    return f"{line[1]}{line[2] + 'None' if line[2] else 'pass'}"


def _body(cell: str) -> str:
    """Without a first line that is a magic of the cell; nothing where another language follows."""
    text = cell.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    first, _, rest = text.lstrip().partition("\n")
    if not first.startswith("%%"):
        return text
    return "\n" + rest if first[2:].split(" ")[0] in _RUNS_PYTHON else ""


def binds(cell: str) -> list[str]:
    """The names that a cell defines, as far as they stand at the beginning of a line.

    Found without a parser, so that a cell with an error in it can be told too.
    """
    return list(dict.fromkeys(one or other for one, other in _BINDS.findall(_body(cell))))


def mentions(cell: str, aliases: dict[str, str]) -> list[str]:
    """Every dotted name that a cell reads or imports, with the names that aliases stand for.

    The aliases that the cell makes are added to those of the cells before it.
    """
    try:
        tree = ast.parse(without_magic(_body(cell)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # null bytes, deep nesting
        return []
    imported = dict(_aliases(tree))
    aliases |= imported
    found = dict.fromkeys(imported.values())
    for node in ast.walk(tree):
        if name := _dotted(node):
            first, _, rest = name.partition(".")
            found[".".join(filter(None, [aliases.get(first, first), rest]))] = None
    return list(found)


def _aliases(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                bound = name.asname or name.name.partition(".")[0]
                yield bound, name.name if name.asname else bound
        elif isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                yield name.asname or name.name, f"{node.module}.{name.name}"


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""
