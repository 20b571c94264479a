"""Answers to assignment 2: right ones in several styles, and wrong ones with what they get.

RIGHT    what it is: the cells of a whole notebook, as one text, cut at `# %%`
WRONG    question, what is wrong, the cells, the points they get, words of a hint that names it
BORROWED question, what it is, the cells: answers that are not one's own
BEFORE   how many of the source's cells come before: an answer brings what it needs
"""

BEFORE = 0

GIVEN = """
import math
import torch
from torch import nn
from mini_attention import attention, attention_weights
"""

PREDICTED = """
shape_q, shape_k, shape_v = (8, 7, 5), (8, 9, 5), (8, 9, 2)
shape_weights, shape_output = (8, 7, 9), (8, 7, 2)
shape_matrix, count = (5, 3), 77
"""
MOVED = """
shows_order = [1, 2, 3, 4, 5, 0]
hides_order = [5, 4, 3, 2, 1, 0]

def restore(output, order):
    return output[:, order.argsort()]

def restore_weights(weights, order):
    back = order.argsort()
    return weights[:, back][:, :, back]
"""
CHOSEN = 'my_choices = ["B", "A", "C", "A", "B", "C", "B", "A", "C"]\n'

RIGHT = {
    "as in the chapter": GIVEN
    + PREDICTED
    + MOVED
    + CHOSEN
    + """
class SingleHead(nn.Module):
    def __init__(self, d_model, d_head, d_value, key_size):
        super().__init__()
        self.q_proj = nn.Linear(d_model, d_head)
        self.k_proj = nn.Linear(key_size, d_head)
        self.v_proj = nn.Linear(key_size, d_value)

    def forward(self, x, y):
        return attention(self.q_proj(x), self.k_proj(y), self.v_proj(y))

class Repaired(nn.Module):
    def __init__(self, d_model, d_head, d_value):
        super().__init__()
        self.W_q = nn.Parameter(torch.randn(d_model, d_head))
        self.W_k = nn.Parameter(torch.randn(d_model, d_head))
        self.W_v = nn.Parameter(torch.randn(d_model, d_value))

    def forward(self, x):
        q, k, v = x @ self.W_q, x @ self.W_k, x @ self.W_v
        weights = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), dim=-1)
        return weights @ v

def partner(W_q, A):
    return W_q @ A.inverse().T
""",
    "loops": GIVEN
    + """
shape_q, shape_k, shape_v = [8, 7, 5], [8, 9, 5], [8, 9, 2]
shape_weights, shape_output = torch.Size([8, 7, 9]), torch.Size([8, 7, 2])
shape_matrix, count = torch.Size((5, 3)), 77.0
my_choices = "BACABCBAC"
shows_order = torch.tensor([2, 0, 1, 4, 5, 3])
hides_order = torch.tensor([3, 4, 5, 0, 1, 2])

class SingleHead(nn.Module):
    def __init__(self, d_model, d_head, d_value, key_size):
        super().__init__()
        self.size = d_head
        self.v_proj, self.k_proj, self.q_proj = (
            nn.Linear(key_size, d_value), nn.Linear(key_size, d_head), nn.Linear(d_model, d_head))

    def forward(self, asking, asked):
        items = []
        for one, other in zip(asking, asked):
            rows = []
            for word in one:
                q = self.q_proj(word)
                scores = torch.stack([q @ self.k_proj(w) for w in other]) / self.size**0.5
                shares = torch.exp(scores - scores.max())
                values = [self.v_proj(w) for w in other]
                rows.append(sum(s * v for s, v in zip(shares, values)) / shares.sum())
            items.append(torch.stack(rows))
        return torch.stack(items)

class Repaired(nn.Module):
    def __init__(self, d_model, d_head, d_value):
        super().__init__()
        for name, size in [("W_q", d_head), ("W_k", d_head), ("W_v", d_value)]:
            setattr(self, name, nn.Parameter(torch.zeros(d_model, size)))

    def forward(self, words):
        return torch.stack([
            attention(item @ self.W_q, item @ self.W_k, item @ self.W_v) for item in words])

def restore(mixed, order):
    out = torch.zeros_like(mixed)
    for place, word in enumerate(order.tolist()):
        out[:, word] = mixed[:, place]
    return out

def restore_weights(mixed, order):
    out = torch.zeros_like(mixed)
    for row, i in enumerate(order.tolist()):
        for column, j in enumerate(order.tolist()):
            out[:, i, j] = mixed[:, row, column]
    return out

def partner(W, A):
    return torch.stack([torch.linalg.solve(A, row) for row in W])
""",
    "einsum, permutation matrices, and both results": GIVEN
    + PREDICTED
    + CHOSEN
    + """
class SingleHead(nn.Module):
    def __init__(self, d_model, d_head, d_value, key_size):
        super().__init__()
        self.q_proj = nn.Linear(in_features=d_model, out_features=d_head)
        self.k_proj = nn.Linear(in_features=key_size, out_features=d_head)
        self.v_proj = nn.Linear(in_features=key_size, out_features=d_value)

    def forward(self, x, y):
        q, k, v = self.q_proj(x), self.k_proj(y), self.v_proj(y)
        scores = torch.einsum("bid,bjd->bij", q, k) / q.size(-1) ** 0.5
        return torch.einsum("bij,bje->bie", scores.softmax(2), v)

class Repaired(nn.Module):
    def __init__(self, d_model, d_head, d_value):
        super().__init__()
        self.W_q = nn.Parameter(torch.randn(d_model, d_head))
        self.W_k = nn.Parameter(torch.randn(d_model, d_head))
        self.W_v = nn.Parameter(torch.randn(d_model, d_value))

    def forward(self, x):
        both = self.W_q @ self.W_k.T / math.sqrt(self.W_q.shape[1])
        weights = torch.einsum("bim,mk,bjk->bij", x, both, x).softmax(-1)
        return torch.einsum("bij,bjm,me->bie", weights, x, self.W_v)

def matrix_of(order, like):
    return torch.eye(len(order), dtype=like.dtype)[order]

def restore(output, order):
    return matrix_of(order, output).T @ output

def restore_weights(weights, order):
    P = matrix_of(order, weights)
    return P.T @ weights @ P

shows_order = (3, 2, 0, 5, 1, 4)
hides_order = (2, 4, 0, 5, 1, 3)

def partner(W_q, A):
    return torch.linalg.solve(A, W_q.T).T
""",
    "float64, torch's kernel, transposed": GIVEN
    + PREDICTED
    + MOVED
    + CHOSEN
    + """
class SingleHead(nn.Module):
    def __init__(self, d_model, d_head, d_value, key_size):
        super().__init__()
        parts = [(d_model, d_head), (key_size, d_head), (key_size, d_value)]
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(*sizes) for sizes in parts)

    def forward(self, x, y):
        q, k, v = self.q_proj(x).double(), self.k_proj(y).double(), self.v_proj(y).double()
        return nn.functional.scaled_dot_product_attention(q, k, v)

class Repaired(nn.Module):
    def __init__(self, d_model, d_head, d_value):
        super().__init__()
        self.W_q = nn.Parameter(torch.randn(d_model, d_head))
        self.W_k = nn.Parameter(torch.randn(d_model, d_head))
        self.W_v = nn.Parameter(torch.randn(d_model, d_value))

    def forward(self, x):
        q, k, v = (x.mT.mT @ W for W in (self.W_q, self.W_k, self.W_v))
        scores = k @ q.mT / self.W_k.size(1) ** 0.5
        return (v.mT @ scores.softmax(dim=-2)).mT

def partner(W_q, A):
    return (torch.linalg.inv(A.double()) @ W_q.double().T).T.contiguous()
""",
    "float32, one product, lists": GIVEN
    + PREDICTED
    + CHOSEN
    + """
class SingleHead(nn.Module):
    def __init__(self, d_model, d_head, d_value, key_size):
        super().__init__()
        self.q_proj = nn.Linear(d_model, d_head)
        self.k_proj = nn.Linear(key_size, d_head)
        self.v_proj = nn.Linear(key_size, d_value)
        self.scale = d_head**-0.5

    def weigh(self, x, y):
        return torch.softmax((self.q_proj(x) * self.scale) @ self.k_proj(y).transpose(1, 2), 2)

    def forward(self, x, y=None):
        y = x if y is None else y
        return torch.bmm(self.weigh(x, y).float(), self.v_proj(y).float())

class Repaired(nn.Module):
    def __init__(self, d_model, d_head, d_value):
        super().__init__()
        self.W_q = nn.Parameter(torch.randn(d_model, d_head))
        self.W_k = nn.Parameter(torch.randn(d_model, d_head))
        self.W_v = nn.Parameter(torch.randn(d_model, d_value))

    def forward(self, x):
        stacked = torch.cat([self.W_q, self.W_k, self.W_v], dim=1)
        d, e = self.W_q.shape[1], self.W_v.shape[1]
        q, k, v = (x @ stacked).split([d, d, e], dim=-1)
        return attention(q, k, v)

def restore(output, order):
    home = [order.tolist().index(word) for word in range(len(order))]
    return output[:, home]

def restore_weights(weights, order):
    return restore(restore(weights, order).transpose(1, 2), order).transpose(1, 2)

shows_order, hides_order = [4, 3, 5, 1, 2, 0], [1, 0, 3, 2, 5, 4]

def partner(W_q, A):
    return W_q @ torch.inverse(A.T)
""",
    "a parent in a cell of its own, comments in Chinese": GIVEN
    + PREDICTED
    + CHOSEN
    + """
# 三个投影放在父类里
class 投影(nn.Module):
    def __init__(self, **大小):
        super().__init__()
        for 名, (进, 出) in 大小.items():
            self.add_module(名, nn.Linear(进, 出))
# %%
class SingleHead(投影):
    '''词 x 向词 y 提问。'''

    def __init__(self, d_model, d_head, d_value, key_size):
        super().__init__(
            q_proj=(d_model, d_head), k_proj=(key_size, d_head), v_proj=(key_size, d_value))

    def forward(self, 提问, 被问):
        问, 键, 值 = self.q_proj(提问), self.k_proj(被问), self.v_proj(被问)
        分数 = torch.matmul(问, 键.permute(0, 2, 1)) / math.sqrt(键.shape[2])
        指数 = (分数 - 分数.amax(2, True)).exp()  # 每一行减去最大值
        return 指数 @ 值 / 指数.sum(2, True)

class Repaired(nn.Module):
    def __init__(self, d_model, d_head, d_value):
        super().__init__()
        for 名, 出 in {"W_q": d_head, "W_k": d_head, "W_v": d_value}.items():
            self.register_parameter(名, nn.Parameter(torch.empty(d_model, 出).normal_()))

    def forward(self, 词):
        权 = 分(词 @ self.W_q, 词 @ self.W_k).softmax(-1)
        return 权 @ 词 @ self.W_v

分 = lambda 问, 键: 问 @ 键.mT / 问.shape[-1] ** 0.5
# %%
# 逆排列：第 order[n] 个位置的词现在在位置 n
逆 = lambda 排列: torch.tensor([排列.tolist().index(词) for 词 in range(len(排列))])
restore = lambda 输出, 排列: 输出.index_select(1, 逆(排列))
restore_weights = lambda 权, 排列: 权.index_select(1, 逆(排列)).index_select(2, 逆(排列))
shows_order, hides_order = (1, 2, 0, 4, 5, 3), (2, 3, 0, 1, 5, 4)
partner = lambda W, 矩阵: torch.linalg.lstsq(矩阵, W.T).solution.T
""",
    "einops, with the weights kept and shapes that were looked up": GIVEN
    + CHOSEN
    + """
from einops import einsum, rearrange
from mini_attention import SingleHeadAttention

layer = SingleHeadAttention(6, 5, d_value=2, key_size=3, value_size=10)
x, y, z = torch.randn(8, 7, 6), torch.randn(8, 9, 3), torch.randn(8, 9, 10)
shape_q, shape_k, shape_v = (
    p(t).shape for p, t in zip((layer.q_proj, layer.k_proj, layer.v_proj), (x, y, z)))
shape_output, shape_weights = [t.shape for t in layer(x, y, z, return_weights=True)]
shape_matrix = layer.k_proj.weight.shape
count = torch.tensor(sum(p.numel() for p in layer.parameters()))

class SingleHead(nn.Module):
    def __init__(self, d_model: int, d_head: int, d_value: int, key_size: int) -> None:
        super().__init__()
        self.q_proj = nn.Linear(d_model, d_head)
        self.k_proj, self.v_proj = nn.Linear(key_size, d_head), nn.Linear(key_size, d_value)
        self.dropout = nn.Dropout(0.0)
        self.weights = None

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        scores = einsum(self.q_proj(x), self.k_proj(y), "b i d, b j d -> b j i")
        self.weights = self.dropout(torch.softmax(scores / self.q_proj.out_features**0.5, dim=1))
        return einsum(self.weights, self.v_proj(y), "b j i, b j e -> b i e")

class Repaired(nn.Module):
    def __init__(self, d_model, d_head, d_value):
        super().__init__()
        self.W_q = nn.Parameter(torch.randn(d_model, d_head))
        self.W_k = nn.Parameter(torch.randn(d_model, d_head))
        self.W_v = nn.Parameter(torch.randn(d_model, d_value))

    def forward(self, x):
        q, k, v = (einsum(x, W, "b n m, m d -> b d n") for W in (self.W_q, self.W_k, self.W_v))
        w = attention_weights(rearrange(q, "b d n -> b n d"), rearrange(k, "b d n -> b n d"))
        return rearrange(einsum(w, v, "b i j, b e j -> b e i"), "b e i -> b i e")

def restore(mixed, order):
    return torch.zeros_like(mixed).index_copy(1, order, mixed)

def restore_weights(mixed, order):
    i, j = rearrange(order, "i -> i 1"), rearrange(order, "j -> 1 j")
    found = torch.zeros_like(mixed)
    found[:, i, j] = mixed
    return found

shows_order, hides_order = torch.arange(6).roll(2), torch.arange(6).roll(3)

def partner(W_q, A):
    return einsum(W_q, torch.linalg.pinv(A), "m d, c d -> m c").mT.contiguous().mT
""",
    "numpy and back, a gradient by hand": GIVEN
    + PREDICTED
    + """
import numpy as np

my_choices = tuple("bacabcbac")

class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores):
        numbers = scores.detach().numpy()
        powers = np.exp(numbers - numbers.max(-1, keepdims=True))
        weights = torch.from_numpy(powers / powers.sum(-1, keepdims=True))
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx, upstream):
        weights, = ctx.saved_tensors
        return weights * (upstream - (upstream * weights).sum(-1, keepdim=True))

class SingleHead(nn.Module):
    def __init__(self, d_model, d_head, d_value, key_size):
        super().__init__()
        self.q_proj = nn.Linear(d_model, d_head)
        self.k_proj = nn.Linear(key_size, d_head)
        self.v_proj = nn.Linear(key_size, d_value)
        self.register_buffer("root", torch.tensor(d_head).sqrt())

    def forward(self, x, y):
        scores = self.q_proj(x) @ self.k_proj(y).mT / self.root
        return Softmax.apply(scores) @ self.v_proj(y)

class Repaired(nn.Module):
    def __init__(self, d_model, d_head, d_value):
        super().__init__()
        matrices = (nn.Parameter(torch.randn(d_model, d)) for d in (d_head, d_head, d_value))
        self.W_q, self.W_k, self.W_v = matrices

    def forward(self, x):
        x, q, k, v = (t.detach().numpy() for t in (x, self.W_q, self.W_k, self.W_v))
        scores = (x @ q) @ (x @ k).transpose(0, 2, 1) / np.sqrt(q.shape[1])
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        return torch.from_numpy(powers @ (x @ v) / powers.sum(-1)[..., None])

def restore(output, order):
    return torch.from_numpy(output.numpy()[:, np.argsort(order.numpy())])

def restore_weights(weights, order):
    back = np.argsort(order.numpy())
    return torch.from_numpy(weights.numpy()[:, back[:, None], back[None]])

shows_order, hides_order = np.roll(np.arange(6), 1), np.arange(6)[::-1]

def partner(W_q, A):
    return torch.tensor(np.linalg.solve(A.numpy(), W_q.numpy().T).T)
""",
    "recursion, reduce and one word after the other": GIVEN
    + PREDICTED
    + """
from functools import partial, reduce

my_choices = list("BACABC") + ["B ", "A", "C"]

class SingleHead(nn.Module):
    def __init__(self, d_model, d_head, d_value, key_size):
        super().__init__()
        self.q_proj = nn.Linear(d_model, d_head)
        self.k_proj = nn.Linear(key_size, d_head)
        self.v_proj = nn.Linear(key_size, d_value)

    def forward(self, x, y):
        if x.dim() == 3:
            return torch.stack(list(map(self.forward, x, y)))
        nothing = torch.full((len(x), 1), -math.inf, dtype=x.dtype), 0, 0
        _, total, values = reduce(partial(self.look, self.q_proj(x)), y.split(1), nothing)
        return values / total

    def look(self, q, state, word):
        top, total, values = state
        score = nn.functional.linear(q, self.k_proj(word)) / q.shape[-1] ** 0.5
        higher = torch.maximum(top, score)
        shrink, power = (top - higher).exp(), (score - higher).exp()
        return higher, shrink * total + power, shrink * values + power * self.v_proj(word)

class Repaired(nn.Module):
    def __init__(self, d_model, d_head, d_value):
        super().__init__()
        self.W_q, self.W_k = (nn.Parameter(torch.randn(d_model, d_head)) for _ in "qk")
        self.W_v = nn.Parameter(torch.randn(d_model, d_value))

    def forward(self, x):
        return torch.vmap(self.of_item)(x)

    def of_item(self, words):
        k, v = words @ self.W_k, words @ self.W_v
        return torch.vmap(lambda word: self.of_word(word @ self.W_q, k, v))(words)

    def of_word(self, q, k, v):
        return (k @ q / len(q) ** 0.5).softmax(0) @ v

def back_of(order, place=0):
    if place == len(order):
        return []
    return [(order == place).nonzero().item(), *back_of(order, place + 1)]

def restore(output, order):
    return torch.stack([output[:, place] for place in back_of(order)], dim=1)

def restore_weights(weights, order):
    return restore(restore(weights, order).mT, order).mT

shows_order, hides_order = [3, 2, 4, 5, 1, 0], [n ^ 1 for n in range(6)]

def partner(W_q, A):
    # A^(-1) by Cayley and Hamilton's theorem, for any size: the powers of A, and traces
    n = len(A)
    step, c = torch.eye(n, dtype=A.dtype), torch.zeros((), dtype=A.dtype)
    for k in range(1, n + 1):
        last, c = step, -(A @ step).trace() / k
        step = A @ step + c * torch.eye(n, dtype=A.dtype)
    return W_q @ (-last / c).T
""",
    "views, a linear layer of one's own kind, addition to a product": GIVEN
    + PREDICTED
    + MOVED
    + CHOSEN
    + """
class Projection(nn.Linear):
    def reset_parameters(self):
        nn.init.xavier_uniform_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x):
        flat = x.reshape(-1, self.in_features)
        return torch.addmm(self.bias, flat, self.weight.t()).view(*x.shape[:-1], self.out_features)

class SingleHead(nn.Module):
    def __init__(self, d_model, d_head, d_value, key_size):
        super(SingleHead, self).__init__()
        sizes = [d_model, d_head, key_size, d_head, key_size, d_value]
        for name, m, d in zip(["q_proj", "k_proj", "v_proj"], sizes[::2], sizes[1::2]):
            setattr(self, name, Projection(m, d))

    def forward(self, x, y, mask=None):
        (b, i, _), j = x.shape, y.shape[1]
        scores = (self.q_proj(x).view(b, i, 1, -1) * self.k_proj(y).view(b, 1, j, -1)).sum(-1)
        weights = nn.Softmax(dim=-1)(scores / math.sqrt(self.q_proj.out_features))
        return (weights.unsqueeze(-1) * self.v_proj(y).unsqueeze(1)).sum(2)

class Repaired(nn.Module):
    def __init__(self, d_model, d_head, d_value):
        super(Repaired, self).__init__()
        W_v, W_k, W_q = (torch.randn(d_model, d) for d in (d_value, d_head, d_head))
        self.W_v, self.W_k, self.W_q = map(nn.Parameter, (W_v, W_k, W_q))
        self.alpha = 1 / math.sqrt(d_head)

    def forward(self, x):
        b, n, m = x.shape
        flat = x.reshape(b * n, m)
        q, k, v = (flat.mm(W).view(b, n, -1) for W in (self.W_q, self.W_k, self.W_v))
        scores = torch.baddbmm(x.new_zeros(1, 1, 1), q, k.mT, alpha=self.alpha)
        return torch.log_softmax(scores, -1).exp().bmm(v)

def partner(W_q, A):
    Q, R = torch.linalg.qr(A)
    return W_q.mm(torch.linalg.solve_triangular(R, Q.t(), upper=True).t())
""",
}

