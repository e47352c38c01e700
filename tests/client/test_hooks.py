"""Where a defence acts in the client's step, what stays private, and what was really trained on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from leakscope.client import ClientStep, client_generator, example_gradients, harden, run_client, share
from leakscope.defence import ClientHooks, Defence, Hardened
from leakscope.defences.chain import chain
from leakscope.defences.clip import clip
from leakscope.defences.noise import gaussian_noise
from leakscope.errors import BadInputError, UnsuitableError
from leakscope.rng import generator, normal_like
from leakscope.steps.gradient import leaves, on_scores
from leakscope.types import Batch, LocalTraining, SharedUpdate, Tensors
from tiny import batch_of, convolutional, dense, flat, shared

CROSS_ENTROPY = on_scores(functional.cross_entropy)


@dataclass(frozen=True)
class Hooked(Defence):
    """Whatever hooks it is given."""

    given: ClientHooks = field(default_factory=ClientHooks)
    name: str = "hooked"
    paper: str = "none"

    def hooks(self):
        return self.given

    def adapt(self, attack):
        return attack


def hooked(**hooks) -> Hooked:
    return Hooked(ClientHooks(**hooks))


def test_the_hooks_of_a_step_run_in_order_and_the_update_comes_last():
    calls = []

    def batch_hook(batch, rng):
        calls.append("batch")
        return batch

    def gradients_hook(name):
        def hook(gradients, context):
            calls.append((name, context.step, len(context.batch)))
            return gradients

        return hook

    def update_hook(update, rng):
        calls.append("update")
        return update

    defence = hooked(
        batch=batch_hook,
        example_gradients=gradients_hook("examples"),
        gradient=gradients_hook("mean"),
        update=update_hook,
    )
    run_client(dense(), batch_of([1, 0, 3]), defence=defence, local=LocalTraining(0.1, steps=2, batch_size=2))
    per_step = [["batch", ("examples", step, 2), ("mean", step, 2)] for step in (0, 1)]
    assert calls == [*per_step[0], *per_step[1], "update"]


NETWORKS = {
    "dense": lambda: dense(),
    "convolutions": lambda: convolutional(),
    "batch norm, stored statistics": lambda: convolutional(norm=True).eval(),
    "not vectorisable": lambda: nn.Sequential(nn.Flatten(), Branching(), nn.Linear(36, 4)).double(),
}


class Branching(nn.Module):
    """Looks at values, which no vectorised pass can."""

    def forward(self, inputs):
        return inputs if float(inputs.sum()) > 0 else -inputs


@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
def test_gradients_of_examples_are_those_of_batches_of_one(make):
    model, batch = make(), batch_of([1, 0, 3])
    found = example_gradients(model, leaves(model), batch, loss=CROSS_ENTROPY)
    for row in range(3):
        alone = shared(model, Batch(batch.inputs[row : row + 1], batch.targets[row : row + 1]))
        for name, value in alone.tensors.items():
            torch.testing.assert_close(found[name][row], value, rtol=1e-10, atol=1e-13)


def test_the_mean_of_the_examples_gradients_is_the_gradient():
    model, batch = dense(), batch_of([1, 0, 3])
    plain, through = shared(model, batch), shared(model, batch, defence=hooked(example_gradients=lambda g, _: g))
    for name, value in plain.tensors.items():
        torch.testing.assert_close(through.tensors[name], value, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("kind", ["training mode", "no stored statistics"])
def test_examples_that_normalise_each_other_have_no_gradients_of_their_own(kind):
    model = convolutional(norm=True).train(kind == "training mode")
    if kind == "no stored statistics":
        model[1] = nn.BatchNorm2d(3, track_running_stats=False).double().eval()
    with pytest.raises(UnsuitableError, match="batch normalisation '1' uses statistics of the whole batch"):
        share(model, batch_of([1, 0, 3]), defence=hooked(example_gradients=lambda g, _: g))


def test_a_gradient_hook_acts_before_the_optimiser_and_an_update_hook_after():
    model, batch, local = dense(), batch_of([1, 0]), LocalTraining(0.1, steps=3, batch_size=2, momentum=0.9)
    plain = shared(model, batch, local=local)
    doubled = hooked(update=lambda update, rng: replace(update, tensors={k: 2 * v for k, v in update.tensors.items()}))
    torch.testing.assert_close(
        flat(shared(model, batch, local=local, defence=doubled).tensors), 2 * flat(plain.tensors)
    )
    stopped = hooked(gradient=lambda grads, context: {k: v * (context.step == 0) for k, v in grads.items()})
    first = shared(model, batch, local=LocalTraining(0.1, steps=1, batch_size=2))
    # One gradient and then none: momentum carries 1 + 0.9 + 0.81 times the first step.
    found = shared(model, batch, local=local, defence=stopped)
    torch.testing.assert_close(flat(found.tensors), 2.71 * flat(first.tensors))


def mirrored(batch: Batch, rng) -> Batch:
    return Batch(batch.inputs.flip(-1), batch.targets, batch.bounds)


def test_what_was_trained_on_is_told_apart_from_the_private_batch():
    model, batch = dense(), batch_of([1, 0, 3])
    run = run_client(model, batch, defence=hooked(batch=mirrored))
    assert isinstance(run.update, SharedUpdate)
    assert len(run.trained) == 1
    assert torch.equal(run.trained[0].inputs, batch.inputs.flip(-1))
    assert torch.equal(run.trained[0].targets, batch.targets)
    plain = shared(model, Batch(batch.inputs.flip(-1), batch.targets))
    assert torch.equal(flat(run.update.tensors), flat(plain.tensors))
    assert run_client(model, batch).trained == ()
    assert run_client(model, batch, defence=hooked(batch=lambda batch, rng: batch)).trained == ()


def test_passes_are_aligned_with_the_private_batch_whatever_the_order():
    batch, seen = batch_of([1, 0, 3, 2, 1]), []

    def noisy(part, rng):
        changed = Batch(part.inputs + normal_like(part.inputs, rng), part.targets, None)
        seen.append(changed.inputs.clone())
        return changed

    local = LocalTraining(0.1, steps=4, batch_size=2, shuffle=True)
    run = run_client(dense(), batch, defence=hooked(batch=noisy), local=local)
    assert [len(step) for step in run.order] == [2, 2, 1, 2]
    assert len(run.trained) == 2
    for step in range(3):
        assert torch.equal(run.trained[0].inputs[list(run.order[step])], seen[step])
    assert torch.equal(run.trained[1].inputs[list(run.order[3])], seen[3])
    # The second pass stopped before it reached the others.
    missed = [place for place in range(5) if place not in run.order[3]]
    assert torch.equal(run.trained[1].inputs[missed], batch.inputs[missed])


def test_a_batch_hook_cannot_change_the_callers_examples_nor_their_number():
    batch = batch_of([1, 0, 3])
    before = batch.inputs.clone()

    def in_place(part, rng):
        part.inputs.mul_(0.5)
        return part

    assert len(run_client(dense(), batch, defence=hooked(batch=in_place)).trained) == 1
    assert torch.equal(batch.inputs, before)
    with pytest.raises(UnsuitableError, match=r"keep number, shape and dtype.*expected \[3, 1, 6, 6\].*got \[1,"):
        share(dense(), batch, defence=hooked(batch=lambda part, rng: Batch(part.inputs[:1], part.targets[:1])))


class Remembering(nn.Module):
    """Keeps what it saw, as a buffer, as an attribute and behind a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(36, 4).double()
        self.register_buffer("seen", torch.zeros(1, 36, dtype=torch.float64))
        self.last: torch.Tensor | None = None
        self.output: torch.Tensor | None = None

    def forward(self, inputs):
        self.last = inputs.flatten(1)
        self.seen = self.last[:1].detach().clone()
        self.output = self.linear(self.last)
        return self.output


