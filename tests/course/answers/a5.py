"""Answers to assignment 5: right ones in several styles, and wrong ones with what they get.

RIGHT    what it is: the cells of a whole notebook, as one text, cut at `# %%`
WRONG    question, what is wrong, the cell, the points it gets, words of a hint that names it
BORROWED question, what it is, the cells: answers that are not one's own
BEFORE   how many of the source's cells come before: the imports
"""

BEFORE = 1

PREDICTED = """
doubled_length = (1, 2, 4, 4)
doubled_heads = (4, 4, 2, 2)
doubled_keys = (1, 3 / 2, 2, 2)
only_first, only_second, only_third = (2, 9, 9, 1), (4, 4, 4, 4), (7, 7, 3, 1)
statements = "TFFTFT"
"""

RIGHT = {
    "closed forms": PREDICTED
    + """
def layer_parameters(d_model, key_size, value_size, proj_bias):
    return 2 * d_model**2 + (key_size + value_size) * d_model + (4 * d_model if proj_bias else 0)

def projection_flops(d_model, i, j, key_size, value_size, batch):
    return 4 * batch * i * d_model**2 + 2 * batch * j * d_model * (key_size + value_size)

def core_flops(d_model, num_heads, i, j, batch):
    return 4 * batch * i * j * d_model

def weights_bytes(num_heads, i, j, batch, itemsize):
    return itemsize * batch * num_heads * i * j

def causal_core_flops(d_model, num_heads, i, j, batch):
    return 4 * batch * d_model * (i * j - i * (i - 1) // 2)

def crossing(d_model, hidden, causal):
    return 4 * d_model + 2 * hidden if causal else 2 * d_model + hidden + 1

def longest_with_formula(memory, num_heads, d_head, batch, itemsize):
    from math import isqrt
    room = memory // (batch * num_heads * itemsize)
    return (isqrt(9 * d_head**2 + 4 * room) - 3 * d_head) // 2

def longest_with_fused(memory, num_heads, d_head, batch, itemsize):
    return memory // (batch * num_heads * (4 * d_head * itemsize + max(4, itemsize)))
""",
    "loops, and other names for the parameters": PREDICTED
    + """
def layer_parameters(m, k, v, with_bias):
    total = 0
    for size in [m, k, v, m]:
        total += size * m
        if with_bias:
            total += m
    return total

def projection_flops(m, queries, keys, k, v, items):
    total = 0
    for item in range(items):
        for positions, size in [(queries, m), (keys, k), (keys, v), (queries, m)]:
            total += 2 * positions * size * m
    return total

def core_flops(m, heads, queries, keys, items):
    total = 0
    for head in range(heads):
        d = m // heads
        total += 2 * queries * d * keys
        total += 2 * queries * keys * d
    return items * total

def weights_bytes(heads, queries, keys, items, size):
    return sum(size * keys for _ in range(items * heads * queries))

def causal_core_flops(m, heads, queries, keys, items):
    pairs = 0
    for i in range(queries):
        for j in range(keys):
            pairs += j <= i + keys - queries
    return items * pairs * 4 * m

def crossing(m, between, masked):
    n = 0
    core = rest = 0
    while core <= rest:
        n += 1
        pairs = sum(range(1, n + 1)) if masked else n**2
        core = 2 * pairs * m
        rest = 4 * n * m * m + n * m * between + n * between * m
    return n

def kept(n, heads, d, items, size, what):
    return items * heads * what(n, d, size)

def longest(memory, *sizes):
    n = 0
    while kept(n + 1, *sizes) <= memory:
        n += 1
    return n

def longest_with_formula(memory, heads, d, items, size):
    return longest(memory, heads, d, items, size, lambda n, d, size: size * (3 * n * d + n * n))

def longest_with_fused(memory, heads, d, items, size):
    return longest(memory, heads, d, items, size, lambda n, d, s: 4 * s * n * d + n * max(s, 4))
""",
    "floats, and numbers in tensors": """
import torch

doubled_length = torch.tensor([1, 2, 4, 4])
doubled_heads = torch.tensor([4.0, 4.0, 2.0, 2.0])
doubled_keys = torch.tensor([1, 1.5, 2, 2], dtype=torch.float64)
only_first = torch.tensor([1, 2, 2, 1])
only_second = [8.0, 8.0, 8.0, 4.0]
only_third = (5, 5, 1, 1)
statements = ["t", "f", "f", "t", "f", "t"]

def layer_parameters(d_model, key_size, value_size, proj_bias):
    sizes = torch.tensor([d_model, key_size, value_size, d_model])
    return (sizes * d_model).sum() + 4 * d_model * int(proj_bias)

def projection_flops(d_model, i, j, key_size, value_size, batch):
    return batch * (i * d_model + (j * key_size + j * value_size) / 2) * 4.0 * d_model

def core_flops(d_model, num_heads, i, j, batch):
    d_head = d_model / num_heads
    return 2 * 2 * batch * num_heads * i * j * d_head

def weights_bytes(num_heads, i, j, batch, itemsize):
    return torch.empty(batch, num_heads, i, j, dtype=torch.int8, device="meta").numel() * itemsize

def causal_core_flops(d_model, num_heads, i, j, batch):
    allowed = torch.ones(i, j).tril(j - i)
    return allowed.sum() * 4 * batch * d_model

def crossing(d_model, hidden, causal):
    for n in range(1, 10_000):
        core = n * (n + 1) * d_model if causal else 2 * n * n * d_model
        if core / n > 4.0 * d_model**2 + 2.0 * d_model * hidden:
            return float(n)

def longest_with_formula(memory, num_heads, d_head, batch, itemsize):
    n = torch.arange(5_000)
    kept = batch * num_heads * itemsize * (3 * n * d_head + n**2)
    return n[kept <= memory].max()

def longest_with_fused(memory, num_heads, d_head, batch, itemsize):
    return memory / batch / num_heads // (4 * d_head * itemsize + max(itemsize, 4))
""",
    "by asking a layer on the device meta": PREDICTED
    + """
import torch
from mini_attention import MultiHeadAttention

def layer(d_model, key_size, value_size, proj_bias):
    with torch.device("meta"):
        return MultiHeadAttention(
            d_model, 1, key_size=key_size, value_size=value_size, proj_bias=proj_bias
        )

def layer_parameters(d_model, key_size, value_size, proj_bias):
    return sum(p.numel() for p in layer(d_model, key_size, value_size, proj_bias).parameters())

def projection_flops(d_model, i, j, key_size, value_size, batch):
    matrices = layer(d_model, key_size, value_size, False)
    queries = sum(p.numel() for n, p in matrices.named_parameters() if n[0] in "qo")
    keys = sum(p.numel() for n, p in matrices.named_parameters() if n[0] in "kv")
    return 2 * batch * (i * queries + j * keys)

def core_flops(d_model, num_heads, i, j, batch):
    one_head = 2 * i * (d_model // num_heads) * j
    return batch * num_heads * (one_head + one_head)

def weights_bytes(num_heads, i, j, batch, itemsize):
    dtype = {2: torch.float16, 4: torch.float32, 8: torch.float64}[itemsize]
    return torch.empty(batch, num_heads, i, j, dtype=dtype, device="meta").nbytes

def causal_core_flops(d_model, num_heads, i, j, batch):
    from mini_attention import causal_mask
    return causal_mask(i, j).sum().item() * batch * 4 * d_model

def crossing(d_model, hidden, causal):
    linear = 4 * d_model**2 + 2 * d_model * hidden
    return linear // d_model if causal else linear // (2 * d_model) + 1

def longest_with_formula(memory, num_heads, d_head, batch, itemsize):
    low, high = 0, 100_000
    while low < high:
        n = (low + high + 1) // 2
        q = k = v = n * d_head
        if batch * num_heads * (q + k + v + n * n) * itemsize <= memory:
            low = n
        else:
            high = n - 1
    return low

def longest_with_fused(memory, num_heads, d_head, batch, itemsize):
    a_position = 4 * d_head * itemsize + (8 if itemsize == 8 else 4)
    return int(memory // (batch * num_heads * a_position))
""",
    "numpy, and a search in an array": """
import numpy as np

doubled_length, doubled_heads = np.array([[1, 2, 4, 4], [4, 4, 2, 2]])
doubled_keys = np.array([2, 3, 4, 4]) / 2
only_first, only_second, only_third = np.array([[1, 8, 8, 1], [8, 8, 8, 8], [8, 8, 1, 1]])
statements = list("TFFTFT")

def layer_parameters(*sizes):
    sizes, proj_bias = np.array(sizes[:-1]), sizes[-1]
    return sizes[0] * np.sum(np.append(sizes, sizes[0]) + proj_bias)

def projection_flops(m, i, j, key_size, value_size, batch):
    return 2 * batch * m * np.dot([i, i, j, j], [m, m, key_size, value_size])

def core_flops(m, h, i, j, batch):
    return np.prod([2, 2, batch, i, j, m], dtype=np.int64)

def weights_bytes(h, i, j, batch, itemsize):
    return np.broadcast_to(np.zeros((), f"S{itemsize}"), (batch, h, i, j)).size * itemsize

def causal_core_flops(m, h, i, j, batch):
    return np.tri(i, j, j - i).sum() * 4 * batch * m

def crossing(m, hidden, causal):
    n = np.arange(1, 3_000)
    pairs = np.cumsum(n) if causal else n**2
    return n[2 * pairs * m > n * (4 * m**2 + 2 * m * hidden)][0]

def longest_with_formula(memory, h, d, batch, itemsize):
    roots = np.roots([1, 3 * d, -(memory // (batch * h * itemsize))])
    return np.floor(roots.max() + 1e-9)

def longest_with_fused(memory, h, d, batch, itemsize):
    lengths = np.arange(10_000)
    kept = batch * h * (4 * d * itemsize + np.maximum(4, itemsize)) * lengths
    return np.searchsorted(kept, memory, side="right") - 1
""",
    "a class of accounts, comments in Chinese, in several cells": PREDICTED
    + """
from dataclasses import dataclass

@dataclass(frozen=True)
class 线性层:
    进: int
    出: int
    有偏置: bool = False

    @property
    def 参数(self) -> int:
        return (self.进 + self.有偏置) * self.出

    def 浮点运算(self, 位置: int) -> int:
        # 一次乘加算两次浮点运算
        return 2 * 位置 * self.进 * self.出
# %%
def 四个投影(m, k, v, 有偏置=False):
    return [线性层(进, m, 有偏置) for 进 in (m, k, v, m)]

def layer_parameters(m, k, v, 有偏置):
    return sum(层.参数 for 层 in 四个投影(m, k, v, 有偏置))

def projection_flops(m, i, j, k, v, 批):
    return 批 * sum(map(线性层.浮点运算, 四个投影(m, k, v), (i, j, j, i)))
# %%
@dataclass
class 核心:
    m: int
    头数: int

    def 运算(self, 对数):
        return self.头数 * 2 * 线性层(1, self.m // self.头数).浮点运算(对数)

def core_flops(m, 头数, i, j, 批):
    return 批 * 核心(m, 头数).运算(i * j)

def causal_core_flops(m, 头数, i, j, 批):
    return 批 * 核心(m, 头数).运算(len([(q, k) for q in range(i) for k in range(q + j - i + 1)]))

def weights_bytes(头数, i, j, 批, 字节):
    return sum([sum([字节] * j) * i] * 头数) * 批
# %%
def crossing(m, 隐藏, 因果):
    线性 = 四个投影(m, m, m) + [线性层(m, 隐藏), 线性层(隐藏, m)]
    长度 = 1
    while True:
        对数 = 长度 * (长度 + 1) // 2 if 因果 else 长度**2
        if 核心(m, 1).运算(对数) > sum(层.浮点运算(长度) for 层 in 线性):
            return 长度
        长度 += 1

def longest_with_formula(内存, 头数, d, 批, 字节):
    # 先加倍，再折半
    放得下 = lambda n: 批 * 头数 * n * (3 * d + n) * 字节 <= 内存
    上 = 1
    while 放得下(上):
        上 *= 2
    下 = 上 // 2
    while 上 - 下 > 1:
        中 = (下 + 上) // 2
        下, 上 = (中, 上) if 放得下(中) else (下, 中)
    return 下

def longest_with_fused(内存, 头数, d, 批, 字节):
    每个位置 = sum([d, d, d, d]) * 字节 + (4 if 字节 < 4 else 字节)
    return divmod(内存, 批 * 头数 * 每个位置)[0]
""",
    "lambdas, reduce and iterators": """
from functools import partial, reduce
from itertools import accumulate, count, product, takewhile
from math import prod
from operator import add, mul

doubled_length, doubled_heads, doubled_keys = map(
    list, zip((1, 4, 1), (2, 4, 3 / 2), (4, 2, 2), (4, 2, 2)))
only_first = [2, 1, 1, 1]
only_second = [3] * 4
only_third = [*map(int, "2241")]
statements = "".join("FT"[x] for x in (1, 0, 0, 1, 0, 1))

layer_parameters = lambda m, k, v, bias: reduce(add, (m * (x + bias) for x in (m, k, v, m)))
projection_flops = lambda m, i, j, k, v, b: sum(
    map(prod, [(2, b, i, m, m), (2, b, j, k, m), (2, b, j, v, m), (2, b, i, m, m)]))
core_flops = lambda m, h, i, j, b: 2 * reduce(mul, (2, b, h, i, j, m // h))
weights_bytes = lambda *sizes: prod(sizes)
causal_core_flops = lambda m, h, i, j, b: 4 * b * m * sum(
    k - q <= j - i for q, k in product(range(i), range(j)))

def more(m, hidden, causal, n):
    return [n * n, n * (n + 1) / 2][causal] * 2 * m > n * (4 * m * m + 2 * m * hidden)

def crossing(*given):
    return next(filter(partial(more, *given), count(1)))

def last_below(memory, kept):
    return sum(1 for _ in takewhile(lambda total: total <= memory, kept)) - 1

# One more word adds 3d + 2n + 1 numbers to what the formula keeps of a head.
longest_with_formula = lambda memory, h, d, b, size: last_below(
    memory, accumulate((b * h * size * (3 * d + 2 * n + 1) for n in count()), initial=0))
longest_with_fused = lambda memory, h, d, b, size: last_below(
    memory, count(0, b * h * (4 * d * size + max(4, size))))
""",
    "PyTorch's own counter on the device meta": PREDICTED
    + """
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

def counted(program, *shapes):
    given = [torch.empty(shape, device="meta") for shape in shapes]
    with FlopCounterMode(display=False) as counter:
        program(*given)
    return counter.get_total_flops()

def product(one, other):
    return one @ other

def projections(m, k, v, bias=False):
    return nn.ModuleList(nn.Linear(size, m, bias, device="meta") for size in (m, k, v, m))

def layer_parameters(m, k, v, bias):
    return nn.utils.parameters_to_vector(projections(m, k, v, bias).parameters()).numel()

def projection_flops(m, i, j, k, v, b):
    def forward(*given):
        for layer, x in zip(projections(m, k, v), given):
            layer(x)
    return counted(forward, (b, i, m), (b, j, k), (b, j, v), (b, i, m))

def core_flops(m, h, i, j, b):
    d = m // h
    scores = counted(product, (b, h, i, d), (b, h, d, j))
    return scores + counted(product, (b, h, i, j), (b, h, j, d))

def weights_bytes(h, i, j, b, size):
    return torch.empty(b, h, i, j, size, dtype=torch.uint8, device="meta").nbytes

def causal_core_flops(m, h, i, j, b):
    # the query in row r sees j - i + 1 + r keys
    return sum(core_flops(m, h, 1, seen, b) for seen in range(j - i + 1, j + 1))

def crossing(m, hidden, causal):
    linear = torch.tensor([m, m, m, m, hidden, hidden]).sum()
    n = torch.arange(1, 10_000, dtype=torch.float64)
    core = n.cumsum(0) if causal else n.square()
    return torch.nonzero(2 * core > n * linear)[0] + 1

def longest_with_formula(memory, h, d, b, size):
    n = 0
    while b * h * size * (3 * (n + 1) * d + (n + 1) ** 2) <= memory:
        n = n + 1
    return torch.tensor([[n]])

def longest_with_fused(memory, h, d, b, size):
    return torch.div(memory, b * h * (4 * d * size + max(4, size)), rounding_mode="floor")
""",
    "fractions, recursion and remembered results": """
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor

half = Fraction(1, 2)
doubled_length = (Fraction(1), Fraction(2), Fraction(4), Fraction(4))
doubled_heads, doubled_keys = [4, 4, 2, 2], [1, 1 + half, 2, 2]
only_first, only_second, only_third = (6, 12, 12, 1), (12, 12, 12, 4), (6, 6, 12, 1)
statements = ["T ", " F", "f", "t", "F", "T"]

def layer_parameters(m, k, v, with_bias):
    if with_bias:
        return layer_parameters(m, k, v, False) + 4 * m
    return of_all([m, k, v, m], m)

def of_all(sizes, m):
    return sizes[0] * m + of_all(sizes[1:], m) if sizes else 0

def projection_flops(m, i, j, k, v, items):
    if items > 1:
        return items * projection_flops(m, i, j, k, v, 1)
    return 2 * (of_all([i * m, j * k, j * v, i * m], m))

@lru_cache(maxsize=None)
def pairs(i, j):
    return pairs(i - 1, j - 1) + j if i else 0

def core_flops(m, h, i, j, items):
    return Fraction(m, h) * h * i * j * items * 4

def weights_bytes(h, i, j, items, size):
    return half * 2 * h * i * j * items * size

def causal_core_flops(m, h, i, j, items):
    return core_flops(m, h, i, j, items) * Fraction(pairs(i, j), i * j)

def crossing(m, hidden, causal):
    equal = Fraction(4 * m + 2 * hidden, 2)
    return floor(2 * equal - 1 if causal else equal) + 1

def longest_with_formula(memory, h, d, items, size, low=0, high=2**20):
    if high - low == 1:
        return low
    middle = (low + high) // 2
    if items * h * size * middle * (3 * d + middle) <= memory:
        return longest_with_formula(memory, h, d, items, size, middle, high)
    return longest_with_formula(memory, h, d, items, size, low, middle)

def longest_with_fused(memory, h, d, items, size):
    return ceil(Fraction(memory + 1, items * h * (4 * d * size + max(4, size)))) - 1
""",
    "shapes of tensors, bytes as torch counts them": PREDICTED
    + """
import bisect
import math

import torch

def elements(*shapes):
    return sum(math.prod(shape) for shape in shapes)

def layer_parameters(d_model, key_size, value_size, proj_bias=True):
    shapes = {
        "q_proj.weight": (d_model, d_model),
        "k_proj.weight": (d_model, key_size),
        "v_proj.weight": (d_model, value_size),
        "out_proj.weight": (d_model, d_model),
    }
    if proj_bias:
        shapes.update((name.replace("weight", "bias"), (d_model,)) for name in [*shapes])
    return elements(*shapes.values())

def einsum_flops(letters, **sizes):
    # a multiply-add for each value of all letters
    return 2 * math.prod(sizes[letter] for letter in set(letters) - set(" ,->"))

def projection_flops(d_model, i, j, key_size, value_size, batch):
    flops = 0
    for positions, features in ((i, d_model), (j, key_size), (j, value_size), (i, d_model)):
        flops += einsum_flops("b n f, f m -> b n m", b=batch, n=positions, f=features, m=d_model)
    return flops

def core_flops(d_model, num_heads, i, j, batch):
    sizes = {"b": batch, "h": num_heads, "i": i, "j": j, "d": d_model // num_heads}
    flops = einsum_flops("b h i d, b h j d -> b h i j", **sizes)
    flops += einsum_flops("b h i j, b h j d -> b h i d", **sizes)
    return flops

def weights_bytes(num_heads, i, j, batch, itemsize):
    weights = torch.zeros(1, dtype=getattr(torch, f"float{8 * itemsize}"))
    weights = weights.expand(batch, num_heads, i, j)
    return weights.element_size() * weights.nelement()

def causal_core_flops(d_model, num_heads, i, j, batch):
    rows, columns = torch.tril_indices(i, j, offset=j - i)
    return core_flops(d_model, num_heads, 1, len(rows), batch)

def crossing(d_model, hidden, causal):
    def gain(n):
        seen = [n] if not causal else [(n + 1) / 2]
        return 2 * seen[0] - 4 * d_model - 2 * hidden
    return bisect.bisect_right(range(100_000), 0, key=gain)

def kept_by_formula(b, h, n, d):
    return {"q": (b, h, n, d), "k": (b, h, n, d), "v": (b, h, n, d), "weights": (b, h, n, n)}

def kept_by_kernel(b, h, n, d):
    kept = {name: (b, h, n, d) for name in ["q", "k", "v", "output"]}
    return kept | {"logsumexp": (b, h, n)}

def longest_with_formula(memory, num_heads, d_head, batch, itemsize):
    def kept(n):
        return itemsize * elements(*kept_by_formula(batch, num_heads, n, d_head).values())
    return bisect.bisect_right(range(10_000), memory, key=kept) - 1

def longest_with_fused(memory, num_heads, d_head, batch, itemsize):
    def kept(n):
        return sum(
            elements(shape) * (max(itemsize, 4) if name == "logsumexp" else itemsize)
            for name, shape in kept_by_kernel(batch, num_heads, n, d_head).items())
    for n in range(10_000, -1, -1):
        if kept(n) <= memory:
            return n
""",
}


