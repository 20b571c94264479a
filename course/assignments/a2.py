"""Assignment 2: one head, `book/assignments/a2_single_head_and_cross_attention.ipynb`."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from course.assignments.choices import Choice, check_choices
from course.assignments.compare import ask, expect, expect_value
from course.model import Assignment, Draw, Question, Step, Student
from mini_attention import SingleHeadAttention, attention
from mini_attention.checks import CheckFailed

LAYERS = (
    "torch.nn.functional.multi_head_attention_forward",
    "torch.nn.MultiheadAttention.forward",
    "mini_attention.MultiHeadAttention.forward",
    "mini_attention.SingleHeadAttention.forward",
)
PROJECTIONS = ("q_proj", "k_proj", "v_proj")


# Predict: the shapes and the parameters of a layer whose sizes are all different


def shapes_of_projections(student: Student, draw: Draw) -> None:
    _expect_shapes(
        student,
        {
            "shape_q": (
                [8, 7, 5],
                [
                    ([8, 7, 6], "q_proj makes d_head features out of d_model"),
                    ([8, 7, 2], "queries have the features that are compared, d_head, not d_value"),
                    ([8, 9, 5], "there is a query for each of the 7 words that ask"),
                    ([7, 5], "the batch axis stays in front"),
                ],
            ),
            "shape_k": (
                [8, 9, 5],
                [
                    ([8, 9, 3], "k_proj makes d_head features out of key_size"),
                    ([8, 7, 5], "there is a key for each of the 9 words that are asked"),
                    ([8, 9, 6], "keys are compared with queries: they have d_head features"),
                    ([8, 9, 2], "keys have the features that are compared, d_head, not d_value"),
                    ([8, 5, 9], "q k^T transposes the keys later; as they come they are b j d"),
                ],
            ),
            "shape_v": (
                [8, 9, 2],
                [
                    ([8, 9, 10], "v_proj makes d_value features out of value_size"),
                    ([8, 9, 5], "values are not compared: they have d_value features, not d_head"),
                    ([8, 7, 2], "there is a value for each key, not for each query"),
                ],
            ),
        },
    )


def shapes_of_results(student: Student, draw: Draw) -> None:
    _expect_shapes(
        student,
        {
            "shape_weights": (
                [8, 7, 9],
                [
                    ([8, 9, 7], "a row for each query, a column for each key"),
                    ([8, 7, 7], "that is self-attention: here 7 words ask 9 others"),
                    ([8, 9, 9], "that is self-attention: here 7 words ask 9 others"),
                    ([8, 7, 5], "the compared features are summed away"),
                    ([7, 9], "each item of the batch has weights of its own"),
                ],
            ),
            "shape_output": (
                [8, 7, 2],
                [
                    ([8, 9, 2], "there is an output for each query, and the keys are summed away"),
                    ([8, 7, 5], "an output is a mean of values: it has their d_value features"),
                    ([8, 7, 6], "a single head has no projection back to d_model"),
                    ([8, 7, 10], "the values were projected: they have d_value features"),
                ],
            ),
        },
    )


def sizes_of_parameters(student: Student, draw: Draw) -> None:
    _expect_shapes(
        student,
        {
            "shape_matrix": (
                [5, 3],
                [
                    ([3, 5], "nn.Linear stores outputs × inputs, the transpose of our W_k"),
                    ([5, 6], "the keys come in with key_size features, not with d_model"),
                    ([6, 5], "the keys come in with key_size features, not with d_model"),
                    ([5, 10], "value_size belongs to v_proj"),
                ],
            )
        },
    )
    expect_value(
        "count",
        student.value("count"),
        77,
        [
            (65, "without the biases: each projection adds one number to each of its features"),
            (68, "a projection has a bias for each feature that comes out, not one for all"),
            (84, "d_model features come into q_proj only: the others have key_size and value_size"),
            (72, "d_model features come into q_proj only, and the biases are missing"),
            (110, "v_proj makes d_value features, not d_head"),
            (95, "a single head has no output projection: three matrices and their biases"),
        ],
    )


def _expect_shapes(
    student: Student, asked: dict[str, tuple[list[int], list[tuple[list[int], str]]]]
) -> None:
    for name, (right, wrong) in asked.items():
        value = student.value(name)
        if not isinstance(value, list | tuple):
            raise CheckFailed(f"{name}: a tuple of whole numbers is expected")
        expect_value(name, list(value), right, wrong)


# Build: a head for words that ask others


def head_has_its_parts(student: Student, draw: Draw) -> None:
    sizes = {"d_model": 5, "d_head": 3, "d_value": 2, "key_size": 7}
    found = {name: tuple(p.shape) for name, p in _head(student, draw, sizes).named_parameters()}
    shapes = {"q_proj": (3, 5), "k_proj": (3, 7), "v_proj": (2, 7)}
    for name, shape in shapes.items():
        if found[f"{name}.weight"] != shape:
            raise CheckFailed(
                f"{name}.weight, outputs × inputs, is {found[f'{name}.weight']}, where {shape} is "
                f"right for {sizes}"
            )
        if f"{name}.bias" not in found:
            raise CheckFailed(f"{name} has no bias: nn.Linear has one unless it is told otherwise")
    if more := sorted({name for name in found if name.split(".")[0] not in shapes}):
        raise CheckFailed(f"SingleHead owns more than its three projections: {more}")


def head_attends_to_itself(student: Student, draw: Draw) -> None:
    sizes = {"d_model": 5, "d_head": 3, "d_value": 3, "key_size": 5}
    x = 2 * draw.randn(2, 7, 5)
    _compare_heads(_head(student, draw, sizes), sizes, x, x)


def head_attends_to_others(student: Student, draw: Draw) -> None:
    sizes = {"d_model": 5, "d_head": 3, "d_value": 2, "key_size": 7}
    x, y = 2 * draw.randn(2, 3, 5), 2 * draw.randn(2, 11, 7)
    _compare_heads(_head(student, draw, sizes), sizes, x, y)


def head_learns(student: Student, draw: Draw) -> None:
    sizes = {"d_model": 5, "d_head": 3, "d_value": 3, "key_size": 5}
    head = _head(student, draw, sizes)
    like = _like(head, sizes)
    x, y = draw.randn(2, 7, 5).requires_grad_(), draw.randn(2, 7, 5).requires_grad_()
    upstream = draw.randn(2, 7, 3)
    output, right = ask("SingleHead", head, x, y), like(x, y)
    if not isinstance(output, Tensor) or output.shape != right.shape:
        expect("SingleHead", output, right, _wrong_heads(like, x, y))
    if not isinstance(output, Tensor) or not output.requires_grad:
        raise CheckFailed("the output has no gradient: is there a detach, a no_grad or a .data?")
    names = [n for n, _ in like.named_parameters() if n in dict(head.named_parameters())]
    theirs, ours = ([*map(module.get_parameter, names)] for module in (head, like))
    found = torch.autograd.grad(output, [x, y, *theirs], upstream, allow_unused=True)
    for name, gradient in zip(["x", "y", *names], found, strict=True):
        if gradient is None:
            raise CheckFailed(f"no gradient reaches {name}: nothing that comes out depends on it")
    expect("SingleHead", output, right, _wrong_heads(like, x, y))
    wanted = torch.autograd.grad(right, [x, y, *ours], upstream)
    for name, one, other in zip(["x", "y", *names], found, wanted, strict=True):
        expect(f"the gradient of {name}", one, other)


def _head(student: Student, draw: Draw, sizes: dict[str, int]) -> nn.Module:
    """Theirs, with parameters that nobody could know, biases too."""
    head = ask("SingleHead", lambda: student.module("SingleHead", **sizes)).double()
    assert isinstance(head, nn.Module)
    names = {name for name, _ in head.named_parameters()}
    for name in PROJECTIONS:
        if f"{name}.weight" not in names:
            raise CheckFailed(f"SingleHead has no {name}, an nn.Linear; it has {sorted(names)}")
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(draw.randn(*parameter.shape) / 2)
    return head


def _like(head: nn.Module, sizes: dict[str, int]) -> SingleHeadAttention:
    """The package's layer with the same parameters, and biases of 0 where theirs has none."""
    like = SingleHeadAttention(**sizes, value_size=sizes["key_size"]).double()  # type: ignore[arg-type]
    given = dict(head.named_parameters())
    with torch.no_grad():
        for name, parameter in like.named_parameters():
            theirs = given.get(name, torch.zeros_like(parameter))
            if theirs.shape != parameter.shape:
                raise CheckFailed(
                    f"{name} should be of shape {tuple(parameter.shape)} for {sizes}; it is "
                    f"{tuple(theirs.shape)}"
                )
            parameter.copy_(theirs)
    return like