_PREDICTED = [
    ("queries as they come in", "shape_q = (8, 7, 6)", 2, "d_head features out of d_model"),
    ("queries with the features of values", "shape_q = (8, 7, 2)", 2, "not d_value"),
    ("no batch axis", "shape_q = (7, 5)", 2, "batch axis stays"),
    ("keys as they come in", "shape_k = (8, 9, 3)", 2, "out of key_size"),
    ("as many keys as queries", "shape_k = (8, 7, 5)", 2, "9 words that are asked"),
    ("keys transposed", "shape_k = (8, 5, 9)", 2, "transposes the keys later"),
    ("values with the compared features", "shape_v = (8, 9, 5)", 2, "values are not compared"),
    ("values as they come in", "shape_v = (8, 9, 10)", 2, "out of value_size"),
    ("weights transposed", "shape_weights = (8, 9, 7)", 2, "a column for each key"),
    ("weights of self-attention", "shape_weights = (8, 7, 7)", 2, "7 words ask 9 others"),
    ("weights without a batch", "shape_weights = (7, 9)", 2, "each item of the batch"),
    ("an output for each key", "shape_output = (8, 9, 2)", 2, "an output for each query"),
    ("an output of compared features", "shape_output = (8, 7, 5)", 2, "a mean of values"),
    ("an output of the model's width", "shape_output = (8, 7, 6)", 2, "no projection back"),
    ("the matrix as the book writes it", "shape_matrix = (3, 5)", 2, "outputs × inputs"),
    ("the matrix of a self-attention", "shape_matrix = (5, 6)", 2, "key_size features"),
    ("no biases", "count = 65", 2, "without the biases"),
    ("one width for all", "count = 84", 2, "q_proj only"),
    ("values as wide as keys", "count = 110", 2, "not d_head"),
    ("an output projection", "count = 95", 2, "no output projection"),
    ("no idea", "count = 1000", 2, "none of the usual slips"),
]  # fmt: skip

