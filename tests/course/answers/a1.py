"""Answers to assignment 1: right ones in several styles, and wrong ones with what they get.

RIGHT    what it is: the cells of a whole notebook, as one text, cut at `# %%`
WRONG    question, what is wrong, the cells, the points they get, words of a hint that names it
BORROWED question, what it is, the cells: answers that are not one's own
BEFORE   how many of the source's cells come before: an answer brings what it needs
"""

BEFORE = 0

GIVEN = """
import math
import torch
import mini_attention
"""

PREDICTED = """
my_scores = [2, 0, 2, 1, 0]
my_shares = [4, 1, 4, 2, 1]
my_output = [2 / 3, 1 / 6, 1.25]
"""
FOUND = """
shows_scale = (torch.tensor([[2.0, 0, 0, 0]]), torch.eye(4)[:2], torch.tensor([[1.0], [0.0]]))
hides_scale = (
    torch.tensor([[1.0, 0], [2, 0]]), torch.tensor([[1.0, 0], [1, 1], [1, 2]]), torch.eye(3))
shows_twice = (torch.tensor([[99.0]]), torch.eye(11)[:, :1], torch.eye(11)[:, :1])
"""
CHOSEN = 'my_choices = ["F", "A", "C", "B", "A", "F", "D", "E", "A", "F"]\n'

