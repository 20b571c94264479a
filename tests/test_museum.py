"""The museum of bugs: every program has its exhibit, and what exhibits say is so."""

import re

import pytest
import torch

import mini_attention
from mini_attention.mistakes import MISTAKES, RUNNING, museum
from mini_attention.mistakes.formula import Formula
from mini_attention.mistakes.layers import LAYER
from mini_attention.mistakes.reports import REPORTS
from mini_attention.mistakes.running import Running
from tools import notebooks, rules

ENTRANCE, *ROOMS = sorted((notebooks.ROOT / "book").glob("museum*.ipynb"))
PAGES = {path.name: rules.Page(path) for path in (ENTRANCE, *ROOMS)}
LABELS = ("**From outside.** ", "**The smallest input that shows it.** ", "**What reveals it.** ")
every = pytest.mark.parametrize("name", museum.ALL)


def exhibits(page):
    """The name of each exhibit of a page, with its heading and what it shows, in order."""
    headed = ""
    for cell in page.cells:
        if cell.cell_type == "markdown":
            headed = [headed, *re.findall(r"^### (.+)$", cell.source, re.MULTILINE)][-1]
        elif found := re.fullmatch(r'exhibit\("(.+)"\)', cell.source):
            yield found[1], headed, cell.outputs[0].data["text/markdown"]


SHOWN = {name: shown for page in PAGES.values() for name, _, shown in exhibits(page)}


# The pages


def test_every_wrong_program_has_one_exhibit_and_nothing_else_has():
    names = [name for page in PAGES.values() for name, _, _ in exhibits(page)]
    assert sorted(names) == sorted({**MISTAKES, **RUNNING})


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_the_anchor_of_an_exhibit_is_its_name_and_its_address_leads_there(page):
    for name, heading, _ in exhibits(page):
        anchor = rules.slug(heading)
        assert anchor == name.replace(" ", "-")
        assert museum.address(name) == f"{page.path.name}#{anchor}"
        assert anchor in rules.anchors(page.path)


@pytest.mark.parametrize("path", ROOMS, ids=lambda path: path.stem)
def test_a_room_keeps_the_order_of_the_collection(path):
    room = path.stem.removeprefix("museum_")
    expected = [name for name in museum.names_in(room) if name not in museum.AT_THE_ENTRANCE]
    assert [name for name, _, _ in exhibits(PAGES[path.name])] == expected


@every
def test_an_exhibit_shows_everything_that_is_known_of_its_program(name):
    what, *parts = SHOWN[name].split("\n\n**")
    assert what.strip()
    assert [f"**{part.partition('** ')[0]}** " for part in parts[:3]] == list(LABELS)
    assert re.search(r"^- `.+`$", SHOWN[name], re.MULTILINE)  # numbers that give it away
    assert re.search(r"^-", museum.lines_of(museum.ALL[name]), re.MULTILINE)
    assert museum.lines_of(museum.ALL[name]) in SHOWN[name]
    for report in REPORTS.get(name, ()):
        assert report.replace("#", "/issues/") in SHOWN[name]
    assert ("**Reported** in" in SHOWN[name]) == (name in REPORTS)


def test_the_table_of_checks_lists_every_program_with_a_link_to_its_exhibit():
    tables = "\n".join(
        cell.outputs[0].data["text/markdown"]
        for cell in PAGES[ENTRANCE.name].cells
        if cell.source.startswith("museum.table(")
    )
    rows = re.findall(r"^\| \[(.+?)\]\((.+?)\) \|", tables, re.MULTILINE)
    assert rows == [(name, museum.address(name)) for name in museum.ALL]


# Reports


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_names_a_repository_and_a_thread_once(name):
    assert name in museum.ALL
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#[1-9]\d*", report) for report in REPORTS[name])
    assert 1 <= len(set(REPORTS[name])) == len(REPORTS[name])


# What exhibits are made of


@pytest.mark.parametrize(
    "attend", [Formula().attention, museum.partial(Running().blocked_attention, block_size=2)]
)
def test_a_right_function_looks_right_from_outside(attend):
    assert museum._outside_of_function(attend) == museum.Outside(True, True, True)


POSITIONS = ("sinusoidal_positions", "rotary_embedding", "RotaryAttention")


@pytest.mark.parametrize("public", POSITIONS)
def test_right_positions_look_right_from_outside(public):
    right = getattr(mini_attention, public)
    fair = museum.Mistake("right", "none", "", "", {public: right}, right)
    assert museum._outside_of_positions(fair) == museum.Outside(True, True, True)


@pytest.mark.parametrize("public", [LAYER, *museum.USUAL])
def test_a_right_layer_or_mask_looks_right_from_outside(public):
    right = getattr(mini_attention, public)
    fair = museum.Mistake("right", "none", "", "", {public: right}, right)
    seen = museum._outside_of_layer(fair) if public == LAYER else museum._outside_of_mask(fair)
    assert seen == museum.Outside(True, True, True)


def test_from_outside_a_shape_sums_and_numbers_are_told():
    assert str(museum.Outside(True, False, True)) == (
        "the right shape, rows that do not sum to 1, right numbers"
    )
    assert str(museum.outside("padding hides queries")).startswith("another shape")
    assert str(museum.outside("no scale")).endswith("rows that sum to 1, wrong numbers")
    assert museum.outside("queries counted from the start").agrees
    assert not museum.outside("never divided").rows