@pytest.mark.parametrize("local", [None, LocalTraining(0.1, steps=2)], ids=["gradient", "local steps"])
def test_the_private_batch_cannot_be_read_off_the_callers_model(local):
    model, batch = Remembering(), batch_of([1, 0])
    share(model, batch, local=local)
    assert model.last is None
    assert model.output is None
    assert float(model.seen.abs().sum()) == 0.0
    # What it remembers of the caller's own pass is the caller's, and no obstacle.
    model(torch.ones(1, 1, 6, 6, dtype=torch.float64))
    share(model, batch, local=local)
    assert torch.equal(model.last, torch.ones(1, 36, dtype=torch.float64))


def test_a_model_that_cannot_be_copied_is_refused():
    model = dense()
    model.kept = [torch.ones(2, requires_grad=True) * 2]
    with pytest.raises(BadInputError, match="cannot be copied"):
        share(model, batch_of([1]))


def test_noise_follows_from_the_seed_and_the_batch_together():
    model, noise = dense(), gaussian_noise(1.0)

    def drawn(batch, seed):
        return flat(shared(model, batch, defence=noise, seed=seed).tensors) - flat(shared(model, batch).tensors)

    one, other = batch_of([1, 0]), batch_of([1, 0], seed=1)
    assert torch.equal(drawn(one, 3), drawn(one, 3))
    assert not torch.allclose(drawn(one, 3), drawn(other, 3))
    assert not torch.allclose(drawn(one, 3), drawn(one, 4))
    # Equal inputs with other labels are another batch too.
    assert not torch.allclose(drawn(one, 3), drawn(Batch(one.inputs, one.targets.flip(0)), 3))