RIGHT = {
    "as in the chapter": GIVEN
    + PREDICTED
    + FOUND
    + CHOSEN
    + """
def my_softmax(scores):
    powers = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    return powers / powers.sum(dim=-1, keepdim=True)

def my_attention(query, key, value):
    scores = query @ key.T / math.sqrt(query.shape[-1])
    return my_softmax(scores) @ value
""",
    "loops over numbers": GIVEN
    + FOUND
    + """
my_scores = torch.tensor([2.0, 0, 2, 1, 0])
my_shares = torch.tensor([4, 1, 4, 2, 1])
my_output = torch.tensor([8, 2, 15]) / 12
my_choices = "FACBAFDEAF"

def my_softmax(table):
    if table.dim() > 1:
        return torch.stack([my_softmax(row) for row in table])
    largest = max(table)
    powers = [math.exp(number - largest) for number in table]
    return torch.tensor([power / sum(powers) for power in powers])

def my_attention(questions, words, features):
    answers = []
    for q in questions.tolist():
        scores = [sum(a * b for a, b in zip(q, k)) / len(q) ** 0.5 for k in words.tolist()]
        powers = [math.exp(score - max(scores)) for score in scores]
        answers.append(sum(p / sum(powers) * v for p, v in zip(powers, features)))
    return torch.stack(answers)
""",
    "einsum, and a logarithm of the sum": GIVEN
    + """
my_scores = (2.0, 0.0, 2.0, 1.0, 0.0)
my_shares = (4.0, 1.0, 4.0, 2.0, 1.0)
my_output = [0.67, 0.17, 1.25]
my_choices = ("f", "a", "c", "b", "a", "f", "d", "e", "a", "f")
shows_scale = [[[2, 0]], [[1, 0], [0, 0]], [[2], [-2]]]
hides_scale = [[[0, 3], [0, -1]], [[1, 4], [5, 4], [9, 4]], [[1, 0], [0, 1], [1, 1]]]
shows_twice = [[[60]], [[1]] + [[0]] * 5, [[1]] + [[0]] * 5]

def my_softmax(s):
    return torch.exp(s - torch.logsumexp(s, dim=-1, keepdim=True))

def my_attention(Q, K, V):
    from einops import einsum
    weights = torch.softmax(einsum(Q, K, "i d, j d -> i j") * Q.size(1) ** -0.5, dim=1)
    return einsum(weights, V, "i j, j e -> i e")
""",
    "float64, whatever comes in": GIVEN
    + PREDICTED
    + CHOSEN
    + """
def my_softmax(scores):
    scores = scores.double()
    powers = (scores - scores.max(-1, keepdim=True).values).exp()
    return powers / powers.sum(-1)[..., None]

def my_attention(query, key, value):
    query, key, value = (t.to(torch.float64) for t in (query, key, value))
    return torch.softmax(query @ key.mT / query.shape[-1] ** 0.5, dim=-1) @ value

# Both look up hard: one key is so far ahead that it takes all.
hides_scale = (
    100.0 * torch.eye(2, 3, dtype=torch.float64), 100 * torch.eye(3, dtype=torch.float64),
    torch.eye(3, dtype=torch.float64))
shows_scale = (torch.full((1, 2), 2.0), torch.tensor([[0.5, 0.0], [0.0, -0.5]]), 2 * torch.eye(2))
shows_twice = (1000 * torch.eye(7), torch.eye(7), torch.eye(7))
""",
    "float32, transposed, with steps of its own": GIVEN
    + PREDICTED
    + FOUND
    + CHOSEN
    + """
def largest_of(rows):
    return rows.transpose(-1, -2).amax(-2).unsqueeze(-1)

def my_softmax(scores):
    scores = scores.float() - largest_of(scores.float())
    powers = math.e ** scores.mT
    return (powers / powers.sum(-2, keepdim=True)).mT

def my_attention(q, k, v):
    scores = (k @ q.T / math.sqrt(k.shape[1])).T
    return (v.T @ my_softmax(scores).to(v.dtype).T).T
""",
    "numpy and back": GIVEN
    + """
import numpy as np

powers = 2 ** np.array([2, 0, 2, 1, 0])
my_scores, my_shares = np.log2(powers), powers
my_output = powers @ np.array([[1, 0, 2], [0, 1, 2], [1, 0, 1], [0, 0, 0], [0, 1, 1]]) / 12
my_choices = tuple("FACBAFDEAF")
shows_scale = np.ones((1, 4)), np.ones((2, 4)) * [[1], [0]], np.array([[1.5], [-1.5]])
hides_scale = np.array([[0.0, 1], [0, 2]]), np.array([[0.0, 3], [1, 3], [2, 3]]), np.eye(3)
shows_twice = [1e6 * np.eye(13), np.eye(13), np.eye(13)]

def my_softmax(scores):
    scores = scores.numpy()
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return torch.from_numpy(powers / powers.sum(axis=-1, keepdims=True))

def my_attention(query, key, value):
    query, key, value = (np.asarray(t) for t in (query, key, value))
    scores = np.inner(query, key) / np.sqrt(query.shape[1])
    powers = np.exp(scores - np.max(scores, axis=1)[:, np.newaxis])
    return torch.tensor(np.dot(powers, value) / powers.sum(1, keepdims=True))
""",
    "one key after the other, with reduce, and fractions": GIVEN
    + FOUND
    + CHOSEN
    + """
from fractions import Fraction
from functools import reduce

my_scores = [Fraction(product, 2) for product in (4, 0, 4, 2, 0)]
my_shares = [2 ** int(score) for score in my_scores]
my_output = [Fraction(sum_of, sum(my_shares)) for sum_of in (8, 2, 15)]

def one_more(state, score):
    top, total = state
    higher = torch.maximum(top, score)
    return higher, total * torch.exp(top - higher) + torch.exp(score - higher)

def my_softmax(scores):
    first, *others = scores.unbind(-1)
    top, total = reduce(one_more, others, (first, torch.ones_like(first)))
    return torch.stack([torch.exp(s - top) / total for s in scores.unbind(-1)], -1)

def my_attention(query, key, value):
    root = query.shape[1] ** 0.5
    weights = my_softmax(torch.stack([query @ k / root for k in key]).T)
    return reduce(torch.add, [torch.outer(w, v) for w, v in zip(weights.T, value)])
""",
    "classes, lambdas and comments in Chinese, in several cells": GIVEN
    + """
# 五个词的分数、份额和输出
my_scores = [积 / 2 for 积 in [4, 0, 4, 2, 0]]
my_shares = [2**分 for 分 in my_scores]
总和 = sum(my_shares)
my_output = [8 / 总和, 2 / 总和, 15 / 总和]
my_choices = [*"FACBA", *"fdeaf"]
# %%
class 软最大:
    '''先减去每一行的最大值，再取指数。'''

    def __init__(self, 轴):
        self.轴 = 轴

    def __call__(self, 分数):
        差 = 分数 - 分数.max(dim=self.轴, keepdim=True)[0]
        指数 = torch.exp(差)
        return 指数.div(指数.sum(dim=self.轴, keepdim=True))

my_softmax = 软最大(轴=-1)
# %%
my_attention = lambda 问, 键, 值: my_softmax(问.matmul(键.t()) / math.sqrt(键.shape[1])).matmul(值)
# %%
矩阵 = lambda *行: torch.tensor(行, dtype=torch.float32)
shows_scale = 矩阵([1, 1, 1, 1]), 矩阵([1, 1, 1, 1], [0, 0, 0, 0]), 矩阵([1], [-1])
hides_scale = (
    矩阵([1, -1], [2, -2]),
    矩阵([1, 1], [2, 2], [3, 3], [4, 4]),
    矩阵([1], [3], [5], [7]),
)
shows_twice = 矩阵([88]), 矩阵(*[[1]] + [[0]] * 20), 矩阵(*[[0]] + [[1]] * 20)
""",
    "views and sums, rows of a flat matrix": GIVEN
    + PREDICTED
    + FOUND
    + CHOSEN
    + """
def my_softmax(scores):
    rows = scores.reshape(-1, scores.shape[-1])
    weights = torch.empty_like(rows)
    for n in range(rows.shape[0]):
        weights[n] = rows[n]
        weights[n] -= rows[n].max()
        weights[n].exp_()
        weights[n] /= weights[n].sum()
    return weights.view(scores.shape)

def my_attention(query, key, value):
    (i, d), (j, e) = query.shape, value.shape
    scores = (query.view(i, 1, d) * key.view(1, j, d)).sum(2).div(d**0.5)
    return (my_softmax(scores).view(i, j, 1) * value.view(1, j, e)).sum(dim=1)
""",
    "a module without parameters, powers of 2": GIVEN
    + PREDICTED
    + FOUND
    + CHOSEN
    + """
class Softmax(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("points", torch.tensor(math.log2(math.e), dtype=torch.float64))

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        points = (scores - scores.amax(-1, True)) * self.points
        return torch.nn.functional.normalize(torch.exp2(points), p=1, dim=-1)

my_softmax = Softmax()

class Attention(torch.nn.Module):
    def forward(self, query, key, value):
        scores = torch.nn.functional.linear(query, key) / math.sqrt(query.size(-1))
        return torch.mm(my_softmax(scores).to(value.dtype), value)

my_attention = Attention().forward
""",
    "differences of all pairs of keys, without a gradient": GIVEN
    + PREDICTED
    + FOUND
    + CHOSEN
    + """
@torch.no_grad()
def my_softmax(scores):
    # 1 / (sum over k of e^(s_k - s_j)) needs no largest score
    return torch.exp(scores[..., None, :] - scores[..., :, None]).sum(-1).reciprocal()

@torch.inference_mode()
def my_attention(*given):
    query, key, value = given
    scores = torch.tensordot(query, key, dims=([1], [1])) / math.sqrt(query.shape[1])
    return torch.tensordot(my_softmax(scores), value, dims=1)
""",
    "a row at a time with vmap, lists in each other": GIVEN
    + """
my_scores, my_shares, my_output = [2, 0, 2, 1, 0], [4, 1, 4, 2, 1], [0.6667, 0.1667, 1.25]
my_choices = " ".join("FACBAFDEAF").split()
shows_scale = [[[1, 1, 1, 1]], [[1, 1, 1, 1], [0, 0, 0, 0]], [[2, 0], [-2, 0]]]
hides_scale = [[[0, 0, 1]] * 2, [[n, -n, 7] for n in range(5)], [[n, 1] for n in range(5)]]
shows_twice = [[[1000]], [[n == 3] for n in range(9)], [[n == 3] for n in range(9)]]

def of_row(row):
    powers = (row - row.max()).exp()
    return powers / powers.sum()

def my_softmax(scores):
    of_rows = of_row
    for axis in range(scores.dim() - 1):
        of_rows = torch.vmap(of_rows)
    return of_rows(scores)

def answer_to(q, key, value):
    return of_row(key @ q / len(q) ** 0.5) @ value

my_attention = torch.vmap(answer_to, in_dims=(0, None, None))
""",
}

