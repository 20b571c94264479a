"""Answers to assignment 3: right ones in several styles, and wrong ones with what they get.

RIGHT    "question: how it is written": the cell
WRONG    question, what is wrong, the cell, the points it gets, words of a hint that names it
BORROWED question, what it is, the cell: answers that are not one's own
BEFORE   how many of the source's cells come before: all, so that an answer replaces one of them
"""

BEFORE = None

RIGHT = {
    "predict-heads: numbers as floats, tuples": """
chased_in_head_1 = (0, 2)
weights_shape = (2, 3, 5, 7)
parameters = 480.0
with_six_heads = ("same", "same", "double", "half")
""",
    "predict-heads: let the computer tell": """
from mini_attention import MultiHeadAttention
chased_in_head_1 = rearrange(x, "n (h d) -> h n d", h=2)[1, 1]
weights_shape = list(torch.zeros(2, 3, 5, 7).shape)
parameters = sum(
    p.numel() for p in MultiHeadAttention(12, 3, key_size=7, value_size=5).parameters())
""",
    "split-and-merge: view and transpose, other names": """
def split(tokens, num_heads):
    b, n, m = tokens.shape
    return tokens.view(b, n, num_heads, m // num_heads).transpose(1, 2)

def merge(t):
    return t.transpose(1, 2).flatten(2)

def terms(t, W):
    h, e = t.shape[1], t.shape[3]
    return t @ W.view(1, h, e, -1)
""",
    "split-and-merge: loops": """
def split(x, h):
    b, n, m = x.shape
    d = m // h
    out = torch.zeros(b, h, n, d)
    for item in range(b):
        for head in range(h):
            for word in range(n):
                for f in range(d):
                    out[item, head, word, f] = x[item, word, head * d + f]
    return out

def merge(heads):
    return torch.cat([heads[:, k] for k in range(heads.shape[1])], dim=-1)

def terms(heads, W_o):
    e = heads.shape[-1]
    parts = []
    for k in range(heads.shape[1]):
        parts.append(heads[:, k] @ W_o[k * e:(k + 1) * e])
    return torch.stack(parts, dim=1)
""",
    "split-and-merge: chunks, float64, einsum, not contiguous": """
def split(x, h):
    return torch.stack(x.double().chunk(h, dim=-1)).transpose(0, 1)

def merge(heads):
    return heads.permute(0, 2, 1, 3).reshape(heads.shape[0], heads.shape[2], -1).double()

def terms(heads, W_o):
    blocks = torch.stack(W_o.chunk(heads.shape[1]))
    return torch.einsum("bhie,hem->bihm", heads, blocks).transpose(1, 2)
""",
    "multi-head: a list of heads": """
class MultiHead(torch.nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.d = d_model // num_heads
        for name in ["q_proj", "k_proj", "v_proj", "out_proj"]:
            setattr(self, name, torch.nn.Linear(d_model, d_model))

    def forward(self, q, k, v):
        q, k, v = self.q_proj(q), self.k_proj(k), self.v_proj(v)
        heads = []
        for head in range(self.h):
            part = slice(head * self.d, (head + 1) * self.d)
            scores = q[..., part] @ k[..., part].transpose(-1, -2) / self.d ** 0.5
            heads.append(torch.softmax(scores, -1) @ v[..., part])
        return self.out_proj(torch.cat(heads, -1))
""",
    "multi-head: einsum without a transpose": """
class MultiHead(torch.nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.out_proj = torch.nn.Linear(d_model, d_model)
        self.v_proj = torch.nn.Linear(d_model, d_model)
        self.k_proj = torch.nn.Linear(d_model, d_model)
        self.q_proj = torch.nn.Linear(d_model, d_model)

    def forward(self, query, key, value):
        q, k, v = [t.unflatten(-1, (self.num_heads, -1)) for t in (
            self.q_proj(query), self.k_proj(key), self.v_proj(value))]
        scores = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(q.shape[-1])
        heads = torch.einsum("bhij,bjhe->bihe", scores.softmax(-1), v)
        return self.out_proj(heads.flatten(2))
""",
    "multi-head: torch's kernel for the formula, a contiguous view back": """
class MultiHead(torch.nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.q_proj = torch.nn.Linear(d_model, d_model)
        self.k_proj = torch.nn.Linear(d_model, d_model)
        self.v_proj = torch.nn.Linear(d_model, d_model)
        self.out_proj = torch.nn.Linear(d_model, d_model)

    def forward(self, query, key, value):
        b, i, m = query.shape
        def heads(t):
            return t.view(t.shape[0], -1, self.h, m // self.h).transpose(1, 2)
        out = torch.nn.functional.scaled_dot_product_attention(
            heads(self.q_proj(query)), heads(self.k_proj(key)), heads(self.v_proj(value)))
        return self.out_proj(out.transpose(1, 2).contiguous().view(b, i, m))
""",
    "carry-over: slices": """
def carry_over(s):
    m = len(s["out_proj.bias"])
    b = s["in_proj_bias"]
    out = dict(s)
    W = out.pop("in_proj_weight", None)
    out.pop("in_proj_bias")
    if W is None:
        W = [out.pop("q_proj_weight"), out.pop("k_proj_weight"), out.pop("v_proj_weight")]
    else:
        W = [W[:m], W[m:2 * m], W[2 * m:]]
    for name, w, start in zip("qkv", W, (0, m, 2 * m)):
        out[name + "_proj.weight"] = w.clone()
        out[name + "_proj.bias"] = b[start:start + m].double()
    return out
""",
    "carry-over: einops": """
def carry_over(state):
    result = {k: v for k, v in state.items() if k.startswith("out_proj")}
    q, k, v = rearrange(state["in_proj_bias"], "(three m) -> three m", three=3)
    result.update({"q_proj.bias": q, "k_proj.bias": k, "v_proj.bias": v})
    try:
        q, k, v = rearrange(state["in_proj_weight"], "(three a) m -> three a m", three=3)
    except KeyError:
        q, k, v = state["q_proj_weight"], state["k_proj_weight"], state["v_proj_weight"]
    result.update({"q_proj.weight": q, "k_proj.weight": k, "v_proj.weight": v})
    return result
""",
    "view-or-transpose: sets of heads, nested lists": """
def unnoticed(words, heads):
    if words == 1:
        return True
    return True if heads == 1 else False

def meets(n, h):
    owner = [{(word * h + part) // n for part in range(h)} for word in range(n)]
    return [[len(owner[i] & owner[j]) > 0 for j in range(n)] for i in range(n)]
""",
    "view-or-transpose: first and last head, answers as tensors": """
def unnoticed(n, h):
    return torch.tensor(min(n, h) == 1)

def meets(n, h):
    p = torch.arange(n)
    first, last = (p * h) // n, (p * h + h - 1) // n
    return (first[:, None] <= last[None, :]) & (first[None, :] <= last[:, None])
""",
    "view-or-transpose: overlaps are moved through a view": """
def unnoticed(n, h):
    numbers = torch.arange(n * h)
    return torch.equal(numbers.view(h, n), numbers.view(n, h).T)

def meets(n, h):
    word = torch.arange(n).repeat_interleave(h).view(h, n)
    table = torch.zeros(n, n, dtype=torch.int64)
    for head in word:
        for i in head:
            for j in head:
                table[i, j] = 1
    return table > 0
""",
    "mend-heads: einops and the package's formula": """
def mended(query, key, value, num_heads):
    q, k, v = [rearrange(t, "b n (h d) -> b h n d", h=num_heads) for t in (query, key, value)]
    return rearrange(attention(q, k, v), "b h n d -> b n (h d)")
""",
    "mend-heads: the letters of einsum changed, in float64": """
def mended(q, k, v, h):
    b, i, m = q.shape
    q = q.reshape(b, -1, h, m // h).double()
    k = k.reshape(b, -1, h, m // h).double()
    v = v.reshape(b, -1, h, m // h).double()
    scores = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(m / h)
    weights = scores.softmax(dim=-1)
    heads = torch.einsum("bhij,bjhd->bihd", weights, v)
    return heads.reshape(b, i, m)
""",
    "mend-heads: loops over items and heads": """
def mended(q, k, v, h):
    d = q.shape[-1] // h
    out = torch.empty_like(q)
    for item in range(len(q)):
        for head in range(h):
            f = slice(head * d, head * d + d)
            scores = q[item, :, f] @ k[item, :, f].T * d ** -0.5
            out[item, :, f] = torch.softmax(scores, dim=1) @ v[item, :, f]
    return out
""",
}

