"""The benchmarks compare like with like, and say so when they don't."""

import json
import re
from dataclasses import replace
from subprocess import CalledProcessError
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from benchmarks import __main__ as command
from benchmarks import imports, measure, record, rivals, sections
from benchmarks.measure import Effort, interleaved
from benchmarks.parts import PARTS, WHOLE, parts
from benchmarks.rivals import BARE, KINDS, Case, Outcome, assert_same
from mini_attention import blocks

TINY = Case(n=7, batch=2, num_heads=3, d_head=5)
QUICK = Effort(least=2, most=2, turn=1e-5)
EVERY = pytest.mark.parametrize("training", [False, True])
KIND = pytest.mark.parametrize("kind", ["functions", "layers"])


@pytest.fixture(autouse=True)
def _without_compiler(monkeypatch):
    """Compiling takes seconds; one test asks for it."""
    monkeypatch.setattr(rivals, "has_compiler", lambda device: False)


@pytest.mark.parametrize("causal", [False, True])
@EVERY
@KIND
def test_the_rivals_give_the_same_outputs_and_gradients(kind, training, causal):
    case = replace(TINY, training=training, causal=causal)
    calls = KINDS[kind](case)
    assert len(calls) >= {"functions": 3, "layers": 6}[kind]
    gradients = {"functions": 3, "layers": 9}[kind] if training else 0
    assert len(calls[BARE]().gradients) == gradients
    assert_same(calls)


@pytest.mark.parametrize("wrong", [0, 1, 2])
@KIND
def test_a_rival_that_computes_something_else_is_refused(kind, wrong):
    calls = KINDS[kind](replace(TINY, training=True))
    name = list(calls)[wrong]
    output, weights, (*most, last) = calls[name]()
    for outcome in [
        Outcome(output + 0.01, weights, (*most, last)),
        Outcome(output, weights, (*most, last + 0.01)),
        Outcome(output, weights, (most[0] + 0.01, *most[1:], last)),
        Outcome(output * torch.nan, weights, (*most, last)),
    ]:
        calls[name] = lambda outcome=outcome: outcome
        with pytest.raises(AssertionError, match="differs from the rivals'"):
            assert_same(calls)


def test_weights_that_are_wrong_or_of_another_head_are_refused():
    calls = KINDS["layers"](TINY)
    output, weights, _ = calls["nn.MultiheadAttention, weights"]()
    for other in (weights + 0.01, weights.roll(1, 1), weights.mean(1) + 0.01):
        calls["nn.MultiheadAttention, weights"] = lambda other=other: Outcome(output, other)
        with pytest.raises(AssertionError, match=r"weights of nn\.MultiheadAttention, weights"):
            assert_same(calls)


class Stranger(nn.Module):
    """Stands for x_transformers.Attention, which is not always installed."""

    def __init__(self, *, dim, heads, dim_head, causal, flash):
        super().__init__()
        self.case = Case(n=7, batch=2, num_heads=heads, d_head=dim_head, causal=causal)
        self.to_q, self.to_k, self.to_v, self.to_out = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x):
        projections = (self.to_q, self.to_k, self.to_v, self.to_out)
        ours = SimpleNamespace(**dict(zip(rivals.PROJECTIONS, projections, strict=True)))
        return rivals.bare_layer(ours, x, self.case)


def test_a_layer_from_elsewhere_gets_our_parameters(monkeypatch):
    monkeypatch.setattr(rivals, "x_transformers", lambda: SimpleNamespace(Attention=Stranger))
    calls = rivals.layers(replace(TINY, training=True, causal=True))
    assert len(calls["x_transformers.Attention"]().gradients) == 9
    assert_same(calls)


@pytest.mark.parametrize("present", ["x_transformers.Attention", "compiled attention", None])
def test_exactly_the_rivals_that_are_missing_are_told(monkeypatch, present):
    names = {"x_transformers.Attention", "compiled attention"}
    monkeypatch.setattr(rivals, "x_transformers", lambda: present == "x_transformers.Attention")
    monkeypatch.setattr(rivals, "has_compiler", lambda device: present == "compiled attention")
    assert rivals.missing().keys() == names - {present}


