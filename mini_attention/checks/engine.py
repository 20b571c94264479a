"""Put cases to a program, and say what a wrong answer looks like."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..masks import causal_mask
from ..mistakes import MISTAKES

Names = tuple[str, ...]  # of one mistake, or of two made at once
Answer = dict[str, Tensor] | Exception

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
# What the formula does not promise and the package does: no error of a reader's program.
BEYOND = {"mask lands on heads", "junk gets through", "half summed in half"}
FEW = 12  # numbers that are shown one by one
WIDTH = 79  # characters of a line, as in the book
# A program's random numbers are none of the caller's, who goes on as if it had drawn none.
fork_rng = functools.partial(torch.random.fork_rng, devices=[])  # no GPU's: none is drawn there


class CheckFailed(AssertionError):
    """What was expected, what came, on which input, and which mistake it looks like."""


@dataclass(frozen=True)
class Report:
    """What a check has found right, what it could not look at, and what is worth knowing."""

    passed: Sequence[str]
    skipped: Sequence[str]
    notes: Sequence[str]

    def __repr__(self) -> str:
        lines = ["right: " + ", ".join(self.passed)]
        if self.skipped:
            lines.append("not checked: " + ", ".join(self.skipped))
        lines += ["note: " + note for note in self.notes]
        return "\n".join(map(_wrapped, lines))


@dataclass(frozen=True)
class Program:
    """Something that attends: called with query, key, value, mask (or None) and options."""

    call: Callable[..., Any]
    parameters: Callable[[torch.dtype], Mapping[str, Tensor]] = lambda dtype: {}


@dataclass(frozen=True)
class Case:
    """One call, and what should come of it."""

    mechanism: str
    expects: str
    inputs: Mapping[str, Tensor]  # query, key and value
    mask: Tensor | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: frozenset[str] = frozenset()  # what the program has to take, beside mask and options
    read: Callable[[Tensor], Tensor] = lambda output: output  # what of the output is compared
    gradients: bool = False
    again: bool = False  # a second call has to give the same
    means: str = ""  # the only mistake that a failure can mean
    note: str = ""  # what a failure is worth telling, where it is no error

    def is_for(self, takes: set[str]) -> bool:
        masked = {"mask"} if self.mask is not None else set()
        return {*self.needs, *self.options, *masked} <= takes


@dataclass(frozen=True)
class Subject:
    """A program to check, what it takes beside query, key and value, and its rivals."""

    program: Program
    takes: set[str]
    right: Program
    wrong: Mapping[Names, Program]  # with one mistake
    twice_wrong: Callable[[], Iterator[tuple[Names, Program]]]  # with two
    usual: Case  # two items or more of several tokens, to watch a mistake that has no name
    projects: bool = False  # as a layer does: its output is no mean of the values themselves


def check(subject: Subject, cases: Sequence[Case], only: Sequence[str] | None) -> Report:
    """Put the cases to the subject in their order; raise CheckFailed for the first that fails."""
    known = list(dict.fromkeys(case.mechanism for case in cases if not case.note))
    if only is not None and (unknown := set(only) - set(known)):
        raise ValueError(f"only must be among {known}; got {sorted(unknown)}")
    cases = [case for case in cases if only is None or case.mechanism in only]
    put = [case for case in cases if case.is_for(subject.takes)]
    notes = []
    for case in put:
        expected, got = answer(subject.right, case), answer(subject.program, case)
        if (isinstance(expected, Exception) and isinstance(got, Exception)) or same(got, expected):
            continue
        if not case.note:
            assert isinstance(expected, dict), expected
            cause = got if isinstance(got, Exception) else None
            raise CheckFailed(_failure(subject, case, expected, got, put)) from cause
        notes.append(case.note)
    passed = dict.fromkeys(case.mechanism for case in put if not case.note)
    asked = dict.fromkeys(case.mechanism for case in cases if not case.note)
    return Report([*passed], [name for name in asked if name not in passed], notes)


def all_masked(cases: Iterable[Case]) -> list[Case]:
    """The cases for a program that can't do without a mask: where there is none it is all True."""

    def everything(case: Case) -> Tensor:
        query, key, _ = case.inputs.values()
        return torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool)

    return [c if c.mask is not None else replace(c, mask=everything(c)) for c in cases]


