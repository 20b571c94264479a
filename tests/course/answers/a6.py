"""Answers to assignment 6: right ones in several styles, and wrong ones with what they get.

RIGHT    what it is: the cells of a whole notebook, as one text, cut at `# %%`
WRONG    question, what is wrong, the cell, the points it gets, words of a hint that names it
BORROWED question, what it is, the cells: answers that are not one's own
BEFORE   how many of the source's cells come before: the imports
"""

BEFORE = 1

PREDICTED = """
first_piece = (3, 11 / 8, 3 / 8, 1, 21 / 8)
second_piece = (2, 5 / 4, 0, 1, 1)
both_pieces = (3, 2, 0.375, 1.5, 3.125)
average_is_right = [3, math.log2(7), math.log2(10), math.log2(5)]
padding_halves = (-1, -2, -3)
kept_bytes = (9_200_000, 1_608_000)
"""

RIGHT = {
    "one query after the other": PREDICTED
    + """
def merge_rows(one, other):
    (t, z, u), (s, y, w) = one, other
    if t.item() == -math.inf:
        return s, y, w
    if s.item() == -math.inf:
        return t, z, u
    if t >= s:
        return t, z + math.exp(s - t) * y, u + math.exp(s - t) * w
    return s, math.exp(t - s) * z + y, math.exp(t - s) * u + w

def merge(one, other):
    rows = [merge_rows([x[i] for x in one], [x[i] for x in other]) for i in range(len(one[0]))]
    return [torch.stack(x) for x in zip(*rows)]

def running_log_sum(scores, size):
    found = []
    for row in scores:
        top, total = -math.inf, 0.0
        for start in range(0, len(row), size):
            for s in row[start:start + size].tolist():
                if s > top:
                    total, top = total * math.exp(top - s), s
                if s > -math.inf:
                    total += math.exp(s - top)
        found.append([top + math.log(total) if total else -math.inf])
    return torch.tensor(found, dtype=torch.float64)

def weights_again(scores, log_sum):
    found = torch.zeros_like(scores)
    for i in range(scores.shape[0]):
        for c in range(scores.shape[1]):
            if log_sum[i, 0] > -math.inf:
                found[i, c] = math.exp(scores[i, c] - log_sum[i, 0])
    return found

def blocked(query, key, value, size):
    return through(query, key, value, size, [len(key)] * len(query))

def blocked_causal(query, key, value, size):
    more = len(key) - len(query)
    return through(query, key, value, size, [max(0, i + more + 1) for i in range(len(query))])

def through(query, key, value, size, seen):
    outputs = []
    for q, count in zip(query, seen):
        top, total, values = torch.tensor(-math.inf), torch.tensor(0.0), value[0] * 0
        for start in range(0, count, size):
            stop = min(start + size, count)
            scores = key[start:stop] @ q / len(q) ** 0.5
            higher = torch.maximum(top, scores.max())
            powers = torch.exp(scores - higher)
            shrink = torch.exp(top - higher)
            top, total = higher, shrink * total + powers.sum()
            values = shrink * values + powers @ value[start:stop]
        outputs.append(values / total if count else values)
    return torch.stack(outputs)
""",
    "einsum, in float64, with blocks of queries too": PREDICTED
    + """
from einops import einsum, rearrange

def merge(a, b):
    lowest = torch.finfo(torch.float64).min
    a, b = ([x.double() for x in piece] for piece in (a, b))
    t, s = (piece[0].clamp(min=lowest) for piece in (a, b))
    top = torch.stack([t, s]).amax(0)
    f, g = torch.exp(t - top), torch.exp(s - top)
    return top, f * a[1] + g * b[1], f * a[2] + g * b[2]

def running_log_sum(s, size):
    s = s.double()
    state = s.new_full((len(s), 1), torch.finfo(s.dtype).min), s.new_zeros(len(s), 1), s[:, :0]
    for k in range(0, s.shape[1], size):
        block = s[:, k:k + size]
        top = block.max(dim=1, keepdim=True).values.clamp(min=torch.finfo(s.dtype).min)
        new = top, (block - top).exp().sum(1, keepdim=True), s[:, :0]
        state = merge(state, new)
    return (state[0] + torch.log(state[1])).float()

def weights_again(s, l):
    l = torch.where(l == -torch.inf, torch.inf, l.double())
    return torch.exp(s - l)

def attend(q, k, v, size, offset):
    q, k, v = q.double(), k.double(), v.double()
    outputs = []
    for i in range(0, len(q), 64):
        block = q[i:i + 64]
        state = None
        for j in range(0, len(k), size):
            s = einsum(block, k[j:j + size], "i d, j d -> i j") * q.shape[1] ** -0.5
            if offset is not None:
                rows = rearrange(torch.arange(i, i + len(block)), "i -> i 1")
                keys = rearrange(torch.arange(j, j + s.shape[1]), "j -> 1 j")
                s = torch.where(keys <= rows + offset, s, -torch.inf)
            top = s.amax(1, keepdim=True).clamp(min=-1e300)
            p = torch.exp(s - top)
            new = top, p.sum(1, keepdim=True), einsum(p, v[j:j + size], "i j, j e -> i e")
            state = new if state is None else merge(state, new)
        outputs.append(state[2] / state[1].clamp(min=1e-300))
    return torch.cat(outputs)

def blocked(q, k, v, size):
    return attend(q, k, v, size, None)

def blocked_causal(q, k, v, size):
    return attend(q, k, v, size, len(k) - len(q))
""",
    "outputs and logarithms, a result that is not contiguous": PREDICTED
    + """
def merge(one, other):
    top = one[0].maximum(other[0])
    nothing = top == -torch.inf
    shares = [(piece[0] - top).exp().masked_fill(nothing, 0) for piece in (one, other)]
    total, values = (
        sum(share * piece[n] for share, piece in zip(shares, (one, other))) for n in (1, 2)
    )
    return top, total, values.T.contiguous().T

def running_log_sum(scores, size):
    found = torch.full((len(scores), 1), -torch.inf, dtype=scores.dtype)
    while scores.shape[1]:
        piece, scores = scores[:, :size], scores[:, size:]
        top = torch.cat([found, piece], 1).amax(1, keepdim=True)
        safe = top.nan_to_num(neginf=0)
        found = safe + ((found - safe).exp() + (piece - safe).exp().sum(1, keepdim=True)).log()
    return found

def weights_again(scores, log_sum):
    return (scores.T - log_sum.nan_to_num(neginf=torch.inf).T).exp().T

def joined(parts):
    output = log_sum = None
    for scores, v in parts:
        new = scores.logsumexp(-1, keepdim=True)
        if output is None:
            output, log_sum = scores.softmax(-1).nan_to_num(0) @ v, new
            continue
        both = torch.logaddexp(log_sum, new)
        mine = (log_sum - both).exp().nan_to_num(0)
        theirs = (new - both).exp().nan_to_num(0)
        output = mine * output + theirs * (scores.softmax(-1).nan_to_num(0) @ v)
        log_sum = both
    return output.T.contiguous().T

def cut(query, key, value, size):
    for start in range(0, key.shape[0], size):
        k, v = (x.narrow(0, start, min(size, len(x) - start)) for x in (key, value))
        yield start, query.matmul(k.t()).div(math.sqrt(query.shape[1])), v

def blocked(query, key, value, size):
    return joined((scores, v) for _, scores, v in cut(query, key, value, size))

def blocked_causal(query, key, value, size):
    from mini_attention import rules
    mask = rules.causal(len(query), len(key))
    def hidden(start, scores):
        allowed = mask.block(range(len(query)), range(start, start + scores.shape[1]))
        return scores.masked_fill(~allowed, -torch.inf)
    return joined((hidden(start, s), v) for start, s, v in cut(query, key, value, size))
""",
    "numpy and back": """
import numpy as np

first_piece, second_piece = np.array([24, 11, 3, 8, 21]) / 8, np.array([8, 5, 0, 4, 4]) / 4
both_pieces = np.concatenate([[3.0], first_piece[1:] + second_piece[1:] / 2])
average_is_right = np.log2([1, 6, 3, 4])
padding_halves, kept_bytes = np.full(3, -5.0), np.array([1150, 201]) * 8000

def factors(t, s):
    top = np.maximum(t, s)
    floor = np.where(np.isneginf(top), 0, top)
    return top, np.exp(t - floor), np.exp(s - floor)

def joined(one, other):
    top, f, g = factors(one[0], other[0])
    return top, f * one[1] + g * other[1], f * one[2] + g * other[2]

def merge(one, other):
    state = joined([x.numpy() for x in one], [x.numpy() for x in other])
    return tuple(torch.from_numpy(x) for x in state)

def piece(scores, value):
    top = scores.max(axis=1, keepdims=True)
    powers = np.exp(scores - np.where(np.isneginf(top), 0, top))
    return top, powers.sum(axis=1, keepdims=True), powers @ value

def through(parts):
    state = None
    for scores, value in parts:
        state = piece(scores, value) if state is None else joined(state, piece(scores, value))
    return state

def running_log_sum(scores, size):
    scores = scores.numpy()
    nothing = np.zeros((scores.shape[1], 1))
    cuts = range(0, scores.shape[1], size)
    top, total, _ = through((scores[:, c:c + size], nothing[c:c + size]) for c in cuts)
    with np.errstate(divide="ignore"):
        return torch.tensor(top + np.log(total))

def weights_again(scores, log_sum):
    scores, log_sum = scores.numpy(), log_sum.numpy()
    return torch.from_numpy(np.exp(scores - np.where(np.isneginf(log_sum), np.inf, log_sum)))

def blocked(query, key, value, size, mask=lambda start, scores: scores):
    query, key, value = query.numpy(), key.numpy(), value.numpy()
    root = query.dtype.type(math.sqrt(query.shape[1]))
    cuts = ((n, key[n:n + size], value[n:n + size]) for n in range(0, len(key), size))
    _, total, values = through((mask(n, query @ k.T / root), v) for n, k, v in cuts)
    return torch.from_numpy(np.divide(values, total, out=np.zeros_like(values), where=total > 0))

def blocked_causal(query, key, value, size):
    last = np.arange(len(query))[:, np.newaxis] + len(key) - len(query)
    def mask(start, scores):
        at = np.arange(start, start + scores.shape[1])
        return np.where(at > last, scores.dtype.type(-np.inf), scores)
    return blocked(query, key, value, size, mask)
""",
    "a class of states, comments in Chinese, in several cells": """
# 以 2 为底：第一块的最大值是 3，第二块是 2
first_piece = [3, 2**-2 + 1 + 2**-3, 2**-2 + 2**-3, 1, 2 * 2**-2 + 2 + 2**-3]
second_piece = [2, 2**-2 + 1, 0, 1, 1]
both_pieces = [3] + [甲 + 乙 / 2 for 甲, 乙 in zip(first_piece[1:], second_piece[1:])]
average_is_right, padding_halves = [0, math.log2(9), 3, 1], [-2, -2, -1]
头数, 词数, 特征 = 2, 1000, 50
kept_bytes = [
    4 * 头数 * (3 * 词数 * 特征 + 词数**2),
    4 * 头数 * (4 * 词数 * 特征 + 词数),
]
# %%
from typing import NamedTuple

class 状态(NamedTuple):
    '''一行的最大值、总和，以及还没有除以总和的值。'''

    top: torch.Tensor
    total: torch.Tensor
    values: torch.Tensor

    @classmethod
    def 由(cls, 分数, 值):
        最大 = 分数.amax(1, keepdim=True)
        幂 = torch.exp(分数 - 安全(最大))
        return cls(最大, 幂.sum(1, keepdim=True), 幂 @ 值)

    def __add__(self, 另):
        最大 = torch.maximum(self.top, 另.top)
        我, 他 = (torch.exp(某.top - 安全(最大)) for 某 in (self, 另))
        return 状态(最大, 我 * self.total + 他 * 另.total, 我 * self.values + 他 * 另.values)

    @property
    def 输出(self):
        return torch.where(self.total > 0, self.values / self.total, 0)

def 安全(最大):
    return 最大.where(最大.isfinite(), 0)
# %%
merge = lambda one, other: 状态(*one) + 状态(*other)

def running_log_sum(scores, size):
    空 = torch.zeros(0, 0, dtype=scores.dtype)
    块 = (状态.由(部分, 空.new_zeros(部分.shape[1], 0)) for 部分 in scores.split(size, 1))
    和 = next(块)
    for 个 in 块:
        和 += 个
    return 和.top + 和.total.log()

def weights_again(scores, log_sum):
    return torch.where(log_sum.isneginf(), 0.0, torch.exp(scores - log_sum))
# %%
def blocked(问, 键, 值, 长, *, 因果=False):
    和 = None
    for 起 in range(0, 键.size(0), 长):
        分数 = 问 @ 键[起:起 + 长].T / math.sqrt(问.size(1))
        if 因果:
            # 最后一个问对最后一个键
            列 = 起 + torch.arange(分数.size(1))
            行 = torch.arange(问.size(0)) + 键.size(0) - 问.size(0)
            分数.masked_fill_(列[None] > 行[:, None], -math.inf)
        块 = 状态.由(分数, 值[起:起 + 长])
        和 = 块 if 和 is None else 和 + 块
    return 和.输出

blocked_causal = lambda *全: blocked(*全, 因果=True)
""",
    "halves of halves, recursion and reduce": PREDICTED
    + """
from functools import partial, reduce

def merge(one, other):
    top = torch.cat([one[0], other[0]], dim=1).amax(1, keepdim=True)
    factors = [torch.where(x[0] == -torch.inf, 0, torch.exp(x[0] - top)) for x in (one, other)]
    return (top, *(sum(f * x[n] for f, x in zip(factors, (one, other))) for n in (1, 2)))

def leaf(scores, value):
    top = scores.amax(1, keepdim=True)
    powers = torch.where(scores == -torch.inf, 0, torch.exp(scores - top))
    return top, powers.sum(1, keepdim=True), powers @ value

def running_log_sum(scores, size):
    leaves = (leaf(part, part.mT[:, :0]) for part in torch.split(scores, size, dim=1))
    top, total, _ = reduce(merge, leaves)
    return torch.where(total > 0, top + total.log(), -torch.inf)

def weights_again(scores, log_sum):
    return (scores - log_sum).exp().nan_to_num(nan=0.0)

def tree(scores_of, value, size, start=0, stop=None):
    stop = len(value) if stop is None else stop
    pieces = -(-(stop - start) // size)
    if pieces == 1:
        return leaf(scores_of(start, stop), value[start:stop])
    middle = start + pieces // 2 * size
    halves = (start, middle), (middle, stop)
    return merge(*(tree(scores_of, value, size, *half) for half in halves))

def plain_scores(query, key, start, stop):
    return torch.mm(query, key[start:stop].t()).mul_(query.shape[1] ** -0.5)

def causal_scores(query, key, start, stop):
    # tril with the diagonal of this piece: key `start` is its column 0
    allowed = torch.ones(len(query), stop - start).tril(len(key) - len(query) - start).bool()
    return torch.where(allowed, plain_scores(query, key, start, stop), -torch.inf)

def blocked(query, key, value, size):
    _, total, values = tree(partial(plain_scores, query, key), value, size)
    return values / total

def blocked_causal(query, key, value, size):
    _, total, values = tree(partial(causal_scores, query, key), value, size)
    return values / torch.where(total == 0, 1, total)
""",
    "two passes, first the logarithms and then the weights": PREDICTED
    + """
def log_add(a, b):
    # the larger one, and what e^-|a - b| adds to it
    apart = torch.where(a == b, torch.zeros_like(a), (a - b).abs())
    return torch.max(a, b) + torch.where((a == b) & a.isinf(), 0, torch.exp(-apart).log1p())

def merge(one, other):
    top = torch.max(one[0], other[0])
    shares = ((piece[0] - top).exp().nan_to_num() for piece in (one, other))
    (f, g), (_, z, u), (_, y, w) = shares, one, other
    return [top, torch.addcmul(f * z, g, y), torch.addcmul(f * u, g, w)]

def log_sum_of(part):
    largest = part.max(1, keepdim=True).values
    return (part - largest.nan_to_num(neginf=0)).exp().sum(1, keepdim=True).log() + largest

def running_log_sum(scores, size):
    found = torch.full((scores.shape[0], 1), -torch.inf, dtype=torch.float64)
    while scores.shape[1] > 0:
        part, scores = scores.split([min(size, scores.shape[1]), max(0, scores.shape[1] - size)], 1)
        found = log_add(found, log_sum_of(part.double()))
    return found

def weights_again(scores, log_sum):
    dead = log_sum.isneginf().expand_as(scores)
    weights = torch.exp(scores - log_sum)
    weights[dead] = 0
    return weights

def both_passes(query, key, value, size, mask=None):
    def part(start):
        scores = torch.einsum("id,jd->ij", query, key[start:start + size]) / len(query[0]) ** 0.5
        return scores if mask is None else scores + mask(start, scores.shape[1])

    starts = range(0, len(key), size)
    found = torch.full((len(query), 1), -torch.inf)
    for start in starts:
        found = log_add(found, log_sum_of(part(start)))
    return sum(weights_again(part(start), found) @ value[start:start + size] for start in starts)

def blocked(query, key, value, size):
    return both_passes(query, key, value, size)

def blocked_causal(query, key, value, size):
    def mask(start, count):
        shift = len(key) - len(query) - start
        return torch.full((len(query), count), -torch.inf).triu(shift + 1)
    return both_passes(query, key, value, size, mask)
""",
    "in place, in buffers that are made once": PREDICTED
    + """
def merge(one, other):
    top, total, values = (x.clone() for x in one)
    shrink_into(top, total, values, other[0])
    factor = (other[0] - top).exp_().nan_to_num_(0.0)
    total.addcmul_(factor, other[1])
    values.addcmul_(factor, other[2])
    return top, total, values

def shrink_into(top, total, values, new):
    # nan where both are -inf, and there is nothing to shrink
    old = top.clone()
    torch.maximum(top, new, out=top)
    old.sub_(top).exp_().nan_to_num_(0.0)
    total.mul_(old)
    values.mul_(old)

def running_log_sum(scores, size):
    top = torch.empty(scores.shape[0], 1, dtype=scores.dtype).fill_(-torch.inf)
    total, values = torch.zeros_like(top), torch.zeros_like(top)
    for part in scores.tensor_split(tuple(range(size, scores.shape[1], size)), dim=1):
        shrink_into(top, total, values, part.amax(1, keepdim=True))
        total.add_((part - top).exp_().nan_to_num_(0.0).sum(1, keepdim=True))
    return total.log_().add_(top)

def weights_again(scores, log_sum):
    weights = scores.clone()
    weights.sub_(log_sum).exp_()
    weights.nan_to_num_(0.0)
    return weights

def blocked(query, key, value, size):
    return through(query, key, value, size)

def blocked_causal(query, key, value, size):
    return through(query, key, value, size, len(key) - len(query))

def through(query, key, value, size, shift=None):
    (i, d), (j, e) = query.shape, value.shape
    buffer = query.new_empty(i * min(size, j))
    top, total = query.new_full((i, 1), -torch.inf), query.new_zeros(i, 1)
    values = query.new_zeros(i, e)
    for start in range(0, j, size):
        k, v = key[start:start + size], value[start:start + size]
        scores = buffer[:i * len(k)].view(i, len(k))
        torch.mm(query, k.mT, out=scores)
        scores.div_(math.sqrt(d))
        if shift is not None:
            for row in range(i):
                scores[row, max(0, row + shift + 1 - start):] = -torch.inf
        shrink_into(top, total, values, scores.amax(1, keepdim=True))
        scores.sub_(top).exp_().nan_to_num_(0.0)
        total.add_(scores.sum(1, keepdim=True))
        values.addmm_(scores, v)
    values.div_(total.masked_fill_(total == 0, 1))
    return values
""",
    "keys in rows, powers of 2": PREDICTED
    + """
from einops import rearrange, reduce

points = 1 / math.log(2)
NONE = -1e35

def merge(one, other):
    (t, z, u), (s, y, w) = [(piece[0] * points, *piece[1:]) for piece in (one, other)]
    top = reduce(torch.stack([t, s]), "piece i 1 -> i 1", "max").clamp(min=NONE)
    f, g = torch.exp2(t - top), torch.exp2(s - top)
    return torch.max(one[0], other[0]), z * f + y * g, u * f + w * g

def running_log_sum(scores, size):
    scores = rearrange(scores, "i j -> j i") * points
    top, total = torch.full_like(scores[0], NONE), torch.zeros_like(scores[0])
    for start in range(0, len(scores), size):
        piece = scores[start:start + size]
        higher = torch.maximum(top, reduce(piece, "j i -> i", "max"))
        total = total * torch.exp2(top - higher) + torch.exp2(piece - higher).sum(0)
        top = higher
    return rearrange(top / points + total.log(), "i -> i 1")

def weights_again(scores, log_sum):
    log_sum = log_sum.masked_fill(log_sum.isinf(), -NONE)
    return torch.exp2((scores - log_sum) * points)

def attend(query, key, value, size, seen):
    query = query * (points / math.sqrt(query.shape[-1]))
    top, total, values = torch.full_like(query[:, 0], NONE), 0.0, 0.0
    for start, (k, v) in enumerate(zip(key.split(size), value.split(size))):
        numbers = torch.arange(start * size, start * size + len(k))
        scores = k @ query.T
        scores = torch.where(numbers[:, None] < seen, scores, -torch.inf)
        higher = torch.maximum(top, scores.amax(0))
        powers = torch.exp2(scores - higher)
        shrink = torch.exp2(top - higher)
        top, total = higher, total * shrink + powers.sum(0)
        values = values * shrink + v.T @ powers
    return (values / total.clamp(min=1e-30)).T

def blocked(query, key, value, size):
    return attend(query, key, value, size, torch.tensor(len(key)))

def blocked_causal(query, key, value, size):
    return attend(query, key, value, size, torch.arange(len(query)) + len(key) - len(query) + 1)
""",
    "a query at a time with vmap, outputs that are divided at once": PREDICTED
    + """
def merge_row(t, z, u, s, y, w):
    top = torch.maximum(t, s)
    low = torch.nan_to_num(top, neginf=0.0)
    f, g = torch.exp(t - low), torch.exp(s - low)
    return top, f * z + g * y, f * u + g * w

merge = lambda one, other: torch.vmap(merge_row)(*one, *other)

def softplus_add(a, b):
    low = torch.minimum(a, b)
    top = torch.maximum(a, b)
    return torch.where(low == -torch.inf, top, top + torch.nn.functional.softplus(low - top))

def running_log_sum(scores, size):
    found = torch.full_like(scores[:, 0], -torch.inf)
    columns = iter(scores.unbind(1))
    while piece := [column for _, column in zip(range(size), columns)]:
        of_piece = piece[0]
        for column in piece[1:]:
            of_piece = softplus_add(of_piece, column)
        found = softplus_add(found, of_piece)
    return found[:, None]

weights_again = torch.vmap(
    lambda scores, log_sum: torch.exp(scores - log_sum.nan_to_num(neginf=torch.inf)))

def output_of(scores, value):
    return torch.softmax(scores, 0).nan_to_num(0) @ value, torch.logsumexp(scores, 0)

def averaged(pieces):
    output = log_sum = None
    for new, of_new in pieces:
        if output is None:
            output, log_sum = new, of_new
        else:
            # softmax over two: sigmoid of the difference
            share = torch.sigmoid(of_new - log_sum).nan_to_num(0)[:, None]
            output = torch.lerp(output, new, share)
            log_sum = torch.logaddexp(log_sum, of_new)
    return output

def blocked(query, key, value, size):
    def of_query(q, k, v):
        return output_of(k @ q / math.sqrt(len(q)), v)
    pieces = zip(key.split(size), value.split(size))
    return averaged(torch.vmap(of_query, (0, None, None))(query, k, v) for k, v in pieces)

def blocked_causal(query, key, value, size):
    last = torch.arange(len(query)) + len(key) - len(query)
    def of_query(q, row, k, v, numbers):
        scores = k @ q / math.sqrt(len(q))
        return output_of(torch.where(numbers <= row, scores, -torch.inf), v)
    pieces = zip(key.split(size), value.split(size), torch.arange(len(key)).split(size))
    return averaged(
        torch.vmap(of_query, (0, 0, None, None, None))(query, last, *piece) for piece in pieces)
""",
}


