"""What attention costs: parameters, multiply-adds, FLOPs and bytes as functions of the sizes.

Each has a column of its own:

    parameters     of the projections
    multiply-adds  inside matrix products; two FLOPs each
    elementwise    operations on single numbers, which counters of matrix products leave out
    bytes          of the tensor that the step makes

Elementwise is 1 for each bias of a projection that is added, 1 for each query feature that is
scaled, 1 for each score that is masked, and 5 for each score in a softmax: compare it with the
largest so far, subtract the largest, exponentiate, add to the sum, divide by the sum.

A mask saves nothing: the products of a causal layer are computed whole, as torch counts them
too. Papers often count half.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from .contract import check_divides

SOFTMAX = 5  # elementwise operations a score
COLUMNS = ("parameters", "multiply_adds", "elementwise", "bytes")


@dataclass(frozen=True)
class Step:
    """What one step costs, and the shape of the tensor it makes, in the alphabet."""

    name: str
    shape: str
    parameters: int = 0
    multiply_adds: int = 0
    elementwise: int = 0
    bytes: int = 0

    @property
    def flops(self) -> int:
        """Floating-point operations inside matrix products: two a multiply-add."""
        return 2 * self.multiply_adds


@dataclass(frozen=True)
class Cost:
    """The steps of a forward pass in their order. Print it for a table.

    >>> cost = multi_head_cost(d_model=6, num_heads=2, i=5)
    >>> cost["scores"].flops, cost.total.flops
    (300, 2040)
    """

    steps: tuple[Step, ...]

    def __getitem__(self, name: str) -> Step:
        for step in self.steps:
            if step.name == name:
                return step
        raise KeyError(f"no step {name!r} among {[step.name for step in self.steps]}")

    @property
    def total(self) -> Step:
        return Step(
            "total", "", *(sum(getattr(s, column) for s in self.steps) for column in COLUMNS)
        )

    def backward_multiply_adds(self, *, inputs_need_gradient: bool = True) -> int:
        """Two products for each one forward: a gradient for each of its two factors.

        Where the inputs of the layer need none, their projections cost one product, for the
        parameters.
        """
        of_inputs = sum(s.multiply_adds for s in self.steps if s.name in ("query", "key", "value"))
        return 2 * self.total.multiply_adds - (0 if inputs_need_gradient else of_inputs)

    def recomputed_multiply_adds(self) -> int:
        """What a backward pass adds when the weights were not kept: the scores once more.

        With as many features in the values as in the keys that is half of the attention core,
        and the core's backward pass costs 2.5 times its forward pass.
        """
        return self["scores"].multiply_adds

    def __str__(self) -> str:
        rows = [["step", "shape", *(column.replace("_", "-") for column in COLUMNS)]]
        for step in (*self.steps, self.total):
            numbers = (f"{getattr(step, column):,}" for column in COLUMNS)
            rows.append([step.name, step.shape, *numbers])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            " ".join(
                cell.ljust(width) if place < 2 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        )


def attention_cost(
    *, b: int = 1, h: int = 1, i: int, j: int, d: int, e: int, mask: bool = False, itemsize: int = 4
) -> Cost:
    """The attention core, `attention(query, key, value)`, in the letters of its shapes.

    Raises TypeError for a size that is not an integer, ValueError for one that is too small.

    >>> attention_cost(i=5, j=7, d=2, e=3).total.multiply_adds == 5 * 7 * (2 + 3)
    True
    """
    _check_sizes(0, b=b, i=i, j=j)
    _check_sizes(1, h=h, d=d, e=e, itemsize=itemsize)
    maps, scores = b * h, b * h * i * j
    size = scores * itemsize
    steps = [
        Step("scores", "b h i j", multiply_adds=scores * d, elementwise=maps * i * d, bytes=size)
    ]
    if mask:
        steps += [Step("mask", "b h i j", elementwise=scores, bytes=size)]
    steps += [
        Step("softmax", "b h i j", elementwise=SOFTMAX * scores, bytes=size),
        Step("weighted sum", "b h i e", multiply_adds=scores * e, bytes=maps * i * e * itemsize),
    ]
    return Cost(tuple(steps))


def single_head_cost(
    d_model: int,
    d_head: int,
    i: int,
    j: int | None = None,
    *,
    d_value: int | None = None,
    key_size: int | None = None,
    value_size: int | None = None,
    batch: int = 1,
    proj_bias: bool = True,
    mask: bool = False,
    itemsize: int = 4,
) -> Cost:
    """`SingleHeadAttention` on i queries and j keys, as many as queries unless given.

    The other sizes have the defaults they have there. Errors are those of `attention_cost`.

    >>> print(single_head_cost(d_model=4, d_head=3, i=5, proj_bias=False))
    step         shape parameters multiply-adds elementwise bytes
    query        b i d         12            60           0    60
    key          b j d         12            60           0    60
    value        b j e         12            60           0    60
    scores       b i j          0            75          15   100
    softmax      b i j          0             0         125   100
    weighted sum b i e          0            75           0    60
    total                      36           330         140   440
    """
    j = i if j is None else j
    d_value = d_head if d_value is None else d_value
    key_size = d_model if key_size is None else key_size
    value_size = d_model if value_size is None else value_size
    _check_sizes(0, batch=batch)
    _check_sizes(1, d_model=d_model, d_head=d_head, d_value=d_value)
    _check_sizes(1, key_size=key_size, value_size=value_size)
    core = attention_cost(b=batch, i=i, j=j, d=d_head, e=d_value, mask=mask, itemsize=itemsize)
    project = partial(_project, proj_bias=proj_bias, itemsize=itemsize)
    return Cost(
        (
            project("query", "b i d", batch * i, d_model, d_head),
            project("key", "b j d", batch * j, key_size, d_head),
            project("value", "b j e", batch * j, value_size, d_value),
            *(replace(step, shape=step.shape.replace("h ", "")) for step in core.steps),
        )
    )


def multi_head_cost(
    d_model: int,
    num_heads: int,
    i: int,
    j: int | None = None,
    *,
    key_size: int | None = None,
    value_size: int | None = None,
    batch: int = 1,
    proj_bias: bool = True,
    mask: bool = False,
    itemsize: int = 4,
) -> Cost:
    """`MultiHeadAttention` on i queries and j keys, as many as queries unless given.

    The other sizes have the defaults they have there. Errors are those of `attention_cost`, and
    a ValueError for a `d_model` that `num_heads` does not divide.

    >>> one, two = multi_head_cost(64, 1, i=10), multi_head_cost(64, 2, i=10)
    >>> one.total.flops == two.total.flops, one["softmax"].bytes, two["softmax"].bytes
    (True, 400, 800)
    """
    j = i if j is None else j
    key_size = d_model if key_size is None else key_size
    value_size = d_model if value_size is None else value_size
    _check_sizes(0, batch=batch)
    _check_sizes(1, d_model=d_model, num_heads=num_heads, key_size=key_size, value_size=value_size)
    check_divides(d_model=d_model, num_heads=num_heads)
    d = d_model // num_heads
    core = attention_cost(b=batch, h=num_heads, i=i, j=j, d=d, e=d, mask=mask, itemsize=itemsize)
    project = partial(_project, proj_bias=proj_bias, itemsize=itemsize)
    return Cost(
        (
            project("query", "b i (h d)", batch * i, d_model, num_heads * d),
            project("key", "b j (h d)", batch * j, key_size, num_heads * d),
            project("value", "b j (h e)", batch * j, value_size, num_heads * d),
            *core.steps,
            project("output", "b i m", batch * i, num_heads * d, d_model),
        )
    )


def decoding_cost(
    d_model: int,
    num_heads: int,
    n: int,
    *,
    new: int = 1,
    num_kv_heads: int | None = None,
    batch: int = 1,
    proj_bias: bool = True,
    mask: bool = False,
    itemsize: int = 4,
) -> Cost:
    """`MultiHeadAttention` with a cache on the last `new` of n positions, the i of the shapes.

    The keys and values of the j = n positions are attended to, those of the new ones are made.
    With new = n that is the first pass over a prompt. Errors are those of `multi_head_cost`,
    and ValueError for heads that can't be shared and for more new positions than positions.

    >>> whole = multi_head_cost(64, 2, i=10)
    >>> decoding_cost(64, 2, n=10, new=10).total.flops == whole.total.flops
    True
    """
    g = num_heads if num_kv_heads is None else num_kv_heads
    _check_sizes(0, new=new, batch=batch)
    _check_sizes(1, d_model=d_model, num_heads=num_heads, num_kv_heads=g)
    check_divides(d_model=d_model, num_heads=num_heads)
    check_divides(num_heads=num_heads, num_kv_heads=g)
    if new > n:
        raise ValueError(f"new must be at most n = {n}; got {new}")
    d = d_model // num_heads
    core = attention_cost(b=batch, h=num_heads, i=new, j=n, d=d, e=d, mask=mask, itemsize=itemsize)
    project = partial(_project, proj_bias=proj_bias, itemsize=itemsize)
    return Cost(
        (
            project("query", "b i (h d)", batch * new, d_model, d_model),
            project("key", "b i (g d)", batch * new, d_model, g * d),
            project("value", "b i (g e)", batch * new, d_model, g * d),
            *core.steps,
            project("output", "b i m", batch * new, d_model, d_model),
        )
    )


def moved_by_decoding(
    d_model: int,
    num_heads: int,
    n: int,
    *,
    new: int = 1,
    num_kv_heads: int | None = None,
    batch: int = 1,
    proj_bias: bool = True,
    itemsize: int = 4,
) -> dict[str, int]:
    """The bytes that the layer of `decoding_cost` has to move from and to memory, at the least.

    Parameters are read once. The keys and values of n positions pass once: kept ones are read,
    new ones are written. The new positions come in and go out, and what is made in between
    stays in fast memory. Errors are those of `decoding_cost`.

    >>> moved_by_decoding(d_model=4, num_heads=2, n=5, num_kv_heads=1)
    {'parameters': 240, 'keys and values': 80, 'inputs and outputs': 32}
    """
    g = num_heads if num_kv_heads is None else num_kv_heads
    layer = decoding_cost(d_model, num_heads, n, new=new, num_kv_heads=g, proj_bias=proj_bias)
    kept = {"num_kv_heads": g, "d_head": d_model // num_heads, "n": n}
    return {
        "parameters": layer.total.parameters * itemsize,
        "keys and values": kv_cache_bytes(**kept, batch=batch, itemsize=itemsize),
        "inputs and outputs": 2 * batch * new * d_model * itemsize,
    }


def kv_cache_bytes(
    *, num_kv_heads: int, d_head: int, n: int, layers: int = 1, batch: int = 1, itemsize: int = 4
) -> int:
    """The bytes of the keys and values of n positions, in all layers of a model.

    >>> kv_cache_bytes(num_kv_heads=2, d_head=3, n=5)  # a key and a value, 4 bytes a number
    240
    """
    _check_sizes(0, n=n, batch=batch)
    _check_sizes(1, num_kv_heads=num_kv_heads, d_head=d_head, layers=layers, itemsize=itemsize)
    return 2 * layers * batch * num_kv_heads * n * d_head * itemsize


def kept_by_formula(
    *, b: int = 1, h: int = 1, i: int, j: int, d: int, e: int, itemsize: int = 4
) -> dict[str, int]:
    """The bytes that `attention` keeps for its backward pass, without a mask.

    The query is kept as it is multiplied: scaled, and so a copy.

    >>> kept_by_formula(i=5, j=7, d=2, e=3)
    {'query': 40, 'key': 56, 'value': 84, 'weights': 140}
    """
    _check_sizes(0, b=b, i=i, j=j)
    _check_sizes(1, h=h, d=d, e=e, itemsize=itemsize)
    entries = {"query": i * d, "key": j * d, "value": j * e, "weights": i * j}
    return {name: b * h * number * itemsize for name, number in entries.items()}


def kept_by_fused(
    *, b: int = 1, h: int = 1, i: int, j: int, d: int, e: int, itemsize: int = 4
) -> dict[str, int]:
    """The bytes that `fused_attention` keeps for its backward pass, without a mask.

    In place of the weights it keeps its output and one number a query, the logarithm of the
    softmax's denominator, in float32 or wider. The smaller of d and e is padded to the larger.

    >>> kept_by_fused(i=5, j=7, d=3, e=3)
    {'query': 60, 'key': 84, 'value': 84, 'output': 60, 'logsumexp': 20}
    """
    size = max(d, e)
    kept = kept_by_formula(b=b, h=h, i=i, j=j, d=size, e=size, itemsize=itemsize)
    del kept["weights"]
    return {**kept, "output": kept["query"], "logsumexp": b * h * i * max(itemsize, 4)}


def moved_by_formula(
    *, b: int = 1, h: int = 1, i: int, j: int, d: int, e: int, itemsize: int = 4
) -> dict[str, int]:
    """The bytes that the forward pass of the formula moves from and to memory, step by step.

    Each step reads its inputs once and writes its result once; the query comes scaled, and
    there is no mask. So four matrices `i j` move: scores out and in, weights out and in.
    Source: Dao et al., FlashAttention (2022), algorithm 0.

    >>> moved_by_formula(i=5, j=7, d=2, e=3)
    {'scores': 236, 'softmax': 280, 'weighted sum': 284}
    """
    _check_sizes(0, b=b, i=i, j=j)
    _check_sizes(1, h=h, d=d, e=e, itemsize=itemsize)
    entries = {
        "scores": i * d + j * d + i * j,
        "softmax": 2 * i * j,
        "weighted sum": i * j + j * e + i * e,
    }
    return {name: b * h * number * itemsize for name, number in entries.items()}


def moved_by_blocks(
    *, b: int = 1, h: int = 1, i: int, j: int, d: int, e: int, rows: int, itemsize: int = 4
) -> dict[str, int]:
    """The bytes that the forward pass moves when blocks of `rows` queries stay in fast memory.

    Such a block is read once and its output is written once; all keys and values pass by it,
    and scores and weights never leave fast memory. Beside the output goes one number a query,
    in float32 or wider. There is no mask, and blocks do not share what they read.
    Source: Dao et al., FlashAttention (2022), theorem 2; there, the blocks of keys stay.

    >>> moved_by_blocks(i=5, j=7, d=2, e=3, rows=2)  # three blocks of queries
    {'query': 40, 'key': 168, 'value': 252, 'output': 60, 'logsumexp': 20}
    """
    _check_sizes(0, b=b, i=i, j=j)
    _check_sizes(1, h=h, d=d, e=e, rows=rows, itemsize=itemsize)
    blocks = -(-i // rows)
    entries = {"query": i * d, "key": blocks * j * d, "value": blocks * j * e, "output": i * e}
    moved = {name: b * h * number * itemsize for name, number in entries.items()}
    return {**moved, "logsumexp": b * h * i * max(itemsize, 4)}


def _project(
    name: str,
    shape: str,
    positions: int,
    size: int,
    features: int,
    *,
    proj_bias: bool,
    itemsize: int,
) -> Step:
    return Step(
        name,
        shape,
        parameters=(size + proj_bias) * features,
        multiply_adds=positions * size * features,
        elementwise=positions * features * proj_bias,
        bytes=positions * features * itemsize,
    )


def _check_sizes(least: int, **sizes: int) -> None:
    for name, size in sizes.items():
        if not isinstance(size, int):
            raise TypeError(f"{name} must be an integer; got {size!r}")
        if size < least:
            raise ValueError(f"{name} must be at least {least}; got {size}")
