"""Questions that are answered by choosing a letter; a wrong choice is told why it is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mini_attention.checks import CheckFailed


@dataclass(frozen=True)
class Choice:
    """The right letter, and why the others are wrong: those that are not named get `otherwise`."""

    right: str
    otherwise: str
    wrong: Mapping[str, str] = field(default_factory=dict)

    def hint(self, letter: str) -> str:
        return "" if letter == self.right else self.wrong.get(letter, self.otherwise)


def check_choices(name: str, value: Any, choices: Sequence[Choice], first: int, last: int) -> None:
    """Raise CheckFailed with all hints for the choices from `first` to `last`, counted from 1."""
    given = letters(name, value, len(choices))
    wrong = []
    for number in range(first, last + 1):
        letter = given[number - 1]
        if hint := choices[number - 1].hint(letter):
            wrong.append(f"{number} is not {letter}: {hint}")
    if wrong:
        raise CheckFailed("\n".join(wrong))


def letters(name: str, value: Any, count: int) -> list[str]:
    """So many letters, as a list or as one text."""
    if not isinstance(value, list | tuple | str) or not all(isinstance(x, str) for x in value):
        raise CheckFailed(f"{name}: a list of {count} letters is expected")
    given = [x.strip().upper() for x in value if x.strip()]
    if len(given) != count:
        raise CheckFailed(f"{name}: {count} letters are expected; got {len(given)}")
    return given
