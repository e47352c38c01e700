"""Contracts that every attack, defence and metric must keep; public, for plug-ins as well.

Each function raises `AssertionError` with a sentence that says which promise was broken.

Example:
    >>> from leakscope.testing import check_attack
    >>> from leakscope.attacks.fc_inversion import fc_inversion
    >>> check_attack(fc_inversion())
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from leakscope.attack import Attack, CraftContext, Effort
from leakscope.attacks.idlg import idlg
from leakscope.client import harden, share
from leakscope.defence import Defence, Hardened
from leakscope.errors import KnowledgeError
from leakscope.metrics import guess_baseline, score
from leakscope.metrics.metric import check_metric as check_metric
from leakscope.models import build
from leakscope.networks import freeze, settle
from leakscope.observation.observe import observe
from leakscope.types import (
    Batch,
    Knowledge,
    Observation,
    Reconstruction,
    SealedUpdate,
    SharedUpdate,
    Status,
)


@dataclass(frozen=True)
class ContractProblem:
    """A model and a private batch that any attack of its kind must be able to break."""

    model: nn.Module
    batch: Batch

    @cached_property
    def undefended(self) -> float:
        """PSNR of the reference attack where nothing is defended; found once for all defences that are checked here."""
        return self.reach(self.model, _share(self.model, self.batch))

    def reach(self, model: nn.Module, update: SharedUpdate) -> float:
        """PSNR of the reference attack, which knows of no defence, on an update of this batch."""
        seen = observe(model, update, scenario="A", truth=self.batch)
        return float(score(idlg(steps=30, retries=0).reconstruct(seen, seed=4), self.batch).psnr.min())


def smallest_problem(*, dtype: torch.dtype = torch.float32) -> ContractProblem:
    """One smooth 8 × 8 picture behind a small sigmoid network whose first layer is linear."""
    model = build("mlp", num_classes=4, in_channels=1, image_size=8, hidden=[48], activation="sigmoid", seed=3)
    rows = torch.linspace(0, 1, 8)
    picture = 0.5 + 0.45 * torch.sin(5 * rows[:, None]) * torch.cos(4 * rows[None, :])
    picture[2:4, 5:7] = 0.95
    batch = Batch(picture[None, None].to(dtype), torch.tensor([2]))
    return ContractProblem(model.to(dtype), batch)


def convolutional_problem(*, dtype: torch.dtype = torch.float32) -> ContractProblem:
    """The same picture behind two convolutions: no layer receives the input itself."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(512, 4),
        )
    return ContractProblem(model.to(dtype), smallest_problem(dtype=dtype).batch)


def check_attack(
    attack: Attack, *, problem: ContractProblem | None = None, scenario: str = "A", margin_db: float = 3.0
) -> None:
    """Check the promises of an attack; it must get `margin_db` above the blind guess.

    On the smallest problem with everything granted, unless told otherwise: in scenario "C" it finds the labels itself.
    A malicious attack crafts the model of every round it needs before the client sees it.
    """
    given = problem or smallest_problem()
    _check_attack_value(attack)
    _check_effort(attack)
    _check_revision(attack)
    seen = _play(attack, given, scenario)
    with _assert_untouched(seen):
        first = attack.reconstruct(seen, seed=5)
        second = attack.reconstruct(seen, seed=5)
    _check_reconstruction(attack, seen, first)
    assert torch.equal(first.inputs, second.inputs), f"{attack.name}: the same seed gave different inputs"
    assert first.loss == second.loss, f"{attack.name}: the same seed gave different losses"
    reached = score(first, given.batch).psnr
    chance = guess_baseline(given.batch)
    assert bool((reached >= chance + margin_db).all()), (
        f"{attack.name}: {reached.tolist()} dB is not {margin_db} dB above the blind guess {chance.tolist()}"
    )
    assert first.status is Status.OK, f"{attack.name}: ended {first.status} on its own problem ({first.notes})"
    _check_refusal(attack, given, seen.update)


