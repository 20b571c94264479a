"""A student's work, seen through the sandbox, is what it would be in the grader's own process."""

import inspect
import json
import socket
import struct
import threading
import time
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

import mini_attention
from course.model import Missing
from course.sandbox import Limits, RemoteStudent, Sandbox, Stopped, level, why_not_contained
from course.sandbox.cells import binds, compiled, mentions
from course.sandbox.protocol import CannotHandOver, Channel, Packer, ProtocolError, TooLarge
from mini_attention import check_attention, check_multi_head
from mini_attention.checks import CheckFailed
from mini_attention.mistakes import MISTAKES

RIGHT = """
import math
import torch
from torch import nn

def attention(query, key, value, mask=None, *, scale=None):
    scale = key.shape[-1] ** -0.5 if scale is None else scale
    scores = query @ key.mT * scale
    if mask is None:
        return scores.softmax(-1) @ value
    scores = scores.masked_fill(~mask, -math.inf).masked_fill(~mask.any(-1, keepdim=True), 0)
    return scores.softmax(-1).masked_fill(~mask, 0) @ value

class MultiHead(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            self.add_module(name, nn.Linear(d_model, d_model))

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        cut = lambda x: x.unflatten(-1, (self.num_heads, -1)).transpose(-2, -3)
        if mask is not None and mask.ndim == 3:
            mask = mask[:, None]
        q, k, v = cut(self.q_proj(query)), cut(self.k_proj(key)), cut(self.v_proj(value))
        heads = attention(q, k, v, mask)
        return self.out_proj(heads.transpose(-2, -3).flatten(-2))
"""
WRONG = {
    "no scale": ("key.shape[-1] ** -0.5", "1.0"),
    "mask inverted": (
        "    if mask is None:",
        "    mask = None if mask is None else ~mask\n    if mask is None:",
    ),
    "empty rows give nan": (
        ".masked_fill(~mask.any(-1, keepdim=True), 0)\n"
        "    return scores.softmax(-1).masked_fill(~mask, 0)",
        "\n    return scores.softmax(-1)",
    ),
}
TEST = """
def test_it(program):
    q, k, v = torch.randn(2, 3), torch.randn(5, 3), torch.randn(5, 7)
    wanted = (q @ k.mT / 3**0.5).softmax(-1) @ v
    assert torch.allclose(program(q, k, v), wanted, atol=1e-5), "the numbers differ"
"""


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(Limits(wall_seconds=20)) as sandbox:
        yield sandbox


@dataclass
class Narrow:
    """The same sandbox with narrower limits of those that the grader's side keeps."""

    sandbox: Sandbox
    limits: Limits

    def student(self, cells):
        return RemoteStudent(self, cells)

    def fork(self, channel, control):
        self.sandbox.fork(channel, control)


@pytest.fixture
def quick(sandbox):
    """With little patience, for what does not end."""
    return Narrow(sandbox, Limits(wall_seconds=3, answer_bytes=2**20))


@pytest.fixture
def student(sandbox):
    with sandbox.student([RIGHT, TEST]) as student:
        yield student


def local(*cells):
    names = {}
    for cell in cells:
        exec(cell, names)
    return names


def outcome(check, thing):
    try:
        return str(check(thing))
    except CheckFailed as failure:
        return str(failure)


# Functions


def test_a_right_function_passes_the_check_from_afar(student):
    report = check_attention(student.function("attention"))
    assert str(report) == str(check_attention(local(RIGHT)["attention"]))


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_function_gets_the_same_diagnosis_from_afar(sandbox, name):
    cell = RIGHT.replace(*WRONG[name])
    with sandbox.student([cell]) as student, pytest.raises(CheckFailed) as failure:
        check_attention(student.function("attention"))
    assert f"this mistake: {name}." in " ".join(str(failure.value).split())
    assert str(failure.value) == outcome(check_attention, local(cell)["attention"])


