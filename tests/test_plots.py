"""The figures say what the numbers say, and nothing is drawn in silence."""

import io
import itertools
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from mini_attention import MultiHeadAttention, causal_mask, plots

mpl.use("Agg")

import matplotlib.pyplot as plt

H, I, J = 3, 5, 7  # noqa: E741
QUERIES = ["who", "what", "where", "when", "why"]
KEYS = ["a", "cat", "chased", "the", "mouse", "then", "slept"]


@pytest.fixture(autouse=True)
def _close():
    with mpl.rc_context():
        yield
    plt.close("all")


@pytest.fixture
def settled():
    """For tests that look where the parts of a figure stand, or how large it is."""


@pytest.fixture(autouse=True)
def _as_drawn(request, monkeypatch):
    """To settle its parts takes four fifths of a figure's time: other tests go without."""
    if "settled" not in request.fixturenames:
        monkeypatch.setattr(plots, "_settle", lambda figure: None)


def full(*values):
    return pytest.param(*values, marks=pytest.mark.full)


def weights(*shape):
    return torch.randn(*shape, dtype=torch.float64).softmax(-1)


def numbers(ax):
    """The text in each cell that has one, by row and column."""
    return {(t.get_position()[1], t.get_position()[0]): t.get_text() for t in ax.texts}


def hatched(ax, pattern):
    """The cells under a hatch, row and column."""
    paths = [patch.get_path() for patch in ax.patches if patch.get_hatch() == pattern]
    shape = ax.images[0].get_array().shape
    return {
        (row, column)
        for row, column in np.ndindex(shape)
        if any(path.contains_point((column, row)) for path in paths)
    }


def names(labels):
    return [label.get_text() for label in labels]


def bars(figure):
    return [ax for ax in figure.axes if ax.get_label() == "<colorbar>"]


def rendered(figure):
    """The pixels of the figure as a page shows them."""
    file = io.BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight")
    file.seek(0)
    return plt.imread(file)


def assert_nothing_is_cut_or_covered(figure):
    boxes = [ax.get_tightbbox() for ax in figure.axes]  # with all labels
    for box in boxes:
        assert box.min.min() > 0
        assert (box.max < figure.bbox.size).all()
    for one, other in itertools.combinations(boxes, 2):
        assert not one.padded(-1).overlaps(other)  # pixels


def assert_the_bar_lies_centred_below_the_maps(figure):
    *panels, bar = figure.axes
    gap = min(panel.get_tightbbox().y0 for panel in panels) - bar.get_tightbbox().y1
    assert 0 < gap / figure.dpi < 0.11  # inches
    maps, bar = [panel.get_window_extent() for panel in panels], bar.get_window_extent()
    ends = min(box.x0 for box in maps), max(box.x1 for box in maps)
    assert bar.x0 + bar.x1 == pytest.approx(sum(ends))
    assert bar.width / bar.height == pytest.approx(30, abs=0.1)


def test_rows_are_queries_and_columns_are_keys_from_the_top_left():
    given = weights(I, J)
    ax = plots.attention_map(given, queries=QUERIES, keys=KEYS)
    (image,) = ax.images
    np.testing.assert_array_equal(image.get_array(), given)
    assert image.origin == "upper"
    assert ax.yaxis_inverted()
    assert (ax.get_title(), ax.get_ylabel(), ax.get_xlabel()) == ("", "query", "key")
    assert names(ax.get_yticklabels()) == QUERIES
    assert names(ax.get_xticklabels()) == KEYS


def test_positions_are_the_names_unless_names_are_given():
    ax = plots.attention_map(weights(2, 3))
    assert names(ax.get_yticklabels()) == ["0", "1"]
    assert names(ax.get_xticklabels()) == ["0", "1", "2"]


def test_equal_weights_have_equal_colours_in_every_map():
    pale = plots.attention_map(weights(2, 3) / 100)
    grid = plots.attention_maps(weights(H, I, J) / 10)
    images = [pale.images[0], *(panel.images[0] for panel in grid.axes[:H])]
    assert {image.get_clim() for image in images} == {(0, 1)}
    assert {image.get_cmap().name for image in images} == {plots.COLOUR_MAP}


def test_every_figure_has_one_labelled_colour_bar():
    figures = [plots.attention_map(weights(I, J)).figure, plots.attention_maps(weights(H, I, J))]
    for figure in figures:
        (bar,) = bars(figure)
        assert bar.get_xlabel() == "weight"
        assert names(bar.get_xticklabels()) == ["0.00", "0.25", "0.50", "0.75", "1.00"]
        assert figure.axes[-2].images[0].colorbar.ax is bar


def test_a_small_map_prints_its_numbers_in_their_cells():
    ax = plots.attention_map([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]])
    cells = ["0.50", "0.25", "0.25", "0", "1", "0"]
    assert numbers(ax) == dict(zip(np.ndindex(2, 3), cells, strict=True))


