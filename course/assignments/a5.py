"""Assignment 5: count what a layer costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from types import SimpleNamespace

from course.model import Assignment, Draw, Question, Step, Student
from mini_attention.checks import CheckFailed

from .choices import Choice, check_choices
from .compare import ask
from .counts import Formula, check_function, check_predicted, close, number, numbers

# What the package counts with, where the task is to count.
COUNTERS = (
    "mini_attention.cost.attention_cost",
    "mini_attention.cost.single_head_cost",
    "mini_attention.cost.multi_head_cost",
    "mini_attention.cost.kept_by_formula",
    "mini_attention.cost.kept_by_fused",
)


# Question 1: what doubles


QUANTITIES = ("parameters", "FLOPs of the projections", "FLOPs of the core", "bytes of the weights")
DOUBLED: dict[str, tuple[Sequence[float], Sequence[Mapping[float | None, str]]]] = {
    "doubled_length": (
        (1, 2, 4, 4),
        (
            {None: "The projections have the same matrices for a sequence of any length."},
            {
                4: "A projection takes the words one by one: 4nm² is linear in n.",
                None: "Twice as many words are projected, each by the same matrices.",
            },
            {
                2: "Each query meets each key, and there are twice as many of both.",
                None: "The core has 2n²m multiply-adds: what does n² do when n doubles?",
            },
            {
                2: "The weights are n × n in each head: both sides double.",
                None: "The weights are n × n in each head; how many numbers is that for 2n?",
            },
        ),
    ),
    "doubled_heads": (
        (4, 4, 2, 2),
        (
            {
                1: "That would be so for a fixed d_model. Here d_head stays, so d_model doubles.",
                2: "A projection has m × m parameters, and m = num_heads · d_head doubles.",
                None: "d_head stays, so m = num_heads · d_head doubles. The matrices are m × m.",
            },
            {
                1: "That would be so for a fixed d_model. Here d_head stays, so d_model doubles.",
                2: "Each word has m features before and m after: both double.",
                None: "The projections have 4nm² multiply-adds, and m doubles.",
            },
            {
                1: "That would be so for a fixed d_model. Here a head keeps its d_head features.",
                4: "The core is linear in m: twice as many heads, each as costly as before.",
                None: "Each head costs what it did; there are twice as many.",
            },
            {
                1: "Every head has weights of its own, and there are twice as many heads.",
                4: "The weights are h n × n numbers: the features of a head are not in it.",
                None: "The weights are h n × n numbers.",
            },
        ),
    ),
    "doubled_keys": (
        (1, 1.5, 2, 2),
        (
            {None: "The projections have the same matrices for a sequence of any length."},
            {
                1: "Keys and values are projected for each of the j positions.",
                2: "Queries and output are projected for the i positions, which stay.",
                None: "Two of the four projections work on the j positions, two on the i.",
            },
            {
                1: "Each query meets each key, and there are twice as many keys.",
                4: "Only the keys double, the queries stay: i · j, not n².",
                None: "The core has 2 i j m multiply-adds.",
            },
            {
                1: "A query has a weight for each key, and there are twice as many keys.",
                4: "Only the keys double, the queries stay: i × j, not n × n.",
                None: "The weights are i × j in each head.",
            },
        ),
    ),
}


def _doubling(name: str) -> Step:
    right, hints = DOUBLED[name]

    def run(student: Student, draw: Draw) -> None:
        check_predicted(student, name, right, QUANTITIES, hints)

    return Step(name.replace("_", " "), 1, run)


# Questions 2 and 3: the account of a layer


def _sizes(draw: Draw) -> dict[str, int]:
    """Sizes of which no two are equal, and no two of different kind are near."""
    num_heads = draw.integer(2, 5)
    return {
        "num_heads": num_heads,
        "d_model": num_heads * draw.integer(6, 9),
        "i": draw.integer(50, 90),
        "j": draw.integer(100, 140),
        "key_size": draw.integer(11, 19) * 13,
        "value_size": draw.integer(11, 19) * 29,
        "batch": draw.integer(6, 9),
        "itemsize": (2, 8)[draw.integer(0, 1)],  # not 4, or a fixed 4 would pass
    }


def _draws(draw: Draw, *names: str, **fixed: int) -> list[dict[str, int]]:
    drawn = (_sizes(draw) | fixed for _ in range(3))
    return [{name: sizes[name] for name in names} for sizes in drawn]


def _function(
    step: str,
    name: str,
    names: str,
    right: Formula,
    wrong: Mapping[str, Formula],
    weight: int = 1,
    **fixed: int,
) -> Step:
    """A step that compares a function of some sizes with a formula."""

    def run(student: Student, draw: Draw) -> None:
        check_function(student, name, _draws(draw, *names.split(), **fixed), right, wrong)

    return Step(step, weight, run)


def _matrices(s: SimpleNamespace) -> int:
    """The parameters of the four projections without their biases."""
    return int(s.d_model * (2 * s.d_model + s.key_size + s.value_size))


def _biases(student: Student, draw: Draw) -> None:
    """What `proj_bias` adds, whatever the rest is."""
    name = "layer_parameters"
    whole = student.function(name)
    for sizes in _draws(draw, "d_model", "key_size", "value_size"):
        both = (number(name, ask(name, whole, *sizes.values(), bias)) for bias in (True, False))
        added, s = math.fsum((next(both), -next(both))), SimpleNamespace(**sizes)
        if not close(added, 4 * s.d_model):
            hints = (hint for hint, formula in BIASES.items() if close(added, formula(s)))
            raise CheckFailed(
                f"{name}: for d_model={s.d_model} biases should add {4 * s.d_model}; "
                f"they add {added:g}. {next(hints, '')}".strip()
            )


BIASES: dict[str, Formula] = {
    "proj_bias changes nothing.": lambda s: 0,
    "The output projection has a bias too, or one of the other three.": lambda s: 3 * s.d_model,
    "Each of the four layers has a bias of its own.": lambda s: s.d_model,
    "A bias has a number for each feature that comes out of its layer.": lambda s: 4,
    "A bias has as many numbers as features come out of its layer, not as go in.": (
        lambda s: 2 * s.d_model + s.key_size + s.value_size
    ),
    "True means that there are biases.": lambda s: -4 * s.d_model,
    "Parameters are counted, not their bytes.": lambda s: 16 * s.d_model,
}

PARAMETERS = _function(
    "matrices",
    "layer_parameters",
    "d_model key_size value_size proj_bias",
    lambda s: _matrices(s),
    {
        "The key and value projections take key_size and value_size features in.": (
            lambda s: 4 * s.d_model**2
        ),
        "The output projection has parameters too.": lambda s: _matrices(s) - s.d_model**2,
        "With proj_bias=False there are no biases.": lambda s: _matrices(s) + 4 * s.d_model,
        "A matrix has features in times features out: key_size × d_model, for one.": (
            lambda s: 2 * s.d_model**2 + s.key_size**2 + s.value_size**2
        ),
        "Keys and values are two inputs: value_size is not key_size.": (
            lambda s: 2 * s.d_model * (s.d_model + s.key_size)
        ),
        "Parameters are counted, not their bytes.": lambda s: 4 * _matrices(s),
        "A matrix has features in times features out, a product and not a sum.": (
            lambda s: 6 * s.d_model + s.key_size + s.value_size
        ),
    },
    proj_bias=False,
)


def _projections(s: SimpleNamespace) -> int:
    inner = s.j * (s.key_size + s.value_size) + 2 * s.i * s.d_model
    return int(2 * s.batch * s.d_model * inner)


PROJECTIONS = _function(
    "projections",
    "projection_flops",
    "d_model i j key_size value_size batch",
    _projections,
    {
        "A multiply-add is two FLOPs.": lambda s: _projections(s) / 2,
        "The projections are done for every item of the batch.": (
            lambda s: _projections(s) / s.batch
        ),
        "A multiply-add is two FLOPs, and there is a batch.": (
            lambda s: _projections(s) / 2 / s.batch
        ),
        "Keys and values are projected for the j positions.": (
            lambda s: 2 * s.batch * s.i * _matrices(s)
        ),
        "Queries and outputs stand at the i positions.": (
            lambda s: 2 * s.batch * s.j * _matrices(s)
        ),
        "Queries and outputs stand at the i positions: the output too.": (
            lambda s: _projections(s) + 2 * s.batch * s.d_model**2 * (s.j - s.i)
        ),
        "The output projection is a product too.": (
            lambda s: _projections(s) - 2 * s.batch * s.i * s.d_model**2
        ),
        "Keys and values have key_size and value_size features before they are projected.": (
            lambda s: 4 * s.batch * (s.i + s.j) * s.d_model**2
        ),
        "Keys and values are two inputs: value_size is not key_size.": (
            lambda s: 4 * s.batch * s.d_model * (s.i * s.d_model + s.j * s.key_size)
        ),
        "These are the parameters; each is used once for every position.": _matrices,
    },
)


def _core(s: SimpleNamespace) -> int:
    return int(4 * s.batch * s.i * s.j * s.d_model)


CORE = _function(
    "core",
    "core_flops",
    "d_model num_heads i j batch",
    _core,
    {
        "Either a product is missing, scores or weighted sum, or the 2 FLOPs of a multiply-add.": (
            lambda s: _core(s) / 2
        ),
        "A multiply-add is two FLOPs, and there are two products.": lambda s: _core(s) / 4,
        "Heads share the features: each has d_model / num_heads of them, so heads cancel.": (
            lambda s: _core(s) * s.num_heads
        ),
        "All heads are wanted: num_heads times what one of them costs.": (
            lambda s: _core(s) / s.num_heads
        ),
        "Each query meets each key: i · j pairs, in self-attention too.": (
            lambda s: 4 * s.batch * s.i**2 * s.d_model
        ),
        "The queries are i, the keys j: i · j pairs.": (lambda s: 4 * s.batch * s.j**2 * s.d_model),
        "Every item of the batch has a core of its own.": lambda s: _core(s) / s.batch,
        "Only matrix products count here, no softmax.": (
            lambda s: _core(s) + 5 * s.batch * s.num_heads * s.i * s.j
        ),
        "Only the core is wanted, without the projections.": (
            lambda s: _core(s) + 4 * s.batch * (s.i + s.j) * s.d_model**2
        ),
        "The pairs are i · j, each with d_model features: a product, not a sum.": (
            lambda s: 4 * s.batch * (s.i + s.j) * s.d_model
        ),
    },
)


def _bytes(s: SimpleNamespace) -> int:
    return int(s.batch * s.num_heads * s.i * s.j * s.itemsize)


WEIGHTS = _function(
    "bytes",
    "weights_bytes",
    "num_heads i j batch itemsize",
    _bytes,
    {
        "That is how many weights there are; each takes itemsize bytes.": (
            lambda s: _bytes(s) / s.itemsize
        ),
        "Every head has weights of its own.": lambda s: _bytes(s) / s.num_heads,
        "Every item of the batch has weights of its own.": lambda s: _bytes(s) / s.batch,
        "There is a weight for each of i · j pairs.": (lambda s: _bytes(s) / s.i / s.j * s.i**2),
        "There is a weight for each of i · j pairs: the keys are j, the queries i.": (
            lambda s: _bytes(s) / s.i / s.j * s.j**2
        ),
        "Only the weights are wanted, without the scores.": lambda s: 2 * _bytes(s),
        "These are bits; a byte has eight.": lambda s: 8 * _bytes(s),
        "itemsize says how many bytes a number takes, which need not be 4.": (
            lambda s: _bytes(s) / s.itemsize * 4
        ),
    },
)


def _pairs(s: SimpleNamespace) -> int:
    """Pairs that a causal mask allows: query 1 of i sees j - i + 1 keys, the last sees j."""
    return int(s.i * (s.j - s.i) + s.i * (s.i + 1) // 2)


def _per_pair(s: SimpleNamespace) -> int:
    return int(4 * s.batch * s.d_model)


CAUSAL = _function(
    "causal",
    "causal_core_flops",
    "d_model num_heads i j batch",
    lambda s: _per_pair(s) * _pairs(s),
    {
        "These are all pairs. A kernel that skips does those that the mask allows.": _core,
        "The first query stands beside the first key here. In the book the last query stands "
        "beside the last key, so the first sees j - i + 1 keys.": (
            lambda s: _per_pair(s) * s.i * (s.i + 1) // 2
        ),
        "Half of all pairs is wrong twice: a query sees itself, and with i < j the first query "
        "sees many keys already.": lambda s: _per_pair(s) * s.i * s.j / 2,
        "A query sees itself: the last query sees all j keys.": (
            lambda s: _per_pair(s) * (_pairs(s) - s.i)
        ),
        "The mask hides the later keys. You counted the pairs that are hidden.": (
            lambda s: _per_pair(s) * (s.i * s.j - _pairs(s))
        ),
        "The first query sees j - i + 1 keys and each query one more: you counted one too many.": (
            lambda s: _per_pair(s) * (_pairs(s) + s.i)
        ),
        "There are i queries, not j: rows of the mask are queries.": (
            lambda s: _per_pair(s) * s.j * (s.j + 1) // 2
        ),
        "Half of a square is not the triangle: the i allowed pairs on its edge count whole.": (
            lambda s: _per_pair(s) * (s.i * (s.j - s.i) + s.i**2 / 2)
        ),
        "Either a product is missing, scores or weighted sum, or the 2 FLOPs of a multiply-add.": (
            lambda s: _per_pair(s) * _pairs(s) / 2
        ),
        "Heads share the features, so they cancel.": (
            lambda s: _per_pair(s) * _pairs(s) * s.num_heads
        ),
        "Every item of the batch has a core of its own.": (
            lambda s: _per_pair(s) * _pairs(s) / s.batch
        ),
    },
    weight=2,
)


# Question 4: where the core takes over


def _overtakes(
    core: int = 2, projections: int = 4, layers: int = 2, pairs: int = 1, ties: bool = False
) -> Formula:
    """The shortest n at which the core does more, by how much is counted of what.

    In units of n m, the core does `core` times n, or under a mask (n + pairs) / 2, and the linear
    layers do `projections` times m and `layers` times hidden. With ties, as much is enough.
    """

    def shortest(s: SimpleNamespace) -> int:
        rest = projections * s.d_model + layers * s.hidden
        equal = Fraction(2 * rest, core) - pairs if s.causal else Fraction(rest, core)
        return math.ceil(equal) if ties else math.floor(equal) + 1

    return shortest


def _given(formula: Formula, **sizes: Callable[[SimpleNamespace], int]) -> Formula:
    """The formula, had it been given other sizes."""

    def shortest(s: SimpleNamespace) -> float:
        return formula(SimpleNamespace(**vars(s) | {key: of(s) for key, of in sizes.items()}))

    return shortest


CROSSINGS: dict[str, Formula] = {
    "At that length both do the same; from the next one on the core does more.": (
        _overtakes(ties=True)
    ),
    "The core has two products, the scores and the weighted sum.": _overtakes(core=1),
    "Are both sides in the same unit? One looks like FLOPs, the other like multiply-adds.": (
        _overtakes(core=4)
    ),
    "There are four projections: do not forget the output.": _overtakes(projections=3),
    "There are four projections, not one.": _overtakes(projections=1),
    "hidden changes nothing: a feed-forward network is work as well.": _overtakes(layers=0),
    "The feed-forward network has two linear layers, from m to hidden and back.": (
        _overtakes(layers=1)
    ),
    "Two linear layers of n · m · hidden multiply-adds: 2 in all. FLOPs would be twice that.": (
        _overtakes(layers=4)
    ),
    "The projections are there as well, beside the feed-forward network.": (
        _overtakes(projections=0)
    ),
    "hidden is any number, and 0 where there is no feed-forward network; 6m holds for 4m.": (
        _given(_overtakes(), hidden=lambda s: 4 * s.d_model)
    ),
    "causal changes nothing: with fewer pairs the core takes over later.": (
        _given(_overtakes(), causal=lambda s: 0)
    ),
    "With fewer pairs the core takes over later, not earlier.": (
        _given(_overtakes(core=4), causal=lambda s: 0)
    ),
    "A query sees itself too: n (n + 1) / 2 pairs, not n² / 2.": _overtakes(pairs=0),
    "A query sees itself too: n (n + 1) / 2 pairs, not n (n - 1) / 2.": _overtakes(pairs=-1),
    "At the length before that one the core does more already.": lambda s: _overtakes()(s) + 1,
}


def _crosses(step: str, *, hidden: bool, causal: bool) -> Step:
    def sizes(draw: Draw) -> dict[str, int]:
        width = 2 * draw.integer(90, 140) if hidden else 0
        return {"d_model": 2 * draw.integer(6, 20), "hidden": width, "causal": causal}

    def run(student: Student, draw: Draw) -> None:
        draws = [sizes(draw) for _ in range(3)]
        check_function(student, "crossing", draws, _overtakes(), CROSSINGS)

    return Step(step, 1, run)


# Question 5: what fits


Kept = Callable[[SimpleNamespace, int], float]  # bytes for n positions


def _by_formula(s: SimpleNamespace, n: int) -> int:
    return int(s.batch * s.num_heads * s.itemsize * (3 * n * s.d_head + n * n))


def _by_fused(s: SimpleNamespace, n: int) -> int:
    each = 4 * n * s.d_head * s.itemsize + n * max(s.itemsize, 4)
    return int(s.batch * s.num_heads * each)


def _count(s: SimpleNamespace) -> int:
    return int(s.batch * s.num_heads * s.itemsize)


NO_HEADS = "Every head keeps tensors of its own."
NO_BATCH = "Every item of the batch keeps tensors of its own."
NO_BYTES = "A number takes itemsize bytes."
FORMULA: dict[str, Kept] = {
    "Query, key and value are kept as well as the weights.": lambda s, n: _count(s) * n * n,
    "Keys and values are kept as well: three tensors of n × d_head.": (
        lambda s, n: _count(s) * (n * n + n * s.d_head)
    ),
    "The scores are not kept: a softmax needs its result alone to go back.": (
        lambda s, n: _count(s) * (2 * n * n + 3 * n * s.d_head)
    ),
    "The formula keeps what it multiplies; its output is no factor.": (
        lambda s, n: _count(s) * (n * n + 4 * n * s.d_head)
    ),
    NO_HEADS: lambda s, n: _by_formula(s, n) / s.num_heads,
    NO_BATCH: lambda s, n: _by_formula(s, n) / s.batch,
    NO_BYTES: lambda s, n: _by_formula(s, n) / s.itemsize,
    "memory is in bytes, not bits.": lambda s, n: 8 * _by_formula(s, n),
    "That is for the fused kernel, which keeps no weights.": _by_fused,
}
FUSED: dict[str, Kept] = {
    "Beside its output the kernel keeps one number a query, the logsumexp.": (
        lambda s, n: _count(s) * 4 * n * s.d_head
    ),
    "The output is kept as well: four tensors of n × d_head.": (
        lambda s, n: _by_fused(s, n) - _count(s) * n * s.d_head
    ),
    "Query, key, value and output: what is kept beside the two that are written?": (
        lambda s, n: _by_fused(s, n) - 2 * _count(s) * n * s.d_head
    ),
    "The kernel keeps no weights.": lambda s, n: _by_fused(s, n) + _count(s) * n * n,
    "The logsumexp is one number a query in each head, not d_head of them.": (
        lambda s, n: 5 * _count(s) * n * s.d_head
    ),
    "The logsumexp belongs to a head as well: one number for each of its queries.": (
        lambda s, n: _count(s) * 4 * n * s.d_head + s.batch * n * 4
    ),
    NO_HEADS: lambda s, n: _by_fused(s, n) / s.num_heads,
    NO_BATCH: lambda s, n: _by_fused(s, n) / s.batch,
    NO_BYTES: lambda s, n: s.batch * s.num_heads * (4 * n * s.d_head + n),
    "That is for the formula, which keeps the weights.": _by_formula,
}
HALF: dict[str, Kept] = {
    "The logsumexp stays in float32: 4 bytes, also where itemsize is 2.": (
        lambda s, n: _count(s) * (4 * n * s.d_head + n)
    ),
    "Query, key, value and output have itemsize bytes a number, here 2.": (
        lambda s, n: s.batch * s.num_heads * 4 * (4 * n * s.d_head + n)
    ),
} | FUSED


def _longest(kept: Kept) -> Formula:
    """The largest n for which no more is kept than memory has."""

    def search(s: SimpleNamespace) -> int:
        low, high = 0, s.memory + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if kept(s, middle) <= s.memory else (low, middle)
        return low

    return search


def _rounded_otherwise(kept: Kept) -> dict[str, Formula]:
    longest = _longest(kept)

    def full(s: SimpleNamespace) -> bool:
        return bool(kept(s, int(longest(s))) == s.memory)

    return {
        "What fills the memory to its last byte fits.": lambda s: longest(s) - full(s),
        "That length needs more than there is: round down.": lambda s: longest(s) + 1 - full(s),
        "The next length fits as well.": lambda s: longest(s) - 1,
        "That length needs more than there is.": lambda s: longest(s) + 1,
    }


def _fits(step: str, name: str, kept: Kept, wrong: Mapping[str, Kept], itemsize: int) -> Step:
    """Memory that is full to the last byte, that lacks a byte, and that has some left."""
    formulas = {hint: _longest(each) for hint, each in wrong.items()} | _rounded_otherwise(kept)

    def sizes(draw: Draw, rest: int) -> dict[str, int]:
        heads, d_head, batch = draw.integer(2, 4), draw.integer(5, 7), draw.integer(8, 9)
        s = {"num_heads": heads, "d_head": d_head, "batch": batch, "itemsize": itemsize}
        memory = kept(SimpleNamespace(**s), draw.integer(300, 400)) + rest
        return {"memory": int(memory), **s}

    def run(student: Student, draw: Draw) -> None:
        draws = [sizes(draw, rest) for rest in (0, -1, 31)]
        check_function(student, name, draws, _longest(kept), formulas)

    return Step(step, 1, run)


# Question 6: break and explain


def _counted(i: int, j: int, m: int, h: int) -> int:
    return 2 * (i + j) * m**2 + 2 * i * j * m


SLIPS: dict[str, tuple[str, Callable[[int, int, int, int], int]]] = {
    "only_first": (
        "the first program projects keys and values for i positions, which shows where i and j "
        "differ",
        lambda i, j, m, h: 4 * i * m**2 + 2 * i * j * m,
    ),
    "only_second": (
        "the second program gives all features to every head, which shows from two heads on",
        lambda i, j, m, h: 2 * (i + j) * m**2 + 2 * h * i * j * m,
    ),
    "only_third": (
        "the third program takes the number of keys for that of value features, which shows "
        "where j and d_model differ",
        lambda i, j, m, h: 2 * (i + j) * m**2 + i * j * m + i * j * j,
    ),
}


def _only(name: str) -> Step:
    def run(student: Student, draw: Draw) -> None:
        *_, m, h = sizes = _whole(name, numbers(student, name, 4))
        if m % h:
            raise CheckFailed(f"{name}: {h} heads do not divide {m} features: no such layer.")
        shown = [slip for slip, (_, count) in SLIPS.items() if count(*sizes) != _counted(*sizes)]
        if name not in shown:
            raise CheckFailed(f"{name}: at {tuple(sizes)} it is right. Think: {SLIPS[name][0]}.")
        for other in shown:
            if other != name:
                raise CheckFailed(
                    f"{name}: at {tuple(sizes)} another is wrong too: {SLIPS[other][0]}."
                )

    return Step(name.replace("_", " "), 1, run)


def _whole(name: str, sizes: Sequence[float]) -> list[int]:
    if any(size < 1 or size != int(size) for size in sizes):
        raise CheckFailed(f"{name}: sizes are whole numbers from 1 on; got {tuple(sizes)}.")
    return [int(size) for size in sizes]


STATEMENTS = (
    Choice("T", "heads share the features, so products stay; each head has weights of its own"),
    Choice("F", "the formula computes every pair and masks afterwards: the counter sees it all"),
    Choice("F", "its memory grows with n; it does the same products, so its work grows with n²"),
    Choice("T", "a gradient for each of two factors: two products back for each one forward"),
    Choice("F", "it does the same products, out of sight of the counter"),
    Choice("T", "below n = 2m the projections have most of the products"),
)


def _statements(student: Student, draw: Draw) -> None:
    check_choices("statements", student.value("statements"), STATEMENTS, 1, len(STATEMENTS))


ASSIGNMENT = Assignment(
    5,
    "a5_cost",
    (
        Question("doubling", "Predict what doubles", [_doubling(name) for name in DOUBLED]),
        Question(
            "layer-account",
            "Parameters and projections",
            [PARAMETERS, Step("biases", 1, _biases), PROJECTIONS],
            COUNTERS,
        ),
        Question("core-account", "The attention core", [CORE, WEIGHTS, CAUSAL], COUNTERS),
        Question(
            "crossing",
            "Where the core takes over",
            [
                _crosses("attention alone", hidden=False, causal=False),
                _crosses("with a feed-forward network", hidden=True, causal=False),
                _crosses("causal", hidden=False, causal=True),
            ],
            COUNTERS,
        ),
        Question(
            "longest",
            "What fits into memory",
            [
                _fits("formula", "longest_with_formula", _by_formula, FORMULA, 4),
                _fits("fused kernel", "longest_with_fused", _by_fused, FUSED, 4),
                _fits("half precision", "longest_with_fused", _by_fused, HALF, 2),
            ],
            COUNTERS,
        ),
        Question(
            "break-and-explain",
            "Break and explain",
            [*map(_only, SLIPS), Step("statements", 1, _statements)],
        ),
    ),
)
