"""The check of functions that build masks."""

import re

import pytest
import torch

from mini_attention import causal_mask, document_mask, padding_mask, window_mask
from mini_attention.checks import check_mask
from mini_attention.mistakes import MISTAKES
from tests.failures import failure_of, named, said

BUILDERS = {f.__name__: f for f in (causal_mask, window_mask, padding_mask, document_mask)}
WRONG = [(n, b) for n, m in MISTAKES.items() for b in BUILDERS if b in m.programs]


@pytest.mark.parametrize(("name", "builder"), WRONG)
def test_a_wrong_builder_is_told_its_mistake_and_no_other(name, builder):
    failure = failure_of(check_mask, MISTAKES[name].programs[builder], BUILDERS[builder])
    assert named(failure) == [name]
    assert "Something else" not in str(failure)


@pytest.mark.parametrize("builder", BUILDERS.values(), ids=BUILDERS)
def test_the_builder_of_the_package_passes_all_of_it(builder):
    assert check_mask(builder, builder).skipped == []


def by_loops(rows, columns):
    mask = torch.zeros(rows, columns, dtype=torch.bool)
    for i in range(rows):
        for j in range(columns):
            mask[i, j] = j <= i + columns - rows
    return mask


SQUARE, MORE_KEYS, MORE_QUERIES = (
    "as many queries as keys", "more keys than queries", "more queries than keys",
)  # fmt: skip


@pytest.mark.parametrize(
    ("builder", "like", "skipped"),
    [
        (lambda n: torch.ones(n, n).tril().bool(), causal_mask,
         [MORE_KEYS, MORE_QUERIES, "alignment"]),
        (by_loops, causal_mask, ["alignment"]),
        (lambda i, j=None: causal_mask(i, j), causal_mask, ["alignment"]),
        (lambda j, i: causal_mask(i, j), causal_mask, ["alignment"]),
        (lambda i, j, align: causal_mask(i, j, align=align), causal_mask, []),
        (lambda i, j, dtype=torch.bool: causal_mask(i, j).to(dtype), causal_mask, ["alignment"]),
        (lambda n, size: window_mask(n, before=size), window_mask,
         ["unequal numbers", "later keys", "alignment"]),
        (lambda i, j, size: window_mask(i, j, before=size), window_mask,
         ["later keys", "alignment"]),
        (lambda i, j, back, ahead: window_mask(i, j, before=back, after=ahead), window_mask,
         ["alignment"]),
        (lambda lengths, n: (torch.arange(n) < lengths[:, None])[:, None], padding_mask, ["left"]),
        (lambda n, lengths: padding_mask(lengths, n), padding_mask, []),
        (lambda names: names[..., None] == names[..., None, :], document_mask, ["other keys"]),
    ],
)  # fmt: skip
def test_a_right_builder_passes_as_far_as_it_goes(builder, like, skipped):
    if skipped == []:  # arguments of the same name, whatever their order
        builder = {causal_mask: builder, padding_mask: lambda j, lengths, side="right": (
            padding_mask(lengths, j, side=side))}[like]  # fmt: skip
    elif like is padding_mask:
        assert "empty items" in check_mask(builder, like).passed
    assert check_mask(builder, like).skipped == skipped


HINTS = [
    (lambda n: torch.ones(n, n).tril(), causal_mask, "the mask is torch.float32, and a mask is"),
    (lambda n: torch.ones(n, n).tril().long(), causal_mask, "A comparison gives booleans, and so"),
    (lambda n: torch.full((n, n), -torch.inf), causal_mask, "minus infinity are a bias, which is"),
    (lambda n: [[True]], causal_mask, "a mask is a tensor; this is a list"),
    (lambda n: causal_mask(n)[None], causal_mask, "shape (1, 1, 1) has 3 axes; i j is expected"),
    (lambda n, size: torch.ones(n).bool(), window_mask, "shape (1,) has 1 axes; i j is expected"),
    (lambda lengths, j: padding_mask(lengths, j)[:, 0], padding_mask,
     "shape (1, 1), b j, has no axis for the queries, and would be read as i j: b 1 j is"),
    (lambda lengths, j: padding_mask(lengths, j)[:, None], padding_mask,
     "shape (1, 1, 1, 1) has 4 axes; b 1 j is expected"),
]  # fmt: skip


@pytest.mark.parametrize(("builder", "like", "hint"), HINTS)
def test_what_is_no_mask_is_told_what_it_is(builder, like, hint):
    failure = failure_of(check_mask, builder, like)
    assert hint in said(failure)
    assert "mistakes that this check knows" not in said(failure)
    assert failure.__cause__ is None


def test_a_failure_shows_the_smallest_sizes_and_both_masks():
    failure = failure_of(check_mask, lambda i, j: torch.ones(i, j).tril().bool(), causal_mask)
    assert str(failure).splitlines()[:8] == [
        "more keys than queries: The last query stands at the last key: it",
        "  sees all keys, and each before it one less.",
        "",
        "i = 1",
        "j = 2",
        "",
        "mask expected [[1, 1]]",
        "mask got      [[1, 0]]",
    ]


def test_a_place_of_a_large_mask_is_shown():
    def builder(i, j):
        mask = causal_mask(i, j)
        return mask if i < 4 else mask.logical_or(torch.eye(i, j).flip(0).bool())

    assert re.search(r"mask \[0, \d\] expected 0, got 1\n", str(failure_of(
        check_mask, builder, causal_mask, only=[SQUARE])))  # fmt: skip


def test_an_unknown_mistake_is_said_to_be_unknown():
    failure = failure_of(check_mask, lambda n: torch.eye(n).bool(), causal_mask)
    known = sum(builder == "causal_mask" for _, builder in WRONG)
    assert f"none of the {known} mistakes that this check knows." in said(failure)


def test_a_builder_that_takes_too_little_fails_and_is_told_what_is_asked():
    failure = failure_of(check_mask, lambda lengths: lengths, padding_mask)
    assert "unexpected keyword argument 'j'" in said(failure)
    assert "An adapter helps: lambda lengths, j: ..." in said(failure)


def test_another_builder_to_compare_with_is_an_error():
    message = "like must be one of causal_mask, window_mask, padding_mask, document_mask; got "
    with pytest.raises(ValueError, match=f"^{message}<function"):
        check_mask(causal_mask, like=by_loops)
