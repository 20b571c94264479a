"""Attention maps and the house style of figures; matplotlib is imported when a figure is drawn.

Rows are queries and columns are keys, from the top left. Every map has the same colours for the
same weights, 0 to 1, so that any two can be compared. The style of all figures is the file
book.mplstyle; `show` puts a figure on the page, with its numbers as a table.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import ceil, isnan
from typing import TYPE_CHECKING, Any

from torch import Tensor

from .shown import STYLE, decimals, png, table, tables_of

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage
    from numpy.typing import ArrayLike, NDArray

COLOUR_MAP = "Blues"  # one hue from white: its order survives grey print and colour blindness
SIGNED_MAP = "PuOr_r"  # from -x to x, white at 0; on its middle half black numbers are readable
TINTS = ("#E1ECF8", "#F5BD8E", "#6BB09D")  # to fill what black words stand on
# A line to compare with, and no data: `ax.axhline(1, **GUIDE)`.
GUIDE: dict[str, Any] = {"color": "0.45", "linewidth": 1, "linestyle": "-", "zorder": 1}

# Inches. The style file says what a phone makes of the width.
WIDTH = 4.8
LARGEST_CELL = 0.6
NUMBER_CELL = 0.33  # the narrowest cell that holds .25
LINE = 0.17  # from one label to the next
LETTER = 0.085
LONGEST = 24  # letters of a name; what is longer would take the map's place
GAP = 0.1  # between the maps of one figure
BAR = 0.65  # the colour bar with its label


def style() -> None:
    """Apply the house style to the figures that follow."""
    import matplotlib.pyplot as plt

    plt.style.use(STYLE)


def attention_map(
    weights: Tensor | ArrayLike,
    *,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    mask: Tensor | ArrayLike | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the weights of one head, with numbers where they fit, and return the axes.

        weights  i j, between 0 and 1; NaN is crossed out
        queries  i names for the rows, the positions unless given; long ones are cut
        keys     j names for the columns, likewise
        mask     i j (an axis may be 1), boolean; cells where it is False are hatched, over
                 their colour, so that a weight that leaks through is seen
        ax       where to draw; a new figure of a fitting size unless given

    Raises ValueError for weights that are no such map and for names that do not match it,
    TypeError for a mask that is not boolean.

    >>> ax = attention_map([[0.5, 0.5]], queries=["who"], keys=["cat", "mouse"])
    >>> ax.get_ylabel(), ax.get_xlabel()
    ('query', 'key')
    """
    import matplotlib.pyplot as plt

    array = _checked_weights(weights, 2)
    i, j = array.shape
    rows, columns = _checked_names("queries", queries, i), _checked_names("keys", keys, j)
    allowed = _checked_mask(mask, array)
    with plt.style.context(STYLE):
        if ax is None:
            left = _space_left(rows)
            cell = min(LARGEST_CELL, (WIDTH - left) / j)
            title = _wrapped(title or "", cell * j)
            above = (LINE + GAP) * len(title.splitlines())
            size = (max(left + cell * j, 3.0), above + cell * i + _space_below(columns, cell))
            figure = plt.figure(figsize=size)
            ax = figure.subplots()
        else:
            figure = None
            box = ax.get_window_extent()
            cell = min(box.width / j, box.height / i) / ax.figure.dpi
        image = _draw(ax, array, allowed, rows, columns, cell)
        ax.set(ylabel="query", xlabel="key")
        if title:
            ax.set_title(title)
        _colour_bar(image, [ax], _bar_label(array, allowed))
        if figure:
            _settle(figure)
    return ax