def _pieces(first="3, 1.375, 0.375, 1, 2.625", second="2, 1.25, 0, 1, 1",
            both="3, 2, 0.375, 1.5, 3.125"):  # fmt: skip
    return f"first_piece, second_piece, both_pieces = [{first}], [{second}], [{both}]"


def _merge(
    top="torch.maximum(t, s)",
    factors="torch.exp(t - floor), torch.exp(s - floor)",
    total="f * z + g * y",
    values="f * u + g * w",
    floor="top.clamp(min=-1e30)",
    returned="top, total, values",
):
    return f"""
def merge(one, other):
    (t, z, u), (s, y, w) = one, other
    top = {top}
    floor = {floor}
    f, g = {factors}
    total, values = {total}, {values}
    return {returned}
"""


def _log_sum(
    pieces="scores.split(size, -1)",
    shrink="torch.exp(top - higher)",
    powers="torch.exp(part - higher)",
    start="-1e30",
    result="top + total.log()",
    weights="torch.exp(scores - log_sum).masked_fill(log_sum == -torch.inf, 0)",
):
    return f"""
def running_log_sum(scores, size):
    top = torch.full_like(scores[:, :1], {start})
    total = torch.zeros_like(top)
    for part in {pieces}:
        higher = torch.maximum(top, part.amax(-1, keepdim=True))
        total = {shrink} * total + {powers}.sum(-1, keepdim=True)
        top = higher
    return {result}

def weights_again(scores, log_sum):
    return {weights}
"""