def test_a_function_shows_the_students_signature(student):
    ours = inspect.signature(local(RIGHT)["attention"])
    assert str(inspect.signature(student.function("attention"))) == str(ours)


def test_a_builtin_has_no_signature_as_here(sandbox):
    with (
        sandbox.student(["import torch\nmine = torch.softmax"]) as student,
        pytest.raises(ValueError, match="no signature found for mine"),
    ):
        inspect.signature(student.function("mine"))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_results_keep_dtype_and_shape(student, dtype):
    query, key, value = (torch.randn(2, n, d, dtype=dtype) for n, d in ((3, 5), (7, 5), (7, 11)))
    found = student.function("attention")(query, key, value)
    wanted = local(RIGHT)["attention"](query, key, value)
    assert torch.equal(found, wanted)
    assert found.dtype == dtype


def test_gradients_come_from_the_students_own_graph(student):
    inputs = [torch.randn(2, n, d, dtype=torch.float64) for n, d in ((3, 5), (7, 5), (7, 11))]
    inputs = [x.requires_grad_() for x in inputs]
    upstream = torch.randn(2, 3, 11, dtype=torch.float64)
    functions = student.function("attention"), local(RIGHT)["attention"]
    found, wanted = (torch.autograd.grad(f(*inputs), inputs, upstream) for f in functions)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def test_gradients_flow_through_what_is_no_leaf(student):
    x = torch.randn(5, 3, requires_grad=True)
    function = student.function("attention")
    (found,) = torch.autograd.grad(function(2 * x, x.cos(), x).sin().sum(), x)
    (wanted,) = torch.autograd.grad(local(RIGHT)["attention"](2 * x, x.cos(), x).sin().sum(), x)
    torch.testing.assert_close(found, wanted)


def test_an_input_that_is_not_used_gets_no_gradient(sandbox):
    with sandbox.student(["def f(x, y): return 2 * x"]) as student:
        x, y = torch.ones(3, requires_grad=True), torch.ones(5, requires_grad=True)
        found = torch.autograd.grad(student.function("f")(x, y).sum(), [x, y], allow_unused=True)
    assert found[0].tolist() == [2, 2, 2]
    assert found[1] is None


def test_a_detached_result_can_not_be_differentiated(sandbox):
    with sandbox.student(["def f(x): return (2 * x).detach()"]) as student:
        assert not student.function("f")(torch.ones(3, requires_grad=True)).requires_grad


def test_a_second_derivative_is_refused(student):
    x = torch.randn(5, 3, requires_grad=True)
    output = student.function("attention")(x, x, x)
    with pytest.raises(RuntimeError, match="can be differentiated once"):
        torch.autograd.grad(output.sum(), x, create_graph=True)


def test_what_is_written_into_an_argument_is_seen_by_the_caller(sandbox):
    with sandbox.student(["def f(x, y):\n    x[0] = 7\n    return x + y"]) as student:
        x, y = torch.zeros(3), torch.ones(3)
        assert student.function("f")(x, y).tolist() == [8, 1, 1]
    assert x.tolist() == [7, 0, 0]
    assert y.tolist() == [1, 1, 1]


def test_a_leaf_may_not_be_written_to_from_afar_either(sandbox):
    with sandbox.student(["def f(x):\n    x += 1\n    return x"]) as student:
        f = student.function("f")
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            f(torch.zeros(3, requires_grad=True))
        assert f(2 * torch.ones(3, requires_grad=True)).tolist() == [3, 3, 3]


def test_what_is_passed_twice_is_one_tensor_there(sandbox):
    with sandbox.student(["def f(x, y): return x is y"]) as student:
        x = torch.ones(3)
        assert student.function("f")(x, x) is True
        assert student.function("f")(x, x.clone()) is False


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(3, 5).mT,
        torch.randn(2, 3, 5).transpose(0, 2),
        torch.randn(3, 1).expand(3, 5),
        torch.randn(7).expand(2, 3, 7),
        torch.randn(0, 3),
        torch.tensor(2.0),
    ],
    ids=lambda x: f"{tuple(x.shape)} {x.stride()}",
)
def test_axes_lie_in_memory_there_as_they_do_here(sandbox, x):
    with sandbox.student(["def f(x): return x.stride(), x"]) as student:
        stride, back = student.function("f")(x)
    assert torch.equal(back, x)
    assert x.is_contiguous() or stride == x.stride()


