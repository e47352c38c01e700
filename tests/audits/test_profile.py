from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from leakscope.attacks.fc_inversion import fc_inversion
from leakscope.attacks.idlg import idlg
from leakscope.attacks.inverting_gradients import inverting_gradients
from leakscope.audits.profile import MARGIN_DB, LayerLeak, LeakageProfile, View, gradsim, leakage_profile
from leakscope.errors import UsageError
from leakscope.observation.observe import observe
from leakscope.observation.restrict import layers, restrict
from leakscope.testing import smallest_problem
from leakscope.types import Observation, Reconstruction, Status
from tiny import batch_of, convolutional, dense, shared


def test_restricting_keeps_what_matches_and_nothing_else():
    update = shared(convolutional(norm=True).eval(), batch_of([1]))
    assert list(layers(update)) == ["0", "1", "4"]
    assert list(restrict(update, "0").tensors) == ["0.weight", "0.bias"]
    assert list(restrict(update, ["*.bias"]).tensors) == ["0.bias", "1.bias", "4.bias"]
    assert list(restrict(update, ["4.weight", "0"]).tensors) == ["0.weight", "0.bias", "4.weight"]
    with pytest.raises(UsageError, match="no shared tensor matches '5'"):
        restrict(update, ["0", "5"])


def test_gradsim_is_one_at_the_truth_and_lower_from_noise():
    model, batch = dense(), batch_of([1])
    found = gradsim(model, batch)
    assert found.keys() == {"1.weight", "1.bias", "3.weight", "3.bias"}
    assert all(0 < value < 1 for value in found.values())
    near = gradsim(model, batch, points=2)
    assert near["1.weight"] != found["1.weight"]
    with pytest.raises(UsageError, match="at least 2 points"):
        gradsim(model, batch, points=1)


def test_the_first_layer_alone_gives_the_picture_and_the_last_does_not():
    given = smallest_problem()
    said: list[str] = []
    profile = leakage_profile(
        given.model, given.batch, inverting_gradients(steps=80), say=lambda done, total, what: said.append(what)
    )
    first, last = profile.layers
    alone = [layer.views["alone"].psnr or 0.0 for layer in profile.layers]
    assert alone[0] > profile.baseline + 5
    assert alone[0] > alone[1]
    assert last.views["without"].psnr == first.views["alone"].psnr
    assert last.views["up to"].psnr == profile.everything.psnr
    assert len(said) == 1 + 2 * 3
    assert first.name in profile.leaking()
    assert first.name in profile.verdict()
    assert "inverting-gradients" in profile.verdict()


def test_a_failed_attack_on_everything_is_inconclusive():
    given = smallest_problem()
    update = shared(given.model, given.batch)
    assert observe(given.model, update, scenario="B", truth=given.batch).targets is not None
    profile = leakage_profile(given.model, given.batch, inverting_gradients(steps=1), views=["alone"])
    assert profile.everything.status is Status.DIVERGED
    assert profile.verdict().startswith("Inconclusive")


def test_a_layer_an_attack_cannot_use_is_refused_with_the_reason():
    given = smallest_problem()
    profile = leakage_profile(given.model, given.batch, idlg(steps=20), views=["alone"], scenario="C")
    view = profile.layers[0].views["alone"]
    assert view.status is Status.REFUSED
    assert "share the last layer" in view.reason


def test_unknown_views_are_named():
    with pytest.raises(UsageError, match="views must be among alone, without, up to, got beyond"):
        leakage_profile(dense(), batch_of([1]), idlg(), views=["beyond"])


def _profile(everything: View, *alone: View, baseline: float = 10.0) -> LeakageProfile:
    rows = tuple(LayerLeak(f"fc{place}", 1, 0.5, {"alone": view}) for place, view in enumerate(alone, start=1))
    return LeakageProfile("an-attack", "B", everything, baseline, rows)


def _ok(psnr: float) -> View:
    return View(psnr, Status.OK)


@pytest.mark.parametrize("whole", [8.0, 12.9, 13.0])
def test_a_whole_update_within_the_margin_is_inconclusive(whole: float):
    verdict = _profile(_ok(whole), _ok(9.0), _ok(8.0)).verdict()
    assert verdict.startswith("Inconclusive: an-attack got")
    assert f"{whole:.1f} dB" in verdict
    assert "No single layer" not in verdict