def _compare_heads(head: nn.Module, sizes: dict[str, int], x: Tensor, y: Tensor) -> None:
    like = _like(head, sizes)
    got = ask("SingleHead", head, x, y)
    expect("SingleHead", got, like(x, y), _wrong_heads(like, x, y))


def _wrong_heads(like: SingleHeadAttention, x: Tensor, y: Tensor) -> dict[str, Tensor | None]:
    """What plausible heads with the same parameters give; None where the sizes don't allow it."""
    to_q, to_k, to_v = like.q_proj, like.k_proj, like.v_proj
    q, k, v = to_q(x), to_k(y), to_v(y)
    products = q @ k.mT
    scores = products / math.sqrt(q.shape[-1])
    weights = scores.softmax(-1)
    wrong: dict[str, Callable[[], Tensor]] = {
        "the scores are not divided by √d_head": lambda: products.softmax(-1) @ v,
        "the scores are divided by √d_model: what is compared has d_head features": lambda: (
            (products / math.sqrt(x.shape[-1])).softmax(-1) @ v
        ),
        "the scores are divided by the root of key_size, not of d_head": lambda: (
            (products / math.sqrt(y.shape[-1])).softmax(-1) @ v
        ),
        "the scores are divided by d_head, not by its root": lambda: (
            (products / q.shape[-1]).softmax(-1) @ v
        ),
        "the softmax runs over axis 1, the queries: in b i j the keys are the last axis": lambda: (
            scores.softmax(1) @ v
        ),
        "the softmax runs over the batch: in b i j the keys are the last axis": lambda: (
            scores.softmax(0) @ v
        ),
        "keys and queries have changed places: x asks, y is asked": lambda: attention(k, q, v),
        "x and y have changed places: x asks, y is asked": lambda: like(y, x),
        "y is not used: keys and values are made of y, the words that are asked": lambda: attention(
            q, to_k(x), to_v(x)
        ),
        "the values are made of x: y hands over": lambda: attention(q, k, to_v(x)),
        "the keys are made of x: y is what is found": lambda: attention(q, to_k(x), v),
        "x is not used: queries are made of x, the words that ask": lambda: attention(
            to_q(y), k, v
        ),
        "the values are not projected: v_proj decides what is handed over": lambda: attention(
            q, k, y
        ),
        "k_proj makes the values too: they have a projection of their own": lambda: attention(
            q, k, k
        ),
        "q_proj makes the keys too: they have a projection of their own": lambda: attention(
            q, to_q(y), v
        ),
        "there is no softmax": lambda: scores @ v,
        "these are the weights: multiply them with the values": lambda: weights,
        "the softmax is applied twice": lambda: weights.softmax(-1) @ v,
        "the words are added to the output: a head returns the mean alone": lambda: weights @ v + x,
    }
    return {hint: _or_none(program) for hint, program in wrong.items()}


