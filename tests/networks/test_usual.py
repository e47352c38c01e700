"""Networks that people train: an unused parameter, a gate, tied weights, blocks of known families."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from leakscope.audits.audit import audit
from leakscope.client import share
from leakscope.defences.clip import clip
from leakscope.errors import BadInputError, UnsuitableError
from leakscope.matching.distances import SquaredL2
from leakscope.matching.labels import infer_labels
from leakscope.matching.problem import PlainRoute
from leakscope.matching.replays import AsKnown
from leakscope.matching.routes import choose_route
from leakscope.observation import observe
from leakscope.registry import get_attack
from leakscope.types import Batch, LocalTraining, SharedUpdate, Status
from usual_networks import USUAL, usual

LOCAL = LocalTraining(lr=0.05, steps=2, batch_size=1)


def _batch(model: nn.Module, *, seed: int = 1, size: int = 2) -> Batch:
    inputs = torch.rand((2, 3, 8, 8), generator=torch.Generator().manual_seed(seed))
    return Batch(inputs[:size].to(next(model.parameters()).dtype), torch.tensor([1, 3])[:size])


@pytest.mark.parametrize("name", USUAL)
def test_every_usual_network_gets_a_result(name):
    model = usual(name)
    attack = get_attack("inverting-gradients", steps=3)
    one = audit(model, _batch(model), attack)
    several = audit(model, [_batch(model), _batch(model, seed=2)], attack, local=LOCAL, scenario="A")
    for result in (one, several):
        assert result.scores is not None
        assert result.reconstruction is not None
        assert bool(result.reconstruction.isfinite().all())
        assert result.status in tuple(Status)


MATCHING = (
    "dlg",
    "idlg",
    "cpl",
    "geng",
    "agic",
    "gradinversion",
    "grnn",
    "policy-aware",
    "lbfgs-l2",
    "adam-l1",
    "gias",
)


@pytest.mark.parametrize("name", ["spare layer", "gate"])
@pytest.mark.parametrize("attack", MATCHING)
def test_every_matching_attack_takes_the_plain_route_and_says_why(name, attack):
    model = usual(name)
    short = {"prior": "smooth", "latent_steps": 1, "weight_steps": 1} if attack == "gias" else {"steps": 1}
    result = audit(model, _batch(model, size=1), get_attack(attack, **short), scenario="A")
    assert result.scores is not None
    assert any("plain double backward" in note for note in result.notes)


def _route(name: str, names: list[str] | None = None):
    model = usual(name).double()
    batch = _batch(model)
    update = share(model, batch, seed=0)
    assert isinstance(update, SharedUpdate)
    if names is not None:
        update = SharedUpdate("gradient", {key: update.tensors[key] for key in names}, 2)
    seen = observe(model, update, scenario="A", truth=batch)
    goal = {key: value[None] for key, value in seen.update.tensors.items()}
    images = torch.rand((1, 2, 3, 8, 8), generator=torch.Generator().manual_seed(4)).double()
    return choose_route(seen, AsKnown(), SquaredL2(), images=images, targets=batch.targets[None], target=goal), update


@pytest.mark.parametrize(
    ("name", "parameter"), [("spare layer", "spare.weight"), ("gate", "gate"), ("head twice", "conv.weight")]
)
def test_the_note_names_the_parameter(name, parameter):
    (route, note), _update = _route(name)
    assert isinstance(route, PlainRoute)
    assert note.startswith("plain double backward")
    assert parameter in note


def test_a_spare_layer_that_is_not_shared_is_no_reason_for_the_plain_route():
    (route, note), _update = _route("spare layer", ["conv.weight", "conv.bias", "head.weight", "head.bias"])
    assert not isinstance(route, PlainRoute), note


def test_gradients_of_unused_parameters_are_zero_and_may_be_absent():
    _route_found, update = _route("spare layer")
    assert not bool(update.tensors["spare.weight"].any())
    assert bool(update.tensors["conv.weight"].any())
    model = usual("spare layer").double()
    kept = {name: value for name, value in update.tensors.items() if not name.startswith("spare")}
    results = []
    for tensors in (update.tensors, kept):
        seen = observe(model, SharedUpdate("gradient", tensors, 2), scenario="A", truth=_batch(model))
        results.append(get_attack("inverting-gradients", steps=4).reconstruct(seen, seed=0))
    assert results[1].loss == pytest.approx(results[0].loss, rel=1e-3)


def test_a_gate_is_part_of_the_distance():
    """A gate's gradient, matched wrongly, must change the distance: it is compared, not left out."""
    model = usual("gate").double()
    batch = _batch(model)
    update = share(model, batch, seed=0)
    assert isinstance(update, SharedUpdate)
    seen = observe(model, update, scenario="A", truth=batch)
    route = PlainRoute(seen, AsKnown(), SquaredL2())
    goal = {key: value[None] for key, value in update.tensors.items()}
    exact = route.measure(batch.inputs[None], batch.targets[None], goal)
    goal["gate"] = goal["gate"] + 0.5
    moved = route.measure(batch.inputs[None], batch.targets[None], goal)
    assert float(exact) < 1e-20
    assert float(moved - exact) == pytest.approx(0.25)


@pytest.mark.parametrize("name", ["spare layer", pytest.param("gate", marks=pytest.mark.slow)])
def test_closed_forms_labels_and_defences_accept_them(name):
    model = usual(name)
    batch = _batch(model)
    for attack, reason in (("rgap", "rgap goes back layer by layer"), ("fc-inversion", "receives the whole input")):
        with pytest.raises(UnsuitableError, match=reason):
            audit(model, _batch(model, size=1), get_attack(attack))
    update = share(model, batch, seed=0)
    seen = observe(model, update, scenario="C", truth=batch)
    assert infer_labels(seen).labels.tolist() == [1, 3]
    for defence in ("prune", clip(1.0), "gaussian-noise", "laplacian-noise"):
        result = audit(model, batch, get_attack("inverting-gradients", steps=2), defence=defence, adaptive=True)
        assert result.scores is not None


class SpareDense(nn.Module):
    """A linear network with a spare layer and a gate behind the first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head, self.spare = nn.Linear(192, 8), nn.Linear(8, 4), nn.Linear(192, 8)
        self.gate = nn.Parameter(torch.tensor(0.3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.sigmoid(self.first(x.flatten(1)) * torch.sigmoid(self.gate)))


def test_fc_inversion_is_exact_beside_a_spare_layer():
    model = SpareDense().double()
    result = audit(model, _batch(model, size=1), get_attack("fc-inversion"))
    assert result.scores is not None
    assert float(result.scores.psnr.min()) > 100


def test_dropout_of_zero_is_not_random():
    (route, note), _update = _route("dropout of zero")
    assert not isinstance(route, PlainRoute), note
    model = usual("dropout of zero")
    result = audit(model, _batch(model), get_attack("inverting-gradients", steps=2))
    assert not any("dropout" in remark or "random" in remark for remark in result.notes)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@pytest.mark.parametrize(("wrap", "remedy"), [(nn.DataParallel, r"model\.module"), (torch.jit.script, "Python module")])
def test_wrapped_networks_are_refused_with_the_remedy(wrap, remedy):
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
    with pytest.raises(BadInputError, match=remedy):
        audit(wrap(model), _batch(model), "inverting-gradients:steps=1")
