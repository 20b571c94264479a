"""Random letters that repeat, and small models of attention alone that learned to copy them.

    period 8    q x d m a a v e q x d m a a v e q x d ...
    period 9    k o i y t o b b r k o i y t o b b r k ...

A model reads a row up to some letter and is asked for the next one. In the first copy nobody can
know it. From the second on it can be copied, if one finds the place to copy from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import as_file, files

import torch
from torch import Tensor, nn

from ..contract import check_sizes
from ..heads import MultiHeadAttention
from ..masks import causal_mask
from ..position import RotaryAttention

LETTERS = "abcdefghijklmnopqrstuvwxyz"
LENGTH = 64
PERIODS = range(8, 33)  # so that each row has two copies at least
FIXED = range(16, 17)  # the one period that two of the models were trained with
MODELS = {"random": PERIODS, "fixed": FIXED}
Drawn = tuple[Tensor, Tensor]


def draw(count: int, seed: int | torch.Generator, periods: Sequence[int] = PERIODS) -> Drawn:
    """So many rows of letters, each with a period of its own, drawn from `periods`.

        tokens   b n, from 0 to 25, with n = LENGTH
        periods  b 1

    >>> tokens, periods = draw(3, seed=0)
    >>> p = periods[0].item()
    >>> torch.equal(tokens[0, p:], tokens[0, :-p])
    True
    """
    generator = torch.Generator().manual_seed(seed) if isinstance(seed, int) else seed
    chosen = torch.randint(len(periods), (count, 1), generator=generator)
    period = torch.tensor(list(periods))[chosen]
    copied = torch.randint(len(LETTERS), (count, LENGTH), generator=generator)
    return copied.gather(1, torch.arange(LENGTH) % period), period


def in_second_copy(periods: Tensor) -> Tensor:
    """Where the next letter is one of the second copy, and this one too: b n, boolean.

    >>> in_second_copy(torch.tensor([[8]])).nonzero()[:, 1].tolist()
    [8, 9, 10, 11, 12, 13, 14]
    """
    i = torch.arange(LENGTH)
    return (i >= periods) & (i + 1 < 2 * periods)


class AttentionOnly(nn.Module):
    """A decoder of attention layers and nothing else: no feed-forward layer, no memory.

        tokens  b n, from 0 to 25
        logits  b n 26, of the letter that follows each

    What a layer finds is added to what it read (pre-norm). Places are told by rotation, so a head
    knows letters and distances.

    Raises ValueError for fewer than one layer.

    >>> model = AttentionOnly(num_layers=1)
    >>> model(torch.randint(26, (3, 7))).shape
    torch.Size([3, 7, 26])
    """

    def __init__(self, num_layers: int, *, d_model: int = 64, num_heads: int = 4) -> None:
        super().__init__()
        check_sizes(num_layers=num_layers)
        self.embedding = nn.Embedding(len(LETTERS), d_model)
        self.layers = nn.ModuleList(
            MultiHeadAttention(d_model, num_heads, attend=RotaryAttention())
            for _ in range(num_layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(num_layers))
        self.closing = nn.LayerNorm(d_model)
        self.to_logits = nn.Linear(d_model, len(LETTERS))

    def forward(self, tokens: Tensor) -> Tensor:
        mask = causal_mask(tokens.shape[1], device=tokens.device)
        x = self.embedding(tokens)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + layer(norm(x), mask=mask)
        logits: Tensor = self.to_logits(self.closing(x))
        return logits


@cache
def _parameters() -> dict[str, dict[str, Tensor]]:
    with as_file(files(__package__).joinpath("models.pt")) as path:
        parameters: dict[str, dict[str, Tensor]] = torch.load(path, weights_only=True)
    return parameters


def trained(num_layers: int, periods: str = "random") -> AttentionOnly:
    """A model that `python -m experiments.induction` trained, each time a new copy, in evaluation.

        num_layers  1 or 2
        periods     "random", or "fixed" for the one trained with the period 16 alone

    Raises ValueError for a model that there is none of.

    >>> tokens, periods = draw(20, seed=1)
    >>> share_right(trained(2), tokens, periods) > 0.9
    True
    """
    name = f"{num_layers} {periods}"
    if name not in _parameters():
        raise ValueError(f"there is no model {name!r}; there are {', '.join(_parameters())}")
    model = AttentionOnly(num_layers)
    model.load_state_dict(_parameters()[name])
    return model.eval()


@torch.no_grad()
def share_right(model: Callable[[Tensor], Tensor], tokens: Tensor, periods: Tensor) -> float:
    """The share of letters of the second copy that the model thinks the likeliest.

    model    gives logits b n 26 for tokens b n
    tokens   b n, as from `draw`
    periods  b 1
    """
    right = model(tokens)[:, :-1].argmax(-1) == tokens[:, 1:]
    return right[in_second_copy(periods)[:, :-1]].double().mean().item()