def attention_maps(
    weights: Tensor | ArrayLike,
    *,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    mask: Tensor | ArrayLike | None = None,
    titles: Sequence[str] | None = None,
) -> Figure:
    """Draw the weights of many heads, one map each, and return the figure.

        weights  h i j, between 0 and 1; NaN is crossed out
        queries  i names for the rows, the positions unless given; long ones are cut
        keys     j names for the columns, likewise
        mask     i j or h i j (an axis may be 1), boolean; cells where it is False are hatched
        titles   h names for the maps, "head 0" and so on unless given

    The maps wrap into rows, narrow enough for a phone, and share one colour bar.
    Raises what `attention_map` raises.

    >>> import torch
    >>> figure = attention_maps(torch.ones(3, 2, 2) / 2)
    >>> [ax.get_title() for ax in figure.axes[:3]]
    ['head 0', 'head 1', 'head 2']
    """
    import matplotlib.pyplot as plt

    array = _checked_weights(weights, 3)
    h, i, j = array.shape
    rows, columns = _checked_names("queries", queries, i), _checked_names("keys", keys, j)
    names = [f"head {head}" for head in range(h)] if titles is None else list(titles)
    names = _checked_names("titles", names, h)
    allowed = _checked_mask(mask, array)
    left = _space_left(rows)
    wide = _panels_in_a_row(h, j, WIDTH - left)
    tall = ceil(h / wide)
    cell = min(LARGEST_CELL, (WIDTH - left - GAP * wide) / (wide * j))
    names = [_wrapped(name, cell * j) for name in names]
    above = (LINE + GAP) * max(len(name.splitlines()) for name in names)
    below = _space_below(columns, cell)
    size = (
        max(left + (cell * j + GAP) * wide, 3.0),
        (above + cell * i) * tall + below + (below - BAR if h % wide else 0),
    )
    with plt.style.context(STYLE):
        figure = plt.figure(figsize=size)
        grid = figure.subplots(tall, wide, squeeze=False)
        panels = list(grid.flat)
        for panel in panels[h:]:
            panel.remove()
        for head, panel in enumerate(panels[:h]):
            image = _draw(panel, array[head], allowed[head], rows, columns, cell)
            panel.set_title(names[head])
            panel.tick_params(labelleft=head % wide == 0, labelbottom=head + wide >= h)
            if head % wide == 0:
                panel.set_ylabel("query")
            if head + wide >= h:
                panel.set_xlabel("key")
        _colour_bar(image, panels[:h], _bar_label(array, allowed))
        _settle(figure)
    return figure


def show(columns: Mapping[str, Sequence[object] | Tensor | ArrayLike] | None = None) -> None:
    """Show the current figure in a notebook and, folded below it, its numbers as a table.

        columns  name -> values, all of one length; what the picture itself says unless given:
                 of a map its cells, of labelled lines their points, the panels one by one

    Of more than 12 points 9 are picked, evenly, the first and the last among them. Afterwards the
    figure is closed. Raises ValueError where there is no figure, where nothing can be read off
    one, or where the columns differ in length.
    """
    import matplotlib.pyplot as plt
    from IPython.display import Image, Markdown, display

    if not plt.get_fignums():
        raise ValueError("there is no figure to show: draw one first, in the same cell")
    figure = plt.gcf()
    tables = list(tables_of(figure)) if columns is None else [table("", list(columns.items()))]
    if not tables:
        raise ValueError(
            "the figure has no map and no labelled lines to read its numbers off: "
            'hand them over, as in show({"key": words, "weight": weights})'
        )
    text = "\n\n".join(["<details>\n<summary>The numbers</summary>", *tables, "</details>"])
    picture, width = png(figure)
    plt.close(figure)
    display(Image(picture, width=width))  # type: ignore[no-untyped-call]
    display(Markdown(text))  # type: ignore[no-untyped-call]


def show_source(*objects: Callable[..., Any], docstring: bool = False) -> None:
    """Display the source of functions and classes in a notebook, highlighted.

    The docstrings are left out unless asked for; comments stay. Raises TypeError or OSError
    where Python knows no source.
    """
    from IPython.display import Markdown, display

    sources = []
    for item in objects:
        source = textwrap.dedent(inspect.getsource(item)).rstrip()
        sources.append(source if docstring else _without_docstrings(source))
    text = "\n\n\n".join(sources)
    fence = "````" if "```" in text else "```"
    display(Markdown(f"{fence}python\n{text}\n{fence}"))  # type: ignore[no-untyped-call]


