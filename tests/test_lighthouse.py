"""What `make lighthouse` makes of Lighthouse's reports, without Lighthouse."""

import gzip
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tools import lighthouse

FAST = lighthouse.FAST_ENOUGH


def report(performance=1.0, accessibility=1.0, benchmark=FAST, **faults):
    """A report as Lighthouse writes it, as far as it is read."""
    scores = dict.fromkeys(lighthouse.CATEGORIES, 1.0)
    scores |= {"performance": performance, "accessibility": accessibility}
    metrics = {name: {"title": name, "displayValue": "1 s"} for name in lighthouse.METRICS}
    audits = {name: {"title": f"No {name}", "score": score} for name, score in faults.items()}
    refs = [{"id": name, "weight": 3 * (name != "unweighted")} for name in audits]
    categories = {name: {"score": score, "auditRefs": []} for name, score in scores.items()}
    categories["accessibility"]["auditRefs"] = refs
    return {
        "categories": categories,
        "audits": metrics | audits,
        "environment": {"benchmarkIndex": benchmark},
    }


def judged(*reports, preset="desktop"):
    return lighthouse.verdict("book/page", preset, reports)


def test_of_some_runs_the_fastest_counts_with_the_worst_that_is_no_matter_of_time():
    disturbed = report(0.2, benchmark=FAST - 1)
    found = judged(disturbed, report(0.97), report(0.96, 0.9, alt=0), report(0.9))
    scores = {"performance": 97, "accessibility": 90, "best-practices": 100, "seo": 100}
    assert found.scores == scores
    assert found.benchmark == FAST
    assert found.notes[1:] == ["alt: No alt"]


def test_what_costs_points_is_named():
    found = judged(report(alt=0, contrast=1, unweighted=0))
    assert found.notes[1:] == ["alt: No alt"]


@pytest.mark.parametrize(
    ("arguments", "low"),
    [
        ({"performance": 0.95, "accessibility": 0.95}, []),
        ({"performance": 0.94}, ["performance"]),
        ({"performance": 0.94, "benchmark": FAST - 1}, []),
        ({"accessibility": 0.94, "benchmark": FAST - 1}, ["accessibility"]),
    ],
    ids=["good", "slow page", "slow machine", "inaccessible"],
)
def test_a_desktop_is_held_to_95_and_a_slow_machine_says_nothing_of_speed(arguments, low, capsys):
    found = judged(report(**arguments))
    assert found.low == low
    assert lighthouse.judge([found]) == bool(low)
    said = capsys.readouterr().out
    assert ("1 of 1 not judged by speed" in said) == (arguments.get("benchmark", FAST) < FAST)
    assert all(f"book/page in {name}" in said for name in low)


def test_a_phone_is_told_and_not_judged():
    assert judged(report(0.1, 0.1), preset="mobile").low == []


def test_text_is_sent_compressed_and_pictures_are_not(tmp_path):
    (tmp_path / "page.html").write_text("text " * 100)
    (tmp_path / "picture.png").write_bytes(b"bytes " * 100)
    with lighthouse.served(tmp_path) as address:
        with urlopen(f"{address}/page.html?v=1") as page:
            assert page.headers["Content-Encoding"] == "gzip"
            assert gzip.decompress(page.read()) == b"text " * 100
        with urlopen(f"{address}/picture.png") as picture:
            assert picture.headers["Content-Encoding"] is None
            assert picture.read() == b"bytes " * 100
        with pytest.raises(HTTPError, match="404") as caught:
            urlopen(f"{address}/other.html")
        caught.value.close()


def test_what_is_missing_is_named_with_the_way_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setattr(lighthouse.browser, "find", lambda: "/usr/bin/chromium")
    monkeypatch.setattr(lighthouse.shutil, "which", lambda _: "/usr/bin/npx")
    assert lighthouse.lacking(tmp_path) is None
    assert "`make book`" in lighthouse.lacking(tmp_path / "none")
    monkeypatch.setattr(lighthouse.browser, "find", lambda: None)
    assert "Chromium" in lighthouse.lacking(tmp_path)
    monkeypatch.setattr(lighthouse.shutil, "which", lambda _: None)
    assert "npx" in lighthouse.lacking(tmp_path)
