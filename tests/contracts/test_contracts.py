"""Every registered attack, defence and metric keeps the public contract; broken ones do not."""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
import torch

from data_folder import data_root
from leakscope.attack import Effort
from leakscope.attacks.fc_inversion import FCInversion
from leakscope.attacks.idlg import idlg
from leakscope.defence import ClientHooks, Defence, Hardened
from leakscope.errors import KnowledgeError, MissingDataError, MissingExtraError, UnsuitableError
from leakscope.matching.distances import Cosine
from leakscope.matching.labels import Inferred
from leakscope.matching.optimisers import Adam, linear
from leakscope.matching.penalties import TotalVariation
from leakscope.metrics import METRICS, Metric, mse
from leakscope.models import build
from leakscope.registry import ATTACKS, DEFENCES, defence_from_spec, get_attack, get_defence, parse_spec
from leakscope.rng import generator, uniform
from leakscope.testing import check_attack, check_defence, check_metric, convolutional_problem, smallest_problem
from leakscope.types import Reconstruction, Status

# Steps that are enough on the smallest problem; given only to attacks that accept `steps`.
SHORT = {
    "inverting-gradients": 80,
    "dlg-adam": 300,
    "sgd-cosine": 400,
    "adam-cosine": 150,
    "adam-l1": 150,
    "adam-l2": 150,
    "lbfgs-cosine": 10,
    "lbfgs-l2": 10,
    "dlg": 40,
    "idlg": 40,
    "cpl": 40,
    "gradinversion": 100,
    "geng": 30,
    "agic": 80,
    "ggl": 50,
    "grnn": 200,
    "grnn-refined": 200,
    "policy-aware": 100,
    "class-fishing": 150,
}
# What an attack cannot do without, or names its lengths by.
ALSO = {
    "gias": {"prior": "smooth", "latent_steps": 280, "weight_steps": 120},
    "ggl": {"prior": "smooth", "population": 20},
}
FEW_RESTARTS = 2


def quick(name):
    accepted = inspect.signature(ATTACKS[name]).parameters
    options = {"steps": SHORT.get(name, 100)} if "steps" in accepted else {}
    if "restarts" in accepted:
        options["restarts"] = min(FEW_RESTARTS, accepted["restarts"].default)
    return get_attack(name, **options, **ALSO.get(name, {}))


# Attacks on pictures; those that read tokens have problems of their own (tests/attacks/test_embedding_tokens.py).
ON_PICTURES = [name for name in ATTACKS if not quick(name).reads_tokens]


def rectified_problem():
    """The smallest problem behind a wide ReLU layer, which trap weights need."""
    model = build("mlp", num_classes=4, in_channels=1, image_size=8, hidden=[48], activation="relu", seed=3)
    return replace(smallest_problem(), model=model)


# Attacks whose own problem is not the smallest one.
OWN_PROBLEM = {"trap-weights": rectified_problem}
# How far above the guess a malicious server gets, in dB: its closed forms are exact up to rounding.
EXACT = {"mkor": 80, "class-fishing": 80, "robbing-the-fed": 80, "trap-weights": 80}


@pytest.mark.parametrize("name", ON_PICTURES)
def test_every_attack_keeps_the_contract(name):
    problem = OWN_PROBLEM.get(name, smallest_problem)()
    check_attack(quick(name), problem=problem, margin_db=EXACT.get(name, 3.0))


# How far above the blind guess of 12 dB an attack gets behind convolutions with labels it must find, in dB; or why not.
BEHIND_CONVOLUTIONS = {
    "dlg": 40,
    "dlg-adam": 40,
    "idlg": 40,
    "cpl": 40,
    "inverting-gradients": 15,
    "gradinversion": 15,
    "geng": 40,
    "agic": 15,
    "grnn": 8,
    "grnn-refined": 8,
    "gias": 3,
    "ggl": 3,
    "policy-aware": 15,
    "rgap": 80,
    "fc-inversion": (UnsuitableError, "linear layer with bias that receives the whole input"),
    "lbfgs-l2": (KnowledgeError, "needs the labels"),
    "adam-cosine": (KnowledgeError, "needs the labels"),
    "lbfgs-cosine": (KnowledgeError, "needs the labels"),
    "adam-l1": (KnowledgeError, "needs the labels"),
    "adam-l2": (KnowledgeError, "needs the labels"),
    "sgd-cosine": (KnowledgeError, "needs the labels"),
    "mkor": 80,
    "class-fishing": 15,
    "robbing-the-fed": 80,
    "trap-weights": (UnsuitableError, "first linear layer with a bias and a ReLU behind it"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "gias" else name for name in ON_PICTURES]
)
def test_every_attack_works_behind_convolutions_or_says_why_not(name):
    expected = BEHIND_CONVOLUTIONS[name]
    problem = convolutional_problem()
    if isinstance(expected, tuple):
        with pytest.raises(expected[0], match=expected[1]):
            check_attack(quick(name), problem=problem, scenario="C")
    else:
        check_attack(quick(name), problem=problem, scenario="C", margin_db=expected)