# What each answer to `softmax` does with the scores, after `def my_softmax(scores):`
_SOFTMAX = [
    ("over the queries", "return my_exp(scores, -2)", 0, "runs over the queries"),
    ("over axis 1", "return my_exp(scores, 1)", 3, "runs over axis 1"),
    ("over all numbers", "p = (scores - scores.max()).exp(); return p / p.sum()", 0,
     "sum of all numbers"),
    ("no shift", "p = scores.exp(); return p / p.sum(-1, keepdim=True)", 3,
     "subtract the largest score"),
    ("one largest score for all rows",
     "p = (scores - scores.max()).exp(); return p / p.sum(-1, keepdim=True)", 4,
     "its own largest score"),
    ("one for all rows, and a small number against 0 / 0",
     "p = (scores - scores.max()).exp(); return p / (p.sum(-1, keepdim=True) + 1e-9)", 4,
     "its own largest score"),
    ("powers without a sum", "return (scores - scores.amax(-1, keepdim=True)).exp()", 0,
     "not by the sum"),
    ("plain powers", "return scores.exp()", 0, "divide each row by its sum"),
    ("powers of 2", "return my_exp(scores * math.log(2), -1)", 0, "powers of 2"),
    ("the logarithm", "return my_exp(scores, -1).log()", 0, "logarithm of the softmax"),
    ("twice", "return my_exp(my_exp(scores, -1), -1)", 0, "applied twice"),
    ("no powers", "return scores / scores.sum(-1, keepdim=True)", 0, "without exp"),
    ("signs turned", "return my_exp(-scores, -1)", 0, "signs are turned"),
    ("minus the mean",
     "p = (scores - scores.mean()).exp(); return p / p.sum(-1, keepdim=True)", 4,
     "its own largest score"),
    ("rows of a matrix only",
     "p = (scores - scores.amax(1)[:, None]).exp(); return p / p.sum(1)[:, None]", 3,
     "runs over axis 1"),
    ("sums without keepdim",
     "p = (scores - scores.amax(-1, keepdim=True)).exp(); return p / p.sum(-1)", 0,
     "size of tensor"),
    ("clamped", "return my_exp(scores.clamp(-50, 50), -1)", 3, "cut off"),
    ("written into the scores",
     "scores -= scores.amax(-1, keepdim=True); return my_exp(scores, -1)", 4, "left as they are"),
    ("nothing returned", "my_exp(scores, -1)", 0, "got NoneType"),
]  # fmt: skip
_EXP = """
def my_exp(scores, dim):
    powers = torch.exp(scores - scores.amax(dim=dim, keepdim=True))
    return powers / powers.sum(dim=dim, keepdim=True)

def my_softmax(scores):
    """

