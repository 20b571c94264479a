# Needs Python 3.11, 3.12 or 3.13, git and make. The first call makes the environment .venv.
#     make book PYTHON=python3.12     with this Python
#     make book CPU=1                 with PyTorch's CPU build, for machines without a GPU

PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python; do \
	$$python -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
	2>/dev/null && echo $$python && break; done)
INDEX := $(if $(CPU),--extra-index-url https://download.pytorch.org/whl/cpu)
PIP := -m pip install --quiet --disable-pip-version-check $(INDEX)
SCRIPTS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := .venv/$(SCRIPTS)
READY := .venv/.ready
TORCH ?= torch
# Windows reads and writes another encoding than UTF-8 unless told.
export PYTHONUTF8 := 1

.PHONY: help book test lint format refresh report student lab clean
.PHONY: unit package full mutation mistakes frameworks nbgrader course processors bench experiments
.PHONY: addresses browser lighthouse screenshots pdf torch newest links page

help:
	@echo "make book      build the book and say where to open it"
	@echo "make test      everything that CI runs: style, types, tests, notebooks, the book"
	@echo "make lab       work on the notebooks in JupyterLab"
	@echo "make page      begin a page: make page NAME=07_say_where_tokens_stand"
	@echo "make refresh   run all notebooks and store what they print; PAGES=book/... runs those"
	@echo "make report    words, code cells, figures and minutes of each notebook"
	@echo "make student   make the notebooks that students get from the assignments' sources"
	@echo "make unit      the quick tests of the package, in a minute"
	@echo "make lint      style and types only, in seconds"
	@echo "make format    mend the style"
	@echo "make browser   look at every page in a real browser: links, formulas, keyboard, WCAG"
	@echo "make lighthouse  how fast, accessible and easy to find pages are, by Lighthouse"
	@echo "make screenshots  pictures of every page, light and dark, on a desk and on a phone"
	@echo "make pdf       the whole book as one PDF, to print or to read without a network"
	@echo "make addresses  list the addresses of the built book, which have to stay for good"
	@echo "make clean     remove the built book and caches, but not .venv"
	@echo
	@echo "What the weekly workflow runs, each in 10 to 60 minutes:"
	@echo "make mutation    how many small changes to the package the tests notice"
	@echo "make mistakes    whether tests and notebooks notice mistakes that people make"
	@echo "make frameworks  compare with JAX and Keras, in an environment of their own"
	@echo "make course      grade hundreds of answers to the assignments, and a class of a hundred"
	@echo "make nbgrader    release, grade and export every assignment with nbgrader itself"
	@echo "make processors  tests and notebooks as on older processors, with one thread and two"
	@echo "make full        the tests that there is no time for on every change"
	@echo "make package     the tests of the package alone, with whichever torch is in .venv"
	@echo "make torch       the same with another: make torch TORCH='torch==2.5.*'"
	@echo "make newest      everything with the newest releases of all that the book is made with"
	@echo "make links       whether the links to other sites still lead somewhere"
	@echo
	@echo "make bench              time and memory beside the rivals, in 3 minutes"
	@echo "make bench FULL=1       all cases, and the book's record of them, in 45 minutes"
	@echo "make bench THREADS=\"1 2\"  with one thread and with two"
	@echo "make experiments        small trainings, and the book's records of them, in 25 minutes"

book: $(READY)
	@$(BIN)/python -m tools.steps book

# What drives a browser is small, and installed where there is a browser to drive.
test: $(READY)
	@! $(BIN)/python -m tools.browser || $(MAKE) --no-print-directory .venv/.ready-browser \
		|| echo "tools/browser.txt could not be installed: going on without it"
	@$(BIN)/python -m tools.steps test

browser: .venv/.ready-browser
	@$(BIN)/python -m tools.steps browser

addresses: $(READY)
	@$(BIN)/python -m tools.permalinks

lighthouse: $(READY)
	@$(BIN)/python -m tools.lighthouse

screenshots: .venv/.ready-browser
	@$(BIN)/python -m tools.steps screenshots

pdf: .venv/.ready-browser
	@$(BIN)/python -m tools.pdf

unit: $(READY)
	@$(BIN)/python -m tools.steps unit

package: $(READY)
	@$(BIN)/python -m tools.steps package

full: $(READY)
	@$(BIN)/python -m tools.steps full

course: $(READY)
	@$(BIN)/python -m tools.steps course

processors: $(READY)
	@$(BIN)/python -m tools.steps processors

mutation: $(READY) .venv/.ready-scheduled
	@$(BIN)/python -m tools.mutation

mistakes: $(READY)
	@$(BIN)/python -m tools.mistakes suite
	@$(BIN)/python -m tools.mistakes notebooks

links: $(READY)
	@$(BIN)/python -m tools.links

# What may follow a pin is another day's work: nothing of it gets into .venv.
torch: .venv-torch/.ready
	@.venv-torch/$(SCRIPTS)/python $(PIP) --upgrade "$(TORCH)"
	@.venv-torch/$(SCRIPTS)/python -m tools.steps package

newest: $(READY)
	@$(BIN)/python -m venv --clear .venv-newest
	@.venv-newest/$(SCRIPTS)/python -m tools.newest $(INDEX)

frameworks: .venv-frameworks/.ready
	@OMP_NUM_THREADS=1 .venv-frameworks/$(SCRIPTS)/python -m pytest -q tests/frameworks

nbgrader: .venv-nbgrader/.ready
	@OMP_NUM_THREADS=1 .venv-nbgrader/$(SCRIPTS)/python -m pytest -q tests/nbgrader

bench: .venv/.ready-bench
	@$(BIN)/python -m benchmarks $(if $(FULL),--full) $(if $(THREADS),--threads $(THREADS))
	@$(BIN)/python -m benchmarks.imports

experiments: $(READY)
	@$(BIN)/python -m experiments.positions
	@$(BIN)/python -m experiments.dates
	@$(BIN)/python -m experiments.induction

lab: $(READY)
	$(BIN)/jupyter lab book

page: $(READY)
	@$(BIN)/python -m tools.new_page $(NAME)

refresh: $(READY)
	@$(BIN)/python -m tools.notebooks refresh $(PAGES)

report: $(READY)
	@$(BIN)/python -m tools.notebooks report

student: $(READY)
	@$(BIN)/python -m course student

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tools.notebooks check

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf _build .pytest_cache .mypy_cache .ruff_cache .mutation .mistakes .coverage

# The last line alone makes the environment count as made: what was interrupted starts again.
$(READY): requirements.txt tools/constraints.txt pyproject.toml
	@if [ ! -x $(BIN)/python ] && [ -z "$(PYTHON)" ]; then \
		echo "No Python 3.11, 3.12 or 3.13 with its module venv was found." >&2; \
		echo "Install one (Debian and Ubuntu: apt install python3-venv), or name it:" >&2; \
		echo "    make $(MAKECMDGOALS) PYTHON=/path/to/python3.12" >&2; \
		exit 1; \
	fi
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv .venv
	@echo "Installing what the book needs into .venv: a few minutes, once ..."
	@$(BIN)/python $(PIP) -r requirements.txt || { \
		echo "The installation failed; the lines above say at which package." >&2; \
		echo "Mend that (network? disk space?) and run make again." >&2; exit 1; }
	@touch $@

.venv/.ready-scheduled: $(READY) tools/scheduled.txt
	@$(BIN)/python $(PIP) -r tools/scheduled.txt
	@touch $@

.venv/.ready-browser: $(READY) tools/browser.txt
	@$(BIN)/python $(PIP) -r tools/browser.txt
	@touch $@

# Without the network the benchmark still runs, less one rival.
.venv/.ready-bench: $(READY) tools/bench.txt
	@$(BIN)/python $(PIP) -r tools/bench.txt \
		&& touch $@ || echo "tools/bench.txt could not be installed: going on without it"

.venv-torch/.ready: $(READY)
	@[ -x .venv-torch/$(SCRIPTS)/python ] || $(BIN)/python -m venv .venv-torch
	@.venv-torch/$(SCRIPTS)/python $(PIP) -r requirements.txt
	@touch $@

.venv-frameworks/.ready: $(READY) tools/frameworks.txt
	@[ -x .venv-frameworks/$(SCRIPTS)/python ] || $(BIN)/python -m venv .venv-frameworks
	@echo "Installing the other frameworks into .venv-frameworks: a few minutes, once ..."
	@.venv-frameworks/$(SCRIPTS)/python $(PIP) -r tools/frameworks.txt
	@touch $@

.venv-nbgrader/.ready: $(READY) tools/course.txt
	@[ -x .venv-nbgrader/$(SCRIPTS)/python ] || $(BIN)/python -m venv .venv-nbgrader
	@echo "Installing nbgrader into .venv-nbgrader: a few minutes, once ..."
	@.venv-nbgrader/$(SCRIPTS)/python $(PIP) -r tools/course.txt
	@touch $@