def test_the_last_bit_of_a_weight_does_not_decide_how_it_is_rounded():
    ax = plots.attention_map([[0.125, 0.125 + 2e-7, 0.125 - 2e-7, 0.625]])
    assert [numbers(ax)[0, key] for key in range(3)] == ["0.12"] * 3


def test_a_number_stands_in_the_middle_of_its_cell_and_on_white_where_it_is_hatched():
    given, mask = [[0.5, 1.0, torch.nan, 0.25]], torch.tensor([[True, True, True, False]])
    found = []
    for text in plots.attention_map(given, mask=mask).texts:
        assert (text.get_ha(), text.get_va(), text.get_fontsize()) == ("center", "center", 10)
        box = text.get_bbox_patch()
        colours = box and (box.get_facecolor(), box.get_edgecolor()[3])
        found.append((text.get_text(), text.get_color(), colours))
    white = (mpl.colors.to_rgba("white"), 0)  # the edge can't be seen
    assert found == [
        ("0.50", "black", None),
        ("1", "white", None),
        ("NaN", "black", white),
        ("0.25", "black", white),
    ]


@pytest.mark.parametrize(
    ("width", "height", "i", "j", "number"),
    [
        (0.66, 3, 1, 2, ".50"),  # the narrowest cell that has a number
        (3, 0.66, 2, 1, ".50"),
        (0.9, 3, 1, 2, "0.50"),  # the narrowest that has a zero before the point
        (0.64, 3, 1, 2, None),
        (3, 0.64, 2, 1, None),
    ],
)
def test_the_room_in_a_cell_decides_how_its_number_is_written(width, height, i, j, number):
    ax = plt.figure(figsize=(width, height)).add_axes([0, 0, 1, 1])
    plots.attention_map(np.full((i, j), 0.5), ax=ax)
    written = {(text.get_text(), text.get_fontsize()) for text in ax.texts}
    assert written == ({(number, 10)} if number else set())


def test_whole_weights_are_whole_in_narrow_cells_too():
    figure = plots.attention_maps([[[0.0, 1.0, 0.5, 0.5, 0.5]]] * 2)
    assert [numbers(figure.axes[1])[0, key] for key in range(3)] == ["0", "1", ".50"]


@pytest.mark.parametrize(
    ("cell", "count", "letters", "upright"),
    [
        (0.6, 2, 6, False),  # with a gap of a letter between them
        (0.6, 2, 7, True),
        (0.17, 2, 1, False),  # exactly
        (0.17, 2, 2, True),
        (0.08, 10, 1, False),  # every third name
        (0.08, 10, 2, True),
    ],
)
def test_names_of_keys_stand_up_only_where_they_would_touch(cell, count, letters, upright):
    ax = plt.figure(figsize=(cell * count, 3)).add_axes([0, 0, 1, 1])
    plots.attention_map(np.full((1, count), 0.5), keys=["m" * letters] * count, ax=ax)
    angles = {label.get_rotation() for label in ax.get_xticklabels()}
    assert angles == {90.0 if upright else 0.0}


def test_small_maps_side_by_side_print_shorter_numbers():
    figure = plots.attention_maps(torch.full((2, 5, 5), 0.2))
    assert set(numbers(figure.axes[1]).values()) == {".20"}


def test_a_large_map_prints_no_numbers():
    assert not plots.attention_map(weights(23, 23)).texts


def test_every_number_stands_out_from_its_cell():
    def linear(c):
        return c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4

    def luminance(colour):
        red, green, blue = map(linear, mpl.colors.to_rgb(colour))
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    ax = plots.attention_map(torch.linspace(0, 1, 35, dtype=torch.float64).reshape(5, 7))
    (image,) = ax.images
    assert len(ax.texts) == 35
    for text in ax.texts:
        column, row = text.get_position()
        cell = luminance(image.cmap(image.norm(image.get_array()[row, column])))
        dark, light = sorted([cell, luminance(text.get_color())])
        assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_masked_cells_are_hatched_and_have_no_number():
    mask = causal_mask(I, J)
    given = weights(I, J) * mask
    ax = plots.attention_map(given, mask=mask)
    forbidden = {tuple(cell) for cell in (~mask).nonzero().tolist()}
    assert hatched(ax, "////") == forbidden
    assert set(numbers(ax)) == set(np.ndindex(I, J)) - forbidden
    assert bars(ax.figure)[0].get_xlabel() == "weight; hatched = masked"


def test_a_weight_that_leaks_through_the_mask_is_printed_on_its_hatch():
    ax = plots.attention_map([[0.5, 0.5, 0.0]], mask=torch.tensor([[True, False, False]]))
    assert hatched(ax, "////") == {(0, 1), (0, 2)}
    assert numbers(ax) == {(0, 0): "0.50", (0, 1): "0.50"}


