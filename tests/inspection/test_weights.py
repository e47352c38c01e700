"""Detectors that look at weights alone: exact figures on matrices made by hand, and silence on honest ones."""

from __future__ import annotations

import pytest
import torch
from scipy import special

from inspection.made import convolving, random_rows, rectified, tensors, value, weight_of
from leakscope.inspection import receive
from leakscope.inspection.balance import BalancedRows
from leakscope.inspection.copies import CopyKernels
from leakscope.inspection.head import ClassifierHead
from leakscope.inspection.imprint import ImprintLayers, rank_correlation
from leakscope.inspection.pairs import RowPairs
from leakscope.inspection.parallel import LEAST_ENTRIES, PARALLEL, find_parallel
from leakscope.inspection.rounding import rounded_zeros
from leakscope.inspection.row_sizes import measure_rows
from leakscope.inspection.zeros import ZeroWeights
from leakscope.rng import generator

WEIGHT_DETECTORS = (ZeroWeights(), CopyKernels(), RowPairs(), ImprintLayers(), BalancedRows(), ClassifierHead())


@pytest.mark.parametrize("detector", WEIGHT_DETECTORS, ids=lambda one: one.name)
@pytest.mark.parametrize("network", [rectified(), convolving()], ids=["linear", "convolutions"])
def test_a_fresh_network_has_no_finding(detector, network):
    assert detector.look(receive(network)) == []


class TestSizes:
    @pytest.mark.parametrize("block", [1 << 17, 250, 1])
    def test_every_block_counts_as_the_whole(self, block, monkeypatch):
        monkeypatch.setattr("leakscope.inspection.row_sizes._BLOCK", block)
        rows = random_rows(23, 100)
        rows[rows.abs() < 0.2] = 0.0
        rows[:, 7] = 1e-5
        found = measure_rows(rows)
        off = rows.abs() < 1e-3 * rows.square().mean().sqrt()
        wanted = {
            "largest": rows.abs().amax(1),
            "total": rows.abs().sum(1),
            "squares": rows.square().sum(1),
            "positive": (rows > 0).sum(1).float(),
            "negligible": off.float().mean(1),
            "negligible_by_column": off.float().mean(0),
        }
        for name, values in wanted.items():
            torch.testing.assert_close(vars(found)[name], values)


class TestZeros:
    def test_share_counts_what_is_negligible_beside_the_root_mean_square(self):
        rows = torch.ones(10, 10)
        rows[:3] = 0.0
        rows[3] = 5e-4
        assert value(ZeroWeights(), tensors(fc__weight=rows), "share") == pytest.approx(0.4)
        # √0.7 · 1e-3 is between the two.
        for small, count in ((8e-4, 30), (9e-4, 29)):
            rows = torch.cat([torch.ones(70), torch.zeros(29), torch.tensor([small])])[None]
            assert float(measure_rows(rows).negligible) == pytest.approx(count / 100)

    def test_agreed_pruning_is_taken_off_and_lines_are_not_counted(self):
        rows = random_rows(20, 20)
        rows.view(-1)[: int(0.5 * 400)] = 0.0
        state = {"fc.weight": rows}
        assert value(ZeroWeights(), receive(state, pruned=0.5), "share") == pytest.approx(0.0, abs=1e-6)
        assert value(ZeroWeights(), receive(state, pruned=0.2), "share") == pytest.approx(0.375)
        assert {one.figure for one in ZeroWeights().measure(receive(state, pruned=0.5))} == {"share"}
        assert value(ZeroWeights(), receive(state), "empty_lines") == pytest.approx(0.5)

    def test_columns_count_as_rows_do(self):
        rows = random_rows(20, 10)
        rows[:, :4] = 1e-7
        (found,) = [one for one in ZeroWeights().measure(tensors(fc__weight=rows)) if one.figure == "empty_lines"]
        assert (found.value, found.places, found.detail) == (pytest.approx(0.4), (0, 1, 2, 3), "columns")

    def test_a_layer_that_is_zero_altogether_leads_nowhere(self):
        assert ZeroWeights().look(tensors(fc__weight=torch.zeros(10, 10))) == []

    def test_a_head_of_one_row_is_found(self):
        rows = torch.zeros(10, 30)
        rows[2] = 0.5
        (share, lines) = ZeroWeights().look(tensors(fc__weight=rows))
        assert share.worst.value == pytest.approx(0.9)
        assert lines.worst.places == (0, 1, 3, 4, 5, 6, 7, 8, 9)