@pytest.mark.parametrize("name", museum.TRIALS)
def test_a_trial_tells_the_wrong_program_from_the_right_one(name):
    expected, got = museum.tried(name).found
    assert expected.removeprefix("expected ") != got.removeprefix("got ")


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("no scale", " def scale(self, given):\n-    return 1.0\n+    return given.scale"),
        (
            "softmax twice",
            " def weights(self, scores, given):\n"
            "-    return super().weights(scores, given).softmax(-1)\n"
            "+    return super().weights(scores, given)",
        ),
        (
            "causal from the start",
            '-def causal_from_the_start(i, j=None, *, align="start"):\n'
            '+def causal_from_the_start(i, j=None, *, align="end"):\n'
            "     return causal_mask(i, j, align=align)",
        ),
        (
            "padding always right",
            ' def padding_always_right(lengths, j, *, side="right"):\n'
            "-    return padding_mask(lengths, j)\n"
            "+    return padding_mask(lengths, j, side=side)",
        ),
    ],
)
def test_the_lines_of_a_program_stand_beside_the_right_ones(name, lines):
    assert museum.lines_of(museum.ALL[name]) == lines


def test_a_mistake_in_a_helper_is_shown_too():
    lines = museum.lines_of(museum.ALL["softmax derivative one by one"])
    assert "-    return gradients[0] * weights * (1 - weights)" in lines
    assert "+    return _softmax(scores, given.allowed)" in lines
    assert "block_diag" in museum.lines_of(museum.ALL["split before projecting"])


def test_of_many_arguments_the_first_are_shown_and_all_where_they_differ():
    lines = museum.lines_of(museum.ALL["values rotated too"])
    assert lines.startswith(" def __call__(self, query, key, value, ...):\n")
    assert lines.endswith("\n+    return super().__call__(query, key, value, mask, ...)")
    wrong, right, _ = museum.lines_of(museum.ALL["rotary in other pairs"]).splitlines()
    assert 'pairing="neighbours", features=None' in wrong
    assert 'pairing="halves", features=None' in right


def test_a_mistake_that_builds_on_another_stands_beside_what_is_right():
    lines = museum.lines_of(museum.ALL["one maximum for all"])
    assert "+    return _softmax(scores, given.allowed)" in lines


def test_a_program_that_is_wrong_as_a_whole_stands_beside_the_packages_own():
    lines = museum.lines_of(museum.ALL["scores stored whole"])
    assert "-    scores = _scores(" in lines
    assert "+    return blocked_attention(query, key, value, mask, ...)" in lines


@pytest.mark.parametrize(
    ("name", "check", "told"),
    [
        ("causal one ahead", "check_mask", "as many queries as keys"),
        ("query and key swapped", "check_attention", "equal keys"),
        ("mask forgotten by weights", "check_attention", "causal mask, as mask ignored"),
        ("junk gets through", "check_attention", "note"),
        ("junk gets through", "check_single_head", "passes"),
        ("copied transposed", "check_multi_head", "one token, no name"),
        ("keys from query", "check_single_head", "cross-attention"),
        ("top forgotten", "check_merge", "higher top"),
    ],
)
def test_a_table_tells_where_a_check_stops_and_whether_it_knows_the_mistake(name, check, told):
    assert museum._cell(name, check) == told


def test_a_table_has_a_column_for_each_check_and_a_dash_where_it_is_not_asked():
    lines = museum.table("masks").data.splitlines()
    assert lines[0] == "| mistake | `check_mask` |"
    assert lines[-1] == "| [heads stacked first](museum_masks.ipynb#heads-stacked-first) | – |"
    assert museum.table("positions").data.startswith("| mistake | `check` |\n")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("causal one ahead", "`check_mask`, at *as many queries as keys*: “It looks like this"),
        ("junk gets through", "`check_attention` passes it with a note: “NaN in a key"),
        ("bias forgotten", "This question; `check_multi_head` does not ask it, and passes."),
        ("heads stacked first", "This question; no check asks it."),
    ],
)
def test_an_exhibit_says_what_reveals_the_mistake(name, told):
    shown = museum.exhibit(name).data
    assert f"**What reveals it.** {told}" in shown
    assert shown == SHOWN[name]


def test_an_unknown_name_is_an_error_that_says_which_one_is_near():
    with pytest.raises(ValueError, match="no mistake is called 'no scal'; 'no scale' is one"):
        museum.exhibit("no scal")
    with pytest.raises(ValueError, match=r"no mistake is called 'xyz'$"):
        museum.exhibit("xyz")


def wrong(name):
    ((_, program),) = museum.ALL[name].programs.items()
    return program


def test_wrong_rotations_are_right_where_they_say_so():
    words, where = torch.randn(5, 4), torch.arange(5) + 7
    expected = mini_attention.rotary_embedding(words, where)
    assert torch.equal(wrong("rotary along heads")(words, where), expected)
    neighbours = mini_attention.rotary_embedding(words, where, pairing="neighbours")
    actual = wrong("rotary speeds of neighbours")(words, where, pairing="neighbours")
    assert torch.equal(actual, neighbours)


def test_wrong_rotary_attention_is_right_where_it_says_so():
    query, key, value = torch.randn(3, 4), torch.randn(5, 4), torch.randn(5, 6)
    expected = mini_attention.RotaryAttention()(query, key, value)
    assert torch.equal(wrong("values rotated too")()(query, key, value), expected)
    given = wrong("queries counted from the start")()
    actual = given(query, key, value, query_positions=torch.arange(3) + 2)
    assert torch.equal(actual, expected)


def test_looking_at_exhibits_draws_none_of_the_readers_random_numbers():
    torch.manual_seed(0)
    expected = torch.rand(())
    torch.manual_seed(0)
    museum.outside.cache_clear()
    museum.exhibit("dropout in evaluation")
    assert torch.equal(torch.rand(()), expected)