@pytest.mark.parametrize(
    "value",
    [
        None, True, 3, -(2**70), 0.1, float("inf"), "中文 \0", (1, [2.5, "a"]), {"a": (), 3: None},
        torch.arange(5), torch.tensor([True]), torch.ones(2, 3, dtype=torch.complex64),
        torch.linspace(0, 1, 3).to(torch.bfloat16), torch.float16, 2 + 3j, np.arange(3),
    ],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_plain_values_go_there_and_come_back(sandbox, value):
    with sandbox.student(["def f(x): return x"]) as student:
        back = student.function("f")(value)
    assert type(back) is type(value)
    assert torch.equal(back, value) if isinstance(value, torch.Tensor) else np.all(back == value)


def test_nan_comes_back_as_nan(sandbox):
    with sandbox.student(["x = float('nan')"]) as student:
        assert student.value("x") != student.value("x")


@pytest.mark.parametrize("value", ["object()", "(i for i in range(3))", "print", "{(1, 2)}"])
def test_what_is_no_plain_value_is_not_handed_over(sandbox, value):
    with (
        sandbox.student([f"x = {value}"]) as student,
        pytest.raises(TypeError, match="what x gives can't be handed over: a "),
    ):
        student.value("x")


def test_random_numbers_follow_the_callers_seed(sandbox):
    with sandbox.student(["import torch\ndef f(): return torch.rand(3)"]) as student:
        f = student.function("f")
        torch.manual_seed(5)
        first, second = f(), f()
        torch.manual_seed(5)
        assert torch.equal(f(), first)
        assert not torch.equal(first, second)


def test_a_function_of_the_package_and_one_of_the_students_can_be_passed(sandbox):
    cells = [RIGHT, "def apply(f, x): return f(x, x, x)"]
    with sandbox.student(cells) as student:
        x = torch.randn(5, 3)
        apply, own = student.function("apply"), student.function("attention")
        torch.testing.assert_close(apply(own, x), apply(mini_attention.attention, x))


# Modules


def test_a_right_layer_passes_the_check_from_afar(student):
    report = check_multi_head(student.module("MultiHead", d_model=6, num_heads=3))
    assert str(report) == str(check_multi_head(local(RIGHT)["MultiHead"](6, 3)))


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_layer_gets_the_same_diagnosis_from_afar(sandbox, name):
    with (
        sandbox.student([RIGHT.replace(*WRONG[name])]) as student,
        pytest.raises(CheckFailed) as failure,
    ):
        check_multi_head(student.module("MultiHead", d_model=6, num_heads=3))
    assert f"this mistake: {name}." in " ".join(str(failure.value).split())


def test_parameters_are_here_and_get_the_gradients(student):
    module = student.module("MultiHead", d_model=6, num_heads=3)
    here = local(RIGHT)["MultiHead"](6, 3)
    here.load_state_dict(module.state_dict())
    x = torch.randn(2, 5, 6)
    for each in (module, here):
        each(x).cos().sum().backward()
    found, wanted = ({n: p.grad for n, p in m.named_parameters()} for m in (module, here))
    torch.testing.assert_close(found, wanted)


def test_a_module_can_be_trained_from_here(sandbox):
    cell = "from torch import nn\nclass Line(nn.Sequential):\n    def __init__(self):\n"
    cell += "        super().__init__(nn.Linear(3, 1), nn.Identity())"
    with sandbox.student([cell]) as student:
        line = student.module("Line")
        x, before = torch.randn(7, 3), line.state_dict()["0.weight"].clone()
        optimizer = torch.optim.SGD(line.parameters(), lr=0.1)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = (line(x) - x.sum(-1, keepdim=True)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
    assert not torch.equal(before, line.state_dict()["0.weight"])


def test_a_module_keeps_its_mode_buffers_and_what_is_shared(sandbox):
    cell = """
import torch
from torch import nn
class Odd(nn.Module):
    size = 5
    def __init__(self, rate):
        super().__init__()
        self.a, self.b, self.rate = nn.Linear(3, 3), nn.Linear(3, 3, bias=False), rate
        self.b.weight = self.a.weight
        self.register_buffer("count", torch.tensor(2.0))
        self.fixed = torch.randn(3)
        self.drop = nn.Dropout(rate)
    def forward(self, x):
        return self.drop(self.b(self.a(x)) * self.count + self.fixed), self.training
"""
    with sandbox.student([cell]) as student:
        odd = student.module("Odd", rate=0.5)
        x = torch.ones(2, 3)
        assert odd.rate == 0.5
        assert odd.a.weight is odd.b.weight
        assert odd(x)[1] is True
        odd.eval()
        assert odd(x)[1] is False
        assert torch.equal(odd(x)[0], odd(x)[0])
        odd.count.zero_()
        assert torch.equal(odd(x)[0][0], odd(x)[0][1])


LAYERS_WITH_TWO_NAMES = [
    "self.one = nn.Linear(3, 5); self.several = nn.ModuleList([self.one])",
    "self.several = nn.ModuleList([nn.Linear(3, 5)]); self.one = self.several[0]",
]


@pytest.mark.parametrize("made", LAYERS_WITH_TWO_NAMES)
def test_a_layer_may_have_two_names(sandbox, made):
    code = f"""
from torch import nn
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        {made}
    def forward(self, x): return self.one(x) + self.several[0](x)
"""
    with sandbox.student([code]) as student:
        layer, x = student.module("Layer"), torch.randn(2, 3)
        assert layer.one.weight is layer.get_submodule("several.0").weight
        expected = 2 * nn.functional.linear(x, *layer.parameters())
        torch.testing.assert_close(layer(x), expected)


def test_a_class_that_is_no_module_is_told(sandbox):
    with (
        sandbox.student(["class Layer: pass"]) as student,
        pytest.raises(Missing, match=r"class Layer\(nn.Module\) is expected"),
    ):
        student.module("Layer")


# A test that a student writes


def test_a_students_test_is_asked_about_programs_that_it_can_not_look_at(student):
    assert student.catches("test_it", mini_attention.attention) == ""
    wrong = MISTAKES["no scale"].programs["attention"]
    assert student.catches("test_it", wrong) == "the numbers differ"


def test_a_students_test_may_differentiate_the_program(sandbox):
    cell = """
import torch
def test_it(program):
    x = torch.randn(3, 2, requires_grad=True)
    program(x, x, x).sum().backward()
    assert x.grad is not None and x.grad.abs().sum() > 0, "no gradient"
"""
    detached = lambda q, k, v: mini_attention.attention(q, k, v).detach() + 0 * q
    with sandbox.student([cell]) as student:
        assert student.catches("test_it", mini_attention.attention) == ""
        assert student.catches("test_it", lambda q, k, v: 0 * detached(q, k, v)) == "no gradient"


def test_each_program_meets_the_test_anew(sandbox):
    cell = "seen = []\ndef test_it(program):\n    seen.append(1)\n    assert not seen[1:], 'again'"
    with sandbox.student([cell]) as student:
        assert [student.catches("test_it", mini_attention.attention) for _ in range(3)] == [""] * 3


def test_an_error_of_the_program_is_raised_in_the_test(sandbox):
    cell = """
def test_it(program):
    try:
        program(1)
    except ZeroDivisionError as error:
        assert False, f"caught {error}"
"""
    with sandbox.student([cell]) as student:
        assert student.catches("test_it", lambda x: x / 0) == "caught division by zero"


def test_a_students_test_that_fails_by_itself_raises_that(sandbox):
    with (
        sandbox.student(["def test_it(program): return nowhere"]) as student,
        pytest.raises(NameError, match="nowhere"),
    ):
        student.catches("test_it", mini_attention.attention)


def test_a_program_is_not_asked_for_more_than_a_small_test_needs(sandbox):
    cell = "import torch\ndef test_it(program): program(*[torch.ones(1000, 2)] * 3)"
    with (
        sandbox.student([cell]) as student,
        pytest.raises(ValueError, match="these are too large"),
    ):
        student.catches("test_it", mini_attention.attention)


# Cells and errors


def test_an_error_in_a_cell_costs_that_cell_alone(sandbox):
    cells = [
        "a = 1",
        "b = a / 0\nc = 2",
        "def d(:\n    pass",
        "e = a + 1",
        "import sys; sys.exit()",
    ]
    with sandbox.student(cells) as student:
        assert student.value("e") == 2
        assert list(student.errors) == [2, 3, 5]
        assert (
            "ZeroDivisionError: division by zero (cell 2, line 1: b = a / 0)" in student.errors[2]
        )
        assert student.errors[3].startswith("SyntaxError")
        assert "SystemExit" in student.errors[5]
        with pytest.raises(Missing, match=r"c is not there, because cell 2 failed: ZeroDiv"):
            student.value("c")
        with pytest.raises(Missing, match=r"d is not there, because cell 3 failed: SyntaxError"):
            student.function("d")
        with pytest.raises(Missing, match="f is not there: no cell of the notebook defines it"):
            student.function("f")


def test_an_answer_that_was_not_written_is_missing(sandbox):
    with sandbox.student(["x = ..."]) as student, pytest.raises(Missing, match="still `"):
        student.value("x")


def test_what_is_no_function_is_told(sandbox):
    with (
        sandbox.student(["f = 3"]) as student,
        pytest.raises(Missing, match="f is no function: it is a int"),
    ):
        student.function("f")


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ("raise NotImplementedError('write this')", NotImplementedError, "write this"),
        ("{}['k']", KeyError, "k"),
        ("class Odd(Exception): pass\n    raise Odd('x')", RuntimeError, "Odd: x"),
        ("b'\\xff'.decode()", RuntimeError, "UnicodeDecodeError: .*invalid start byte"),
        ("raise SystemExit(3)", RuntimeError, "SystemExit: 3"),
        ("return f()", RecursionError, "maximum recursion depth"),
        ("torch.ones(2) @ torch.ones(3)", RuntimeError, "inconsistent tensor size"),
        ("input('?')", EOFError, "nobody to ask"),
    ],
)
def test_an_error_of_the_program_is_the_same_error_here(sandbox, body, kind, text):
    with sandbox.student(["import torch", f"def f():\n    {body}"]) as student:
        with pytest.raises(kind, match=text) as failure:
            student.function("f")()
        assert type(failure.value) is kind
        assert failure.value.__notes__[0].startswith("cell 2, line ")