# After `def my_attention(query, key, value):`
_ATTENTION = [
    ("no scale", "return softmax(query @ key.T) @ value", 2, "not divided by the square root"),
    ("scaled by d", "return softmax(query @ key.T / query.shape[-1]) @ value", 2,
     "scale is applied twice"),
    ("scaled up", "return softmax(query @ key.T * query.shape[-1] ** 0.5) @ value", 2,
     "multiplied by the square root"),
    ("scaled by the number of keys", "return softmax(query @ key.T / len(key) ** 0.5) @ value", 1,
     "number of keys"),
    ("scaled by the features of the values",
     "return softmax(query @ key.T / value.shape[-1] ** 0.5) @ value", 1,
     "the features of the values, not by"),
    ("scaled after the softmax",
     "return softmax(query @ key.T) / query.shape[-1] ** 0.5 @ value", 1, "after the softmax"),
    ("over the queries",
     "return softmax((query @ key.T / query.shape[-1] ** 0.5).T).T @ value", 0,
     "runs over the queries"),
    ("keys ask",
     "return softmax(key @ query.T / query.shape[-1] ** 0.5) @ value", 0, "swapped"),
    ("weights transposed, where they fit",
     "w = softmax(query @ key.T / query.shape[-1] ** 0.5)\n"
     "    return (w.T if len(query) == len(key) else w) @ value", 3, "transposed"),
    ("softmax twice", "return softmax(softmax(query @ key.T / query.shape[-1] ** 0.5)) @ value", 1,
     "applied twice"),
    ("no softmax", "return query @ key.T / query.shape[-1] ** 0.5 @ value", 0,
     "taken for weights"),
    ("keys in the place of values",
     "return softmax(query @ key.T / query.shape[-1] ** 0.5) @ key", 0, "averaged are the keys"),
    ("the best key alone",
     "return value[(query @ key.T).argmax(-1)]", 0, "value of the best key alone"),
    ("no shift",
     "p = (query @ key.T / query.shape[-1] ** 0.5).exp(); return p / p.sum(-1)[:, None] @ value", 4,
     "large scores"),
    ("one largest score for all",
     "s = query @ key.T / query.shape[-1] ** 0.5; p = (s - s.max()).exp()\n"
     "    return p / p.sum(-1)[:, None] @ value", 4, "large scores"),
    ("the mean of the values", "return value.mean(0).expand(len(query), -1)", 1, "plain mean"),
    ("the weights", "return softmax(query @ key.T / query.shape[-1] ** 0.5)", 0,
     "these are the weights"),
    ("softmax last", "return softmax(query @ key.T / query.shape[-1] ** 0.5 @ value)", 0,
     "applied to the output"),
]  # fmt: skip
_SOFT = """
softmax = lambda scores: torch.softmax(scores, dim=-1)

def my_attention(query, key, value):
    """

