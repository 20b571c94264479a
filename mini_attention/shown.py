"""What a page gets of a figure: a light picture, and its numbers as tables in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from io import BytesIO
from math import isnan
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

STYLE = "mini_attention.book"  # for matplotlib: the file book.mplstyle of this package
PIXELS = 96  # of a page, an inch

Column = tuple[str, Any]  # a heading and its values

ROWS = 12  # of a table; from more points some are picked
PICKED = 9
RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def png(figure: Figure) -> tuple[bytes, int]:
    """The picture of a figure, a third as heavy as matplotlib makes it, and its width on a page."""
    import matplotlib.pyplot as plt
    from PIL import Image

    drawn, packed = BytesIO(), BytesIO()
    with plt.style.context(STYLE):
        figure.savefig(drawn, format="png")
        dots = plt.rcParams["savefig.dpi"]
    with Image.open(drawn) as picture:
        few = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        few.save(packed, "PNG", optimize=True, dpi=(dots, dots))
    return packed.getvalue(), round(few.width / dots * PIXELS)


def tables_of(figure: Figure) -> Iterator[str]:
    """What each panel shows, as tables; a panel that can't be read off has none."""
    panels = [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]
    # Panels side by side name an axis once for all.
    below = next((ax.get_xlabel() for ax in reversed(panels) if ax.get_xlabel()), "")
    left = next((ax.get_ylabel() for ax in panels if ax.get_ylabel()), "")
    for ax in panels:
        for image in ax.images:
            corner = " / ".join(filter(None, [left, below]))
            yield table(ax.get_title(), _cells(ax, image, corner))
        points: dict[tuple[float, ...], list[Column]] = {}
        for line in ax.get_lines():
            if not str(line.get_label()).startswith("_"):
                data: Any = line.get_data(orig=False)
                x, y = (tuple(numbers.tolist()) for numbers in data)
                name = str(line.get_label()).replace("$", "")  # a letter set as a formula
                points.setdefault(x, [(below, x)]).append((name, y))
        for lines in points.values():
            yield table(ax.get_ylabel(), lines)


def _cells(ax: Axes, image: AxesImage, corner: str) -> list[Column]:
    """A map as columns: the names of its rows, then one column for each of its own."""
    import numpy as np

    array: Any = image.get_array()
    rows, names = (
        axis.get_major_formatter().format_ticks(list(axis.get_majorticklocs()))
        if len(axis.get_majorticklocs()) == count
        else [str(position) for position in range(count)]
        for axis, count in zip((ax.yaxis, ax.xaxis), array.shape, strict=True)
    )
    values, hidden = np.ma.getdata(array).T, np.ma.getmaskarray(array).T
    columns = [
        ["masked" if gone and not isnan(x) else decimals(x) for x, gone in zip(*pair, strict=True)]
        for pair in zip(values, hidden, strict=True)
    ]
    return [(corner, rows), *zip(names, columns, strict=True)]


def table(title: str, columns: Sequence[Column]) -> str:
    """Columns of one length as a table in Markdown."""
    lists = [
        [value.item() if hasattr(value, "item") else value for value in values]
        for _, values in columns
    ]
    if len({len(values) for values in lists}) != 1:
        told = [f"{name} {len(values)}" for (name, _), values in zip(columns, lists, strict=True)]
        raise ValueError(f"columns must have one length; got {', '.join(told) or 'none'}")
    rows = list(zip(*lists, strict=True))
    above = [f"**{_plain(title)}**"] if title else []
    if len(rows) > ROWS:
        above.append(f"{PICKED} of {len(rows)} points:")
        rows = [rows[at * (len(rows) - 1) // (PICKED - 1)] for at in range(PICKED)]
    sides = ["---" if any(isinstance(x, str) for x in values) else "--:" for values in lists]
    lines = [[_plain(name) for name, _ in columns], sides, *(map(_entry, row) for row in rows)]
    return "\n\n".join([*above, "\n".join(f"| {' | '.join(line)} |" for line in lines)])


def _entry(value: object) -> str:
    """One value as a reader wants to see it: whole numbers whole, others in three digits."""
    import numpy as np

    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return _plain(str(value))
    if isnan(value):
        return "NaN"
    if value != round(value):
        # The last bits differ between processors: they must not decide how a 5 is rounded.
        value = float(f"{float(f'{value:.6g}'):.3g}") if abs(value) < 100 else round(value)
    if 0 < abs(value) < 1e-4:
        digits, _, power = f"{value:.3g}".partition("e")
        text = f"{digits} × 10{str(int(power)).translate(RAISED)}"
    elif value != round(value):
        text = np.format_float_positional(value, trim="-")
    else:
        text = f"{value:,.0f}"
    return text.replace("-", "−")


def _plain(text: str) -> str:
    """Words on one line that Markdown shows as they are."""
    return re.sub(r"([\\`*_|<~$\[])", r"\\\1", " ".join(text.split()))


def decimals(weight: float) -> str:
    """A number of a map: two decimals, none where it is whole."""
    if isnan(weight):
        return "NaN"
    # 1/8 has to round the same way in every cell, whatever the last bit of the softmax is.
    text = f"{weight:.0f}" if weight == round(weight) else f"{round(float(weight), 6):.2f}"
    return text.replace("-", "−")