@pytest.mark.usefixtures("settled")
def test_a_hatch_is_seen_in_the_pixels_of_a_masked_cell():
    darkest = []
    for mask in (None, torch.tensor([[True, False]])):
        ax = plots.attention_map([[1.0, 0.0]], mask=mask)
        ax.figure.canvas.draw()
        x, y = ax.transData.transform((1.3, 0)).astype(int)  # in the second cell, off its number
        pixels = np.asarray(ax.figure.canvas.buffer_rgba())[::-1]
        darkest.append(pixels[y - 12 : y + 12, x - 6 : x + 6, :3].min())
    assert darkest[0] > 240
    assert darkest[1] < 170


def test_a_hatch_fills_its_cells_to_their_edges_and_has_no_frame():
    ax = plots.attention_map([[0.0, torch.nan, 1.0]], mask=[[False, True, True]])
    for column, patch in enumerate(ax.patches):
        left, right = column - 0.5, column + 0.5
        (outline,) = patch.get_path().to_polygons()
        corners = {tuple(corner) for corner in outline.tolist()}
        assert corners == {(left, -0.5), (right, -0.5), (right, 0.5), (left, 0.5)}
        assert not patch.get_fill()
        assert patch.get_linewidth() == 0
    colours = [mpl.colors.to_hex(patch.get_edgecolor()) for patch in ax.patches]
    assert colours == ["#8c8c8c", "#c04400"]


def test_the_settings_of_a_reader_do_not_turn_or_stretch_a_map():
    with mpl.rc_context({"image.origin": "lower", "image.aspect": "auto"}):
        ax = plots.attention_map(weights(2, 3))
    assert ax.yaxis_inverted()
    assert ax.get_aspect() == 1


def test_a_map_has_a_thin_grey_frame_and_no_ticks():
    ax = plots.attention_map(weights(2, 3))
    assert all(spine.get_visible() for spine in ax.spines.values())
    frame = {mpl.colors.to_hex(spine.get_edgecolor()) for spine in ax.spines.values()}
    assert frame == {"#999999"}
    ticks = [*ax.xaxis.get_ticklines(), *ax.yaxis.get_ticklines()]
    assert {tick.get_markersize() for tick in ticks} == {0}


def test_a_mask_with_an_axis_of_one_holds_for_all_of_that_axis():
    mask = torch.tensor([[True, False, True]])
    ax = plots.attention_map(weights(2, 3), mask=mask)
    assert hatched(ax, "////") == {(0, 1), (1, 1)}


def test_heads_have_their_own_mask_or_share_one():
    own = torch.rand(H, I, J) < 0.5
    figure = plots.attention_maps(weights(H, I, J), mask=own)
    for panel, mask in zip(figure.axes, own, strict=False):
        assert hatched(panel, "////") == {tuple(cell) for cell in (~mask).nonzero().tolist()}
    shared = plots.attention_maps(weights(H, I, J), mask=own[0])
    assert len({frozenset(hatched(panel, "////")) for panel in shared.axes[:H]}) == 1


def test_nan_is_crossed_out_and_named():
    given = weights(2, 3)
    given[1, 2] = torch.nan
    ax = plots.attention_map(given)
    assert hatched(ax, "xxxx") == {(1, 2)}
    assert numbers(ax)[1, 2] == "NaN"
    assert bars(ax.figure)[0].get_xlabel() == "weight; crossed = NaN"
    rendered(ax.figure)


def test_each_head_has_a_map_of_its_own_weights_with_its_title():
    given = weights(H, I, J)
    figure = plots.attention_maps(given, queries=QUERIES, keys=KEYS, titles=["who", "what", "why"])
    panels = figure.axes[:H]
    assert len(figure.axes) == H + 1  # no empty map in the last row
    for panel, head in zip(panels, given, strict=True):
        np.testing.assert_array_equal(panel.images[0].get_array(), head)
    assert [panel.get_title() for panel in panels] == ["who", "what", "why"]


@pytest.mark.parametrize("h", [1, 3, 7])
def test_the_first_map_of_a_row_names_the_queries_and_the_last_of_a_column_the_keys(h):
    figure = plots.attention_maps(weights(h, I, I), queries=QUERIES, keys=QUERIES)
    figure.canvas.draw()
    boxes = [panel.get_position() for panel in figure.axes[:h]]
    for panel, box in zip(figure.axes[:h], boxes, strict=True):
        first = not any(np.isclose(o.y0, box.y0) and o.x0 < box.x0 - 0.01 for o in boxes)
        last = not any(np.isclose(o.x0, box.x0) and o.y0 < box.y0 - 0.01 for o in boxes)
        assert first == panel.yaxis.get_tick_params()["labelleft"]
        assert last == panel.xaxis.get_tick_params()["labelbottom"]
        assert panel.get_ylabel() == ("query" if first else "")
        assert panel.get_xlabel() == ("key" if last else "")


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1, 5, 5), (4, 5, 7), full((7, 2, 40))])
@pytest.mark.usefixtures("settled")
def test_figures_fit_a_phone_with_letters_of_9_points_or_more(shape):
    tokens = [f"internationalise {position}" for position in range(max(shape))]
    for queries, keys in ((None, None), (tokens[: shape[1]], tokens[: shape[2]])):
        figures = [
            plots.attention_maps(weights(*shape), queries=queries, keys=keys),
            plots.attention_map(weights(*shape)[0], queries=queries, keys=keys).figure,
        ]
        for figure in figures:
            assert rendered(figure).shape[1] / figure.dpi <= 5.2
            texts = [text for text in figure.findobj(mpl.text.Text) if text.get_text()]
            assert min(text.get_fontsize() for text in texts) >= 9


