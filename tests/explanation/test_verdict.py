"""From a fit to a status, with and without the truth, and whether a run was finished."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from leakscope.attacks.inverting_gradients import inverting_gradients
from leakscope.audits.cell import run_cell
from leakscope.explanation import is_unfinished, judge_with_truth, settle_status
from leakscope.explanation.verdict import gain, is_hidden
from leakscope.models import build
from leakscope.networks import NetworkKind, kind_of
from leakscope.registry import attack_from_spec, get_attack, get_defence
from leakscope.types import Fit, Status
from tiny import batch_of, convolutional, dense, seen_of


def test_the_gain_is_relative_to_what_unrelated_inputs_leave():
    assert gain(0.9, 0.5) == pytest.approx(0.8)
    assert gain(0.995, 0.99) == pytest.approx(0.5)
    assert gain(0.2, 0.5) == pytest.approx(-0.6)
    assert gain(1.0, 1.0) <= 1


@pytest.mark.parametrize(
    ("fit", "expected"),
    [
        (Fit(0.97, 0.98, 0.7), Status.OK),
        (Fit(0.97, 0.98, 0.96), Status.UNEXPLAINED),
        (Fit(0.5, 0.7, 0.4), Status.UNEXPLAINED),
        (Fit(0.97, 0.98, 0.7, diagnosis="explained 40 % …"), Status.UNEXPLAINED),
        (None, Status.OK),
    ],
)
def test_ok_means_explained(fit: Fit | None, expected: Status):
    assert settle_status(Status.OK, fit) is expected
    assert settle_status(Status.DIVERGED, fit) is Status.DIVERGED


def test_an_unknown_order_lowers_the_bar_by_what_it_costs():
    fit = Fit(0.8, 0.9, 0.7)
    assert settle_status(Status.OK, fit) is Status.UNEXPLAINED
    assert settle_status(Status.OK, fit, attainable=0.88) is Status.OK
    assert settle_status(Status.OK, Fit(0.7, 0.8, 0.7), attainable=0.7) is Status.UNEXPLAINED


@pytest.mark.parametrize(
    ("fit", "expected"),
    [
        # Little, but more than unrelated pictures, and the description is right: a measurement.
        (Fit(0.5, 0.7, 0.4, truth=1.0, diagnosis="explained …"), Status.OK),
        (Fit(0.41, 0.64, 0.4, truth=1.0), Status.UNEXPLAINED),
        (Fit(0.30, 0.5, 0.4, truth=1.0), Status.UNEXPLAINED),
        # A defence hid the truth as well: as good as the truth is the best there is.
        (Fit(0.05, 0.2, 0.04, truth=0.05), Status.OK),
        (Fit(0.00, 0.0, 0.04, truth=0.09), Status.UNEXPLAINED),
        (Fit(0.98, 0.99, 0.995, truth=0.9951), Status.UNEXPLAINED),
    ],
)
def test_with_the_truth_at_hand(fit: Fit, expected: Status):
    for status in (Status.OK, Status.UNEXPLAINED):
        assert judge_with_truth(status, fit, redundancy=1) is expected
    for status in (Status.NAN, Status.OOM, Status.TIMEOUT, Status.ERROR):
        assert judge_with_truth(status, fit, redundancy=1) is status
    assert judge_with_truth(Status.OK, None, redundancy=1) is Status.OK


def test_a_truth_that_explains_little_must_be_explained_by_half():
    """Of 820,000 noisy numbers 9 % showed 3,072 pixels at 25 dB: a result that explains 3 % of it missed them."""
    for explained, expected in ((0.06, Status.UNEXPLAINED), (0.07, Status.OK)):
        fit = Fit(explained, 0.25, 0.024, truth=0.109)
        assert judge_with_truth(Status.OK, fit, redundancy=267) is expected
    # The same shares of as few numbers as there are pixels are lost in noise.
    assert judge_with_truth(Status.OK, Fit(0.065, 0.25, 0.024, truth=0.109), redundancy=1) is Status.OK


def test_what_is_hidden_is_signal_over_noise_for_each_private_number():
    fit = Fit(0.0, 0.0, 0.2, truth=0.5)
    # (0.5 − 0.2) / (1 − 0.5) = 0.6, to be brought to 0.1.
    assert not is_hidden(fit, redundancy=0.17)
    assert is_hidden(fit, redundancy=0.16)
    assert is_hidden(Fit(0.0, 0.0, 0.5, truth=0.5), redundancy=1e6)
    assert not is_hidden(Fit(0.0, 0.0, 0.5, truth=1.0), redundancy=1e-3)


@pytest.mark.parametrize("status", [Status.DIVERGED, Status.UNFINISHED])
def test_a_run_that_failed_counts_only_where_it_explains_what_the_truth_does(status: Status):
    def judge(explained: float, unrelated: float, truth: float) -> Status:
        return judge_with_truth(status, Fit(explained, 0.5, unrelated, truth=truth), redundancy=10)

    # Pruned: the truth gains half of what there is, the result nine tenths of that.
    assert judge(0.656, 0.2, 0.7) is Status.OK
    assert judge(0.64, 0.2, 0.7) is status
    # More than enough for a run that ended well.
    assert judge(0.5, 0.2, 1.0) is status
    # Hidden, and no worse than the truth.
    assert judge(0.704, 0.704, 0.7041) is Status.OK
    assert judge(0.68, 0.704, 0.7041) is status


def test_a_distance_that_still_falls_is_unfinished_unless_the_update_is_explained():
    falling, settled = [1.0 / (1 + step) for step in range(100)], [1.0, *[0.5] * 99]
    halving = [0.97**step for step in range(100)]
    poor, good = Fit(0.6, 0.7, 0.4), Fit(0.99, 0.99, 0.4)
    assert is_unfinished(halving, poor, steps=100, least=20)
    assert not is_unfinished(halving, good, steps=100, least=20)
    assert not is_unfinished(settled, poor, steps=100, least=20)
    assert not is_unfinished(falling, poor, steps=100, least=20)
    assert not is_unfinished((0.1,), poor, steps=None, least=20)
    # Up and down by half of itself, and no lower than before but once: it came to rest.
    noisy = [1.0, 0.5] * 49 + [0.3, 1.0]
    assert not is_unfinished(noisy, poor, steps=100, least=20)
    assert is_unfinished([one * other for one, other in zip(noisy, halving, strict=True)], poor, steps=100, least=20)


def test_too_few_steps_are_unfinished_unless_the_update_fits():
    assert is_unfinished([1.0] * 5, Fit(0.9, 0.95, 0.4), steps=5, least=20)
    assert is_unfinished([1.0] * 5, None, steps=5, least=20)
    assert not is_unfinished([1.0] * 5, Fit(0.999, 0.999, 0.4), steps=5, least=20)
    # Where the labels alone make the update, hardly anything is left to be explained, and a few steps explain that.
    assert is_unfinished([1.0] * 5, Fit(0.99995, 0.9999, 0.99), steps=5, least=20)
    assert not is_unfinished([1.0] * 5, Fit(1.0, 1.0, 0.99), steps=5, least=20)
    assert not is_unfinished([1.0] * 20, Fit(0.99995, 0.9999, 0.99), steps=20, least=20)


@pytest.mark.parametrize("name", ["inverting-gradients", "adam-l2", "agic", "gradinversion"])
def test_five_steps_are_no_evidence(name: str):
    seen = seen_of(dense(classes=8), batch_of([1]))
    found = get_attack(name, steps=5).reconstruct(seen)
    assert found.status is not Status.OK
    assert found.fit is not None


# The least steps on a dense, a convolutional and a deep network.
LEAST = {
    "inverting-gradients": (50, 100, 200),
    "inverting-gradients:schedule=paper": (100, 400, 800),
    "agic": (50, 100, 200),
    "agic:schedule=held": (100, 300, 500),
    "adam-l2": (100, 400, 800),
    "sgd-cosine": (100, 400, 800),
    "dlg-adam": (100, 300, 500),
    "gradinversion": (100, 300, 500),
    "grnn": (100, 200, 300),
    "grnn-refined": (100, 200, 300),
    "gias:prior=smooth": (100, 400, 800),
    "ggl:prior=smooth": (50, 50, 50),
    "ggl:prior=smooth,optimiser=adam": (100, 300, 500),
    "policy-aware": (50, 100, 200),
    "dlg": (5, 10, 25),
    "idlg": (5, 10, 25),
    "lbfgs-cosine": (5, 10, 25),
}


@pytest.mark.parametrize(("spec", "least"), LEAST.items())
def test_the_least_steps_depend_on_the_attack_and_on_the_network(spec: str, least: tuple[int, int, int]):
    attack, batch = attack_from_spec(spec), batch_of([1])
    seen = seen_of(dense(), batch)
    networks = [dense(), build("lenet5", num_classes=4), build("resnet20", num_classes=4)]
    assert tuple(attack.least_steps(replace(seen, model=one)) for one in networks) == least
    # What an attack does unless told otherwise is evidence on every network.
    assert attack.effort.steps is not None
    assert attack.effort.steps >= max(least)


def test_what_counts_as_deep():
    assert kind_of(build("mlp")) is NetworkKind.DENSE
    assert kind_of(convolutional(norm=True)) is NetworkKind.CONVOLUTIONAL
    assert kind_of(build("lenet5")) is NetworkKind.CONVOLUTIONAL
    assert kind_of(build("cnn6")) is NetworkKind.CONVOLUTIONAL
    assert kind_of(build("lstm")) is NetworkKind.CONVOLUTIONAL
    for name in ("convnet", "resnet20", "vit"):
        assert kind_of(build(name)) is NetworkKind.DEEP


@pytest.mark.parametrize("spec", ["inverting-gradients:steps=60", "agic:steps=60"])
def test_a_short_run_on_a_residual_network_is_not_called_safe(spec: str):
    model = build("resnet20", num_classes=10, image_size=16).eval()
    batch = batch_of([3], shape=(3, 16, 16), dtype=torch.float32)
    result = run_cell(model, batch, attack_from_spec(spec), prior_alone=False)
    assert result.status is Status.UNFINISHED
    assert any("at least 200" in note for note in result.notes)


def test_a_contradiction_does_not_make_a_short_run_a_measurement():
    """In an audit the truth may turn `unexplained` into `ok`, but not what is unfinished."""
    noisy = get_defence("gaussian-noise", sigma=0.02)
    for seed in range(3):
        result = run_cell(
            convolutional(), batch_of([1], seed=seed), inverting_gradients(steps=30), defence=noisy, prior_alone=False
        )
        assert result.status in (Status.UNFINISHED, Status.DIVERGED)