@pytest.mark.parametrize("name", ["fc-inversion", "idlg", "adam-l2"])
def test_attacks_keep_the_contract_in_double_precision(name):
    check_attack(quick(name), problem=smallest_problem(dtype=torch.float64))


# A strength from the papers: by how much less an unaware attacker gets of 96 dB, and of 92 dB behind convolutions.
DEFENDED = {
    "gaussian-noise:sigma=1e-2": (60, 60),
    "laplacian-noise:scale=1e-2": (60, 60),
    "gaussian-noise:sigma=0.1,relative=True": (60, 45),
    "laplacian-noise:scale=0.1,relative=True": (60, 45),
    "prune:fraction=0.7": (60, 40),
    "prune:fraction=0.99": (80, 60),
    "prune:fraction=0.9,scope=global": (80, 60),
    "clip:norm=1.0": (80, 60),
    "top-k:share=0.01": (80, 60),
    "sign": (80, 70),
    "sign:scaled=False": (80, 70),
    "quantise:bits=4": (80, 70),
    "transforms:policy=3-1-7": (80, 75),
    "transforms:policy=3-1-7+43-18-18": (80, 75),
    "dp-sgd": (80, 75),
    "fed-cdp": (80, 75),
    "dp-fedavg": (80, 75),
    "soteria": (80, 65),
    "precode:width=16": (80, 75),
    "key-lock": (80, 75),
    "key-lock:activation=relu": (80, 75),
    # Nothing can be read of it, so that no margin is asked for.
    "sealed": (80, 75),
}


def once_by_name(specs):
    """All specs; what is not the first of its defence takes its turn with the slow tests."""
    first = {parse_spec(spec)[0]: spec for spec in reversed(specs)}
    return [spec if spec in first.values() else pytest.param(spec, marks=pytest.mark.slow) for spec in specs]


@pytest.mark.parametrize("spec", DEFENDED)
def test_every_defence_keeps_the_contract(spec):
    check_defended(spec, smallest_problem)


@pytest.mark.parametrize("spec", once_by_name(list(DEFENDED)))
def test_every_defence_keeps_the_contract_behind_convolutions(spec):
    check_defended(spec, convolutional_problem)


def check_defended(spec, problem):
    margin = DEFENDED[spec][problem is convolutional_problem]
    _check_or_skip(defence_from_spec(spec), problem=kept(problem), margin_db=margin)


@cache
def kept(problem):
    """The same problem for all defences: none of them may change it, and what it leaks undefended is found once."""
    return problem()


def _check_or_skip(defence, **options):
    try:
        check_defence(defence, **options)
    except MissingExtraError as missing:
        pytest.skip(f"{defence.name} needs a package that is not on this machine: {missing}")


@pytest.mark.parametrize("name", DEFENCES)
def test_every_registered_defence_has_a_margin_and_lowers_by_default(name):
    assert any(parse_spec(spec)[0] == name for spec in DEFENDED)
    _check_or_skip(get_defence(name), problem=kept(smallest_problem))


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_keeps_the_contract(metric, monkeypatch):
    if data_root() is not None:
        monkeypatch.setenv("LEAKSCOPE_DATA", str(data_root()))
    try:
        check_metric(metric)
    except (MissingExtraError, MissingDataError) as missing:
        pytest.skip(f"{metric.name} needs weights that are not on this machine: {missing}")


@dataclass(frozen=True)
class Guess(FCInversion):
    """Returns noise from its seed, with the loss of that noise."""

    name: str = "guess"

    def _reconstruct(self, seen, seed, watch):
        inputs = uniform((1, *seen.input_shape), generator(seed), like=torch.empty(0, dtype=seen.dtype))
        found = Reconstruction(inputs, seen.targets, 0.0, Status.OK, (1.0,))
        loss = self.evaluate(seen, found)
        return replace(found, loss=loss, history=(loss,))


@dataclass(frozen=True)
class OthersLoss(FCInversion):
    """Stores the loss of an earlier iterate."""

    name: str = "others-loss"

    def _reconstruct(self, seen, seed, watch):
        return replace(super()._reconstruct(seen, seed, watch), loss=0.123)