@pytest.mark.slow
@pytest.mark.parametrize(("i", "j"), [(5, 5), (2, 5), (13, 40), (40, 13)])
@pytest.mark.usefixtures("settled")
def test_neighbouring_names_do_not_touch(i, j):
    tokens = [f"word{position}" for position in range(40)]
    ax = plots.attention_map(weights(i, j), queries=tokens[:i], keys=tokens[:j])
    ax.figure.canvas.draw()
    for labels, side in ((ax.get_xticklabels(), "x"), (ax.get_yticklabels(), "y")):
        boxes = [label.get_window_extent() for label in labels]
        spans = sorted(tuple(getattr(box, f"interval{side}")) for box in boxes)
        assert all(one[1] < other[0] for one, other in itertools.pairwise(spans))


# Inches: a label with a name of one letter left of the map, a title, a label with a line of
# names below it, then the colour bar. LONG names of 24 letters take more.
LEFT, TITLE, BELOW, BAR = 0.35 + 0.085, 0.27, 0.35 + 0.17, 0.65
LONG = [f"internationalised word {letter}" for letter in "abcdefg"]
LONG_LEFT = LONG_BELOW = 0.35 + 24 * 0.085
MAP = 4.6 - LONG_LEFT  # two maps without the gaps beside them
TEXT = "what was said " * 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "names", "title", "grid", "width", "height"),
    [
        ((1, 1), None, None, (1, 1), 3, 0.6 + BELOW + BAR),
        ((5, 5), None, "title", (1, 1), LEFT + 5 * 0.6, TITLE + 5 * 0.6 + BELOW + BAR),
        full((9, 2), None, None, (1, 1), 3, 9 * 0.6 + BELOW + BAR),
        ((7, 2), LONG, None, (1, 1), LONG_LEFT + 1.2, 7 * 0.6 + LONG_BELOW + BAR),
        full((40, 2), None, None, (1, 1), 3, 40 * 0.6 + BELOW + BAR),
        ((2, 40), None, None, (1, 1), 4.8, 2 * (4.8 - LEFT) / 40 + BELOW + BAR),
        ((5, 7), LONG, TEXT, (1, 1), 4.8, 2 * TITLE + 5 * (4.8 - LONG_LEFT) / 7 + LONG_BELOW + BAR),
        full((1, 1, 1), None, None, (1, 1), 3, TITLE + 0.6 + BELOW + BAR),
        ((2, 5, 5), None, TEXT, (1, 2), 4.8, 3 * TITLE + (4.6 - LEFT) / 2 + BELOW + BAR),
        ((3, 5, 5), None, None, (2, 2), 4.8, 2 * TITLE + (4.6 - LEFT) + 2 * BELOW + BAR),
        full((4, 5, 20), None, None, (2, 2), 4.8, 2 * TITLE + (4.6 - LEFT) / 4 + BELOW + BAR),
        full((7, 2, 2), None, None, (3, 3), LEFT + 3 * 1.3, 3 * (TITLE + 1.2) + 2 * BELOW + BAR),
        ((3, 5, 4), LONG, TEXT, (2, 2), 4.8, 12 * TITLE + 5 / 4 * MAP + 2 * LONG_BELOW + BAR),
    ],
)
@pytest.mark.usefixtures("settled")
def test_a_figure_has_room_for_its_parts_and_no_more(shape, names, title, grid, width, height):
    *heads, i, j = shape
    given = {"queries": names and names[:i], "keys": names and names[:j]}
    if heads:
        titles = title and [title] * heads[0]
        figure = plots.attention_maps(weights(*shape), titles=titles, **given)
    else:
        figure = plots.attention_map(weights(*shape), title=title, **given).figure
    np.testing.assert_allclose(figure.get_size_inches(), (width, height), atol=0.005)
    assert figure.axes[0].get_subplotspec().get_gridspec().get_geometry() == grid
    figure.draw_without_rendering()
    assert_nothing_is_cut_or_covered(figure)
    assert_the_bar_lies_centred_below_the_maps(figure)