# `class SingleHead` in parts: a line is put in the place of that of the right answer
_PARTS = {
    "q_proj": "self.q_proj = nn.Linear(d_model, d_head)",
    "k_proj": "self.k_proj = nn.Linear(key_size, d_head)",
    "v_proj": "self.v_proj = nn.Linear(key_size, d_value)",
    "more": "pass",
    "q": "q = self.q_proj(x)",
    "k": "k = self.k_proj(y)",
    "v": "v = self.v_proj(y)",
    "scores": "scores = q @ k.mT / math.sqrt(q.shape[-1])",
    "weights": "weights = torch.softmax(scores, dim=-1)",
    "result": "return weights @ v",
}


def _head(**other: str) -> str:
    lines = [f"        {line}" for line in (_PARTS | other).values()]
    start = (
        "class SingleHead(nn.Module):\n    def __init__(self, d_model, d_head, d_value, key_size):"
    )
    made = ["        super().__init__()", *lines[:4], "    def forward(self, x, y):", *lines[4:]]
    return GIVEN + "\n".join([start, *made]) + "\n"


_HEADS = [
    ("no scale", {"scores": "scores = q @ k.mT"}, 1, "not divided by √d_head"),
    ("scaled by d_model", {"scores": "scores = q @ k.mT / math.sqrt(x.shape[-1])"}, 1,
     "√d_model"),
    ("scaled by d", {"scores": "scores = q @ k.mT / q.shape[-1]"}, 1, "not by its root"),
    ("over the queries", {"weights": "weights = torch.softmax(scores, dim=1)"}, 1,
     "over axis 1, the queries"),
    ("over the batch", {"weights": "weights = torch.softmax(scores, dim=0)"}, 1, "over the batch"),
    ("keys ask", {"scores": "scores = k @ q.mT / math.sqrt(q.shape[-1])"}, 1,
     "queries have changed places"),
    ("y is not used", {"k": "k = self.k_proj(x)", "v": "v = self.v_proj(x)"}, 2,
     "no gradient reaches y"),
    ("values of x", {"v": "v = self.v_proj(x)"}, 2, "values are made of x"),
    ("keys of x", {"k": "k = self.k_proj(x)"}, 2, "keys are made of x"),
    ("values made by k_proj", {"v": "v = self.k_proj(y)"}, 1, "k_proj makes the values too"),
    ("values as they come", {"v": "v = y"}, 1, "not projected"),
    ("keys made by q_proj", {"k": "k = self.q_proj(y)"}, 1, "q_proj makes the keys too"),
    ("d_value forgotten", {"v_proj": "self.v_proj = nn.Linear(key_size, d_head)"}, 2,
     "v_proj.weight"),
    ("key_size forgotten", {"k_proj": "self.k_proj = nn.Linear(d_model, d_head)"}, 2,
     "k_proj.weight"),
    ("no biases", {"q_proj": "self.q_proj = nn.Linear(d_model, d_head, bias=False)",
                   "k_proj": "self.k_proj = nn.Linear(key_size, d_head, bias=False)",
                   "v_proj": "self.v_proj = nn.Linear(key_size, d_value, bias=False)"}, 4,
     "has no bias"),
    ("an output projection", {"more": "self.out_proj = nn.Linear(d_value, d_value)",
                              "result": "return self.out_proj(weights @ v)"}, 0,
     "more than its three projections"),
    ("other names", {"q_proj": "self.W_q = nn.Linear(d_model, d_head)",
                     "q": "q = self.W_q(x)"}, 0, "has no q_proj"),
    ("no softmax", {"weights": "weights = scores"}, 1, "there is no softmax"),
    ("softmax twice", {"weights": "weights = scores.softmax(-1).softmax(-1)"}, 1, "applied twice"),
    ("detached weights", {"weights": "weights = scores.softmax(-1).detach()"}, 4,
     "no gradient reaches"),
    ("nothing learns", {"result": "return (weights @ v).detach()"}, 4, "a detach, a no_grad"),
    ("new projections in each call", {"v": "v = nn.Linear(y.shape[-1], 3)(y.float()).to(y)"}, 1,
     "no gradient reaches v_proj"),
    ("the weights", {"result": "return weights"}, 1, "these are the weights"),
]  # fmt: skip

