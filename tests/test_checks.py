"""The checks: they know every mistake of the collection, and let every right answer pass."""

import copy
import math
import re
import textwrap
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mini_attention import (
    MultiHeadAttention,
    attention,
    causal_mask,
    check_attention,
    check_multi_head,
    fused_attention,
    mask_to_torch,
)
from mini_attention.checks import CheckFailed, Report
from mini_attention.checks.answer import answer, same
from mini_attention.checks.case import Case, Program, Subject
from mini_attention.checks.engine import check
from mini_attention.mistakes import MISTAKES
from mini_attention.mistakes.formula import Formula
from mini_attention.mistakes.layers import Layer
from tests.failures import named

IN_FUNCTIONS = [name for name, mistake in MISTAKES.items() if "attention" in mistake.programs]
IN_LAYERS = [name for name, m in MISTAKES.items() if "MultiHeadAttention" in m.programs]

# What a function's mistake is worth: a note, as the formula itself is right.
NOTED = {
    "mask lands on heads": "laid on the heads",
    "junk gets through": "NaN in a key or value that is hidden",
    "half summed in half": "In float16 scores are rounded",
}
# What no call of a layer with sequences and a mask shows.
UNSEEN_IN_LAYERS = {
    "given scale ignored", "bias scaled", "bias forgotten beside mask", "bias detached",
    "dropout on scores", "dropout on output", "dropout not scaled up", "query scaled in place",
    "bias forgotten", "dropout never acts", "copied in another order", "copied transposed",
    "shown after dropout", "shown as average", "shown without mask",
    "scaled by value width", *NOTED,
}  # fmt: skip
# A layer mixes its heads, and with them the NaN that would tell these two apart.
ALIKE = {"exponentials without maximum", "one maximum for all"}


def wrong_layer(name: str, d_model=6, num_heads=3, **sizes) -> nn.Module:
    programs = MISTAKES[name].programs
    if "MultiHeadAttention" in programs:
        rate = 0.5 if MISTAKES[name].kind == "dropout" else 0.0
        return programs["MultiHeadAttention"](d_model, num_heads, dropout=rate, **sizes)
    return Layer(d_model, num_heads, attend=programs["attention"], **sizes)


# Wrong programs


@pytest.mark.parametrize("name", [name for name in IN_FUNCTIONS if name not in NOTED])
def test_a_wrong_function_is_told_its_mistake_and_no_other(name):
    with pytest.raises(CheckFailed) as failure:
        check_attention(MISTAKES[name].programs["attention"])
    assert named(failure.value) == [name]
    assert "Something else" not in str(failure.value)
    assert MISTAKES[name].what in " ".join(str(failure.value).split())


@pytest.mark.parametrize("name", NOTED)
def test_what_the_formula_does_not_promise_is_a_note(name):
    report = check_attention(MISTAKES[name].programs["attention"])
    assert [NOTED[name] in note for note in report.notes] == [True]
    assert "\nnote: " in str(report)


@pytest.mark.parametrize("name", [n for n in IN_FUNCTIONS + IN_LAYERS if n not in UNSEEN_IN_LAYERS])
def test_a_wrong_layer_is_told_its_mistake_and_no_other(name):
    with pytest.raises(CheckFailed) as failure:
        check_multi_head(wrong_layer(name))
    assert set(named(failure.value)) == (ALIKE if name in ALIKE else {name})
    assert "Something else" not in str(failure.value)


@pytest.mark.parametrize(
    ("d_model", "num_heads", "sizes"),
    [(8, 2, {}), (4, 1, {}), (6, 3, {"key_size": 5, "value_size": 4})],
    ids=str,
)
@pytest.mark.parametrize("name", ["no scale", "mask inverted", "empty rows give nan"])
def test_the_size_of_a_layer_does_not_matter(name, d_model, num_heads, sizes):
    with pytest.raises(CheckFailed) as failure:
        check_multi_head(wrong_layer(name, d_model, num_heads, **sizes))
    assert named(failure.value) == [name]


def test_two_mistakes_at_once_are_both_told():
    class Both(MISTAKES["no scale"].source, MISTAKES["mask inverted"].source):
        pass

    with pytest.raises(CheckFailed) as failure:
        check_attention(Both().attention, only=["mask"])
    assert named(failure.value) == ["no scale and mask inverted"]


def test_a_known_mistake_beside_an_unknown_one_is_told_with_a_warning():
    def function(query, key, value, mask=None):
        wrong = MISTAKES["mask inverted"].programs["attention"](query, key, value, mask)
        return wrong if query.ndim < 4 else wrong.flip(-1)

    with pytest.raises(CheckFailed, match="Something else is wrong as well: mend this first"):
        check_attention(function)