# The input that is wrong, beside two that are right
_INPUTS = [
    ("all keys alike", "shows_scale = ([[2, 2]], [[1, 0], [1, 0]], [[0], [1]])", 3,
     "All keys match a query alike"),
    ("beyond 2", "shows_scale = ([[5, 0]], [[1, 0], [0, 1]], [[0], [1]])", 3,
     "between -2 and 2"),
    ("one feature", "shows_scale = ([[2]], [[1], [0]], [[0], [1]])", 3, "with one feature"),
    ("values alike", "shows_scale = ([[2, 0]], [[1, 0], [0, 1]], [[1], [1]])", 3,
     "The values are alike"),
    ("a single key", "shows_scale = ([[2, 0]], [[1, 0]], [[1]])", 3, "A single key"),
    ("too little", "shows_scale = ([[0.1, 0]], [[1, 0], [0, 1]], [[0], [1]])", 3,
     "sharper"),
    ("too much", "shows_scale = ([[2, 2]], [[2, 2], [0, 0]], [[0], [2]])", 3, "products smaller"),
    ("a query too few features", "shows_scale = ([[2]], [[1, 0], [0, 1]], [[0], [1]])", 3,
     "same number of features"),
    ("a value too many", "shows_scale = ([[2, 0]], [[1, 0], [0, 1]], [[0], [1], [2]])", 3,
     "2 keys and 3 values"),
    ("no tuple", "shows_scale = [[2, 0]]", 3, "(query, key, value)"),
    ("a query of zeros",
     "hides_scale = ([[0, 0], [0, 0]], [[1, 0], [0, 1], [2, 2]], [[0], [1], [2]])", 2,
     "asks nothing"),
    ("two keys alike",
     "hides_scale = ([[1, 0], [2, 0]], [[1, 1], [1, 1], [1, 2]], [[0], [1], [2]])", 2,
     "two keys are alike"),
    ("two values alike",
     "hides_scale = ([[1, 0], [2, 0]], [[1, 0], [1, 1], [1, 2]], [[0], [1], [1]])", 2,
     "two values are alike"),
    ("a single query", "hides_scale = ([[1, 0]], [[1, 0], [1, 1], [1, 2]], [[0], [1], [2]])", 2,
     "two queries"),
    ("one feature hides it, but is too few",
     "hides_scale = ([[1], [2]], [[1], [2], [3]], [[0], [1], [2]])", 2, "two features"),
    ("any numbers", "hides_scale = ([[1, 0], [0, 1]], [[1, 0], [0, 1], [1, 1]], [[0], [1], [2]])",
     2, "all products of a query are equal"),
    ("only one query's products are equal",
     "hides_scale = ([[1, 0], [0, 1]], [[1, 0], [1, 1], [1, 2]], [[0], [1], [2]])", 2,
     "all products of a query are equal"),
    ("two keys", "shows_twice = ([[99]], [[1], [0]], [[1], [0]])", 3, "too few"),
    ("equal scores", "shows_twice = ([[9]], [[1]] * 9, [[1]] + [[0]] * 8)", 3,
     "All keys match a query alike"),
    ("values beyond 1", "shows_twice = ([[99]], [[1], [0]], [[10], [0]])", 3, "between 0 and 1"),
    ("not finite", "shows_twice = ([[math.inf]], [[1], [0]], [[1], [0]])", 3, "finite"),
]  # fmt: skip