_REPAIRED = {
    "W": "",
    "scores": "q @ k.mT / math.sqrt(q.shape[-1])",
    "weights": "torch.softmax(scores, dim=-1)",
    "result": "weights @ v",
    "W_v": "",
}


def _repaired(**other: str) -> str:
    parts = _REPAIRED | other
    return (
        GIVEN
        + """
class Repaired(nn.Module):
    def __init__(self, d_model, d_head, d_value):
        super().__init__()
        self.W_q = nn.Parameter(torch.randn(d_model, d_head))
        self.W_k = nn.Parameter(torch.randn(d_model, d_head))
        self.W_v = nn.Parameter(torch.randn(d_model, d_value))

    def forward(self, x):
        q, k, v = x @ self.W_q{W}, x @ self.W_k{W}, x @ self.W_v{W_v}
        scores = {scores}
        weights = {weights}
        return {result}
""".format(**parts)
    )


_BACK = "k @ q.mT / math.sqrt(q.shape[-1])"
_WIDE = "q @ k.mT / math.sqrt(x.shape[-1])"
_REPAIRS = [
    ("nothing repaired", {"W": ".T", "W_v": ".T", "scores": _BACK.replace("q.sh", "x.sh")}, 0,
     "nothing has changed"),
    ("the projections alone", {"scores": _BACK.replace("q.sh", "x.sh")}, 1, "each key asks"),
    ("all but the direction", {"scores": _BACK}, 2, "each key asks"),
    ("all but the scale", {"scores": _WIDE}, 3, "√d_model"),
    ("all but the projections", {"W": ".T", "W_v": ".T"}, 0, "made with W.T"),
    ("all but the values", {"W_v": ".T"}, 0, "W_v.T"),
    ("all but queries and keys", {"W": ".T"}, 1, "W_q and W_k are used as W.T"),
    ("the other axis instead of the other direction",
     {"scores": _BACK, "weights": "torch.softmax(scores, dim=-2)"}, 1, "belong to keys"),
    ("right scores, wrong axis", {"weights": "torch.softmax(scores, dim=-2)"}, 1,
     "over the queries"),
    ("the weights transposed", {"result": "weights.mT @ v"}, 1, "weights are transposed"),
    ("no scale any more", {"scores": "q @ k.mT"}, 1, "not divided any more"),
    ("scaled by the values' features", {"scores": "q @ k.mT / math.sqrt(v.shape[-1])"}, 3,
     "√d_value"),
    ("scaled by the number of words", {"scores": "q @ k.mT / math.sqrt(x.shape[1])"}, 1,
     "number of words"),
    ("d for its root", {"scores": "q @ k.mT / q.shape[-1]"}, 1, "not by its root"),
]  # fmt: skip