def test_what_ipython_understands_costs_nothing(sandbox):
    cell = """%matplotlib inline
import math
!pip install mini_attention
if True:
    !nvidia-smi
files = !ls
%timeit math.sqrt(2)
math.sqrt?
text = '''
!not a command
'''
"""
    cells = [cell, "%%time\nx = 3\ny = x\n", "%%bash\nrm -rf /\n", "\ufeffz = 1\r\nw = 2\r\n"]
    with sandbox.student(cells) as student:
        assert student.errors == {}
        assert [student.value(name) for name in "xyzw"] == [3, 3, 1, 2]
        assert student.value("files") is None


def test_a_program_is_main_and_its_source_can_be_read(sandbox):
    cells = [
        "if __name__ == '__main__':\n    x = 1",
        "import inspect\ndef f(): return 1\ny = inspect.getsource(f)",
        "from dataclasses import dataclass\n@dataclass\nclass A:\n    a: int = 3\nz = A().a",
    ]
    with sandbox.student(cells) as student:
        assert [student.value(name) for name in "xyz"] == [1, "def f(): return 1\n", 3]


def test_a_figure_is_drawn_and_shown_to_nobody(sandbox):
    pytest.importorskip("matplotlib")
    cell = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\ndisplay(plt.gcf())"
    with sandbox.student([cell]) as student:
        assert student.errors == {}


