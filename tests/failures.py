"""What a failed check says, for the tests of the checks."""

from collections.abc import Callable

import pytest

from mini_attention.checks import CheckFailed


def named(failure: CheckFailed) -> list[str]:
    """The mistakes that a failure names."""
    text = " ".join(str(failure).split())
    starts = ("It looks like this mistake: ", "Or like this: ")
    return [part.split(".")[0] for start in starts for part in text.split(start)[1:]]


def failure_of(check: Callable, *arguments, **options) -> CheckFailed:
    with pytest.raises(CheckFailed) as failure:
        check(*arguments, **options)
    return failure.value


def said(failure: CheckFailed) -> str:
    """All of it in one line."""
    return " ".join(str(failure).split())