LAYER = """
class MultiHead(torch.nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj = torch.nn.Linear(d_model, d_model)
        self.k_proj = torch.nn.Linear(d_model, d_model)
        self.v_proj = torch.nn.Linear(d_model, d_model)
        self.out_proj = torch.nn.Linear(d_model, d_model)

    def forward(self, query, key, value):
        q = split(self.q_proj(query), self.num_heads)
        k = split(self.k_proj(key), self.num_heads)
        v = split(self.v_proj(value), self.num_heads)
        return self.out_proj(merge(attention(q, k, v)))
"""
CARRIED = """
def carry_over(state):
    if "in_proj_weight" in state:
        weights = state["in_proj_weight"].chunk(3)
    else:
        weights = [state[f"{role}_proj_weight"] for role in "qkv"]
    biases = state["in_proj_bias"].chunk(3)
    ours = {name: state[name] for name in ("out_proj.weight", "out_proj.bias")}
    for role, weight, bias in zip("qkv", weights, biases):
        ours |= {f"{role}_proj.weight": weight, f"{role}_proj.bias": bias}
    return ours
"""
MENDED = """
def mended(q, k, v, h):
    b, i, m = q.shape
    q = q.view(b, -1, h, m // h).transpose(1, 2)
    k = k.view(b, -1, h, m // h).transpose(1, 2)
    v = v.view(b, -1, h, m // h).transpose(1, 2)
    scores = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(m // h)
    weights = scores.softmax(dim=-1)
    heads = torch.einsum("bhij,bhjd->bhid", weights, v)
    return heads.transpose(1, 2).reshape(b, i, m)
"""


