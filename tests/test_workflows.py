"""The workflows: what GitHub runs is what everyone runs, and can't be turned against us."""

import os
import re
import shutil
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
import yaml

from tools import links, newest, publish, steps, summary

ROOT = steps.ROOT
FILES = sorted((ROOT / ".github/workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
# `on` is true in YAML: hence the loader that leaves words alone.
WORKFLOWS = {path.stem: yaml.load(path.read_text("utf-8"), yaml.BaseLoader) for path in FILES}
JOBS = {
    (file, job): WORKFLOWS[file]["jobs"][job]
    for file in WORKFLOWS
    for job in WORKFLOWS[file]["jobs"]
}
STEPS = [
    pytest.param(step, id=f"{file} {job} {number}")
    for (file, job), body in JOBS.items()
    for number, step in enumerate(body["steps"])
]
USES = [line for path in FILES for line in path.read_text("utf-8").splitlines() if "uses:" in line]
# What only a workflow can do: install what is the machine's own, say on its own page where the
# preview is, and push a branch.
PUSH = JOBS["book", "copies"]["steps"][-1]["run"]
CHINESE = "sudo apt-get update --quiet && sudo apt-get install --quiet --yes fonts-noto-cjk"
EXCEPTIONS = {
    CHINESE,
    'echo "[The book with this change]($URL): unpack it, and open index.html."'
    ' >> "$GITHUB_STEP_SUMMARY"',
    PUSH.strip(),
}


def has_target(name):
    return re.search(rf"^{re.escape(name)}:", MAKEFILE, re.MULTILINE) is not None


@pytest.mark.parametrize("step", STEPS)
def test_a_workflow_runs_what_make_runs_and_nothing_else(step):
    if "run" not in step or step["run"].strip() in EXCEPTIONS:
        return
    asked = re.fullmatch(r'make (?:"\$COMMAND"|([a-z]+))', step["run"])
    assert asked, step["run"]
    assert asked[1] is None or has_target(asked[1])


def test_every_command_of_the_weekly_workflow_is_one_that_make_has_and_explains():
    for command in JOBS["scheduled", "command"]["strategy"]["matrix"]["command"]:
        assert has_target(command)
        assert f'@echo "make {command} ' in MAKEFILE


@pytest.mark.parametrize("line", USES, ids=str.strip)
def test_an_action_is_named_by_its_commit_and_its_release(line):
    """A release can be moved to other code; a commit can't, and does not tell how old it is."""
    assert re.fullmatch(r"[ -]+uses: actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)


def test_an_action_has_one_version_in_all_workflows():
    named = {tuple(line.partition("uses: ")[2].split("@")) for line in USES}
    assert len({action for action, _ in named}) == len(named)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_may_read_and_no_more(name):
    assert WORKFLOWS[name]["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("job", JOBS.values(), ids=map(" ".join, JOBS))
def test_a_job_that_may_write_runs_no_code_of_the_repository(job):
    """Whoever sends a change has this code in hand."""
    writes = [name for name, right in job.get("permissions", {}).items() if right == "write"]
    checks_out = any("checkout" in step.get("uses", "") for step in job["steps"])
    runs = [step["run"] for step in job["steps"] if step.get("run", PUSH) != PUSH]
    assert not (writes and (checks_out or runs))
    assert not writes or job["if"] == "github.ref == 'refs/heads/main'"


@pytest.mark.parametrize("job", JOBS.values(), ids=map(" ".join, JOBS))
def test_a_job_ends_and_keeps_no_credentials(job):
    assert int(job["timeout-minutes"]) <= 150
    for step in job["steps"]:
        if "checkout" in step.get("uses", ""):
            assert step["with"] == {"persist-credentials": "false"}


def test_no_workflow_gives_the_rights_of_the_project_to_a_change_from_outside():
    for workflow in WORKFLOWS.values():
        assert set(workflow["on"]) <= {"push", "pull_request", "schedule", "workflow_dispatch"}


def test_the_pages_are_published_when_everything_has_passed_on_three_systems():
    publish, systems = JOBS["book", "publish"], JOBS["book", "systems"]
    assert publish["needs"] == ["test", "pages", "systems"]
    used = {entry["system"] for entry in systems["strategy"]["matrix"]["include"]}
    assert used | {JOBS["book", "test"]["runs-on"]} == {
        f"{system}-latest" for system in ("macos", "windows", "ubuntu")
    }


def test_the_pages_that_are_published_know_their_address_before_they_are_built():
    job = JOBS["book", "pages"]["steps"]
    order = [step.get("run") or step["uses"].partition("@")[0] for step in job]
    asks, fonts, builds, uploads = (
        order.index(name)
        for name in (
            "actions/configure-pages",
            CHINESE,
            "make pdf",
            "actions/upload-pages-artifact",
        )
    )
    assert asks < fonts < builds < uploads
    assert job[builds]["env"] == {"BOOK_URL": "${{ steps.pages.outputs.base_url }}"}
    assert job[asks]["if"] == job[uploads]["if"] == "env.PUBLISHED == 'true'"


def test_colab_gets_the_copies_of_the_pages_that_were_published():
    assert JOBS["book", "copies"]["needs"] == "publish"
    steps_ = [*JOBS["book", "pages"]["steps"], *JOBS["book", "copies"]["steps"]]
    up, down = (step for step in steps_ if step.get("with", {}).get("name") == "copies")
    assert up["with"]["path"] == "_build/html/_sources"
    assert up["if"] == "env.PUBLISHED == 'true'"
    assert "artifact" in down["uses"]


def test_the_branch_for_colab_holds_the_newest_copies_and_no_history(tmp_path):
    """The step as it stands, with a repository in this folder for the one on GitHub."""
    assert all(re.match(r"cd copies$|git ", line) for line in PUSH.splitlines())
    subprocess.run(["git", "init", "--quiet", "--bare", "us/book"], cwd=tmp_path, check=True)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{tmp_path}/.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://x-access-token:secret@github.com/",
        "TOKEN": "secret",
        "GITHUB_REPOSITORY": "us/book",
        "GITHUB_SHA": "c0ffee",
    }
    for name in ("old", "new"):
        copies = tmp_path / name / "copies" / "book"
        copies.mkdir(parents=True)
        (copies / f"{name}.ipynb").write_text("{}")
        command = ["bash", "-e", "-c", PUSH]
        subprocess.run(command, cwd=tmp_path / name, env=environment, check=True)
    for command, expected in (
        (("ls-tree", "-r", "--name-only"), "book/new.ipynb\n"),
        (("log", "--format=%s"), "Copies of the notebooks of c0ffee\n"),
    ):
        git = ["git", "-C", str(tmp_path / "us/book"), *command, publish.BRANCH]
        assert subprocess.run(git, capture_output=True, text=True, check=True).stdout == expected


LINTERS = {
    "actionlint": (),
    "zizmor": ("--offline", "--no-progress", "--persona", "auditor", ".github"),
}


@pytest.mark.parametrize("name", LINTERS)
def test_a_linter_of_workflows_finds_nothing(name):
    program = shutil.which(name, path=str(steps.BIN))
    if program is None:
        pytest.skip(f"{name} is installed on Linux alone")
    done = subprocess.run(
        [program, *LINTERS[name]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


# On Windows the programs of an environment lie in another folder


@pytest.mark.parametrize(("system", "folder"), [("Windows_NT", "Scripts"), ("", "bin")])
def test_make_finds_the_environment_on_each_system(system, folder):
    make = ["make", "--no-print-directory", "--dry-run", f"OS={system}", "PYTHON=python3"]
    done = subprocess.run([*make, "book"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f".venv/{folder}/python -m tools.steps book"


def test_text_is_text_on_every_system():
    done = subprocess.run(
        ["git", "ls-files", "--eol"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    assert {line[2] for line in lines} == {"attr/text=auto"}
    assert not [line[-1] for line in lines if line[0] in ("i/crlf", "i/mixed")]


# make newest


def test_the_newest_releases_are_asked_for_without_pins():
    asked = newest.wanted()
    assert {"torch", "sphinx", "jupyter-book<2"} <= set(asked)
    assert not [name for name in asked if "==" in name]
    assert asked[-2:] == ["-e", f"{ROOT}[plots]"]


def test_what_is_not_as_pinned_is_told():
    here = newest.pinned("requirements.txt")
    assert newest.moved(here) == []
    assert newest.moved({**here, "Sphinx": "1.0", "no-such": "2.0"}) == [
        ("Sphinx", "1.0", here["sphinx"]),
        ("no-such", "2.0", "not installed"),
    ]


def test_the_test_of_the_pins_is_left_out_and_is_there():
    file, name = newest.HELD.split("::")
    assert f"def {name}(" in (ROOT / file).read_text("utf-8")
    for step in steps.TEST:
        assert (newest.HELD in newest.without_pins(step).command) == step.is_pytest


def test_every_step_is_tried_and_one_that_fails_is_the_answer(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    monkeypatch.setattr(newest, "install", lambda options: None)
    counts = {step.name: steps.Count(3) for step in steps.TEST}
    monkeypatch.setattr(steps, "run", lambda step: counts[step.name])
    assert newest.main([]) == 0
    counts["notebooks"] = steps.Count(2, 1)
    assert newest.main([]) == 1
    told = (tmp_path / "summary.md").read_text("utf-8")
    assert [line for line in told.splitlines() if "notebooks" in line][-1].split("|")[
        2
    ].strip() == ("2 passed, 1 failed")
    assert "| notebooks " in capsys.readouterr().out


def test_releases_that_do_not_go_together_are_said_so(monkeypatch):
    monkeypatch.setattr(newest, "wanted", lambda: ["--no-such-option"])
    with pytest.raises(SystemExit, match="do not go together"):
        newest.install([])


def test_a_table_is_aligned_and_safe_from_what_it_holds():
    assert summary.table(("a", "b"), [("x|y", "1")]).splitlines() == [
        r"| a    | b |",
        r"| ---- | - |",
        r"| x\|y | 1 |",
    ]


# make links


ANSWERS = {"/there": 200, "/gone": 404, "/shy": 403, "/busy": 503, "/moved": 301, "/today": 302}


class Site(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(ANSWERS[self.path])
        self.send_header("Location", "/there")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture
def book(tmp_path):
    """A book of one page, whose links lead to a site on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        (tmp_path / "_config.yml").write_text("title: A book\n")
        (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: page\n")
        lines = [f"A [link]({address}{path}).\n" for path in ANSWERS]
        (tmp_path / "page.md").write_text("# A page\n\n" + "\n".join(lines))
        yield tmp_path
        server.shutdown()


FOLLOW = (
    "import sys, pathlib; from tools.links import *; sys.exit(report(follow(pathlib.Path({!r}))))"
)


@pytest.mark.slow
def test_links_are_told_apart_by_what_their_sites_answer(book):
    done = subprocess.run(
        [sys.executable, "-c", FOLLOW.format(str(book))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    told = re.sub(r"http://127.0.0.1:\d+", "", done.stdout)
    assert "2 links lead somewhere, 1 nowhere, 2 did not answer, 1 have moved for good." in told
    kinds = re.split(r"\n([A-Z].*):\n", told)[1:]
    assert {
        kind: re.findall(r"page.md:\d+ +\| (/\w+)", table)
        for kind, table in zip(kinds[::2], kinds[1::2], strict=True)
    } == {
        "They lead nowhere": ["/gone"],
        "They did not answer: look yourself": ["/shy", "/busy"],
        "They have moved for good": ["/moved"],
    }


def record(status, code=0, info="", uri="https://a.example"):
    return {
        "filename": "a.md",
        "lineno": 3,
        "status": status,
        "code": code,
        "uri": uri,
        "info": info,
    }


def test_a_site_that_refuses_a_program_is_not_gone():
    refused = ["403 Client Error: Forbidden for url: x", "503 Server Error: Busy for url: x"]
    gone = ["404 Client Error: Not Found for url: x", "HTTPSConnectionPool: no such host"]
    found = links.sort(record("broken", info=info) for info in [*refused, *gone])
    assert [link.says for link in sorted(found.silent)] == refused
    assert [link.says for link in sorted(found.gone)] == gone
    assert links.sort([record("timeout")]).silent


def test_without_a_network_nothing_is_called_broken(capsys):
    assert links.report(links.sort([record("broken", info="Name resolution failed")])) == 1
    assert "without a network" in capsys.readouterr().out


def test_a_book_without_links_has_none_that_lead_nowhere(capsys):
    assert links.report(links.sort([])) == 0
    assert "0 nowhere" in capsys.readouterr().out
