"""Wrong declarations are named, with a figure; right ones are not suspected."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import leakscope as ls
from leakscope.errors import UnsuitableError
from leakscope.explanation.signatures import shown_decay
from leakscope.models import Normalise, build
from leakscope.observation.making import looks_like_adam, peak
from leakscope.observation.observe import observe
from leakscope.registry import attack_from_spec, get_attack, get_defence
from leakscope.rng import generator
from leakscope.types import Batch, LocalTraining, Observation, Reconstruction, SharedUpdate, Status
from tiny import batch_of, seen_of, shared

SGD = LocalTraining(0.05, steps=3, batch_size=2)


def network(*, seed: int = 0, dropout: float = 0.0, norm: bool = False) -> nn.Sequential:
    """A small ReLU network with enough parameters for a distribution."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        middle: list[nn.Module] = [nn.BatchNorm2d(6)] if norm else []
        drop: list[nn.Module] = [nn.Dropout(dropout)] if dropout else []
        return nn.Sequential(
            *(nn.Conv2d(1, 6, 3, padding=1), *middle, nn.LeakyReLU(0.1), nn.Flatten()),
            *(nn.Linear(216, 32), nn.ReLU(), *drop, nn.Linear(32, 8)),
        ).double()


def declared(seen: Observation, local: LocalTraining | None) -> Observation:
    return replace(seen, local=local, update=replace(seen.update, local=local))


def at_truth(seen: Observation, batch: Batch) -> ls.Diagnosis:
    """The diagnosis for the best result there can be: what is named is then named for a reason."""
    found = ls.diagnose(seen, Reconstruction(batch.inputs, batch.targets, 0.0, Status.OK))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("true", "said", "words"),
    [
        (replace(SGD, momentum=0.9), SGD, "with momentum 0.9"),
        (replace(SGD, lr=0.01), replace(SGD, lr=0.3), "instead of 0.9"),
        (replace(SGD, steps=8), replace(SGD, steps=3), "instead of 0.15"),
        (replace(SGD, weight_decay=0.5), SGD, "with weight decay 0.49"),
        (replace(SGD, optimiser="adam", lr=0.001), SGD, "declare optimiser='adam'"),
        (replace(SGD, optimiser="adamw", lr=0.001, steps=8), SGD, "declare optimiser='adam'"),
    ],
)
def test_another_training_is_named(true: LocalTraining, said: LocalTraining, words: str):
    model, batch = network(), batch_of([1, 2])
    seen = declared(seen_of(model, batch, scenario="C", local=true), said)
    found = at_truth(seen, batch)
    assert found.found is not None
    assert words in found.line
    assert found.line.startswith("explained ")
    assert "noise" not in found.line
    assert at_truth(declared(seen, true), batch).line == ""


_LIST = ("noise", "pruning", "quantisation", "another loss")


@pytest.mark.parametrize("name", ["inverting-gradients:steps=100", "idlg:steps=10,retries=0", "fc-inversion"])
@pytest.mark.parametrize(
    ("true", "count", "cause"),
    [
        (replace(SGD, optimiser="adam", lr=0.001), 1, "Adam"),
        (replace(SGD, optimiser="adam", lr=0.001), 2, "Adam"),
        (replace(SGD, optimiser="adamw", lr=0.001, steps=8), 2, "Adam"),
        (replace(SGD, weight_decay=0.5), 2, "weight decay"),
    ],
)
def test_no_note_of_any_attack_guesses_where_the_cause_shows(name: str, true: LocalTraining, count: int, cause: str):
    model, batch = network(), batch_of([1, 2][:count])
    update = shared(model, batch, local=true)
    for said in (SGD, None):
        seen = observe(model, replace(update, local=said), scenario="C", truth=batch)
        assert any(cause in note for note in seen.notes), seen.notes
        try:
            found = attack_from_spec(name).reconstruct(seen)
        except UnsuitableError:
            continue
        assert found.status is not Status.OK
        assert any(cause in note for note in found.notes)
        guesses = [note for note in found.notes if any(word in note for word in _LIST)]
        assert not guesses


def test_what_pruning_leaves_is_not_taken_for_adam():
    model, batch = build("lenet-dlg", image_size=32), batch_of([1, 2], shape=(3, 32, 32), dtype=torch.float32)
    pruned = ls.share(model, batch, defence=get_defence("prune", fraction=0.9), seed=0)
    notes = observe(model, pruned, scenario="C", truth=batch).notes
    assert not any("Adam" in note for note in notes)


