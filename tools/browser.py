"""Whether this machine can look at the pages in a real browser, and where that browser is.

    python -m tools.browser

ends with 0 where there is one.
"""

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

COMMANDS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
    "msedge",
)
# Where installers put them on macOS and Windows, which have no command for them.
PROGRAMS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "%ProgramFiles%/Google/Chrome/Application/chrome.exe",
    "%ProgramFiles(x86)%/Microsoft/Edge/Application/msedge.exe",
)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
TOOLS = ("playwright", "axe_playwright_python")


def find() -> str | None:
    """The machine's Chromium, or a browser that is made of it."""
    for command in COMMANDS:
        if path := shutil.which(command):
            return path
    programs = (os.path.expandvars(program) for program in PROGRAMS)
    return next((program for program in programs if Path(program).is_file()), None)


def lacking() -> str | None:
    """What keeps the browser checks from running here, and how to get it."""
    if find() is None:
        return (
            "no Chromium or Chrome here. Install one (Debian and Ubuntu: apt install chromium), "
            "then `make browser`"
        )
    if not all(map(find_spec, TOOLS)):
        return "what drives the browser is not installed: `make browser` does that"
    return None


if __name__ == "__main__":
    sys.exit(find() is None)
