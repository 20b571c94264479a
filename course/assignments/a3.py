"""Assignment 3: multi-head attention, from the pattern of a split to a layer of one's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from einops import einsum, rearrange
from torch import Tensor, nn

from course.assignments.compare import TOLERANCE, as_tensor, ask, expect, expect_value, same
from course.model import Assignment, Draw, Question, Step, Student
from mini_attention import MultiHeadAttention, attention, check_multi_head
from mini_attention.checks import CheckFailed

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")

# Predict: what a split and another number of heads change


def chased_in_head_1(student: Student, draw: Draw) -> None:
    wrong = [
        ([1, 2], "every second feature: `(h d)` deals out blocks of neighbours, `(d h)` would not"),
        ([0, 1], "these are the first two features, head 0: heads are counted from 0"),
        ([0, 0], "this is what a view gives, which counts through the numbers word by word"),
        ([0, 1, 0, 2], "these are all four features; a head gets two of them"),
    ]
    expect_value("chased_in_head_1", student.value("chased_in_head_1"), [0, 2], wrong)


def weights_shape(student: Student, draw: Draw) -> None:
    wrong = [
        ([2, 3, 7, 5], "rows are queries and columns are keys: i comes before j"),
        ([2, 3, 5, 5], "queries come from one sequence, keys from another: j is 7"),
        ([2, 3, 7, 7], "queries come from one sequence, keys from another: i is 5"),
        ([2, 3, 5, 4], "these are the heads' outputs, b h i e; there is a weight for each key"),
        ([2, 5, 12], "this is the output of the layer, b i m; the weights are pairs i j"),
        ([2, 5, 7], "each head has a table of its own: the axis of the heads is missing"),
        ([3, 2, 5, 7], "the items come first, then the heads"),
        ([2, 5, 3, 3], "here the heads are compared inside each position; words must be"),
        ([2, 12, 5, 7], "there are 3 heads; 12 is the number of features of all of them"),
    ]
    expect_value("weights_shape", student.value("weights_shape"), [2, 3, 5, 7], wrong)


def parameters(student: Student, draw: Draw) -> None:
    wrong = [
        (624, "four matrices 12 x 12: but keys come with 7 features and values with 5"),
        (432, "the biases are missing: each of the four projections adds 12 numbers"),
        (324, "the output projection is missing"),
        (1128, "this gives each head the full width; the heads share the 12 features"),
        (264, "these are the projections of one head alone; there are three"),
        (160, "all heads together have the features of d_model: nothing is divided by 3"),
        (1440, "all heads together have the features of d_model: nothing is multiplied by 3"),
        (444, "only one bias is counted: each of the four projections has 12"),
    ]
    expect_value("parameters", student.value("parameters"), 480, wrong)


def with_six_heads(student: Student, draw: Draw) -> None:
    got = student.value("with_six_heads")
    if not isinstance(got, list | tuple) or len(got) != 4:
        raise CheckFailed("with_six_heads: a list of four words is expected")
    hints = (
        "the matrices keep their sizes: parameters stay the same",
        "twice the heads, each with half of the features: multiply-adds stay the same",
        "each head has a table of weights of its own: twice the heads, double the weights",
        "the heads share d_model: with twice as many each compares half of the features",
    )
    for one, right, hint in zip(got, ("same", "same", "double", "half"), hints, strict=True):
        if one != right:
            raise CheckFailed(f"with_six_heads: {hint}")


# Build: split, merge, and what each head adds


def split(student: Student, draw: Draw) -> None:
    x, h = draw.randn(2, 5, 21), 3
    wrong = {
        "cut by a view in the order of memory: position by position, so that a head gets a stretch "
        "of the sentence. The head axis has to be moved": x.reshape(2, 3, 5, 7),
        "the features are dealt out to the heads one by one, `(d h)`; a head takes a block of "
        "neighbours, `(h d)`": rearrange(x, "b n (d h) -> b h n d", h=h),
        "h counts the heads; here it counts the features of a head": rearrange(
            x, "b n (h d) -> b h n d", d=h
        ),
        "the head axis has to be moved in front of the positions": rearrange(
            x, "b n (h d) -> b n h d", h=h
        ),
        "positions come before features in each head: n d, not d n": rearrange(
            x, "b n (h d) -> b h d n", h=h
        ),
        "the heads come behind the items, b h; here they come first": rearrange(
            x, "b n (h d) -> h b n d", h=h
        ),
        "items and heads have an axis each": rearrange(x, "b n (h d) -> (b h) n d", h=h),
    }
    expect("split(x, h)", ask("split", student.function("split"), x, h), _split(x, h), wrong)


def merge(student: Student, draw: Draw) -> None:
    heads = draw.randn(2, 3, 5, 7)
    wrong = {
        "glued by a view, without moving the heads back behind the positions: the shape is right "
        "and words are mixed": heads.reshape(2, 5, 21),
        "one feature of each head in turn, `(e h)`; `(h e)` puts the heads side by side": rearrange(
            heads, "b h n e -> b n (e h)"
        ),
        "positions and features have changed places": rearrange(heads, "b h n e -> b (h e) n"),
        "this glues the positions of the heads together, not their features": rearrange(
            heads, "b h n e -> b (h n) e"
        ),
        "this glues the positions to the heads, not the features": rearrange(
            heads, "b h n e -> b (n h) e"
        ),
        "the heads are moved back, but not glued: h and e become one axis": rearrange(
            heads, "b h n e -> b n h e"
        ),
        "heads are put side by side, not added": heads.sum(1),
        "heads are put side by side, not averaged": heads.mean(1),
        "the last axis moves too: only h goes behind n": rearrange(heads, "b h n e -> b e (h n)"),
    }
    expect("merge(heads)", ask("merge", student.function("merge"), heads), _merge(heads), wrong)


def terms(student: Student, draw: Draw) -> None:
    heads, matrix = draw.randn(2, 3, 5, 7), draw.randn(21, 21)
    blocks = rearrange(matrix, "(h e) m -> h e m", h=3)
    right = einsum(heads, blocks, "b h i e, h e m -> b h i m")
    columns = rearrange(matrix, "m (h e) -> h e m", h=3)
    dealt = rearrange(matrix, "(e h) m -> h e m", h=3)
    wrong = {
        "the terms are added up: the axis of the heads should stay": right.sum(1),
        "the blocks of a head are rows of W_o, here they are columns": einsum(
            heads, columns, "b h i e, h e m -> b h i m"
        ),
        "a head meets 7 rows of W_o that are neighbours, `(h e)`; here it meets every third, "
        "`(e h)`": einsum(heads, dealt, "b h i e, h e m -> b h i m"),
        "all heads meet the first block; head 1 has the second one": heads @ blocks[0],
        "the heads come behind the items: b h i m": right.transpose(0, 1),
        "the heads come behind the items: b h i m, not b i h m": right.transpose(1, 2),
        "a head's block of rows is cut once more, to the head's own columns": einsum(
            heads, rearrange(blocks, "h e (k f) -> h e k f", k=3), "b h i e, h e k f -> b h i f"
        ),
        "a head adds its whole term, not its share of a mean": right / 3,
    }
    expect(
        "terms(heads, W_o)", ask("terms", student.function("terms"), heads, matrix), right, wrong
    )


def _split(x: Tensor, h: int) -> Tensor:
    return rearrange(x, "b n (h d) -> b h n d", h=h)


def _merge(heads: Tensor) -> Tensor:
    return rearrange(heads, "b h n e -> b n (h e)")


# Build: the layer

D_MODEL, HEADS = 15, 3


def projections(student: Student, draw: Draw) -> None:
    found = {n: tuple(p.shape) for n, p in _layer(student).named_parameters()}
    for name in PROJECTIONS:
        weight, bias = found.pop(f"{name}.weight", None), found.pop(f"{name}.bias", None)
        if weight is None:
            raise CheckFailed(f"MultiHead has no linear layer {name}")
        if weight != (D_MODEL, D_MODEL):
            own = "; the heads together have d_model features" * (weight[0] < D_MODEL)
            raise CheckFailed(
                f"{name} must have {D_MODEL} features in and {D_MODEL} out with d_model = "
                f"{D_MODEL}; it has {weight[1]} in and {weight[0]} out{own}"
            )
        if bias is None:
            raise CheckFailed(f"{name} has no bias: leave nn.Linear as it is")
    if found:
        raise CheckFailed(f"MultiHead has parameters that nobody asked for: {', '.join(found)}")


def self_attention(student: Student, draw: Draw) -> None:
    _check_layer(student, "evaluation", "one token", "two tokens", "tokens and heads")
    layer, twin = _with_twin(student)
    x = draw.randn(2, 7, D_MODEL, dtype=torch.float32)
    expect("MultiHead on a sentence", ask("MultiHead", layer, x, x, x), twin(x, x, x))


def cross_attention(student: Student, draw: Draw) -> None:
    layer, twin = _with_twin(student)
    q, k, v = (draw.randn(2, n, D_MODEL, dtype=torch.float32) for n in (5, 7, 7))
    wrong = {
        "keys and values are made of the query, whatever is given": twin(q, q, q),
        "the values are made of the key, whatever is given as value": twin(q, k, k),
        "the keys are made of the value, whatever is given as key": twin(q, v, v),
        "key and value have changed places": twin(q, v, k),
    }
    what = "MultiHead on 5 queries and 7 keys"
    expect(what, ask("MultiHead", layer, q, k, v), twin(q, k, v), wrong)
    _check_layer(student, "cross-attention")


def gradients(student: Student, draw: Draw) -> None:
    layer, twin = _with_twin(student)
    sources = [draw.randn(2, n, D_MODEL, dtype=torch.float32) for n in (5, 7, 7)]
    upstream = draw.randn(2, 5, D_MODEL, dtype=torch.float32)
    got, wanted = (_gradients(module, sources, upstream) for module in (layer, twin))
    for name, gradient in wanted.items():
        none = "it gets none: something is detached from the graph on the way"
        stopped = {none: torch.zeros_like(gradient)} if gradient.abs().max() > 0 else {}
        expect(f"the gradient of {name}", got[name], gradient, stopped)


def _layer(student: Student) -> nn.Module:
    sizes = {"d_model": D_MODEL, "num_heads": HEADS}
    layer: nn.Module = ask("MultiHead", partial(student.module, "MultiHead", **sizes))
    return layer


def _with_twin(student: Student) -> tuple[nn.Module, MultiHeadAttention]:
    """The student's layer, and the right one with the same numbers in its projections."""
    layer, twin = _layer(student), MultiHeadAttention(D_MODEL, HEADS)
    found = dict(layer.named_parameters())
    with torch.no_grad():
        for name, parameter in twin.named_parameters():
            given = found.get(name)
            if given is None or given.shape != parameter.shape:
                raise CheckFailed(f"{name} is missing or has another shape: see the first step")
            parameter.copy_(given)
    return layer, twin