def answer(program: Program, case: Case) -> Answer:
    """The output, gradients and inputs that were changed, by name; or the error that was raised."""
    inputs = {n: t.clone().requires_grad_(case.gradients) for n, t in case.inputs.items()}
    options = {
        n: x.clone().requires_grad_(case.gradients) if isinstance(x, Tensor) else x
        for n, x in case.options.items()
    }
    mask = None if case.mask is None else case.mask.clone()
    try:
        with fork_rng():
            torch.default_generator.manual_seed(0)  # the CPU alone: a tenth of the time
            output = output_of(program.call(*inputs.values(), mask, **options))
            found = {"output": case.read(output).detach()}
            if case.again:
                second = output_of(program.call(*inputs.values(), mask, **options))
                found["change in a second call"] = (second - output).detach()
        if case.gradients:
            leaves = inputs | {n: x for n, x in options.items() if isinstance(x, Tensor)}
            leaves |= program.parameters(output.dtype)
            upstream = torch.linspace(-1, 2, output.numel()).reshape(output.shape)
            gradients = torch.autograd.grad(
                output, list(leaves.values()), upstream, materialize_grads=True
            )
            found |= {f"gradient of {n}": g for n, g in zip(leaves, gradients, strict=True)}
    except Exception as error:  # whatever a reader's program raises is its answer
        return error
    for name, tensor in inputs.items():
        if not torch.equal(tensor.detach().nan_to_num(), case.inputs[name].nan_to_num()):
            found[f"{name} after the call"] = tensor.detach()
    return found


def same(one: Answer, other: Answer) -> bool:
    """Whether two answers hold the same names, shapes, dtypes and, within rounding, numbers."""
    if isinstance(one, Exception) or isinstance(other, Exception):
        return type(one) is type(other) and str(one) == str(other)
    if one.keys() != other.keys():
        return False
    return all(_close(one[name], other[name]) for name in other)


def _agree(one: Answer, other: Answer) -> bool:
    """Whether two answers can come of one mistake: both raise, or they are the same."""
    if isinstance(one, Exception) or isinstance(other, Exception):
        return isinstance(one, Exception) and isinstance(other, Exception)
    if not other["output"].isfinite().all():  # what NaN does to gradients is a matter of chance
        return _close(one["output"], other["output"])
    return same(one, other)