@pytest.mark.parametrize(("true", "said"), [(0.01, 0.3), (0.1, 0.01)])
def test_the_figure_of_a_wrong_rate_is_the_right_one(true: float, said: float):
    model, batch = network(), batch_of([1, 2])
    seen = declared(seen_of(model, batch, scenario="C", local=replace(SGD, lr=true)), replace(SGD, lr=said))
    found = at_truth(seen, batch).found
    assert found is not None
    assert float(found.name.split("steps ")[1].split()[0]) == pytest.approx(3 * true, rel=0.15)
    assert found.explained is not None
    assert found.explained > 0.9


def test_a_sum_is_named():
    model, batch = network(), batch_of([1, 2, 3])
    mean = shared(model, batch)
    summed = SharedUpdate("gradient", {k: 3 * v for k, v in mean.tensors.items()}, num_examples=3)
    found = at_truth(observe(model, summed, scenario="C", truth=batch), batch)
    assert "as a sum over 3 examples" in found.line
    assert found.declared == pytest.approx(1 - 4 / 9)


def test_dropout_is_named():
    batch = batch_of([1])
    update = shared(network(dropout=0.7).train(), batch)
    seen = observe(network(dropout=0.7).eval(), update, scenario="C", truth=batch)
    assert "dropout was active" in at_truth(seen, batch).line
    quiet = observe(network().eval(), shared(network().eval(), batch), scenario="C", truth=batch)
    assert at_truth(quiet, batch).line == ""


def wide(*, dropout: float = 0.5, seed: int = 0) -> nn.Sequential:
    """Enough inputs behind the dropout to count those that got no gradient."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            *(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.Flatten()),
            *(nn.Linear(216, 128), nn.ReLU(), nn.Dropout(dropout), nn.Linear(128, 8)),
        ).double()


def test_dropout_is_mostly_named_behind_two_examples_and_never_without_it():
    named = 0
    for seed in range(4):
        batch = batch_of([1, 2], seed=seed)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            dropped = shared(wide(seed=seed).train(), batch)
        found = at_truth(observe(wide(seed=seed).eval(), dropped, scenario="C", truth=batch), batch)
        # Where chance leaves too little to count, dropout is what remains to be checked.
        assert "dropout was" in found.line
        named += found.found is not None and "dropout was active" in found.line
        right = shared(wide(seed=seed).eval(), batch)
        assert at_truth(observe(wide(seed=seed).eval(), right, scenario="C", truth=batch), batch).line == ""
        other = observe(wide(seed=seed + 100).eval(), right, scenario="C", truth=batch)
        assert "dropout was active" not in at_truth(other, batch).line
    assert named >= 3


def test_dropout_that_cannot_be_seen_is_not_claimed_and_not_ruled_out():
    batch = batch_of([1, 2, 3, 4, 5])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        update = shared(wide().train(), batch)
    found = at_truth(observe(wide().eval(), update, scenario="C", truth=batch), batch)
    assert found.found is None
    if found.line:
        assert "that dropout was off" in found.line


def normalised(inputs: torch.Tensor) -> torch.Tensor:
    return (inputs - 0.45) / 0.25


@pytest.mark.parametrize("count", [1, 2])
def test_normalisation_outside_the_network_is_named(count: int):
    """The client's pipeline normalises, the declared network does not: no picture in [0, 1] explains the update."""
    model, batch = network(), batch_of([1, 2][:count])
    update = shared(model, Batch(normalised(batch.inputs), batch.targets, bounds=(-2.0, 2.5)))
    found = get_attack("inverting-gradients", steps=150).reconstruct(observe(model, update, scenario="C", truth=batch))
    assert found.status is Status.UNEXPLAINED
    assert found.fit is not None
    assert "with inputs outside [0, 1]" in found.fit.diagnosis, found.fit
    assert "normalised outside the network" in found.fit.diagnosis
    # The right declaration: the same constants inside the network.
    inside = nn.Sequential(Normalise(mean=(0.45,), std=(0.25,)), model)
    seen = observe(inside.double(), shared(inside, batch), scenario="C", truth=batch)
    right = get_attack("inverting-gradients", steps=150).reconstruct(seen)
    assert right.status is Status.OK, right.notes