def textbook(query, key, value, mask=None):
    scores = query @ key.mT / math.sqrt(key.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ value


class OverHeads(nn.Module):
    """Splits the heads, moves them to the front, and transposes once more."""

    def __init__(self):
        super().__init__()
        self.num_heads = 3
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(6, 6) for _ in range(4))

    def forward(self, query, key, value):
        q, k, v = (
            linear(x).unflatten(-1, (3, 2)).transpose(1, 2).transpose(1, 2)
            for linear, x in ((self.q_proj, query), (self.k_proj, key), (self.v_proj, value))
        )
        return self.out_proj(textbook(q, k, v).flatten(2))


WRITTEN = {
    "empty rows give nan": lambda: check_attention(textbook),
    "query and key swapped": lambda: check_attention(lambda q, k, v: textbook(k, q, v)),
    "weights transposed": lambda: check_attention(
        lambda q, k, v: (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1).mT @ v
    ),
    "mask inverted": lambda: check_attention(
        lambda q, k, v, mask=None: textbook(q, k, v, None if mask is None else ~mask),
        only=["causal mask", "scale", "scores"],
    ),
    "attends over heads": lambda: check_multi_head(OverHeads()),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_mistake_is_known_in_other_words_and_where_it_raises(name):
    with pytest.raises(CheckFailed) as failure:
        WRITTEN[name]()
    assert named(failure.value) == [name]
    assert "Something else" not in str(failure.value)


# Mistakes without a name


def test_an_unknown_mistake_is_said_to_be_unknown():
    with pytest.raises(CheckFailed, match=rf"none of the {len(IN_FUNCTIONS)} mistakes that this"):
        check_attention(lambda query, key, value: attention(query, key, value) * 1.01)


NOTHING = "Another token's change moves nothing."
EARLIER = (
    "Only earlier tokens move an output: a causal mask is built in. Compare with a right one that "
    "has it too, or take it out for the check."
)
SUM = "The weights of a query do not sum to 1."
MOVED = "Moving keys together with their values changes the output."
ALONE = "An item comes out differently alone than in its batch."
LATER = "Under a causal mask a later token moves an earlier output."


def built_in(query, key, value, mask=None):
    return attention(query, key, value, causal_mask(query.shape[-2], key.shape[-2]))


def last_value_added(query, key, value, mask=None):
    return attention(query, key, value, mask) + value[..., -1:, :]


def one_per_cent_more(query, key, value, mask=None):
    return 1.01 * attention(query, key, value, mask)


def items_swapped(query, key, value, mask=None):
    return attention(query, key, value.flip(0), mask)


def what_is_seen(failure: CheckFailed) -> str:
    return " ".join(str(failure).split()).partition("mistakes that this check knows.")[2].strip()


def put(call, *cases, takes=(), right=attention, wrong=None, twice=None, projects=False):
    """The failure of a program in these cases, among these wrong ones."""
    known = {names: Program(rival) for names, rival in (wrong or {}).items()}
    pairs = [(names, Program(rival)) for names, rival in (twice or {}).items()]
    subject = Subject(
        Program(call), {*takes}, Program(right), known, lambda: iter(pairs), cases[0], projects
    )
    with pytest.raises(CheckFailed) as failure:
        check(subject, cases, None)
    return failure.value


def small_case(**settings) -> Case:
    identity = torch.eye(2)
    inputs = {"query": identity, "key": torch.tensor([[1.0, 0.5], [2, 3]]), "value": identity}
    return Case("small", "Two queries attend to two keys.", inputs, **settings)


def usual_case(**settings) -> Case:
    shapes = {"query": (3, 2, 7), "key": (3, 5, 7), "value": (3, 5, 11)}
    generator = torch.Generator().manual_seed(0)
    inputs = {n: torch.randint(-4, 5, s, generator=generator) / 2 for n, s in shapes.items()}
    return Case("usual", "Attend.", inputs, **settings)


@pytest.mark.parametrize(
    ("call", "takes", "seen"),
    [
        (one_per_cent_more, "cross mask", [SUM]),
        (last_value_added, "cross mask", [SUM, MOVED, LATER]),
        (last_value_added, "mask", [SUM, LATER]),
        (last_value_added, "cross", [SUM, MOVED]),
        (last_value_added, "", [SUM]),
        (built_in, "cross mask", [EARLIER, MOVED]),
        (built_in, "mask", [EARLIER]),
        (items_swapped, "cross mask", [ALONE]),
        (lambda query, key, value, mask: value * key.shape[-2], "cross", [NOTHING, SUM, MOVED]),
        (lambda query, key, value, mask: 2 * attention(query, key, value.view(3, 5, 11), mask),
         "cross mask", [SUM, ALONE]),
        (lambda query, key, value, mask: value * math.nan, "cross mask", []),
    ],
)  # fmt: skip
def test_all_that_can_be_seen_of_an_unknown_mistake_is_told(call, takes, seen):
    failure = put(call, usual_case(), takes=takes.split())
    assert what_is_seen(failure) == " ".join(seen)
    layer = put(call, usual_case(), takes=takes.split(), projects=True)
    assert what_is_seen(layer) == " ".join(sentence for sentence in seen if sentence != SUM)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attend", "call", "seen"),
    [
        (one_per_cent_more, None, []),
        (last_value_added, None, [MOVED, LATER]),
        (last_value_added, lambda module, x: module(x), []),
        (built_in, lambda module, x: module(x), [EARLIER]),
        (items_swapped, lambda module, q, k, v: module(q, k, v), [ALONE]),
    ],
)
def test_what_can_be_seen_of_a_layer_is_told(attend, call, seen):
    layer = MultiHeadAttention(6, 3, attend=attend)
    with pytest.raises(CheckFailed) as failure:
        check_multi_head(layer, call=call)
    assert what_is_seen(failure.value) == " ".join(seen)


