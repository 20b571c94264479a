"""The figures say what the numbers say, and nothing is drawn in silence."""

import io
import itertools
import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
import torch
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


def test_rows_are_queries_and_columns_are_keys_from_the_top_left():
    given = weights(I, J)
    ax = plots.attention_map(given, queries=QUERIES, keys=KEYS)
    (image,) = ax.images
    np.testing.assert_array_equal(image.get_array(), given)
    assert image.origin == "upper"
    assert ax.yaxis_inverted()
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("query", "key")
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
        assert names(bar.get_xticklabels())[0] == "0.00"
        assert names(bar.get_xticklabels())[-1] == "1.00"


def test_a_small_map_prints_its_numbers_in_their_cells():
    ax = plots.attention_map([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]])
    cells = ["0.50", "0.25", "0.25", "0", "1", "0"]
    assert numbers(ax) == dict(zip(np.ndindex(2, 3), cells, strict=True))


def test_the_last_bit_of_a_weight_does_not_decide_how_it_is_rounded():
    ax = plots.attention_map([[0.125, 0.125 + 1e-9, 0.125 - 1e-9, 0.625]])
    assert [numbers(ax)[0, key] for key in range(3)] == ["0.12"] * 3


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
        assert bool(panel.get_ylabel()) == first == panel.yaxis.get_tick_params()["labelleft"]
        assert bool(panel.get_xlabel()) == last == panel.xaxis.get_tick_params()["labelbottom"]


@pytest.mark.parametrize("shape", [(1, 5, 5), (4, 5, 7), (7, 2, 40)])
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


@pytest.mark.parametrize(("i", "j"), [(5, 5), (2, 5), (13, 40), (40, 13)])
def test_neighbouring_names_do_not_touch(i, j):
    tokens = [f"word{position}" for position in range(40)]
    ax = plots.attention_map(weights(i, j), queries=tokens[:i], keys=tokens[:j])
    ax.figure.canvas.draw()
    for labels, side in ((ax.get_xticklabels(), "x"), (ax.get_yticklabels(), "y")):
        boxes = [label.get_window_extent() for label in labels]
        spans = sorted(tuple(getattr(box, f"interval{side}")) for box in boxes)
        assert all(one[1] < other[0] for one, other in itertools.pairwise(spans))


def test_long_titles_wrap_and_stay_apart():
    titles = ["who did what to whom in this sentence", "what happened after that, and to whom"]
    figure = plots.attention_maps(weights(2, I, I), titles=titles)
    figure.canvas.draw()
    left, right = (panel.title.get_window_extent() for panel in figure.axes[:2])
    assert left.x1 < right.x0
    assert [panel.get_title().replace("\n", " ") for panel in figure.axes[:2]] == titles
    alone = plots.attention_map(weights(I, I), title=" ".join(titles)).figure
    assert rendered(alone).shape[1] / alone.dpi <= 5.2


def test_a_name_too_long_for_the_figure_is_cut():
    long = "pneumonoultramicroscopicsilicovolcanoconiosis"
    ax = plots.attention_map(weights(2, 3), queries=[long, "cat"], keys=["cat", "then", long])
    assert names(ax.get_yticklabels()) == ["pneumonoultramicroscopi…", "cat"]
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


def test_a_figure_is_opaque_and_leaves_the_session_as_it_was():
    before = dict(mpl.rcParams)
    pixels = rendered(plots.attention_map(weights(2, 3)).figure)
    assert (pixels[..., 3] == 1).all()
    assert (pixels[0, 0] == 1).all()
    assert dict(mpl.rcParams) == before


def test_the_house_style_is_opaque_large_enough_and_tells_lines_apart_twice():
    plots.style()
    assert mpl.rcParams["figure.facecolor"] == mpl.rcParams["savefig.facecolor"] == "white"
    assert min(value for key, value in plots.STYLE.items() if key.endswith("size")
               and isinstance(value, int)) >= 9  # fmt: skip
    _, ax = plt.subplots()
    lines = [ax.plot([0, 1], [0, k])[0] for k in range(4)]
    assert len({line.get_color() for line in lines}) == 4
    assert len({line.get_linestyle() for line in lines}) == 4


@pytest.mark.parametrize(
    ("draw", "shape", "message"),
    [
        (plots.attention_map, (3,), r"those of one head, i j; got shape \(3,\)$"),
        (plots.attention_map, (2, 3, 5), r"choose a head: weights\[0\], or draw them all with"),
        (plots.attention_map, (2, 3, 5, 7), r"choose an item and a head: weights\[0, 0\]"),
        (plots.attention_maps, (3, 5), r"h i j; got shape \(3, 5\); draw one head with attention_"),
        (plots.attention_maps, (2, 3, 5, 7), r"got shape \(2, 3, 5, 7\); choose an item: weights"),
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
    ("names", "message"),
    [
        ({"queries": KEYS}, "queries must name every query, 5 in all; got 7"),
        ({"keys": QUERIES}, "keys must name every key, 7 in all; got 5"),
        ({"titles": ["one"]}, "titles must name every head, 3 in all; got 1"),
    ],
)
def test_names_that_do_not_match_the_weights_are_an_error(names, message):
    with pytest.raises(ValueError, match=message):
        plots.attention_maps(weights(H, I, J), **names)


@pytest.mark.parametrize("mask", [torch.ones(2, 3), np.ones((2, 3), dtype=int)])
def test_a_mask_that_is_not_boolean_is_a_type_error(mask):
    message = f"mask must be boolean, True where a query may attend to a key; got {mask.dtype}"
    with pytest.raises(TypeError, match=message):
        plots.attention_map(weights(2, 3), mask=mask)


@pytest.mark.parametrize("shape", [(3, 2), (3,), (1, 2, 3), (2, 2)])
def test_a_mask_of_another_shape_is_an_error(shape):
    with pytest.raises(ValueError, match=r"must match weights of shape \(2, 3\); an axis may be 1"):
        plots.attention_map(weights(2, 3), mask=torch.ones(shape, dtype=torch.bool))


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
    """The Markdown that a notebook would get."""
    published = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("IPython.display.display", published.append)
        plots.show_source(*objects, **options)
    (item,) = published
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


def test_importing_the_package_and_plots_imports_nothing_that_draws():
    code = (
        "import sys, mini_attention, mini_attention.plots\n"
        "print(sorted({'matplotlib', 'IPython'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