def test_a_reversed_sign_is_named_with_the_figure_of_another_run():
    model, batch = network(), batch_of([1])
    update = shared(model, batch)
    wrong = replace(update, tensors={name: -value for name, value in update.tensors.items()})
    found = get_attack("inverting-gradients", steps=100).reconstruct(observe(model, wrong, scenario="C", truth=batch))
    assert found.status is Status.UNEXPLAINED
    assert found.fit is not None
    assert "with its sign reversed" in found.fit.diagnosis
    assert found.fit.diagnosis in found.notes


def test_another_model_is_not_ok():
    model, batch = network(), batch_of([1, 2])
    seen = observe(network(seed=1), shared(model, batch), scenario="C", truth=batch)
    found = get_attack("inverting-gradients", steps=100).reconstruct(seen)
    assert found.status is Status.UNEXPLAINED
    assert "weights the client started from" in found.notes[-1]
    alone = observe(network(seed=1), shared(model, batch_of([1])), scenario="C", truth=batch_of([1]))
    assert "does not follow from the last layer's weights" in at_truth(alone, batch_of([1])).line


@pytest.mark.parametrize("trained", [True, False], ids=["train, declared eval", "eval, declared train"])
def test_the_mode_of_batch_normalisation_is_found_by_another_run(trained: bool):
    batch = batch_of([1, 2, 3])
    model = network(norm=True)
    with torch.no_grad():
        statistics = dict(model.named_buffers())
        statistics["1.running_mean"].fill_(0.5)
        statistics["1.running_var"].fill_(0.02)
    update = shared(model.train(trained), batch)
    declared_model = observe(model.train(not trained), shared(model, batch), scenario="B", truth=batch).model
    seen = replace(observe(model, update, scenario="B", truth=batch), model=declared_model)
    found = get_attack("inverting-gradients", steps=100).reconstruct(seen)
    assert found.status is Status.UNEXPLAINED
    assert found.fit is not None
    mode = "training" if trained else "evaluation"
    assert f"batch normalisation in {mode} mode" in found.fit.diagnosis, found.fit


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "local",
    [
        None,
        SGD,
        replace(SGD, momentum=0.9),
        replace(SGD, weight_decay=0.01),
        LocalTraining(0.01, epochs=2, batch_size=1, shuffle=True, momentum=0.9),
    ],
)
def test_right_declarations_are_not_suspected(seed: int, local: LocalTraining | None):
    model, batch = network(seed=seed), batch_of([1, 2], seed=seed)
    seen = seen_of(model, batch, scenario="C", local=local)
    found = get_attack("inverting-gradients", steps=150).reconstruct(seen)
    assert found.fit is not None
    assert found.fit.diagnosis == "", found.fit
    assert found.status is Status.OK, found.notes


def test_entries_of_adam_are_alike_and_those_of_gradients_and_noise_are_not():
    model, batch = network(), batch_of([1])
    adam = shared(model, batch, local=replace(SGD, optimiser="adam", batch_size=1))
    noise = {"w": torch.randn(10_000, generator=generator(0, "noise"), dtype=torch.float64)}
    assert peak(adam.tensors) < 2.5
    assert looks_like_adam(adam.tensors)
    assert not looks_like_adam(shared(model, batch).tensors)
    assert not looks_like_adam(noise)
    # A few entries that happen to be alike say nothing.
    assert not looks_like_adam({"w": torch.ones(50)})


def test_only_weight_decay_sums_to_the_weights():
    model, batch = network(), batch_of([1, 2])
    decay = shown_decay(seen_of(model, batch, scenario="C", local=replace(SGD, weight_decay=0.2)))
    assert decay is not None
    assert -decay.factor / 0.15 == pytest.approx(0.2, rel=0.05)
    assert shown_decay(seen_of(model, batch, scenario="C", local=SGD)) is None
    noisy = ls.share(model, batch, defence=get_defence("gaussian-noise", sigma=0.05), seed=0)
    assert shown_decay(observe(model, noisy, scenario="C", truth=batch)) is None


def test_without_targets_there_is_nothing_to_compare():
    seen = seen_of(network(), batch_of([1]))
    assert ls.diagnose(seen, Reconstruction(torch.zeros(1, 1, 6, 6).double(), None, 0.0, Status.OK)) is None