@pytest.mark.parametrize(
    ("j", "letters", "lines"),
    [(5, 33, 1), (5, 34, 1), (5, 35, 2), (1, 12, 1), (1, 13, 2)],
)
def test_a_title_wraps_where_it_would_be_wider_than_its_map(j, letters, lines):
    words = f"{'w' * 6} {'w' * (letters - 7)}"
    ax = plots.attention_map(weights(1, j), title=words)
    assert len(ax.get_title().splitlines()) == lines


@pytest.mark.slow
@pytest.mark.usefixtures("settled")
def test_long_titles_wrap_and_stay_apart():
    titles = ["who did what to whom in this sentence", "what happened after that, and to whom"]
    figure = plots.attention_maps(weights(2, I, I), titles=titles)
    figure.canvas.draw()
    left, right = (panel.title.get_window_extent() for panel in figure.axes[:2])
    assert left.x1 < right.x0
    assert [panel.get_title().replace("\n", " ") for panel in figure.axes[:2]] == titles
    alone = plots.attention_map(weights(I, I), title=" ".join(titles)).figure
    assert rendered(alone).shape[1] / alone.dpi <= 5.2


@pytest.mark.usefixtures("settled")
def test_a_name_too_long_for_the_figure_is_cut():
    long = "pneumonoultramicroscopicsilicovolcanoconiosis"
    ax = plots.attention_map(weights(2, 3), queries=[long, long[:24]], keys=["cat", "then", long])
    assert names(ax.get_yticklabels()) == ["pneumonoultramicroscopi…", "pneumonoultramicroscopic"]
    assert names(ax.get_xticklabels())[2] == "pneumonoultramicroscopi…"
    assert rendered(ax.figure).shape[1] / ax.figure.dpi <= 5.2


def test_a_dollar_sign_is_a_token_and_no_formula():
    ax = plots.attention_map(weights(1, 2), queries=["$x_$"], keys=["$", "$y^$"])
    rendered(ax.figure)
    assert names(ax.get_xticklabels()) == ["$", "$y^$"]


def test_a_map_can_be_drawn_into_axes_that_are_there():
    figure, (left, right) = plt.subplots(1, 2, figsize=(6, 3))
    assert plots.attention_map(weights(2, 3), ax=right, title="right") is right
    assert right.get_title() == "right"
    assert not left.images
    assert right.texts
    assert bars(figure)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_weights_come_as_they_are_from_a_layer(dtype):
    layer = MultiHeadAttention(d_model=6, num_heads=3).to(dtype)
    _, given = layer(torch.randn(2, 5, 6, dtype=dtype), return_weights=True)
    assert given.requires_grad
    figure = plots.attention_maps(given[0])
    np.testing.assert_array_equal(figure.axes[1].images[0].get_array(), given[0, 1].tolist())


def test_a_list_an_array_and_a_tensor_draw_the_same():
    given = weights(2, 3)
    maps = [plots.attention_map(kind) for kind in (given, given.numpy(), given.tolist())]
    first, *others = (rendered(ax.figure) for ax in maps)
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_fractions_draw_as_the_numbers_that_they_are():
    ax = plots.attention_map([[Fraction(1, 4), Fraction(3, 4)]])
    np.testing.assert_array_equal(ax.images[0].get_array(), [[0.25, 0.75]])


def test_weights_that_round_to_a_little_more_than_1_are_drawn():
    ax = plots.attention_map([[0.0, 1 + 1e-6]])
    assert numbers(ax)[0, 1] == "1.00"


def test_a_figure_is_opaque_and_leaves_the_session_as_it_was():
    before = dict(mpl.rcParams)
    pixels = rendered(plots.attention_map(weights(2, 3)).figure)
    assert (pixels[..., 3] == 1).all()
    assert (pixels[0, 0] == 1).all()
    assert dict(mpl.rcParams) == before


STYLED = mpl.rc_params_from_file(
    Path(plots.__file__).with_name("book.mplstyle"), use_default_template=False
)


def test_the_house_style_is_the_file_beside_the_package():
    plots.style()
    for key, value in STYLED.items():
        assert mpl.rcParams[key] == value, key


def test_the_house_style_is_opaque_and_has_letters_of_one_font_and_10_points_or_more():
    plots.style()
    assert mpl.rcParams["figure.facecolor"] == mpl.rcParams["savefig.facecolor"] == "white"
    sizes = [value for key, value in STYLED.items() if re.search(r"(font|label|title)_?size", key)]
    sizes += [STYLED["font.size"]]
    assert min(sizes) == 10
    assert (mpl.rcParams["font.family"], mpl.rcParams["font.sans-serif"]) == (
        ["sans-serif"],
        ["DejaVu Sans"],
    )


@pytest.mark.usefixtures("settled")
def test_maps_have_the_house_style_whether_it_was_applied_or_not():
    given = weights(2, 3)
    bare = plots.attention_map(given).figure
    plots.style()
    styled = plots.attention_map(given).figure
    for figure in (bare, styled):
        figure.canvas.draw()
    np.testing.assert_array_equal(styled.canvas.buffer_rgba(), bare.canvas.buffer_rgba())


