"""The wrong programs, each wrong in one way only, and the command that puts them in place."""

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import mini_attention
from mini_attention.decoding import KVCache
from mini_attention.mistakes import MISTAKES, RUNNING
from mini_attention.mistakes.formula import FORMULA, Formula
from mini_attention.mistakes.layers import LAYER, Layer
from tests.oracles import TOLERANCE, B, H, I, J, inputs, some_bias, some_mask, torch_layer
from tools.mistakes import ROOT, SUITE, Result, Run, is_caught, kernels_with, read_result

KINDS = {
    "alignment",
    "axis",
    "convert",
    "dropout",
    "dtype only",
    "empty rows",
    "fill",
    "gradient only",
    "numbers",
    "one path",
    "one rank",
    "order",
    "repeat",
    "reshape",
    "scale",
    "sense",
    "side effect",
    "sources",
}
M = 5 * H  # features of the model
every = pytest.mark.parametrize("mistake", MISTAKES.values(), ids=lambda mistake: mistake.name)

Answer = dict[str, Tensor | str]


# The catalogue


def test_there_are_at_least_forty_mistakes_and_some_of_every_kind():
    assert len(MISTAKES) >= 40
    assert {mistake.kind for mistake in MISTAKES.values()} == KINDS


def test_no_name_is_taken_twice():
    folder = Path(inspect.getfile(Formula)).parent
    registered = sum(file.read_text().count("\n@mistake(") for file in folder.glob("*.py"))
    assert registered == len(MISTAKES) + len(RUNNING)
    assert not MISTAKES.keys() & RUNNING.keys()


@every
def test_a_mistake_says_in_sentences_what_it_is_and_what_it_looks_like(mistake):
    assert mistake.what.endswith(".")
    assert mistake.looks_like.endswith(".")
    assert mistake.what != mistake.looks_like


@every
def test_a_wrong_program_takes_what_the_right_one_takes(mistake):
    for name, wrong in mistake.programs.items():
        for expected, actual in signatures(getattr(mini_attention, name), wrong):
            assert actual == expected


def signatures(right, wrong) -> Iterator[tuple[list, list]]:
    methods = ["forward", "__call__", "from_torch", "to_torch"] if inspect.isclass(right) else []
    for name in [None, *(name for name in methods if hasattr(right, name))]:
        programs = [getattr(program, name) if name else program for program in (right, wrong)]
        first, second = (inspect.signature(program).parameters.values() for program in programs)
        yield [(p.name, p.kind) for p in first], [(p.name, p.kind) for p in second]


# What programs answer, on inputs that tell mistakes apart


def junk_behind_mask() -> dict:
    given = inputs(B, H) | {"mask": some_mask(I, J)}
    given["mask"][:, 3] = False
    given["key"][..., 3, :] = given["value"][..., 3, :] = torch.nan
    return given


def key_for_others_far_ahead() -> dict:
    """Query 0 may not see key 3, which matches it far better than all others."""
    given = inputs(B, H) | {"mask": torch.ones(I, J, dtype=torch.bool)}
    given["mask"][0, 3] = False
    given["key"][..., 3, :] = 1000 * given["query"][..., 0, :]
    return given


def first_row_far_ahead(given: dict) -> dict:
    given["query"][..., 0, :] *= 1000
    return given


def empty_row(mask: Tensor) -> Tensor:
    mask[..., 2, :] = False
    return mask


def half(given: dict) -> dict:
    """Features with products that no float16 can hold, and scores that one can."""
    return {name: (300 * tensor).half() for name, tensor in given.items()} | {"scale": 1e-5}


FORMULA_CASES: dict[str, Callable[[], dict]] = {
    "plain": lambda: inputs(B, H),
    "square": lambda: inputs(B, H, j=I),
    "mask": lambda: inputs(B, H) | {"mask": some_mask(I, J)},
    "square mask": lambda: inputs(B, H, j=I) | {"mask": some_mask(I, I)},
    "mask per head": lambda: inputs(B, H) | {"mask": some_mask(B, H, I, J)},
    "mask of rank 3": lambda: inputs(H, H) | {"mask": some_mask(H, I, J)},
    "bias": lambda: inputs(B, H) | {"bias": some_bias(I, J)},
    "mask and bias": lambda: inputs(B, H) | {"mask": some_mask(I, J), "bias": some_bias(I, J)},
    "scale": lambda: inputs(B, H) | {"scale": 0.7},
    "empty row": lambda: inputs(B, H) | {"mask": empty_row(some_mask(I, J))},
    "junk": junk_behind_mask,
    "far ahead": lambda: first_row_far_ahead(inputs(B, H)),
    "hidden and far ahead": key_for_others_far_ahead,
    "half": lambda: half(inputs(B, H)),
    "dropout": lambda: inputs(B, H) | {"dropout_p": 0.5},
}


