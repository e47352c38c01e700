from __future__ import annotations

import pytest

from leakscope.attacks.idlg import idlg
from leakscope.attacks.inverting_gradients import inverting_gradients
from leakscope.errors import UsageError
from leakscope.partial import layers, restrict
from leakscope.profile import gradsim, leakage_profile
from leakscope.testing import smallest_problem
from leakscope.threat import observe
from leakscope.types import Status
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