_PREDICTED = [
    ("products", "my_scores = [4, 0, 4, 2, 0]", 2, "these are the products"),
    ("divided by d", "my_scores = [1, 0, 1, 0.5, 0]", 2, "divided by d = 4"),
    ("multiplied", "my_scores = [8, 0, 8, 4, 0]", 2, "multiplied by √d"),
    ("the root of the number of words", "my_scores = [1.79, 0, 1.79, 0.89, 0]", 2,
     "number of words"),
    ("no links", "my_scores = [2, 0, 2, 0, 0]", 2, "has a link"),
    ("powers for scores", "my_scores = [4, 1, 4, 2, 1]", 2, "powers 2^score"),
    ("four scores", "my_scores = [2, 0, 2, 1]", 2, "should hold 5 numbers; it holds 4"),
    ("scores for shares", "my_shares = [2, 0, 2, 1, 0]", 2, "these are the scores"),
    ("no share for a score of 0", "my_shares = [4, 0, 4, 2, 0]", 2, "2^0 = 1"),
    ("shares of the products", "my_shares = [16, 1, 16, 4, 1]", 2, "of the products"),
    ("powers of e", "my_shares = [7.39, 1, 7.39, 2.72, 1]", 2, "units of ln 2"),
    ("weights for shares", "my_shares = [1 / 3, 1 / 12, 1 / 3, 1 / 6, 1 / 12]", 2,
     "these are the weights"),
    ("the sum", "my_output = [8, 2, 15]", 2, "divides it by all 12 shares"),
    ("the plain mean", "my_output = [0.4, 0.4, 1.2]", 2, "plain mean"),
    ("divided by five", "my_output = [1.6, 0.4, 3]", 2, "number of words"),
    ("the best word", "my_output = [1, 0, 2]", 2, "never picks"),
    ("the best two", "my_output = [1, 0, 1.5]", 2, "the other words have shares too"),
    ("weighted by scores", "my_output = [0.8, 0, 1.2]", 2, "weighted by the scores"),
    ("links for lively", "my_output = [8 / 12, 2 / 12, 2 / 12]", 2, "lively, not link"),
    ("no idea", "my_output = [1, 2, 3]", 2, "none of the usual slips"),
    ("no scale from the start",
     "my_scores, my_shares = [4, 0, 4, 2, 0], [16, 1, 16, 4, 1]\n"
     "my_output = [32 / 38, 2 / 38, 51 / 38]", 0, "the products were not divided"),
]  # fmt: skip

_CHOSEN = [
    ("queries as keys", "AACBAFDEAF", 2, "1 is not A"),
    ("keys as queries", "FFCBAFDEAF", 2, "2 is not F"),
    ("values don't count", "FAABAFDEAF", 2, "is a mean of the values, which did"),
    ("rows have no order", "FACAAFDEAF", 2, "a row of its own"),
    ("keys have an order", "FACBBFDEAF", 2, "belong to the queries"),
    ("keys alone as keys with values", "FACBAADEAF", 2, "the value of another key"),
    ("small scores are sharp", "FACBAFEEAF", 2, "close to *each other*"),
    ("multiplying is adding", "FACBAFDAAF", 2, "multiplying is not adding"),
    ("twice is more", "FACBAFDEFF", 2, "is there twice"),
    ("a zero counts nothing", "FACBAFDEAA", 2, "no weight of 0"),
    ("all the same", "AAAAAAAAAA", 0, "the value of another key"),
    ("nine letters", "FACBAFDEA", 0, "10 letters are expected"),
]

WRONG = [
    *(("predict", name, GIVEN + PREDICTED + code, points, words)
      for name, code, points, words in _PREDICTED),
    *(("softmax", name, GIVEN + _EXP + code, points, words)
      for name, code, points, words in _SOFTMAX),
    *(("attention", name, GIVEN + _SOFT + code, points, words)
      for name, code, points, words in _ATTENTION),
    *(("inputs", name, GIVEN + FOUND + code, points, words)
      for name, code, points, words in _INPUTS),
    *(("changes", name, f"my_choices = {list(letters)}", points, words)
      for name, letters, points, words in _CHOSEN),
]  # fmt: skip

_OF_SOFTMAX = GIVEN + "\ndef my_softmax(scores):\n    return "
BORROWED = [
    ("softmax", "a function of torch", _OF_SOFTMAX + "torch.softmax(scores, -1)"),
    ("softmax", "a method", _OF_SOFTMAX + "scores.softmax(-1)"),
    ("softmax", "a module of torch", _OF_SOFTMAX + "torch.nn.Softmax(dim=-1)(scores)"),
    ("softmax", "a power of a logarithm",
     _OF_SOFTMAX + "torch.nn.functional.log_softmax(scores, -1).exp()"),
    ("softmax", "the package's weights",
     _OF_SOFTMAX + "mini_attention.attention_weights(scores, torch.eye(7).to(scores), scale=1.0)"),
]  # fmt: skip
