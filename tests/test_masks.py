"""The mask builders against loops that ask one question for each query and key."""

import re

import pytest
import torch

from mini_attention import (
    MultiHeadAttention,
    attention_weights,
    causal_mask,
    document_mask,
    padding_mask,
    window_mask,
)
from tests.oracles import B, H, I, J, assert_same, inputs

SIZES = [(I, J), (J, I), (I, I), (1, J), (I, 1), (0, J), (I, 0)]


def table(i: int, j: int, allowed) -> torch.Tensor:
    """Ask `allowed(query, key)` for each pair of positions."""
    rows = [[allowed(query, key) for key in range(j)] for query in range(i)]
    return torch.tensor(rows, dtype=torch.bool).reshape(i, j)


@pytest.mark.parametrize(("i", "j"), SIZES)
def test_a_causal_mask_lines_up_the_last_query_with_the_last_key(i, j):
    mask = causal_mask(i, j)
    assert mask.dtype == torch.bool
    assert torch.equal(mask, table(i, j, lambda query, key: j - 1 - key >= i - 1 - query))


@pytest.mark.parametrize(("i", "j"), SIZES)
def test_a_causal_mask_lines_up_the_first_query_with_the_first_key_when_asked_to(i, j):
    expected = table(i, j, lambda query, key: key <= query)
    assert torch.equal(causal_mask(i, j, align="start"), expected)


