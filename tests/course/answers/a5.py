"""Answers to assignment 5: right ones in several styles, and wrong ones with what they get.

RIGHT    what it is: the cells of a whole notebook, as one text
WRONG    question, what is wrong, the cell, the points it gets, words of a hint that names it
"""

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
