"""Defences with a guarantee: noise is real, sensitivity bounded, and ε is for what the client does (P23, P24)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
import torch
from scipy import stats

from leakscope.attacks.fc_inversion import fc_inversion
from leakscope.attacks.idlg import idlg
from leakscope.attacks.inverting_gradients import inverting_gradients
from leakscope.catalogue import check_spec
from leakscope.defence import ClientHooks, Defence
from leakscope.defences.accounting import fixed_batch_epsilon, gaussian_epsilon
from leakscope.defences.chain import chain
from leakscope.defences.clip import clip
from leakscope.defences.dp_fedavg import dp_fedavg
from leakscope.defences.dp_sgd import dp_sgd
from leakscope.defences.fed_cdp import fed_cdp
from leakscope.defences.noise import gaussian_noise
from leakscope.defences.per_example import clip_examples
from leakscope.defences.privacy import count_passes, example_epsilon
from leakscope.defences.prune import prune
from leakscope.errors import UnsuitableError, UsageError
from leakscope.matching.distances import Cosine, Denoised, Shortened
from leakscope.metrics import score
from leakscope.observation.observe import observe
from leakscope.registry import defence_from_spec
from leakscope.rng import generator, normal
from leakscope.tensors import global_norm
from leakscope.testing import check_defence, convolutional_problem, smallest_problem
from leakscope.types import LocalTraining, SharedUpdate
from tiny import batch_of, convolutional, dense, flat, shared, step_of

ALL = {"dp-sgd": dp_sgd, "fed-cdp": fed_cdp, "dp-fedavg": dp_fedavg}
LIKE = torch.empty(0, dtype=torch.float64)


def sent_by(defence, update, seed=0):
    """What the hook on finished updates makes of one."""
    hook = defence.hooks().update
    assert hook is not None
    found = hook(update, generator(seed))
    assert isinstance(found, SharedUpdate)
    return found.tensors


def gradients_of(count, *, size=40, length=3.0, seed=0):
    values = normal((count, size), generator(seed), like=LIKE)
    return {"a": length * values / values.norm(dim=1, keepdim=True)}


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
@pytest.mark.parametrize("local", [None, LocalTraining(lr=0.1, steps=2, batch_size=2)], ids=["gradient", "delta"])
def test_no_bound_and_no_noise_is_the_identity(make, local):
    model, batch = dense(), batch_of([1, 2, 0])
    defence = make(norm=math.inf, noise_multiplier=0.0)
    plain, defended = shared(model, batch, local=local), shared(model, batch, local=local, defence=defence)
    torch.testing.assert_close(flat(defended.tensors), flat(plain.tensors), rtol=1e-10, atol=1e-13)
    assert defence.adapt(idlg()) == idlg()
    found = defence.guarantee(examples=10, batch_size=2, steps=5)
    assert (found.epsilon, set(found.reconstruction.values())) == (math.inf, {1.0})


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
@pytest.mark.parametrize("problem", [smallest_problem, convolutional_problem], ids=["dense", "convolutional"])
def test_the_contract_on_both_problems(make, problem):
    check_defence(make(), problem=problem())


@pytest.mark.parametrize("count", [1, 4, 9])
@pytest.mark.parametrize(
    ("defence", "deviation"),
    [
        (dp_sgd(0.5, 3.0), lambda n: 3.0 * 0.5 / n),
        (fed_cdp(0.5, 3.0), lambda n: 3.0 * 0.5 / math.sqrt(n)),
    ],
    ids=["dp-sgd", "fed-cdp"],
)
def test_the_noise_of_the_mean_has_its_law_and_its_deviation(defence, deviation, count):
    gradients = {"a": torch.zeros(count, 20_000, dtype=torch.float64), "b": torch.zeros(count, 100, 200).double()}
    found = step_of(defence, gradients, seed=3)
    law = stats.norm(scale=deviation(count))
    for value in found.values():
        assert stats.kstest(value.flatten().numpy(), law.cdf).pvalue > 0.01
        assert float(value.std()) == pytest.approx(deviation(count), rel=0.02)
    assert abs(float(torch.corrcoef(torch.stack([value.flatten() for value in found.values()]))[0, 1])) < 0.03
    again, other = step_of(defence, gradients, seed=3), step_of(defence, gradients, seed=4)
    assert torch.equal(again["a"], found["a"])
    assert not torch.equal(other["a"], found["a"])


def test_the_noise_of_an_update_has_its_law_and_its_deviation():
    update = SharedUpdate("delta", {"a": torch.zeros(40_000).double(), "b": torch.zeros(200, 100).double()})
    for value in sent_by(dp_fedavg(0.5, 3.0), update, 1).values():
        assert stats.kstest(value.flatten().numpy(), stats.norm(scale=1.5).cdf).pvalue > 0.01


def test_noise_is_added_in_every_local_step():
    model, batch, local = dense(), batch_of([0, 1, 2, 3]), LocalTraining(lr=0.1, steps=4, batch_size=2)
    quiet, loud = (shared(model, batch, local=local, defence=dp_sgd(1e-9, value)) for value in (0.0, 1e9))
    # Gradients are cut to nothing: what is left is the noise of four steps at the rate 0.1 over two examples.
    found = flat(loud.tensors) - flat(quiet.tensors)
    assert float(found.std()) == pytest.approx(0.1 * math.sqrt(4) * 1.0 / 2, rel=0.1)


def test_clipping_bounds_every_example_over_all_tensors_together():
    gradients = {"a": torch.tensor([[3.0], [0.3], [0.0]]), "b": torch.tensor([[[4.0]], [[0.4]], [[0.0]]])}
    found = clip_examples(gradients, 1.0)
    assert found["a"].flatten().tolist() == pytest.approx([0.6, 0.3, 0.0])
    assert found["b"].flatten().tolist() == pytest.approx([0.8, 0.4, 0.0])
    broken = {"a": torch.tensor([[math.nan, 1.0], [math.inf, 1.0], [0.1, 0.2]])}
    assert clip_examples(broken, 1.0)["a"].tolist() == [[0.0, 0.0], [0.0, 0.0], pytest.approx([0.1, 0.2])]


@pytest.mark.parametrize("make", [dp_sgd, fed_cdp], ids=["dp-sgd", "fed-cdp"])
def test_one_example_moves_the_sum_by_no_more_than_the_sensitivity(make):
    defence, worst = make(norm=0.7, noise_multiplier=0.0), gradients_of(5)
    opposite = {"a": worst["a"].clone()}
    opposite["a"][2] *= -10
    moved = 5 * (step_of(defence, worst)["a"] - step_of(defence, opposite)["a"])
    # Replaced by its opposite it moves the sum by all of twice the norm, which is what ε counts.
    assert float(moved.norm()) == pytest.approx(2 * 0.7)
    # Neighbours of different number: the sum, not the mean, is what one example moves by the norm.
    fewer = {"a": worst["a"][:4]}
    assert float((5 * step_of(defence, worst)["a"] - 4 * step_of(defence, fewer)["a"]).norm()) == pytest.approx(0.7)


def test_one_client_moves_its_update_by_no_more_than_twice_the_norm():
    defence = dp_fedavg(0.7, 0.0)
    one = SharedUpdate("gradient", {"a": torch.tensor([3.0, 4.0])})
    found = [sent_by(defence, replace(one, tensors={"a": sign * one.tensors["a"]}))["a"] for sign in (1, -9)]
    assert float((found[0] - found[1]).norm()) == pytest.approx(1.4)
    small = SharedUpdate("gradient", {"a": torch.tensor([0.1, 0.2])})
    assert torch.equal(sent_by(defence, small)["a"], small.tensors["a"])
    broken = SharedUpdate("gradient", {"a": torch.tensor([math.nan, 0.2])})
    assert sent_by(defence, broken)["a"].tolist() == [0.0, 0.0]
    with pytest.raises(UnsuitableError, match="cannot bound the buffers of an update, got mean"):
        sent_by(defence, replace(one, buffers={"mean": torch.zeros(1)}))


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_batch_normalisation_in_training_is_refused_with_the_remedy(make):
    with pytest.raises(UnsuitableError, match="use group normalisation"):
        shared(convolutional(norm=True).train(), batch_of([1, 0, 3]), defence=make())
    shared(convolutional(norm=True).eval(), batch_of([1, 0, 3]), defence=make())


def test_fed_cdps_bound_and_noise_decay_over_local_steps():
    defence = fed_cdp(6.0, 1.0, final_norm=2.0, decay_steps=4)
    assert [defence.bound(step) for step in (0, 1, 2, 4, 9)] == [6.0, 5.0, 4.0, 2.0, 2.0]
    silent = {"a": torch.zeros(1, 20_000, dtype=torch.float64)}
    assert float(step_of(defence, silent, step=2)["a"].std()) == pytest.approx(4.0, rel=0.02)
    loud = fed_cdp(6.0, 0.0, final_norm=2.0, decay_steps=4)
    assert float(step_of(loud, gradients_of(1, length=9.0), step=4)["a"].norm()) == pytest.approx(2.0)
    for wrong in ({"final_norm": 7.0}, {"final_norm": 0.0}, {"final_norm": 1.0, "decay_steps": 0}):
        with pytest.raises(UsageError, match="0 < final_norm ≤ norm and decay_steps ≥ 1"):
            fed_cdp(6.0, 1.0, **wrong)


def test_epsilon_is_for_one_example_replaced_in_batches_of_fixed_size():
    found = dp_sgd(0.3, 3.0).guarantee(examples=100, batch_size=20, steps=40)
    # Replaced: twice the norm, so half the multiplier; the norm itself does not matter.
    assert found.epsilon == fixed_batch_epsilon(1.5, rate=0.2, steps=40, delta=1e-5)
    assert (found.noise_multiplier, found.sampling_rate, found.steps, found.unit) == (1.5, 0.2, 40, "example")
    assert "without replacement" in found.assumes
    assert "replaced by any other" in found.assumes
    assert dp_sgd(0.3, 3.0).guarantee(examples=20, batch_size=100, steps=1).sampling_rate == 1.0
    # Noise on every example adds up to √n on the sum.
    per_example = fed_cdp(4.0, 1.5).guarantee(examples=100, batch_size=4, steps=40)
    assert per_example.epsilon == fixed_batch_epsilon(1.5, rate=0.04, steps=40, delta=1e-5)
    client = dp_fedavg(0.3, 3.0).guarantee(examples=100, batch_size=4, steps=40)
    assert (client.unit, client.sampling_rate) == ("client", 1.0)
    assert client.epsilon == gaussian_epsilon(1.5, steps=40, delta=1e-5)
    assert "adds its noise itself (local)" in client.assumes


@pytest.mark.parametrize("settings", [(10, 6, True), (10, 3, False), (10, 3, True), (9, 3, True), (4, 9, False)])
def test_in_passes_no_example_is_in_more_steps_than_are_counted(settings):
    examples, size, drop_last = settings
    plans = [LocalTraining(0.1, epochs=5, batch_size=size, shuffle=True, drop_last=drop_last)]
    plans += [LocalTraining(0.1, steps=7, batch_size=size)]
    for local in plans:
        order = local.order(examples, generator(0))
        most = max(sum(example in step for step in order) for example in range(examples))
        assert most <= count_passes(rate=min(size, examples) / examples, steps=len(order))


def test_epsilon_of_passes_counts_one_step_per_pass_and_no_sampling():
    defence = dp_sgd(1.0, 3.0, sampling="passes")
    assert defence.guarantee(examples=100, batch_size=20, steps=40).epsilon == gaussian_epsilon(
        1.5, steps=8, delta=1e-5
    )
    assert count_passes(rate=0.1, steps=10) == 1
    # The last batch of a pass has one example, and so the noise of one.
    uneven = fed_cdp(1.0, 3.0, sampling="passes").guarantee(examples=7, batch_size=3, steps=3)
    assert uneven.noise_multiplier == 1.5


def test_what_is_proven_of_reconstruction_is_the_smallest_bound_and_not_below_the_guess():
    found = dp_sgd(1.0, 2.0).guarantee(examples=10, batch_size=10, steps=4)
    # From a record that adds nothing to this one: the norm, not twice the norm.
    law = stats.norm()
    assert found.reconstruction[0.1] == pytest.approx(law.cdf(law.ppf(0.1) + math.sqrt(4) / 2.0))
    many = dp_sgd(1.0, 6.0).guarantee(examples=10_000, batch_size=10, steps=400)
    assert 0.1 <= many.reconstruction[0.1] < law.cdf(law.ppf(0.1) + math.sqrt(400) / 6.0) / 2
    for prior, value in dp_sgd(1.0, 1e5).guarantee(examples=10, batch_size=10, steps=1).reconstruction.items():
        assert value == pytest.approx(prior, rel=1e-3)


def test_noise_for_a_wanted_epsilon_never_exceeds_it():
    defence = dp_sgd(epsilon=8.0, steps=150, sampling_rate=0.032)
    assert 7.9 < defence.guarantee(examples=500, batch_size=16, steps=150).epsilon <= 8.0
    assert (
        defence.guarantee(examples=500, batch_size=16, steps=151).epsilon
        > defence.guarantee(examples=500, batch_size=16, steps=150).epsilon
    )
    client = dp_fedavg(epsilon=8.0, rounds=20)
    assert 7.9 < client.guarantee(examples=1, batch_size=1, steps=20).epsilon <= 8.0
    assert example_epsilon(2.0, sampling="passes", delta=1e-5, rate=0.5, steps=4) == gaussian_epsilon(
        1.0, steps=2, delta=1e-5
    )


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("dp-sgd:epsilon=0,steps=1,sampling_rate=1", "epsilon must be a finite number > 0"),
        ("dp-sgd:epsilon=-1,steps=1,sampling_rate=1", "epsilon must be a finite number > 0"),
        ("dp-sgd:epsilon=8", r"needs steps \(in all\) and sampling_rate"),
        ("dp-sgd:epsilon=8,noise_multiplier=1", "give one of the two"),
        ("dp-sgd:steps=10", "steps is there to find the noise for epsilon"),
        ("dp-sgd:epsilon=8,steps=5,sampling_rate=0", "0 < sampling_rate ≤ 1"),
        ("dp-sgd:norm=0", "dp-sgd needs norm > 0"),
        ("dp-sgd:noise_multiplier=-1", "finite noise_multiplier ≥ 0"),
        ("dp-sgd:delta=0", "0 < delta < 1"),
        ("dp-sgd:sampling=poisson", "cannot count on Poisson sampling.*use sampling=fixed-batch"),
        ("dp-sgd:sampling=shuffled", "Shuffled epochs are passes"),
        ("fed-cdp:sampling=weighted", "weighted samplers have no ε"),
        ("fed-cdp:norm=-1", "fed-cdp needs norm > 0"),
        ("dp-fedavg:epsilon=0,rounds=3", "epsilon must be a finite number > 0"),
        ("dp-fedavg:epsilon=8", "needs rounds"),
        ("dp-fedavg:rounds=8", "rounds is there to find the noise"),
        ("dp-fedavg:delta=1", "0 < delta < 1"),
    ],
)
def test_what_cannot_be_accounted_for_is_refused(spec, told):
    check_spec("defence", spec)
    with pytest.raises(UsageError, match=told):
        defence_from_spec(spec)


def test_noise_cannot_be_scaled_to_no_bound():
    for make in ALL.values():
        with pytest.raises(UsageError, match="cannot scale noise to an infinite norm"):
            make(norm=math.inf, noise_multiplier=1.0)


@dataclass(frozen=True)
class Acting(Defence):
    """Whatever hooks it is given."""

    given: ClientHooks
    name: str = "acting"
    paper: str = "none"

    def hooks(self):
        return self.given

    def adapt(self, attack):
        return attack


def acting(**hooks):
    return Acting(ClientHooks(**hooks))


def test_a_chain_keeps_a_guarantee_only_where_nothing_comes_between_clipping_and_noise():
    sizes = {"examples": 50, "batch_size": 5, "steps": 10}
    proven = dp_sgd().guarantee(**sizes)
    assert chain(dp_sgd(), prune(0.5), clip(1.0)).guarantee(**sizes) == proven
    assert chain(gaussian_noise(0.1), dp_sgd()).guarantee(**sizes) == proven
    assert chain(dp_sgd(), acting(gradient=lambda g, c: g)).guarantee(**sizes) == proven
    assert chain(acting(gradient=lambda g, c: g), dp_sgd()).guarantee(**sizes) is None
    assert chain(dp_sgd(), acting(example_gradients=lambda g, c: g)).guarantee(**sizes) is None
    assert chain(acting(batch=lambda b, rng: b), dp_sgd()).guarantee(**sizes) is None
    assert chain(dp_sgd(), fed_cdp()).guarantee(**sizes) is None
    assert chain(acting(batch=lambda b, rng: b), dp_fedavg()).guarantee(**sizes) == dp_fedavg().guarantee(**sizes)
    assert chain(clip(1.0), gaussian_noise(0.1)).guarantee(**sizes) is None


def informed(defence, model, batch, *, local=None):
    update = shared(model, batch, defence=defence, local=local)
    seen = observe(model, update, scenario="A", truth=batch)
    return defence.adapt(idlg()).recipe.distance_to(seen)


def test_the_informed_attacker_is_told_the_variance_of_what_is_shared():
    model, batch = dense(), batch_of([1, 2, 0, 3])
    found = informed(dp_sgd(0.5, 3.0), model, batch)
    assert isinstance(found, Denoised)
    assert isinstance(found.base, Shortened)
    assert found.variance == pytest.approx((3.0 * 0.5 / 4) ** 2)
    assert informed(fed_cdp(0.5, 3.0), model, batch).variance == pytest.approx((3.0 * 0.5) ** 2 / 4)
    assert informed(dp_fedavg(0.5, 3.0), model, batch).variance == pytest.approx(1.5**2)
    decaying = fed_cdp(0.5, 3.0, final_norm=0.25)
    assert informed(decaying, model, batch).variance == pytest.approx((3.0 * 0.25) ** 2 / 4)


def test_the_informed_attacker_is_told_the_variance_of_a_delta_as_a_mean_gradient():
    model, batch, local = dense(), batch_of([1, 2, 0, 3]), LocalTraining(lr=0.1, steps=3, batch_size=2)
    assert informed(dp_sgd(0.5, 3.0), model, batch, local=local).variance == pytest.approx((3.0 * 0.5 / 2) ** 2 / 3)
    assert informed(fed_cdp(0.5, 3.0), model, batch, local=local).variance == pytest.approx((3.0 * 0.5) ** 2 / 2 / 3)
    # Noise on the delta itself, in units of the gradient that 0.3 of rate stand for.
    assert informed(dp_fedavg(0.5, 3.0), model, batch, local=local).variance == pytest.approx(1.5**2 / 0.3**2)
    # Adam's steps do not add up gradients: nothing is known of their noise.
    assert not isinstance(informed(dp_sgd(), model, batch, local=replace(local, optimiser="adam")), Denoised)


def test_what_knowing_changes_is_the_distance_and_the_noise_alone():
    for make in ALL.values():
        attack = inverting_gradients(steps=5)
        knowing = make().adapt(attack)
        same = replace(knowing.recipe, noise=0.0, sum_noise=0.0, example_noise=0.0, joins_rounds=False)
        # A distance of directions stays as it is.
        assert (same, type(knowing.recipe.distance)) == (attack.recipe, Cosine)
        assert make().adapt(fc_inversion()).combine == "rank-one"
        assert make().strong_attacks == ("inverting-gradients:tv=1.0",)


def test_the_attacker_who_knows_of_clipping_gets_much_more():
    model, batch = dense(), batch_of([2])
    for make in ALL.values():
        defence = make(norm=0.05, noise_multiplier=0.0)
        seen = observe(model, shared(model, batch, defence=defence), scenario="A", truth=batch)
        attack = idlg(steps=40, retries=1)
        reached = [float(score(a.reconstruct(seen, seed=2), batch).psnr) for a in (attack, defence.adapt(attack))]
        assert reached[1] > reached[0] + 20


def test_clipping_to_a_bound_keeps_the_mean_below_it():
    update = shared(dense(), batch_of([0, 1, 2]), defence=dp_sgd(1e-3, 0.0))
    assert float(global_norm(update.tensors)) <= 1e-3 * (1 + 1e-12)
