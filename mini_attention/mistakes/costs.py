"""How counts go wrong: by a factor, in one size, or by what is left out."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .catalogue import Mistake

Sizes = Mapping[str, Any]
Total = Callable[[Sizes], float]

HEADS = ("h", "heads", "num_heads", "n_heads")  # what a number of heads is called
FACTORS = {
    2.0: ("twice as much", "A multiply-add is two FLOPs: are FLOPs counted where it is asked for?"),
    0.5: (
        "half as much",
        "A multiply-add is two FLOPs, and a causal mask saves nothing by itself.",
    ),
    4.0: ("four times as much", "A number in float32 has 4 bytes: are these bytes, not numbers?"),
    0.25: ("a quarter", "A number in float32 has 4 bytes: are these numbers, not bytes?"),
    3.0: ("three times as much", "The backward pass costs twice the forward pass: is it in it?"),
    1 / 3: ("a third", "The backward pass costs twice the forward pass: is it left out?"),
    8.0: ("eight times as much", "A byte has 8 bits, and a number in float64 has 8 bytes."),
    0.125: ("an eighth", "A byte has 8 bits, and a number in float64 has 8 bytes."),
}


class Right:
    """A right function of sizes, and the parts of its results."""

    def __init__(self, like: Callable[..., Any], column: str) -> None:
        self.like, self.column = like, column
        self.known: dict[tuple[tuple[str, Any], ...], dict[str, float]] = {}
        given = inspect.signature(like).parameters.values()
        defaults = {p.name: p.default for p in given if isinstance(p.default, int)}
        self.flags = [name for name, default in defaults.items() if isinstance(default, bool)]
        self.usual = {name: x for name, x in defaults.items() if name not in self.flags}

    def parts(self, sizes: Sizes) -> dict[str, float]:
        key = tuple(sizes.items())
        if key not in self.known:
            self.known[key] = parts_of(self.like(**sizes), self.column)
        return self.known[key]

    def total(self, sizes: Sizes) -> float:
        return sum(self.parts(sizes).values())


class Unbiased(Right):
    """The parameters of a `Cost` without the biases."""

    def parts(self, sizes: Sizes) -> dict[str, float]:
        steps = [step for step in self.like(**sizes).steps if step.parameters]
        # Positions x features are added, and positions x (size + 1) x features is all there is.
        share = {s.name: s.multiply_adds / (s.multiply_adds + s.elementwise) for s in steps}
        return {step.name: step.parameters * share[step.name] for step in steps}


def parts_of(result: Any, column: str) -> dict[str, float]:
    """The parts of a number, which has one, of a dictionary, or of a `Cost`."""
    if isinstance(result, Mapping):
        return {str(name): float(part) for name, part in result.items()}
    if hasattr(result, "steps"):
        found = {step.name: float(getattr(step, column)) for step in result.steps}
        return {name: part for name, part in found.items() if part}
    return {"": float(result)}


def sum_of(result: Any, column: str) -> float:
    return sum(parts_of(result, column).values())


def mistakes_of(
    right: Right, asked: Sequence[Sizes], wrong: Mapping[str, Callable[..., Any]]
) -> dict[str, Mistake]:
    """The mistakes that show at the sizes that are asked, each by the first of its names."""
    found: dict[tuple[float, ...], list[Mistake]] = {}
    right_answers = _answers(right.total, asked)
    names = dict.fromkeys(n for sizes in asked for n in sizes if n not in right.flags)
    kinds = _given(right, wrong), _factors(right), _sizes(right, [*names]), _parts(right, asked)
    for mistake in itertools.chain(*kinds):
        answers = _answers(mistake.programs["total"], asked)
        if answers is not None and answers != right_answers:
            found.setdefault(answers, []).append(mistake)
    return {one.name: _with_others(one, others) for one, *others in found.values()}


def _with_others(one: Mistake, others: Sequence[Mistake]) -> Mistake:
    """The first of those that answer alike, which tells of the others."""
    names = list(dict.fromkeys(other.name for other in others))[:4]
    if one.kind != "parts" or not names:
        return one
    return replace(one, looks_like=f"Of the same size: {', '.join(names)}.")


def _answers(total: Total, asked: Sequence[Sizes]) -> tuple[float, ...] | None:
    """All answers, or None where there is an error among them."""
    try:
        return tuple(float(f"{total(sizes):.12g}") for sizes in asked)
    except (ArithmeticError, TypeError, ValueError):
        return None


def _mistake(kind: str, name: str, what: str, total: Total, looks_like: str = "") -> Mistake:
    return Mistake(name, kind, what, looks_like, {"total": total}, total)


def _given(right: Right, wrong: Mapping[str, Callable[..., Any]]) -> Iterator[Mistake]:
    for said, function in wrong.items():
        name, _, what = said.partition(": ")
        yield _mistake("given", name, what, Right(function, right.column).total)


def times(total: Total, factor: float) -> Total:
    return lambda sizes: factor * total(sizes)


def _factors(right: Right) -> Iterator[Mistake]:
    for factor, (name, why) in FACTORS.items():
        what = f"What comes is {name} as is right."
        yield _mistake("factor", name, what, times(right.total, factor), why)


def factor_of(mistake: Mistake) -> float:
    return next(factor for factor, (name, _) in FACTORS.items() if name == mistake.name)


def _sizes(right: Right, names: Sequence[str]) -> Iterator[Mistake]:
    for name in names:
        one_head = "One head is counted, not all of them." if name in HEADS else ""
        what = one_head or f"The answer is the same for each {name}."
        yield _mistake("parts", f"{name} left out", what, _changed(right, {name: 1}))
        what = one_head or f"It has {name} where {name}² is right, or nothing where {name} is."
        yield _mistake("size", f"a factor {name} is missing", what, _power(right, name, -1))
        what = f"It has {name}² where {name} is right, or {name} where there should be none."
        yield _mistake("size", f"a factor {name} too many", what, _power(right, name, 1))
    for one, other in itertools.permutations(names, 2):
        what = f"{one} stands where {other} should."
        yield _mistake("size", f"{one} in place of {other}", what, _replaced(right, other, one))
    for one, other in itertools.combinations(names, 2):
        what = f"{one} stands where {other} should, and {other} where {one} should."
        yield _mistake("size", f"{one} and {other} exchanged", what, _exchanged(right, one, other))
    for name, value in right.usual.items():
        what = f"{name} is {value} unless it is given, and it can be given."
        yield _mistake("parts", f"{name} taken to be {value}", what, _changed(right, {name: value}))
    for flag, value in itertools.product(right.flags, (False, True)):
        what = "The biases of projections are left out." if flag == "proj_bias" else ""
        yield _mistake("parts", f"{flag} taken to be {value}", what, _changed(right, {flag: value}))


def _changed(right: Right, new: Sizes) -> Total:
    return lambda sizes: right.total({**sizes, **new})


def _power(right: Right, name: str, power: int) -> Total:
    return lambda sizes: right.total(sizes) * float(sizes[name]) ** power


def _replaced(right: Right, name: str, by: str) -> Total:
    return lambda sizes: right.total({**sizes, name: sizes[by]})


def _exchanged(right: Right, one: str, other: str) -> Total:
    return lambda sizes: right.total({**sizes, one: sizes[other], other: sizes[one]})


def _parts(right: Right, asked: Sequence[Sizes]) -> Iterator[Mistake]:
    """Some parts left out, or counted with a factor of their own."""
    names = [*max(map(right.parts, asked), key=len, default={})]
    some = [c for count in range(1, len(names)) for c in itertools.combinations(names, count)]
    for left_out in some:
        yield _weighted(right, left_out, 0.0, "left out")
    for factor, how in ((0.5, "counted half"), (2.0, "counted twice")):
        for counted in some:
            if len(counted) <= 2:
                yield _weighted(right, counted, factor, how)
    if right.column == "parameters" and hasattr(right.like(**asked[0]), "steps"):
        bare = Unbiased(right.like, right.column)
        what = "A projection has one more parameter, its bias, for each feature that it makes."
        yield _mistake("parts", "biases left out", what, bare.total)
        for left_out in some:
            yield _weighted(bare, left_out, 0.0, "and all biases left out")


def _weighted(right: Right, some: Sequence[str], factor: float, how: str) -> Mistake:
    def total(sizes: Sizes) -> float:
        return sum(x * (factor if name in some else 1) for name, x in right.parts(sizes).items())

    listed = " and ".join(some)
    what = (
        f"The rest is right; this part is not: {listed}."
        if len(some) == 1
        else (f"The rest is right; these parts are not: {listed}.")
    )
    return _mistake("parts", f"{listed} {how}", what, total)
