"""Forward passes that draw random numbers: found, named, and never left to the global generator."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from leakscope import audit
from leakscope.attacks.idlg import idlg
from leakscope.errors import UnsuitableError
from leakscope.networks import freeze, settle
from leakscope.observation.observe import observe
from leakscope.registry import get_attack
from tiny import batch_of, shared

SHAPE = (1, 6, 6)


class Drops(nn.Module):
    """Calls dropout as a function: there is no layer to find."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(36, 24), nn.BatchNorm1d(24), nn.Linear(24, 4)

    def forward(self, images):
        return self.last(functional.dropout(self.norm(self.first(images.flatten(1))).sigmoid(), 0.3, self.training))


class Hidden(Drops):
    """Its last layer is zero: the mask shows in the gradient only, not in the output."""

    def __init__(self) -> None:
        super().__init__()
        nn.init.zeros_(self.last.weight)


class Noisy(nn.Module):
    """Draws in every mode, as a variational layer does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(36, 24), nn.Linear(24, 4)

    def forward(self, images):
        features = self.first(images.flatten(1)).sigmoid()
        return self.last(features + 0.01 * torch.randn_like(features))


class Private(Noisy):
    """Draws from a generator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = torch.Generator()

    def forward(self, images):
        features = self.first(images.flatten(1)).sigmoid()
        return self.last(features + 0.01 * torch.randn(features.shape, generator=self.rng).to(features))


class Counting(Noisy):
    """Remembers its last answer."""

    last_answer = 0.0

    def forward(self, images):
        output = self.last(self.first(images.flatten(1)).sigmoid()) + self.last_answer
        self.last_answer = float(output.detach().mean())
        return output


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.MultiheadAttention(6, 2, dropout=0.2, batch_first=True), nn.Linear(36, 4)

    def forward(self, images):
        rows = images.squeeze(1)
        return self.last(self.inner(rows, rows, rows)[0].flatten(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells, self.last = nn.LSTM(6, 8, num_layers=2, dropout=0.2, batch_first=True), nn.Linear(48, 4)

    def forward(self, images):
        return self.last(self.cells(images.squeeze(1))[0].flatten(1))


def layered() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 24), nn.Sigmoid(), nn.Dropout(0.3), nn.Linear(24, 4))


@pytest.mark.parametrize("make", [Drops, Hidden, Attention, Recurrent])
def test_dropout_that_is_no_layer_is_found_and_switched_off(make):
    model, batch = make().double().train(), batch_of([1, 2, 0])
    state = torch.random.get_rng_state()
    seen = observe(model, shared(model, batch), truth=batch)
    (note,) = seen.notes
    assert "drew random numbers at the client" in note
    assert "not evidence of protection" in note
    assert torch.equal(seen.model(batch.inputs), seen.model(batch.inputs))
    assert all(module.training for module in model.modules())
    assert torch.equal(torch.random.get_rng_state(), state)


def test_batch_normalisation_keeps_its_mode_when_chance_is_switched_off():
    frozen, _notes = freeze(Drops().train())
    settled = settle(frozen, SHAPE)
    assert [name for name, module in settled.model.named_modules() if module.training] == ["norm"]
    assert frozen.training


@pytest.mark.parametrize("make", [Drops, Attention, Recurrent, layered])
def test_evaluation_mode_draws_nothing_and_needs_no_note(make):
    model, batch = make().double().eval(), batch_of([1, 2])
    seen = observe(model, shared(model, batch), truth=batch)
    assert seen.notes == ()


def test_dropout_of_probability_zero_needs_no_note():
    model, batch = layered().double().train(), batch_of([1])
    model[3].p = 0.0
    assert observe(model, shared(model, batch), truth=batch).notes == ()


def test_a_layer_with_an_unknown_mask_is_left_out_with_a_note():
    model, batch = layered().double().train(), batch_of([1])
    found = get_attack("inverting-gradients", steps=5).reconstruct(observe(model, shared(model, batch), truth=batch))
    assert "dropout '3' was active at the client" in found.notes[0]
    assert "not evidence of protection" in found.notes[0]


def test_chance_in_evaluation_mode_is_replayed_with_a_draw_of_the_attackers_own():
    model, batch = Noisy().double().eval(), batch_of([1])
    seen = observe(model, shared(model, batch), truth=batch)
    assert "even in evaluation mode" in seen.notes[0]
    state = torch.random.get_rng_state()
    attack = idlg(steps=3, retries=0)
    first, again = (attack.reconstruct(seen, seed=4) for _ in range(2))
    assert torch.equal(first.inputs, again.inputs)
    assert first.loss == again.loss == attack.evaluate(seen, first)
    assert first.notes[0] == seen.notes[0]
    assert torch.equal(torch.random.get_rng_state(), state)
    copied = copy.deepcopy(seen.model)
    assert torch.equal(copied(batch.inputs), seen.model(batch.inputs))
    assert list(copied.state_dict()) == list(model.state_dict())


def test_the_clients_own_draw_depends_on_its_seed_alone():
    model, batch = Noisy().double(), batch_of([1])
    first, again, other = (shared(model, batch, seed=seed).tensors["last.weight"] for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("make", [Private, Counting])
def test_a_forward_pass_that_cannot_be_repeated_is_refused(make):
    model, batch = make().double(), batch_of([1])
    update = shared(model, batch)
    with pytest.raises(UnsuitableError, match=r"differently each time.*no replay can match.*reset the state"):
        observe(model, update, truth=batch)


def test_an_audit_carries_the_note():
    model = Drops().double().train()
    attack = get_attack("inverting-gradients", steps=5)
    result = audit(model, [batch_of([1, 2]), batch_of([0, 3])], attack, scenario="B")
    assert sum("drew random numbers" in note for note in result.notes) == 1