def _play(attack: Attack, given: ContractProblem, scenario: str) -> Observation:
    """What the server sees in the last of the rounds it needs; a malicious one hands out a model of its own in each."""
    played: list[Observation] = []
    outputs = settle(freeze(given.model)[0], tuple(given.batch.inputs.shape[1:])).outputs
    for number in range(attack.rounds):
        context = CraftContext(
            seed=3,
            input_shape=tuple(given.batch.inputs.shape[1:]),
            num_classes=outputs,
            round=number,
            history=tuple(played),
        )
        crafted = attack.craft(given.model, context=context)
        update = share(crafted.model, given.batch, seed=1)
        assert isinstance(update, SharedUpdate)
        seen = observe(crafted.model, update, scenario=scenario, truth=given.batch)
        played.append(replace(seen, earlier=tuple(played), secret=crafted.secret))
    return played[-1]


def _check_effort(attack: Attack) -> None:
    name, own = attack.name, attack.effort
    assert attack.with_effort(own) == attack, f"{name}: its own effort makes another attack of it"
    assert (own.steps is None) == (own.evaluations is None), f"{name}: steps and evaluations belong together"
    if own.steps is None or own.evaluations is None:
        return
    half = max(1, own.steps // 2)
    short = attack.with_effort(Effort(steps=half)).effort
    assert short.steps == half, f"{name}: with_effort does not shorten it"
    assert short.restarts == own.restarts, f"{name}: with_effort changes restarts that were not given"
    assert half == own.steps or (short.evaluations or 0) < own.evaluations, f"{name}: a shorter run costs no less"


def _check_revision(attack: Attack) -> None:
    """Whatever an attack learns of a defence, it is still that attack, and crosses processes."""
    name = attack.name
    assert attack.revised(lambda recipe: recipe) == attack, f"{name}: an unchanged recipe makes another attack of it"
    for knowing in (
        attack.revised(lambda recipe: replace(recipe, distance=recipe.distance.masked())),
        attack.revised(lambda recipe: replace(recipe, distance=recipe.distance.clipped())),
        attack.revised(lambda recipe: replace(recipe, noise=recipe.noise + 1e-4)),
    ):
        same = (knowing.name, knowing.effort, knowing.needs) == (name, attack.effort, attack.needs)
        assert same, f"{name}: knowing a defence makes another attack of it"
        _check_crosses(f"{name}, revised", knowing)


def _check_attack_value(attack: Attack) -> None:
    assert isinstance(attack, Attack), f"{attack!r} is not a leakscope.attack.Attack"
    assert attack.name, "an attack needs a name"
    assert attack.paper, f"{attack.name}: an attack needs its paper"
    assert all(isinstance(item, Knowledge) for item in attack.needs), f"{attack.name}: needs must hold Knowledge"
    _check_crosses(attack.name, attack)
    assert " at 0x" not in repr(attack), f"{attack.name}: its repr has an address, which no other process repeats"


def _check_reconstruction(attack: Attack, seen: Observation, found: Reconstruction) -> None:
    name = attack.name
    assert found.inputs.shape[1:] == seen.input_shape, f"{name}: inputs have shape {list(found.inputs.shape)}"
    assert found.inputs.dtype == seen.dtype, f"{name}: inputs came back as {found.inputs.dtype}"
    assert found.inputs.device == seen.device, f"{name}: inputs came back on {found.inputs.device}"
    assert bool(torch.isfinite(found.inputs).all()), f"{name}: inputs are not finite"
    assert not found.inputs.requires_grad, f"{name}: inputs still carry a graph"
    assert found.history, f"{name}: no history"
    again = attack.evaluate(seen, found)
    assert again == found.loss, f"{name}: stores loss {found.loss}, but its iterate has {again}"


def _check_refusal(attack: Attack, given: ContractProblem, update: SharedUpdate) -> None:
    if not attack.needs:
        return
    shape = tuple(given.batch.inputs.shape[1:])
    poor = observe(given.model, update, scenario="E", input_shape=shape)
    try:
        attack.reconstruct(poor, seed=0)
    except KnowledgeError:
        return
    raise AssertionError(f"{attack.name}: ran although the scenario does not grant what it needs")


def check_defence(defence: Defence, *, problem: ContractProblem | None = None, margin_db: float = 3.0) -> None:
    """Check the promises of a defence, and that it lowers what an unaware attacker gets."""
    given = problem or smallest_problem()
    name = defence.name
    assert isinstance(defence, Defence), f"{defence!r} is not a leakscope.defence.Defence"
    assert name, "a defence needs a name"
    assert defence.paper, f"{name}: a defence needs its paper"
    _check_crosses(name, defence)
    model = harden(given.model, defence, seed=2)
    changed = model.client is not given.model
    assert changed == defence.changes_network, f"{name}: changes_network must be {changed}"
    plain = observe(given.model, _share(given.model, given.batch), scenario="A", truth=given.batch)
    with _assert_untouched(plain, batch=given.batch):
        update = share(model, given.batch, defence=defence, seed=2)
        again = share(model, given.batch, defence=defence, seed=2)
    if isinstance(update, SealedUpdate):
        return
    assert isinstance(again, SharedUpdate)
    _check_same_form(name, _share(model, given.batch), update)
    for key, value in update.tensors.items():
        assert torch.equal(value, again.tensors[key]), f"{name}: the same seed gave different updates"
    assert isinstance(defence.adapt(idlg()), Attack), f"{name}: adapt must return an attack"
    _check_lowers(defence, given, model, update, margin_db)


def _check_same_form(name: str, plain: SharedUpdate, update: SharedUpdate) -> None:
    assert update.kind == plain.kind, f"{name}: changed the kind of update to {update.kind}"
    assert update.tensors.keys() <= plain.tensors.keys(), f"{name}: shares tensors that the model does not have"
    for key, value in update.tensors.items():
        usual = plain.tensors[key]
        same = (value.shape, value.dtype, value.device) == (usual.shape, usual.dtype, usual.device)
        assert same, f"{name}: changed shape, dtype or device of {key!r}"


def _check_lowers(
    defence: Defence, given: ContractProblem, model: Hardened, update: SharedUpdate, margin_db: float
) -> None:
    reached = given.reach(model.server, update)
    assert reached <= given.undefended - margin_db, (
        f"{defence.name}: the unaware attacker still gets {reached:.1f} dB of {given.undefended:.1f}"
    )


def _check_crosses(name: str, value: object) -> None:
    """Assert that another process receives an equal value."""
    try:
        copied = pickle.loads(pickle.dumps(value))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise AssertionError(f"{name}: does not survive the way to a worker process: {error}") from error
    assert copied == value, f"{name}: does not survive the way to a worker process"
    assert repr(copied) == repr(value), f"{name}: its repr depends on more than its value"


def _share(model: nn.Module | Hardened, batch: Batch) -> SharedUpdate:
    update = share(model, batch, seed=2)
    assert isinstance(update, SharedUpdate)
    return update


@contextmanager
def _assert_untouched(seen: Observation, *, batch: Batch | None = None) -> Iterator[None]:
    """Assert that the block changes no tensor, mode, hook, gradient or global random state."""
    before = _snapshot(seen, batch)
    hooks = _hooks(seen.model)
    state = torch.random.get_rng_state()
    yield
    for name, (old, now) in {k: (before[k], v) for k, v in _snapshot(seen, batch).items()}.items():
        assert torch.equal(old, now), f"{name} was modified"
    assert _hooks(seen.model) == hooks, "a hook or a mode of the model was left changed"
    assert all(p.grad is None for p in seen.model.parameters()), "a gradient was left on the model"
    assert torch.equal(torch.random.get_rng_state(), state), "the global random state was used"


def _snapshot(seen: Observation, batch: Batch | None) -> dict[str, Tensor]:
    found = {f"model {name}": value.detach().clone() for name, value in seen.model.state_dict().items()}
    found |= {f"update {name}": value.clone() for name, value in seen.update.tensors.items()}
    if batch is not None:
        found |= {"batch inputs": batch.inputs.clone(), "batch targets": batch.targets.clone()}
    return found


def _hooks(model: nn.Module) -> list[tuple[int, int, bool]]:
    return [(len(m._forward_hooks), len(m._forward_pre_hooks), m.training) for m in model.modules()]