def _or_none(program: Callable[[], Tensor]) -> Tensor | None:
    try:
        return program()
    except (RuntimeError, ValueError):
        return None


# Repair: three mistakes that square matrices hide


def repaired_values(student: Student, draw: Draw) -> None:
    """A single word has all the weight: its output is its value, whatever the scores are."""
    layer = _repaired(student, draw, 5, 5, 5)
    x = draw.randn(2, 1, 5)
    W_v = layer.get_parameter("W_v")
    wrong = {
        "a single word gives itself all weight, so this is its value: it was made with W_v.T, "
        "where the book's projection is x @ W_v": x @ W_v.mT,
        "the output has the sign of -W_v": -x @ W_v,
    }
    expect("Repaired with one word", ask("Repaired", layer, x), x @ W_v, wrong)


def repaired_direction(student: Student, draw: Draw) -> None:
    """Square sizes, d_model = d_head: the scale is right in any case."""
    layer = _repaired(student, draw, 5, 5, 5)
    x = draw.randn(2, 7, 5)
    q, k, v = _projected(layer, x)
    back = (k @ q.mT) / math.sqrt(5)
    straight = [x @ layer.get_parameter(name).mT for name in ("W_q", "W_k", "W_v")]
    turned = straight[1] @ straight[0].mT / math.sqrt(5)
    wrong = {
        "the scores are k q^T: their rows belong to the keys, so each key asks": (
            back.softmax(-1) @ v
        ),
        "nothing has changed: the projections are made with W.T, and the scores are k q^T": (
            turned.softmax(-1) @ straight[2]
        ),
        "the projections are made with W.T, where the book's are x @ W": attention(*straight),
        "W_q and W_k are used as W.T, where the book's projection is x @ W": attention(
            straight[0], straight[1], v
        ),
        "the rows of the weights belong to keys when they meet the values: the weights are "
        "transposed, or made of k q^T": back.softmax(-2) @ v,
        "the softmax runs over the queries: each query's weights have to sum to 1": (
            (q @ k.mT / math.sqrt(5)).softmax(-2) @ v
        ),
    }
    expect("Repaired with square matrices", ask("Repaired", layer, x), attention(q, k, v), wrong)