@pytest.mark.parametrize(
    ("function", "seen"),
    [
        (last_value_added, [SUM, MOVED, LATER]),
        (lambda query, key, value: last_value_added(query, key, value), [SUM, MOVED]),
        (lambda q, k, v: torch.sigmoid(q @ k.mT / math.sqrt(k.shape[-1])) @ v, [SUM]),
    ],
)
def test_what_can_be_seen_of_a_function_is_told(function, seen):
    with pytest.raises(CheckFailed) as failure:
        check_attention(function)
    assert what_is_seen(failure.value) == " ".join(seen)


# What an answer is


NUMBERS = torch.tensor([100.0, -300.0, torch.nan, torch.inf, -torch.inf])


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ({"output": torch.zeros(2) + 9e-5}, {"output": torch.zeros(2)}, True),
        ({"output": torch.zeros(2) + 2e-4}, {"output": torch.zeros(2)}, False),
        ({"output": torch.zeros(2).double() + 2e-9}, {"output": torch.zeros(2).double()}, False),
        ({"output": NUMBERS + 0.029}, {"output": NUMBERS}, True),
        ({"output": NUMBERS + 0.031}, {"output": NUMBERS}, False),
        ({"output": NUMBERS.double() + 1e-6}, {"output": NUMBERS.double()}, False),
        ({"output": NUMBERS.nan_to_num(0)}, {"output": NUMBERS}, False),
        ({"output": torch.zeros(2)}, {"output": torch.zeros(1, 2)}, False),
        ({"output": torch.zeros(2)}, {"output": torch.zeros(2).double()}, False),
        ({"output": torch.zeros(0, 2)}, {"output": torch.zeros(0, 2)}, True),
        ({"output": torch.zeros(2)}, {"outputs": torch.zeros(2)}, False),
        ({"a": torch.zeros(2), "b": torch.zeros(2)}, {"a": torch.zeros(2)}, False),
        ({"a": torch.zeros(2), "b": torch.zeros(2)}, {"a": torch.zeros(2), "b": NUMBERS}, False),
        ({"a": torch.zeros(2)}, TypeError("no"), False),
        (TypeError("no"), {"a": torch.zeros(2)}, False),
        (TypeError("no"), TypeError("no"), True),
        (TypeError("no"), TypeError("yes"), False),
        (TypeError("no"), ValueError("no"), False),
    ],
)
def test_answers_are_the_same_within_rounding(one, other, alike):
    assert same(one, other) is alike


