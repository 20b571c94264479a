"""Try the newest releases of all that the book is made with, and say what they break.

    make newest

It fills an environment of its own with the newest releases that go together and that
pyproject.toml allows, whatever is pinned, and runs there all that `make test` runs. It changes no
pin: a failure says what has to be mended before one can move.
"""

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata

from tools import steps, summary

PINS = ("requirements.txt", "tools/constraints.txt")
BOUNDS = {"jupyter-book": "<2"}  # 2.x reads neither _config.yml nor _toc.yml
HELD = "tests/test_project.py::test_the_tests_run_with_what_is_pinned"


def pinned(file: str) -> dict[str, str]:
    """Name and version of each pin."""
    text = (steps.ROOT / file).read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)==([\w.+!-]+)", text, re.MULTILINE))


def wanted() -> list[str]:
    """The same packages without their pins, and the package itself with its own ranges."""
    names = pinned("requirements.txt")
    return [*(f"{name}{BOUNDS.get(name, '')}" for name in names), "-e", f"{steps.ROOT}[plots]"]


def install(options: Sequence[str]) -> None:
    print("Installing the newest releases into .venv-newest: a few minutes ...", flush=True)
    command = steps.module("pip", "install", "--quiet", "--disable-pip-version-check")
    if subprocess.run([*command, *options, *wanted()], cwd=steps.ROOT, check=False).returncode:
        sys.exit("The newest releases do not go together, or could not be had: see above.")


def moved(pins: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Which packages are not what is pinned: name, pin, and what is installed."""
    found = {
        re.sub(r"[-_.]+", "-", package.name).lower(): package.version.partition("+")[0]
        for package in metadata.distributions()
    }
    installed = {name: found.get(re.sub(r"[-_.]+", "-", name).lower(), "") for name in pins}
    return [
        (name, pin, installed[name] or "not installed")
        for name, pin in pins.items()
        if installed[name] != pin
    ]


def without_pins(step: steps.Step) -> steps.Step:
    """The test that holds the environment to the pins would fail by intention."""
    return replace(step, command=(*step.command, "--deselect", HELD)) if step.is_pytest else step


def main(arguments: Sequence[str] | None = None) -> int:
    install(sys.argv[1:] if arguments is None else arguments)
    pins = {name: version for file in PINS for name, version in pinned(file).items()}
    rows = moved(pins)
    summary.tell(f"Of {len(pins)} pinned packages, {len(rows)} come in another version.")
    if rows:
        summary.tell(summary.table(("package", "pinned", "newest"), rows))
    counts = {step.name: steps.run(without_pins(step)) for step in steps.TEST}
    summary.tell(
        summary.table(("step", "with the newest"), ((n, str(c)) for n, c in counts.items()))
    )
    return 1 if any(count.failed for count in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