@pytest.mark.parametrize(
    ("draw", "shape", "message"),
    [
        (plots.attention_map, (3,), r"those of one head, i j; got shape \(3,\)$"),
        (
            plots.attention_map,
            (2, 3, 5),
            r"\(2, 3, 5\); choose a head: weights\[0\], or draw them all with attention_maps$",
        ),
        (plots.attention_map, (2, 3, 5, 7), r"7\); choose an item and a head: weights\[0, 0\]$"),
        (
            plots.attention_maps,
            (3, 5),
            r"h i j; got shape \(3, 5\); draw one head with attention_map$",
        ),
        (plots.attention_maps, (2, 3, 5, 7), r"\(2, 3, 5, 7\); choose an item: weights\[0\]$"),
        (plots.attention_map, (0, 3), r"nothing to draw in weights of shape \(0, 3\)"),
        (plots.attention_maps, (0, 3, 5), r"nothing to draw in weights of shape \(0, 3, 5\)"),
    ],
)
def test_weights_of_another_rank_are_an_error_that_says_what_to_pick(draw, shape, message):
    with pytest.raises(ValueError, match=message):
        draw(torch.full(shape, 0.5))


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (-0.5, 0.5, "between 0 and 1; got -0.5 to 0.5: are they scores"),
        (0.5, 1.5, "got 0 to 1.5"),
        (0.5, torch.inf, "got 0 to inf"),
        (torch.nan, -2.0, "got -2 to 0"),
    ],
)
def test_weights_outside_0_to_1_are_an_error(low, high, message):
    with pytest.raises(ValueError, match=message):
        plots.attention_map([[low, high]])


@pytest.mark.parametrize(
    ("draw", "shape", "names", "message"),
    [
        (
            plots.attention_map,
            (I, J),
            {"queries": KEYS},
            "queries must name every query, 5 in all; got 7",
        ),
        (
            plots.attention_map,
            (I, J),
            {"keys": QUERIES},
            "keys must name every key, 7 in all; got 5",
        ),
        (
            plots.attention_maps,
            (H, I, J),
            {"queries": KEYS},
            "queries must name every query, 5 in all; got 7",
        ),
        (
            plots.attention_maps,
            (H, I, J),
            {"keys": QUERIES},
            "keys must name every key, 7 in all; got 5",
        ),
        (
            plots.attention_maps,
            (H, I, J),
            {"titles": ["one"]},
            "titles must name every head, 3 in all; got 1",
        ),
    ],
)
def test_names_that_do_not_match_the_weights_are_an_error(draw, shape, names, message):
    with pytest.raises(ValueError, match=message):
        draw(weights(*shape), **names)


@pytest.mark.parametrize("mask", [torch.ones(2, 3), np.ones((2, 3), dtype=int)])
def test_a_mask_that_is_not_boolean_is_a_type_error(mask):
    message = f"mask must be boolean, True where a query may attend to a key; got {mask.dtype}"
    with pytest.raises(TypeError, match=message):
        plots.attention_map(weights(2, 3), mask=mask)


def test_a_mask_of_numbers_in_a_list_is_a_type_error():
    with pytest.raises(TypeError, match=r"may attend to a key; got float64$"):
        plots.attention_map([[0.5, 0.5]], mask=[[1.0, 0.0]])


def test_a_mask_is_fetched_from_the_device_that_it_is_on():
    class Elsewhere(torch.Tensor):
        def __array__(self, *args, **kwargs):
            raise TypeError("numpy reads the memory of the CPU alone")

        def cpu(self):
            return self.as_subclass(torch.Tensor)

    mask = torch.tensor([[True, False]]).as_subclass(Elsewhere)
    assert hatched(plots.attention_map([[1.0, 0.0]], mask=mask), "////") == {(0, 1)}


@pytest.mark.parametrize("shape", [(3, 2), (3,), (1, 2, 3), (2, 2)])
def test_a_mask_of_another_shape_is_an_error(shape):
    with pytest.raises(ValueError, match=r"must match weights of shape \(2, 3\); an axis may be 1"):
        plots.attention_map(weights(2, 3), mask=torch.ones(shape, dtype=torch.bool))


def displayed(call, *arguments, **options):
    """What a notebook would get."""
    published = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("IPython.display.display", published.append)
        call(*arguments, **options)
    return published


def table(columns=None):
    """The lines of the tables below the current figure."""
    _, numbers = displayed(plots.show, columns)
    first, *lines, last = [line for line in numbers.data.split("\n") if line]
    assert (first, lines.pop(0), last) == (
        "<details>",
        "<summary>The numbers</summary>",
        "</details>",
    )
    return lines