def test_a_program_gets_copies_and_the_same_random_numbers_each_time():
    def greedy(query, key, value, mask, bias):
        output = attention(query, key, value, mask, bias=bias) + torch.rand(2, 2)
        for x in (query, key, value, bias):
            x.detach().zero_()
        mask.zero_()
        return output

    mask, bias = torch.eye(2, dtype=torch.bool), torch.ones(2, 2)
    case = small_case(mask=mask, options={"bias": bias}, gradients=True, again=True)
    before, state = copy.deepcopy(case.inputs), torch.get_rng_state()
    first, second = answer(Program(greedy), case), answer(Program(greedy), case)
    assert same(first, second)
    assert all(torch.equal(case.inputs[name], before[name]) for name in before)
    assert torch.equal(mask, torch.eye(2, dtype=torch.bool))
    assert torch.equal(bias, torch.ones(2, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert [*first] == [
        "output", "change in a second call",
        "gradient of query", "gradient of key", "gradient of value", "gradient of bias",
        "query after the call", "key after the call", "value after the call",
    ]  # fmt: skip


def test_an_input_that_an_output_does_not_reach_has_a_gradient_of_zeros():
    found = answer(Program(lambda q, k, v, mask: v * q.detach()), small_case(gradients=True))
    assert torch.equal(found["gradient of query"], torch.zeros(2, 2))
    assert torch.equal(found["gradient of key"], torch.zeros(2, 2))


# What a failure says


def test_a_failure_shows_its_case_line_by_line():
    mask, bias = torch.tensor([[True, False], [True, True]]), torch.tensor([[0.0, 1], [-1, 1e-5]])
    case = replace(
        small_case(mask=mask, options={"scale": 1 / 3, "bias": bias}),
        expects="Two queries attend to two keys, and the first is a single-key query: key 0 alone.",
    )
    failure = put(
        lambda query, key, value, mask, **options: 1.01 * attention(query, key, value, **options),
        case,
        takes=["mask", "scale", "bias"],
        projects=True,
    )
    assert str(failure) == textwrap.dedent(
        """\
        small: Two queries attend to two keys, and the first is a
          single-key query: key 0 alone.

        query = value = [[1, 0], [0, 1]]
        key = [[1, 0.5], [2, 3]]
        mask = [[1, 0], [1, 1]]
        scale = 0.3333
        bias = [[0, 1], [-1, 1e-05]]

        output expected [[1, 0], [0.1378, 0.8622]]
        output got      [[0.2107, 0.7993], [0.1392, 0.8708]]

        This is none of the 0 mistakes that this check knows. An item comes out
          differently alone than in its batch. Under a causal mask a later token moves
          an earlier output."""
    )


def test_of_many_numbers_the_one_furthest_off_is_shown():
    def right(query, key, value, mask):
        output = torch.zeros_like(value)
        output[2, 4, 10] = 7.0
        return output

    def off(query, key, value, mask):
        given = right(query, key, value, mask)
        given[1, 4, 7], given[0, 0, 0], given[2, 1, 3], given[2, 2, 2] = -2.0, 1.5, 0.0021, 0.002
        return given

    case = replace(usual_case(), inputs={n: x.double() for n, x in usual_case().inputs.items()})
    assert str(put(off, case, right=right)).splitlines()[2:8] == [
        "query = a tensor of shape (3, 2, 7)",
        "key = a tensor of shape (3, 5, 7)",
        "value = a tensor of shape (3, 5, 11)",
        "",
        "output [1, 4, 7] expected 0, got -2",
        "3 of 165 numbers differ",
    ]


def in_place(query, key, value, mask):
    output = attention(query, key, value)
    key.detach().mul_(2)
    return output


def halved_gradient(query, key, value, mask):
    return attention(query, key, (value + value.detach()) / 2)


def raised(error):
    raise error


def test_twelve_numbers_are_shown_one_by_one():
    case = small_case()
    case = replace(case, inputs={**case.inputs, "value": torch.ones(2, 6)})
    told = str(put(one_per_cent_more, case)).split("\n\n")
    assert told[1].splitlines()[2] == "value = [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]]"
    assert told[2].splitlines()[0] == "output expected [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]]"


CALLS = count()
DIFFERENCES = {
    "raised ValueError: no keys": lambda q, k, v, mask: raised(ValueError(" no keys\n")),
    "key after the call is another one: [[2, 1], [4, 6]]": in_place,
    "output expected of shape (2, 2), got (1, 2)": lambda q, k, v, mask: v[:1],
    "output expected in torch.float32, got torch.float16": lambda q, k, v, mask: attention(
        q, k, v
    ).half(),
    "output expected [[0.3302, 0.6698], [0.1458, 0.8542]]\n"
    "output got      [[inf, 0], [-inf, nan]]": lambda q, k, v, mask: (
        torch.tensor([[torch.inf, 0], [-torch.inf, torch.nan]]) + 0 * q
    ),
    "gradient of value expected [[-0.1844, 0.2916], [0.1844, 1.708]]\n"
    "gradient of value got      [[-0.09221, 0.1458], [0.09221, 0.8542]]": halved_gradient,
    "change in a second call expected 0\n"
    "change in a second call got      1": lambda q, k, v, mask: (
        attention(q, k, v) + next(CALLS) % 2
    ),
}


@pytest.mark.parametrize("told", DIFFERENCES)
def test_what_differs_first_is_told(told):
    case = small_case(gradients="gradient" in told, again="second" in told)
    assert str(put(DIFFERENCES[told], case)).split("\n\n")[2] == told


def said_of(*names):
    """What is said of mistakes."""
    told = [f"{MISTAKES[name].what} {MISTAKES[name].looks_like}" for name in names]
    return " ".join([" and ".join(names) + ".", *told])


def unscaled(query, key, value, mask=None):
    return attention(query, key, value, mask, scale=1.0)


def inverted(query, key, value, mask=None):
    return attention(query, key, value, None if mask is None else ~mask)


def both(query, key, value, mask=None):
    return unscaled(query, key, value, None if mask is None else ~mask)


def refusing(query, key, value, mask=None):
    raise TypeError("no")


def refusing_plain(query, key, value, mask=None):
    return attention(query, key, value, mask) if mask is not None else raised(ValueError("no"))


IT, OR = "It looks like this mistake: ", "Or like this: "
ELSE = "Something else is wrong as well: mend this first."
UNKNOWN = "This is none of the 1 mistakes that this check knows."
ADVICE = "Does it take other arguments? An adapter helps: lambda query, key, value: ..."
SCALE, SENSE, AXIS = ("no scale",), ("mask inverted",), ("softmax over heads",)
JUNK = ("junk gets through",)  # what the formula does not promise
TWO = SCALE + SENSE


# Put to a case without a mask, and to the same with one.
@pytest.mark.parametrize(
    ("call", "means", "wrong", "twice", "told"),
    [
        (unscaled, "", {SENSE: inverted, SCALE: unscaled}, {}, IT + said_of(*SCALE)),
        (unscaled, "", {JUNK: unscaled, SCALE: unscaled}, {},
         f"{IT}{said_of(*JUNK)} {OR}{said_of(*SCALE)}"),
        (unscaled, "", {AXIS: both, SCALE: unscaled}, {}, IT + said_of(*SCALE)),
        (unscaled, "", {AXIS: both}, {SCALE + JUNK: unscaled}, f"{IT}{said_of(*AXIS)} {ELSE}"),
        (both, "", {SCALE: unscaled}, {TWO: both, SCALE + AXIS: unscaled}, IT + said_of(*TWO)),
        (both, "", {SCALE: unscaled}, {SCALE + JUNK: both, SCALE: both}, IT + said_of(*SCALE)),
        (both, "", {SCALE: items_swapped}, {TWO: unscaled}, f"{IT}{said_of(*TWO)} {ELSE}"),
        (both, "", {SCALE: unscaled, SENSE: attention}, {SENSE + AXIS: both},
         f"{IT}{said_of(*SCALE)} {ELSE}"),
        (both, "", {SENSE: inverted}, {TWO: both}, f"{UNKNOWN} {LATER}"),
        (items_swapped, "", {SCALE: unscaled}, {TWO: both}, f"{UNKNOWN} {ALONE}"),
        (items_swapped, "mask inverted", {SCALE: items_swapped}, {}, IT + said_of(*SENSE)),
        (refusing, "mask inverted", {SCALE: unscaled}, {}, f"{UNKNOWN} {ADVICE}"),
        (refusing, "mask inverted", {SCALE: refusing}, {}, IT + said_of(*SCALE)),
        (refusing, "", {SCALE: refusing_plain}, {}, UNKNOWN + " " + ADVICE),
    ],
)  # fmt: skip
def test_the_mistakes_that_answer_alike_are_told(call, means, wrong, twice, told):
    cases = usual_case(means=means), usual_case(mask=causal_mask(2, 5))
    failure = put(call, *cases, takes=["mask"], wrong=wrong, twice=twice)
    assert " ".join("\n".join(str(failure).split("\n\n")[3:]).split()) == told


def test_other_arguments_are_answered_with_an_adapter():
    with pytest.raises(CheckFailed, match="An adapter helps: lambda query, key, value"):
        check_attention(lambda query, key: query @ key.mT)


def test_an_error_of_a_function_is_shown_with_its_cause():
    def broken(query, key, value):
        return (query @ key).softmax(-1) @ value

    with pytest.raises(CheckFailed, match=r"RuntimeError: (mm: )?mat1 and mat2") as failure:
        check_attention(broken)
    assert named(failure.value) == []
    assert isinstance(failure.value.__cause__, RuntimeError)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda query, key, value: None, "a tuple that begins with it, is expected; got NoneType"),
        (lambda query, key, value: (), "a tuple that begins with it, is expected; got tuple"),
        (lambda query, key, value: value.mT, r"output expected of shape \(1, 3\), got \(3, 1\)"),
        (lambda query, key, value: value.half(), "output expected in torch.float32, got torch.f"),
        (lambda query, key, value: value * math.nan, r"output got +\[\[nan, nan, nan\]\]"),
    ],
)
def test_an_output_that_is_none_is_named(function, message):
    with pytest.raises(CheckFailed) as failure:
        check_attention(function)
    assert re.search(message, " ".join(str(failure.value).split()))


