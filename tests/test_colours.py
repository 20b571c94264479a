"""The colours of the figures, seen as readers see them.

Three kinds of colour blindness are simulated by daltonlens (Brettel, Viénot and Mollon, 1997), a
black and white print by its lightness alone. Distances are those of CAM02-UCS, by colorspacious:
about 1 can just be seen side by side, and 20 can't be overlooked in thin lines apart.
"""

import itertools
import re

import matplotlib as mpl
import numpy as np
import pytest
from colorspacious import cspace_convert, deltaE
from daltonlens.simulate import Deficiency, Simulator_Brettel1997

from mini_attention import plots
from tools import rules
from tools.notebooks import ROOT

mpl.use("Agg")

import matplotlib.pyplot as plt

SIMULATOR = Simulator_Brettel1997()
READERS = {
    "all three cones": lambda rgb: rgb,
    **{
        f"{kind.name.lower()}opia": lambda rgb, kind=kind: SIMULATOR.simulate_cvd(rgb, kind, 1.0)
        for kind in Deficiency
    },
}
VALUES = np.linspace(0, 1, 1001)

with plt.style.context(plots.STYLE):
    LINES = plt.rcParams["axes.prop_cycle"].by_key()
    PAGE = plt.rcParams["axes.facecolor"]


def bytes_of(colours):
    """The colours as a picture of one row, which is what the simulator takes."""
    return (255 * mpl.colors.to_rgba_array(colours)[None, :, :3]).round().astype(np.uint8)


def luminance(colour):
    """WCAG's relative luminance."""
    rgb = mpl.colors.to_rgba_array(colour)[:, :3]
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) @ [
        0.2126,
        0.7152,
        0.0722,
    ]


def contrast(one, other):
    """WCAG's contrast: 3 is what graphics need, 4.5 what letters need."""
    both = np.broadcast_arrays(luminance(one), luminance(other))
    dark, light = np.sort(both, axis=0)
    return (light + 0.05) / (dark + 0.05)


def lightness(colours):
    """J' of CAM02-UCS, from 0 to 100: what is left in a black and white print."""
    return cspace_convert(mpl.colors.to_rgba_array(colours)[:, :3], "sRGB1", "CAM02-UCS")[:, 0]


def distances(colours, reader):
    (seen,) = READERS[reader](bytes_of(colours))
    pairs = itertools.combinations(range(len(colours)), 2)
    return [float(deltaE(seen[a], seen[b], input_space="sRGB255")) for a, b in pairs]


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_tells_the_lines_apart_by_their_colours(reader):
    assert min(distances(LINES["color"], reader)) > 20


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_tells_the_fillings_apart(reader):
    assert min(distances(plots.TINTS, reader)) > 12


@pytest.mark.parametrize("colours", [LINES["color"], plots.TINTS], ids=["lines", "fillings"])
def test_colours_differ_in_a_black_and_white_print(colours):
    assert np.diff(np.sort(lightness(colours))).min() > 8


def test_lines_differ_without_any_colour():
    assert len(set(LINES["linestyle"])) == len(LINES["color"])


def test_lines_stand_out_from_the_page():
    assert contrast([*LINES["color"], plots.GUIDE["color"]], PAGE).min() >= 3


def test_letters_stand_out_from_the_page_and_from_every_filling():
    with plt.style.context(plots.STYLE):
        inks = {plt.rcParams[key] for key in ("text.color", "axes.labelcolor", "xtick.color")}
    for ink in inks:
        assert contrast(ink, [PAGE, *plots.TINTS]).min() >= 4.5


def test_a_filling_is_framed_by_a_line_that_stands_out():
    with plt.style.context(plots.STYLE):
        assert plt.rcParams["patch.force_edgecolor"]
        assert contrast(plt.rcParams["patch.edgecolor"], [PAGE, *plots.TINTS]).min() >= 3


@pytest.mark.parametrize("reader", READERS)
def test_more_weight_is_darker_for_every_reader(reader):
    (seen,) = READERS[reader](bytes_of(mpl.colormaps[plots.COLOUR_MAP](VALUES[::10])))
    assert (np.diff(lightness(seen / 255)) < 0).all()


def test_a_number_stands_out_from_its_cell_at_every_weight():
    cells = mpl.colormaps[plots.COLOUR_MAP](VALUES)
    inks = [plots._readable_on(tuple(cell[:3])) for cell in cells]
    assert contrast(inks, cells).min() >= 4.5
    assert {*inks} == {"black", "white"}


@pytest.mark.parametrize("reader", READERS)
def test_signs_differ_for_every_reader_and_size_is_darkness(reader):
    (seen,) = READERS[reader](bytes_of(mpl.colormaps[plots.SIGNED_MAP](VALUES[::100])))
    middle = len(seen) // 2
    for part in (seen[: middle + 1], seen[: middle - 1 : -1]):
        assert (np.diff(lightness(part / 255)) > 0).all()
    for minus, plus in zip(seen[:middle], seen[:middle:-1], strict=True):
        assert deltaE(minus, plus, input_space="sRGB255") > 12


def test_black_numbers_are_readable_on_the_middle_half_of_the_signed_map():
    cells = mpl.colormaps[plots.SIGNED_MAP](VALUES[250:751])
    assert contrast("black", cells).min() >= 4.5


@pytest.mark.parametrize("hatch", ["0.55", "#C04400"], ids=["masked", "NaN"])
def test_a_hatch_stands_out_from_white(hatch):
    assert contrast(hatch, "white").min() >= 3


def test_the_dark_theme_shows_a_figure_as_it_is():
    """The theme would darken figures until black numbers on blue cells can't be read."""
    css = (ROOT / "book/_static/book.css").read_text(encoding="utf-8")
    rule = re.search(r'html\[data-theme="dark"\] .*?figure img[^{]*\{(.*?)\}', css, re.DOTALL)
    assert "filter: none" in rule[1]


def test_letters_on_a_phone_are_reckoned_from_the_smallest_ones_of_the_style():
    with plt.style.context(plots.STYLE):
        sizes = [plt.rcParams[key] for key in plt.rcParams if re.search("font.size|labelsize", key)]
    assert min(size for size in sizes if not isinstance(size, str)) == rules.POINTS
