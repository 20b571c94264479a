"""A Transformer that reads dates, and what becomes of it when one thing is taken away.

Eight models learn to turn dates in fourteen languages into ISO dates, each from scratch in some
1,600 steps: one as it should be, whose parameters the package keeps, and seven that lack something.
The record has the share of right answers for texts that no model was trained on:

    seen     days and months that training never had, in formats that it had
    unseen   such days in formats that it never had
    padded   the texts of the first kind again, with twenty places of padding more

Finished trainings stay when the command is broken off, and the next one goes on from there.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments import records
from mini_attention import attention, dates
from mini_attention.contract import Mask
from mini_attention.dates import PAD, Example
from mini_attention.transformer import PostNorm, Transformer

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "book" / "data" / "dates.json"
MODEL = ROOT / "mini_attention" / "dates" / "model.pt"
MORE = 20  # places of padding


@dataclass(frozen=True)
class Setting:
    steps: int = 1600
    batch: int = 48
    rate: float = 4e-3
    seed: int = 1
    asked: int = 1000  # texts of each kind
    sizes: dict[str, Any] = field(default_factory=dict)  # in place of the usual ones


FULL = Setting()  # what the book's record and the package's model are made with


# What is taken away


def uniform(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attention that compares nothing: the mean of all values that may be attended to."""
    return attention(torch.zeros_like(query), key, value, mask)


class WithoutPositions(Transformer):
    def embed(self, tokens: Tensor, embedding: nn.Embedding, start: int = 0) -> Tensor:
        embedded: Tensor = embedding(tokens)
        return embedded


class WithoutCausalMask(Transformer):
    def decode(
        self, target: Tensor, memory: Tensor, source_mask: Mask | None = None, **_: Any
    ) -> Tensor:
        x = self.embed(target, self.target_embedding)
        for block in self.decoder:
            x = block(x, memory, None, source_mask)
        logits: Tensor = self.to_logits(self.decoder_closing(x))
        return logits


@dataclass(frozen=True)
class Experiment:
    kind: type[Transformer] = Transformer
    options: dict[str, Any] = field(default_factory=dict)
    hides_padding: bool = True  # of the source, as keys
    scores_padding: bool = False  # of the target, in the loss


EXPERIMENTS = {
    "whole": Experiment(),
    "uniform weights": Experiment(options={"attend": uniform}),
    "one head": Experiment(options={"num_heads": 1}),
    "no positions": Experiment(WithoutPositions),
    "no padding mask": Experiment(hides_padding=False),
    "no causal mask": Experiment(WithoutCausalMask),
    "no loss mask": Experiment(scores_padding=True),
    "norm last": Experiment(options={"residual": PostNorm}),
}


# Training and asking


def train(experiment: Experiment, setting: Setting) -> tuple[Transformer, float]:
    """The model, and the mean loss of the last tenth of its steps."""
    torch.manual_seed(setting.seed)
    model = dates.build(experiment.kind, **{**setting.sizes, **experiment.options})
    random = Random(setting.seed)
    optimiser = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, setting.rate, total_steps=setting.steps, pct_start=0.1
    )
    losses = []
    for _ in range(setting.steps):
        examples = dates.draw(setting.batch, random)
        loss = loss_of(model, examples, experiment)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
    last = losses[-max(setting.steps // 10, 1) :]
    return model.eval(), sum(last) / len(last)


def loss_of(model: Transformer, examples: list[Example], experiment: Experiment) -> Tensor:
    """The mean error of the next character, each asked for with the right ones before it."""
    source, mask = dates.source_of(examples)
    target = dates.target_of(examples)
    logits = model(source, target[:, :-1], mask if experiment.hides_padding else None)
    ignored = -100 if experiment.scores_padding else PAD
    return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=ignored)


def ask(model: Transformer, experiment: Experiment, setting: Setting) -> dict[str, float]:
    """The shares of right answers, each to three figures."""
    seen = dates.draw(setting.asked, Random(101), held_out=True)
    unseen = dates.draw(setting.asked, Random(102), dates.UNSEEN, held_out=True)
    hides = experiment.hides_padding
    return {
        "seen": round(dates.share_right(model, seen, hides_padding=hides), 3),
        "unseen": round(dates.share_right(model, unseen, hides_padding=hides), 3),
        "padded": round(dates.share_right(model, seen, hides_padding=hides, more=MORE), 3),
    }


def run(name: str, setting: Setting) -> tuple[Transformer, dict[str, float]]:
    experiment, start = EXPERIMENTS[name], time.process_time()
    model, loss = train(experiment, setting)
    seconds = round(time.process_time() - start)
    model.half().float()  # what is asked is what the package keeps
    found = {"loss": round(loss, 4), **ask(model, experiment, setting), "seconds": seconds}
    print(f"{name:16}{found}", flush=True)
    return model, found


# The record


def save(model: Transformer, file: Path) -> None:
    """In half precision, which is half the size."""
    unfinished = file.with_suffix(".unfinished")
    torch.save({name: p.half() for name, p in model.state_dict().items()}, unfinished)
    unfinished.replace(file)


def main(arguments: list[str] | None = None, base: Setting = FULL) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.dates",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--steps", type=int, default=base.steps, help="of each training")
    parser.add_argument("--only", nargs="+", choices=EXPERIMENTS, default=list(EXPERIMENTS))
    parser.add_argument("--file", type=Path, default=BOOK, help="write here, not for the book")
    parser.add_argument("--model", type=Path, default=MODEL, help="and the whole model here")
    given = parser.parse_args(arguments)
    setting = replace(base, steps=given.steps)
    torch.set_num_threads(1)
    head = records.head(setting)
    unfinished = given.file.with_suffix(".unfinished")
    found = records.begun(unfinished, head)
    for name in given.only:
        if name in found:
            continue
        model, found[name] = run(name, setting)
        if name == "whole":
            save(model, given.model)
        records.write({**head, "found": found}, unfinished)
    if missing := [name for name in EXPERIMENTS if name not in found]:
        print(f"{unfinished} still lacks {', '.join(missing)}")
        return
    records.write({**head, "found": {name: found[name] for name in EXPERIMENTS}}, given.file)
    unfinished.unlink()
    print(f"written to {given.file}")


if __name__ == "__main__":
    main()
