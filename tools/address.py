"""Where the book's repository and its pages are, as far as anyone has said.

A workflow on GitHub says both itself: its repository by GITHUB_REPOSITORY, and the pages by
BOOK_URL, which the workflow sets. Elsewhere `_config.yml` may name the repository. What nobody
said is an empty text, and nothing is made up in its place.
"""

import os
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]


def repository(settings: Path = ROOT / "_config.yml") -> str:
    """The public address of this repository; a fork's workflow gives the fork's."""
    if name := os.environ.get("GITHUB_REPOSITORY", ""):
        return f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{name}"
    says = yaml.safe_load(settings.read_text(encoding="utf-8"))
    return str(says.get("repository", {}).get("url", "")).rstrip("/")


def commit() -> str:
    """The commit that a workflow builds. Any other may not be public yet, so that it has none."""
    return os.environ.get("GITHUB_SHA", "") if os.environ.get("GITHUB_REPOSITORY") else ""


def pages() -> str:
    """The address of the folder that holds the published pages."""
    return os.environ.get("BOOK_URL", "").rstrip("/")
