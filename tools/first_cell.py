# @title Install what this notebook needs, where it is missing
PYTHONS = ((3, 11), (3, 13))  # the oldest and the newest
NEEDS = {"torch": (2, 5)}  # and the least version of each
PLACES = ("https://example.org/mini_attention.whl",)  # of the book's package
HELP = "Ask the authors."


def install() -> None:
    """Only add: torch, NumPy and whatever else is here stay as they are."""
    import importlib.util
    import re
    import subprocess
    import sys
    import tempfile
    from importlib import metadata
    from pathlib import Path

    def is_here(name: str) -> bool:
        importlib.invalidate_caches()
        return importlib.util.find_spec(name) is not None

    def pip(*what: str) -> str:
        """Nothing where it went well, and the last words of pip where not."""
        kept = {"torch", "numpy", "pillow", *NEEDS}
        found = {each.name.lower(): each.version for each in metadata.distributions() if each.name}
        with tempfile.TemporaryDirectory() as folder:
            held = Path(folder, "held.txt")
            held.write_text("\n".join(f"{name}==={found[name]}" for name in kept & set(found)))
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--retries=1"]
            command += ["--disable-pip-version-check", f"--constraint={held}", *what]
            done = subprocess.run(command, capture_output=True, text=True)
        last = done.stderr.strip().rpartition("\n")[2] or "pip failed"
        return "" if done.returncode == 0 else last

    absent = [name for name in NEEDS if not is_here(name)]
    if not absent and is_here("mini_attention"):
        return

    runs, (oldest, newest) = sys.version_info[:2], PYTHONS
    if not oldest <= runs <= newest:
        first, last, this = (f"{major}.{minor}" for major, minor in (oldest, newest, runs))
        raise RuntimeError(f"This notebook needs Python {first} to {last}; here runs {this}.")
    for name, least in NEEDS.items():
        version = "" if name in absent else metadata.version(name)
        if version and tuple(map(int, re.findall(r"\d+", version)[:2])) < least:
            enough = f"{name}>={least[0]}.{least[1]}"
            raise RuntimeError(
                f'This notebook needs "{enough}"; here is {version}. Run `%pip install "{enough}"`,'
                " restart the kernel, and run this cell again."
            )

    if "torch" in absent:
        print("PyTorch is missing: installing it takes a few minutes.")
    said = pip(*(f"{name}>={NEEDS[name][0]}.{NEEDS[name][1]}" for name in absent)) if absent else ""
    if said:
        raise RuntimeError(f"Could not install {', '.join(absent)}. Is there a network? {said}")
    for place in () if is_here("mini_attention") else PLACES:
        said = pip("--no-deps", place)
        if not said:
            break
    if said:
        raise RuntimeError(f"Could not install mini_attention. {HELP} {said}")
    if not all(map(is_here, [*NEEDS, "mini_attention"])):
        raise RuntimeError("All is installed: restart the kernel, and run this cell again.")


install()