def test_numbers_too_many_to_show_are_summed_up():
    with pytest.raises(CheckFailed) as failure:
        check_multi_head(wrong_layer("item mask repeated"))
    assert "query = key = value = a tensor of shape (3, 5, 6)" in str(failure.value)
    assert "of 90 numbers differ" in str(failure.value)
    with pytest.raises(CheckFailed, match="output has 6 numbers that are not finite"):
        check_multi_head(wrong_layer("empty rows give nan"))


def test_no_line_is_wider_than_the_book():
    for name in ("finite fill", "softmax over heads"):
        with pytest.raises(CheckFailed) as failure:
            check_attention(MISTAKES[name].programs["attention"])
        assert max(map(len, f"CheckFailed: {failure.value}".splitlines())) <= 79


# Right answers, in whatever style


def by_loops(query, key, value, mask=None):
    """Only two axes a time, one query after the other."""
    if query.ndim > 2:
        masks = None if mask is None else mask.expand(*query.shape[:-1], key.shape[-2])
        rows = [
            by_loops(q, k, v, None if masks is None else masks[n])
            for n, (q, k, v) in enumerate(zip(query, key, value, strict=True))
        ]
        return torch.stack(rows)
    rows = []
    for i, q in enumerate(query):
        seen = [j for j in range(len(key)) if mask is None or mask.expand(len(query), -1)[i, j]]
        if not seen:
            rows.append(0 * value[0])
            continue
        shares = torch.stack([q @ key[j] / math.sqrt(len(q)) for j in seen])
        shares = (shares - shares.max()).exp()
        rows.append((shares / shares.sum()) @ value[seen])
    return torch.stack(rows)


