"""States of "Play with attention", drawn at random, and what the package makes of them."""

import math
import random

import torch
from einops import rearrange

from mini_attention import (
    attention,
    attention_scores,
    attention_weights,
    causal_mask,
    padding_mask,
    window_mask,
)
from mini_attention.mistakes import MISTAKES

UNITS = {"1": 1.0, "ln2": math.log(2), "root2ln2": math.sqrt(2) * math.log(2)}
SCALES = {
    "root": lambda d, m: d**-0.5,
    "none": lambda d, m: 1.0,
    "model": lambda d, m: m**-0.5,
    "up": lambda d, m: d**0.5,
}
ON_LAYERS = ("split by view", "merged by view", "attends over heads")


def drawn(seed, mistake="none"):
    """A state with sizes, numbers, mask, scale and heads at random."""
    draw = random.Random(seed)
    h = draw.choice([1, 1, 2, 3])
    i, j = draw.randint(1, 6), draw.randint(1, 6)
    m, e = h * draw.randint(1, 8 // h), h * draw.randint(1, 8 // h)
    if mistake in ON_LAYERS:
        i, e = j, m
    return {
        "queries": [f"q{n}" for n in range(i)],
        "keys": [f"k{n}" for n in range(j)],
        "features": [f"d{n}" for n in range(m)],
        "carried": [f"e{n}" for n in range(e)],
        "q": numbers(draw, i, m),
        "k": numbers(draw, j, m),
        "v": numbers(draw, j, e),
        "unit": draw.choice(list(UNITS)),
        "scale": draw.choice(list(SCALES)),
        "temperature": draw.choice([0.05, 0.5, 1, 2.5, 100]),
        "heads": h,
        "causal": draw.random() < 0.3,
        "padding": draw.randint(0, j) if draw.random() < 0.3 else None,
        "side": draw.choice(["left", "right"]),
        "window": draw.randint(0, 4) if draw.random() < 0.2 else None,
        "drawn": booleans(draw, i, j) if draw.random() < 0.4 else None,
        "mistake": mistake,
        "preset": None,
    }


def numbers(draw, rows, columns):
    size = draw.choice([0.1, 1, 1, 30])
    return [[round(draw.gauss(0, size), 4) for _ in range(columns)] for _ in range(rows)]


def booleans(draw, rows, columns):
    share = draw.choice([0.3, 0.7])
    return [[draw.random() < share for _ in range(columns)] for _ in range(rows)]


def mask_of(state):
    i, j = len(state["queries"]), len(state["keys"])
    mask = torch.ones(i, j, dtype=torch.bool)
    if state["causal"]:
        mask &= causal_mask(i, j)
    if state["padding"] is not None:
        mask &= padding_mask([state["padding"]], j, side=state["side"])[0]
    if state["window"] is not None:
        mask &= window_mask(i, j, before=state["window"])
    if state["drawn"] is not None:
        mask &= torch.tensor(state["drawn"])
    return mask


def scale_of(state):
    m = len(state["features"])
    scale = SCALES[state["scale"]](m / state["heads"], m)
    return UNITS[state["unit"]] * scale / state["temperature"]


def expected(state):
    """Scores and weights (h i j) and output (i e) by the package, or by its collection of wrong
    programs where the state asks for a mistake.
    """
    if state["mistake"] in ON_LAYERS:
        return by_layer(state)
    q, k, v = (torch.tensor(state[name], dtype=torch.float64) for name in "qkv")
    q, k, v = (rearrange(x, "n (h d) -> h n d", h=state["heads"]) for x in (q, k, v))
    mask, scale = mask_of(state), scale_of(state)
    weigh, attend = attention_weights, attention
    if state["mistake"] != "none":
        programs = MISTAKES[state["mistake"]].programs
        weigh, attend = programs["attention_weights"], programs["attention"]
    return {
        "scores": attention_scores(q, k, scale=scale),
        "weights": weigh(q, k, mask, scale=scale),
        "output": rearrange(attend(q, k, v, mask, scale=scale), "h i e -> i (h e)"),
    }


def by_layer(state):
    """A wrong layer whose projections are the identity: what it does with heads is left."""
    m, h = len(state["features"]), state["heads"]
    program = MISTAKES[state["mistake"]].programs["MultiHeadAttention"]
    layer = program(m, h, proj_bias=False, attend=attention).double()
    for projection in (layer.q_proj, layer.k_proj, layer.v_proj, layer.out_proj):
        torch.nn.init.eye_(projection.weight)
    q, k, v = (torch.tensor([state[name]], dtype=torch.float64) for name in "qkv")
    q = q * scale_of(state) * (m / h) ** 0.5  # the layer has a scale of its own
    return {"output": layer(q, k, v, mask_of(state))[0].detach()}
