"""The collection as a museum: each wrong program with its lines, and what gives it away.

What an exhibit tells of a program is found by running it, each time that the exhibit is shown.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from einops import rearrange
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
from .layers import LAYER
from .reports import REPORTS
from .running import Running
from .single import HEADS

if TYPE_CHECKING:
    from IPython.display import Markdown

ALL = {**MISTAKES, **RUNNING}
SOURCES = {mistake.source for mistake in ALL.values()}
AT_THE_ENTRANCE = ("attends over heads", "item mask on heads")  # the classes that articles teach
TOKENS = 6  # of the usual input
SHORT = 4  # lines of a step that is shown as the right one
FIRST, WIDE = 4, 60  # arguments that are shown of more, and characters that all of them may take


def names_in(room: str) -> list[str]:
    """The names of the exhibits of a room, which is a module of the collection."""
    return [name for name, mistake in ALL.items() if _room(mistake) == room]


def _room(mistake: Mistake) -> str:
    return mistake.source.__module__.rpartition(".")[2]


def address(name: str) -> str:
    """Where the book has an exhibit, seen from a page beside it."""
    page = "museum" if name in AT_THE_ENTRANCE else f"museum_{_room(ALL[name])}"
    return f"{page}.ipynb#{name.replace(' ', '-')}"


# The lines: what is wrong, and what is right


def lines_of(mistake: Mistake) -> str:
    """The wrong lines with a minus, the right ones with a plus, as a diff."""
    source = mistake.source
    if isinstance(source, FunctionType):
        (right,) = (getattr(mini_attention, name) for name in mistake.programs)
        return _diff(source, [f"return {right.__name__}({_given(source)})"], right)
    text, beside = inspect.getsource(source), vars(inspect.getmodule(source))
    helpers = [beside[name] for name in dict.fromkeys(re.findall(r"\b_[A-Z]\w*", text))]
    steps = [_step(kind, name, step) for kind in (*helpers, source) for name, step in _own(kind)]
    return "\n\n".join(steps or map(_whole, mistake.programs.items()))


def _whole(named: tuple[str, Any]) -> str:
    """A program that is wrong in no step but as a whole: the package's own is the right one."""
    name, program = named
    return _diff(program.__func__, [f"return {name}({_given(program)})"])


def _own(kind: type) -> Iterator[tuple[str, FunctionType]]:
    for name, member in vars(kind).items():
        function = getattr(member, "__func__", member)  # of a class or static method
        if isinstance(function, FunctionType):
            yield name, function


def _step(source: Any, name: str, wrong: FunctionType) -> str:
    """A step of a class that replaces one of the right program, or helps another that does."""
    bases = [base for base in source.__mro__[1:] if name in vars(base)]
    if not bases or not bases[0].__module__.startswith(mini_attention.__name__):
        return _diff(wrong, [])
    right = next(base for base in bases if base not in SOURCES)
    body = _body(vars(right)[name])
    if f"super().{name}(" in inspect.getsource(wrong) and (right is bases[0] or len(body) > SHORT):
        body = [f"return super().{name}({_given(wrong)})"]
    return _diff(wrong, body)


def _diff(wrong: FunctionType, right: Sequence[str], like: Callable[..., Any] | None = None) -> str:
    """Two bodies below one first line, or two where the right one takes something else."""
    name = wrong.__name__
    first, header = _header(name, wrong), _header(name, like or wrong)
    if first == header:
        first = header = _header(name, wrong, whole=False)
    top = [f" {first}"] if first == header else [f"-{first}", f"+{header}"]
    before, after = ([f"    {line}" for line in lines] for lines in (_body(wrong), right))
    _, _, _, *body = (
        difflib.unified_diff(before, after, n=len(before), lineterm="")
        if (before != after)
        else [*"   ", *(f" {line}" for line in before)]
    )
    return "\n".join(top + [line.rstrip() for line in body])


def _header(name: str, function: Callable[..., Any], *, whole: bool = True) -> str:
    """`def` with the names of the arguments alone, and what they are unless given."""
    shown = []
    for parameter in _parameters(function):
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        default = parameter.default
        told = json.dumps(default) if isinstance(default, str) else None
        told = told or getattr(default, "__name__", repr(default))
        shown.append(parameter.name + f"={told}" * (default is not parameter.empty))
    return f"def {name}({', '.join(shown) if whole else _few(shown)}):"