def test_missing_rivals_take_no_part(monkeypatch):
    monkeypatch.setattr(rivals, "x_transformers", lambda: None)
    names = {**rivals.layers(TINY), **rivals.functions(TINY)}
    assert not {"x_transformers.Attention", "compiled attention"} & set(names)


def test_the_compiled_formula_takes_part_where_there_is_a_compiler(monkeypatch):
    monkeypatch.setattr(rivals, "has_compiler", lambda device: True)
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: function)
    assert "compiled attention" in rivals.functions(TINY)
    assert "compiled attention" not in rivals.functions(TINY, compiled=False)


def test_rivals_that_make_the_matrix_leave_the_long_sequences_to_the_others(monkeypatch):
    assert TINY.matrix_bytes == 4 * 2 * 3 * 7 * 7
    monkeypatch.setattr(rivals, "LARGEST", TINY.matrix_bytes - 1)
    assert "attention" not in rivals.functions(TINY)
    assert not [name for name in rivals.layers(TINY) if "weights" in name]


def test_the_work_of_a_case_is_counted_by_hand():
    core = 2 * 2 * (2 * 3 * 7 * 7 * 5)
    projections = 2 * 4 * (2 * 7 * 15 * 15)
    assert rivals.flops("functions", TINY) == core
    assert rivals.flops("layers", replace(TINY, training=True)) == 3 * (core + projections)
    hidden = replace(TINY, causal=True)
    assert rivals.flops("functions", hidden) == pytest.approx(
        core * (1 + 2 + 3 + 4 + 5 + 6 + 7) / 49
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_every_rival_is_timed_once_a_repeat_on_the_threads_asked_for(threads):
    before, seen = torch.get_num_threads(), set()
    call = lambda: seen.add(torch.get_num_threads())
    times = interleaved({"one": call, "other": call}, QUICK, threads=threads)
    assert {name: len(values) for name, values in times.items()} == {"one": 2, "other": 2}
    assert seen == {threads}
    assert torch.get_num_threads() == before


def test_repeats_end_when_the_seconds_are_spent_but_not_before_the_least():
    nothing = {"one": lambda: None}
    effort = Effort(least=3, most=5, seconds=0.0, turn=1e-5)
    assert len(interleaved(nothing, effort)["one"]) == 3
    assert len(interleaved(nothing, replace(effort, seconds=60.0))["one"]) == 5


def test_quotients_are_taken_within_a_repeat():
    times = {"ours": [2.0, 4.0, 30.0], "theirs": [1.0, 2.0, 10.0]}
    assert measure.paired(times, "ours", "theirs") == [2.0, 2.0, 3.0]


def test_a_spread_is_quartile_median_quartile():
    assert measure.spread([5.0, 1.0, 2.0, 4.0, 3.0]) == [2.0, 3.0, 4.0]
    assert measure.spread([7.0]) == [7.0, 7.0, 7.0]


def test_the_slope_of_a_power_is_its_exponent():
    lengths = [64, 128, 256, 1024]
    values = [1e9, *(3.0 * n**1.5 for n in lengths[1:])]
    assert measure.slope(lengths, values, start=128) == pytest.approx(1.5)
    assert measure.slope(lengths, [None, 5.0, None, 40.0], start=1) == pytest.approx(1.0)
    assert measure.slope(lengths, values, start=1024) is None


def test_a_fresh_process_grows_by_what_the_formula_makes():
    case = replace(TINY, n=1021)
    grown = measure.process_bytes("functions", case, "attention")
    assert 2 * case.matrix_bytes < grown < 3 * case.matrix_bytes


def test_the_graphics_memory_of_a_call_is_its_peak_less_what_was_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 100)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 131)
    assert measure.allocated_bytes(lambda: None, "cuda") == 31