def _check_layer(student: Student, *mechanisms: str) -> None:
    """The package's check, which names the mistake."""
    layer, twin = _with_twin(student)
    check_multi_head(layer, like=twin, call=_call, only=mechanisms)


def _call(layer: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> Any:
    return layer(query, key, value)


def _gradients(module: nn.Module, sources: list[Tensor], upstream: Tensor) -> dict[str, Tensor]:
    inputs = [source.clone().requires_grad_() for source in sources]
    output = ask("MultiHead", module, *inputs)
    if not isinstance(output, Tensor) or output.shape != upstream.shape:
        raise CheckFailed("the output is not right yet: see the steps before")
    names = ["query", "key", "value", *(f"{p}.weight" for p in PROJECTIONS), "out_proj.bias"]
    leaves = [*inputs, *(module.get_parameter(name) for name in names[3:])]
    if not output.requires_grad:
        raise CheckFailed("the gradient of every input: it gets none, the output is detached")
    found = torch.autograd.grad(output, leaves, upstream, materialize_grads=True)
    return dict(zip(names, found, strict=True))


# Build: carry parameters over from torch

Unpack = Callable[[dict[str, Tensor]], dict[str, Tensor]]


def carried_weights(student: Student, draw: Draw) -> None:
    state = _torch_state(draw, nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True))
    _expect_state(student, state, "weight")