def _few(arguments: list[str]) -> str:
    """The arguments, or the first of them where they are many."""
    listed = ", ".join(arguments)
    return listed if len(listed) <= WIDE else ", ".join([*arguments[:FIRST], "..."])


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    given = inspect.signature(function).parameters.values()
    return [parameter for parameter in given if parameter.name != "device"]


def _given(function: Callable[..., Any]) -> str:
    """The arguments of a function, handed on."""
    return _few(
        [
            f"{p.name}={p.name}" if p.kind is p.KEYWORD_ONLY else p.name
            for p in _parameters(function)
            if p.name not in ("self", "cls")
        ]
    )


def _body(function: Callable[..., Any]) -> list[str]:
    """The lines of a function without its docstring, and without what no reader looks for."""
    source = textwrap.dedent(inspect.getsource(function))
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.FunctionDef)
    statements = definition.body[ast.get_docstring(definition) is not None :]
    lines = source.splitlines()[statements[0].lineno - 1 :]
    return _plainer(textwrap.dedent("\n".join(lines))).splitlines()


def _plainer(text: str) -> str:
    """The text without types and devices, and without lines that are there for their errors."""
    for what, instead in ((r", device=device", ""), (r"  # type: ignore.*", "")):
        text = re.sub(what, instead, text)
    text = re.sub(r".*# for its errors\n", "", text)
    return re.sub(r"^( *\w+): .+? = ", r"\1 = ", text, flags=re.MULTILINE)


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


@dataclass(frozen=True)
class Trial:
    """A question that no check asks, or none that a check holds against a program."""

    question: str
    ask: Callable[[Callable[..., Any]], Tensor]  # of a program


def _mask_of_items(attend: Callable[..., Tensor]) -> Tensor:
    """The keys that the heads of item 0 see, where it may see key 0 and item 1 key 1."""
    query = torch.zeros(2, 2, 1, 1)
    own = torch.tensor([[[True, False]], [[False, True]]])
    return attend(query, query.expand(2, 2, 2, 1), torch.eye(2).expand(2, 2, 2, 2), own)[0, :, 0]


def _padding_of_nan(attend: Callable[..., Tensor]) -> Tensor:
    key = torch.tensor([[1.0], [torch.nan]])
    return attend(torch.ones(1, 1), key, key, torch.tensor([[True, False]]))


def _half(attend: Callable[..., Tensor]) -> Tensor:
    many = torch.full((1, 11), 250.0, dtype=torch.float16)
    return attend(many, many, torch.ones(1, 1, dtype=torch.float16))


def _far_in_double(attend: Callable[..., Tensor]) -> Tensor:
    query, key, value = torch.arange(12, dtype=torch.float64).sin().view(3, 2, 2)
    right = F.scaled_dot_product_attention(query, key, value)
    return torch.tensor(bool((attend(query, key, value) - right).abs().max() > 1e-9))


def _layer(kind: Callable[..., Any], *, train: bool = False) -> tuple[Any, Tensor]:
    """A layer of two heads with a dropout rate of 0.5, and two items of four tokens."""
    return kind(4, 2, dropout=0.5).train(train), torch.linspace(-1, 1, 32).sin().view(2, 4, 4)


def _bias_matters(kind: Callable[..., Any]) -> Tensor:
    layer, x = _layer(kind)
    hidden = torch.zeros(4, 4).index_fill(1, torch.tensor([0]), -torch.inf)
    return torch.tensor(not torch.allclose(layer(x, bias=hidden), layer(x)))


def _calls_differ(kind: Callable[..., Any]) -> Tensor:
    layer, x = _layer(kind, train=True)
    return torch.tensor(not torch.allclose(layer(x), layer(x)))


def _rows_sum_to_1(kind: Callable[..., Any]) -> Tensor:
    layer, x = _layer(kind, train=True)
    sums = layer(x, return_weights=True)[1].sum(-1)
    return torch.tensor(torch.allclose(sums, torch.ones_like(sums)))


def _heads_differ(kind: Callable[..., Any]) -> Tensor:
    layer, x = _layer(kind)
    weights = layer(x, return_weights=True)[1]
    return torch.tensor(not torch.allclose(weights[:, 0], weights[:, 1]))


def _future_shown(kind: Callable[..., Any]) -> Tensor:
    layer, x = _layer(kind)
    weights = layer(x, mask=causal_mask(4), return_weights=True)[1]
    return torch.tensor(bool((weights[..., 0, 1:] > 0).any()))