def _close(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    bound = TOLERANCE[other.dtype] * max([1.0, *other[other.isfinite()].abs().tolist()])
    return torch.allclose(one, other, rtol=0, atol=bound, equal_nan=True)


def output_of(result: Any) -> Tensor:
    """What a program returns, or the first of several things."""
    first = result[0] if isinstance(result, tuple) and result else result
    if not isinstance(first, Tensor):
        returned = type(result).__name__
        raise TypeError(f"the output, or a tuple that begins with it, is expected; got {returned}")
    return first


# What a failure says


def _failure(
    subject: Subject, case: Case, expected: dict[str, Tensor], got: Answer, put: Sequence[Case]
) -> str:
    lines = [f"{case.mechanism}: {case.expects}", ""]
    given = {**case.inputs, "mask": case.mask, **case.options}
    for x in {id(x): x for x in given.values() if x is not None}.values():
        names = [name for name, other in given.items() if other is x]  # x may be all three
        lines.append(f"{' = '.join(names)} = {_shown(x)}")
    lines += ["", *_difference(expected, got), "", *_diagnosis(subject, case, got, put)]
    first = _wrapped(f"CheckFailed: {lines[0]}").removeprefix("CheckFailed: ")  # as it is shown
    return "\n".join([first, *map(_wrapped, lines[1:])])


def _difference(expected: dict[str, Tensor], got: Answer) -> list[str]:
    if isinstance(got, Exception):
        return [f"raised {type(got).__name__}: {str(got).strip()}"]
    for name in got.keys() - expected.keys():
        return [f"{name} is another one: {_shown(got[name])}"]
    name = next(name for name in expected if not _close(got[name], expected[name]))
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
        unknown = f"This is none of the {len(MISTAKES)} mistakes that this check knows."
        advice = ["Does it take other arguments? An adapter helps: lambda query, key, value: ..."]
        return [" ".join([unknown, *_observations(subject)])] + advice * isinstance(got, TypeError)
    lines: list[str] = []
    named = dict.fromkeys(tuple(n for n in names if n not in BEYOND) or names for names in suspects)
    for names in named:
        start = "Or like this" if lines else "It looks like this mistake"
        lines.append(f"{start}: {' and '.join(names)}.")
        lines += [f"{MISTAKES[name].what} {MISTAKES[name].looks_like}" for name in names]
    if not all_of_it:
        lines.append("Something else is wrong as well: mend this first.")
    return lines


def _suspects(
    subject: Subject, case: Case, got: Answer, put: Sequence[Case]
) -> tuple[list[Names], bool]:
    """The mistakes whose programs answer this case as the subject does, and whether they answer
    all cases so: one mistake if it explains everything, else two, else one that explains some.
    """
    others = [(other, answer(subject.program, other)) for other in put if not other.note]
    alone = {names: answer(program, case) for names, program in subject.wrong.items()}
    right = answer(subject.right, case)
    seen = {name for (name,), found in alone.items() if not same(found, right)}

    def agreement(programs: Mapping[Names, Program]) -> dict[Names, int]:
        """How many cases each program answers as the subject does."""
        return {
            names: sum(_agree(answer(program, other), known) for other, known in others)
            for names, program in programs.items()
        }

    one = {names: subject.wrong[names] for names, found in alone.items() if _agree(found, got)}
    suspects = _most(agreement(one))
    if suspects and suspects[1] == len(others):
        return suspects[0], True
    # Two mistakes of which this case shows neither do not show together.
    pairs = ((names, p) for names, p in subject.twice_wrong() if seen.intersection(names))
    both = _most(agreement({n: p for n, p in pairs if _agree(answer(p, case), got)}))
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
    inputs = subject.usual.inputs
    later = {n: torch.cat([t[..., :-1, :], t[..., -1:, :] + 1], -2) for n, t in inputs.items()}
    earlier = {n: torch.cat([t[..., :1, :] + 1, t[..., 1:, :]], -2) for n, t in inputs.items()}
    moved = {n: torch.cat([t[..., 1:, :], t[..., :1, :]], -2) for n, t in inputs.items()}
    moved["query"] = inputs["query"]
    alone = {n: t[:1] for n, t in inputs.items()}
    causal = causal_mask(inputs["query"].shape[-2], inputs["key"].shape[-2])

    def outputs(given: Mapping[str, Tensor], mask: Tensor | None = None) -> Tensor:
        found = answer(subject.program, replace(subject.usual, inputs=given, mask=mask))
        return torch.tensor([[torch.nan]]) if isinstance(found, Exception) else found["output"]

    plain = outputs(inputs)
    if not plain.isfinite().all():
        return []
    seen = []
    if _close(outputs(later)[..., :1, :], plain[..., :1, :]):
        if _close(outputs(earlier)[..., -1:, :], plain[..., -1:, :]):
            seen.append("Another token's change moves nothing.")
        else:
            seen.append(
                "Only earlier tokens move an output: a causal mask is built in. Compare with a "
                "right one that has it too, or take it out for the check."
            )
    if not subject.projects:
        ones = outputs({**inputs, "value": torch.ones_like(inputs["value"])})
        if not _close(ones, torch.ones_like(ones)):
            seen.append("The weights of a query do not sum to 1.")
    if "cross" in subject.takes and not _close(outputs(moved), plain):
        seen.append("Moving keys together with their values changes the output.")
    if not _close(outputs(alone), plain[:1]):
        seen.append("An item comes out differently alone than in its batch.")
    if "mask" in subject.takes and not _close(
        outputs(later, causal)[..., :1, :], outputs(inputs, causal)[..., :1, :]
    ):
        seen.append("Under a causal mask a later token moves an earlier output.")
    return seen


def _shown(x: Any) -> str:
    if not isinstance(x, Tensor):
        return f"{x:.4g}"
    if x.numel() > FEW:
        return f"a tensor of shape {tuple(x.shape)}"
    return _numbers(x.tolist())  # True is shown as 1


def _numbers(values: Any) -> str:
    if isinstance(values, list):
        return "[" + ", ".join(map(_numbers, values)) + "]"
    return f"{values:.4g}"


def _wrapped(line: str) -> str:
    return textwrap.fill(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