_MOVES = [
    ("the same order again", "def restore(output, order):\n    return output[:, order]", 2,
     "reorders once more"),
    ("items for words", "def restore(output, order):\n    return output[order.argsort()]", 2,
     "items of the batch"),
    ("nothing", "def restore(output, order):\n    return output", 2, "nothing has moved"),
    ("backwards", "def restore(output, order):\n    return output.flip(1)", 2, "reversed"),
    ("rows alone", "def restore_weights(w, order):\n    return w[:, order.argsort()]", 2,
     "only the rows"),
    ("columns alone", "def restore_weights(w, order):\n    return w[:, :, order.argsort()]", 2,
     "only the columns"),
    ("both once more", "def restore_weights(w, order):\n    return w[:, order][:, :, order]", 2,
     "reorders once more"),
    ("pairs instead of rows and columns",
     "def restore_weights(w, order):\n    back = order.argsort()\n    return w[:, back, back]", 2,
     "pick pairs"),
    ("a transpose",
     "def restore_weights(w, order):\n    b = order.argsort()\n    return w[:, b][:, :, b].mT", 2,
     "map is transposed"),
    ("weights as they come", "def restore_weights(w, order):\n    return w", 2,
     "nothing has moved"),
    ("the orders changed places", "shows_order, hides_order = hides_order, shows_order", 2,
     "undoes itself"),
    ("reversed shows nothing", "shows_order = [5, 4, 3, 2, 1, 0]", 2, "undoes itself"),
    ("a circle hides nothing", "hides_order = [1, 2, 3, 4, 5, 0]", 2, "two by two"),
    ("two circles hide nothing", "hides_order = [1, 2, 0, 4, 5, 3]", 2, "two by two"),
    ("words that stay", "hides_order = [1, 0, 2, 3, 4, 5]", 2, "every word has to move"),
    ("a place twice", "shows_order = [1, 1, 3, 4, 5, 0]", 2, "once, in some order"),
    ("counted from 1", "shows_order = [2, 3, 4, 5, 6, 1]", 2, "the places 0 to 5"),
]  # fmt: skip