class TestRounding:
    """Zeros of weights that were stored with few bits."""

    def on_grid(self, zeros: int, first: int, second: int, *, step: float = 0.01) -> torch.Tensor:
        """A layer with so many weights at 0, at one step and at two steps, either sign alike."""
        levels = [0.0] * zeros + [1.0, -1.0] * (first // 2) + [2.0, -2.0] * (second // 2)
        order = torch.randperm(len(levels), generator=generator(0, "levels"))
        return step * torch.tensor(levels)[order].view(-1, 20)

    def test_what_a_smooth_distribution_would_round_to_zero_is_taken_off(self):
        rows = self.on_grid(500, 300, 200)
        # p₁²/p₂ = 0.15²/0.1, and what is left of a half.
        assert rounded_zeros(rows) == pytest.approx(0.225)
        assert value(ZeroWeights(), tensors(fc__weight=rows), "share") == pytest.approx((0.5 - 0.225) / 0.775)
        assert rounded_zeros(rows.half().float()) == pytest.approx(0.225)

    @pytest.mark.parametrize("bits", [4, 5, 8])
    @pytest.mark.parametrize("tail", [1, 2], ids=["normal", "heavier than Laplace"])
    def test_a_rounded_honest_layer_has_no_finding(self, bits, tail):
        rows = random_rows(64, 288)
        rows = rows * rows.abs() ** (tail - 1) * 0.05
        step = rows.abs().max() / (2 ** (bits - 1) - 1)
        rounded = (rows / step).round() * step
        assert ZeroWeights().look(tensors(fc__weight=rounded)) == []
        if (bits, tail) == (4, 2):
            assert float((rounded == 0).float().mean()) > ZeroWeights().thresholds["share"]

    def test_rows_switched_off_before_rounding_stay_a_finding(self):
        rows = random_rows(64, 288)
        rows[:48] = 0.0
        step = rows.abs().max() / 7
        found = ZeroWeights().look(tensors(fc__weight=(rows / step).round() * step))
        assert [one.figure for one in found] == ["share", "empty_lines"]

    def test_zeros_and_ones_are_no_grid_of_a_smooth_distribution(self):
        rows = torch.eye(64)
        assert rounded_zeros(rows) == 0.0
        assert rounded_zeros(self.on_grid(900, 100, 0)) == 0.0

    def test_one_weight_off_the_grid_is_enough_to_explain_nothing(self):
        # More weights than the first look takes, and one between two that it takes.
        rows = self.on_grid(5_000, 3_000, 2_000)
        assert rounded_zeros(rows) > 0.2
        rows.view(-1)[1] = 0.0153
        assert rounded_zeros(rows) == 0.0

    def test_of_agreed_pruning_and_rounding_the_larger_counts(self):
        rows = self.on_grid(500, 300, 200)
        for pruned, excused in ((0.1, 0.225), (0.4, 0.4)):
            found = value(ZeroWeights(), receive({"fc.weight": rows}, pruned=pruned), "share")
            assert found == pytest.approx((0.5 - excused) / (1 - excused))


class TestCopies:
    def test_both_figures_by_hand_of_the_third_largest_row(self):
        rows = torch.full((5, 17), 0.1)
        for row, peak in enumerate((8.0, 4.0, 2.0, 1.0)):
            rows[row, row] = -peak
        received = tensors(fc__weight=rows)
        assert value(CopyKernels(), received, "transmit_snr") == pytest.approx(2.0 / 1.6)
        assert value(CopyKernels(), received, "peak") == pytest.approx(2.0 / 0.1, rel=1e-4)
        places = next(one.places for one in CopyKernels().measure(received))
        assert sorted(places) == [0, 1, 2]

    def test_a_stack_of_copying_filters_is_found_even_under_noise(self):
        network = convolving()
        with torch.no_grad():
            weight_of(network, 0).mul_(0.02)
            weight_of(network, 0)[:4, 0, 2, 2] = 1.0
        found = CopyKernels().look(receive(network))
        assert {one.worst.tensor for one in found} == {"0.weight"}
        assert set(found[-1].worst.places) >= {0, 1, 2, 3}

    def test_short_rows_and_rows_of_zeros_are_not_judged(self):
        assert CopyKernels().measure(tensors(fc__weight=torch.eye(10))) == []
        assert CopyKernels().look(tensors(fc__weight=torch.zeros(10, 20))) == []

    def test_under_agreed_pruning_only_what_is_left_counts(self):
        rows = random_rows(6, 200)
        kept = rows.abs() > rows.abs().flatten().kthvalue(int(0.9 * rows.numel())).values
        state = {"fc.weight": rows * kept}
        assert (
            value(CopyKernels(), receive(state, pruned=0.9), "peak") < value(CopyKernels(), receive(state), "peak") / 2
        )
        assert CopyKernels().measure(receive({"fc.weight": rows}, pruned=0.95)) == []
        # One weight left has nothing to stand above.
        lonely = torch.zeros(4, 200)
        lonely[:, 0] = 1.0
        assert value(CopyKernels(), receive({"fc.weight": lonely}, pruned=0.5), "peak") == 0.0


class TestPairs:
    @pytest.mark.parametrize("alpha", [-1.0, -0.97, 3.0])
    @pytest.mark.parametrize("width", [40, 2000])
    def test_rows_with_a_multiple_are_counted(self, alpha, width):
        rows = random_rows(30, width)
        rows[20:25] = alpha * rows[:5]
        (found,) = RowPairs().measure(tensors(fc__weight=rows))
        assert found.places == (0, 1, 2, 3, 4, 20, 21, 22, 23, 24)
        assert found.value == 10
        assert RowPairs().look(tensors(fc__weight=rows))

    @pytest.mark.parametrize("width", [40, 2000])
    def test_the_limit_of_the_cosine(self, width):
        rows = random_rows(10, width)
        rows = rows / rows.norm(dim=1, keepdim=True)
        across = rows[1] - (rows[1] @ rows[0]) * rows[0]
        across = across / across.norm()
        for cosine, count in ((0.9995, 2), (0.9985, 0)):
            rows[2] = cosine * rows[0] + (1 - cosine**2) ** 0.5 * across
            assert len(find_parallel(rows).places) == count

    def test_rows_of_zeros_and_short_rows_have_no_partner(self):
        rows = random_rows(10, 40)
        rows[:6] = 0.0
        assert RowPairs().measure(tensors(fc__weight=rows))[0].value == 0
        assert RowPairs().measure(tensors(fc__weight=torch.ones(10, 8))) == []

    def test_the_least_number_of_weights_leaves_nothing_to_chance(self):
        # Two directions in k dimensions: |cosine| ≥ c with probability I(1 − c²; (k − 1)/2, 1/2).
        def pairs_by_chance(weights: int) -> float:
            return 16_384 * 16_383 / 2 * special.betainc((weights - 1) / 2, 0.5, 1 - PARALLEL**2)

        assert special.betainc(0.5, 0.5, 1 - PARALLEL**2) == pytest.approx(0.0285, abs=1e-4)
        assert pairs_by_chance(LEAST_ENTRIES) < 1e-3 < pairs_by_chance(LEAST_ENTRIES - 1)

    def test_rows_that_pruning_left_with_few_weights_are_parallel_by_chance(self):
        rows = torch.zeros(40, 30)
        rows[:, :2] = random_rows(40, 2)
        rows[:20, 1] = 0.0
        state = {"fc.weight": rows}
        assert value(RowPairs(), receive(state, pruned=0.9), "paired_rows") == 0
        assert value(ImprintLayers(), receive(state, pruned=0.9), "equal_rows") == 0
        # Nobody agreed to prune: such rows are as good to a server as full ones.
        assert value(RowPairs(), receive(state), "paired_rows") >= 20
        assert RowPairs().look(receive(state))

    @pytest.mark.parametrize(("weights", "count"), [(8, 0), (9, 12)])
    def test_under_agreed_pruning_a_pair_counts_from_nine_common_weights_on(self, weights, count):
        rows = torch.zeros(20, 60)
        rows[:, :weights] = random_rows(20, weights)
        rows[10:16] = -0.5 * rows[:6]
        assert value(RowPairs(), receive({"fc.weight": rows}, pruned=0.8), "paired_rows") == count

    def test_rows_with_few_weights_are_not_among_the_equal_ones(self):
        rows = random_rows(20, 30)
        rows[1] = 2 * rows[0]
        rows[5:] = 0.0
        rows[5:, 3] = 1.0
        assert find_parallel(rows).equal == tuple(range(5, 20))
        assert find_parallel(rows, least=9).equal == (0,)

    def test_weights_that_only_one_row_has_are_not_common(self):
        rows = torch.zeros(4, 60)
        rows[0, :8] = random_rows(1, 8)[0]
        rows[1] = 3 * rows[0]
        rows[0, 20:25] = rows[1, 30:35] = 1e-4
        assert find_parallel(rows).places == (0, 1)
        assert find_parallel(rows, least=9).places == ()

    def test_more_rows_than_one_block(self):
        rows = random_rows(2100, 30)
        rows[2050] = -2 * rows[3]
        assert find_parallel(rows).places == (3, 2050)


class TestImprint:
    def test_equal_rows_are_counted_and_multiples_are_not(self):
        rows = random_rows(30, 40)
        rows[4:9] = rows[3]
        rows[20:27] = 2 * rows[10]
        (found,) = [one for one in ImprintLayers().measure(tensors(fc__weight=rows)) if one.figure == "equal_rows"]
        assert found.places == (20, 21, 22, 23, 24, 25, 26)
        rows[20:27] = torch.linspace(0.5, 2, 7)[:, None] * rows[10]
        (found,) = [one for one in ImprintLayers().measure(tensors(fc__weight=rows)) if one.figure == "equal_rows"]
        assert found.places == (3, 4, 5, 6, 7, 8)

    def test_equal_columns_share(self):
        rows = random_rows(12, 50)
        rows[:, :30] = random_rows(12, 1, seed=1)
        assert value(ImprintLayers(), tensors(fc__weight=rows), "equal_columns") == pytest.approx(0.6)
        assert value(ImprintLayers(), tensors(fc__weight=torch.zeros(12, 50) + torch.eye(12, 50)), "equal_columns") == 0

    def test_stairs_up_and_down_and_none(self):
        steps = torch.linspace(-1, 1, 16)
        assert rank_correlation(steps) == pytest.approx(1.0)
        assert rank_correlation(-steps.exp()) == pytest.approx(-1.0)
        assert rank_correlation(torch.zeros(16)) == 0.0
        # One swap of neighbours: ρ = 1 − 6·Σd² / (n(n² − 1)) with Σd² = 2.
        swapped = steps.clone()
        swapped[[3, 4]] = steps[[4, 3]]
        assert rank_correlation(swapped) == pytest.approx(1 - 12 / (16 * 255))

    def test_a_falling_staircase_of_biases_is_found(self):
        rows = random_rows(16, 40)
        found = ImprintLayers().look(tensors(fc__weight=rows, fc__bias=-torch.linspace(0, 1, 16)))
        assert [one.figure for one in found] == ["staircase"]
        assert ImprintLayers().look(tensors(fc__weight=rows, fc__bias=random_rows(1, 16)[0])) == []


class TestBalance:
    def test_rows_with_exactly_half_their_weights_negative_are_found(self):
        rows = random_rows(32, 100).abs()
        for row in range(24):
            rows[row, torch.randperm(100, generator=torch.Generator().manual_seed(row))[:50]] *= -1.3
        for row in range(24, 32):
            rows[row, : row + 3] *= -1
        (found,) = BalancedRows().measure(tensors(fc__weight=rows))
        assert (found.value, found.detail) == (pytest.approx(0.75), "50 of 100 weights positive")
        assert BalancedRows().look(tensors(fc__weight=rows))

    def test_rows_that_pruning_left_with_few_weights_have_few_counts_to_choose_from(self):
        rows = torch.zeros(32, 200)
        rows[:, :4] = 1.0
        rows[:, 4:8] = -1.0
        assert value(BalancedRows(), receive({"fc.weight": rows}), "same_balance") == 1.0
        assert value(BalancedRows(), receive({"fc.weight": rows}, pruned=0.9), "same_balance") == 0.0
        rows[:16, 8:40], rows[:16, 40:72] = 1.0, -1.0
        assert value(BalancedRows(), receive({"fc.weight": rows}, pruned=0.9), "same_balance") == 0.5

    def test_rows_of_one_sign_are_not_counted(self):
        assert BalancedRows().look(tensors(fc__weight=torch.ones(32, 100))) == []
        assert BalancedRows().look(tensors(fc__weight=-torch.ones(32, 100))) == []


class TestHead:
    def test_both_figures_by_hand(self):
        rows = torch.ones(5, 4)
        rows[3] = 6.0
        bias = torch.tensor([0.0, 1.0, 2.0, 3.0, -40.0])
        received = tensors(body__weight=random_rows(5, 9), fc__weight=rows, fc__bias=bias)
        assert value(ClassifierHead(), received, "row_ratio") == pytest.approx(6.0)
        assert value(ClassifierHead(), received, "bias_spread") == pytest.approx(41.0)
        found = ClassifierHead().measure(received)
        assert [(one.tensor, one.places) for one in found] == [("fc.weight", (3,)), ("fc.bias", (4,))]

    def test_a_fishing_head_is_found_and_a_head_of_zeros_is_not(self):
        rows = torch.zeros(10, 20)
        assert ClassifierHead().look(tensors(fc__weight=rows, fc__bias=torch.zeros(10))) == []
        rows[0] = 0.5
        bias = torch.full((10,), 1000.0)
        bias[0] = 0.0
        found = ClassifierHead().look(tensors(fc__weight=rows, fc__bias=bias))
        assert [one.figure for one in found] == ["row_ratio", "bias_spread"]
        assert found[0].worst.value == 1e6

    def test_a_network_without_a_linear_layer_is_named(self):
        received = tensors(conv__weight=torch.randn(4, 3, 3, 3))
        assert "none" in ClassifierHead().lacks(received)
        assert ClassifierHead().look(received) == []
