"""The collection as a museum: each wrong program with its lines, and what gives it away.

What an exhibit tells of a program is found by running it, each time that the exhibit is shown.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import mini_attention

from ..checks import (
    CheckFailed,
    Report,
    check_attention,
    check_blocked,
    check_mask,
    check_merge,
    check_multi_head,
    check_single_head,
)
from ..checks.answer import fork_rng
from ..checks.diagnosis import _shown
from ..checks.mask_cases import CASES
from ..functional import _softmax, attention
from ..heads import MultiHeadAttention, SingleHeadAttention
from ..masks import causal_mask
from ..shown import _plain
from .catalogue import MISTAKES, RUNNING, Mistake
from .diffs import lines_of
from .layers import LAYER
from .reports import REPORTS
from .running import Running
from .single import HEADS
from .trials import TRIALS, Trial

if TYPE_CHECKING:
    from IPython.display import Markdown

ALL = {**MISTAKES, **RUNNING}
AT_THE_ENTRANCE = ("attends over heads", "item mask on heads")  # the classes that articles teach
TOKENS = 6  # of the usual input


def names_in(room: str) -> list[str]:
    """The names of the exhibits of a room, which is a module of the collection."""
    return [name for name, mistake in ALL.items() if _room(mistake) == room]


def _room(mistake: Mistake) -> str:
    return mistake.source.__module__.rpartition(".")[2]


def address(name: str) -> str:
    """Where the book has an exhibit, seen from a page beside it."""
    page = "museum" if name in AT_THE_ENTRANCE else f"museum_{_room(ALL[name])}"
    return f"{page}.ipynb#{name.replace(' ', '-')}"


# From outside: what the usual tests see


@dataclass(frozen=True)
class Outside:
    """What a wrong program gives on the usual input, at which many tests stop."""

    shape: bool  # it has the right shape
    rows: bool  # the weights of each query sum to 1
    agrees: bool  # it equals what a right program gives

    def __str__(self) -> str:
        shape = "the right shape" if self.shape else "another shape"
        rows = "rows that sum to 1" if self.rows else "rows that do not sum to 1"
        return f"{shape}, {rows}, {'right' if self.agrees else 'wrong'} numbers"


@cache
def outside(name: str) -> Outside:
    """Six tokens under a causal mask, two items, three heads; or a mask for six tokens."""
    mistake = ALL[name]
    with _seeded():
        if LAYER in mistake.programs:
            return _outside_of_layer(mistake)
        if _room(mistake) == "positions":
            return _outside_of_positions(mistake)
        attend = attending(mistake)
        return _outside_of_mask(mistake) if attend is None else _outside_of_function(attend)


@contextmanager
def _seeded() -> Iterator[None]:
    """The same random numbers each time, and none of the reader's."""
    with fork_rng():
        torch.default_generator.manual_seed(0)
        yield


def attending(mistake: Mistake) -> Callable[..., Tensor] | None:
    """The mistake as a function of query, key, value and mask, if it is one."""
    if isinstance(mistake.source, type) and issubclass(mistake.source, Running):
        return partial(mistake.source().blocked_attention, block_size=2)
    programs = mistake.programs
    found = programs.get("attention") or programs.get("fused_attention")
    if found is None and "attention_weights" in programs:
        return _with_values(programs["attention_weights"])
    return found