def test_names_are_found_in_a_cell_that_does_not_compile():
    assert binds("x = 1\ndef f(:\nclass A(B):\n    y = 2\nx == 3\nz: int = 4") == [
        "x",
        "f",
        "A",
        "z",
    ]


def test_a_cell_without_magic_is_compiled_as_it_is():
    names = {}
    exec(compiled("text = '''\n!x\n%y\n'''", "cell"), names)
    assert names["text"] == "\n!x\n%y\n"


# Limits


def test_an_endless_function_costs_that_question_alone(quick):
    cells = ["def f():\n    while True: pass", "def g(): return 1"]
    with quick.student(cells) as student:
        f = student.function("f")
        with pytest.raises(Stopped, match=r"f did not end within 3 seconds"):
            f()
        start = time.monotonic()
        with pytest.raises(Stopped, match=r"f did not end"):
            f()
        assert time.monotonic() - start < 1  # it is not run again
        assert student.function("g")() == 1
        assert student.told == ["f did not end within 3 seconds."]


def test_an_endless_cell_costs_that_cell_alone(quick):
    with quick.student(["x = 1", "while True: pass", "y = 2"]) as student:
        assert student.errors == {2: "cell 2 did not end within 3 seconds."}
        assert (student.value("x"), student.value("y")) == (1, 2)