def but(text, *changes):
    """A right answer with some of its text replaced."""
    for old, new in changes:
        assert text.count(old) == 1, (old, text.count(old))
        text = text.replace(old, new)
    return text


# question, what is wrong, the cell, the points it gets, a phrase of the hint
WRONG = [
    # Predictions: one of four
    ("predict-heads", "every second feature", "chased_in_head_1 = [1, 2]", 3, "every second"),
    ("predict-heads", "head 0", "chased_in_head_1 = [0.0, 1.0]", 3, "counted from 0"),
    ("predict-heads", "by view", "chased_in_head_1 = [0.0, 0.0]", 3, "a view"),
    ("predict-heads", "all features", "chased_in_head_1 = [0, 1, 0, 2]", 3, "gets two of them"),
    ("predict-heads", "keys are rows", "weights_shape = [2, 3, 7, 5]", 3, "i comes before j"),
    ("predict-heads", "queries twice", "weights_shape = [2, 3, 5, 5]", 3, "j is 7"),
    ("predict-heads", "the heads' outputs", "weights_shape = [2, 3, 5, 4]", 3, "b h i e"),
    ("predict-heads", "no axis of heads", "weights_shape = [2, 5, 7]", 3, "heads is missing"),
    ("predict-heads", "heads compared", "weights_shape = [2, 5, 3, 3]", 3, "inside each position"),
    ("predict-heads", "one size for all", "parameters = 4 * 13 * 12", 3, "keys come with 7"),
    ("predict-heads", "no biases", "parameters = 432", 3, "biases are missing"),
    ("predict-heads", "no output projection", "parameters = 324", 3, "output projection"),
    ("predict-heads", "wide heads", "parameters = 3 * (156 + 96 + 72) + 156", 3, "full width"),
    ("predict-heads", "a third of it", "parameters = 160", 3, "nothing is divided by 3"),
    (
        "predict-heads",
        "more heads, more parameters",
        'with_six_heads = ["double", "same", "double", "half"]',
        3,
        "parameters stay the same",
    ),
    (
        "predict-heads",
        "more heads, more products",
        'with_six_heads = ["same", "double", "double", "half"]',
        3,
        "multiply-adds stay the same",
    ),
    (
        "predict-heads",
        "as many weights",
        'with_six_heads = ["same", "same", "same", "half"]',
        3,
        "double the weights",
    ),
    (
        "predict-heads",
        "as many features",
        'with_six_heads = ["same", "same", "double", "same"]',
        3,
        "half of the features",
    ),
    ("predict-heads", "three words", 'with_six_heads = ["same"] * 3', 3, "a list of four words"),
    (
        "predict-heads",
        "all of it",
        "chased_in_head_1 = [1, 2]\nweights_shape = [2, 5, 7]\nparameters = 432\n"
        'with_six_heads = ["double"] * 4',
        0,
        "every second",
    ),
    # Split
    (
        "split-and-merge",
        "split by view",
        "def split(x, h):\n    b, n, m = x.shape\n    return x.view(b, h, n, m // h)",
        2,
        "cut by a view in the order of memory",
    ),
    (
        "split-and-merge",
        "features dealt out",
        'def split(x, h):\n    return rearrange(x, "b n (d h) -> b h n d", h=h)',
        2,
        "dealt out to the heads one by one",
    ),
    (
        "split-and-merge",
        "h counts features",
        'def split(x, h):\n    return rearrange(x, "b n (h d) -> b h n d", d=h)',
        2,
        "h counts the heads",
    ),
    (
        "split-and-merge",
        "heads not moved",
        'def split(x, h):\n    return rearrange(x, "b n (h d) -> b n h d", h=h)',
        2,
        "moved in front of the positions",
    ),
    (
        "split-and-merge",
        "features before positions",
        'def split(x, h):\n    return rearrange(x, "b n (h d) -> b h d n", h=h)',
        2,
        "n d, not d n",
    ),
    (
        "split-and-merge",
        "heads before items",
        'def split(x, h):\n    return rearrange(x, "b n (h d) -> h b n d", h=h)',
        2,
        "heads come behind the items",
    ),
    (
        "split-and-merge",
        "items and heads in one axis",
        'def split(x, h):\n    return rearrange(x, "b n (h d) -> (b h) n d", h=h)',
        2,
        "an axis each",
    ),
    (
        "split-and-merge",
        "no items",
        'def split(x, h):\n    return rearrange(x, "n (h d) -> h n d", h=h)',
        2,
        "split raised",
    ),
    (
        "split-and-merge",
        "two heads always",
        'def split(x, h):\n    return rearrange(x, "b n (h d) -> b h n d", h=2)',
        2,
        "split raised",
    ),
    # Merge
    (
        "split-and-merge",
        "merged by view",
        "def merge(heads):\n    b, h, n, e = heads.shape\n    return heads.reshape(b, n, h * e)",
        2,
        "glued by a view",
    ),
    (
        "split-and-merge",
        "merged out of order",
        'def merge(heads):\n    return rearrange(heads, "b h n e -> b n (e h)")',
        2,
        "one feature of each head in turn",
    ),
    (
        "split-and-merge",
        "not glued",
        'def merge(heads):\n    return rearrange(heads, "b h n e -> b n h e")',
        2,
        "not glued",
    ),
    (
        "split-and-merge",
        "heads added",
        "def merge(heads):\n    return heads.sum(1)",
        2,
        "not added",
    ),
    (
        "split-and-merge",
        "a mean of heads",
        "def merge(heads):\n    return heads.mean(dim=1)",
        2,
        "not averaged",
    ),
    (
        "split-and-merge",
        "flattened without a transpose",
        "def merge(heads):\n    return heads.flatten(2)",
        2,
        "the shape must be (2, 5, 21) here; got (2, 3, 35)",
    ),
    # Terms
    (
        "split-and-merge",
        "terms added",
        "def terms(heads, W_o):\n    return (merge(heads) @ W_o)",
        2,
        "terms are added up",
    ),
    (
        "split-and-merge",
        "columns of W_o",
        "def terms(heads, W_o):\n"
        '    blocks = rearrange(W_o, "m (h e) -> h e m", h=heads.shape[1])\n'
        '    return einsum(heads, blocks, "b h i e, h e m -> b h i m")',
        2,
        "here they are columns",
    ),
    (
        "split-and-merge",
        "every third row",
        "def terms(heads, W_o):\n"
        '    blocks = rearrange(W_o, "(e h) m -> h e m", h=heads.shape[1])\n'
        '    return einsum(heads, blocks, "b h i e, h e m -> b h i m")',
        2,
        "every third",
    ),
    (
        "split-and-merge",
        "the first block for all",
        "def terms(heads, W_o):\n    return heads @ W_o[:heads.shape[-1]]",
        2,
        "the first block",
    ),
    (
        "split-and-merge",
        "heads in front",
        "def terms(heads, W_o):\n"
        '    blocks = rearrange(W_o, "(h e) m -> h e m", h=heads.shape[1])\n'
        '    return einsum(heads, blocks, "b h i e, h e m -> h b i m")',
        2,
        "behind the items",
    ),
    (
        "split-and-merge",
        "nothing is right",
        "def split(x, h):\n    return x.view(x.shape[0], h, x.shape[1], -1)\n"
        "def merge(heads):\n    return heads.reshape(len(heads), heads.shape[2], -1)\n"
        "def terms(heads, W_o):\n    return merge(heads) @ W_o",
        0,
        "cut by a view",
    ),
    # The layer
    (
        "multi-head",
        "no output projection",
        but(LAYER, ("self.out_proj(merge(attention(q, k, v)))", "merge(attention(q, k, v))")),
        1,
        "no output projection",
    ),
    (
        "multi-head",
        "no out_proj at all",
        but(
            LAYER,
            ("        self.out_proj = torch.nn.Linear(d_model, d_model)\n", ""),
            ("self.out_proj(merge(attention(q, k, v)))", "merge(attention(q, k, v))"),
        ),
        0,
        "no linear layer out_proj",
    ),
    (
        "multi-head",
        "projections of one head",
        but(
            LAYER,
            (
                "self.q_proj = torch.nn.Linear(d_model, d_model)",
                "self.q_proj = torch.nn.Linear(d_model, d_model // num_heads)",
            ),
        ),
        0,
        "the heads together have d_model features",
    ),
    (
        "multi-head",
        "no biases",
        LAYER.replace("(d_model, d_model)", "(d_model, d_model, bias=False)"),
        0,
        "has no bias",
    ),
    (
        "multi-head",
        "split by view",
        but(
            LAYER,
            (
                "q = split(",
                "def split(t, h):\n            b, n, m = t.shape\n"
                "            return t.view(b, h, n, m // h)\n        q = split(",
            ),
            ("merge(attention(q, k, v))", "attention(q, k, v).reshape(query.shape)"),
        ),
        1,
        "split by view",
    ),
    (
        "multi-head",
        "merged by view",
        but(LAYER, ("merge(attention(q, k, v))", "attention(q, k, v).reshape(query.shape)")),
        1,
        "merged by view",
    ),
    (
        "multi-head",
        "over heads",
        but(
            LAYER,
            (
                "merge(attention(q, k, v))",
                "attention(q.transpose(1, 2), k.transpose(1, 2), "
                "v.transpose(1, 2)).reshape(query.shape)",
            ),
        ),
        1,
        "attends over heads",
    ),
    (
        "multi-head",
        "scaled by the model's width",
        but(LAYER, ("attention(q, k, v)", "attention(q, k, v, scale=query.shape[-1] ** -0.5)")),
        1,
        "scaled by model width",
    ),
    (
        "multi-head",
        "no scale",
        but(LAYER, ("attention(q, k, v)", "attention(q, k, v, scale=1.0)")),
        1,
        "no scale",
    ),
    (
        "multi-head",
        "keys by the query's projection",
        but(LAYER, ("self.k_proj(key)", "self.q_proj(key)")),
        1,
        "keys by query projection",
    ),
    (
        "multi-head",
        "softmax over queries",
        but(LAYER, ("attention(q, k, v)", "((q @ k.mT / math.sqrt(q.shape[-1])).softmax(-2) @ v)")),
        1,
        "softmax over queries",
    ),
    (
        "multi-head",
        "values from the keys",
        but(LAYER, ("self.v_proj(value)", "self.v_proj(key)")),
        3,
        "the values are made of the key",
    ),
    (
        "multi-head",
        "keys from the query",
        but(
            LAYER,
            ("self.k_proj(key)", "self.k_proj(query)"),
            ("self.v_proj(value)", "self.v_proj(query)"),
        ),
        3,
        "keys and values are made of the query",
    ),
    (
        "multi-head",
        "as many keys as queries",
        but(
            LAYER,
            (
                "k = split(self.k_proj(key), self.num_heads)",
                "k = split(self.k_proj(key), self.num_heads).reshape(q.shape)",
            ),
        ),
        3,
        "raised RuntimeError",
    ),
    (
        "multi-head",
        "weights detached",
        but(LAYER, ("attention(q, k, v)", "attention(q.detach(), k.detach(), v)")),
        4,
        "something is detached",
    ),
    (
        "multi-head",
        "everything detached",
        but(
            LAYER,
            (
                "self.out_proj(merge(attention(q, k, v)))",
                "self.out_proj(merge(attention(q, k, v))).detach()",
            ),
        ),
        4,
        "the output is detached",
    ),
    # Parameters from torch
    (
        "carry-over",
        "keys first",
        but(CARRIED, ('zip("qkv", weights', 'zip("kqv", weights')),
        0,
        "this is the weight of k_proj",
    ),
    (
        "carry-over",
        "transposed",
        but(CARRIED, ('f"{role}_proj.weight": weight,', 'f"{role}_proj.weight": weight.T,')),
        1,
        "transposed",
    ),
    (
        "carry-over",
        "sorted by heads",
        but(
            CARRIED,
            (
                'weights = state["in_proj_weight"].chunk(3)',
                'weights = rearrange(state["in_proj_weight"], "(h t d) m -> t (h d) m", h=3, t=3)',
            ),
        ),
        2,
        "sorted by heads",
    ),
    (
        "carry-over",
        "every third row",
        but(
            CARRIED,
            (
                'state["in_proj_weight"].chunk(3)',
                '[state["in_proj_weight"][i::3] for i in range(3)]',
            ),
        ),
        2,
        "every third row",
    ),
    (
        "carry-over",
        "along the columns",
        but(
            CARRIED, ('state["in_proj_weight"].chunk(3)', 'state["in_proj_weight"].chunk(3, dim=1)')
        ),
        2,
        "along the columns",
    ),
    (
        "carry-over",
        "the whole for each",
        but(CARRIED, ('state["in_proj_weight"].chunk(3)', '[state["in_proj_weight"]] * 3')),
        2,
        "the whole of in_proj_weight",
    ),
    (
        "carry-over",
        "biases forgotten",
        but(CARRIED, (', f"{role}_proj.bias": bias', "")),
        2,
        "q_proj.bias is missing",
    ),
    ("carry-over", "biases of 0", but(CARRIED, (": bias}", ": 0 * bias}")), 2, "were not copied"),
    (
        "carry-over",
        "biases in another order",
        but(CARRIED, ('state["in_proj_bias"].chunk(3)', 'state["in_proj_bias"].chunk(3)[::-1]')),
        2,
        "this is the bias of v_proj",
    ),
    (
        "carry-over",
        "one size only",
        but(
            CARRIED,
            (
                'weights = [state[f"{role}_proj_weight"] for role in "qkv"]',
                'weights = state["in_proj_weight"].chunk(3)',
            ),
        ),
        2,
        "raised KeyError",
    ),
    (
        "carry-over",
        "the output projection forgotten",
        but(CARRIED, ('("out_proj.weight", "out_proj.bias")', "()")),
        0,
        "out_proj.weight is missing",
    ),
    (
        "carry-over",
        "torch's names",
        but(CARRIED, ('f"{role}_proj.weight"', 'f"{role}_proj_weight"')),
        1,
        "q_proj.weight is missing",
    ),
    ("carry-over", "a list", "def carry_over(state):\n    return list(state)", 0, "returns a dict"),
    # A view where a transpose is needed
    (
        "view-or-transpose",
        "as many words as heads",
        "def unnoticed(n, h):\n    return n == h",
        2,
        "as many words as heads",
    ),
    (
        "view-or-transpose",
        "whole words only",
        "def unnoticed(n, h):\n    return n % h == 0",
        2,
        "no word is cut",
    ),
    (
        "view-or-transpose",
        "one head only",
        "def unnoticed(n, h):\n    return h == 1",
        2,
        "a number of words that hides it",
    ),
    (
        "view-or-transpose",
        "one word only",
        "def unnoticed(n, h):\n    return n == 1",
        2,
        "a number of heads that hides it",
    ),
    (
        "view-or-transpose",
        "one of each",
        "def unnoticed(n, h):\n    return n == 1 and h == 1",
        2,
        "either is enough",
    ),
    (
        "view-or-transpose",
        "always noticed",
        "def unnoticed(n, h):\n    return False",
        2,
        "try the smallest",
    ),
    (
        "view-or-transpose",
        "never noticed",
        "def unnoticed(n, h):\n    return True",
        2,
        "two words and two heads",
    ),
    (
        "view-or-transpose",
        "the other way round",
        "def unnoticed(n, h):\n    return n > 1 and h > 1",
        2,
        "where nothing is noticed",
    ),
    (
        "view-or-transpose",
        "all meet",
        "def meets(n, h):\n    return torch.ones(n, n).bool()",
        1,
        "this is the right layer",
    ),
    (
        "view-or-transpose",
        "nobody meets",
        "def meets(n, h):\n    return torch.eye(n) > 0",
        1,
        "attends over heads",
    ),
    (
        "view-or-transpose",
        "where a word begins",
        "def meets(n, h):\n    head = torch.arange(n) * h // n\n    return head[:, None] == head",
        2,
        "where a word begins",
    ),
    (
        "view-or-transpose",
        "where a word ends",
        "def meets(n, h):\n    head = (torch.arange(n) * h + h - 1) // n\n"
        "    return head[:, None] == head",
        2,
        "where a word ends",
    ),
    (
        "view-or-transpose",
        "whole words",
        "def meets(n, h):\n    head = torch.arange(n) // math.ceil(n / h)\n"
        "    return head[:, None] == head",
        2,
        "where a word begins",
    ),
    (
        "view-or-transpose",
        "every h-th word",
        "def meets(n, h):\n    head = torch.arange(n) % h\n    return head[:, None] == head",
        1,
        "not every h-th word",
    ),
    (
        "view-or-transpose",
        "neighbours",
        "def meets(n, h):\n    p = torch.arange(n)\n    return (p[:, None] - p).abs() < n / h",
        1,
        "a head has fixed ends",
    ),
    (
        "view-or-transpose",
        "who does not meet",
        "def meets(n, h):\n    part = torch.arange(n * h)\n"
        "    has = torch.zeros(n, h, dtype=torch.bool)\n    has[part // h, part // n] = True\n"
        "    return ~(has[:, None] & has).any(-1)",
        1,
        "who does not meet",
    ),
    # Mend
    (
        "mend-heads",
        "untouched",
        "def mended(q, k, v, h):\n    return over_heads(q, k, v, h)",
        0,
        "mended raised",
    ),
    (
        "mend-heads",
        "over heads with sizes that fit",
        "def mended(q, k, v, h):\n"
        "    return over_heads(q, k[:, :q.shape[1]], v[:, :q.shape[1]], h)",
        0,
        "another word's change moves nothing",
    ),
    (
        "mend-heads",
        "the model's width in the scale",
        but(MENDED, ("math.sqrt(m // h)", "math.sqrt(m)")),
        1,
        "the square root of all features",
    ),
    (
        "mend-heads",
        "merged by reshape",
        but(MENDED, ("heads.transpose(1, 2).reshape", "heads.reshape")),
        1,
        "the reshape at the end",
    ),
    (
        "mend-heads",
        "one of three mended",
        but(
            MENDED,
            ("math.sqrt(m // h)", "math.sqrt(m)"),
            ("heads.transpose(1, 2).reshape", "heads.reshape"),
        ),
        1,
        "two things are left",
    ),
    ("mend-heads", "no scale", but(MENDED, (" / math.sqrt(m // h)", "")), 1, "not divided"),
    (
        "mend-heads",
        "no root",
        but(MENDED, ("math.sqrt(m // h)", "(m // h)")),
        1,
        "not its square root",
    ),
    (
        "mend-heads",
        "softmax over queries",
        but(MENDED, ("softmax(dim=-1)", "softmax(dim=-2)")),
        1,
        "runs over the queries",
    ),
    (
        "mend-heads",
        "one head",
        "def mended(q, k, v, h):\n    return attention(q, k, v)",
        1,
        "one head with all features",
    ),
    (
        "mend-heads",
        "not glued",
        but(MENDED, ("heads.transpose(1, 2).reshape(b, i, m)", "heads")),
        0,
        "not glued",
    ),
    (
        "mend-heads",
        "only the query transposed",
        MENDED.replace(
            "k = k.view(b, -1, h, m // h).transpose(1, 2)", "k = k.view(b, -1, h, m // h)"
        ),
        0,
        "mended raised",
    ),
    (
        "mend-heads",
        "by view",
        "def mended(q, k, v, h):\n    b, i, m = q.shape\n"
        "    q, k, v = (t.reshape(b, h, -1, m // h) for t in (q, k, v))\n"
        "    return attention(q, k, v).reshape(b, i, m)",
        0,
        "cut along the sentence",
    ),
]


FORWARD = """
    def forward(self, query, key, value):
        d_model, num_heads = query.shape[-1], self.num_heads
        layer = CALL
        output = layer(query, key, value)
        return output[0] if isinstance(output, tuple) else output
"""
BORROWED = [
    ("multi-head", "the package's layer",
     LAYER + FORWARD.replace("CALL", "mini_attention.MultiHeadAttention(d_model, num_heads)")),
    ("multi-head", "torch's layer",
     LAYER + FORWARD.replace(
         "CALL", "torch.nn.MultiheadAttention(d_model, num_heads, batch_first=True)")),
    ("carry-over", "the package's copy", """
def carry_over(state):
    theirs = torch.nn.MultiheadAttention(15, 3, batch_first=True)
    theirs.load_state_dict(state)
    return mini_attention.MultiHeadAttention.from_torch(theirs).state_dict()
"""),
]  # fmt: skip