def _blocked(
    scores="query @ k.mT / math.sqrt(query.shape[-1])",
    top="torch.maximum(top, scores.amax(-1, keepdim=True))",
    powers="torch.exp(scores - higher)",
    shrink="torch.exp(top - higher)",
    total="shrink * total + powers.sum(-1, keepdim=True)",
    values="shrink * values + powers @ v",
    output="values / total",
    pieces="zip(key.split(size), value.split(size))",
):
    return f"""
def blocked(query, key, value, size):
    top, total, values = torch.tensor(-torch.inf), 0, 0
    for k, v in {pieces}:
        scores = {scores}
        higher = {top}
        powers = {powers}
        shrink = {shrink}
        total = {total}
        values = {values}
        top = higher
    return {output}
"""


def _causal(
    last="torch.arange(i)[:, None] + j - i",
    later="torch.arange(start, start + len(k)) > last",
    hidden="scores.masked_fill(later, -torch.inf)",
    floor="higher.clamp(min=-1e30)",
    total="shrink * total + powers.sum(-1, keepdim=True)",
    output="values / total.masked_fill(total == 0, torch.inf)",
):
    return f"""
def blocked_causal(query, key, value, size):
    i, j = len(query), len(key)
    last = {last}
    top, total, values = torch.tensor(-1e30), 0, 0
    for start in range(0, j, size):
        k, v = key[start:start + size], value[start:start + size]
        scores = query @ k.mT / math.sqrt(query.shape[-1])
        later = {later}
        whole = scores
        scores = {hidden}
        higher = torch.maximum(top, scores.amax(-1, keepdim=True))
        floor = {floor}
        powers, shrink = torch.exp(scores - floor), torch.exp(top - floor)
        total = {total}
        values = shrink * values + powers @ v
        top = higher
    return {output}
"""


