"""What a failed check says: what was expected, what came, and which mistake it looks like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..masks import causal_mask
from .answer import Answer, agree, answer, close, expected_of, same
from .case import Case, Names, Program, Subject, Unfit, wrapped

# What the formula does not promise and the package does: no error of a reader's program.
BEYOND = {"mask lands on heads", "junk gets through", "half summed in half"}
FEW = 12  # numbers that are shown one by one


def failure(
    subject: Subject, case: Case, expected: dict[str, Tensor], got: Answer, put: Sequence[Case]
) -> str:
    lines = [f"{case.mechanism}: {case.expects}", ""]
    given = {**case.inputs, "mask": case.mask, **case.options}
    for x in {id(x): x for x in given.values() if x is not None}.values():
        names = [name for name, other in given.items() if other is x]  # x may be all three
        lines.append(f"{' = '.join(names)} = {_shown(x)}")
    lines += ["", *_difference(expected, got), "", *_diagnosis(subject, case, got, put)]
    first = wrapped(f"CheckFailed: {lines[0]}").removeprefix("CheckFailed: ")  # as it is shown
    return "\n".join([first, *map(wrapped, lines[1:])]).rstrip()


def _difference(expected: dict[str, Tensor], got: Answer) -> list[str]:
    if isinstance(got, Unfit):
        return [str(got)]
    if isinstance(got, Exception):
        return [f"raised {type(got).__name__}: {str(got).strip()}"]
    for name in got.keys() - expected.keys():
        return [f"{name} is another one: {_shown(got[name])}"]
    name = next(name for name in expected if not close(got[name], expected[name]))
    wanted, came = expected[name], got[name]
    if wanted.shape != came.shape:
        return [f"{name} expected of shape {tuple(wanted.shape)}, got {tuple(came.shape)}"]
    if wanted.dtype != came.dtype:
        return [f"{name} expected in {wanted.dtype}, got {came.dtype}"]
    if wanted.numel() <= FEW:
        return [f"{name} expected {_shown(wanted)}", f"{name} got      {_shown(came)}"]
    if not came.isfinite().all():
        return [f"{name} has {int((~came.isfinite()).sum())} numbers that are not finite"]
    apart = (wanted - came).abs()
    place = torch.unravel_index(apart.argmax(), apart.shape)
    where = ", ".join(str(int(axis)) for axis in place)
    return [
        f"{name} [{where}] expected {_shown(wanted[place])}, got {_shown(came[place])}",
        f"{int((apart > apart.max() / 1000).sum())} of {apart.numel()} numbers differ",
    ]


def _diagnosis(subject: Subject, case: Case, got: Answer, put: Sequence[Case]) -> list[str]:
    suspects: list[Names] = [(case.means,)]
    all_of_it = True
    if not case.means or isinstance(got, Exception):
        suspects, all_of_it = _suspects(subject, case, got, put)
    if not suspects:
        if isinstance(got, Unfit):
            return []
        known = len({name for names in subject.wrong for name in names})
        unknown = f"This is none of the {known} mistakes that this check knows."
        adapter = f"lambda {subject.arguments}: ..."
        advice = [f"Does it take other arguments? An adapter helps: {adapter}"]
        return [" ".join([unknown, *_observations(subject)])] + advice * isinstance(got, TypeError)
    lines: list[str] = []
    named = dict.fromkeys(tuple(n for n in names if n not in BEYOND) or names for names in suspects)
    for names in named:
        start = "Or like this" if lines else "It looks like this mistake"
        lines.append(f"{start}: {' and '.join(names)}.")
        told = [subject.mistakes[name] for name in names]
        lines += [f"{mistake.what} {mistake.looks_like}".rstrip() for mistake in told]
    if not all_of_it:
        lines.append("Something else is wrong as well: mend this first.")
    return lines


def _suspects(
    subject: Subject, case: Case, got: Answer, put: Sequence[Case]
) -> tuple[list[Names], bool]:
    """The mistakes whose programs answer this case as the subject does, and whether they answer
    all cases so: one mistake if it explains everything, else two, else one that explains some.
    """
    asked = [replace(other, whole=0) for other in put if not other.note]
    others = [(other, answer(subject.program, other)) for other in asked]
    alone = {names: answer(program, case) for names, program in subject.wrong.items()}
    right = expected_of(subject, case)
    seen = {name for (name,), found in alone.items() if not same(found, right)}

    def agreement(programs: Mapping[Names, Program]) -> dict[Names, int]:
        """How many cases each program answers as the subject does."""
        return {
            names: sum(agree(answer(program, other), known) for other, known in others)
            for names, program in programs.items()
        }

    one = {names: subject.wrong[names] for names, found in alone.items() if agree(found, got)}
    suspects = _most(agreement(one))
    if suspects and suspects[1] == len(others):
        return suspects[0], True
    # Two mistakes of which this case shows neither do not show together.
    pairs = ((names, p) for names, p in subject.twice_wrong() if seen.intersection(names))
    both = _most(agreement({n: p for n, p in pairs if agree(answer(p, case), got)}))
    if both and both[1] == len(others):
        return both[0], True
    found = suspects or both
    if not found or isinstance(got, Exception):  # anything can raise: that alone proves nothing
        return [], False
    return found[0], False


def _most(agreement: Mapping[Names, int]) -> tuple[list[Names], int] | None:
    """Those that agree in most cases, and in how many."""
    if not agreement:
        return None
    most = max(agreement.values())
    return [names for names, count in agreement.items() if count == most], most


def _observations(subject: Subject) -> list[str]:
    """What can be seen of a program whose mistake has no name."""
    if subject.usual is None:
        return []
    inputs = subject.usual.inputs
    later = {n: torch.cat([t[..., :-1, :], t[..., -1:, :] + 1], -2) for n, t in inputs.items()}
    earlier = {n: torch.cat([t[..., :1, :] + 1, t[..., 1:, :]], -2) for n, t in inputs.items()}
    moved = {n: torch.cat([t[..., 1:, :], t[..., :1, :]], -2) for n, t in inputs.items()}
    moved["query"] = inputs["query"]
    alone = {n: t[:1] for n, t in inputs.items()}
    causal = causal_mask(inputs["query"].shape[-2], inputs["key"].shape[-2])

    def outputs(given: Mapping[str, Tensor], mask: Tensor | None = None) -> Tensor:
        assert subject.usual is not None
        found = answer(subject.program, replace(subject.usual, inputs=given, mask=mask))
        return torch.tensor([[torch.nan]]) if isinstance(found, Exception) else found["output"]

    plain = outputs(inputs)
    if not plain.isfinite().all():
        return []
    seen = []
    if close(outputs(later)[..., :1, :], plain[..., :1, :]):
        if close(outputs(earlier)[..., -1:, :], plain[..., -1:, :]):
            seen.append("Another token's change moves nothing.")
        else:
            seen.append(
                "Only earlier tokens move an output: a causal mask is built in. Compare with a "
                "right one that has it too, or take it out for the check."
            )
    if not subject.projects:
        ones = outputs({**inputs, "value": torch.ones_like(inputs["value"])})
        if not close(ones, torch.ones_like(ones)):
            seen.append("The weights of a query do not sum to 1.")
    if "cross" in subject.takes and not close(outputs(moved), plain):
        seen.append("Moving keys together with their values changes the output.")
    if not close(outputs(alone), plain[:1]):
        seen.append("An item comes out differently alone than in its batch.")
    if "mask" in subject.takes and not close(
        outputs(later, causal)[..., :1, :], outputs(inputs, causal)[..., :1, :]
    ):
        seen.append("Under a causal mask a later token moves an earlier output.")
    return seen


def _shown(x: Any) -> str:
    if not isinstance(x, Tensor):
        return _numbers(x) if isinstance(x, int | float | list | tuple) else repr(x)
    if x.numel() > FEW:
        return f"a tensor of shape {tuple(x.shape)}"
    return _numbers(x.tolist())  # True is shown as 1


def _numbers(values: Any) -> str:
    if isinstance(values, list | tuple):
        return "[" + ", ".join(map(_numbers, values)) + "]"
    short = f"{values:.4g}"
    whole = isinstance(values, int) or values.is_integer()
    return f"{values:.0f}" if whole and float(short) != values else short  # digits count


def is_not_written(error: Answer) -> bool:
    """Whether it says so: torch raises the same for a dtype, or a device, that it can't do."""
    theirs = ("not implemented for '", "Could not run")
    return isinstance(error, NotImplementedError) and not any(t in str(error) for t in theirs)


def unwritten(name: str, case: Case, first: bool) -> str:
    what = name if first else f"a part of {name}, for {case.mechanism}: {case.expects}"
    what = what.rstrip(".")
    return wrapped(
        f"Not written yet: {what}. Put your code in place of `raise NotImplementedError`, and run "
        "this again."
    )