@dataclass(frozen=True)
class Trains(FCInversion):
    """Changes the model it was shown."""

    name: str = "trains"

    def _reconstruct(self, seen, seed, watch):
        with torch.no_grad():
            next(seen.model.parameters()).add_(1e-3)
        return super()._reconstruct(seen, seed, watch)


@dataclass(frozen=True)
class Unseeded(FCInversion):
    """Draws numbers that do not come from the seed."""

    name: str = "unseeded"

    def _reconstruct(self, seen, seed, watch):
        found = super()._reconstruct(seen, seed, watch)
        fresh = torch.Generator()
        fresh.seed()
        inputs = found.inputs + 1e-3 * torch.rand(found.inputs.shape, generator=fresh)
        return replace(found, inputs=inputs, loss=self.evaluate(seen, replace(found, inputs=inputs)))


@dataclass(frozen=True)
class GloballyRandom(FCInversion):
    """Uses up numbers of the global generator."""

    name: str = "globally-random"

    def _reconstruct(self, seen, seed, watch):
        torch.rand(1)
        return super()._reconstruct(seen, seed, watch)


@dataclass(frozen=True)
class LeavesHook(FCInversion):
    """Forgets a hook on the model."""

    name: str = "leaves-hook"

    def _reconstruct(self, seen, seed, watch):
        seen.model.register_forward_hook(lambda *_: None)
        return super()._reconstruct(seen, seed, watch)


@dataclass(frozen=True)
class Fails(FCInversion):
    """Finds the image and says that it diverged."""

    name: str = "fails"

    def _reconstruct(self, seen, seed, watch):
        return replace(super()._reconstruct(seen, seed, watch), status=Status.DIVERGED)


@dataclass(frozen=True)
class Wrong(FCInversion):
    """Returns another dtype than it was shown."""

    name: str = "wrong-dtype"

    def _reconstruct(self, seen, seed, watch):
        found = super()._reconstruct(seen, seed, watch)
        return replace(found, inputs=found.inputs.half())


@dataclass(frozen=True)
class Greedy(FCInversion):
    """Says it needs the labels and runs without them."""

    name: str = "greedy"
    needs: frozenset = quick("adam-l2").needs

    def needs_of(self, seen):
        return frozenset()


@dataclass(frozen=True)
class Stubborn(FCInversion):
    """Has steps that cannot be made fewer."""

    name: str = "stubborn"

    @property
    def effort(self):
        return Effort(steps=10, evaluations=10)


@dataclass(frozen=True)
class Forgetful(FCInversion):
    """Forgets its restarts when it is made shorter."""

    steps: int = 10
    restarts: int = 3
    name: str = "forgetful"

    @property
    def effort(self):
        return Effort(steps=self.steps, restarts=self.restarts, evaluations=self.steps)

    def with_effort(self, effort):
        return replace(self, steps=effort.steps, restarts=effort.restarts or 1)


@dataclass(frozen=True)
class Swaps(FCInversion):
    """Becomes another attack when it learns of noise."""

    name: str = "swaps"

    def revised(self, change) -> Any:
        return idlg() if change(idlg().recipe).noise else self


@dataclass(frozen=True)
class Shifty(FCInversion):
    """Is changed by a revision that changes nothing."""

    turns: int = 0
    name: str = "shifty"

    def revised(self, change):
        return replace(self, turns=self.turns + 1)


@dataclass(frozen=True)
class KeepsFunction(FCInversion):
    """Keeps the change itself, which no other process can be sent."""

    change: object = None
    name: str = "keeps-function"

    def revised(self, change):
        return self if change(idlg().recipe) == idlg().recipe else replace(self, change=change)