WHOLE = """
def blocked(query, key, value, size):
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return scores.softmax(-1) @ value
"""
WHOLE_CAUSAL = """
def blocked_causal(query, key, value, size):
    i, j = len(query), len(key)
    mask = torch.ones(i, j, dtype=torch.bool).tril(j - i)
    scores = (query @ key.mT / math.sqrt(query.shape[-1])).masked_fill(~mask, -torch.inf)
    return scores.softmax(-1).nan_to_num(0) @ value
"""
WHOLE_MASK = """
def blocked_causal(query, key, value, size):
    i, j = len(query), len(key)
    mask = torch.ones(i, j, dtype=torch.bool).tril(j - i)
    top, total, values = torch.tensor(-1e30), 0, 0
    for start in range(0, j, size):
        k, v = key[start:start + size], value[start:start + size]
        scores = query @ k.mT / math.sqrt(query.shape[-1])
        scores = scores.masked_fill(~mask[:, start:start + size], -torch.inf)
        higher = torch.maximum(top, scores.amax(-1, keepdim=True))
        powers, shrink = torch.exp(scores - higher), torch.exp(top - higher)
        total = shrink * total + powers.sum(-1, keepdim=True)
        values = shrink * values + powers @ v
        top = higher
    return values / total.masked_fill(total == 0, torch.inf)
"""
ALL_PIECES = """
def blocked(query, key, value, size):
    pieces = [query @ k.mT / math.sqrt(query.shape[-1]) for k in key.split(size)]
    top = torch.cat([piece.amax(-1, keepdim=True) for piece in pieces], -1).amax(-1, keepdim=True)
    total = sum((piece - top).exp().sum(-1, keepdim=True) for piece in pieces)
    return sum((piece - top).exp() @ v for piece, v in zip(pieces, value.split(size))) / total
"""
QUERIES_IN_PIECES = """
def blocked(query, key, value, size):
    outputs = []
    for q in query.split(size):
        scores = q @ key.mT / math.sqrt(query.shape[-1])
        outputs.append(scores.softmax(-1) @ value)
    return torch.cat(outputs)
"""
AVERAGED = """
def blocked(query, key, value, size):
    outputs = []
    for k, v in zip(key.split(size), value.split(size)):
        outputs.append((query @ k.mT / math.sqrt(query.shape[-1])).softmax(-1) @ v)
    return torch.stack(outputs).mean(0)
"""
PADDED = """
def blocked(query, key, value, size):
    missing = -len(key) % size
    key, value = (torch.nn.functional.pad(x, (0, 0, 0, missing)) for x in (key, value))
    top, total, values = torch.tensor(-torch.inf), 0, 0
    for k, v in zip(key.split(size), value.split(size)):
        scores = query @ k.mT / math.sqrt(query.shape[-1])
        higher = torch.maximum(top, scores.amax(-1, keepdim=True))
        powers, shrink = torch.exp(scores - higher), torch.exp(top - higher)
        total = shrink * total + powers.sum(-1, keepdim=True)
        values = shrink * values + powers @ v
        top = higher
    return values / total
"""


