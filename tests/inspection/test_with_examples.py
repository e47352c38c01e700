"""Detectors that run the network on the client's own examples, or compare it with the last round."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from inspection.made import bias_of, convolving, pictures, rectified, value, weight_of
from leakscope.inspection import Severity, receive
from leakscope.inspection.change import RoundChange, loss_unit, relative_change
from leakscope.inspection.dominance import GradientDominance, dominance
from leakscope.inspection.firing import FiringRates
from leakscope.inspection.gradient_norms import gradient_norms
from leakscope.inspection.recording import run_recorded
from leakscope.tasks import Binary
from leakscope.types import Batch


class Functional(nn.Module):
    """Rectifies by functions and methods."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Linear(36, 20), nn.Linear(20, 18), nn.Linear(18, 4)

    def forward(self, x):
        x = functional.relu(self.one(x.flatten(1)))
        return self.head(self.two(x).relu_())


class Unusual(nn.Module):
    """Linear layers as they occur beside the plain ones."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.one, self.two, self.head = nn.Linear(36, 12), nn.Linear(12, 12), nn.Linear(12, 4)
            self.rows, self.spare = nn.Linear(6, 36), nn.Linear(3, 3)
        if kind == "tied":
            self.other = nn.Linear(12, 12)
            self.other.weight = self.two.weight

    def forward(self, x):
        if self.kind == "places":
            # Every row of the picture goes through the same layer.
            return self.head(self.two(self.one(self.rows(x.squeeze(1)).mean(1)).relu()))
        if self.kind == "places first":
            # As many places as examples, and before them.
            return self.head(self.two(self.one(self.rows(x.squeeze(1).transpose(0, 1)).mean(0)).relu()))
        x = self.one(x.flatten(1)).relu_()
        x = self.two(x).sigmoid()
        if self.kind == "twice":
            x = self.two(x).tanh()
        if self.kind == "tied":
            x = self.other(x).tanh()
        return self.head(x)


LINEAR = ("in place", "twice", "tied", "places", "places first")
CONVOLUTIONS = {
    "padded": {"padding": 1},
    "strided": {"stride": 2, "padding": (1, 0)},
    "dilated": {"dilation": 2},
    "grouped": {"groups": 2},
    "same": {"padding": "same"},
    "reflecting": {"padding": 1, "padding_mode": "reflect"},
}


def convolving_once(options: dict) -> nn.Sequential:
    """Two convolutions of 3 × 3, the second with these options, and rectifiers that work in place."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first, second = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 6, 3, **options)
        parts = first, nn.ReLU(inplace=True), second, nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        return nn.Sequential(*parts, nn.Linear(24, 4))


class TestFiring:
    def test_shares_by_hand(self):
        network = nn.Sequential(nn.Flatten(), nn.Linear(36, 20), nn.ReLU(), nn.Linear(20, 4))
        batch = pictures(20)
        with torch.no_grad():
            weight_of(network, 1).zero_()
            bias_of(network, 1).copy_(torch.tensor([-1.0] * 5 + [1.0] * 15))
            # Fires for exactly the examples whose first pixel is above the median, or above all but two.
            first = batch.inputs[:, 0, 0, 0].sort().values
            weight_of(network, 1)[5:9, 0] = 1.0
            bias_of(network, 1)[5:9] = -(first[17] + first[18]) / 2
            weight_of(network, 1)[9:12, 0] = 1.0
            bias_of(network, 1)[9:12] = -(first[9] + first[10]) / 2
        received = receive(network, batch=batch)
        assert value(FiringRates(), received, "silent") == pytest.approx(5 / 20)
        assert value(FiringRates(), received, "rare") == pytest.approx(4 / 20)
        rare = next(one for one in FiringRates().measure(received) if one.figure == "rare")
        assert (rare.tensor, rare.places) == ("1", (5, 6, 7, 8))

    def test_modules_functions_and_methods_are_all_seen(self):
        network, inputs = Functional(), pictures(16).inputs
        output, found = run_recorded(network, inputs)
        assert torch.equal(output, network(inputs))
        assert not output.requires_grad
        assert [(one.layer, tuple(one.fired.shape)) for one in found] == [("one", (16, 20)), ("two", (16, 18))]
        _, found = run_recorded(convolving(), inputs)
        assert [(one.layer, one.has_places) for one in found] == [("0", True), ("2", True), ("5", False)]

    def test_a_channel_fires_where_any_position_does(self):
        network = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(256, 4))
        with torch.no_grad():
            # The first four fire at some positions of every picture, never at all of them.
            weight_of(network, 0).zero_()
            bias_of(network, 0).copy_(torch.linspace(-1, 1, 16))
            weight_of(network, 0)[:4, 0, 1, 1] = 1.0
            bias_of(network, 0)[:4] = -0.6
        assert value(FiringRates(), receive(network, batch=pictures(16)), "silent") == pytest.approx(4 / 16)

    def test_biases_that_let_one_example_in_thirty_through_are_found(self):
        network, batch = rectified(), pictures(32)
        assert FiringRates().look(receive(network, batch=batch)) == []
        with torch.no_grad():
            before = network[1](batch.inputs.flatten(1))
            bias_of(network, 1).sub_(before.sort(0).values[-2])
        (found,) = FiringRates().look(receive(network, batch=batch))
        assert (found.figure, found.worst.tensor, found.severity) == ("rare", "1", Severity.CRITICAL)

    def test_a_layer_that_never_fires_is_found(self):
        network = rectified()
        with torch.no_grad():
            bias_of(network, 3).fill_(-100.0)
        (found,) = FiringRates().look(receive(network, batch=pictures()))
        assert (found.figure, found.worst.value, found.worst.tensor) == ("silent", 1.0, "3")

    def test_without_enough_examples_it_says_what_it_needs(self):
        assert "16 examples" in FiringRates().lacks(receive(rectified(), batch=pictures(15)))
        assert "got 0" in FiringRates().lacks(receive(rectified()))
        assert "network" in FiringRates().lacks(receive(rectified().state_dict(), batch=pictures()))