def repaired_scale(student: Student, draw: Draw) -> None:
    """W_k = W_q makes the scores symmetric, so that their direction can't be seen."""
    layer = _repaired(student, draw, 11, 3, 5)
    with torch.no_grad():
        layer.get_parameter("W_k").copy_(layer.get_parameter("W_q"))
    x = draw.randn(2, 7, 11) / 2
    q, k, v = _projected(layer, x)
    products = q @ k.mT
    wrong = {
        "the scores are divided by √d_model: the products are sums over d_head features": (
            (products / math.sqrt(11)).softmax(-1) @ v
        ),
        "the scores are not divided any more": products.softmax(-1) @ v,
        "the scores are divided by √d_value: the products are sums over d_head features": (
            (products / math.sqrt(5)).softmax(-1) @ v
        ),
        "the scores are divided by the root of the number of words": (
            (products / math.sqrt(7)).softmax(-1) @ v
        ),
        "the scores are divided by d_head, not by its root": (products / 3).softmax(-1) @ v,
        "the softmax runs over the queries: each query's weights have to sum to 1": (
            (products / math.sqrt(3)).softmax(-2) @ v
        ),
    }
    expect(
        "Repaired with d_model = 11 and d_head = 3",
        ask("Repaired", layer, x),
        attention(q, k, v),
        wrong,
    )


def _repaired(student: Student, draw: Draw, d_model: int, d_head: int, d_value: int) -> nn.Module:
    sizes = {"d_model": d_model, "d_head": d_head, "d_value": d_value}
    layer = ask("Repaired", lambda: student.module("Repaired", **sizes)).double()
    assert isinstance(layer, nn.Module)
    shapes = {"W_q": (d_model, d_head), "W_k": (d_model, d_head), "W_v": (d_model, d_value)}
    found = {name: tuple(p.shape) for name, p in layer.named_parameters()}
    if found != shapes:
        raise CheckFailed(f"Repaired should keep its parameters, {shapes}; it has {found}")
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(draw.randn(*parameter.shape))
    return layer


def _projected(layer: nn.Module, x: Tensor) -> list[Tensor]:
    return [x @ layer.get_parameter(name) for name in ("W_q", "W_k", "W_v")]


# Break: the order of the words


