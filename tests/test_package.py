"""The package as a whole: what it shows, what it costs to import, and how small it is."""

import ast
import inspect
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import mini_attention

FOLDER = Path(mini_attention.__file__).parent
FILES = sorted(FOLDER.rglob("*.py"))
PUBLIC = [getattr(mini_attention, name) for name in mini_attention.__all__]


@cache
def modules_after(statement: str) -> set[str]:
    """The modules that a fresh Python has loaded after `statement`."""
    code = f"import sys; {statement}; print(*sys.modules)"
    run = [sys.executable, "-c", code]
    return set(subprocess.check_output(run, text=True, cwd=FOLDER.parent).split())


@pytest.mark.slow
def test_importing_the_package_brings_torch_and_einops_and_nothing_else():
    before, after = modules_after("import torch, einops"), modules_after("import mini_attention")
    assert {name.split(".")[0] for name in after - before} == {"mini_attention"}


@pytest.mark.slow
def test_importing_the_package_does_not_count_measure_or_draw():
    ours = {name for name in modules_after("import mini_attention") if "mini_attention." in name}
    assert not ours & {f"mini_attention.{name}" for name in ("cost", "memory", "plots")}
    assert "mini_attention.rules" in ours


def test_the_public_names_are_sorted_and_all_there():
    assert mini_attention.__all__ == sorted(mini_attention.__all__)
    assert len(mini_attention.__all__) <= 20
    assert all(inspect.isclass(item) or inspect.isfunction(item) for item in PUBLIC)


@pytest.mark.parametrize("item", PUBLIC, ids=lambda item: item.__name__)
def test_a_public_docstring_begins_with_a_sentence_and_ends_with_a_doctest(item):
    lines = inspect.getdoc(item).splitlines()
    assert lines[0].endswith(".")
    assert lines[1] == ""
    assert any(line.startswith(">>> ") for line in lines)


def what_is_called(item):
    """Of a layer its `forward`, of a class of functions such as `RotaryAttention` the call."""
    return getattr(item, "forward", item.__call__) if inspect.isclass(item) else item


@pytest.mark.parametrize("item", PUBLIC, ids=lambda item: item.__name__)
def test_a_public_docstring_describes_each_argument_that_is_a_tensor_or_size(item):
    if item is mini_attention.fused_attention:
        item = mini_attention.attention  # whose docstring it points to
    function = what_is_called(item)
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    table = "\n".join(line for line in inspect.getdoc(item).splitlines() if line.startswith("    "))
    optional = {"device", "num_heads", "return_weights"}  # said in words, or by the name
    missing = [name for name in names if name not in optional and name not in table]
    assert not missing


@pytest.mark.parametrize("item", PUBLIC, ids=lambda item: item.__name__)
def test_the_public_face_is_typed(item):
    function = what_is_called(item)
    parameters = inspect.signature(function).parameters
    annotations = {name: p.annotation for name, p in parameters.items() if name != "self"}
    assert inspect.Parameter.empty not in annotations.values()
    assert inspect.signature(function).return_annotation is not inspect.Signature.empty
    assert (FOLDER / "py.typed").exists()


def lines_of_code(file: Path) -> int:
    """Lines that hold code: no blank lines, no comments, no docstrings."""
    text = file.read_text()
    skipped = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped |= set(range(node.lineno, node.end_lineno + 1))
    lines = (line.strip() for n, line in enumerate(text.splitlines(), 1) if n not in skipped)
    return sum(bool(line) and not line.startswith("#") for line in lines)


def test_what_has_to_be_read_stays_small():
    # for those who count, measure or draw
    beside = {"cost.py", "memory.py", "plots.py", "shown.py"}
    further = {  # what a chapter after the foundations adds
        "long sequences": (550, {"blocked.py", "blocks.py", "rules.py"}),
        "positions": (200, {"position.py"}),
        "a Transformer": (220, {"transformer.py"}),
        "decoding": (200, {"decoding.py"}),
        "reading heads": (100, {"reading.py"}),
    }
    files = {f.name: f for f in FILES if f.parent == FOLDER and f.name not in beside}
    for limit, names in further.values():
        assert sum(lines_of_code(files.pop(name)) for name in names) <= limit
    assert sum(map(lines_of_code, files.values())) <= 700
    assert all(lines_of_code(file) <= 300 for file in FILES)


def test_functions_stay_short():
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                length = body[-1].end_lineno - body[0].lineno + 1 if body else 0
                assert length <= 40, f"{file.name}: {node.name} has {length} lines"
