"""The check of functions of sizes, which tells a wrong answer by what it is of the right one."""

import pytest
import torch

from mini_attention.checks import check_cost
from mini_attention.checks.cost_cases import cases_of_costs
from mini_attention.cost import attention_cost, kept_by_formula, multi_head_cost, single_head_cost
from mini_attention.mistakes.costs import FACTORS
from tests.failures import failure_of, named, said


def core(b, h, n, d):
    return 4 * b * h * n * n * d


def layer(d_model, num_heads, n):
    return multi_head_cost(d_model, num_heads, n)


def weights(b, h, i, j, itemsize=4):
    return b * h * i * j * itemsize


PARTS = "query and key and value and output left out"


@pytest.mark.parametrize(
    ("like", "column", "function", "name"),
    [
        (core, "flops", lambda b, h, n, d: 2 * b * h * n * n * d, "half as much"),
        (core, "flops", lambda b, h, n, d: 8 * b * h * n * n * d, "twice as much"),
        (core, "flops", lambda b, h, n, d: 12 * b * h * n * n * d, "three times as much"),
        (core, "flops", lambda b, h, n, d: 4 * b * n * n * d, "h left out"),
        (core, "flops", lambda b, h, n, d: 4 * b * h * n * d, "a factor n is missing"),
        (core, "flops", lambda b, h, n, d: 4 * b * h * n * n * d * d, "a factor d too many"),
        (core, "flops", lambda b, h, n, d: 4 * b * h * d * d * n, "n and d exchanged"),
        (weights, "bytes", lambda b, h, i, j: b * h * i * j, "a quarter"),
        (weights, "bytes", lambda b, h, i, j: 4 * b * h * i * i, "i in place of j"),
        (weights, "bytes", lambda b, h, i, j, itemsize: 4 * b * h * i * j,
         "itemsize taken to be 4"),
        (layer, "parameters", lambda m, h, n: 4 * m * m, "biases left out"),
        (layer, "parameters", lambda m, h, n: 3 * m * (m + 1), "query left out"),
        (layer, "parameters", lambda m, h, n: 3 * m * m, "query and all biases left out"),
        (layer, "flops", lambda m, h, n: 8 * n * m * m, "scores and weighted sum left out"),
        (layer, "flops", lambda m, h, n: 8 * n * m * m + 2 * n * n * m, "scores left out"),
        (layer, "flops", lambda m, h, n: 4 * n * n * m, PARTS),
        (layer, "flops", lambda m, h, n: 3 * n * m * m + 2 * n * n * m,
         "query left out and half as much"),
        (multi_head_cost, "parameters", lambda d_model, num_heads, i: 4 * d_model**2,
         "proj_bias taken to be False"),
        (single_head_cost, "elementwise", lambda d_model, d_head, n, mask: single_head_cost(
            d_model, d_head, n).total.elementwise, "mask taken to be False"),
        (kept_by_formula, "", lambda i, j, d, e: 4 * (i * d + j * d + j * e), "weights left out"),
    ],
)  # fmt: skip
def test_a_wrong_count_is_told_by_what_it_is_of_the_right_one(like, column, function, name):
    failure = failure_of(check_cost, function, like, column=column)
    assert (named(failure) or [None])[0] == name
    assert "Something else" not in str(failure)


@pytest.mark.parametrize("factor", FACTORS)
def test_every_factor_is_told(factor):
    failure = failure_of(check_cost, lambda *sizes: factor * core(*sizes), core)
    assert named(failure)[0] == FACTORS[factor][0]


def test_parts_that_cost_the_same_are_named_together():
    failure = failure_of(check_cost, lambda m, h, n: 3 * m * (m + 1), layer, column="parameters")
    assert "Of the same size: key left out, value left out, output left out" in said(failure)


def test_one_head_in_place_of_all_is_said_in_words():
    failure = failure_of(check_cost, lambda b, h, n, d: 4 * b * n * n * d, core)
    assert "One head is counted, not all of them." in said(failure)
    assert "b = n = d = 1\n" in str(failure)
    assert "\nh = 3\n" in str(failure)