def carried_biases(student: Student, draw: Draw) -> None:
    state = _torch_state(draw, nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True))
    _expect_state(student, state, "bias")


def carried_sizes(student: Student, draw: Draw) -> None:
    theirs = nn.MultiheadAttention(D_MODEL, HEADS, kdim=7, vdim=11, batch_first=True)
    state = _torch_state(draw, theirs)
    _expect_state(student, state, "weight")


def _torch_state(draw: Draw, theirs: nn.MultiheadAttention) -> dict[str, Tensor]:
    state = theirs.state_dict()
    return {n: draw.randn(*t.shape, dtype=torch.float32) for n, t in state.items()}


def _expect_state(student: Student, state: dict[str, Tensor], kind: str) -> None:
    function, given = student.function("carry_over"), {n: t.clone() for n, t in state.items()}
    got = ask("carry_over", function, given)
    if not isinstance(got, dict):
        raise CheckFailed(f"carry_over returns a dict of tensors; got {type(got).__name__}")
    wanted = _carried(state)
    for role in PROJECTIONS:
        name = f"{role}.{kind}"
        if name not in got:
            raise CheckFailed(f"carry_over: {name} is missing; it has {', '.join(map(str, got))}")
        expect(name, got[name], wanted[name], _confused(name, wanted, state))