def _doubled(length="1, 2, 4, 4", heads="4, 4, 2, 2", keys="1, 1.5, 2, 2"):
    return f"doubled_length, doubled_heads, doubled_keys = [{length}], [{heads}], [{keys}]"


def _layer(
    parameters="d_model * (2 * d_model + key_size + value_size + 4 * proj_bias)",
    flops="2 * batch * d_model * (2 * i * d_model + j * (key_size + value_size))",
):
    return f"""
def layer_parameters(d_model, key_size, value_size, proj_bias):
    return {parameters}

def projection_flops(d_model, i, j, key_size, value_size, batch):
    return {flops}
"""


def _core(
    core="4 * batch * i * j * d_model",
    weights="batch * num_heads * i * j * itemsize",
    causal="4 * batch * d_model * sum(range(j - i + 1, j + 1))",
):
    return f"""
def core_flops(d_model, num_heads, i, j, batch):
    return {core}

def weights_bytes(num_heads, i, j, batch, itemsize):
    return {weights}

def causal_core_flops(d_model, num_heads, i, j, batch):
    return {causal}
"""


def _crossing(body):
    return f"def crossing(d_model, hidden, causal):\n    {body}"


def _search(core="2 * n * n", causal="n * (n + 1)", linear="4 * m + 2 * hidden", more=">"):
    """The first length at which the core, in units of m, does more than the rest, in units of m."""
    return _crossing(
        f"m = d_model; return next(n for n in range(1, 9999) if "
        f"(({causal}) if causal else ({core})) {more} n * ({linear}))"
    )