@pytest.mark.parametrize(
    ("attack", "complaint"),
    [
        (Stubborn(), "does not shorten it"),
        (Forgetful(), "changes restarts that were not given"),
        (Swaps(), "knowing a defence makes another attack of it"),
        (KeepsFunction(), "keeps-function, revised: does not survive the way to a worker process"),
        (Shifty(), "an unchanged recipe makes another attack"),
        (Guess(), "dB above the blind guess"),
        (OthersLoss(), "stores loss 0.123, but its iterate has"),
        (Trains(), "model .* was modified"),
        (Unseeded(), "the same seed gave different inputs"),
        (GloballyRandom(), "the global random state was used"),
        (LeavesHook(), "a hook or a mode"),
        (Fails(), "ended diverged on its own problem"),
        (Wrong(), "came back as torch.float16"),
        (Greedy(), "ran although the scenario does not grant"),
        (FCInversion(paper=""), "needs its paper"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_broken_attack_fails_the_contract(attack, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_attack(attack)


class NextLabel(Inferred):
    """Reads the labels, and takes the class after each."""

    def resolve(self, seen, count):
        labels = super().resolve(seen, count)
        assert labels is not None
        return (labels + 1) % seen.num_classes


class Opposite(Cosine):
    """Pulls towards the opposite direction: the wrong sign."""

    def value(self, found, target):
        return super().value(found, {name: -value for name, value in target.items()})

    def value_and_cotangent(self, found, target):
        return super().value_and_cotangent(found, {name: -value for name, value in target.items()})


@dataclass(frozen=True)
class Climbs(Adam):
    """Goes up."""

    def states(self, evaluate, start, *, steps, project):
        return replace(Adam(lr=-self.lr, signed=self.signed, schedule=self.schedule)).states(
            evaluate, start, steps=steps, project=project
        )


@pytest.mark.parametrize(
    "wrong",
    [
        {"labels": NextLabel()},
        {"distance": Opposite()},
        {"optimiser": Climbs(lr=0.4, signed=True, schedule=linear)},
        {"only": ("2.bias",)},
        {"penalties": (TotalVariation(50.0, relative=True),)},
    ],
    ids=["the next label", "the opposite direction", "up instead of down", "one tensor", "nothing but smoothness"],
)
def test_a_wrong_attack_fails_the_contract_behind_convolutions(wrong):
    problem = convolutional_problem()
    right = quick("inverting-gradients")
    check_attack(right, problem=problem, scenario="C", margin_db=BEHIND_CONVOLUTIONS["inverting-gradients"])
    with pytest.raises(AssertionError):
        check_attack(
            right.revised(lambda recipe: replace(recipe, **wrong)),
            problem=problem,
            scenario="C",
            margin_db=BEHIND_CONVOLUTIONS["inverting-gradients"],
        )


def test_a_plug_in_that_is_no_attack_is_named():
    with pytest.raises(AssertionError, match=r"is not a leakscope\.attack\.Attack"):
        check_attack("fc-inversion")


@dataclass(frozen=True)
class Nothing(Defence):
    """Defends nothing."""

    name: str = "nothing"
    paper: str = "none"

    def adapt(self, attack):
        return attack


@dataclass(frozen=True)
class Drawing(Nothing):
    """Noise that does not come from the seed."""

    name: str = "drawing"

    def hooks(self):
        def noisy(update, rng):
            fresh = torch.Generator()
            fresh.seed()
            return replace(
                update, tensors={k: v + torch.randn(v.shape, generator=fresh) for k, v in update.tensors.items()}
            )

        return ClientHooks(update=noisy)


@dataclass(frozen=True)
class Renaming(Nothing):
    """Shares under names the model does not have."""

    name: str = "renaming"

    def hooks(self):
        def renamed(update, rng):
            return replace(update, tensors={f"x.{k}": v for k, v in update.tensors.items()})

        return ClientHooks(update=renamed)


@dataclass(frozen=True)
class Spoiling(Nothing):
    """Zeroes the private batch."""

    name: str = "spoiling"

    def hooks(self):
        def spoiled(gradients, context):
            context.batch.inputs.zero_()
            return gradients

        return ClientHooks(gradient=spoiled)


@dataclass(frozen=True)
class Unannounced(Nothing):
    """Trains another network than it says."""

    name: str = "unannounced"

    def harden(self, model, *, seed=0):
        other = copy.deepcopy(model)
        return Hardened(other, other)


@pytest.mark.parametrize(
    ("defence", "complaint"),
    [
        (Unannounced(), "changes_network must be True"),
        (Nothing(), "the unaware attacker still gets"),
        (Drawing(), "the same seed gave different updates"),
        (Renaming(), "shares tensors that the model does not have"),
        (Spoiling(), "batch inputs was modified"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_broken_defence_fails_the_contract(defence, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_defence(defence)


def _metric(function):
    return Metric("broken", function, higher_is_better=False, unit="", reference="none", nothing=1.0)


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        (lambda a, b: mse(a, b) * torch.arange(1, len(a) + 1), "depends on the order"),
        (lambda a, b: mse(a, b).mean(), "one value per example"),
        (lambda a, b: -mse(a, b), "identical images are not better"),
        (lambda a, b: torch.zeros(len(a)), "identical images are not better"),
        (lambda a, b: (mse(a, b) > 0).float(), "nearly identical images"),
    ],
    ids=["order", "mean", "wrong way", "constant", "all or nothing"],
)
def test_a_broken_metric_fails_the_contract(function, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_metric(_metric(function))
