"""What each way of telling positions does beyond the length that it was trained for.

A network of one layer learns, from random sequences of 32 symbols, one of two tasks, and is then
asked at every position of sequences of 256:

    three back     which symbol stood three places before?
    last letter    one symbol in five is a letter, the others are blanks: which letter came last?

Both can be answered from near symbols, however long the sequence. Each answer is taken twice, with
all earlier symbols to be seen, and through a window as wide as the trained length. The record has
the shares of right answers, a number for each seed and each band of positions.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments import records
from mini_attention import (
    MultiHeadAttention,
    RotaryAttention,
    fused_attention,
    rules,
    sinusoidal_positions,
)
from mini_attention.rules import MaskRule

BOOK = Path(__file__).resolve().parents[1] / "book" / "data" / "positions.json"
WAYS = ("none", "learned", "sinusoidal", "rotary", "ALiBi")
Shares = dict[str, dict[str, list[list[float]]]]  # way -> mask -> seed -> band
NOTHING = -100  # the target of a position that has none, as cross_entropy wants it


@dataclass(frozen=True)
class Setting:
    symbols: int = 16
    d_model: int = 32
    num_heads: int = 4
    trained: int = 32
    longest: int = 256
    steps: int = 400
    batch: int = 32
    rate: float = 3e-3
    asked: int = 64  # sequences that are answered
    seeds: tuple[int, ...] = (1, 2, 3)

    @property
    def bands(self) -> list[tuple[int, int]]:
        """The trained positions, and then up to twice as far each time."""
        ends = [0, self.trained]
        while ends[-1] < self.longest:
            ends.append(min(2 * ends[-1], self.longest))
        return list(pairwise(ends))


FULL = Setting()  # what the book's record is made with


class Network(nn.Module):
    """One layer of a Transformer, told positions in one of five ways.

    symbols  b n
    answers  b n symbol, before the softmax
    """

    def __init__(self, way: str, setting: Setting) -> None:
        super().__init__()
        size, hidden = setting.d_model, 4 * setting.d_model
        self.way, self.num_heads = way, setting.num_heads
        self.embedding = nn.Embedding(setting.symbols, size)
        self.table: Tensor | None = None
        if way == "learned":  # rows beyond the trained length stay as they are drawn here
            self.table = nn.Parameter(torch.randn(setting.longest, size))
        if way == "sinusoidal":
            self.table = sinusoidal_positions(setting.longest, size)
        attend = RotaryAttention() if way == "rotary" else fused_attention
        self.attention = MultiHeadAttention(size, setting.num_heads, attend=attend)
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(3))
        self.mlp = nn.Sequential(nn.Linear(size, hidden), nn.GELU(), nn.Linear(hidden, size))
        self.answer = nn.Linear(size, setting.symbols)

    def forward(self, symbols: Tensor, mask: MaskRule) -> Tensor:
        n = symbols.shape[1]
        x = self.embedding(symbols)
        if self.table is not None:
            x = x + self.table[:n]
        bias = rules.alibi(self.num_heads, n) if self.way == "ALiBi" else None
        x = x + self.attention(self.norms[0](x), mask=mask, bias=bias)
        x = x + self.mlp(self.norms[1](x))
        answers: Tensor = self.answer(self.norms[2](x))
        return answers


Task = Callable[[int, int, int, torch.Generator], tuple[Tensor, Tensor]]


def three_back(b: int, n: int, symbols: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sequences b n of symbols, and for each position the symbol three places before."""
    given = torch.randint(symbols, (b, n), generator=draw)
    return given, F.pad(given, (3, 0), value=NOTHING)[:, :n]


def last_letter(b: int, n: int, symbols: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sequences b n of letters and blanks (0), and for each position the letter that came last."""
    letters = torch.randint(1, symbols, (b, n), generator=draw)
    is_letter = torch.rand(b, n, generator=draw) < 0.2
    at = torch.where(is_letter, torch.arange(n), -1).cummax(1).values
    last = letters.gather(1, at.clamp(min=0)).masked_fill(at < 0, NOTHING)
    return letters * is_letter, last


TASKS: dict[str, Task] = {"three back": three_back, "last letter": last_letter}


def train(way: str, task: Task, seed: int, setting: Setting) -> Network:
    torch.manual_seed(seed)
    network, draw = Network(way, setting), torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(network.parameters(), lr=setting.rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, setting.rate, total_steps=setting.steps
    )
    for _ in range(setting.steps):
        symbols, targets = task(setting.batch, setting.trained, setting.symbols, draw)
        answers = network(symbols, rules.causal(setting.trained))
        loss = F.cross_entropy(answers.flatten(0, 1), targets.flatten(), ignore_index=NOTHING)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
    return network


@torch.no_grad()
def shares(network: Network, task: Task, setting: Setting) -> dict[str, list[float]]:
    """The share of right answers in each band, with all earlier symbols and through a window."""
    n, draw = setting.longest, torch.Generator().manual_seed(0)
    symbols, targets = task(setting.asked, n, setting.symbols, draw)
    masks = {"all": rules.causal(n), "window": rules.window(n, before=setting.trained - 1)}
    found: dict[str, list[float]] = {}
    for name, mask in masks.items():
        answers = network(symbols, mask).argmax(-1)
        found[name] = []
        for start, stop in setting.bands:
            wanted = targets[:, start:stop]
            right = (answers[:, start:stop] == wanted)[wanted != NOTHING]
            found[name].append(round(right.float().mean().item(), 3))
    return found


def measure(setting: Setting) -> dict[str, Shares]:
    found: dict[str, Shares] = {}
    for name, task in TASKS.items():
        found[name] = {}
        for way in WAYS:
            each = [
                shares(train(way, task, seed, setting), task, setting) for seed in setting.seeds
            ]
            found[name][way] = {mask: [one[mask] for one in each] for mask in each[0]}
            print(f"{name:13}{way:12}{found[name][way]}", flush=True)
    return found


def main(arguments: list[str] | None = None, base: Setting = FULL) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.positions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--steps", type=int, default=base.steps, help="of each training")
    parser.add_argument("--seeds", type=int, nargs="+", default=base.seeds)
    parser.add_argument("--file", type=Path, default=BOOK, help="write here, not for the book")
    given = parser.parse_args(arguments)
    setting = replace(base, steps=given.steps, seeds=tuple(given.seeds))
    torch.set_num_threads(1)
    found = {"bands": setting.bands, "right": measure(setting)}
    records.write({**records.head(setting), **found}, given.file)
    print(f"written to {given.file}")


if __name__ == "__main__":
    main()