def test_the_clients_generator_depends_on_values_and_not_on_their_layout():
    batch = batch_of([1, 0])
    turned = Batch(batch.inputs.transpose(2, 3).contiguous().transpose(2, 3), batch.targets)
    assert not turned.inputs.is_contiguous()
    first, second = (torch.rand(3, generator=client_generator(0, one)) for one in (batch, turned))
    assert torch.equal(first, second)
    assert client_generator(0, batch.to(torch.bfloat16)).initial_seed() != client_generator(0, batch).initial_seed()


class TwoHeads(nn.Module):
    """Returns more than scores, and holds a key that stays with the client."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.key = nn.Parameter(torch.ones(4, dtype=torch.float64))
        self.register_buffer("secret", torch.ones(2, dtype=torch.float64))

    def forward(self, inputs):
        scores = self.inner(inputs) * self.key
        return scores, self.key.square().sum()


def raw_loss(output, targets):
    scores, penalty = output
    return functional.cross_entropy(scores, targets) + 0.1 * penalty


@dataclass(frozen=True)
class Keyed(Defence):
    """A key layer that the client keeps, and a loss that takes what the network returns as it is."""

    name: str = "keyed"
    paper: str = "none"
    changes_network: bool = True

    def harden(self, model, *, seed=0):
        return Hardened(TwoHeads(model), model, raw_loss, frozenset({"key", "secret"}))

    def hooks(self):
        def leak(update, rng):
            secret = torch.ones(2, dtype=torch.float64)
            return replace(
                update, tensors={**update.tensors, "key": secret}, buffers={"secret": secret, "open": secret}
            )

        return ClientHooks(update=leak)

    def adapt(self, attack):
        return attack


def test_a_hardened_network_trains_with_its_own_loss_and_keeps_what_is_private():
    batch = batch_of([1, 0])
    network = harden(dense(), Keyed(), seed=1)
    update = shared(network, batch, loss=lambda output, targets: 1 / 0)
    reference = TwoHeads(dense())
    raw_loss(reference(batch.inputs), batch.targets).backward()
    assert set(update.tensors) == {f"inner.{name}" for name, _ in dense().named_parameters()}
    for name, value in update.tensors.items():
        torch.testing.assert_close(value, reference.get_parameter(name).grad)
    defended = shared(network, batch, defence=Keyed())
    assert "key" not in defended.tensors
    assert list(defended.buffers) == ["open"]


def test_private_weights_train_along_with_the_others():
    batch, local = batch_of([1, 0]), LocalTraining(0.5, steps=3, batch_size=2)
    found = shared(harden(dense(), Keyed()), batch, local=local)
    frozen = TwoHeads(dense())
    frozen.key.requires_grad_(False)
    kept = shared(Hardened(frozen, dense(), raw_loss), batch, local=local)
    assert found.tensors.keys() == kept.tensors.keys()
    assert not torch.allclose(flat(found.tensors), flat(kept.tensors))


def test_no_defence_hardens_to_the_model_on_both_sides():
    model = dense()
    assert harden(model, None) == Hardened(model, model)
    assert torch.equal(
        flat(shared(harden(model, None), batch_of([1])).tensors), flat(shared(model, batch_of([1])).tensors)
    )


def test_a_step_runs_on_a_network_of_its_own():
    run = ClientStep(CROSS_ENTROPY).run(dense(), batch_of([2]), generator(0))
    assert isinstance(run.update, SharedUpdate)
    assert run.order == ((0,),)
    assert torch.equal(run.update.tensors["1.bias"], shared(dense(), batch_of([2])).tensors["1.bias"])


def test_what_a_client_holds_back_comes_with_its_next_round_and_parts_of_a_chain_remember_by_themselves() -> None:
    def hold_half(
        update: SharedUpdate, held_back: Tensors, rng: torch.Generator
    ) -> tuple[SharedUpdate, dict[str, torch.Tensor]]:
        whole = {name: value + held_back.get(name, torch.zeros_like(value)) for name, value in update.tensors.items()}
        sent = {name: value / 2 for name, value in whole.items()}
        return replace(update, tensors=sent), sent

    half = hooked(feedback=hold_half)
    model, batch = dense(), batch_of([1, 2])
    plain = shared(model, batch).tensors
    for defence, first, second in ((half, 0.5, 0.75), (chain(half, clip(1e9), half), 0.25, 0.5)):
        step, held = ClientStep.of(Hardened(model, model), defence=defence), None
        for portion in (first, second):
            run = step.run(model, batch, generator(0), held_back=held)
            held = run.held_back
            assert isinstance(run.update, SharedUpdate)
            for name, value in run.update.tensors.items():
                torch.testing.assert_close(value, portion * plain[name])
