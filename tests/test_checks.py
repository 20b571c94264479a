"""The checks: they know every mistake of the collection, and let every right answer pass."""

import copy
import math
import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mini_attention import (
    MultiHeadAttention,
    attention,
    check_attention,
    check_multi_head,
    fused_attention,
    mask_to_torch,
)
from mini_attention.checks import CheckFailed
from mini_attention.mistakes import MISTAKES
from mini_attention.mistakes.formula import Formula
from mini_attention.mistakes.layers import Layer

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
    "shown after dropout", "shown as average", "shown without mask", *NOTED,
}  # fmt: skip
# A layer mixes its heads, and with them the NaN that would tell these two apart.
ALIKE = {"exponentials without maximum", "one maximum for all"}


def named(failure: CheckFailed) -> list[str]:
    """The mistakes that a failure names."""
    text = " ".join(str(failure).split())
    starts = ("It looks like this mistake: ", "Or like this: ")
    return [part.split(".")[0] for start in starts for part in text.split(start)[1:]]


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
    with pytest.raises(CheckFailed, match=rf"none of the {len(MISTAKES)} mistakes that this"):
        check_attention(lambda query, key, value: attention(query, key, value) * 1.01)


OBSERVED = {
    "Another token's change moves nothing": lambda query, key, value, mask=None: value + 0.1,
    "Moving keys together with their values changes": lambda query, key, value, mask=None: (
        attention(query, key, value, mask) + value.shape[-2] * value[..., :1, :]
    ),
    "An item comes out differently alone than in its batch": lambda query, key, value, mask=None: (
        attention(query, key, value, mask) + value.mean()
    ),
    "Under a causal mask a later token moves an earlier": lambda query, key, value, mask=None: (
        attention(query, key, value, mask) + value[..., -1:, :]
    ),
}


@pytest.mark.parametrize("seen", OBSERVED)
def test_what_can_be_seen_of_an_unknown_mistake_is_told(seen):
    layer = MultiHeadAttention(6, 3, attend=OBSERVED[seen])
    if "item" in seen:
        layer.out_proj = nn.Identity()
        layer.forward = lambda query, key, value, mask=None: OBSERVED[seen](query, key, value, mask)
    with pytest.raises(CheckFailed) as failure:
        check_multi_head(layer, like=MultiHeadAttention(6, 3))
    text = " ".join(str(failure.value).split())
    assert seen in text
    others = set(OBSERVED) - {seen}
    assert sum(other in text for other in others) < len(others)


def test_a_causal_mask_that_is_built_in_is_seen():
    def built_in(query, key, value, mask):
        n = query.shape[-2]
        mask = torch.ones(n, key.shape[-2]).tril(key.shape[-2] - n).bool()
        return attention(query, key, value, mask)

    with pytest.raises(CheckFailed) as failure:
        check_multi_head(MultiHeadAttention(6, 3, attend=built_in), call=lambda m, x: m(x))
    assert "Only earlier tokens move an output: a causal mask is built in." in " ".join(
        str(failure.value).split()
    )


def test_weights_that_do_not_sum_to_one_are_seen():
    def gated(query, key, value):
        return torch.sigmoid(query @ key.mT / math.sqrt(key.shape[-1])) @ value

    with pytest.raises(CheckFailed, match=r"The weights of a query\s+do not sum to 1"):
        check_attention(gated)


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
        (lambda query, key, value: value.double(), "output expected in torch.float32, got torch.f"),
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


def test_a_fourth_argument_that_can_be_no_mask_gets_none():
    def with_temperature(query, key, value, temperature=1.0):
        return attention(query, key, value, scale=1 / (temperature * math.sqrt(key.shape[-1])))

    assert "mask" in check_attention(with_temperature).skipped


def test_a_fourth_argument_with_a_tensor_for_a_default_is_no_mask():
    bias = torch.zeros(1)
    report = check_attention(lambda q, k, v, shift=bias: attention(q, k, v) + shift.to(q))
    assert "mask" in report.skipped


def test_trying_a_function_out_draws_no_random_numbers_of_the_caller():
    state = torch.get_rng_state()
    check_attention(lambda q, k, v: attention(q, k, v) + 0 * torch.rand(()))
    assert torch.equal(torch.get_rng_state(), state)


def batched(query, key, value):
    return torch.bmm((torch.bmm(query, key.mT) / math.sqrt(key.shape[-1])).softmax(-1), value)


def four_axes(query, key, value, mask):
    scores = torch.einsum("bhid,bhjd->bhij", query, key) / math.sqrt(key.shape[-1])
    weights = torch.where(mask, scores, torch.finfo(scores.dtype).min).softmax(-1) * mask
    return torch.einsum("bhij,bhje->bhie", weights, value)


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

    def __init__(self, bias):
        super().__init__()
        self.inner = nn.ModuleList([nn.Linear(6, 18, bias=bias), nn.Linear(6, 6)])

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
    hiding = check_multi_head(layer, call=lambda module, x, mask: module(x, mask=mask))
    assert hiding.skipped == ["cross-attention"]


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
    with pytest.raises(ValueError, match=r"only must be among \['one key'.*got \['softmax'\]"):
        check_attention(attention, only=["softmax"])


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
            r"must name four linear layers.*\['q_proj', 'k_proj', 'v_proj', 'out_proj'\], and the "
            r"module has \['W_q', 'W_k', 'W_v', 'fc'\].*give like=",
        ),
        (
            nn.MultiheadAttention(6, 3),
            {"like": MultiHeadAttention(6, 3)},
            "nn.MultiheadAttention has masks of its own: give like=.* and call= with mask_to_torch",
        ),
        (Small(), {}, "made of 2 features and the output has 6: is the input cut into heads"),
        (Bare(), {"num_heads": 3, "projections": ["q_proj"]}, r"got \['q_proj'\]"),
        (
            Bare(out=5),
            {"num_heads": 3},
            "out_proj, or what stands for it, must have 6 features in and 6 out, as d_model is 6; "
            "got 6 and 5",
        ),
        (Bare(), {"num_heads": 4}, r"d_model \(6\) must be divisible by num_heads \(4\)"),
    ],
)
def test_a_layer_whose_parts_are_not_found_is_an_error_that_says_what_to_give(
    module, options, message
):
    with pytest.raises(ValueError, match=message):
        check_multi_head(module, **options)