def _explained(average="0, math.log2(5), 1, 2", padding="-2, -2, -1", kept="9_200_000, 1_608_000"):
    return f"average_is_right, padding_halves, kept_bytes = [{average}], [{padding}], [{kept}]"


WRONG = [
    # Question 1
    (
        "predict",
        "top not subtracted",
        _pieces(first="3, 11, 3, 8, 21"),
        2,
        "top has not been subtracted",
    ),
    (
        "predict",
        "powers of e",
        _pieces(first="3, 1.18513, 0.18513, 1, 2.32045"),
        2,
        "these are powers of e",
    ),
    (
        "predict",
        "no points, no power",
        _pieces(first="3, 1.25, 0.25, 1, 2.5"),
        2,
        "0 points, which is not nothing",
    ),
    (
        "predict",
        "divided at once",
        _pieces(first="3, 1.375, 0.27273, 0.72727, 1.90909"),
        2,
        "not divided yet",
    ),
    ("predict", "keys counted", _pieces(first="3, 3, 2, 1, 5"), 2, "That is the number of keys"),
    (
        "predict",
        "one top for all",
        _pieces(second="3, 0.625, 0, 0.5, 0.5"),
        2,
        "A piece has a top of its own",
    ),
    (
        "predict",
        "then is nothing",
        _pieces(second="2, 1, 0, 1, 1"),
        2,
        "0 points, which is not nothing",
    ),
    (
        "predict",
        "nothing shrunk",
        _pieces(both="3, 2.625, 0.375, 2, 3.625"),
        2,
        "Nothing has been shrunk",
    ),
    (
        "predict",
        "first piece shrunk",
        _pieces(both="3, 1.9375, 0.1875, 1.5, 2.3125"),
        2,
        "the second one here",
    ),
    (
        "predict",
        "both shrunk",
        _pieces(both="3, 1.3125, 0.1875, 1, 1.8125"),
        2,
        "One factor is always 1",
    ),
    ("predict", "grown", _pieces(both="3, 3.875, 0.375, 3, 4.625"), 2, "which is at most 1"),
    ("predict", "values not shrunk", _pieces(both="3, 2, 0.375, 2, 3.625"), 2, "values have not"),
    ("predict", "output", _pieces(both="3, 2, 0.1875, 0.75, 1.5625"), 2, "that is the output"),
    ("predict", "tops added", _pieces(both="5, 2, 0.375, 1.5, 3.125"), 2, "the larger of the two"),
    # Question 2
    ("merge", "as in the chapter", _merge(floor="top"), 2, "-inf - (-inf) is not a number"),
    (
        "merge",
        "powers of 2",
        _merge(factors="torch.exp2(t - floor), torch.exp2(s - floor)"),
        2,
        "powers of 2",
    ),
    ("merge", "nothing shrunk", _merge(factors="1.0, 1.0"), 2, "nothing is shrunk"),
    ("merge", "values not shrunk", _merge(values="u + w"), 2, "the values are not"),
    ("merge", "total not shrunk", _merge(total="z + y"), 2, "the total is not"),
    (
        "merge",
        "swapped",
        _merge(factors="torch.exp(s - floor), torch.exp(t - floor)"),
        1,
        "swapped",
    ),
    (
        "merge",
        "inverse",
        _merge(factors="torch.exp(top - t), torch.exp(top - s)", floor="top"),
        0,
        "its inverse",
    ),
    ("merge", "average", _merge(values="(u / z + w / y) / 2"), 0, "an average of the two outputs"),
    (
        "merge",
        "divided",
        _merge(values="(f * u + g * w) / (f * z + g * y)"),
        0,
        "divided by the total already",
    ),
    (
        "merge",
        "top of the first",
        _merge(returned="t, total, values"),
        1,
        "the top is that of the first piece",
    ),
    (
        "merge",
        "smaller top",
        _merge(returned="torch.minimum(t, s), total, values"),
        1,
        "the smaller of the two",
    ),
    (
        "merge",
        "measured from the first",
        _merge(top="t", floor="t"),
        0,
        "the top is not the larger",
    ),
    (
        "merge",
        "unmeasured",
        _merge(
            total="(t.exp() * z + s.exp() * y) / top.exp()",
            values="(t.exp() * u + s.exp() * w) / top.exp()",
        ),
        1,
        "Powers overflow",
    ),
    ("merge", "two of three", _merge(returned="total, values"), 0, "three tensors"),
    # Question 3
    ("log-sum", "not shrunk", _log_sum(shrink="1"), 1, "the total is not shrunk"),
    (
        "log-sum",
        "last piece missing",
        _log_sum(
            pieces="[scores[:, k * size:(k + 1) * size] for k in range(scores.shape[1] // size)]"
        ),
        2,
        "the last piece is missing",
    ),
    (
        "log-sum",
        "total alone",
        _log_sum(result="total"),
        1,
        "its logarithm and the top are missing",
    ),
    ("log-sum", "top missing", _log_sum(result="total.log()"), 1, "the top is missing"),
    (
        "log-sum",
        "logarithm missing",
        _log_sum(result="top + total"),
        1,
        "logarithm of the total is missing",
    ),
    (
        "log-sum",
        "base of the logarithm",
        _log_sum(result="(top + total.log()) / math.log(2)"),
        1,
        "base 2",
    ),
    (
        "log-sum",
        "powers of 2",
        _log_sum(
            shrink="torch.exp2(top - higher)",
            powers="torch.exp2(part - higher)",
            result="(top * math.log(2)) + total.log()",
        ),
        1,
        "powers of 2 are added up",
    ),
    ("log-sum", "no floor", _log_sum(start="-torch.inf"), 2, "-inf - (-inf) is not a number"),
    (
        "log-sum",
        "overflow",
        _log_sum(shrink="1", powers="torch.exp(part)", result="total.log()"),
        2,
        "The top is subtracted",
    ),
    ("log-sum", "one axis", _log_sum(result="(top + total.log())[:, 0]"), 1, "the shape is i 1"),
    ("log-sum", "last piece alone", _log_sum(shrink="0"), 1, "the last piece alone"),
    (
        "log-sum",
        "softmax of the piece",
        _log_sum(weights="scores.exp() / scores.exp().sum(-1, keepdim=True)"),
        2,
        "a softmax over the piece",
    ),
    (
        "log-sum",
        "weights of nothing",
        _log_sum(weights="torch.exp(scores - log_sum)"),
        2,
        "its weights are 0",
    ),
    (
        "log-sum",
        "logarithm of weights",
        _log_sum(weights="(scores - log_sum).masked_fill(log_sum == -torch.inf, 0)"),
        2,
        "the logarithm of the weights",
    ),
    (
        "log-sum",
        "divided by the logarithm",
        _log_sum(weights="(scores.exp() / log_sum).nan_to_num(0)"),
        2,
        "a power divided by the logarithm",
    ),
    # Question 4
    ("blocked", "whole matrix", WHOLE, 3, "all scores take 128 MiB"),
    ("blocked", "all pieces kept", ALL_PIECES, 3, "all scores take 128 MiB"),
    ("blocked", "queries in pieces", QUERIES_IN_PIECES, 3, "all scores take 128 MiB"),
    ("blocked", "not shrunk", _blocked(shrink="1"), 0, "neither total nor values"),
    (
        "blocked",
        "values not shrunk",
        _blocked(values="values + powers @ v"),
        0,
        "the values are not",
    ),
    (
        "blocked",
        "total not shrunk",
        _blocked(total="total + powers.sum(-1, keepdim=True)"),
        0,
        "the total is not",
    ),
    ("blocked", "no scale", _blocked(scores="query @ k.mT"), 1, "not divided by √d"),
    (
        "blocked",
        "scale of e",
        _blocked(scores="query @ k.mT / math.sqrt(value.shape[-1])"),
        1,
        "divided by √e",
    ),
    (
        "blocked",
        "powers of 2",
        _blocked(powers="torch.exp2(scores - higher)", shrink="torch.exp2(top - higher)"),
        0,
        "multiply by log2(e)",
    ),
    ("blocked", "average of pieces", AVERAGED, 0, "the outputs of the pieces are averaged"),
    ("blocked", "padded", PADDED, 3, "zeros fill up the last piece"),
    (
        "blocked",
        "last piece missing",
        _blocked(
            pieces="[(key[n:n + size], value[n:n + size]) "
            "for n in range(0, len(key) - size + 1, size)]"
        ),
        3,
        "the last piece is missing",
    ),
    ("blocked", "not divided", _blocked(output="values"), 0, "not divided by the total"),
    (
        "blocked",
        "top not subtracted",
        _blocked(powers="torch.exp(scores)", shrink="1"),
        3,
        "The top is subtracted",
    ),
    # Question 5
    ("blocked-causal", "whole matrix", WHOLE_CAUSAL, 3, "a mask of all pairs 32 MiB"),
    ("blocked-causal", "whole mask", WHOLE_MASK, 3, "a mask of all pairs 32 MiB"),
    (
        "blocked-causal",
        "no mask",
        _causal(later="torch.zeros(1, len(k), dtype=torch.bool)"),
        0,
        "no key is hidden",
    ),
    (
        "blocked-causal",
        "first beside first",
        _causal(last="torch.arange(i)[:, None]"),
        1,
        "belongs beside the last",
    ),
    (
        "blocked-causal",
        "no query sees itself",
        _causal(later="torch.arange(start, start + len(k)) >= last"),
        0,
        "does not see itself",
    ),
    (
        "blocked-causal",
        "one key too many",
        _causal(later="torch.arange(start, start + len(k)) > last + 1"),
        0,
        "one key too many",
    ),
    (
        "blocked-causal",
        "wrong way round",
        _causal(later="torch.arange(start, start + len(k)) < last"),
        0,
        "the wrong way round",
    ),
    (
        "blocked-causal",
        "keys counted in pieces",
        _causal(later="torch.arange(len(k)) > last"),
        0,
        "counted from the start of their piece",
    ),
    (
        "blocked-causal",
        "no floor",
        _causal(floor="higher").replace("-1e30", "-torch.inf"),
        3,
        "0/0 is not a number",
    ),
    (
        "blocked-causal",
        "finite fill",
        _causal(hidden="scores.masked_fill(later, -1e9)", output="values / total"),
        3,
        "not a mean of values",
    ),
    (
        "blocked-causal",
        "0 for hidden scores",
        _causal(hidden="scores.masked_fill(later, 0)"),
        0,
        "a score like any other",
    ),
    (
        "blocked-causal",
        "0 divided by 0",
        _causal(output="values / total"),
        3,
        "0/0 is not a number",
    ),
    (
        "blocked-causal",
        "hidden keys counted",
        _causal(total="shrink * total + torch.exp(whole - floor).sum(-1, keepdim=True)"),
        1,
        "counts the hidden keys",
    ),
    # Question 6
    (
        "break-and-explain",
        "all the same",
        _explained(average="1, 1, 1, 1"),
        2,
        "differ from each other",
    ),
    (
        "break-and-explain",
        "the same pieces",
        _explained(average="1, 2, 2, 1"),
        2,
        "differ from each other",
    ),
    (
        "break-and-explain",
        "equal sums of scores",
        _explained(average="0, 3, 1, 2"),
        2,
        "sums of powers of 2 have to agree",
    ),
    (
        "break-and-explain",
        "equal tops",
        _explained(average="3, 1, 2.89, 2"),
        2,
        "sums of powers of 2 have to agree",
    ),
    (
        "break-and-explain",
        "powers of e",
        _explained(average="0, math.log(5), math.log(2), math.log(4)"),
        2,
        "sums of powers of 2 have to agree",
    ),
    (
        "break-and-explain",
        "three scores",
        _explained(average="0, 1, 2"),
        2,
        "should hold 4 numbers",
    ),
    (
        "break-and-explain",
        "zeros",
        _explained(padding="0, 0, 0"),
        2,
        "the padded output is 0.75 of the right one",
    ),
    (
        "break-and-explain",
        "large scores",
        _explained(padding="5, 5, 5"),
        2,
        "has the score 0, the power 1",
    ),
    (
        "break-and-explain",
        "a half each",
        _explained(padding="-1, -1, -1"),
        2,
        "has the score 0, the power 1",
    ),
    ("break-and-explain", "infinity", _explained(padding="-math.inf, -1, -2"), 2, "finite numbers"),
    (
        "break-and-explain",
        "weights alone",
        _explained(kept="8_000_000, 1_608_000"),
        2,
        "as well as the weights",
    ),
    (
        "break-and-explain",
        "scores as well",
        _explained(kept="17_200_000, 1_608_000"),
        2,
        "The scores are not kept",
    ),
    (
        "break-and-explain",
        "output in the formula",
        _explained(kept="9_600_000, 1_608_000"),
        2,
        "the formula does not keep it",
    ),
    ("break-and-explain", "one head", _explained(kept="4_600_000, 804_000"), 2, "there are two"),
    (
        "break-and-explain",
        "no number a row",
        _explained(kept="9_200_000, 1_600_000"),
        2,
        "One number a row is kept",
    ),
    (
        "break-and-explain",
        "no output",
        _explained(kept="9_200_000, 1_208_000"),
        2,
        "The output is kept as well",
    ),
    (
        "break-and-explain",
        "top and total",
        _explained(kept="9_200_000, 1_616_000"),
        2,
        "not both t and z",
    ),
]


OF_BLOCKED = "import mini_attention\n\ndef blocked(query, key, value, size):\n    return "
OF_LOG_SUM = "def running_log_sum(scores, size):\n    return "
BORROWED = [
    ("blocked", "the package's blocks",
     OF_BLOCKED + "mini_attention.blocked_attention(query, key, value)"),
    ("blocked", "torch's kernel",
     OF_BLOCKED + "torch.nn.functional.scaled_dot_product_attention(query, key, value)"),
    ("log-sum", "a function of torch", OF_LOG_SUM + "torch.logsumexp(scores, -1, True)"),
    ("log-sum", "a method", OF_LOG_SUM + "scores.logsumexp(-1, True)"),
]  # fmt: skip
