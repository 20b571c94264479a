"""Sizes, ranks, masks and memory layouts that nobody thought of, for the property tests.

hypothesis draws the shapes and a seed, and torch fills the tensors from the seed: that is fast,
and a failure shrinks to small shapes. HYPOTHESIS_PROFILE=thorough draws many more, new ones in
each run; without it the same few come every time, so that a build never fails by chance.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from torch import Tensor

from mini_attention import attention_scores
from mini_attention.contract import broadcast_leading
from tests.oracles import assert_same, naive_attention, with_gradients

always = {
    "deadline": None,  # the first call of a kernel is slow
    "database": None,  # no folder in the repository
    # `attend` is the same function for every example, so nothing is left over from the last one.
    "suppress_health_check": [HealthCheck.function_scoped_fixture],
}
settings.register_profile("steady", derandomize=True, max_examples=15, **always)
settings.register_profile("thorough", max_examples=200, print_blob=True, **always)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

INF = torch.inf
HALF = (torch.bfloat16, torch.float16)
DTYPES = (torch.float64, torch.float32, *HALF)

seeds = st.integers(0, 2**16)
few = st.integers(1, 3)
# st.integers(0, 7) likes 0, and most examples would hold nothing.
lengths = st.sampled_from((1, 2, 3, 4, 5, 6, 7, 0))
axes = st.sampled_from((1, 2, 3, 2, 3, 2, 3, 0))
features = st.sampled_from((1, 2, 3, 4, 5))
value_features = st.sampled_from((1, 2, 3, 4, 5, 0))
leadings = st.lists(axes, max_size=3)
scales = st.sampled_from((None, 0.0, -0.7, 3.0))
factors = st.sampled_from((-1.0, 0.0, 3.0, 100.0))
numbers = {
    "normal": lambda *shape: torch.randn(shape, dtype=torch.float64),
    "ties": lambda *shape: torch.randint(-1, 2, shape).double(),
    "zeros": lambda *shape: torch.zeros(shape, dtype=torch.float64),
}


def every_second(tensor: Tensor, axis: int) -> Tensor:
    """The same numbers with NaN between them in memory."""
    return torch.stack((tensor, torch.full_like(tensor, torch.nan)), axis).unbind(axis)[0]


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "rows": lambda tensor: tensor.contiguous(),
    "columns": lambda tensor: tensor.mT.contiguous().mT,
    "first axis last": lambda tensor: tensor.movedim(0, -1).contiguous().movedim(-1, 0),
    "every second feature": lambda tensor: every_second(tensor, tensor.ndim),
    "every second position": lambda tensor: every_second(tensor, tensor.ndim - 1),
    "part of more": lambda tensor: torch.cat((torch.zeros_like(tensor), tensor), -2).narrow(
        -2, tensor.shape[-2], tensor.shape[-2]
    ),
}
layouts = st.sampled_from(list(LAYOUTS))


@dataclass(repr=False)
class Case:
    """What an attention function is called with."""

    seed: int
    leaves: dict[str, Tensor]  # query, key, value, and the bias where it is learned
    fixed: dict[str, Tensor | float | None]  # mask, bias, scale, where they are given

    def _repr_pretty_(self, printer, cycle) -> None:
        """How hypothesis shows a failure: shapes, which say more than the numbers."""
        given = {
            name: f"{tuple(x.shape)} {x.dtype}" if isinstance(x, Tensor) else x
            for name, x in (self.leaves | self.fixed).items()
        }
        printer.text(f"Case with seed {self.seed}, learned {list(self.leaves)}, {given}")

    @property
    def given(self) -> dict[str, Tensor | float | None]:
        """All arguments by name."""
        return self.leaves | self.fixed

    @property
    def leading(self) -> torch.Size:
        """The leading axes of the output."""
        return broadcast_leading(**{name: self.leaves[name] for name in ("query", "key", "value")})

    @property
    def allowed(self) -> Tensor:
        """Who may attend to whom: `... i j` with the leading axes of the output."""
        query, key = self.leaves["query"], self.leaves["key"]
        shape = (*self.leading, query.shape[-2], key.shape[-2])
        allowed = torch.ones(shape, dtype=torch.bool)
        if "mask" in self.given:
            allowed = allowed & self.given["mask"]
        if "bias" in self.given:
            allowed = allowed & (self.given["bias"] != -INF)
        return allowed

    @property
    def largest_score(self) -> float:
        """Ours to forgive: an error in a score is as large as the score is."""
        query, key = self.leaves["query"].double(), self.leaves["key"].double()
        scores = attention_scores(query, key, scale=self.given.get("scale"))
        return scores.nan_to_num().abs().max().item() if scores.numel() else 1.0

    def run(self, function: Callable[..., Tensor]) -> dict[str, Tensor]:
        """The output of `function` and the gradients of what is learned."""
        return with_gradients(partial(function, **self.fixed), **self.leaves)

    def assert_same(self, actual: Callable[..., Tensor], expected: Callable[..., Tensor]) -> None:
        """The two functions have one output and one set of gradients."""
        largest = self.largest_score
        assert_same(self.run(actual), self.run(expected), largest_score=largest)


@st.composite
def shared(draw, leading: tuple[int, ...]) -> tuple[int, ...]:
    """Axes that broadcast to `leading`: some are 1, the first ones may be missing."""
    sizes = [1 if draw(st.sampled_from((False, False, True))) else size for size in leading]
    missing = draw(st.sampled_from((0, 0, *range(len(leading) + 1))))
    return tuple(sizes[missing:])


@st.composite
def pair_shapes(draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A legal shape of a mask or a bias: rank 2 or that of the scores; any axis may be 1."""
    rank = draw(st.sampled_from((2, len(shape))))
    axes = shape[len(shape) - rank :]
    return tuple(1 if draw(st.sampled_from((False, False, True))) else size for size in axes)