# The command and its file


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run the command on a handful of tiny cases, and read what it wrote."""
    grid = {"num_heads": (3,), "d_head": (5,), "n": (7,)}
    small = replace(
        sections.SHORT,
        effort=QUICK,
        lengths=(7,),
        longer=(7, 11),
        longest=1021,
        grids={"functions": grid, "layers": grid, "parts": grid},
    )
    monkeypatch.setattr(command, "SHORT", small)
    file = tmp_path / "folder" / "benchmark.json"

    def run(*arguments):
        command.main([*arguments, "--file", str(file)])
        return json.loads(file.read_text())

    return run


def test_a_run_leaves_a_place_for_what_it_did_not_measure(run):
    written = run("--only", "layers")
    assert written.keys() == record.PLACES.keys()
    assert written["cpu"]["growth"] is None
    assert set(written["cuda bfloat16"].values()) == {None}
    (row,) = written["cpu"]["layers"]["rows"]
    assert row["peak_bytes"].keys() == row["milliseconds"].keys()
    assert "MultiHeadAttention / nn.MultiheadAttention" in row["ratios"]


def test_a_long_layer_with_blocks_holds_a_part_of_what_the_formula_would(run, capsys):
    found = run("--only", "longest")["cpu"]["longest"]
    assert found["bytes_of_scores_and_weights"] == 2 * 4 * found["num_heads"] * 1021**2
    own = 3 * 4 * 1021 * found["num_heads"] * found["d_head"]  # query, key and value at least
    for bytes_held in (found["peak_bytes"], found["process_bytes"]):
        assert own < bytes_held < found["bytes_of_scores_and_weights"] / 2
    assert "n 1021, forward and backward:" in capsys.readouterr().out


def test_the_parts_of_a_forward_pass_stand_beside_the_bare_kernel(run, capsys):
    (row,) = run("--only", "parts")["cpu"]["parts"]["rows"]
    assert tuple(row["ratios"]) == PARTS
    assert all(0 < low <= middle <= high for low, middle, high in row["ratios"].values())
    assert "n 7, 3 heads of 5, 2 repeats" in capsys.readouterr().out


def test_the_parts_end_with_the_whole_and_all_but_the_last_leave_something_out(monkeypatch):
    monkeypatch.setattr(blocks, "KEYS", 4)  # rows in pieces
    calls = parts(TINY)
    assert_same({name: calls[name] for name in (BARE, WHOLE)})
    products, powers, passes = (calls[name]().output.clone() for name in PARTS[:-1])
    assert not torch.allclose(products, powers)
    assert not torch.allclose(powers, passes)


def test_a_finished_section_survives_the_interruption_of_the_next(run, monkeypatch):
    def measured(section, *_):
        if section == "layers":
            raise KeyboardInterrupt
        return {"rows": [section]}

    monkeypatch.setattr(command, "measure", measured)
    run("--only", "growth")
    with pytest.raises(KeyboardInterrupt):
        run("--only", "functions", "layers")
    written = run("--only", "growth")["cpu"]
    assert written["functions"]["rows"] == ["functions"]
    assert written["layers"] is None


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--n", "0"], "must be an integer of at least 1; got 0"),
        (["--threads", "1000000"], r"--threads 1000000: this machine has \d+ cores"),
        (["--only", "everything"], "invalid choice: 'everything'"),
        (["--file", "."], r"--file \. can't be continued: .*[Ii]s a directory"),
    ],
)
def test_a_bad_argument_is_told_before_anything_runs(capsys, arguments, complaint):
    with pytest.raises(SystemExit):
        command.main(arguments)
    assert re.search(complaint, capsys.readouterr().err)


def test_only_a_full_run_of_all_lengths_writes_the_books_file():
    files = [
        command.parse(words.split()).file
        for words in ("--full", "", "--full --n 8", "--full --repeats 2")
    ]
    assert files == [record.BOOK, *[record.ELSEWHERE] * 3]


def test_the_books_file_has_what_the_chapters_draw_and_names_no_machine(run):
    fresh, kept = (r["cpu"]["growth"] for r in (run("--only", "growth"), record.read(record.BOOK)))
    assert kept.keys() == fresh.keys()
    assert kept["setting"] == "full"
    assert kept["n"] == [128, 256, 512, 1024, 2048, 4096]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", kept["date"])
    for mode in ("forward", "training"):
        assert kept[mode].keys() == fresh[mode].keys()
        for name in ("attention", "fused_attention"):
            times = kept[mode]["milliseconds"][name]
            assert len(times) == len(kept["n"])
            assert times == sorted(times)
            assert len(kept[mode]["peak_bytes"][name]) == len(kept["n_of_bytes"])


def test_an_import_is_weighed_in_a_process_that_has_to_succeed():
    assert imports.processor_time("pass") > 0
    with pytest.raises(CalledProcessError):
        imports.processor_time("import no_such_package")