def test_time_is_limited_for_the_whole_submission(sandbox):
    hasty = Narrow(sandbox, Limits(wall_seconds=1, total_seconds=2))
    with hasty.student(["x = 1"] + ["while True: pass"] * 7) as student:
        for _ in range(2):
            with pytest.raises(Stopped, match="the time of the submission is used up"):
                student.value("x")


def test_an_ended_process_costs_that_question_alone(quick):
    cells = ["import os\ndef f(): os._exit(3)", "os._exit(4)", "x = 1"]
    with quick.student(cells) as student:
        assert student.errors == {2: "cell 2 ended its process (exit code 4)."}
        with pytest.raises(Stopped, match=r"f ended its process \(exit code 3\)"):
            student.function("f")()
        assert student.value("x") == 1


def test_an_answer_that_is_too_large_is_not_taken(quick):
    with quick.student(["import torch\ndef f(n): return torch.ones(n)"]) as student:
        assert student.function("f")(7).shape == (7,)
        with pytest.raises(Stopped, match="f gives an answer of 4 MiB: too much"):
            student.function("f")(2**20)


@pytest.mark.skipif(not hasattr(__import__("resource"), "prlimit"), reason="needs prlimit (Linux)")
def test_a_call_can_be_held_to_little_memory(sandbox):
    cell = "import torch\ndef f(n): return (torch.ones(n, 1) @ torch.ones(1, n)).sum()"
    with sandbox.student([cell]) as student:
        with student.extra_memory(64 * 2**20):
            assert student.function("f")(1000) == 1e6
            with pytest.raises(Stopped, match="needs more memory than the 64 MiB"):
                student.function("f")(10_000)
        assert student.function("f")(10_000) == 1e8


