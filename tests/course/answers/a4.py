"""Answers to assignment 4: right ones in several styles, and wrong ones with what they get.

RIGHT    "question: how it is written": the cell
WRONG    question, what is wrong, the cell, the points it gets (for the test that is written, the
         wrong programs it catches), words of a hint that names it
BORROWED question, what it is, the cell: answers that are not one's own
BEFORE   how many of the source's cells come before: all, so that an answer replaces one of them
"""

BEFORE = None

RIGHT = {
    "predict-masks: decimals, a tuple, a tensor": """
mouse_weights = (0.182, 0.727, 0.091, 0, 0)
pairs_allowed = 12.0
empty_rows = torch.tensor([0, 1])
""",
    "predict-masks: let the computer tell": """
shares = torch.tensor([2.0, 8.0, 1.0, 0.0, 0.0])
mouse_weights = (shares / shares.sum()).tolist()
pairs_allowed = int(torch.ones(3, 5).tril(2).sum())
empty_rows = [1, 0]
""",
    "build-masks: tril, triu and comparisons": """
def causal(i, j):
    return torch.ones(i, j).tril(diagonal=j - i).bool()

def padding(lengths, j):
    keys = torch.arange(j).expand(len(lengths), 1, j)
    return keys < lengths.view(-1, 1, 1)

def window(i, j, before):
    mask = torch.ones(i, j, dtype=torch.bool)
    return mask.tril(j - i) & mask.triu(j - i - before)

def both(lengths, n):
    return torch.logical_and(causal(n, n), padding(lengths, n))
""",
    "build-masks: loops, other names": """
def causal(queries, keys):
    mask = torch.zeros(queries, keys, dtype=torch.bool)
    for q in range(queries):
        for k in range(keys):
            mask[q, k] = k <= q + keys - queries
    return mask

def padding(sizes, width):
    return torch.stack([torch.tensor([[k < int(s) for k in range(width)]]) for s in sizes])

def window(queries, keys, back):
    mask = causal(queries, keys)
    for q in range(queries):
        for k in range(keys):
            if q + keys - queries - k > back:
                mask[q, k] = False
    return mask

def both(sizes, n):
    masks = []
    for s in sizes.tolist():
        mask = causal(n, n).clone()
        mask[:, s:] = False
        masks.append(mask)
    return torch.stack(masks)
""",
    "build-masks: a list of lists, a transposed view": """
def causal(i, j):
    return torch.tensor([[k <= q + j - i for k in range(j)] for q in range(i)])

def padding(lengths, j):
    return (torch.arange(j)[:, None] < lengths).T[:, None]

def window(i, j, before):
    keys, queries = torch.meshgrid(torch.arange(j), torch.arange(j - i, j), indexing="ij")
    return ((keys <= queries) & (keys >= queries - before)).T

def both(lengths, n):
    return causal(n, n) * padding(lengths, n)
""",
    "masked-attention: where, other names": """
def masked_attention(q, k, v, m):
    scores = torch.einsum("...id,...jd->...ij", q, k) / q.shape[-1] ** 0.5
    weights = torch.softmax(torch.where(m, scores, float("-inf")), -1)
    return torch.where(m, weights, 0.0) @ v
""",
    "masked-attention: finite scores in empty rows": """
def masked_attention(query, key, value, mask):
    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
    empty = ~mask.any(-1, keepdim=True)
    scores = scores.masked_fill(~mask & ~empty, -torch.inf)
    return torch.softmax(scores, -1).masked_fill(empty, 0.0) @ value
""",
    "masked-attention: exponentials by hand": """
def masked_attention(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    low = torch.finfo(scores.dtype).min
    highest = scores.masked_fill(~mask, low).amax(-1, keepdim=True)
    shares = torch.exp((scores - highest).masked_fill(~mask, -torch.inf))
    return shares @ value / shares.sum(-1, keepdim=True).clamp(min=1e-30)
""",
    "masked-attention: nan_to_num after a fill": """
def masked_attention(query, key, value, mask):
    scores = (query @ key.mT / math.sqrt(query.shape[-1])).masked_fill(~mask, -math.inf)
    return scores.softmax(-1).nan_to_num() @ value
""",
    "other-roads: other numbers, whole numbers, tuples": """
breaks_renormalised = (-1000, -900, 5)
breaks_filled = [-10010, -12345, 1e20]
leaks = ([5, 5, -100], [5, 5, 1000])
unnoticed = torch.tensor([100.0, 3.0, -7.0])
""",
    "write-the-test: against loops, in float64": """
def by_loops(query, key, value, mask):
    out = torch.zeros(*query.shape[:-1], value.shape[-1], dtype=query.dtype)
    for b in range(len(query)):
        for i in range(query.shape[1]):
            seen = [j for j in range(key.shape[1]) if mask[b, i, j]]
            if not seen:
                continue
            scores = torch.stack([query[b, i] @ key[b, j] for j in seen])
            w = torch.softmax(scores / query.shape[-1] ** 0.5, 0)
            out[b, i] = sum(w[n] * value[b, j] for n, j in enumerate(seen))
    return out

def test_attend(attend):
    g = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, n, d, generator=g, dtype=torch.float64)
               for n, d in [(4, 3), (6, 3), (6, 5)])
    mask = torch.rand(2, 4, 6, generator=g) < 0.5
    mask[:, :, 0] = True
    mask[0, 3] = False
    k[:, 5] *= 10_000
    mask[:, 0, 5] = False
    mask[:, 1, 5] = True
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    out = attend(*leaves, mask)
    wanted = by_loops(q, k, v, mask)
    if not torch.allclose(out, wanted, atol=1e-5):
        raise AssertionError(f"{(out - wanted).abs().max()} apart")
    for leaf, grad in zip("qkv", torch.autograd.grad(out.sum(), leaves)):
        assert grad.isfinite().all(), leaf
""",
    "write-the-test: properties, bare asserts, assert_close": """
def test_attend(attend):
    torch.manual_seed(2)
    q, k, v = torch.randn(2, 4, 3), torch.randn(2, 5, 3), torch.randn(2, 5, 3)
    full = torch.ones(2, 4, 5, dtype=torch.bool)
    # rows sum to 1: equal values come out as they are
    mask = torch.ones(4, 5).tril(1).bool().expand(2, 4, 5).clone()
    ones = torch.ones(2, 5, 3)
    torch.testing.assert_close(attend(q, k, ones, mask), torch.ones(2, 4, 3))
    # what is hidden may be anything
    out = attend(q, k, v, mask)
    other, loud = v.clone(), k.clone()
    other[:, 4] += 3
    loud[:, 4] = 1000 * q[:, 0]
    torch.testing.assert_close(attend(q, loud, other, mask)[:, :3], out[:, :3])
    # a query that sees one key gets its value
    one = torch.zeros(2, 4, 5, dtype=torch.bool)
    one[0, :, 1] = True
    one[1, :, 3] = True
    out = attend(q, k, v, one)
    assert torch.allclose(out[0], v[0, 1].expand(4, 3), atol=1e-6)
    assert torch.allclose(out[1], v[1, 3].expand(4, 3), atol=1e-6)
    # without a mask it is the formula
    w = torch.softmax(q @ k.transpose(1, 2) / 3 ** 0.5, -1)
    assert torch.allclose(attend(q, k, v, full), w @ v, atol=1e-5)
    # nothing to see
    one[0, 2] = False
    q.requires_grad_()
    out = attend(q, k, v, one)
    assert not out[0, 2].any()
    out.sum().backward()
    assert not q.grad.isnan().any()
""",
}