def _with_values(weights: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def attention_weights(
        query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        return weights(query, key, mask) @ value

    return attention_weights


def _outside_of_function(attend: Callable[..., Tensor]) -> Outside:
    query, key, value = torch.randn(3, 2, 3, TOKENS, 4)
    mask, eye = causal_mask(TOKENS), torch.eye(TOKENS).expand(2, 3, TOKENS, TOKENS)
    right = F.scaled_dot_product_attention(query, key, value, mask)
    return _seen(attend(query, key, value, mask), right, attend(query, key, eye, mask))


def _outside_of_positions(mistake: Mistake) -> Outside:
    ((name, program),) = mistake.programs.items()
    query, key, value = torch.randn(3, 2, 3, TOKENS, 4)
    mask, eye = causal_mask(TOKENS), torch.eye(TOKENS).expand(2, 3, TOKENS, TOKENS)
    wrong, right = (_positioned(name, p) for p in (program, getattr(mini_attention, name)))
    given = query, key, value, mask
    return _seen(wrong(*given), right(*given), wrong(query, key, eye, mask))


def _positioned(name: str, program: Callable[..., Any]) -> Callable[..., Tensor]:
    """Attention to words whose positions a program tells: by rotation, or added to the words."""
    if name == "RotaryAttention":
        attend: Callable[..., Tensor] = program()
        return attend
    if name == "rotary_embedding":
        return lambda query, key, *rest: attention(program(query), program(key), *rest)
    table = program(TOKENS, 4)
    return lambda query, key, *rest: attention(query + table, key + table, *rest)


def _outside_of_layer(mistake: Mistake) -> Outside:
    x, mask = torch.randn(2, TOKENS, 12), causal_mask(TOKENS)
    wrong, like = layers_of(mistake, 12)
    output, weights = wrong(x, mask=mask, return_weights=True)
    right, _ = like.to_torch().eval()(x, x, x, attn_mask=~mask)
    return _seen(output, right, weights)


def layers_of(mistake: Mistake, d_model: int) -> tuple[Any, MultiHeadAttention]:
    """The wrong layer, a copy where it copies wrongly, and the right one with the same numbers."""
    kind: Any = mistake.programs[LAYER]
    if mistake.kind == "convert":
        theirs = nn.MultiheadAttention(d_model, 3, batch_first=True)
        return kind.from_torch(theirs).eval(), MultiHeadAttention.from_torch(theirs)
    wrong, right = kind(d_model, 3, dropout=0.5).eval(), MultiHeadAttention(d_model, 3)
    right.load_state_dict(wrong.state_dict())
    return wrong, right


USUAL: dict[str, Callable[..., Tensor]] = {
    "causal_mask": lambda build: build(TOKENS),
    "window_mask": lambda build: build(TOKENS, before=2),
    "padding_mask": lambda build: build([TOKENS, 4, 2], TOKENS),
    "document_mask": lambda build: build(torch.tensor([0, 0, 0, 1, 1, 1])),
    "mask_from_torch": lambda convert: convert(~causal_mask(TOKENS), num_heads=3)[0],
    "mask_to_torch": lambda convert: ~convert(causal_mask(TOKENS), num_heads=3),
}


def _outside_of_mask(mistake: Mistake) -> Outside:
    ((name, program),) = mistake.programs.items()
    wrong, right = (USUAL[name](f) for f in (program, getattr(mini_attention, name)))
    return _seen(wrong, right, _softmax(torch.randn(wrong.shape), wrong))


def _seen(output: Tensor, right: Tensor, weights: Tensor) -> Outside:
    shape, sums = output.shape == right.shape, weights.sum(-1)
    agrees = shape and torch.allclose(output.float(), right.float(), atol=1e-5)
    return Outside(shape, torch.allclose(sums, torch.ones_like(sums), atol=1e-5), agrees)


# What reveals it: a check, or a small trial where no check asks


@dataclass(frozen=True)
class Finding:
    """What a check, or a trial, found of a wrong program on the smallest input that shows it."""

    mechanism: str
    question: str
    given: Sequence[str] = ()
    found: Sequence[str] = ()  # what was expected, and what came
    says: str = ""
    names: Sequence[str] = ()  # the mistakes that it looks like


Asking = Mapping[str, Callable[[], Report]]


@cache
def checks_of(name: str) -> Asking:
    """The checks that can be asked about a wrong program, by name; the first is its own."""
    with _seeded():
        return _checks_of(ALL[name])


def _checks_of(mistake: Mistake) -> Asking:
    programs, source = mistake.programs, mistake.source
    if LAYER in programs:
        wrong, right = layers_of(mistake, 6)
        like = right if mistake.kind == "convert" else None
        asked: dict[str, Callable[[], Report]] = {
            "check_multi_head": partial(check_multi_head, wrong, like=like)
        }
        if mistake.name in HEADS:
            asked["check_single_head"] = partial(check_single_head, HEADS[mistake.name](6, 2))
        return asked
    if isinstance(source, type) and issubclass(source, Running):
        checks = {"blocked_attention": check_blocked, "merge": check_merge}
        return {checks[n].__name__: partial(checks[n], program) for n, program in programs.items()}
    if set(programs) <= {*CASES}:
        ((name, builder),) = programs.items()
        return {"check_mask": partial(check_mask, builder, getattr(mini_attention, name))}
    attend = attending(mistake)
    if attend is None:
        return {}
    own = {"check_attention": partial(check_attention, attend)}
    if set(programs) == {"attention_weights"}:
        return own
    return own | {
        "check_multi_head": partial(check_multi_head, MultiHeadAttention(6, 3, attend=attend)),
        "check_single_head": partial(check_single_head, SingleHeadAttention(6, 2, attend=attend)),
    }


@cache
def finding(name: str, check: str) -> Finding | None:
    """What a check finds of a mistake; None where it passes."""
    with _seeded():
        try:
            notes = checks_of(name)[check]().notes
        except CheckFailed as failed:
            return _read(str(failed))
    return Finding("note", "", says=notes[0]) if notes else None


def _read(message: str) -> Finding:
    """The parts of what a failed check says."""
    parts = [re.sub(r"\n  +", " ", part).splitlines() for part in message.split("\n\n")]
    (title,), given, found, diagnosis = parts
    mechanism, _, question = title.partition(": ")
    names = re.findall(r"(?:this mistake|like this): (.+)\.$", "\n".join(diagnosis), re.M)
    named = [n for two in names for n in ([two] if two in ALL else two.split(" and "))]
    found = [re.sub(" +", " ", line) for line in found]
    return Finding(mechanism, question, given, found, diagnosis[0], named)


def tried(name: str) -> Finding:
    """What the trial of a mistake finds."""
    trial = TRIALS[name]
    ((public, program), *_) = ALL[name].programs.items()
    if "attention" in ALL[name].programs:
        public, program = "attention", ALL[name].programs["attention"]
    right, wrong = (_told(trial, f) for f in (getattr(mini_attention, public), program))
    return Finding("", trial.question, found=[f"expected {right}", f"got {wrong}"])


def _told(trial: Trial, program: Callable[..., Any]) -> str:
    with _seeded():
        try:
            answer = trial.ask(program)
        except ValueError as error:
            return type(error).__name__
    if answer.dtype == torch.bool:
        return "yes" if answer else "no"
    return _shown(answer.detach())


# The exhibits


def exhibit(name: str) -> Markdown:
    """Show a wrong program: what it does, how it looks from outside, and what gives it away.

    Raises ValueError for a name that is not in the collection.
    """
    from IPython.display import Markdown

    return Markdown(text_of(name))  # type: ignore[no-untyped-call]


def text_of(name: str) -> str:
    if name not in ALL:
        near = [f"; {known!r} is one" for known in difflib.get_close_matches(name, ALL, 1)]
        raise ValueError("".join([f"no mistake is called {name!r}", *near]))
    mistake = ALL[name]
    parts = [
        _plain(mistake.what),
        f"**From outside.** {_plain(mistake.looks_like)} On a usual input: {outside(name)}.",
        f"```diff\n{lines_of(mistake)}\n```",
        *_evidence(name),
        _reported(name),
    ]
    return "\n\n".join(parts)


def _evidence(name: str) -> Iterator[str]:
    own = next(iter(checks_of(name)), "")
    found = finding(name, own) if own else None
    shows = tried(name) if name in TRIALS else found
    assert shows is not None  # what no check finds has a trial
    yield f"**The smallest input that shows it.** {_plain(shows.question)}"
    yield "\n".join(f"- `{line}`" for line in [*shows.given, *map(_reworded, shows.found)])
    yield f"**What reveals it.** {_revealed(own, found)}"


def _reworded(line: str) -> str:
    return line.replace("expected", "should be").replace("got", "is")


def _revealed(check: str, found: Finding | None) -> str:
    if not check:
        return "This question; no check asks it."
    if found is None:
        return f"This question; `{check}` does not ask it, and passes."
    if found.mechanism == "note":
        return f"`{check}` passes it with a note: “{_plain(found.says)}”"
    return f"`{check}`, at *{found.mechanism}*: “{_plain(found.says)}”"


def _reported(name: str) -> str:
    known = [_link(report) for report in REPORTS.get(name, ())]
    return f"**Reported** in {', '.join(known)}." if known else "No public report known to us."


def _link(report: str) -> str:
    repository, number = report.split("#")
    return f"[{repository} #{number}](https://github.com/{repository}/issues/{number})"


# All of them, beside the checks


def table(room: str) -> Markdown:
    """A table of the exhibits of a room: the question at which each check stops, and whether it
    names the mistake.
    """
    from IPython.display import Markdown

    rows = {
        name: {check: _cell(name, check) for check in checks_of(name)} for name in names_in(room)
    }
    checks = list(dict.fromkeys(check for row in rows.values() for check in row)) or ["check"]
    lines = [["mistake", *(f"`{check}`" for check in checks)], ["---"] * (len(checks) + 1)]
    for name, row in rows.items():
        lines.append([f"[{name}]({address(name)})", *(row.get(check, "–") for check in checks)])
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return Markdown(text)  # type: ignore[no-untyped-call]


def _cell(name: str, check: str) -> str:
    found = finding(name, check)
    if found is None:
        return "passes"
    if found.mechanism == "note" or name in found.names:
        return found.mechanism
    return (
        f"{found.mechanism}, as {found.names[0]}" if found.names else f"{found.mechanism}, no name"
    )