def _longest(formula="s * (3 * n * d + n * n)", fused="4 * n * d * s + n * max(s, 4)", more="<="):
    return f"""
def longest_with_formula(memory, h, d, b, s):
    return max(n for n in range(9999) if b * h * ({formula}) {more} memory)

def longest_with_fused(memory, h, d, b, s):
    return max(n for n in range(9999) if b * h * ({fused}) {more} memory)
"""


def _broken(first="[3, 5, 5, 1]", second="[6, 6, 6, 2]", third="[3, 3, 5, 1]", statements="TFFTFT"):
    return f"""
only_first, only_second, only_third = {first}, {second}, {third}
statements = list("{statements}")
"""


WRONG = [
    # Question 1
    (
        "doubling",
        "linear core",
        _doubled(length="1, 2, 2, 4"),
        2,
        "there are twice as many of both",
    ),
    ("doubling", "linear weights", _doubled(length="1, 2, 4, 2"), 2, "both sides double"),
    ("doubling", "quadratic projections", _doubled(length="1, 4, 4, 4"), 2, "linear in n"),
    (
        "doubling",
        "parameters by length",
        _doubled(length="2, 2, 4, 4"),
        2,
        "sequence of any length",
    ),
    ("doubling", "d_model fixed", _doubled(heads="1, 1, 1, 2"), 2, "so d_model doubles"),
    ("doubling", "linear matrices", _doubled(heads="2, 2, 2, 2"), 2, "m × m parameters"),
    ("doubling", "core quadratic in m", _doubled(heads="4, 4, 4, 2"), 2, "linear in m"),
    ("doubling", "weights of one head", _doubled(heads="4, 4, 2, 1"), 2, "Every head has weights"),
    (
        "doubling",
        "keys cost nothing",
        _doubled(keys="1, 1, 2, 2"),
        2,
        "Keys and values are projected",
    ),
    (
        "doubling",
        "all projections double",
        _doubled(keys="1, 2, 2, 2"),
        2,
        "the i positions, which stay",
    ),
    ("doubling", "n squared for keys", _doubled(keys="1, 1.5, 4, 4"), 2, "i · j, not n²"),
    ("doubling", "five numbers", _doubled(keys="1, 1.5, 2, 2, 2"), 2, "should hold 4 numbers"),
    (
        "doubling",
        "all as for length",
        _doubled(heads="1, 2, 4, 4", keys="1, 2, 4, 4"),
        1,
        "d_model doubles",
    ),
    # Question 2
    (
        "layer-account",
        "sizes of inputs ignored",
        _layer("4 * d_model**2 + 4 * d_model * proj_bias"),
        2,
        "take key_size and value_size",
    ),
    (
        "layer-account",
        "no output projection",
        _layer("d_model * (d_model + key_size + value_size + 4 * proj_bias)"),
        2,
        "output projection has parameters",
    ),
    (
        "layer-account",
        "three biases",
        _layer("d_model * (2 * d_model + key_size + value_size + 3 * proj_bias)"),
        2,
        "output projection has a bias too",
    ),
    (
        "layer-account",
        "biases always",
        _layer("d_model * (2 * d_model + key_size + value_size + 4)"),
        1,
        "With proj_bias=False there are no biases",
    ),
    (
        "layer-account",
        "biases never",
        _layer("d_model * (2 * d_model + key_size + value_size)"),
        2,
        "proj_bias changes nothing",
    ),
    (
        "layer-account",
        "biases of what goes in",
        _layer(
            "2 * d_model * (d_model + proj_bias) + (key_size + value_size) * (d_model + proj_bias)"
        ),
        2,
        "not as go in",
    ),
    (
        "layer-account",
        "one bias in all",
        _layer("d_model * (2 * d_model + key_size + value_size + proj_bias)"),
        2,
        "a bias of its own",
    ),
    (
        "layer-account",
        "square matrices",
        _layer("2 * d_model**2 + key_size**2 + value_size**2 + 4 * d_model * proj_bias"),
        2,
        "features in times features out",
    ),
    (
        "layer-account",
        "bytes of parameters",
        _layer("4 * d_model * (2 * d_model + key_size + value_size + 4 * proj_bias)"),
        1,
        "not their bytes",
    ),
    (
        "layer-account",
        "multiply-adds",
        _layer(flops="batch * d_model * (2 * i * d_model + j * (key_size + value_size))"),
        2,
        "two FLOPs",
    ),
    (
        "layer-account",
        "no batch",
        _layer(flops="2 * d_model * (2 * i * d_model + j * (key_size + value_size))"),
        2,
        "every item of the batch",
    ),
    (
        "layer-account",
        "keys at query positions",
        _layer(flops="2 * batch * i * d_model * (2 * d_model + key_size + value_size)"),
        2,
        "for the j positions",
    ),
    (
        "layer-account",
        "output at key positions",
        _layer(flops="2 * batch * d_model * (i * d_model + j * (d_model + key_size + value_size))"),
        2,
        "the output too",
    ),
    (
        "layer-account",
        "FLOPs without output",
        _layer(flops="2 * batch * d_model * (i * d_model + j * (key_size + value_size))"),
        2,
        "output projection is a product too",
    ),
    (
        "layer-account",
        "values of key_size",
        _layer(flops="4 * batch * d_model * (i * d_model + j * key_size)"),
        2,
        "value_size is not key_size",
    ),
    ("layer-account", "a list", _layer(flops="[1, 2]"), 2, "should give a number"),
    # Question 3
    (
        "core-account",
        "multiply-adds",
        _core(core="2 * batch * i * j * d_model"),
        3,
        "the 2 FLOPs of a multiply-add",
    ),
    (
        "core-account",
        "every head has all features",
        _core(core="4 * batch * num_heads * i * j * d_model"),
        3,
        "heads cancel",
    ),
    (
        "core-account",
        "one head",
        _core(core="4 * batch * i * j * (d_model // num_heads)"),
        3,
        "num_heads times what one of them costs",
    ),
    (
        "core-account",
        "queries squared",
        _core(core="4 * batch * i * i * d_model"),
        3,
        "Each query meets each key",
    ),
    ("core-account", "one item", _core(core="4 * i * j * d_model"), 3, "Every item of the batch"),
    (
        "core-account",
        "with softmax",
        _core(core="4 * batch * i * j * d_model + 5 * batch * num_heads * i * j"),
        3,
        "no softmax",
    ),
    (
        "core-account",
        "a number for each weight",
        _core(weights="batch * num_heads * i * j"),
        3,
        "each takes itemsize bytes",
    ),
    (
        "core-account",
        "weights of one head",
        _core(weights="batch * i * j * itemsize"),
        3,
        "Every head has weights of its own",
    ),
    (
        "core-account",
        "always float32",
        _core(weights="batch * num_heads * i * j * 4"),
        3,
        "need not be 4",
    ),
    (
        "core-account",
        "scores as well",
        _core(weights="2 * batch * num_heads * i * j * itemsize"),
        3,
        "without the scores",
    ),
    (
        "core-account",
        "mask saves nothing",
        _core(causal="4 * batch * i * j * d_model"),
        2,
        "These are all pairs",
    ),
    (
        "core-account",
        "first beside first",
        _core(causal="4 * batch * d_model * sum(range(1, i + 1))"),
        2,
        "The first query stands beside the first key here",
    ),
    ("core-account", "half", _core(causal="2 * batch * d_model * i * j"), 2, "Half of all pairs"),
    (
        "core-account",
        "no query sees itself",
        _core(causal="4 * batch * d_model * sum(range(j - i, j))"),
        2,
        "A query sees itself",
    ),
    (
        "core-account",
        "hidden pairs",
        _core(causal="4 * batch * d_model * i * (i - 1) // 2"),
        2,
        "pairs that are hidden",
    ),
    (
        "core-account",
        "one key too many",
        _core(causal="4 * batch * d_model * sum(range(j - i + 2, j + 2))"),
        2,
        "one too many",
    ),
    (
        "core-account",
        "triangle of the keys",
        _core(causal="2 * batch * d_model * j * (j + 1)"),
        2,
        "There are i queries, not j",
    ),
    # Question 4
    ("crossing", "equal counts as more", _search(more=">="), 0, "both do the same"),
    (
        "crossing",
        "scores alone",
        _search(core="n * n", causal="n * (n + 1) / 2"),
        0,
        "two products",
    ),
    (
        "crossing",
        "two units",
        _search(core="4 * n * n", causal="2 * n * (n + 1)"),
        0,
        "the same unit",
    ),
    (
        "crossing",
        "three projections",
        _search(linear="3 * m + 2 * hidden"),
        0,
        "do not forget the output",
    ),
    ("crossing", "always 6m", _search(linear="12 * m"), 0, "0 where there is no feed-forward"),
    ("crossing", "no feed-forward network", _search(linear="4 * m"), 2, "hidden changes nothing"),
    ("crossing", "one layer of two", _search(linear="4 * m + hidden"), 2, "has two linear layers"),
    (
        "crossing",
        "FLOPs of one side",
        _search(linear="4 * m + 4 * hidden"),
        2,
        "FLOPs would be twice that",
    ),
    (
        "crossing",
        "feed-forward network alone",
        _search(linear="2 * hidden if hidden else 4 * m"),
        2,
        "The projections are there as well",
    ),
    ("crossing", "mask ignored", _search(causal="2 * n * n"), 2, "causal changes nothing"),
    ("crossing", "half of the square", _search(causal="n * n"), 2, "not n² / 2"),
    ("crossing", "no query sees itself", _search(causal="n * (n - 1)"), 2, "not n (n - 1) / 2"),
    ("crossing", "mask makes more", _search(causal="4 * n * n"), 2, "later, not earlier"),
    (
        "crossing",
        "a fraction",
        _crossing("return 2 * d_model + hidden + 0.5 if not causal else 4 * d_model"),
        1,
        "should be",
    ),
    ("crossing", "no return", _crossing("n = 2 * d_model + 1"), 0, "as without a return"),
    # Question 5
    ("longest", "weights alone", _longest(formula="s * n * n"), 2, "Query, key and value are kept"),
    (
        "longest",
        "scores and weights",
        _longest(formula="s * (3 * n * d + 2 * n * n)"),
        2,
        "The scores are not kept",
    ),
    (
        "longest",
        "output of the formula",
        _longest(formula="s * (4 * n * d + n * n)"),
        2,
        "output is no factor",
    ),
    (
        "longest",
        "no heads",
        _longest(
            formula="s * (3 * n * d + n * n) / h", fused="(4 * n * d * s + n * max(s, 4)) / h"
        ),
        0,
        "Every head keeps",
    ),
    (
        "longest",
        "no batch",
        _longest(
            formula="s * (3 * n * d + n * n) / b", fused="(4 * n * d * s + n * max(s, 4)) / b"
        ),
        0,
        "Every item of the batch keeps",
    ),
    ("longest", "numbers for bytes", _longest(formula="3 * n * d + n * n"), 2, "itemsize bytes"),
    ("longest", "bits", _longest(formula="8 * s * (3 * n * d + n * n)"), 2, "not bits"),
    ("longest", "exactly full is too full", _longest(more="<"), 0, "to its last byte"),
    (
        "longest",
        "rounded up",
        _longest()
        + "\ndown = longest_with_formula"
        + "\nlongest_with_formula = lambda memory, *a: down(memory - 1, *a) + 1",
        2,
        "round down",
    ),
    ("longest", "no logsumexp", _longest(fused="4 * n * d * s"), 1, "one number a query"),
    (
        "longest",
        "no output",
        _longest(fused="3 * n * d * s + n * max(s, 4)"),
        1,
        "output is kept as well",
    ),
    (
        "longest",
        "weights in the kernel",
        _longest(fused="4 * n * d * s + n * max(s, 4) + s * n * n"),
        1,
        "keeps no weights",
    ),
    (
        "longest",
        "logsumexp of each feature",
        _longest(fused="5 * n * d * s"),
        1,
        "not d_head of them",
    ),
    (
        "longest",
        "formula for both",
        _longest(fused="s * (3 * n * d + n * n)"),
        1,
        "for the formula",
    ),
    ("longest", "half logsumexp", _longest(fused="4 * n * d * s + n * s"), 2, "stays in float32"),
    ("longest", "always float32", _longest(fused="4 * (4 * n * d + n)"), 2, "here 2"),
    # Question 6
    (
        "break-and-explain",
        "all are wrong",
        _broken(first="[3, 5, 4, 2]"),
        3,
        "another is wrong too",
    ),
    (
        "break-and-explain",
        "equal lengths",
        _broken(first="[5, 5, 5, 1]"),
        3,
        "where i and j differ",
    ),
    (
        "break-and-explain",
        "second shows too",
        _broken(first="[3, 6, 6, 2]"),
        3,
        "all features to every head",
    ),
    (
        "break-and-explain",
        "third shows too",
        _broken(first="[3, 5, 4, 1]"),
        3,
        "where j and d_model differ",
    ),
    ("break-and-explain", "one head", _broken(second="[6, 6, 6, 1]"), 3, "from two heads on"),
    (
        "break-and-explain",
        "first shows too",
        _broken(second="[4, 6, 6, 2]"),
        3,
        "where i and j differ",
    ),
    ("break-and-explain", "no such layer", _broken(second="[5, 5, 5, 2]"), 3, "do not divide"),
    ("break-and-explain", "half a word", _broken(third="[2.5, 2.5, 5, 1]"), 3, "whole numbers"),
    ("break-and-explain", "no words", _broken(third="[0, 0, 5, 1]"), 3, "whole numbers from 1 on"),
    ("break-and-explain", "square", _broken(third="[5, 5, 5, 1]"), 3, "for that of value features"),
    ("break-and-explain", "mask saves work", _broken(statements="TTFTFT"), 3, "masks afterwards"),
    (
        "break-and-explain",
        "linear work",
        _broken(statements="TFTTFT"),
        3,
        "its memory grows with n",
    ),
    (
        "break-and-explain",
        "counter believed",
        _broken(statements="TFFTTT"),
        3,
        "out of sight of the counter",
    ),
    (
        "break-and-explain",
        "heads cost",
        _broken(statements="FFFTFT"),
        3,
        "heads share the features",
    ),
    ("break-and-explain", "five letters", _broken(statements="TFFTF"), 3, "6 letters are expected"),
]


OF_CORE = "def core_flops(d_model, num_heads, i, j, batch):\n    return "
BORROWED = [
    ("core-account", "the package's layer",
     OF_CORE + "cost.multi_head_cost(d_model, num_heads, i, j, batch=batch).total.flops"),
    ("core-account", "the package's core",
     OF_CORE + "cost.attention_cost(i=i, j=j, d=d_model, e=d_model, b=batch).total.flops"),
]  # fmt: skip
