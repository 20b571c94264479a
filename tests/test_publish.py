"""What readers download stands alone: it installs what is missing, and changes nothing else."""

import functools
import http.server
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tools import address, publish, rules, sphinx_downloads

NAMES = [path.name for path in sorted(publish.BOOK.glob("*.ipynb"))]
READS = publish.BOOK / "05_complexity.ipynb"  # the record of the benchmark
REPOSITORY = "https://github.com/someone/somewhere"


@pytest.fixture(autouse=True)
def nowhere(monkeypatch):
    """No address is known, as on a reader's machine and unlike in a workflow."""
    for name in ("BOOK_URL", "GITHUB_REPOSITORY", "GITHUB_SERVER_URL", "GITHUB_SHA"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def workflow(monkeypatch):
    monkeypatch.setenv("GITHUB_REPOSITORY", "someone/somewhere")
    monkeypatch.setenv("GITHUB_SHA", "c0ffee")
    monkeypatch.setenv("BOOK_URL", "https://someone.example/somewhere/")


# Addresses


def test_a_repository_is_the_one_that_the_settings_name(tmp_path):
    settings = tmp_path / "_config.yml"
    settings.write_text(f"title: A\nrepository:\n  url: {REPOSITORY}/\n")
    assert address.repository(settings) == REPOSITORY
    settings.write_text("title: A\n")
    assert address.repository(settings) == ""


def test_a_workflow_publishes_from_its_own_repository_whatever_the_settings_name(
    tmp_path, workflow, monkeypatch
):
    settings = tmp_path / "_config.yml"
    settings.write_text("repository:\n  url: https://github.com/before/the-fork\n")
    assert address.repository(settings) == REPOSITORY
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://git.example.org")
    assert address.repository(settings) == "https://git.example.org/someone/somewhere"


def test_a_commit_is_named_in_a_workflow_alone(workflow, monkeypatch):
    assert address.commit() == "c0ffee"
    monkeypatch.delenv("GITHUB_REPOSITORY")
    assert address.commit() == ""


def test_without_an_address_the_package_can_lie_beside_the_notebook_alone():
    assert publish.places() == (publish.WHEEL,)


def test_the_package_is_looked_for_nearby_then_at_the_pages_then_at_its_commit(workflow):
    pages = "https://someone.example/somewhere"
    site, repository = f"{pages}/_downloads/{publish.WHEEL}", f"git+{REPOSITORY}@c0ffee"
    assert publish.places() == (publish.WHEEL, site, repository)


# Copies


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_is_the_notebook_with_its_outputs_after_a_cell_that_installs(name):
    original = nbformat.v4.reads((publish.BOOK / name).read_text("utf-8"))
    first, *others = publish.copy_of(publish.BOOK / name).cells
    assert (first.id, first.cell_type, first.metadata.tags) == ("install", "code", ["install"])
    assert [cell for cell in others if cell.id != "data"] == original.cells
    assert any(cell.get("outputs") for cell in others)


def test_the_first_cell_asks_for_what_the_package_declares():
    names = {}
    exec(publish.install_text().partition("def install")[0], names)
    declared = publish.PROJECT
    lines = [*declared["dependencies"], *declared["optional-dependencies"]["plots"]]
    asked = [f"{name}>={major}.{minor}" for name, (major, minor) in names["NEEDS"].items()]
    assert sorted(asked) == sorted(lines)
    (oldest, newest) = names["PYTHONS"]
    assert declared["requires-python"] == f">=3.{oldest[1]},<3.{newest[1] + 1}"


def test_what_a_notebook_reads_comes_with_its_copy(tmp_path, monkeypatch):
    (cell,) = (cell for cell in publish.copy_of(READS).cells if cell.id == "data")
    original = (READS.parent / "data" / "benchmark.json").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    exec(cell.source, {})
    written = tmp_path / "data" / "benchmark.json"
    assert written.read_text("utf-8") == original
    written.write_text("the reader's own")
    exec(cell.source, {})
    assert written.read_text() == "the reader's own"


def test_what_could_not_stand_in_a_cell_is_refused(tmp_path):
    (tmp_path / "data").mkdir()
    for text in ('"""', "\\n"):
        (tmp_path / "data" / "a.txt").write_text(text)
        with pytest.raises(ValueError, match=r"data/a\.txt would not stand"):
            publish.data_text(tmp_path / "a.ipynb", "data/a.txt")


def test_every_file_that_a_chapter_opens_comes_with_it():
    """Another way to open one, such as a name that is put together, would be missed."""
    for name in NAMES:
        path = publish.BOOK / name
        notebook = nbformat.v4.reads(path.read_text("utf-8"))
        code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
        opened = re.findall(r"\bopen\(|read_text\(|read_bytes\(|np\.load|torch\.load", code)
        assert len(opened) == len(publish.files_read(notebook, path)), name


def test_links_of_a_copy_lead_to_the_pages_where_these_are_known(workflow):
    chapter, pages = publish.BOOK / "01_attention_formula.ipynb", address.pages()
    for before, after in {
        "[2](02_single_head_attention.ipynb)": f"[2]({pages}/book/02_single_head_attention.html)",
        "[a](conventions.md#axes)": f"[a]({pages}/book/conventions.html#axes)",
        "[elsewhere](https://a.example/b.md)": "[elsewhere](https://a.example/b.md)",
        "[no page](gone.md)": "[no page](gone.md)",
    }.items():
        assert publish.with_links_into(pages, chapter, before) == after
    prose = [cell.source for cell in publish.copy_of(chapter).cells if cell.cell_type == "markdown"]
    assert not re.search(r"\]\(\w+\.(ipynb|md)", "\n".join(prose))


def test_without_an_address_links_stay_as_they_are():
    assert "](02_single_head_attention.ipynb)" in nbformat.v4.writes(
        publish.copy_of(publish.BOOK / "01_attention_formula.ipynb")
    )


# The first cell


def run_first_cell(**names):
    """Run it here; what it would ask pip is returned, and pip fails."""
    asked = []

    def refuse(command, **_):
        asked.append([word for word in command if not word.startswith("--constraint")])
        return subprocess.CompletedProcess(command, 1, "", "collecting\nERROR: no route to host\n")

    text = publish.install_text()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "run", refuse)
        for name, value in names.items():
            patch.setattr(name.replace("__", "."), value)
        try:
            exec(text, {})
        except RuntimeError as error:
            return asked, str(error)
    return asked, ""


