"""Take the formats that the package's dates are written in from Babel, which has CLDR's.

    python -m experiments.date_formats

What it writes, mini_attention/dates/formats.json, travels with the package, so that the trained
model meets the formats it was trained for, whichever Babel there is.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from babel import Locale

FILE = Path(__file__).resolve().parents[1] / "mini_attention" / "dates" / "formats.json"
LANGUAGES = ("en", "de", "fr", "es", "it", "nl", "pl", "fi", "tr", "el", "ru", "ko", "ja", "zh")
STYLES = ("full", "long", "medium", "short")
FIELDS = ("yMd", "yMMM", "yMMMM", "yM", "yMMMEd")  # CLDR calls such a list a skeleton
# Which names a run of letters in a pattern stands for: in a date, or standing alone.
MONTHS = {
    "MMMM": ("format", "wide"),
    "MMM": ("format", "abbreviated"),
    "LLLL": ("stand-alone", "wide"),
    "LLL": ("stand-alone", "abbreviated"),
}
DAYS = {
    "EEEE": ("format", "wide"),
    "E": ("format", "abbreviated"),
    "cccc": ("stand-alone", "wide"),
}


def formats_of(language: str) -> dict[str, Any]:
    """The different patterns of a language, the first name of each, and the names they need."""
    locale = Locale.parse(language)
    patterns: dict[str, str] = {}
    for name in (*STYLES, *FIELDS):
        source = locale.date_formats if name in STYLES else locale.datetime_skeletons
        pattern = str(source[name].pattern)
        if pattern not in patterns.values():
            patterns[name] = pattern
    literal = re.compile("'[^']*'")
    used = {
        run[0]
        for pattern in patterns.values()
        for run in re.finditer(r"([a-zA-Z])\1*", literal.sub(" ", pattern))
    }
    if unknown := used - {*MONTHS, *DAYS, "y", "yy", "M", "MM", "L", "d", "dd"}:
        raise ValueError(f"{language} has fields that no date here has: {sorted(unknown)}")
    found: dict[str, Any] = {"patterns": patterns}
    for run in sorted(used & set(MONTHS)):
        context, width = MONTHS[run]
        found[run] = [str(locale.months[context][width][month]) for month in range(1, 13)]
    for run in sorted(used & set(DAYS)):
        context, width = DAYS[run]
        found[run] = [str(locale.days[context][width][day]) for day in range(7)]
    return found


def as_text() -> str:
    made = {language: formats_of(language) for language in LANGUAGES}
    return json.dumps(made, ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(as_text(), encoding="utf-8")
    print(f"written to {FILE}")