def _taken_over(convert: Callable[..., Any]) -> Tensor:
    mask: Tensor = convert(torch.tensor([[False, True], [False, False]]), num_heads=1)[0]
    return mask.int()


def _with_padding(convert: Callable[..., Any]) -> Tensor:
    hidden = torch.tensor([[False, True], [False, False]])
    mask: Tensor = convert(hidden, torch.tensor([[False, True]]), num_heads=1)[0]
    return mask.int()


def _stacked(convert: Callable[..., Tensor]) -> Tensor:
    seen = torch.tensor([[True, False], [True, False]])  # b h
    return convert(rearrange(seen, "b h -> b h 1 1"), num_heads=2).flatten().int()


def _row_of_a_table(build: Callable[..., Tensor]) -> Tensor:
    return build(2, 4)[1]


def _turned(turn: Callable[..., Tensor]) -> Tensor:
    return turn(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), torch.tensor([1]))


def _shift_matters(turn: Callable[..., Tensor]) -> Tensor:
    words = torch.ones(2, 4)
    near, far = (turn(words, torch.tensor([0, 1]) + shift) for shift in (0, 5))
    return torch.tensor(not torch.allclose(near[0] @ near[1], far[0] @ far[1]))


def _word_turns(turn: Callable[..., Tensor]) -> Tensor:
    first, second = turn(torch.ones(1, 2, 2))[0]
    return torch.tensor(not torch.allclose(first, second))


def _mean_of_values(build: Callable[..., Any]) -> Tensor:
    value = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    output: Tensor = build()(torch.zeros(1, 2), value, value)
    return output


def _alone_as_among_all(build: Callable[..., Any]) -> Tensor:
    words = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    alone, among = (build()(query, words, words)[-1] for query in (words[2:], words))
    return torch.tensor(torch.allclose(alone, among))


TRIALS = {
    "sinusoidal exponent doubled": Trial(
        "The row of position 1 with four features: a sine and a cosine of 1, and of 1 / 100.",
        _row_of_a_table,
    ),
    "rotary in other pairs": Trial(
        "The vector (1, 0, 0, 0) at position 1. Which feature turns with the first?", _turned
    ),
    "rotary speeds of neighbours": Trial(
        "Two words move on together. Does their score change?", _shift_matters
    ),
    "rotary along heads": Trial(
        "One head and two words that are alike. Does the second one turn?", _word_turns
    ),
    "values rotated too": Trial(
        "Two keys with equal scores have the same value, (1, 0). What is the output?",
        _mean_of_values,
    ),
    "queries counted from the start": Trial(
        "Does the last query get the same alone, with all keys in memory, as among all?",
        _alone_as_among_all,
    ),
    "mask lands on heads": Trial(
        "Two items of two heads; item 0 may see key 0, item 1 key 1. What do the heads of item 0 "
        "see? A mask b i j could mean either, and the package refuses it.",
        _mask_of_items,
    ),
    "junk gets through": Trial(
        "Two keys, 1 and NaN, of which the second is hidden. Their values are the same.",
        _padding_of_nan,
    ),
    "half summed in half": Trial(
        "In float16, a query and a key of eleven features that are 250 each; the value is 1.",
        _half,
    ),
    "double computed in single": Trial(
        "In float64, is the output further than 1e-9 from what is right?", _far_in_double
    ),
    "bias forgotten": Trial("Does a bias that forbids a token change the output?", _bias_matters),
    "dropout never acts": Trial("In training, do two calls differ?", _calls_differ),
    "shown after dropout": Trial(
        "In training, do the weights that are shown sum to 1 for each query?", _rows_sum_to_1
    ),
    "shown as average": Trial("Do the maps of the two heads differ?", _heads_differ),
    "shown without mask": Trial(
        "Under a causal mask, does the map show weight on a later token?", _future_shown
    ),
    "sense of torch kept": Trial(
        "Torch hides key 1 from query 0. Where may a query attend?", _taken_over
    ),
    "masks joined with or": Trial(
        "Torch hides key 1 from query 0, and key 1 is padding. Where may a query attend?",
        _with_padding,
    ),
    "heads stacked first": Trial(
        "Two items; head 0 sees its only key, head 1 does not. What is hidden, item by item?",
        _stacked,
    ),
}


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