@pytest.mark.slow
@pytest.mark.usefixtures("settled")
def test_a_figure_is_shown_sharp_in_the_size_of_its_inches_and_closed():
    plots.attention_map(weights(I, J))
    inches = plt.gcf().get_size_inches()[0]
    picture, _ = displayed(plots.show)
    shown = Image.open(io.BytesIO(picture.data))
    assert shown.width / 192 == pytest.approx(inches, abs=0.1)
    assert shown.info["dpi"] == pytest.approx((192, 192), abs=0.1)
    assert shown.width == pytest.approx(2 * picture.width, abs=1)
    assert inches <= plots.WIDTH
    assert plt.get_fignums() == []


def test_a_picture_shows_what_was_drawn_and_weighs_little():
    plots.style()
    figure, (left, right) = plt.subplots(1, 2)
    left.imshow(weights(I, I).tolist(), cmap=plots.COLOUR_MAP)
    right.plot(weights(2, 4).tolist())
    file = io.BytesIO()
    figure.savefig(file, format="png")
    drawn = np.asarray(Image.open(file).convert("RGB")).astype(int)
    picture, _ = displayed(plots.show)
    shown = np.asarray(Image.open(io.BytesIO(picture.data)).convert("RGB"))
    assert (abs(drawn - shown).max(-1) <= 4).mean() > 0.98
    assert (shown[drawn.min(-1) == 255] == 255).mean() > 0.99
    assert len(picture.data) < len(file.getvalue()) / 2


@pytest.mark.usefixtures("settled")
def test_the_same_figure_has_the_same_bytes():
    pictures = []
    for _ in range(2):
        plots.attention_map([[0.25, 0.75]], keys=["cat", "mouse"])
        pictures.append(displayed(plots.show)[0].data)
    assert pictures[0] == pictures[1]


def test_the_table_of_a_map_has_its_names_and_what_stands_in_its_cells():
    plots.attention_map(
        [[0.5, 0.25, 0.25], [1.0, 0.0, 0.0], [torch.nan, 0.5, 0.25]],
        queries=["who", "what", "why"],
        keys=["cat", "mouse", "cat"],
        mask=[[True, True, True], [True, False, True], [True, False, True]],
    )
    assert table() == [
        "| query / key | cat | mouse | cat |",
        "| --- | --- | --- | --- |",
        "| who | 0.50 | 0.25 | 0.25 |",
        "| what | 1 | masked | 0 |",
        "| why | NaN | 0.50 | 0.25 |",
    ]


def test_each_of_many_maps_has_its_table_with_all_names():
    plots.attention_maps(
        [[[1.0, 0.0]], [[0.0, 1.0]], [[0.5, 0.5]]],
        queries=["who"],
        keys=["cat", "mouse"],
        titles=["a", "b", "c"],
    )
    lines = table()
    assert lines[::4] == ["**a**", "**b**", "**c**"]
    assert {*lines[1::4]} == {"| query / key | cat | mouse |"}
    assert lines[3::4] == ["| who | 1 | 0 |", "| who | 0 | 1 |", "| who | 0.50 | 0.50 |"]


def test_a_map_without_names_or_of_other_numbers_has_positions_and_signs():
    _, ax = plt.subplots()
    ax.imshow([[-2.0, 0.125], [1.0, 3.0]])
    ax.set_yticks([0.5], ["both"])
    ax.set_xticks([])
    assert table() == [
        "|  | 0 | 1 |",
        "| --- | --- | --- |",
        "| 0 | −2 | 0.12 |",
        "| 1 | 1 | 3 |",
    ]


def test_lines_share_a_table_where_they_share_their_points():
    _, ax = plt.subplots()
    ax.plot([1, 2], [10, 20], label="$d$ two")
    ax.plot([1, 2], [0.5, -0.25], label="half")
    ax.plot([1, 4], [3, 4], label="other")
    ax.plot([1, 2], [5, 6])  # one without a name
    ax.axhline(7)
    ax.set(xlabel="length", ylabel="time")
    assert table() == [
        "**time**",
        "| length | d two | half |",
        "| --: | --: | --: |",
        "| 1 | 10 | 0.5 |",
        "| 2 | 20 | −0.25 |",
        "**time**",
        "| length | other |",
        "| --: | --: |",
        "| 1 | 3 |",
        "| 4 | 4 |",
    ]


def test_panels_above_each_other_share_the_name_of_their_axis():
    _, panels = plt.subplots(2, 1, sharex=True)
    for ax, name in zip(panels, ["time", "memory"], strict=True):
        ax.plot([1], [2], label="formula")
        ax.set_ylabel(name)
    panels[1].set_xlabel("length")
    lines = table()
    assert lines[::4] == ["**time**", "**memory**"]
    assert lines[1::4] == ["| length | formula |"] * 2