def without(*absent):
    found = importlib.util.find_spec
    return lambda name: None if name in absent else found(name)


def test_where_everything_is_there_nothing_is_asked_of_pip():
    assert run_first_cell() == ([], "")


def test_a_python_that_the_package_is_not_made_for_is_named():
    missing = without("mini_attention")
    for runs in ((3, 10), (3, 14)):
        asked, told = run_first_cell(importlib__util__find_spec=missing, sys__version_info=runs)
        assert asked == []
        assert told == f"This notebook needs Python 3.11 to 3.13; here runs 3.{runs[1]}."


def test_a_torch_that_is_too_old_is_named_and_not_replaced():
    versions = lambda name: "2.4.1+cu121" if name == "torch" else "99.0"
    asked, told = run_first_cell(
        importlib__util__find_spec=without("mini_attention"), importlib__metadata__version=versions
    )
    assert asked == []
    assert 'needs "torch>=2.5"; here is 2.4.1+cu121' in told
    assert "restart the kernel" in told


def test_where_nothing_can_be_reached_the_reader_is_told_what_to_do(workflow):
    asked, told = run_first_cell(importlib__util__find_spec=without("mini_attention"))
    assert [command[-2:] for command in asked] == [["--no-deps", p] for p in publish.places()]
    assert f"Is there a network? Else put {publish.WHEEL} into the folder" in told
    assert told.endswith("ERROR: no route to host")


def test_a_missing_library_is_asked_for_by_what_the_package_needs_of_it():
    asked, told = run_first_cell(importlib__util__find_spec=without("einops"))
    assert [command[-1] for command in asked] == ["einops>=0.8"]
    assert told.startswith("Could not install einops. Is there a network?")