class TestDominance:
    def test_by_hand(self):
        assert dominance(torch.tensor([3.0, 1.0, 0.5])) == pytest.approx(2.0)
        assert dominance(torch.zeros(3)) == 0.0
        assert dominance(torch.tensor([1.0, 0.0])) == 1e6

    def test_against_gradients_one_by_one(self):
        network, batch = convolving(), pictures(8)
        norms = []
        for inputs, target in zip(batch.inputs, batch.targets, strict=True):
            network.zero_grad()
            functional.cross_entropy(network(inputs[None]), target[None]).backward()
            norms.append([value.grad.norm() for value in network.parameters() if value.ndim > 1])
        columns = torch.tensor(norms).T
        errors = torch.softmax(network(batch.inputs).detach(), 1) - functional.one_hot(batch.targets, 4)
        scaled = columns / errors.norm(dim=1)
        network.zero_grad()
        received = receive(network, batch=batch)
        wanted = max(dominance(column) for column in columns), max(dominance(column) for column in scaled)
        got = value(GradientDominance(), received, "d_snr"), value(GradientDominance(), received, "per_error")
        assert got == (pytest.approx(wanted[0], rel=1e-4), pytest.approx(wanted[1], rel=1e-4))

    @pytest.mark.parametrize("chunked", [False, True])
    @pytest.mark.parametrize("kind", [*LINEAR, *CONVOLUTIONS])
    def test_lengths_of_gradients_without_them(self, kind, chunked, monkeypatch):
        network = (Unusual(kind) if kind in LINEAR else convolving_once(CONVOLUTIONS[kind])).double()
        batch = pictures(6).to(torch.float64)
        if chunked:
            monkeypatch.setattr("leakscope.inspection.gradient_norms._MOST_NUMBERS", 2000)
        found = gradient_norms(network, batch, functional.cross_entropy)
        assert found.keys() == {name for name, one in network.named_parameters() if one.ndim > 1}
        for place in range(len(batch)):
            network.zero_grad()
            part = slice(place, place + 1)
            functional.cross_entropy(network(batch.inputs[part]), batch.targets[part]).backward()
            for name, lengths in found.items():
                grad = network.get_parameter(name).grad
                assert float(lengths[place]) == pytest.approx(0.0 if grad is None else float(grad.norm()), rel=1e-6)

    def test_one_example_answered_wrong_is_no_finding_and_a_fished_one_is(self):
        network, batch = convolving(), pictures(16)
        with torch.no_grad():
            labels = network(batch.inputs).argmax(1)
            weight_of(network, -1).mul_(400.0)
            bias_of(network, -1).mul_(400.0)
        labels[3] = (labels[3] + 1) % 4
        honest = receive(network, batch=Batch(batch.inputs, labels))
        assert value(GradientDominance(), honest, "d_snr") > 2
        assert value(GradientDominance(), honest, "per_error") < 0.5
        with torch.no_grad():
            weight_of(network, -1).zero_()[0] = 0.5
            bias_of(network, -1).fill_(1000.0)[0] = 0.0
        labels = torch.ones(16, dtype=torch.long)
        labels[5] = 0
        fished = receive(network, batch=Batch(batch.inputs, labels))
        (found,) = GradientDominance().look(fished)
        assert (found.figure, found.worst.places) == ("per_error", (5,))
        assert value(GradientDominance(), fished, "d_snr") == 1e6

    def test_batch_statistics_leave_no_single_gradients(self):
        norm = nn.BatchNorm2d(4, track_running_stats=False)
        network = nn.Sequential(nn.Conv2d(1, 4, 3), norm, nn.Flatten(), nn.Linear(64, 4))
        assert "normalisation '1' mixes" in GradientDominance().lacks(receive(network, batch=pictures(8)))
        assert "8 examples" in GradientDominance().lacks(receive(rectified(), batch=pictures(7)))