def _without_docstrings(source: str) -> str:
    lines: list[str | None] = list(source.splitlines())
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if ast.get_docstring(node) is None or len(node.body) == 1:  # a body can't be empty
            continue
        first, last = node.body[0].lineno - 1, node.body[0].end_lineno or 0
        if not (lines[last] or "").strip():
            last += 1  # the blank line that set it off
        lines[first:last] = [None] * (last - first)
    return "\n".join(line for line in lines if line is not None)


def _draw(
    ax: Axes,
    weights: NDArray[np.float64],
    allowed: NDArray[np.bool_],
    rows: list[str],
    columns: list[str],
    cell: float,
) -> AxesImage:
    """Colour, hatch and number one map whose cells are `cell` inches wide."""
    import numpy as np

    # Only a weight that leaks through its mask is drawn, and then it is no less seen.
    drawn = np.ma.array(weights, mask=~allowed & (weights == 0))
    image = ax.imshow(drawn, cmap=COLOUR_MAP, vmin=0, vmax=1, origin="upper", aspect="equal")
    unknown = weights != weights
    _hatch(ax, ~allowed & ~unknown, "////", "0.55")
    _hatch(ax, unknown, "xxxx", "#C04400")
    if cell >= NUMBER_CELL:
        for row, column in product(range(len(rows)), range(len(columns))):
            _write_number(ax, weights, allowed, row, column, cell)
    _name_axis(ax, rows, columns, cell)
    return image


def _hatch(ax: Axes, cells: NDArray[np.bool_], pattern: str, colour: str) -> None:
    """Hatch the cells that are True, all in one shape, however many they are."""
    import numpy as np
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    if not cells.any():
        return
    middles = np.argwhere(cells)[:, None, ::-1]  # of x and y, so the column first
    corners = np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]])
    shape = Path.make_compound_path_from_polys(middles + corners)
    ax.add_patch(PathPatch(shape, fill=False, hatch=pattern, edgecolor=colour, linewidth=0))


def _write_number(
    ax: Axes,
    weights: NDArray[np.float64],
    allowed: NDArray[np.bool_],
    row: int,
    column: int,
    cell: float,
) -> None:
    """Write a weight in its cell; a masked cell has one only where a weight leaks through."""
    from matplotlib import colormaps

    weight, hatched, wide = float(weights[row, column]), not allowed[row, column], cell >= 0.45
    if hatched and weight == 0:
        return
    hatched = hatched or isnan(weight)
    text = decimals(weight)
    ax.text(
        column,
        row,
        text if wide or text == "0" else text.removeprefix("0"),
        ha="center",
        va="center",
        color="black" if hatched else _readable_on(colormaps[COLOUR_MAP](weight)[:3]),
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1} if hatched else None,
    )


def _readable_on(background: tuple[float, float, float]) -> str:
    """Black or white, whichever stands out more from the background (WCAG's luminance)."""
    # Near black the formula is another, which changes no choice in this colour map.
    linear = [((c + 0.055) / 1.055) ** 2.4 for c in background]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "black" if luminance > 0.179 else "white"


def _name_axis(ax: Axes, rows: list[str], columns: list[str], cell: float) -> None:
    """Put a name at every row and column, or at every second, third ... where they are dense."""
    step = ceil(LINE / cell)
    # A token may be a dollar sign, which is no formula.
    ax.set_yticks(range(0, len(rows), step), rows[::step], parse_math=False)
    ax.set_xticks(range(0, len(columns), step), columns[::step], parse_math=False)
    if _upright(columns, cell):
        ax.tick_params(axis="x", labelrotation=90)
    ax.tick_params(length=0)
    ax.spines[:].set(visible=True, color="0.6")


def _wrapped(title: str, width: float) -> str:
    """The title in lines that fit above a map of this many inches."""
    return textwrap.fill(title, max(int(width / LETTER) - 1, 12))


def _upright(columns: list[str], cell: float) -> bool:
    """Whether the names of the columns are too long to lie side by side."""
    return LETTER * (max(map(len, columns)) + 1) > cell * ceil(LINE / cell)


def _space_left(rows: list[str]) -> float:
    return LETTER * max(map(len, rows)) + 0.35