# What is forbidden


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        ("from mini_attention import attention as mine", "mini_attention.attention"),
        ("import mini_attention as m\nmine = lambda *x: m.attention(*x)",
         "mini_attention.attention"),
        ("from torch.nn import functional as G\nmine = G.scaled_dot_product_attention", SDPA := (
            "torch.nn.functional.scaled_dot_product_attention")),
        ("from torch._C._nn import scaled_dot_product_attention as mine", SDPA),
        ("import torch\nmine = torch.ops.aten.scaled_dot_product_attention", SDPA),
        ("import torch\nm = torch.nn.MultiheadAttention(3, 1, batch_first=True)\n"
         "mine = lambda *x: m(*x, need_weights=False)[0]", SDPA),
        ("def mine(q, k, v): return (q @ k.mT).softmax(-1) @ v", "torch.softmax"),
        ("import torch\nmine = lambda q, k, v: torch.nn.Softmax(-1)(q @ k.mT) @ v",
         "torch.softmax"),
        ("import threading\nimport torch\ndef mine(q, k, v):\n"
         "    t = threading.Thread(target=lambda: torch.softmax(q, -1))\n"
         "    t.start(); t.join(); return v", "torch.softmax"),
        ("from mini_attention import MultiHeadAttention as M\n"
         "mine = lambda q, k, v: M(3, 1)(q)", "mini_attention.MultiHeadAttention"),
        ("from mini_attention import attention_scores as s\n"
         "mine = lambda q, k, v: s(q, k) @ v", "mini_attention"),
    ],
)  # fmt: skip
def test_a_forbidden_function_is_noticed_under_any_name(sandbox, cell, name):
    forbidden = [name, "torch.nn.functional.relu"]
    with sandbox.student([cell], forbidden) as student:
        x = torch.randn(1, 5, 3)
        student.function("mine")(x, x, x)
        assert student.used() == [name]
        assert student.used() == []


def test_what_is_imported_or_compared_with_is_not_used(sandbox):
    cells = [
        "from mini_attention import attention as theirs\nimport torch",
        "def mine(q, k, v):\n    w = (q @ k.mT).exp()\n    return w / w.sum(-1, keepdim=True) @ v",
        "theirs(*[torch.ones(2, 3)] * 3); torch.ones(2).softmax(-1)",
    ]
    with sandbox.student(cells, ["mini_attention.attention", "torch.softmax"]) as student:
        x = torch.randn(5, 3)
        student.function("mine")(x, x, x)
        assert student.used() == []
        assert student.mentions(["mini_attention.attention"]) == [
            "cell 1 mentions mini_attention.attention",
            "cell 3 mentions mini_attention.attention",
        ]


def test_text_is_read_through_its_aliases():
    cell = "import torch.nn.functional as F\nfrom torch import softmax as s\nF.relu(s(x, -1))"
    assert set(mentions(cell, {})) >= {"torch.nn.functional.relu", "torch.softmax"}


def test_a_forbidden_name_that_does_not_exist_is_an_error(sandbox):
    with pytest.raises(ImportError, match=r"there is no torch\.softmaxx"):
        sandbox.student([], ["torch.softmaxx"]).__enter__()


# The sandbox itself


def test_threads_share_a_sandbox(sandbox):
    found = {}

    def grade(number):
        with sandbox.student([f"x = {number}"]) as student:
            found[number] = student.value("x")

    threads = [threading.Thread(target=grade, args=[n]) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: n for n in range(5)}


def test_a_zygote_that_was_killed_is_replaced(sandbox):
    sandbox._zygote.kill()
    sandbox._zygote.wait()
    with sandbox.student(["x = 1"]) as student:
        assert student.value("x") == 1


def test_an_unknown_level_is_refused():
    with pytest.raises(ValueError, match="level must be among"):
        Sandbox(level="safe")


def test_contained_is_never_turned_into_limited_in_silence(monkeypatch):
    monkeypatch.setattr("course.sandbox.start.why_not_contained", lambda: "not permitted")
    with pytest.raises(ValueError, match=r"can't contain a process \(not permitted\)"):
        Sandbox(level="contained")


def test_the_level_is_what_the_probe_says():
    assert level() == ("limited" if why_not_contained() else "contained")


# Messages


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    channel = Channel(ours, most_text=10**6, most_numbers=10**6)
    ours.setblocking(False)
    with ours, theirs:
        yield channel, theirs


def frame(text, body=b""):
    text = text if isinstance(text, bytes) else json.dumps(text).encode()
    return struct.pack(">IQ", len(text), len(body)) + text + body