_PARTNERS = [
    ("A", "return W_q @ A", 0, "A has to be undone"),
    ("A transposed", "return W_q @ A.T", 0, "A^T changes"),
    ("no transpose", "return W_q @ A.inverse()", 1, "in the middle of the scores"),
    ("the inverse of each number", "return W_q @ (1 / A).T", 0, "of each number"),
    ("each number that is not 0", "return W_q @ torch.where(A == 0, A, 1 / A).T", 1,
     "of each number"),
    ("the diagonal alone", "return W_q / A.diagonal()", 1, "only the diagonal"),
    ("no change", "return W_q", 0, "has not changed, but W_k has"),
    ("from the left", "return A.inverse().T @ W_q", 0, "raised RuntimeError"),
    ("with a minus", "return -W_q @ A.inverse().T", 0, "this is minus"),
    ("the inverse alone", "return A.inverse().T", 0, "the shape must be"),
    ("A undone twice", "return W_q @ (A @ A.T).inverse()", 0, "once is enough"),
    ("transposed", "return (W_q @ A.inverse().T).T", 0, "the shape must be"),
]  # fmt: skip

_CHOSEN = [
    ("a sign is nothing", "AACABCBAC", 2, "1 is not A"),
    ("a sign is for the output", "CACABCBAC", 2, "W_q is for the scores"),
    ("two signs are two changes", "BBCABCBAC", 2, "2 is not B"),
    ("values have weights", "BABABCBAC", 2, "3 is not B"),
    ("keys with a bias", "BACBBCBAC", 2, "4 is not B"),
    ("queries as keys", "BACAACBAC", 2, "that is so for the keys"),
    ("a bias goes unseen", "BACABABAC", 2, "added to every output"),
    ("a symmetric pair", "BACABCAAC", 2, "unless it is symmetric"),
    ("2 and 1/2", "BACABCBBC", 2, "cancel"),
    ("columns have no order", "BACABCBAA", 2, "in their new order"),
    ("all alike", "BBBBBBBBB", 0, "values take no part"),
    ("too few", "BACABCBA", 0, "9 letters are expected"),
]

WRONG = [
    *(("shapes", name, GIVEN + PREDICTED + code, points, words)
      for name, code, points, words in _PREDICTED),
    *(("single-head", name, _head(**other), points, words)
      for name, other, points, words in _HEADS),
    *(("repair", name, _repaired(**other), points, words)
      for name, other, points, words in _REPAIRS),
    *(("order", name, GIVEN + MOVED + code, points, words)
      for name, code, points, words in _MOVES),
    *(("partner", name, f"{GIVEN}\ndef partner(W_q, A):\n    {code}", points, words)
      for name, code, points, words in _PARTNERS),
    *(("changes", name, f"my_choices = {list(letters)}", points, words)
      for name, letters, points, words in _CHOSEN),
]  # fmt: skip


BORROWED = [
    (
        "single-head",
        "the package's head",
        GIVEN
        + """
import mini_attention
class SingleHead(mini_attention.SingleHeadAttention):
    def __init__(self, d_model, d_head, d_value, key_size):
        super().__init__(d_model, d_head, d_value=d_value, key_size=key_size, value_size=key_size)
""",
    ),
]