def ask_function(name: str, case: str, program: Callable) -> Answer:
    """The output, the gradients, and what is left of the arguments."""
    names = inspect.signature(getattr(mini_attention, name)).parameters
    given = {key: value for key, value in FORMULA_CASES[case]().items() if key in names}
    leaves = {
        key: value.requires_grad_()
        for key, value in given.items()
        if isinstance(value, Tensor) and value.is_floating_point()
    }
    output = program(**given)
    found = gradients(output, leaves)
    return {f"{key} afterwards": value.detach() for key, value in leaves.items()} | found


def gradients(output: Tensor, leaves: dict[str, Tensor]) -> Answer:
    upstream = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    found = torch.autograd.grad(output, list(leaves.values()), upstream, allow_unused=True)
    none = torch.zeros(())
    named = zip(leaves, found, strict=True)
    return {"output": output.detach()} | {k: none if g is None else g for k, g in named}


def ask_layer(
    program: Callable, *shapes: tuple[int, int], mask=None, bias=None, train=False, **options
) -> Answer:
    """The output and weights of a layer, and the gradients of its parameters."""
    layer = program(M, H, **options).double().train(train)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    sources = [torch.randn(*shape, M, dtype=torch.float64) for shape in shapes]
    output, weights = layer(*sources, mask=mask, bias=bias, return_weights=True)
    return gradients(output, dict(layer.named_parameters())) | {"weights": weights.detach()}


def ask_copy(program: Callable) -> Answer:
    layer = program.from_torch(torch_layer(M, H))
    return {"output": layer(torch.randn(B, I, M, dtype=torch.float64)).detach()}


def causal(n: int) -> Tensor:
    return torch.ones(n, n).tril().bool()


LAYER_CASES = {
    "self": lambda layer: ask_layer(layer, (B, I)),
    "another sequence": lambda layer: ask_layer(layer, (B, I), (B, J)),
    "three sources": lambda layer: ask_layer(layer, (B, I), (B, I), (B, I)),
    "causal": lambda layer: ask_layer(layer, (B, I), mask=causal(I)),
    "mask per item": lambda layer: ask_layer(layer, (H, I), (H, J), mask=some_mask(H, I, J)),
    "bias": lambda layer: ask_layer(layer, (B, I), (B, J), bias=some_bias(I, J)),
    "rate in evaluation": lambda layer: ask_layer(layer, (B, I), dropout=0.5),
    "rate in training": lambda layer: ask_layer(layer, (B, I), dropout=0.5, train=True),
    "copy": ask_copy,
}
MASK_CASES = {
    "causal_mask": {"fewer queries": lambda build: build(I, J)},
    "window_mask": {
        "two before": lambda build: build(I, before=2),
        "fewer queries": lambda build: build(I, J, before=1),
    },
    "padding_mask": {
        "right": lambda build: build([3, 1], 5),
        "left": lambda build: build([3, 1], 5, side="left"),
    },
    "document_mask": {
        "two": lambda build: build(torch.tensor([0, 0, 1])),
        "other keys": lambda build: build(torch.tensor([0, 1]), torch.tensor([1, 1])),
    },
    "mask_from_torch": {
        "two": lambda convert: convert(some_mask(I, J), some_mask(B, J), num_heads=H)
    },
    "mask_to_torch": {
        "for all": lambda convert: convert(some_mask(I, J), num_heads=H),
        "per head": lambda convert: convert(some_mask(B, H, I, J), num_heads=H),
    },
}
POSITION_CASES = {
    "sinusoidal_positions": {"a table": lambda build: build(I, 2 * M)},
    "rotary_embedding": {
        "heads": lambda turn: turn(torch.randn(B, H, I, 6, dtype=torch.float64)),
        "given": lambda turn: turn(torch.randn(I, 6, dtype=torch.float64), torch.arange(I) + 3),
    },
    "RotaryAttention": {
        "alike": lambda build: build()(*torch.randn(3, B, H, I, 6)),
        "fewer queries": lambda build: build()(torch.randn(I, 6), *torch.randn(2, J, 6)),
    },
}
CASES: dict[str, dict[str, Callable]] = {
    **{
        name: {case: partial(ask_function, name, case) for case in FORMULA_CASES}
        for name in FORMULA
    },
    LAYER: LAYER_CASES,
    **MASK_CASES,
    **POSITION_CASES,
}


def answer(ask: Callable, program: Callable) -> Answer:
    torch.manual_seed(0)
    try:
        found = ask(program)
    except (TypeError, ValueError, RuntimeError) as error:
        return {"error": type(error).__name__}
    if isinstance(found, dict):
        return found
    found = found if isinstance(found, tuple) else (found,)
    return {str(n): "nothing" if one is None else one for n, one in enumerate(found)}


def agree(one: Answer, other: Answer) -> bool:
    return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)


def same(one: Tensor | str, other: Tensor | str) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and one == other
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    bound = TOLERANCE.get(one.dtype, 1e-2)
    bound *= max(1.0, other.double().nan_to_num().abs().max().item())
    return torch.allclose(one.double(), other.double(), rtol=bound, atol=bound, equal_nan=True)