def _space_below(columns: list[str], cell: float) -> float:
    names = LETTER * max(map(len, columns)) if _upright(columns, cell) else LINE
    return names + 0.35 + BAR


def _panels_in_a_row(h: int, j: int, width: float) -> int:
    """As many as leave room for the numbers, up to three; two or three of larger maps."""
    numbered = int(width / (j * NUMBER_CELL + GAP))
    return min(h, 3, max(numbered, 3 if h > 6 else 2))


def _bar_label(weights: NDArray[np.float64], allowed: NDArray[np.bool_]) -> str:
    masked = "" if allowed.all() else "; hatched = masked"
    return "weight" + masked + ("; crossed = NaN" if (weights != weights).any() else "")


def _colour_bar(image: AxesImage, panels: list[Axes], label: str) -> None:
    figure = panels[0].figure
    bar = figure.colorbar(
        image,
        ax=panels,
        location="bottom",
        aspect=30,
        # Inches, although matplotlib counts in heights of the maps: more of them than there is
        # room for would push the label out of a high figure.
        pad=GAP / (figure.bbox.height / figure.dpi),
        ticks=[0, 0.25, 0.5, 0.75, 1],
    )
    bar.set_label(label)


def _settle(figure: Figure) -> None:
    """Move maps and bar to their places: the first rounds of the layout leave labels outside."""
    engine = figure.get_layout_engine()
    assert engine is not None  # the style asks for one
    for _ in range(4):
        engine.execute(figure)


def _checked_weights(weights: Tensor | ArrayLike, rank: int) -> NDArray[np.float64]:
    """The weights as an array of float64, when they are a map: finite or NaN, 0 to 1."""
    import numpy as np

    if isinstance(weights, Tensor):
        weights = weights.detach().cpu().double().numpy()
    array = np.asarray(weights, dtype=np.float64)
    if array.ndim != rank:
        axes = "one head, i j" if rank == 2 else "all heads of one item, h i j"
        hint = {
            (2, 3): "; choose a head: weights[0], or draw them all with attention_maps",
            (2, 4): "; choose an item and a head: weights[0, 0]",
            (3, 2): "; draw one head with attention_map",
            (3, 4): "; choose an item: weights[0]",
        }.get((rank, array.ndim), "")
        raise ValueError(f"weights must be those of {axes}; got shape {array.shape}{hint}")
    if array.size == 0:
        raise ValueError(f"there is nothing to draw in weights of shape {array.shape}")
    known = array[array == array]
    low, high = known.min(initial=0), known.max(initial=0)
    if low < 0 or high > 1 + 1e-6:  # a row of half precision may round above 1
        raise ValueError(
            f"weights must lie between 0 and 1; got {low:.3g} to {high:.3g}: "
            "are they scores, before the softmax?"
        )
    return array


def _checked_names(what: str, names: Sequence[str] | None, count: int) -> list[str]:
    if names is None:
        return [str(position) for position in range(count)]
    if len(names) != count:
        axis = {"queries": "query", "keys": "key", "titles": "head"}[what]
        raise ValueError(f"{what} must name every {axis}, {count} in all; got {len(names)}")
    if what == "titles":
        return list(names)  # these wrap
    return [name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…" for name in names]


def _checked_mask(
    mask: Tensor | ArrayLike | None, weights: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """The mask in the shape of the weights; True everywhere unless given."""
    import numpy as np

    if mask is None:
        return np.ones(weights.shape, dtype=bool)
    array = mask.detach().cpu().numpy() if isinstance(mask, Tensor) else np.asarray(mask)
    if array.dtype != bool:
        raise TypeError(
            "mask must be boolean, True where a query may attend to a key; "
            f"got {mask.dtype if isinstance(mask, Tensor) else array.dtype}"
        )
    if array.ndim not in (2, weights.ndim) or any(
        got not in (1, wanted)
        for got, wanted in zip(array.shape[::-1], weights.shape[::-1], strict=False)
    ):
        raise ValueError(
            f"mask of shape {array.shape} must match weights of shape {weights.shape}; "
            "an axis may be 1"
        )
    return np.broadcast_to(array, weights.shape)