@pytest.mark.parametrize(
    ("function", "like", "column"),
    [
        (core, core, "flops"),
        (lambda d, n, h, b: core(b, h, n, d), core, "flops"),
        (lambda x, y, z, w: float(core(x, y, z, w)), core, "flops"),
        (lambda x, y, z, w: torch.tensor(core(x, y, z, w)), core, "flops"),
        (lambda m, h, n: 4 * m * (m + 1), layer, "parameters"),
        (lambda d_model, heads, n: 8 * n * d_model**2 + 4 * n * n * d_model, layer, "flops"),
        (lambda i, j, d, e: i * j * (d + e), attention_cost, "multiply_adds"),
        (lambda d_model, num_heads, i, j: multi_head_cost(d_model, num_heads, i, j),
         multi_head_cost, "bytes"),
        (lambda b, h, i, j, itemsize: b * h * i * j * itemsize, weights, ""),
        (kept_by_formula, kept_by_formula, ""),
        (multi_head_cost, multi_head_cost, "elementwise"),
    ],
)  # fmt: skip
def test_a_right_count_passes_however_it_is_written(function, like, column):
    report = check_cost(function, like, column=column)
    assert {"ones", "one by one", "all together", "large sizes"} <= set(report.passed)
    assert report.skipped == []


def test_true_and_false_are_asked_of_what_is_true_or_false():
    report = check_cost(multi_head_cost, multi_head_cost)
    assert {"proj_bias", "mask"} <= set(report.passed)


@pytest.mark.parametrize("seed", range(5))
def test_sizes_fit_each_other_and_no_two_are_alike(seed):
    defaults = {"d_model": ..., "num_heads": ..., "n": ..., "itemsize": 4, "mask": False}
    cases = [case.options for case in cases_of_costs(defaults, seed)]
    assert all(case["d_model"] % case["num_heads"] == 0 for case in cases)
    assert {case["itemsize"] for case in cases} <= {1, 2, 4, 8}
    together = [c.options for c in cases_of_costs({"i": 1, "j": 1, "d": 1}, seed)][4:]
    assert all(len({*case.values()}) == 3 for case in together)
    assert together != [c.options for c in cases_of_costs({"i": 1, "j": 1, "d": 1}, seed + 9)][4:]


def test_other_sizes_can_be_asked():
    def longest(size):
        return int(size**0.5)

    sizes = [{"size": 1}, {"size": 2}, {"size": 10**6}]
    assert check_cost(longest, longest, sizes=sizes).passed == ["sizes"]
    failure = failure_of(check_cost, lambda size: size**0.5, longest, sizes=sizes)
    assert "\nsize = 2\n" in str(failure)
    assert "answer expected 1\nanswer got      1.414" in str(failure)


def test_sizes_that_the_right_function_can_not_take_are_an_error_of_their_own():
    with pytest.raises(ValueError, match=r"d_model \(7\) must be divisible by num_heads \(2\)"):
        check_cost(layer, layer, sizes=[{"d_model": 7, "num_heads": 2, "n": 3}])


def test_further_mistakes_can_be_named():
    wrong = {
        "n (n + 1) / 2: a causal core is not counted half here": lambda b, h, n, d: (
            2 * b * h * n * (n + 1) * d
        )
    }
    function = wrong["n (n + 1) / 2: a causal core is not counted half here"]
    assert named(failure_of(check_cost, function, core)) == []
    failure = failure_of(check_cost, function, core, wrong=wrong)
    assert "mistake: n (n + 1) / 2. a causal core is not counted half here" in said(failure)


def test_a_mistake_that_does_not_fit_the_sizes_is_none():
    wrong = {"of other sizes": lambda m: m, "by zero": lambda b, h, n, d: b / (h - h)}
    failure = failure_of(check_cost, lambda b, h, n, d: 5 + b, core, wrong=wrong)
    assert named(failure) == []


def test_digits_of_a_count_are_shown():
    failure = failure_of(check_cost, lambda n: n**3 + 1, lambda n: n**3, only=["large sizes"])
    assert "\nanswer expected " in str(failure)
    assert "e+" not in str(failure).split("\n\n")[2]


@pytest.mark.parametrize("answer", [None, "a", [1], torch.ones(2)], ids=str)
def test_what_is_no_number_is_told(answer):
    failure = failure_of(check_cost, lambda n: answer, lambda n: n)
    assert f"a number is expected; got {type(answer).__name__}" in str(failure)


def test_a_function_that_takes_too_little_is_told_what_is_asked():
    failure = failure_of(check_cost, lambda b, h, n: b * h * n, core)
    assert "unexpected keyword argument 'd'" in said(failure)
    assert "An adapter helps: lambda b, h, n, d: ..." in said(failure)