def random_mask(shape: tuple[int, ...], density: float) -> Tensor:
    """Pairs at random, and no key at all for some of the queries."""
    mask = torch.rand(shape) < density
    if density < 1:
        mask &= torch.rand((*shape[:-1], 1)) < 0.8
    return mask


densities = st.sampled_from((0.5, 0.8, 0.3, 1.0, 0.0))


@st.composite
def cases(
    draw,
    *,
    dtypes=(torch.float64, torch.float32),
    leading=leadings,
    square=False,
    masked=True,
) -> Case:
    """Arguments of every legal shape, with or without a mask, a bias and a scale."""
    leading = tuple(draw(leading))
    i, d, e = draw(lengths), draw(features), draw(value_features)
    j = i if square else draw(lengths)
    shapes = {"query": (i, d), "key": (j, d), "value": (j, e)}
    seed, dtype = draw(seeds), draw(st.sampled_from(dtypes))
    torch.manual_seed(seed)
    leaves = {}
    for name, shape in shapes.items():
        own = draw(shared(leading))
        kind = draw(st.sampled_from(("normal", "normal", "normal", *numbers)))
        leaves[name] = numbers[kind](*own, *shape).to(dtype)

    query_and_key = {name: leaves[name] for name in ("query", "key")}
    scores = (*broadcast_leading(**query_and_key), i, j)
    fixed = {}
    given = draw(st.sampled_from(("nothing", "mask and bias", "mask", "bias", "mask and bias")))
    if masked and "mask" in given:
        fixed["mask"] = random_mask(draw(pair_shapes(scores)), draw(densities))
    if "bias" in given:
        shape = draw(pair_shapes(scores))
        bias = torch.randn(shape).masked_fill(~random_mask(shape, draw(densities)), -INF)
        learned = draw(st.booleans())  # torch takes another path for a bias with a gradient
        (leaves if learned else fixed)["bias"] = bias.to(dtype)
    scale = draw(scales)
    if scale is not None:
        fixed["scale"] = scale
    return Case(seed, leaves, fixed)


@st.composite
def layer_cases(draw, *, seeing=False) -> tuple[dict, dict[str, Tensor], dict[str, Tensor]]:
    """The sizes of a layer, its inputs, and a mask and a bias of any rank that it takes.

    With `seeing`, every query may attend to a key at least, and there is an item: torch's layer
    needs both.
    """
    h, d, b, i, j = draw(few), draw(few), draw(axes), draw(lengths), draw(lengths)
    assume((b and j) or not seeing)
    sizes = {"d_model": h * d, "key_size": draw(features), "value_size": draw(features)}
    torch.manual_seed(draw(seeds))
    tensors = {
        "query": torch.randn(b, i, h * d, dtype=torch.float64),
        "key": torch.randn(b, j, sizes["key_size"], dtype=torch.float64),
        "value": torch.randn(b, j, sizes["value_size"], dtype=torch.float64),
    }
    given = {}
    for name in ("mask", "bias"):
        if draw(st.booleans()):
            shape = draw(pair_shapes(draw(st.sampled_from(((b, i, j), (b, h, i, j))))))
            given[name] = random_mask(shape, draw(densities))
            if seeing:
                given[name][..., :1] = True
    if "bias" in given:
        bias = torch.randn(given["bias"].shape, dtype=torch.float64)
        given["bias"] = bias.masked_fill(~given["bias"], -INF)
    return sizes | {"num_heads": h, "proj_bias": draw(st.booleans())}, tensors, given


def along(axis: int, order: Tensor | slice, pairs: Tensor | None) -> Tensor | None:
    """The mask or bias in another order of its queries (-2) or keys (-1); an axis of 1 stays."""
    if pairs is None or pairs.shape[axis] == 1:
        return pairs
    return pairs[..., order, :] if axis == -2 else pairs[..., order]


def within(shape: torch.Size, flags: Tensor) -> Tensor:
    """True where the flags are, for every item that shares the place: flags in a smaller shape."""
    return (~flags).long().sum_to_size(*shape) == 0


def nothing_of(tensor: Tensor | None) -> Tensor | float:
    """0, with a gradient of zeros for the tensor."""
    return 0.0 if tensor is None else (0 * tensor[tensor.isfinite()]).sum()


def looped(query, key, value, mask=None, *, bias=None, scale=None) -> Tensor:
    """`naive_attention` for any size: where there is nothing to loop over, zeros or nothing.

    Nothing is added to the result but 0, so that every argument has a gradient.
    """
    nothing = sum(map(nothing_of, (query, key, value, bias)))
    leading = broadcast_leading(query=query, key=key, value=value)
    shape = (*leading, query.shape[-2], value.shape[-1])
    if math.prod(shape) * key.shape[-2] == 0:
        return nothing + torch.zeros(shape, dtype=torch.float64)
    return nothing + naive_attention(query, key, value, mask, bias=bias, scale=scale)
