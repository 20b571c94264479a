"""Attention maps and the house style of figures; matplotlib is imported when a figure is drawn.

Rows are queries and columns are keys, from the top left. Every map has the same colours for the
same weights, 0 to 1, so that any two can be compared.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence
from itertools import product
from math import ceil, isnan
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage
    from numpy.typing import ArrayLike, NDArray

COLOUR_MAP = "Blues"  # one hue from white: its order survives grey print and colour blindness

# The colours are those of Okabe and Ito; line styles tell the lines apart without them.
STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.grid": False,
    "axes.labelsize": 10,
    "axes.prop_cycle": (
        "cycler('color', ['0072B2', 'D55E00', '009E73', 'CC79A7', '000000', 'E69F00'])"
        " + cycler('linestyle', ['-', '--', '-.', ':', '-', '--'])"
    ),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 11,
    "figure.constrained_layout.use": True,
    "figure.dpi": 144,
    "figure.facecolor": "white",
    "figure.figsize": (4.6, 3.2),
    "font.size": 10,
    "grid.color": "0.88",
    "hatch.linewidth": 0.8,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "savefig.facecolor": "white",
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
}

# Inches. A phone shows a figure about 4.8 wide with letters of 9 points still readable.
WIDTH = 4.8
LARGEST_CELL = 0.6
NUMBER_CELL = 0.33  # the narrowest cell that holds .25
LINE = 0.17  # from one label to the next
LETTER = 0.085
LONGEST = 24  # letters of a name; what is longer would take the map's place
GAP = 0.1  # between the maps of one figure
BAR = 0.65  # the colour bar with its label


def style() -> None:
    """Apply the house style to the figures that follow: opaque white, letters of 9 points up."""
    import matplotlib.pyplot as plt

    plt.rcParams.update(STYLE)


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
    with plt.rc_context(STYLE):
        if ax is None:
            left = _space_left(rows)
            cell = min(LARGEST_CELL, (WIDTH - left) / j)
            title = _wrapped(title or "", cell * j)
            above = (LINE + GAP) * len(title.splitlines())
            size = (max(left + cell * j, 3.0), above + cell * i + _space_below(columns, cell))
            ax = plt.figure(figsize=size).subplots()
        else:
            box = ax.get_window_extent()
            cell = min(box.width / j, box.height / i) / ax.figure.dpi
        image = _draw(ax, array, allowed, rows, columns, cell)
        ax.set(ylabel="query", xlabel="key")
        if title:
            ax.set_title(title)
        _colour_bar(image, [ax], _bar_label(array, allowed))
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
    with plt.rc_context(STYLE):
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
    return figure


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
    image = ax.imshow(weights, cmap=COLOUR_MAP, vmin=0, vmax=1, origin="upper", aspect="equal")
    unknown = weights != weights
    _hatch(ax, ~allowed & ~unknown, "////", "0.55")
    _hatch(ax, unknown, "xxxx", "#D55E00")
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
    if isnan(weight):
        text, hatched = "NaN", True
    elif weight in (0, 1):
        text = f"{weight:.0f}"
    else:
        # 1/8 has to round the same way in every cell, whatever the last bit of the softmax is.
        text = f"{round(weight, 6):.2f}"
        text = text if wide else text.removeprefix("0")
    ax.text(
        column,
        row,
        text,
        ha="center",
        va="center",
        fontsize=10 if wide else 9,
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
    bar = panels[0].figure.colorbar(
        image, ax=panels, location="bottom", aspect=30, pad=0.02, ticks=[0, 0.25, 0.5, 0.75, 1]
    )
    bar.set_label(label)


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