@pytest.mark.parametrize(("points", "rows"), [(12, 12), (13, 9), (61, 9)])
def test_of_many_points_some_are_picked_the_ends_among_them(points, rows):
    _, ax = plt.subplots()
    ax.plot(range(points), range(points), label="n")
    lines = table()
    if rows < points:
        assert lines.pop(0) == f"{rows} of {points} points:"
    told = [int(line.split()[1]) for line in lines[2:]]
    assert (len(told), told[0], told[-1]) == (rows, 0, points - 1)
    assert np.ptp(np.diff(told)) <= 1


def test_columns_that_are_handed_over_are_the_table():
    plots.attention_map(weights(2, 3))
    given = {
        "key": ["cat", "a|b_c $5"],
        "weight": torch.tensor([0.5, 0.125]),
        "moved": np.array([True, False]),
        "count": (1024, torch.tensor(2)),
    }
    assert table(given) == [
        "| key | weight | moved | count |",
        "| --- | --: | --: | --: |",
        "| cat | 0.5 | yes | 1,024 |",
        r"| a\|b\_c \$5 | 0.125 | no | 2 |",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (17179869184, "17,179,869,184"),
        (1022.4, "1,022"),
        (99.96, "100"),
        (2.0, "2"),
        (0.99999994, "1"),
        (0.1005, "0.101"),  # although the nearest float is a little less
        (-0.000123456, "−0.000123"),
        (0.00001234, "1.23 × 10⁻⁵"),
        (-5e-300, "−5 × 10⁻³⁰⁰"),
        (0.0, "0"),
        (float("nan"), "NaN"),
        (None, "None"),
    ],
)
def test_a_number_is_written_as_a_reader_wants_to_see_it(value, text):
    plt.figure()
    assert table({"x": [value]})[-1] == f"| {text} |"


def test_without_a_figure_there_is_nothing_to_show():
    with pytest.raises(ValueError, match=r"no figure to show: draw one first, in the same cell$"):
        plots.show()


def test_a_picture_without_numbers_to_read_off_asks_for_its_columns():
    plt.plot([1, 2])
    with pytest.raises(ValueError, match=r'hand them over, as in show\({"key": words, "weight"'):
        plots.show()


@pytest.mark.parametrize(
    ("columns", "message"),
    [({"a": [1], "b": [1, 2]}, r"got a 1, b 2$"), ({}, "got none$")],
)
def test_columns_of_several_lengths_are_an_error(columns, message):
    plt.figure()
    with pytest.raises(ValueError, match=f"columns must have one length; {message}"):
        plots.show(columns)


class Bare:
    size = 3

    def __len__(self):
        """The size."""
        return self.size


class Layered(nn.Module):
    """A class with a docstring."""

    size = 3  # a comment that stays

    def forward(self, x):
        """Return x."""
        # why x
        return x

    def documented(self):
        """A body that is a docstring."""


def bare(x):
    """One line
    and another."""
    text = """a string, no docstring"""
    return x, text


def shown(*objects, **options):
    (item,) = displayed(plots.show_source, *objects, **options)
    return item.data


def test_source_is_shown_as_python_without_docstrings():
    assert shown(bare) == (
        '```python\ndef bare(x):\n    text = """a string, no docstring"""\n    return x, text\n```'
    )


def test_the_source_of_a_class_keeps_comments_and_stays_python():
    text = shown(Layered)
    assert text == (
        "```python\nclass Layered(nn.Module):\n    size = 3  # a comment that stays\n\n"
        "    def forward(self, x):\n        # why x\n        return x\n\n"
        '    def documented(self):\n        """A body that is a docstring."""\n```'
    )
    compile(text.removeprefix("```python").removesuffix("```"), "shown", "exec")


def test_docstrings_are_shown_when_asked_for():
    assert '"""A class with a docstring."""' in shown(Layered, docstring=True)
    assert shown(bare, docstring=True).endswith("    return x, text\n```")


def test_the_docstring_of_a_method_goes_where_its_class_has_none():
    assert shown(Bare).endswith("    def __len__(self):\n        return self.size\n```")


def test_a_method_is_shown_from_the_left_margin():
    assert shown(Layered.forward).startswith("```python\ndef forward(self, x):\n    # why")


def test_several_objects_are_shown_in_the_order_given():
    text = shown(bare, Layered)
    assert "return x, text\n\n\nclass Layered" in text
    assert text.count("```") == 2


def test_a_fence_inside_the_source_does_not_end_the_block():
    def fenced():
        return "```"

    text = shown(fenced)
    assert text.startswith("````python\n")
    assert text.endswith('"```"\n````')


def test_what_has_no_python_source_is_an_error():
    with pytest.raises(TypeError, match="got builtin"):
        plots.show_source(len)


@pytest.mark.slow
def test_importing_the_package_and_plots_imports_nothing_that_draws():
    code = (
        "import sys, mini_attention, mini_attention.plots\n"
        "print(sorted({'matplotlib', 'IPython'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
