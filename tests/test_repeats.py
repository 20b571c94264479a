"""Rows that repeat, and the models that the package keeps of them."""

import pytest
import torch

from mini_attention import repeats
from mini_attention.repeats import AttentionOnly, draw, in_second_copy, share_right, trained

N = repeats.LENGTH


def test_rows_repeat_with_their_period_and_with_no_smaller_one():
    tokens, periods = draw(50, seed=1)
    assert tokens.shape == (50, N)
    for row, p in zip(tokens, periods[:, 0].tolist(), strict=True):
        assert torch.equal(row[p:], row[:-p])
        assert not any(torch.equal(row[q:], row[:-q]) for q in range(1, p))
    assert set(tokens.unique().tolist()) == set(range(26))


def test_periods_are_drawn_from_those_that_are_given():
    assert set(draw(500, seed=1)[1].flatten().tolist()) == set(repeats.PERIODS)
    assert set(draw(20, seed=1, periods=[3, 5])[1].flatten().tolist()) == {3, 5}
    assert (draw(5, seed=1, periods=repeats.FIXED)[1] == 16).all()


def test_rows_are_the_same_for_a_seed_and_go_on_for_a_generator():
    assert torch.equal(draw(5, seed=2)[0], draw(5, seed=2)[0])
    assert not torch.equal(draw(5, seed=2)[0], draw(5, seed=3)[0])
    generator = torch.Generator().manual_seed(2)
    assert torch.equal(draw(5, generator)[0], draw(5, seed=2)[0])
    assert not torch.equal(draw(5, generator)[0], draw(5, seed=2)[0])


def test_the_second_copy_is_where_this_letter_and_the_next_stand_in_it():
    periods = torch.tensor([[8], [32]])
    for p, row in zip([8, 32], in_second_copy(periods).tolist(), strict=True):
        assert row == [p <= i and i + 1 < 2 * p for i in range(N)]


def test_no_logits_depend_on_later_letters():
    torch.manual_seed(1)
    model, tokens = AttentionOnly(2), draw(2, seed=1)[0]
    changed = tokens.clone()
    changed[:, 20:] = (changed[:, 20:] + 1) % 26
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :20], after[:, :20])
    assert (before - after)[:, 20:].abs().max() > 0.1


def test_a_model_is_the_sum_of_an_embedding_and_what_its_layers_find():
    torch.manual_seed(1)
    model, tokens = AttentionOnly(2, d_model=16, num_heads=2), draw(2, seed=1)[0]
    mask = torch.ones(N, N, dtype=torch.bool).tril()
    one = model.embedding(tokens)
    two = one + model.layers[0](model.norms[0](one), mask=mask)
    three = two + model.layers[1](model.norms[1](two), mask=mask)
    torch.testing.assert_close(model(tokens), model.to_logits(model.closing(three)))


def test_shares_count_the_second_copy_alone():
    class Knows(torch.nn.Module):
        def forward(self, tokens):
            answers = torch.nn.functional.one_hot(tokens.roll(-1, dims=1), 26).float()
            wrong = torch.nn.functional.one_hot((tokens.roll(-1, dims=1) + 1) % 26, 26).float()
            second = in_second_copy(periods)[..., None]
            second[0, 40] = False  # of the period 32: one letter of 31 is wrong
            return torch.where(second, answers, wrong)

    periods = torch.tensor([[32], [8]])
    tokens = torch.stack([torch.arange(N) % 26, torch.arange(N) % 8])
    assert share_right(Knows(), tokens, periods) == pytest.approx((30 + 7) / (31 + 7))


@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("periods", repeats.MODELS)
def test_a_trained_model_is_a_new_copy_in_evaluation(num_layers, periods):
    model = trained(num_layers, periods)
    assert len(model.layers) == num_layers
    assert not model.training
    with torch.no_grad():
        model.embedding.weight.zero_()
    assert trained(num_layers, periods).embedding.weight.abs().max() > 0


def test_only_two_layers_trained_with_many_periods_copy_any():
    tokens, periods = draw(40, seed=9)
    right = {
        name: share_right(trained(int(name[0]), name[2:]), tokens, periods)
        for name in ("1 random", "1 fixed", "2 random", "2 fixed")
    }
    assert right.pop("2 random") > 0.93
    assert max(right.values()) < 0.25


def test_mistakes_are_errors_with_their_numbers():
    with pytest.raises(ValueError, match="num_layers must be at least 1; got 0"):
        AttentionOnly(0)
    with pytest.raises(ValueError, match="no model '3 random'; there are 1 random, 1 fixed"):
        trained(3)


def test_a_model_computes_where_its_parameters_are():
    tokens = torch.zeros(2, 5, dtype=torch.long, device="meta")
    assert AttentionOnly(1).to("meta")(tokens).device.type == "meta"