def by_einsum(q, k, v, attn_mask=None, return_weights=True):
    scores = torch.einsum("...id,...jd->...ij", q, k) * q.size(-1) ** -0.5
    if attn_mask is not None:
        scores = scores.masked_fill(attn_mask.logical_not(), torch.finfo(scores.dtype).min)
    weights = F.softmax(scores, dim=-1)
    if attn_mask is not None:
        weights = weights * attn_mask
    return torch.einsum("...ij,...je->...ie", weights, v), weights


class AsModule(nn.Module):
    def forward(self, query, key, value, mask=None):
        return attention(query, key, value, mask)


@pytest.mark.parametrize(
    "function",
    [
        attention,
        AsModule(),
        fused_attention,
        Formula().attention,
        F.scaled_dot_product_attention,
        by_loops,
        by_einsum,
        lambda query, key, value: attention(query, key, value),
        lambda query, key, value, mask: attention(query, key, value, mask),
        lambda query, key, value, visible=None: attention(query, key, value, visible),
        lambda query, key, value, bias=None: attention(query, key, value, bias=bias),
    ],
)
def test_a_right_function_passes(function):
    assert "gradients" in check_attention(function).passed


def test_what_a_module_takes_is_seen():
    assert "mask" in check_attention(AsModule()).passed


NO_BIAS = torch.zeros(1)


@pytest.mark.parametrize(
    ("function", "masked"),
    [
        (lambda query, key, value, visible: attention(query, key, value, visible), True),
        (lambda query, key, value, visible=None: attention(query, key, value, visible), True),
        (lambda query, key, value, scale=None, attn_mask=None: attention(
            query, key, value, attn_mask, scale=scale), True),
        (lambda query, key, value, scale=None, visible=None: attention(
            query, key, value, scale=scale), False),
        (lambda query, key, value, temperature=1.0: attention(
            query, key, value, scale=1 / (temperature * math.sqrt(key.shape[-1]))), False),
        (lambda query, key, value, shift=NO_BIAS: attention(query, key, value) + shift, False),
    ],
)  # fmt: skip
def test_the_mask_is_an_argument_of_that_name_or_a_fourth_that_could_be_one(function, masked):
    report = check_attention(function, only=["one key", "mask"])
    assert "mask" in (report.passed if masked else report.skipped)


def test_a_program_that_must_have_a_mask_is_asked_the_plain_questions_with_one_that_hides_nothing():
    def function(query, key, value, mask):
        return one_per_cent_more(query, key, value, mask)

    def call(module, x, mask):
        return 1.01 * module(x, mask=mask)

    with pytest.raises(CheckFailed, match=r"^one key: (?s:.*)\nmask = \[\[1\]\]\n"):
        check_attention(function)
    with pytest.raises(CheckFailed, match=r"^one token: (?s:.*)\nmask = \[\[1\]\]\n"):
        check_multi_head(MultiHeadAttention(6, 3), call=call)


def test_a_function_that_no_rank_suits_is_given_matrices():
    with pytest.raises(CheckFailed, match=r"\n\nraised ValueError: \(1, 2\)\n\n"):
        check_attention(lambda query, key, value: raised(ValueError(tuple(query.shape))))


def test_trying_a_function_out_draws_no_random_numbers_of_the_caller():
    state = torch.get_rng_state()
    check_attention(lambda q, k, v: attention(q, k, v) + 0 * torch.rand(()))
    assert torch.equal(torch.get_rng_state(), state)


def batched(query, key, value):
    return torch.bmm((torch.bmm(query, key.mT) / math.sqrt(key.shape[-1])).softmax(-1), value)


def four_axes(query, key, value, mask):
    scores = torch.einsum("bhid,bhjd->bhij", query, key) / math.sqrt(key.shape[-1])
    weights = torch.where(mask, scores, torch.finfo(scores.dtype).min).softmax(-1) * mask
    return torch.einsum("bhij,bhje->bhie", weights, value), weights


def test_a_function_for_three_or_for_four_axes_gets_them():
    report = check_attention(batched)
    assert "gradients" in report.passed
    assert "leading axes" in report.skipped
    assert {"leading axes", "mask"} <= set(check_attention(four_axes).passed)
    with pytest.raises(CheckFailed) as failure:
        check_attention(lambda query, key, value: batched(query, key, value * 2))
    assert "output expected [[1.5, 1, 1.5]]" in str(failure.value)


def test_arguments_are_given_by_their_names():
    assert check_attention(lambda value, key, query: attention(query, key, value)).passed
    layer = MultiHeadAttention(6, 3)

    def call(module, values, keys, query, mask):
        return module(query, keys, values, mask)

    assert check_multi_head(layer, call=call).skipped == []