def _carried(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """What the layer of the package makes of it."""
    theirs = nn.MultiheadAttention(
        D_MODEL,
        HEADS,
        kdim=state.get("k_proj_weight", state["out_proj.weight"]).shape[1],
        vdim=state.get("v_proj_weight", state["out_proj.weight"]).shape[1],
        batch_first=True,
    )
    theirs.load_state_dict(state)
    ours: dict[str, Tensor] = MultiHeadAttention.from_torch(theirs).state_dict()
    return ours


def _confused(name: str, wanted: dict[str, Tensor], state: dict[str, Tensor]) -> dict[str, Any]:
    role, kind = name.split(".")
    right = wanted[name]
    wrong: dict[str, Any] = {
        f"this is the {kind} of {other}": wanted[f"{other}.{kind}"]
        for other in PROJECTIONS
        if other != role and f"{other}.{kind}" in wanted
    }
    if kind == "weight":
        wrong["the matrix is transposed; nn.Linear and torch's layer store it the same way"] = (
            right.T
        )
    together = state.get(f"in_proj_{kind}")
    if together is None or role == "out_proj":
        return wrong
    place = PROJECTIONS.index(role)
    wrong[f"this is the whole of in_proj_{kind}; a third of it is wanted"] = together
    wrong["every third row: queries, keys and values are stacked as blocks"] = together[place::3]
    by_head = rearrange(together, "(h three d) ... -> three (h d) ...", h=HEADS, three=3)
    wrong["this takes the rows as sorted by heads; they are sorted by queries, keys, values"] = (
        by_head[place]
    )
    wrong["zeros: the numbers were not copied"] = torch.zeros_like(right)
    if kind == "weight":
        wrong["cut along the columns; what belongs to queries, keys and values are rows"] = (
            together.chunk(3, dim=1)[place]
        )
    return wrong


# Break: who meets whom when a view takes the place of a transpose


def unnoticed(student: Student, draw: Draw) -> None:
    function = student.function("unnoticed")
    sizes = [(1, 1), (1, 4), (5, 1), (3, 3), (6, 3), (3, 6), (2, 2), (4, 2), (5, 3), (2, 3)]
    got = [ask("unnoticed", function, n, h) for n, h in sizes]
    right = [n == 1 or h == 1 for n, h in sizes]
    wrong = [
        ([n == h for n, h in sizes], "as many words as heads: the shapes agree, the numbers don't"),
        (
            [n % h == 0 for n, h in sizes],
            "where h divides n no word is cut, but each head still gets a stretch of the sentence",
        ),
        (
            [h % n == 0 for n, h in sizes],
            "where n divides h each word still lands in heads of its own",
        ),
        (
            [h == 1 for n, h in sizes],
            "one head is right; is there a number of words that hides it too?",
        ),
        (
            [n == 1 for n, h in sizes],
            "one word is right; is there a number of heads that hides it too?",
        ),
        ([n == 1 and h == 1 for n, h in sizes], "one word or one head: either is enough"),
        ([False] * len(sizes), "there are sizes for which nothing is noticed: try the smallest"),
        ([True] * len(sizes), "try two words and two heads"),
        ([not r for r in right], "True is asked for where nothing is noticed"),
    ]
    expect_value("unnoticed", [_truth(x) for x in got], right, wrong)


def meets_stretches(student: Student, draw: Draw) -> None:
    """Where the number of heads divides that of the words, a head has a stretch of whole words."""
    _expect_meets(student, [(6, 2), (6, 3), (4, 4), (5, 1)])


def meets_cut_words(student: Student, draw: Draw) -> None:
    """Elsewhere a cut goes through a word, which then meets both sides."""
    _expect_meets(student, [(5, 2), (5, 3), (7, 3), (7, 5), (3, 5), (draw.integer(8, 11), 3)])


def _expect_meets(student: Student, sizes: list[tuple[int, int]]) -> None:
    function = student.function("meets")
    for n, h in sizes:
        got = ask("meets", function, n, h)
        expect(f"meets({n}, {h})", got, who_meets_whom(n, h), _wrong_meetings(n, h))


def who_meets_whom(n: int, h: int) -> Tensor:
    """Word p has the parts p h to p h + h - 1, and a head takes n parts in a row."""
    heads = [set(range(p * h // n, (p * h + h - 1) // n + 1)) for p in range(n)]
    return torch.tensor([[bool(one & other) for other in heads] for one in heads])


def _wrong_meetings(n: int, h: int) -> dict[str, Tensor]:
    p = torch.arange(n)
    first, last, size = p * h // n, (p * h + h - 1) // n, math.ceil(n / h)

    def table(head: Tensor) -> Tensor:
        return head[:, None] == head

    return {
        "this is the right layer, where all words meet; a view cuts the sentence": torch.ones(
            n, n, dtype=torch.bool
        ),
        "this is a layer that attends over heads, where a word meets itself alone": torch.eye(
            n, dtype=torch.bool
        ),
        "this follows where a word begins; its last features may lie in the next head": table(
            first
        ),
        "this follows where a word ends; its first features may lie in the head before": table(
            last
        ),
        "the cut may go through a word: a head takes n parts of words, not whole words": table(
            p // size
        ),
        "the cut may go through a word, and the rest of n / h is not thrown away": table(
            p // max(n // h, 1)
        ),
        "a head gets a stretch of neighbours, not every h-th word": table(p % h),
        "neighbours within n / h words: but a head has fixed ends": (p[:, None] - p).abs() < n / h,
        "this says who does not meet": ~who_meets_whom(n, h),
    }


def _truth(x: Any) -> Any:
    return bool(x) if isinstance(x, Tensor) and x.numel() == 1 else x


# Mend: the layer that attends over heads


def words_meet(student: Student, draw: Draw) -> None:
    """Every query sees every word, and the order of the words does not matter."""
    function = student.function("mended")
    q, k, v = draw.randn(2, 5, 21), draw.randn(2, 7, 21), draw.randn(2, 7, 21)
    base, moved = _output(function, q, k, v, 3), []
    for word in range(7):
        other = v.clone()
        other[:, word] += 1
        moved.append((_output(function, q, k, other, 3) - base).abs().amax((0, 2)) > TOLERANCE)
    table = torch.stack(moved, -1)  # i j
    if not (table & ~torch.eye(5, 7, dtype=torch.bool)).any():
        raise CheckFailed("mended: another word's change moves nothing: no word sees another")
    if not table.all():
        i, j = (~table).nonzero()[0].tolist()
        raise CheckFailed(
            f"mended: query {i} never sees word {j}: the heads are cut along the sentence"
        )
    order = torch.tensor([2, 6, 0, 5, 1, 3, 4])
    if not same(_output(function, q, k[:, order], v[:, order], 3), base):
        raise CheckFailed(
            "mended: moving keys together with their values changes the output: positions and "
            "heads are mixed up"
        )


def right_numbers(student: Student, draw: Draw) -> None:
    function = student.function("mended")
    q, k, v = draw.randn(2, 5, 21), draw.randn(2, 7, 21), draw.randn(2, 7, 21)
    heads = partial(_in_heads, q, k, v, 3)
    scale = 1 / math.sqrt(21)
    wrong = {
        "the scores are divided by the square root of all features; a head compares 21 / 3 = 7": (
            _merge(heads(scale=scale))
        ),
        "the heads are in front now, and the reshape at the end glues them as they lie there: move "
        "them back first": heads().reshape(2, 5, 21),
        "two things are left: the scale belongs to one head's features, and the heads have to be "
        "moved back before they are glued": heads(scale=scale).reshape(2, 5, 21),
        "the scores are not divided by anything": _merge(heads(scale=1.0)),
        "the scores are divided by the number of features, not its square root": _merge(
            heads(scale=1 / 7)
        ),
        "the heads are not glued together: b i m is asked for": heads(),
        "the features of the heads come one at a time, `(e h)`": rearrange(
            heads(), "b h i e -> b i (e h)"
        ),
        "this is one head with all features; there should be 3": attention(q, k, v),
        "each head's features are dealt out one by one, `(d h)`": _dealt(q, k, v, 3),
        "the softmax runs over the queries": _merge(_over_queries(q, k, v, 3)),
    }
    right = _merge(heads())
    expect("mended(q, k, v, h)", ask("mended", function, q, k, v, 3), right, wrong)


def _output(function: Callable[..., Any], *arguments: Any) -> Tensor:
    output, query = as_tensor("mended", ask("mended", function, *arguments)), arguments[0]
    if output.shape != query.shape:
        raise CheckFailed(
            f"mended: b i m is {tuple(query.shape)} here; got the shape {tuple(output.shape)}"
        )
    return output


def _in_heads(q: Tensor, k: Tensor, v: Tensor, h: int, scale: float | None = None) -> Tensor:
    return attention(_split(q, h), _split(k, h), _split(v, h), scale=scale)


def _dealt(q: Tensor, k: Tensor, v: Tensor, h: int) -> Tensor:
    parts = (rearrange(x, "b n (d h) -> b h n d", h=h) for x in (q, k, v))
    return rearrange(attention(*parts), "b h n e -> b n (e h)")


def _over_queries(q: Tensor, k: Tensor, v: Tensor, h: int) -> Tensor:
    scores = _split(q, h) @ _split(k, h).mT / math.sqrt(q.shape[-1] // h)
    return scores.softmax(-2) @ _split(v, h)


LAYERS = (
    "mini_attention.MultiHeadAttention",
    "torch.nn.MultiheadAttention",
    "torch.nn.functional.multi_head_attention_forward",
)

ASSIGNMENT = Assignment(
    3,
    "a3_multi_head_attention",
    [
        Question(
            "predict-heads",
            "Predict what heads change",
            [
                Step("the features of one head", 1, chased_in_head_1),
                Step("the shape of the weights", 1, weights_shape),
                Step("the number of parameters", 1, parameters),
                Step("twice as many heads", 1, with_six_heads),
            ],
        ),
        Question(
            "split-and-merge",
            "Split, merge, and what each head adds",
            [
                Step("split", 1, split),
                Step("merge", 1, merge),
                Step("one term for each head", 1, terms),
            ],
        ),
        Question(
            "multi-head",
            "The layer",
            [
                Step("projections", 1, projections),
                Step("self-attention", 2, self_attention),
                Step("cross-attention", 1, cross_attention),
                Step("gradients", 1, gradients),
            ],
            forbidden=LAYERS,
        ),
        Question(
            "carry-over",
            "Parameters from torch",
            [
                Step("weights", 1, carried_weights),
                Step("biases", 1, carried_biases),
                Step("other sizes for keys and values", 1, carried_sizes),
            ],
            forbidden=("mini_attention.MultiHeadAttention",),
        ),
        Question(
            "view-or-transpose",
            "A view where a transpose is needed",
            [
                Step("where nobody notices", 1, unnoticed),
                Step("stretches of whole words", 1, meets_stretches),
                Step("cuts through a word", 1, meets_cut_words),
            ],
        ),
        Question(
            "mend-heads",
            "Mend a layer that attends over heads",
            [
                Step("words meet words", 1, words_meet),
                Step("the numbers", 1, right_numbers),
            ],
            forbidden=LAYERS,
        ),
    ],
)
