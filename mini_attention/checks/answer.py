"""Put a case to a program, and compare what two programs answer."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .case import Case, CheckFailed, Program, Subject

Answer = dict[str, Tensor] | Exception

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
MATRIX = "tensors of i x j elements made on the way (1 is yes)"
# A program's random numbers are none of the caller's, who goes on as if it had drawn none.
fork_rng = functools.partial(torch.random.fork_rng, devices=[])  # no GPU's: none is drawn there


def answer(program: Program, case: Case) -> Answer:
    """The output, gradients and inputs that were changed, by name; or the error that was raised."""

    inputs, options = _copies(case.inputs, case.gradients), _copies(case.options, case.gradients)
    mask = None if case.mask is None else case.mask.clone()

    def outputs() -> dict[str, Tensor]:
        return _narrowed(program.outputs(program.call(*inputs.values(), mask, **options)), case)

    try:
        with fork_rng(), _watch(case.whole) as largest:
            torch.default_generator.manual_seed(0)  # the CPU alone: a tenth of the time
            first = outputs()
            *_, output = first.values()
            found = {n: case.read(x).detach() for n, x in first.items()}
            if case.again:
                *_, second = outputs().values()
                found["change in a second call"] = (second - output).detach().abs().amax()
        if largest is not None:
            found[MATRIX] = torch.tensor(largest.elements >= case.whole).int()
        if case.gradients:
            leaves = {n: x for n, x in (inputs | options).items() if isinstance(x, Tensor)}
            found |= _gradients(output, leaves | dict(program.parameters(output.dtype)))
    except CheckFailed:  # what kept the program from answering has said all
        raise
    except Exception as error:  # whatever a reader's program raises is its answer
        return error
    for name, tensor in inputs.items():
        before = case.inputs[name]
        if isinstance(tensor, Tensor) and not _equal(tensor.detach(), before):
            found[f"{name} after the call"] = tensor.detach()
    return found


def _copies(given: Mapping[str, Any], gradients: bool) -> dict[str, Any]:
    return {
        name: x.clone().requires_grad_(gradients) if isinstance(x, Tensor) else x
        for name, x in given.items()
    }


def _narrowed(outputs: Mapping[str, Tensor], case: Case) -> dict[str, Tensor]:
    """The outputs in the dtype of the inputs, where an answer in float64 is as good."""
    given = [x.dtype for x in case.inputs.values() if isinstance(x, Tensor)]
    if case.strict or not given or not given[0].is_floating_point:
        return dict(outputs)
    return {n: x.to(given[0]) if x.dtype == torch.float64 else x for n, x in outputs.items()}


def _gradients(output: Tensor, leaves: Mapping[str, Tensor]) -> dict[str, Tensor]:
    upstream = torch.linspace(-1, 2, output.numel()).reshape(output.shape)
    gradients = torch.autograd.grad(output, list(leaves.values()), upstream, materialize_grads=True)
    return {f"gradient of {n}": g for n, g in zip(leaves, gradients, strict=True)}


def _watch(elements: int) -> AbstractContextManager[_Largest | None]:
    return _Largest() if elements else nullcontext()  # type: ignore[no-untyped-call]


class _Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches how many elements the largest tensor that is made has, in this process."""

    elements = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        for x in made if isinstance(made, tuple | list) else [made]:
            if isinstance(x, Tensor):  # a view holds no more than what it looks at
                held = x.untyped_storage().nbytes() // x.element_size()
                self.elements = max(self.elements, held)
        return made


def _equal(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.nan_to_num(), other.nan_to_num())


def same(one: Answer, other: Answer) -> bool:
    """Whether two answers hold the same names, shapes, dtypes and, within rounding, numbers."""
    if isinstance(one, Exception) or isinstance(other, Exception):
        return type(one) is type(other) and str(one) == str(other)
    if one.keys() != other.keys():
        return False
    return all(close(one[name], other[name]) for name in other)


def agree(one: Answer, other: Answer) -> bool:
    """Whether two answers can come of one mistake: both raise, or they are the same."""
    if isinstance(one, Exception) or isinstance(other, Exception):
        return isinstance(one, Exception) and isinstance(other, Exception)
    outputs = [name for name in other if "gradient" not in name and "after" not in name]
    if all(other[name].isfinite().all() for name in outputs):
        return same(one, other)
    # What NaN does to gradients is a matter of chance.
    return all(name in one and close(one[name], other[name]) for name in outputs)


def close(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    bound = TOLERANCE.get(other.dtype, 0.0) * max([1.0, *other[other.isfinite()].abs().tolist()])
    return torch.allclose(one, other, rtol=0, atol=bound, equal_nan=True)


def expected_of(subject: Subject, case: Case) -> Answer:
    """The right answer, which may hold whatever tensor on the way."""
    expected = answer(subject.right, replace(case, whole=0))
    if not case.whole or isinstance(expected, Exception):
        return expected
    return expected | {MATRIX: torch.tensor(0, dtype=torch.int32)}