def test_a_report_tells_what_was_passed_and_what_could_not_be_checked():
    report = check_attention(lambda query, key, value: attention(query, key, value))
    assert "scale" in report.passed
    assert report.skipped == [
        "causal mask", "mask", "given scale", "bias", "empty rows", "dropout"
    ]  # fmt: skip
    assert str(report).startswith("right: one key, ")
    assert "\nnot checked: causal mask, " in str(report)
    assert check_attention(attention).skipped == []


def test_a_report_is_printed_line_by_line_in_the_width_of_the_book():
    passed = ["one key", "equal keys", "scores", "rows and columns", "leading axes", "large scores"]
    report = Report(passed, ["causal mask", "dropout"], ["One thing.", "Another."])
    assert str(report) == textwrap.dedent(
        """\
        right: one key, equal keys, scores, rows and columns, leading axes, large
          scores
        not checked: causal mask, dropout
        note: One thing.
        note: Another."""
    )
    assert str(Report(["one key"], [], [])) == "right: one key"


class Pasted(nn.Module):
    """A right layer as people write it: other names, other reshapes, the mask as a float."""

    def __init__(self, dim, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.W_q, self.W_k, self.W_v, self.fc = (nn.Linear(dim, dim, bias=b) for b in (0, 0, 1, 1))

    def forward(self, x, mask=None):
        b, n, m = x.shape
        q, k, v = (
            linear(x).view(b, n, self.n_heads, -1).transpose(1, 2)
            for linear in (self.W_q, self.W_k, self.W_v)
        )
        scores = q @ k.transpose(-2, -1) / np.sqrt(m // self.n_heads)
        if mask is not None:
            mask = mask if mask.ndim == 2 else mask.unsqueeze(1)
            scores = scores.masked_fill(~mask, -torch.inf)
        weights = scores.softmax(-1).masked_fill(scores.isneginf().all(-1, True), 0.0)
        if mask is not None:
            scores = scores.masked_fill(~mask.any(-1, keepdim=True), 0.0)
            weights = scores.softmax(-1) * mask.any(-1, keepdim=True)
        return self.fc((weights @ v).transpose(1, 2).reshape(b, n, m)), weights


def test_a_right_layer_of_another_style_passes():
    names = ("W_q", "W_k", "W_v", "fc")
    report = check_multi_head(Pasted(6, 3), num_heads=3, projections=names)
    assert report.skipped == ["cross-attention"]
    assert "gradients" in report.passed


class Fused(nn.Module):
    """One linear layer for queries, keys and values, inside another module."""

    def __init__(self, bias, out=18):
        super().__init__()
        self.inner = nn.ModuleList([nn.Linear(6, out, bias=bias), nn.Linear(6, 6)])

    def forward(self, x):
        q, k, v = (
            part.unflatten(-1, (3, 2)).transpose(1, 2) for part in self.inner[0](x).chunk(3, -1)
        )
        return self.inner[1](attention(q, k, v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("bias", [False, True])
def test_one_linear_layer_for_three_can_be_named(bias):
    report = check_multi_head(Fused(bias), num_heads=3, projections=("inner.0", "inner.1"))
    assert "gradients" in report.passed


def test_torchs_own_layer_passes_but_for_rows_with_nothing_allowed():
    theirs = nn.MultiheadAttention(6, 3, batch_first=True)
    like = MultiHeadAttention.from_torch(theirs)

    def call(module, query, key, value, mask):
        hide = mask_to_torch(mask, num_heads=3)
        return module(query, key, value, attn_mask=hide)

    with pytest.raises(CheckFailed) as failure:
        check_multi_head(theirs, like=like, call=call)
    assert named(failure.value) == ["empty rows give nan"]
    assert "Something else" not in str(failure.value)
    rest = ["one token", "causal mask", "tokens and heads", "cross-attention", "mask", "gradients"]
    assert check_multi_head(theirs, like=like, call=call, only=rest).passed == rest


def test_layers_that_take_one_sequence_or_no_mask_are_checked_as_far_as_they_go():
    layer = MultiHeadAttention(6, 3)
    alone = check_multi_head(layer, call=lambda module, x: module(x))
    assert alone.skipped == ["causal mask", "cross-attention", "mask", "empty rows"]
    pair = check_multi_head(layer, call=lambda module, query, key, value: module(query, key, value))
    assert pair.skipped == ["causal mask", "mask", "empty rows"]
    hiding = check_multi_head(layer, call=lambda module, x, tree_mask: module(x, mask=tree_mask))
    assert hiding.skipped == ["cross-attention"]


class Detached(nn.Linear):
    def forward(self, x):
        return F.linear(x, self.weight.detach(), self.bias)


@pytest.fixture
def few_rivals(monkeypatch):
    """No pairs of mistakes to compare with, which takes a second."""
    monkeypatch.setattr("mini_attention.checks.layer._FUNCTIONS", {})
    monkeypatch.setattr("mini_attention.checks.layer.pairs_of_formulas", lambda: ())


@pytest.mark.usefixtures("few_rivals")
def test_the_gradients_of_weights_are_compared_where_they_are_known():
    layer, only = MultiHeadAttention(6, 3), ["gradients"]
    layer.k_proj = Detached(6, 6)
    assert check_multi_head(layer, like=layer, only=only).passed == only
    with pytest.raises(CheckFailed, match=r"\n\ngradient of k_proj.weight \[\d, \d\] expected"):
        check_multi_head(layer, only=only)


@pytest.mark.usefixtures("few_rivals")
def test_the_gradients_of_inputs_are_compared_where_those_of_weights_are_not():
    with pytest.raises(CheckFailed, match=r"\n\ngradient of query \[\d, \d, \d\] expected"):
        check_multi_head(
            Fused(bias=True), num_heads=3, projections=("inner.0", "inner.1"), only=["gradients"],
            call=lambda module, x: module(x) + x - x.detach(),
        )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "attend", "names"),
    [
        (MISTAKES["split by view"].source, unscaled, "split by view and no scale"),
        (Layer, both, "no scale and mask inverted"),
    ],
)
def test_two_mistakes_in_one_layer_are_both_told(kind, attend, names):
    with pytest.raises(CheckFailed) as failure:
        check_multi_head(kind(6, 3, attend=attend), only=["mask"])
    assert named(failure.value) == [names]


def test_the_layer_and_the_random_numbers_stay_as_they_are():
    layer = MultiHeadAttention(6, 3, dropout=0.5).train()
    before, state = copy.deepcopy(layer.state_dict()), torch.get_rng_state()
    check_multi_head(layer)
    check_attention(attention)
    assert layer.training
    assert all(torch.equal(layer.state_dict()[name], before[name]) for name in before)
    assert all(parameter.grad is None for parameter in layer.parameters())
    assert torch.equal(torch.get_rng_state(), state)


def test_a_layer_in_half_precision_is_checked_as_it_would_be_in_float32():
    assert check_multi_head(MultiHeadAttention(6, 3).bfloat16()).skipped == []


# What can't be checked


def test_only_some_mechanisms_are_checked_when_asked_for():
    report = check_attention(MISTAKES["no scale"].programs["attention"], only=["one key", "scores"])
    assert report.passed == ["one key", "scores"]
    known = check_attention(attention).passed
    message = f"only must be among {known}; got ['axis', 'softmax']"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        check_attention(attention, only=["softmax", "scores", "axis"])


class Bare(nn.Module):
    def __init__(self, out=6):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(6, 6) for _ in range(3))
        self.out_proj = nn.Linear(6, out)


class Small(nn.Module):
    """Projects each head's own share of the input."""

    num_heads = 3

    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(2, 2) for _ in range(3))
        self.out_proj = nn.Linear(6, 6)


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (Bare(), {}, "the module has no num_heads: give num_heads="),
        (
            Pasted(6, 3),
            {"num_heads": 3},
            "projections= must name four linear layers, those of queries, keys, values and output, "
            "or two, one for the first three together and that of the output; got ['q_proj', "
            "'k_proj', 'v_proj', 'out_proj'], and the module has ['W_q', 'W_k', 'W_v', 'fc']. For "
            "other parameters give like=, a MultiHeadAttention with the same numbers",
        ),
        (
            nn.MultiheadAttention(6, 3),
            {"like": MultiHeadAttention(6, 3)},
            "nn.MultiheadAttention has masks of its own: give "
            "like=MultiHeadAttention.from_torch(module), and call= with mask_to_torch",
        ),
        (
            Small(),
            {},
            "the queries are made of 2 features and the output has 6: is the input cut into heads "
            "before it is projected? Then a head knows its own share only",
        ),
        (
            Bare(),
            {"num_heads": 3, "projections": ["q_proj"]},
            "projections= must name four linear layers, those of queries, keys, values and output, "
            "or two, one for the first three together and that of the output; got ['q_proj'], and "
            "the module has ['q_proj', 'k_proj', 'v_proj', 'out_proj']. For other parameters give "
            "like=, a MultiHeadAttention with the same numbers",
        ),
        (
            Bare(out=5),
            {"num_heads": 3},
            "out_proj, or what stands for it, must have 6 features in and 6 out, as d_model is 6; "
            "got 6 and 5",
        ),
        (
            Fused(bias=True, out=17),
            {"num_heads": 3, "projections": ["inner.0", "inner.1"]},
            "v_proj, or what stands for it, must have 6 features in and 6 out, as d_model is 6; "
            "got 6 and 5",
        ),
        (Bare(), {"num_heads": 4}, "d_model (6) must be divisible by num_heads (4)"),
    ],
)
def test_a_layer_whose_parts_are_not_found_is_an_error_that_says_what_to_give(
    module, options, message
):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        check_multi_head(module, **options)