def test_what_leaked_is_told_even_where_the_whole_update_is_inconclusive():
    verdict = _profile(_ok(12.0), _ok(30.0), _ok(8.0)).verdict()
    assert verdict.startswith("Inconclusive")
    assert verdict.endswith("from fc1 alone.")


def test_a_weak_attack_on_a_real_update_is_inconclusive():
    given = smallest_problem()
    profile = leakage_profile(given.model, given.batch, inverting_gradients(steps=3, lr=0.05), views=["alone"])
    assert profile.everything.status is Status.UNFINISHED
    assert (profile.everything.psnr or 0.0) < profile.baseline + MARGIN_DB
    assert profile.verdict().startswith("Inconclusive")


@pytest.mark.parametrize("status", [Status.REFUSED, Status.DIVERGED, Status.NAN])
def test_a_layer_without_evidence_is_never_called_quiet(status: Status):
    failed = View(None, status, "why")
    profile = _profile(_ok(40.0), _ok(30.0), failed, _ok(8.0))
    assert profile.inconclusive() == {"fc2": failed}
    verdict = profile.verdict()
    assert "from 1 other alone it did not (fc3)" in verdict
    assert verdict.endswith(f"No evidence alone, so not called safe: fc2 ({status}).")
    quiet = _profile(_ok(40.0), failed, _ok(8.0)).verdict()
    assert quiet.startswith("Of the layers tested alone, none (fc2) let an-attack come")
    assert quiet.endswith(f"fc1 ({status}).")
    assert "No single layer" not in quiet


def test_no_evidence_on_any_layer_is_inconclusive():
    verdict = _profile(_ok(40.0), View(None, Status.REFUSED), View(None, Status.DIVERGED)).verdict()
    assert verdict == "Inconclusive: an-attack gave no evidence on any layer alone: fc1 (refused), fc2 (diverged)."


def test_an_attack_that_refuses_a_layer_leaves_it_without_evidence():
    given = smallest_problem()
    profile = leakage_profile(given.model, given.batch, fc_inversion(), views=["alone"])
    first, last = (leak.name for leak in profile.layers)
    assert profile.leaking() == (first,)
    assert list(profile.inconclusive()) == [last]
    assert "did not" not in profile.verdict()
    assert f"{last} (refused)" in profile.verdict()


def test_a_reconstruction_that_is_not_finite_is_no_evidence():
    given = smallest_problem()

    class Broken(type(fc_inversion())):
        def _reconstruct(self, seen: Observation, seed: int, watch: object) -> Reconstruction:
            found = super()._reconstruct(seen, seed, None)
            return replace(found, inputs=torch.full_like(found.inputs, float("nan")), status=Status.OK)

    profile = leakage_profile(given.model, given.batch, Broken(), views=["without"])
    assert profile.everything.psnr is None
    assert profile.everything.status is Status.NAN


@pytest.mark.parametrize("status", [Status.UNFINISHED, Status.DIVERGED])
def test_what_a_failed_attack_rebuilt_from_a_layer_leaks_all_the_same(status: Status):
    given = smallest_problem()

    class Hasty(type(fc_inversion())):
        def _reconstruct(self, seen: Observation, seed: int, watch: object) -> Reconstruction:
            found = super()._reconstruct(seen, seed, None)
            # Well above a guess, and not so close that it explains the update as the truth does.
            return replace(found, inputs=0.5 * found.inputs + 0.25, status=status)

    profile = leakage_profile(given.model, given.batch, Hasty(), views=["alone"])
    assert profile.everything.status is status
    assert profile.above(profile.everything)
    assert profile.leaking()


def test_the_layers_held_back_are_not_the_reason_an_attack_diverged():
    given = smallest_problem()
    profile = leakage_profile(given.model, given.batch, inverting_gradients(steps=3, lr=0.05), views=["alone"])
    assert all("not shared" not in view.reason for view in profile.inconclusive().values())


def test_asking_for_a_view_that_was_not_measured_names_what_was():
    profile = leakage_profile(dense(), batch_of([1]), fc_inversion(), views=["without", "without"])
    with pytest.raises(UsageError, match="measured 'without', got 'alone'"):
        profile.leaking("alone")
    with pytest.raises(UsageError, match="measured 'without', got 'beyond'"):
        profile.inconclusive("beyond")
    profile.leaking("without")