@cache
def right_answer(name: str, case: str, *, clothed: bool) -> Answer:
    """What the package answers, or the right program in the clothes of the wrong ones."""
    clothes = {LAYER: Layer} | {name: getattr(Formula(), name) for name in FORMULA}
    program = clothes[name] if clothed and name in clothes else getattr(mini_attention, name)
    return answer(CASES[name][case], program)


@pytest.mark.parametrize("name", [*FORMULA, LAYER])
def test_the_right_program_in_steps_answers_as_the_package_does(name):
    for case in CASES[name]:
        if (name, case) != ("fused_attention", "dropout"):  # the kernel draws other numbers
            clothed, bare = (right_answer(name, case, clothed=clothed) for clothed in (True, False))
            assert agree(clothed, bare), case


@every
def test_a_wrong_program_answers_wrongly_and_without_an_error(mistake):
    assert any(
        "error" not in wrong and not agree(wrong, right_answer(name, case, clothed=True))
        for name, program in mistake.programs.items()
        for case, ask in CASES[name].items()
        for wrong in [answer(ask, program)]
    )


# The command that puts them in place

LOOK = """
from torch.nn import MultiheadAttention
import mini_attention as package
from mini_attention import MultiHeadAttention, SingleHeadAttention, functional, heads
from mini_attention.mistakes import MISTAKES
layers = SingleHeadAttention(2), MultiHeadAttention(2, 1), MultiHeadAttention.from_torch(
    MultiheadAttention(2, 1, batch_first=True))
for name, wrong in MISTAKES["no scale"].programs.items():
    used = [vars(module).get(name, wrong) for module in (package, functional, heads)]
    if name == "fused_attention":
        used += [layer.attend for layer in layers]
    print(name, all(one is wrong for one in used))
"""


def python(*arguments: str, **environment: str) -> list[str]:
    """The lines that a Python of its own prints."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout.splitlines()


def test_a_kernel_has_the_wrong_programs_wherever_the_package_has_the_right_ones(tmp_path):
    environment = kernels_with("no scale", False, tmp_path)
    lines = python("-m", "IPython", "--no-banner", "-c", LOOK, **environment)
    assert lines == [f"{name} True" for name in FORMULA]


COMMAND = """
import sys
from pathlib import Path
from tools import mistakes
mistakes.STORE = Path(sys.argv.pop())
mistakes.KINDS = {"tests/test_masks.py": "masks", "mini_attention/masks.py": "examples"}
mistakes.LEFT_OUT = ("-k", sys.argv.pop())
print("exit", mistakes.main(["suite", "--jobs=1", "--only=causal one ahead"]))
"""


def test_the_suite_catches_a_mistake_by_two_kinds_and_remembers_it(tmp_path):
    names = "test_causal_queries_see_no_later_key or causal_mask"
    first = python("-c", COMMAND, names, str(tmp_path))
    assert first[-2:] == ["1 mistakes, 1 caught by two kinds or more", "exit 0"]
    stored = (tmp_path / "suite.jsonl").read_text().splitlines()
    assert [json.loads(line)["name"] for line in stored] == [
        "control: nothing replaced",
        "causal one ahead",
    ]


def result(ended="finished", **failed: list[str]) -> Result:
    return Result("a mistake", "of these files", ended, failed)


def test_a_mistake_is_caught_when_tests_of_two_kinds_fail():
    assert is_caught(result(contract=["a"], masks=["b"]), result())
    assert not is_caught(result(contract=["a", "b", "c"]), result())
    assert not is_caught(result(), result())


def test_what_fails_under_the_control_too_catches_nothing():
    assert not is_caught(result(contract=["a"], masks=["b"]), result(masks=["b"]))
    assert is_caught(result(contract=["a"], masks=["b", "c"]), result(masks=["b"]))


@torch.no_grad()
def test_the_right_layer_in_steps_keeps_keys_as_the_package_does():
    x = torch.randn(B, I, 6)
    layer, right = Layer(6, H), mini_attention.MultiHeadAttention(6, H)
    right.load_state_dict(layer.state_dict())
    caches = KVCache(I), KVCache(I)
    for token in x.split(1, dim=1):
        ours, expected = layer(token, cache=caches[0]), right(token, cache=caches[1])
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("ended", ["crashed", "timed out"])
def test_a_run_that_did_not_get_to_its_end_catches_nothing(ended):
    assert not is_caught(result(ended, contract=["a"], masks=["b"]), result())


@pytest.mark.parametrize("code", [0, 1])
def test_a_run_has_finished_when_pytest_says_that_its_tests_passed_or_failed(tmp_path, code):
    assert left_behind(tmp_path, json.dumps({"exit": code})).ended == "finished"


@pytest.mark.parametrize("last", [json.dumps({"exit": 2}), ""])
def test_a_run_has_crashed_when_its_tests_could_not_be_run_or_it_never_said(tmp_path, last):
    found = left_behind(tmp_path, last)
    assert found == result("crashed", masks=["tests/test_masks.py::test_a"])


def left_behind(folder: Path, last: str) -> Result:
    (folder / "record").write_text(f'"tests/test_masks.py::test_a"\n{last}')
    return read_result(SUITE, Run("a mistake", "a mistake", "of these files"), folder)
