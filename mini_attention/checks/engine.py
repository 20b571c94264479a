"""Put cases to a program, one after the other, until it answers wrongly."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from .answer import Answer, answer, expected_of, same
from .case import Case, CheckFailed, Report, Subject, Unfit
from .diagnosis import failure, is_not_written, unwritten


def check(subject: Subject, cases: Sequence[Case], only: Sequence[str] | None) -> Report:
    """Put the cases to the subject in their order; raise CheckFailed for the first that fails."""
    known = list(dict.fromkeys(case.mechanism for case in cases if not case.note))
    if only is not None and (unknown := set(only) - set(known)):
        raise ValueError(f"only must be among {known}; got {sorted(unknown)}")
    cases = [case for case in cases if only is None or case.mechanism in only]
    put = [case for case in cases if case.is_for(subject.takes)]
    notes = []
    for case in put:
        expected, got = expected_of(subject, case), answer(subject.program, case)
        if isinstance(expected, Exception) and not case.note:
            raise expected  # of what is right, and so the question's own
        if (isinstance(expected, Exception) and isinstance(got, Exception)) or same(got, expected):
            continue
        if not case.note:
            assert isinstance(expected, dict)
            raise _failed(subject, case, expected, got, put)
        notes.append(case.note)
    passed = dict.fromkeys(case.mechanism for case in put if not case.note)
    asked = dict.fromkeys(case.mechanism for case in cases if not case.note)
    return Report([*passed], [name for name in asked if name not in passed], notes)


def _failed(
    subject: Subject, case: Case, expected: dict[str, Tensor], got: Answer, put: Sequence[Case]
) -> CheckFailed:
    if is_not_written(got):
        failed = CheckFailed(unwritten(subject.name, case, case is put[0]))
    else:
        failed = CheckFailed(failure(subject, case, expected, got, put))
    failed.__cause__ = got if isinstance(got, Exception) and not isinstance(got, Unfit) else None
    return failed