def restored(student: Student, draw: Draw) -> None:
    output, order = draw.randn(11, 7, 3), _order(draw)
    mixed, back = output[:, order], order.argsort()
    wrong = {
        "the items of the batch are reordered: the words are axis 1": mixed[back],
        "`[:, order]` reorders once more: the way back is another order, unless two words change "
        "places": mixed[:, order],
        "nothing has moved": mixed,
        "the words were reversed": mixed.flip(1),
    }
    got = ask("restore", student.function("restore"), mixed, order)
    expect("restore", got, output, wrong)


def restored_weights(student: Student, draw: Draw) -> None:
    weights, order = draw.randn(11, 7, 7).softmax(-1), _order(draw)
    mixed, back = weights[:, order][:, :, order], order.argsort()
    wrong = {
        "the items of the batch are reordered: the words are axes 1 and 2": mixed[back],
        "two lists of places at once pick pairs, the diagonal: reorder one axis after the other": (
            mixed[:, back, back]
        ),
        "only the rows, the queries, are back in their places: the columns moved too": (
            weights[:, :, order]
        ),
        "only the columns, the keys, are back in their places: the rows moved too": (
            weights[:, order]
        ),
        "`order` reorders once more: the way back is another order": (mixed[:, order][:, :, order]),
        "the map is transposed: rows are queries, before and after": weights.mT,
        "nothing has moved": mixed,
    }
    got = ask("restore_weights", student.function("restore_weights"), mixed, order)
    expect("restore_weights", got, weights, wrong)


def orders(student: Student, draw: Draw) -> None:
    """`output[:, order]` is right for an order that undoes itself, and for no other."""
    shows, hides = (_moved(student, name) for name in ("shows_order", "hides_order"))
    if all(shows[shows[n]] == n for n in range(6)):
        raise CheckFailed(
            "shows_order undoes itself: done twice, every word is back in its place, so the "
            "wrong way back is right. Send a word to a place whose own word goes somewhere else."
        )
    if not all(hides[hides[n]] == n for n in range(6)):
        raise CheckFailed(
            "hides_order shows the mistake: done twice, it does not bring every word back. "
            "Let words change places two by two."
        )


def _moved(student: Student, name: str) -> list[int]:
    value = student.value(name)
    given = value.tolist() if isinstance(value, Tensor | np.ndarray) else value
    if not isinstance(given, list | tuple):
        raise CheckFailed(f"{name}: a list of the places 0 to 5 is expected")
    if sorted(map(str, given)) != [*map(str, range(6))]:
        raise CheckFailed(f"{name}: each of the places 0 to 5 once, in some order; got {given}")
    order = [int(n) for n in given]
    if stays := [n for n in range(6) if order[n] == n]:
        raise CheckFailed(f"{name}: every word has to move, and word {stays[0]} does not")
    return order


def _order(draw: Draw) -> Tensor:
    """An order of seven words that does not undo itself, and that moves every word."""
    turn = draw.integer(1, 6)
    shuffled = torch.randperm(7, generator=draw.generator)
    order = torch.empty_like(shuffled)
    order[shuffled] = shuffled.roll(turn)  # seven is a prime: one circle of all words
    return order


# Build: the same head with other matrices


def diagonal_partner(student: Student, draw: Draw) -> None:
    _compare_partner(student, draw, torch.diag(draw.randn(3).abs() + 0.5))


def any_partner(student: Student, draw: Draw) -> None:
    turned = torch.tensor([[0.0, 2, 0], [0, 0, 1], [1, 0, 0]], dtype=torch.float64)
    _compare_partner(student, draw, turned + draw.randn(3, 3) / 10)


def _compare_partner(student: Student, draw: Draw, A: Tensor) -> None:
    W_q, W_k = draw.randn(5, 3), draw.randn(5, 3)
    wrong = {
        "W_q A changes the scores to W_q A A^T W_k^T: A has to be undone": W_q @ A,
        "W_q A^T changes the scores to W_q A^T A^T W_k^T: A has to be undone": W_q @ A.mT,
        "W_q A^(-1) leaves A^(-1) A^T in the middle of the scores: the keys are transposed, and "
        "A with them": W_q @ A.inverse(),
        "W_q has not changed, but W_k has": W_q,
        "1 / A takes the inverse of each number, not of the matrix": W_q @ (1 / A).mT,
        "only the diagonal of A is undone": W_q / A.diagonal(),
        "A A^T is undone: once is enough": W_q @ (A @ A.mT).inverse(),
        "this is the partner of W_k, not of W_q": W_k @ A.inverse().mT,
        "this is minus the matrix that is asked for": -W_q @ A.inverse().mT,
    }
    got = ask("partner", student.function("partner"), W_q, A)
    expect("partner", got, W_q @ A.inverse().mT, wrong)


