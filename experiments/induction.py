"""Who learns to copy what repeats: one layer of attention or two, with one period or with many.

Four models of attention alone learn to tell the next letter of rows that repeat, each from scratch
in some 600 steps. Their parameters are kept by the package. The record has, for each of them,
while it learned and in the end, the loss and the share of right letters in the second copy:

    random   of rows with periods of 8 to 32
    fixed    of rows with the period 16

Finished trainings stay when the command is broken off, and the next one goes on from there.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from experiments import records
from mini_attention.repeats import MODELS, AttentionOnly, draw, in_second_copy, share_right

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "book" / "data" / "induction.json"
MODEL = ROOT / "mini_attention" / "repeats" / "models.pt"
NAMES = [f"{num_layers} {periods}" for num_layers in (1, 2) for periods in MODELS]


@dataclass(frozen=True)
class Setting:
    steps: int = 600
    batch: int = 64
    rate: float = 3e-3
    seed: int = 1
    every: int = 25  # steps between two looks at a model that learns
    asked: int = 200  # rows of each kind


FULL = Setting()  # what the book's record and the package's models are made with


def loss_of(model: AttentionOnly, tokens: Tensor) -> Tensor:
    """The error of each next letter, b n - 1: a row has nothing to tell of its last letter."""
    logits = model(tokens)[:, :-1]
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none").view(
        len(tokens), -1
    )


@torch.no_grad()
def ask(model: AttentionOnly, setting: Setting) -> dict[str, dict[str, float]]:
    """The loss and the share of right letters in the second copy, for each kind of rows."""
    found = {}
    for seed, (name, periods) in enumerate(MODELS.items(), start=101):
        tokens, drawn = draw(setting.asked, seed, periods)
        loss = loss_of(model, tokens)[in_second_copy(drawn)[:, :-1]].mean().item()
        right = share_right(model, tokens, drawn)
        found[name] = {"loss": round(loss, 3), "right": round(right, 3)}
    return found


def train(name: str, setting: Setting) -> tuple[AttentionOnly, list[dict[str, Any]]]:
    """The model of this name, and what it answered every so many steps."""
    num_layers, periods = name.split()
    torch.manual_seed(setting.seed)
    model = AttentionOnly(int(num_layers))
    generator = torch.Generator().manual_seed(setting.seed)
    optimiser = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, setting.rate, total_steps=setting.steps, pct_start=0.1
    )
    curve = []
    for step in range(setting.steps):
        if step % setting.every == 0:
            curve.append({"step": step, **ask(model, setting)})
        tokens, _ = draw(setting.batch, generator, MODELS[periods])
        loss = loss_of(model, tokens).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
    return model.eval(), curve


def run(name: str, setting: Setting) -> tuple[AttentionOnly, dict[str, Any]]:
    start = time.process_time()
    model, curve = train(name, setting)
    seconds = round(time.process_time() - start)
    model.half().float()  # what is asked is what the package keeps
    found = {**ask(model, setting), "seconds": seconds, "curve": curve}
    print(f"{name:9}{found['random']} {found['fixed']} {seconds} s", flush=True)
    return model, found


# The record


def save(models: Mapping[str, Mapping[str, Tensor]], file: Path) -> None:
    beside = file.with_suffix(".writing")
    torch.save(dict(models), beside)
    beside.replace(file)


def begun(
    record_file: Path, model_file: Path, head: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What an earlier call has finished with the same setting and torch, and its models."""
    found = records.begun(record_file, head) if model_file.exists() else {}
    models = torch.load(model_file, weights_only=True) if found else {}
    return {name: each for name, each in found.items() if name in models}, models


def main(arguments: list[str] | None = None, base: Setting = FULL) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.induction",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--steps", type=int, default=base.steps, help="of each training")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--file", type=Path, default=BOOK, help="write here, not for the book")
    parser.add_argument("--model", type=Path, default=MODEL, help="and the models here")
    given = parser.parse_args(arguments)
    setting = replace(base, steps=given.steps)
    torch.set_num_threads(1)
    head = records.head(setting)
    unfinished = given.file.with_suffix(".unfinished"), given.model.with_suffix(".unfinished")
    found, models = begun(*unfinished, head)
    for name in given.only:
        if name in found:
            continue
        model, found[name] = run(name, setting)
        models[name] = {key: p.half() for key, p in model.state_dict().items()}
        save(models, unfinished[1])
        records.write({**head, "found": found}, unfinished[0])
    if missing := [name for name in NAMES if name not in found]:
        print(f"{unfinished[0]} still lacks {', '.join(missing)}")
        return
    save({name: models[name] for name in NAMES}, given.model)
    records.write({**head, "found": {name: found[name] for name in NAMES}}, given.file)
    for file in unfinished:
        file.unlink()
    print(f"written to {given.file}")


if __name__ == "__main__":
    main()