# The same in environments of their own


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """A folder as the pages have it, served as they are."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / publish.DOWNLOADS).mkdir()
    publish.build_wheel(folder / publish.DOWNLOADS)
    return folder


@pytest.fixture(scope="module")
def pages(wheels):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Quiet, directory=str(wheels))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def new_environment(folder, of=None):
    """An empty environment that sees the installed packages for which `of` is true."""
    command = [sys.executable, "-m", "venv", "--without-pip", str(folder / "env")]
    subprocess.run(command, check=True)
    python = folder / "env" / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    own, seen = Path(done.stdout.strip()), folder / "seen"
    seen.mkdir()
    for path in Path(pytest.__file__).parents[1].iterdir():
        if of is None or of(path.name):
            (seen / path.name).symlink_to(path)
    (own / "seen.pth").write_text(f"{seen}\n")
    return python, own


@pytest.fixture
def bare(tmp_path):
    """Everything but the package, as on a platform for notebooks."""
    return new_environment(tmp_path, of=lambda name: "mini_attention" not in name.lower())


@pytest.mark.slow
def test_the_wheel_holds_the_whole_package(wheels):
    files = (publish.ROOT / "mini_attention").rglob("*")
    package = {str(path.relative_to(publish.ROOT)) for path in files if path.is_file()}
    with zipfile.ZipFile(wheels / publish.DOWNLOADS / publish.WHEEL) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == {name for name in package if "__pycache__" not in name}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n == READS.name else pytest.mark.full, id=n) for n in NAMES],
)
def test_a_copy_runs_from_its_first_cell_to_its_last_where_the_package_is_missing(
    name, bare, pages, tmp_path, monkeypatch
):
    python, own = bare
    monkeypatch.setenv("BOOK_URL", pages)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    kernel = {"argv": [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]}
    folder = tmp_path / "jupyter" / "kernels" / "bare"
    folder.mkdir(parents=True)
    told = {**kernel, "display_name": "bare", "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(told))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    before = set(own.iterdir())
    notebook = publish.copy_of(publish.BOOK / name)
    stored = [cell.get("outputs", []) for cell in publish.copy_of(publish.BOOK / name).cells]
    (tmp_path / "reader").mkdir()
    NotebookClient(
        notebook,
        kernel_name="bare",
        timeout=600,
        record_timing=False,
        resources={"metadata": {"path": str(tmp_path / "reader")}},
    ).execute()
    assert prints(notebook.cells) == prints(stored)
    assert {path.name for path in set(own.iterdir()) - before} == {
        "mini_attention",
        "mini_attention-0.1.0.dist-info",
    }


def prints(cells):
    outputs = [cell.get("outputs", []) if isinstance(cell, dict) else cell for cell in cells]
    return ["".join(each.text for each in cell if each.output_type == "stream") for cell in outputs]


@pytest.mark.slow
def test_without_a_network_the_copy_says_so_and_takes_the_wheel_from_beside_it(
    bare, wheels, tmp_path
):
    python, _ = bare
    reader = tmp_path / "reader"
    reader.mkdir()
    environment = {**os.environ, "PIP_NO_INDEX": "1"}
    run = functools.partial(
        subprocess.run, cwd=reader, env=environment, capture_output=True, text=True
    )
    cell = [python, "-c", publish.install_text()]
    failed = run(cell)
    assert failed.returncode == 1
    last = failed.stderr.strip().split("\n")[-1]
    assert last.startswith("RuntimeError: Could not install mini_attention. Is there a network?")
    assert publish.WHEEL in last
    os.link(wheels / publish.DOWNLOADS / publish.WHEEL, reader / publish.WHEEL)
    assert run(cell).returncode == 0
    (reader / publish.WHEEL).unlink()
    again = run(cell)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


def fake(folder, name, version, *needs):
    """A wheel that has a name, a version and needs, and nothing else."""
    info = f"{name}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {need}" for need in needs]
    files = {
        f"{name}/__init__.py": "",
        f"{info}/METADATA": "\n".join(lines) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
        wheel.writestr(f"{info}/RECORD", "".join(f"{file},,\n" for file in [*files, "RECORD"]))
    return path


@pytest.mark.slow
def test_what_a_platform_has_is_not_replaced_by_what_a_missing_library_would_like(tmp_path, wheels):
    python, own = new_environment(tmp_path, of=lambda name: name.startswith("pip"))
    offered = tmp_path / "offered"
    offered.mkdir()
    there = [fake(offered, "torch", "2.9.0+cu126"), fake(offered, "numpy", "1.26.4")]
    fake(offered, "torch", "3.0")
    fake(offered, "numpy", "2.9")
    fake(offered, "einops", "0.9")
    fake(offered, "matplotlib", "3.10", "numpy>=1.23")
    fake(offered, "matplotlib", "3.98", "numpy>=2")
    fake(offered, "matplotlib", "3.99", "torch>=3")
    environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(offered)}
    run = functools.partial(
        subprocess.run, env=environment, cwd=wheels / publish.DOWNLOADS, check=True
    )
    run([python, "-m", "pip", "install", "--quiet", *there])
    run([python, "-c", publish.install_text()])
    found = {path.name for path in own.iterdir() if path.suffix == ".dist-info"}
    assert found == {
        "torch-2.9.0+cu126.dist-info",
        "numpy-1.26.4.dist-info",
        "einops-0.9.dist-info",
        "matplotlib-3.10.dist-info",
        f"{publish.WHEEL.partition('-py3')[0]}.dist-info",
    }


# Pages


def test_a_page_links_to_colab_where_its_notebook_is_on_github(workflow, monkeypatch):
    link = "https://colab.research.google.com/github/someone/somewhere/blob/published/book/a.ipynb"
    assert sphinx_downloads.colab("book/a") == link
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://git.example.org")
    assert sphinx_downloads.colab("book/a") == ""
    monkeypatch.delenv("GITHUB_REPOSITORY")
    monkeypatch.setattr(address, "repository", lambda: f"{REPOSITORY}.git")
    assert sphinx_downloads.colab("book/a") == link
    monkeypatch.setattr(address, "repository", lambda: "")
    assert sphinx_downloads.colab("book/a") == ""


CONF = """
extensions = ["myst_nb", "sphinx_book_theme", "tools.sphinx_downloads"]
html_theme = "sphinx_book_theme"
nb_execution_mode = "off"
"""


@pytest.mark.slow
def test_pages_offer_copies_and_a_link_to_colab(tmp_path, monkeypatch):
    """Where the repository is unknown they offer no link: see tests/test_pages.py."""
    monkeypatch.setenv("GITHUB_REPOSITORY", "someone/somewhere")
    source, built = tmp_path / "source", tmp_path / "built"
    source.mkdir()
    (source / "index.md").write_text("# A\n\n{download}`b <b.ipynb>`\n\n```{toctree}\na\n```\n")
    cells = [nbformat.v4.new_markdown_cell("# A", id="a"), nbformat.v4.new_code_cell("1", id="b")]
    for name in "ab":
        notebook = nbformat.v4.new_notebook(cells=cells, metadata=rules.NOTEBOOK_METADATA)
        nbformat.write(notebook, source / f"{name}.ipynb")
    (source / "conf.py").write_text(CONF + "exclude_patterns = ['b.ipynb']\n")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", str(source), str(built)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(publish.ROOT)})
    (downloaded,) = built.glob("_downloads/*/b.ipynb")
    for path in (downloaded, built / "_sources" / "a.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        assert [cell.id for cell in notebook.cells] == ["install", "a", "b"]
    assert (built / "_downloads" / publish.WHEEL).is_file()
    page = (built / "a.html").read_text("utf-8")
    assert "colab.research.google.com/github/someone/somewhere/" in page
    assert "Open on Colab" in page
    assert "colab" not in (built / "index.html").read_text("utf-8")


def test_the_opening_page_offers_the_wheel_that_is_built():
    opening = (publish.BOOK / "intro.md").read_text("utf-8")
    assert f'href="../{publish.DOWNLOADS}/{publish.WHEEL}"' in opening