def test_a_token_sees_itself_and_the_ones_before():
    rows = [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert causal_mask(3).tolist() == [[bool(x) for x in row] for row in rows]


def test_the_alignments_are_the_same_for_as_many_queries_as_keys():
    assert torch.equal(causal_mask(I), causal_mask(I, I, align="start"))


def test_the_last_rows_of_a_causal_mask_are_the_mask_of_the_last_queries():
    assert torch.equal(causal_mask(J)[-3:], causal_mask(3, J))


def test_the_first_queries_see_nothing_where_there_are_fewer_keys_than_queries():
    assert causal_mask(J, I).any(1).tolist() == [False] * (J - I) + [True] * I


def test_future_keys_get_no_weight():
    query, key, _ = inputs(B, H).values()
    weights = attention_weights(query, key, causal_mask(I, J))
    assert not weights.triu(J - I + 1).any()
    assert (weights.tril(J - I) > 0).sum() == B * H * causal_mask(I, J).sum()


@pytest.mark.parametrize(("i", "j"), SIZES)
@pytest.mark.parametrize("before", [0, 1, 3, None])
@pytest.mark.parametrize("after", [0, 2, None])
def test_a_window_counts_the_keys_on_both_sides(i, j, before, after):
    def allowed(query, key):
        distance = key - (query + j - i)
        near = before is None or distance >= -before
        return near and (after is None or distance <= after)

    mask = window_mask(i, j, before=before, after=after)
    assert mask.dtype == torch.bool
    assert torch.equal(mask, table(i, j, allowed))


@pytest.mark.parametrize(("i", "j"), SIZES)
def test_a_window_can_start_with_the_first_key(i, j):
    mask = window_mask(i, j, before=2, after=1, align="start")
    assert torch.equal(mask, table(i, j, lambda query, key: -2 <= key - query <= 1))


def test_a_window_looks_back_unless_told_otherwise():
    assert torch.equal(window_mask(I, before=2), window_mask(I, before=2) & causal_mask(I))
    assert window_mask(I, before=2).sum(1).tolist() == [1, 2, 3, 3, 3]


def test_a_window_without_bounds_allows_everything():
    assert window_mask(I, J, before=None, after=None).all()


@pytest.mark.parametrize("as_tensor", [False, True])
def test_padding_on_the_right_hides_the_last_keys(as_tensor):
    lengths = [4, 0, J]
    mask = padding_mask(torch.tensor(lengths) if as_tensor else lengths, J)
    assert mask.shape == (3, 1, J)
    for item, length in enumerate(lengths):
        assert torch.equal(mask[item], table(1, J, lambda _, key, n=length: key < n))


def test_padding_on_the_left_hides_the_first_keys():
    lengths = [4, 0, J]
    mask = padding_mask(lengths, J, side="left")
    assert mask.shape == (3, 1, J)
    for item, length in enumerate(lengths):
        assert torch.equal(mask[item], table(1, J, lambda _, key, n=length: key >= J - n))


@pytest.mark.parametrize("lengths", [[], torch.tensor([])])
def test_padding_of_an_empty_batch_is_empty(lengths):
    assert padding_mask(lengths, J).shape == (0, 1, J)


def test_documents_keep_to_themselves():
    documents, keys = [3, 3, 0, 0, 7], [0, 3, 3, 7, 7, 7, 1]
    mask = document_mask(torch.tensor(documents), torch.tensor(keys))
    assert mask.dtype == torch.bool
    assert torch.equal(mask, table(I, J, lambda query, key: documents[query] == keys[key]))


def test_documents_of_a_batch_are_compared_item_by_item():
    documents = torch.tensor([[0, 0, 0, 1, 1], [0, 1, 1, 2, 2]])
    mask = document_mask(documents)
    assert mask.shape == (B, I, I)
    for item in range(B):
        assert torch.equal(mask[item], document_mask(documents[item]))


@pytest.mark.parametrize("b", [B, H])
def test_a_padding_mask_without_a_head_axis_is_refused_with_as_many_items_as_heads_too(attend, b):
    with pytest.raises(ValueError, match=rf"insert the missing axis.*\({b}, 1, 1, 7\)"):
        attend(**inputs(b, H), mask=padding_mask([4] * b, J))


def test_packed_sequences_attend_as_they_do_alone():
    layer = MultiHeadAttention(d_model=12, num_heads=3).double().eval()
    first, second = (torch.randn(1, n, 12, dtype=torch.float64) for n in (2, 3))
    documents = torch.tensor([0] * 2 + [1] * 3)
    packed = layer(torch.cat([first, second], 1), mask=document_mask(documents) & causal_mask(5))
    alone = [layer(x, mask=causal_mask(x.shape[1])) for x in (first, second)]
    assert_same(packed, torch.cat(alone, 1))


def test_masks_combine_with_and():
    lengths = [4, 7]
    mask = causal_mask(I, J) & padding_mask(lengths, J) & window_mask(I, J, before=3)
    assert mask.shape == (B, I, J)
    for item, length in enumerate(lengths):
        expected = table(
            I, J, lambda query, key, n=length: key < n and 0 <= query + J - I - key <= 3
        )
        assert torch.equal(mask[item], expected)


def test_a_padded_batch_is_its_items_run_alone():
    layer = MultiHeadAttention(d_model=12, num_heads=3).double().eval()
    x, lengths = torch.randn(B, J, 12, dtype=torch.float64), [4, 7]
    output = layer(x, mask=causal_mask(J) & padding_mask(lengths, J))
    for item, length in enumerate(lengths):
        alone = layer(x[[item], :length], mask=causal_mask(length))
        assert_same(output[[item], :length], alone)


def test_masks_are_made_on_the_device_that_is_asked_for():
    assert causal_mask(I, J, device="meta").is_meta
    assert window_mask(I, J, before=1, device="meta").is_meta


def test_padding_is_counted_on_the_device_of_the_lengths(monkeypatch):
    arange, devices = torch.arange, []
    monkeypatch.setattr(
        torch, "arange", lambda *size, device=None: devices.append(device) or arange(*size)
    )
    lengths = torch.tensor([4, 7])
    padding_mask(lengths, J)
    assert devices == [lengths.device]


VALUE_ERRORS = {
    "i must be at least 0; got -1": lambda: causal_mask(-1),
    "j must be at least 0; got -2": lambda: causal_mask(1, -2),
    "before must be at least 0; got -3": lambda: window_mask(5, before=-3),
    "after must be at least 0; got -4": lambda: window_mask(5, before=1, after=-4),
    'align must be "end" or "start"; got \'left\'': lambda: causal_mask(3, align="left"),
    'align must be "end" or "start"; got \'END\'': lambda: window_mask(3, before=1, align="END"),
    'side must be "right" or "left"; got \'end\'': lambda: padding_mask([1], 3, side="end"),
    "lengths must be between 0 and j = 3; got [1, 4]": lambda: padding_mask([1, 4], 3),
    "lengths must be between 0 and j = 3; got [-1]": lambda: padding_mask([-1], 3),
    "lengths must have one axis, b; got shape (1, 2)": lambda: padding_mask([[1, 2]], 3),
    "documents needs an axis of positions; got a single number": lambda: document_mask(
        torch.tensor(1)
    ),
    "key_documents needs an axis of positions": lambda: document_mask(
        torch.tensor([1]), torch.tensor(1)
    ),
}

TYPE_ERRORS = {
    "lengths must be integers; got torch.float32": lambda: padding_mask([1.0], 3),
    "lengths must be integers; got torch.bool": lambda: padding_mask([True], 3),
    "documents must be integers; got torch.float32": lambda: document_mask(torch.zeros(3)),
    "documents must be integers; got torch.complex64": lambda: document_mask(
        torch.zeros(3, dtype=torch.complex64)
    ),
    "key_documents must be integers; got torch.bool": lambda: document_mask(
        torch.tensor([1]), torch.tensor([True])
    ),
}


@pytest.mark.parametrize("message", VALUE_ERRORS)
def test_wrong_values_are_errors_with_their_numbers(message):
    with pytest.raises(ValueError, match=re.escape(message)):
        VALUE_ERRORS[message]()


@pytest.mark.parametrize("message", TYPE_ERRORS)
def test_wrong_dtypes_are_errors_that_name_them(message):
    with pytest.raises(TypeError, match=re.escape(message)):
        TYPE_ERRORS[message]()
