"""The icons of the pages, cut out of the font that the theme ships.

The theme puts all of Font Awesome on every page: as a script of 1.5 MB, and as fonts of 300 KB
besides. Here the icons that a page can show become one small style sheet with its font inside,
which also works where a page is read as a file and no font may be loaded from another folder.
The template static/webpack-macros.html keeps the theme from loading its own.

The fonts of Font Awesome Free are under the SIL Open Font License 1.1, which asks that a part of
them has another name; the licence stays where the theme puts it, in vendor/fontawesome.
"""

import base64
import re
import shutil
from collections.abc import Iterable, Iterator
from importlib.resources import files
from io import BytesIO
from pathlib import Path

from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont
from sphinx.application import Sphinx

THEME = Path(str(files("pydata_sphinx_theme") / "theme" / "pydata_sphinx_theme" / "static"))
(FONT_AWESOME,) = (THEME / "vendor" / "fontawesome").iterdir()
FAMILY = "book-icons"

# What the theme's templates and scripts can put on a page of this book, by its class.
SOLID = (
    "angle-down",
    "angle-left",
    "angle-right",
    "arrow-up",
    "bars",
    "chevron-down",
    "circle-half-stroke",
    "code",
    "download",
    "ellipsis",
    "expand",
    "file",
    "file-lines",
    "file-pdf",
    "home",
    "lightbulb",
    "list",
    "magnifying-glass",
    "moon",
    "outdent",
    "pencil",
    "pencil-alt",
    "play",
    "rocket",
    "sun",
    "xmark",
)
BRANDS = ("github", "gitlab", "bitbucket")

RULES = """\
/* Icons of Font Awesome Free (https://fontawesome.com), under the SIL Open Font License 1.1: see
   vendor/fontawesome. The font holds the few that pages of this book use. */
:root {
  --fa-font-solid: 900 1em/1 %(family)s;
  --fa-font-brands: 400 1em/1 %(family)s;
}

.fa-solid,
.fas {
  font-weight: 900;
}

.fa-brands,
.fab {
  font-weight: 400;
}

.fa-solid,
.fas,
.fa-brands,
.fab {
  -webkit-font-smoothing: antialiased;
  display: inline-block;
  font-family: %(family)s;
  font-style: normal;
  font-variant: normal;
  line-height: 1;
  text-rendering: auto;
}

.fa-lg {
  font-size: 1.25em;
  line-height: 0.05em;
  vertical-align: -0.075em;
}

/* As large as the buttons beside it. */
.theme-switch.fa-lg {
  font-size: 1em;
  line-height: 1;
  vertical-align: baseline;
}

/* The theme names a font of an older Font Awesome here. */
.bd-sidebar-secondary.hide:not(:hover) .onthispage::after {
  font-family: %(family)s;
}
"""
FACE = """
@font-face {
  font-family: %s;
  font-weight: %d;
  src: url(data:font/woff;base64,%s) format("woff");
}
"""
# Twice: an old browser skips the line that also says what a screen reader reads, which is nothing.
ICON = """
.fa-%s::before {
  content: "\\%x";
  content: "\\%x" / "";
}
"""


def points() -> dict[str, int]:
    """The code point of each icon of Font Awesome, by every name it has."""
    css = (FONT_AWESOME / "css" / "all.min.css").read_text("utf-8")
    found = re.findall(r'((?:\.fa-[\w-]+:before,?)+)\{content:"\\?(\w+|\W)"\}', css)
    return {
        name: int(code, 16) if len(code) > 1 else ord(code)
        for names, code in found
        for name in re.findall(r"\.fa-([\w-]+):before", names)
    }


def in_styles() -> Iterator[int]:
    """The code points that the theme's own styles write, before an admonition's title for one."""
    css = (THEME / "styles" / "pydata-sphinx-theme.css").read_text("utf-8")
    for character in re.findall(r'--pst-icon-[\w-]+:"(\\\w+|.)"', css):
        yield int(character[1:], 16) if character[0] == "\\" else ord(character)


def cut(font: Path, wanted: Iterable[int]) -> bytes:
    """A font of these characters alone, as WOFF, the same bytes each time."""
    options = Options()
    options.name_IDs = [0, 1, 2, 4, 6, 11]
    options.notdef_outline = True
    options.layout_features = []
    part = TTFont(font, recalcTimestamp=False)
    subsetter = Subsetter(options)
    subsetter.populate(unicodes=wanted)
    subsetter.subset(part)
    for record in part["name"].names:
        if record.nameID in (1, 4, 6):
            record.string = FAMILY
    part.flavor = "woff"
    result = BytesIO()
    part.save(result)
    return result.getvalue()


def stylesheet() -> str:
    known = points()
    rules = [RULES % {"family": FAMILY}]
    wanted = {*in_styles(), *(known[name] for name in (*SOLID, *BRANDS))}
    for weight, file in ((900, "fa-solid-900.ttf"), (400, "fa-brands-400.ttf")):
        font = FONT_AWESOME / "webfonts" / file
        held = base64.b64encode(cut(font, sorted(wanted)))
        rules.append(FACE % (FAMILY, weight, held.decode("ascii")))
    rules += [ICON % (name, known[name], known[name]) for name in (*SOLID, *BRANDS)]
    return "".join(rules)


def write_stylesheet(app: Sphinx) -> None:
    if app.builder.format == "html":
        static = Path(app.outdir) / "_static"
        static.mkdir(parents=True, exist_ok=True)
        (static / "icons.css").write_text(stylesheet(), "utf-8")


def drop_fonts(app: Sphinx, error: Exception | None) -> None:
    """What no page loads is not published; the licence is."""
    for folder in Path(app.outdir).glob("_static/vendor/fontawesome/*/*/"):
        if folder.is_dir():
            shutil.rmtree(folder)


def setup(app: Sphinx) -> None:
    app.connect("builder-inited", write_stylesheet)
    app.connect("build-finished", drop_fonts)
    app.add_css_file("icons.css", priority=600)  # after the theme, before the book