@pytest.mark.parametrize(
    "sent",
    [
        frame(b"no json"),
        frame(b"\xff\xfe"),
        frame(b"[" * 100_000),
        frame(b'{"m":' * 10_000),
        frame([]),
        frame({"m": 1}),
        frame({"m": 1, "a": 2}),
        frame({"m": 1, "a": [["float32", [2], 0]]}),
        frame({"m": 1, "a": [["object", [2], 0, None]]}, bytes(16)),
        frame({"m": 1, "a": [["float32", [-2], 0, None]]}, bytes(16)),
        frame({"m": 1, "a": [["float32", [2.0], 0, None]]}, bytes(16)),
        frame({"m": 1, "a": [["float32", [True], 0, None]]}, bytes(16)),
        frame({"m": 1, "a": [["float32", [5], 0, None]]}, bytes(16)),
        frame({"m": 1, "a": [["float32", [2**35, 2**35], 0, None]]}, bytes(16)),
        frame({"m": 1, "a": [["float32", [0, 2**39, 2**39], 0, None]]}),
        frame({"m": 1, "a": [["float32", [9, 9], 0, [[0, 1], [0, 1]]]]}, bytes(16)),
        frame({"m": 1, "a": [["float32", [1] * 40, 0, None]]}, bytes(16)),
        frame({"m": 1, "a": [["bool", [0], 0, None]] * 5000}),
        frame({"m": 1, "a": []}, bytes(16)),
    ],
)  # fmt: skip
def test_what_is_no_message_is_told(pair, sent):
    channel, other = pair
    threading.Thread(target=other.sendall, args=[sent]).start()
    with pytest.raises(ProtocolError):
        channel.receive(time.monotonic() + 10)


@pytest.mark.parametrize("lengths", [(2**31, 0), (10, 2**50)])
def test_a_message_that_is_too_long_is_not_read(pair, lengths):
    channel, other = pair
    other.sendall(struct.pack(">IQ", *lengths))
    with pytest.raises(TooLarge):
        channel.receive(time.monotonic() + 10)


@pytest.mark.parametrize(
    "value",
    [
        [1], {"list": 3}, {"list": [], "tuple": []}, {"pickle": "x"}, {"tensor": 0},
        {"tensor": "a"}, {"tensor": True}, {"array": -1}, {"dict": [[1]]},
        {"dict": [[{"list": []}, 1]]},
        {"dtype": "object"}, {"dtype": []}, {"complex": [1]}, {"complex": "ab"}, 10**100,
        {"complex": [[], {}]}, {"program": 0}, {"own": "x"},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_value_is_told(pair, value):
    channel, other = pair
    other.sendall(frame({"m": value, "a": []}))
    message = channel.receive(time.monotonic() + 10)
    with pytest.raises(ProtocolError):
        message.get()


def test_collections_in_each_other_have_an_end(pair):
    channel, other = pair
    value = 1
    for _ in range(100):
        value = {"list": [value]}
    other.sendall(frame({"m": value, "a": []}))
    with pytest.raises(ProtocolError):
        channel.receive(time.monotonic() + 10).get()
    endless = []
    endless.append(endless)
    with pytest.raises(CannotHandOver, match="in each other"):
        Packer().pack(endless)


@pytest.mark.parametrize("tensor", [torch.eye(3).to_sparse(), torch.empty(3, device="meta")])
def test_a_tensor_without_plain_numbers_is_not_handed_over(tensor):
    with pytest.raises(CannotHandOver, match="a tensor in"):
        Packer().pack(tensor)


def test_a_module_of_here_has_linear_layers_of_the_same_shape(student):
    module = student.module("MultiHead", d_model=6, num_heads=3)
    linear = {n: (p.in_features, p.out_features) for n, p in module.named_modules()
              if isinstance(p, nn.Linear)}  # fmt: skip
    assert linear == dict.fromkeys(["q_proj", "k_proj", "v_proj", "out_proj"], (6, 6))
    assert module.num_heads == 3