class TestChange:
    def test_the_jump_by_hand(self):
        before, after = torch.tensor([[3.0, 4.0]]), torch.tensor([[3.0, 14.0]])
        assert relative_change(before, after) == pytest.approx(2.0)
        assert relative_change(torch.zeros(2, 2), torch.ones(2, 2)) == 0.0

    def test_losses_by_hand(self):
        network, earlier, batch = rectified(), rectified(seed=1), pictures(8)
        with torch.no_grad():
            now, then = (
                functional.cross_entropy(one(batch.inputs), batch.targets).item() for one in (network, earlier)
            )
        received = receive(network, previous=earlier, batch=batch)
        # Four scores: the middle lies between the second and the third.
        scores = network(batch.inputs).detach().sort(1).values
        away = (scores - scores[:, 1:3].mean(1, keepdim=True)).abs().median()
        unit = math.log(4) * (1 + float(away) / math.log(4))
        assert loss_unit(received) == pytest.approx(unit, rel=1e-5)
        assert value(RoundChange(), received, "loss_rise") == pytest.approx((now - then) / unit, rel=1e-4)

    def test_a_network_that_has_forgotten_everything_is_no_finding_however_large_its_scores(self):
        batch = pictures(64)
        skilled, forgetful = rectified(seed=1), rectified(seed=2)
        with torch.no_grad():
            weight_of(forgetful, 5).mul_(2000.0)
        received = receive(forgetful, previous=skilled, batch=batch)
        assert received.loss_now - received.loss_before > 50
        assert value(RoundChange(), received, "loss_rise") < 3
        assert [one for one in RoundChange().look(received) if one.figure == "loss_rise"] == []

    def test_one_class_that_shouts_does_not_make_the_unit(self):
        network, batch = rectified(), pictures(16)
        quiet = loss_unit(receive(network, batch=batch))
        with torch.no_grad():
            bias_of(network, 5)[0] += 100.0
        assert loss_unit(receive(network, batch=batch)) < 1.5 * quiet

    def test_one_logit_stands_for_itself_and_a_zero(self):
        network = nn.Sequential(nn.Flatten(), nn.Linear(36, 1))
        with torch.no_grad():
            weight_of(network, 1).zero_()
            bias_of(network, 1).fill_(6.0)
        received = receive(network, batch=pictures(8, classes=2), task=Binary())
        assert loss_unit(received) == pytest.approx(math.log(2) + 3.0)

    def test_what_is_added_does_not_jump(self):
        before = {"codes": torch.full((1, 5, 4), 0.01), "fc.weight": torch.ones(4, 9)}
        after = {"codes": torch.ones(1, 5, 4), "fc.weight": 2 * torch.ones(4, 9)}
        found = RoundChange().measure(receive(after, previous=before))
        assert [(one.tensor, one.value) for one in found] == [("fc.weight", pytest.approx(1.0))]

    def test_the_last_round_may_be_tensors(self):
        network, earlier, batch = rectified(), rectified(seed=1), pictures(8)
        as_tensors = receive(network, previous=earlier.state_dict(), batch=batch)
        as_network = receive(network, previous=earlier, batch=batch)
        assert RoundChange().measure(as_tensors) == RoundChange().measure(as_network)

    def test_a_last_round_of_another_structure_runs_as_itself(self):
        network, batch = rectified(), pictures(8)
        other = nn.Sequential(nn.Flatten(), nn.Linear(36, 4))
        with torch.no_grad():
            then = functional.cross_entropy(other(batch.inputs), batch.targets).item()
        assert receive(network, previous=other, batch=batch).loss_before == pytest.approx(then, rel=1e-5)
        assert receive(network, previous=other.state_dict(), batch=batch).earlier is None

    def test_replaced_weights_and_a_class_that_shouts_are_found(self):
        crafted, shouting = rectified(), rectified()
        with torch.no_grad():
            weight_of(crafted, 1).fill_(30.0)
            bias_of(shouting, 5)[0] = 100.0
        (found,) = RoundChange().look(receive(crafted, previous=rectified()))
        assert (found.figure, found.worst.tensor, found.severity) == ("jump", "1.weight", Severity.WARNING)
        (found,) = RoundChange().look(receive(shouting, previous=rectified(), batch=pictures()))
        assert found.figure == "loss_rise"

    def test_without_anything_to_compare_it_says_so(self):
        assert "last round" in RoundChange().lacks(receive(rectified()))