# Explain: what does a change of the parameters do?

CHANGES = [
    Choice(
        "B",
        "every score changes its sign, so the best match becomes the worst.",
        {"C": "W_q is for the scores: the weights change, and with them the output."},
    ),
    Choice(
        "A",
        "only the product of the two counts, and (-W_q)(-W_k)^T is what it was.",
    ),
    Choice(
        "C",
        "values take no part in the scores, and a mean of doubled values is doubled.",
        {"B": "values take no part in the scores, so the weights stay."},
    ),
    Choice(
        "A",
        "all scores of a query grow by the same number, its product with the vector, and a "
        "softmax does not notice that.",
    ),
    Choice(
        "B",
        "every word asks one question more, and each key answers it with another number.",
        {"A": "that is so for the keys. A vector in the query is multiplied with each key."},
    ),
    Choice(
        "C",
        "weights sum to 1, so the vector is handed over whole, whatever was found.",
        {
            "A": "weights sum to 1, so the vector is added to every output.",
            "B": "values take no part in the scores, so the weights stay.",
        },
    ),
    Choice(
        "B",
        "the scores are transposed: where a word looked, it is looked at now.",
        {"A": "W_k W_q^T is the transpose of W_q W_k^T, another matrix unless it is symmetric."},
    ),
    Choice(
        "A",
        "the 2 and the 1/2 cancel in the product of the two matrices.",
    ),
    Choice(
        "C",
        "the features of the output change places, and the scores know nothing of them.",
        {
            "A": "the features of the output are those of the values, in their new order.",
            "B": "values take no part in the scores, so the weights stay.",
        },
    ),
]  # fmt: skip


def changes(first: int, last: int) -> Callable[[Student, Draw], None]:
    def chosen(student: Student, draw: Draw) -> None:
        check_choices("my_choices", student.value("my_choices"), CHANGES, first, last)

    return chosen


ASSIGNMENT = Assignment(
    2,
    "a2_single_head_and_cross_attention",
    [
        Question(
            "shapes",
            "Predict shapes and parameters",
            [
                Step("queries, keys and values", 1, shapes_of_projections),
                Step("weights and output", 1, shapes_of_results),
                Step("parameters", 1, sizes_of_parameters),
            ],
        ),
        Question(
            "single-head",
            "Build a head that asks other words",
            [
                Step("three projections", 1, head_has_its_parts),
                Step("self-attention", 1, head_attends_to_itself),
                Step("cross-attention", 2, head_attends_to_others),
                Step("gradients", 1, head_learns),
            ],
            LAYERS,
        ),
        Question(
            "repair",
            "Repair a head that hides behind square matrices",
            [
                Step("the values", 1, repaired_values),
                Step("who asks whom", 2, repaired_direction),
                Step("the scale", 1, repaired_scale),
            ],
            LAYERS,
        ),
        Question(
            "order",
            "Break it: the way back from another order",
            [
                Step("outputs", 1, restored),
                Step("weights", 1, restored_weights),
                Step("orders that show and hide", 1, orders),
            ],
        ),
        Question(
            "partner",
            "Build the same head with other matrices",
            [
                Step("a diagonal matrix", 1, diagonal_partner),
                Step("any invertible matrix", 1, any_partner),
            ],
        ),
        Question(
            "changes",
            "Explain: what does a change of the parameters do?",
            [
                Step("matrices", 1, changes(1, 3)),
                Step("biases", 1, changes(4, 6)),
                Step("two matrices, and columns", 1, changes(7, 9)),
            ],
        ),
    ],
)