MASKED = """
def masked_attention(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
    return weights.masked_fill(~mask, 0.0) @ value
"""
SETUP = """
def test_attend(attend):
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6)
    mask = torch.rand(2, 3, 5) > 0.4
    mask[..., 0] = True
    right = masked_attention(query, key, value, mask)
"""


def but(text, *changes):
    """A right answer with some of its text replaced."""
    for old, new in changes:
        assert text.count(old) == 1, (old, text.count(old))
        text = text.replace(old, new)
    return text


# question, what is wrong, the cell, the points it gets, a phrase of the hint
# fmt: off
WRONG = [
    # Predictions: one of three
    ("predict-masks", "no mask", "mouse_weights = [2 / 16, 8 / 16, 1 / 16, 1 / 16, 4 / 16]",
     2, "without a mask"),
    ("predict-masks", "after the softmax", "mouse_weights = [2 / 16, 8 / 16, 1 / 16, 0, 0]",
     2, "before the softmax"),
    ("predict-masks", "scores of 0", "mouse_weights = [2 / 13, 8 / 13, 1 / 13, 1 / 13, 1 / 13]",
     2, "a share of 1"),
    ("predict-masks", "not itself", "mouse_weights = [0.2, 0.8, 0.0, 0.0, 0.0]",
     2, "sees itself too"),
    ("predict-masks", "the future", "mouse_weights = [0, 0, 0, 0.2, 0.8]",
     2, "the future is what is hidden"),
    ("predict-masks", "shares", "mouse_weights = [2, 8, 1, 0, 0]", 2, "divide them by their sum"),
    ("predict-masks", "lined up at the start", "pairs_allowed = 6", 2, "the first key"),
    ("predict-masks", "all pairs", "pairs_allowed = 15", 2, "all pairs"),
    ("predict-masks", "what is hidden", "pairs_allowed = 3", 2, "pairs that are hidden"),
    ("predict-masks", "not itself", "pairs_allowed = 9", 2, "a word sees itself too"),
    ("predict-masks", "none empty", "empty_rows = []", 2, "what may row 0 see"),
    ("predict-masks", "one too many", "empty_rows = [0, 1, 2]", 2, "row 2 is “mouse”"),
    ("predict-masks", "one too few", "empty_rows = [0]", 2, "row 1 sees positions 0 and 1"),
    ("predict-masks", "the words", "empty_rows = [2, 3, 4]", 2, "something to see"),
    ("predict-masks", "counted from 1", "empty_rows = [1, 2]", 2, "counted from 0"),
    ("predict-masks", "padding on the right", "empty_rows = [3, 4]", 2, "on the left"),
    # Causal
    ("build-masks", "reversed",
     "def causal(i, j):\n    return ~torch.ones(i, j).tril(j - i).bool()",
     2, "true where a key is hidden"),
    ("build-masks", "without itself",
     "def causal(i, j):\n    return torch.ones(i, j).tril(j - i - 1).bool()",
     2, "may not see itself"),
    ("build-masks", "one ahead",
     "def causal(i, j):\n    return torch.ones(i, j).tril(j - i + 1).bool()",
     2, "may see the next one"),
    ("build-masks", "transposed",
     "def causal(i, j):\n    return torch.ones(i, j).triu().bool()",
     2, "Rows and columns are exchanged"),
    ("build-masks", "lined up at the start",
     "def causal(i, j):\n    return torch.ones(i, j).tril().bool()",
     4, "lined up with the first key"),
    ("build-masks", "moved the wrong way",
     "def causal(i, j):\n    return torch.ones(i, j).tril(i - j).bool()", 4, "the wrong way"),
    ("build-masks", "square always",
     "def causal(i, j):\n    return torch.ones(j, j).tril().bool()", 4, "where i ask"),
    ("build-masks", "ones and zeros",
     "def causal(i, j):\n    return torch.ones(i, j).tril(j - i)", 2, "a mask is boolean"),
    ("build-masks", "nothing hidden",
     "def causal(i, j):\n    return torch.ones(i, j).bool()", 2, "everything is allowed"),
    # Padding
    ("build-masks", "inverted",
     "def padding(lengths, j):\n    return torch.arange(j) >= lengths[:, None, None]",
     3, "true on the padding"),
    ("build-masks", "one too many",
     "def padding(lengths, j):\n    return torch.arange(j) <= lengths[:, None, None]",
     3, "<= in place of <"),
    ("build-masks", "one too few",
     "def padding(lengths, j):\n    return torch.arange(j) < lengths[:, None, None] - 1",
     3, "The last word of every item is hidden"),
    ("build-masks", "no axis of queries",
     "def padding(lengths, j):\n    return torch.arange(j) < lengths[:, None]",
     3, "the axis of the queries is missing"),
    ("build-masks", "hides rows",
     "def padding(lengths, j):\n    return (torch.arange(j) < lengths[:, None])[:, :, None]",
     3, "b 1 j, not b j 1"),
    ("build-masks", "padding on the left",
     "def padding(lengths, j):\n    return torch.arange(j) >= j - lengths[:, None, None]",
     3, "looked for on the left"),
    # Window
    ("build-masks", "one too many",
     "def window(i, j, before):\n    mask = torch.ones(i, j).bool()\n"
     "    return mask.tril(j - i) & mask.triu(j - i - before - 1)", 4, "holds three"),
    ("build-masks", "counts itself",
     "def window(i, j, before):\n    mask = torch.ones(i, j).bool()\n"
     "    return mask.tril(j - i) & mask.triu(j - i - max(before - 1, 0))",
     4, "counted among those before"),
    ("build-masks", "both directions",
     "def window(i, j, before):\n    back = torch.arange(j - i, j)[:, None] - torch.arange(j)\n"
     "    return back.abs() <= before", 4, "whatever its direction"),
    ("build-masks", "the future only",
     "def window(i, j, before):\n    return causal(i, j)", 4, "open to the past"),
    ("build-masks", "lined up at the start",
     "def window(i, j, before):\n    mask = torch.ones(i, j).bool()\n"
     "    return mask.tril() & mask.triu(-before)", 4, "The first query is lined up"),
    ("build-masks", "outside of it",
     "def window(i, j, before):\n    mask = torch.ones(i, j).bool()\n"
     "    return mask.tril(j - i) & ~mask.triu(j - i - before)", 4, "without the window"),
    # Both
    ("build-masks", "or",
     "def both(lengths, n):\n    return causal(n, n) | padding(lengths, n)", 4, "joined with “or”"),
    ("build-masks", "causal alone",
     "def both(lengths, n):\n    return causal(n, n)", 4, "b is missing"),
    ("build-masks", "padding alone",
     "def both(lengths, n):\n    return padding(lengths, n)", 4, "one row for all queries"),
    ("build-masks", "rows hidden too",
     "def both(lengths, n):\n    keys = padding(lengths, n)\n"
     "    return causal(n, n) & keys & keys.mT", 4, "a padding mask hides columns"),
    ("build-masks", "added",
     "def both(lengths, n):\n    return causal(n, n) + padding(lengths, n)", 4, "joined with “or”"),
    ("build-masks", "added as numbers",
     "def both(lengths, n):\n    return causal(n, n).int() + padding(lengths, n).int()",
     4, "a mask is boolean"),
    ("build-masks", "what both hide",
     "def both(lengths, n):\n    return ~(causal(n, n) & padding(lengths, n))", 4, "both hide"),
    # Attention under a mask
    ("masked-attention", "inverted",
     but(MASKED, ("masked_fill(~mask, -math.inf)", "masked_fill(mask, -math.inf)"),
         ("masked_fill(~mask, 0.0)", "masked_fill(mask, 0.0)")), 0, 'read as "hide"'),
    ("masked-attention", "ignored",
     but(MASKED, (".masked_fill(~mask, -math.inf)", ""),
         ("weights.masked_fill(~mask, 0.0)", "weights")),
     1, "does nothing with it"),
    ("masked-attention", "after the softmax",
     but(MASKED, (".masked_fill(~mask, -math.inf)", "")), 1, "after the softmax"),
    ("masked-attention", "divided by the new sum",
     but(MASKED, (".masked_fill(~mask, -math.inf)", ""),
         ("weights.masked_fill(~mask, 0.0) @ value",
          "(weights * mask / (weights * mask).sum(-1, keepdim=True)) @ value")),
     1, "divided by their new sum"),
    ("masked-attention", "added",
     but(MASKED, ("scores.masked_fill(~mask, -math.inf)", "(scores + mask)"),
         ("weights.masked_fill(~mask, 0.0)", "weights")),
     1, "added to the scores as ones and zeros"),
    ("masked-attention", "scores of 0",
     but(MASKED, ("-math.inf", "0.0"), ("weights.masked_fill(~mask, 0.0)", "weights")),
     1, "set to 0"),
    ("masked-attention", "a large negative number",
     but(MASKED, ("-math.inf", "-1e9"), ("weights.masked_fill(~mask, 0.0)", "weights")),
     1, "the mean of all values"),
    ("masked-attention", "NaN", but(MASKED, ("weights.masked_fill(~mask, 0.0)", "weights")),
     2, "the softmax of minus infinities"),
    ("masked-attention", "added minus infinity",
     but(MASKED, ("scores.masked_fill(~mask, -math.inf).softmax(dim=-1)",
                  "(scores + torch.where(mask, 0.0, -math.inf)).softmax(dim=-1).nan_to_num()")),
     3, "minus infinity was added"),
    ("masked-attention", "detached",
     but(MASKED, ("scores.masked_fill", "scores.detach().masked_fill")), 3, "is detached"),
    ("masked-attention", "no scale", but(MASKED, (" / math.sqrt(query.shape[-1])", "")),
     0, "not divided by the square root of d"),
    ("masked-attention", "softmax over queries", but(MASKED, ("dim=-1", "dim=-2")),
     0, "the queries instead of the keys"),
    ("masked-attention", "the mask transposed", but(
        MASKED, ("    scores =", "    mask = mask.mT\n    scores =")),
     0, "raised RuntimeError"),
    ("masked-attention", "the first mask for all",
     but(MASKED, ("    scores =", "    mask = mask[:1] if mask.ndim > 2 else mask\n    scores =")),
     1, "Every item of a batch gets the mask of the first one"),
    # Other roads
    ("other-roads", "ahead, not far enough", "breaks_renormalised = [0.0, 0.0, 50.0]",
     3, "Go further"),
    ("other-roads", "a seen key ahead", "breaks_renormalised = [200.0, 0.0, 0.0]",
     3, "must be the largest"),
    ("other-roads", "infinity", "breaks_renormalised = [0.0, 0.0, math.inf]",
     3, "finite numbers"),
    ("other-roads", "the hidden one far behind", "breaks_filled = [0.0, 0.0, -20_000.0]",
     3, "it is replaced"),
    ("other-roads", "one seen key below", "breaks_filled = [-20_000.0, 0.0, 0.0]",
     3, "above the fill"),
    ("other-roads", "as low as the fill", "breaks_filled = [-10_000.0, -10_000.0, 0.0]",
     3, "below the fill"),
    ("other-roads", "a seen score differs", "leaks = [[0.0, 0.0, 1.0], [5.0, 0.0, 1.0]]",
     3, "in the hidden score alone"),
    ("other-roads", "too little", "leaks = [[0.0, 0.0, 0.0], [0.0, 0.0, 0.1]]",
     3, "more than 0.1 is asked for"),
    ("other-roads", "a single row", "leaks = [0.0, 0.0, 9.0]", 3, "two rows"),
    ("other-roads", "four scores", "unnoticed = [1.0, 2.0, 3.0, 4.0]", 3, "three scores"),
    ("other-roads", "the hidden score is low", "unnoticed = [0.0, 0.0, -100.0]",
     3, "Its score becomes 0"),
    ("other-roads", "not large enough", "unnoticed = [5.0, 5.0, 0.0]", 3, "for 1 to vanish"),
    ("other-roads", "texts", 'unnoticed = ["a", "b", "c"]', 3, "scores are numbers"),
    # Tests of attention: a third of a point for each program that is caught
    ("write-the-test", "passes everything", "def test_attend(attend):\n    pass",
     0, 'True in the mask is read as "hide"'),
    ("write-the-test", "fails everything", "def test_attend(attend):\n    assert False, 'wrong'",
     0, "fails a right program"),
    ("write-the-test", "asks for the last digit",
     SETUP + "    assert torch.equal(attend(query, key, value, mask), right)",
     0, "fails a right program"),
    ("write-the-test", "an error of its own",
     SETUP + "    assert attend(query, key, value, mask).sum() == wanted",
     0, "NameError"),
    ("write-the-test", "shapes alone",
     SETUP + "    assert attend(query, key, value, mask).shape == right.shape",
     1, "The mask is added to the scores as ones and zeros"),
    ("write-the-test", "a comparison that is thrown away",
     SETUP + "    torch.allclose(attend(query, key, value, mask), right, atol=1e-4)",
     1, 'True in the mask is read as "hide"'),
    ("write-the-test", "tame scores, no empty row",
     SETUP + "    assert torch.allclose(attend(query, key, value, mask), right, atol=1e-4)",
     8, "A hidden key that is far ahead"),
    ("write-the-test", "one item, a square mask",
     "def test_attend(attend):\n    causal = torch.ones(5, 5).tril().bool()\n"
     "    right = masked_attention(x, x, x, causal)\n"
     "    assert torch.allclose(attend(x, x, x, causal), right, atol=1e-4)",
     7, "Every item of a batch gets the mask of the first one"),
    ("write-the-test", "no gradients",
     SETUP + "    mask[1, 2] = False\n"
     "    right = masked_attention(query, key, value, mask)\n"
     "    assert torch.allclose(attend(query, key, value, mask), right, atol=1e-4)",
     10, "The gradients are NaN"),
    ("write-the-test", "no future, no more",
     "def test_attend(attend):\n    causal = torch.ones(5, 5).tril().bool()\n"
     "    other = x.clone()\n    other[4] += 1\n"
     "    one, two = attend(x, x, x, causal), attend(x, other, other, causal)\n"
     "    assert torch.allclose(one[:4], two[:4], atol=1e-6)",
     6, "Your weights sum to 1 over the queries"),
    ("write-the-test", "a loud key that nobody sees",
     SETUP + "    mask[..., 4], loud = False, key.clone()\n    loud[:, 4] = 1000\n"
     "    right = masked_attention(query, key, value, mask)\n"
     "    assert torch.allclose(attend(query, loud, value, mask), right, atol=1e-4)",
     8, "let another see it"),
    ("write-the-test", "chance", "import os\n"
     "def test_attend(attend):\n    assert os.urandom(1)[0] < 64", 0, "fails a right program"),
]
# fmt: on

OF_MASKED = "def masked_attention(q, k, v, mask):\n    return "
BORROWED = [
    ("masked-attention", "the package's formula",
     OF_MASKED + "mini_attention.attention(q, k, v, mask)"),
    ("masked-attention", "the package's kernel",
     OF_MASKED + "mini_attention.fused_attention(q, k, v, mask)"),
    ("masked-attention", "torch's kernel",
     OF_MASKED + "torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)"),
    ("build-masks", "the package's builder",
     "def causal(i, j):\n    return mini_attention.causal_mask(i, j)"),
    ("write-the-test", "the package's check",
     "def test_attend(attend):\n    mini_attention.check_attention(attend, only=['mask'])"),
]  # fmt: skip
