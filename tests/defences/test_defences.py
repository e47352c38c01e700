from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn
from torch.nn import functional

from leakscope.attacks.idlg import idlg
from leakscope.defence import ClientHooks, Defence, Hardened, UpdateDefence
from leakscope.defences.chain import chain
from leakscope.defences.clip import clip
from leakscope.defences.noise import gaussian_noise, laplacian_noise
from leakscope.defences.prune import prune
from leakscope.defences.quantise import quantise
from leakscope.defences.sign import sign
from leakscope.defences.top_k import top_k
from leakscope.errors import UnsuitableError, UsageError
from leakscope.matching.gradient_matching import GradientMatching
from leakscope.metrics import score
from leakscope.observation.observe import observe
from leakscope.rng import generator, normal
from leakscope.tensors import global_norm
from leakscope.types import LocalTraining, SealedUpdate, SharedUpdate
from tiny import batch_of, dense, flat, shared

LIKE = torch.empty(0, dtype=torch.float64)
DEFENCES = {
    "gaussian": gaussian_noise(1e-3),
    "laplacian": laplacian_noise(1e-3),
    "relative gaussian": gaussian_noise(1e-1, relative=True),
    "relative laplacian": laplacian_noise(1e-1, relative=True),
    "prune": prune(0.7),
    "global prune": prune(0.7, scope="global"),
    "top-k": top_k(0.3, feedback=False),
    "sign": sign(),
    "quantise": quantise(4),
    "clip": clip(0.1),
    "chain": chain(clip(0.1), gaussian_noise(1e-3)),
}
IDENTITIES = {
    "no noise": gaussian_noise(0.0),
    "no laplacian noise": laplacian_noise(0.0),
    "no relative noise": gaussian_noise(0.0, relative=True),
    "no relative laplacian noise": laplacian_noise(0.0, relative=True),
    "nothing pruned": prune(0.0),
    "nothing pruned of all": prune(0.0, scope="global"),
    "all of top-k": top_k(1.0),
    "all of top-k, forgotten": top_k(1.0, feedback=False),
    "all bits": quantise(32),
    "a bound never reached": clip(1e9),
    "empty chain": chain(),
}

sizes = st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple), min_size=1, max_size=3)


@dataclass(frozen=True)
class Sealing(Defence):
    """Sends a sealed update whatever was computed."""

    sealed: SealedUpdate
    name: str = "sealing"
    paper: str = "none"

    def hooks(self):
        return ClientHooks(update=lambda update, rng: self.sealed)

    def adapt(self, attack):
        return attack


@dataclass(frozen=True)
class Negated(UpdateDefence):
    """Turns every sign."""

    name: str = "negated"
    paper: str = "none"

    def rewrite(self, tensors, rng):
        return {name: -value for name, value in tensors.items()}

    def adapt(self, attack):
        return attack


@dataclass(frozen=True)
class Wrapping(Defence):
    """Puts a layer behind the network, which the client keeps for itself where `private`."""

    private: bool = False
    loss: bool = False
    name: str = "wrapping"
    paper: str = "none"
    changes_network: bool = True

    def harden(self, model, *, seed=0):
        inner = list(model) if isinstance(model, nn.Sequential) else [model]
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            client = nn.Sequential(*inner, nn.Linear(4, 4).double())
        place = len(client) - 1
        if not self.private:
            return Hardened(client, client, own_loss if self.loss else None)
        names = frozenset({f"{place}.weight", f"{place}.bias"})
        return Hardened(client, nn.Sequential(*inner), own_loss if self.loss else None, names)

    def adapt(self, attack):
        return attack


@dataclass(frozen=True)
class Renaming(Wrapping):
    """Moves the network into a part of another one."""

    name: str = "renaming"

    def harden(self, model, *, seed=0):
        moved = nn.Sequential(nn.Identity(), model)
        return Hardened(moved, moved)


def own_loss(output, targets):
    return functional.cross_entropy(output, targets)


def test_a_chain_hardens_the_clients_side_of_the_part_before_and_keeps_private_names_apart():
    model = dense()
    found = chain(Wrapping(private=True), Wrapping()).harden(model, seed=3)
    assert found.private == {"4.weight", "4.bias"}
    assert [name for name, _ in found.client.named_children()] == ["0", "1", "2", "3", "4", "5"]
    # The server has what the second part added and nothing of what the first keeps.
    assert [name for name, _ in found.server.named_children()] == ["0", "1", "2", "3", "4"]
    assert not any(value is found.client.get_parameter("4.weight") for value in found.server.parameters())
    assert chain(Wrapping(private=True), clip(1.0)).changes_network
    update = shared(found, batch_of([1, 2]))
    assert not found.private & set(update.tensors)


def test_a_chain_refuses_two_losses_and_private_names_that_a_later_part_changes():
    with pytest.raises(UsageError, match="only one defence of a chain may bring a loss"):
        chain(Wrapping(loss=True), Wrapping(loss=True)).harden(dense())
    assert chain(Wrapping(loss=True), Wrapping()).harden(dense()).loss is own_loss
    with pytest.raises(UnsuitableError, match=r"renames '4.bias'.*last"):
        chain(Wrapping(private=True), Renaming()).harden(dense())


def test_chained_hooks_act_in_order_in_every_place():
    calls = []

    @dataclass(frozen=True)
    class Tracing(Defence):
        name: str
        paper: str = "none"

        def hooks(self):
            def noted(place):
                def hook(value, _context):
                    calls.append((place, self.name))
                    return value

                return hook

            return ClientHooks(noted("batch"), noted("examples"), noted("gradient"), noted("update"))

        def adapt(self, attack):
            return attack

    shared(dense(), batch_of([1, 2]), defence=chain(Tracing("a"), clip(1.0), Tracing("b")))
    assert calls == [(place, name) for place in ("batch", "examples", "gradient", "update") for name in "ab"]


def applied(defence, tensors, seed=0):
    """What `defence` makes of an update that holds `tensors`."""
    update = SharedUpdate("gradient", tensors, num_examples=1)
    hook = defence.hooks().update
    found = update if hook is None else hook(update, generator(seed))
    assert isinstance(found, SharedUpdate)
    return found.tensors


def maps(shapes, seed):
    return {f"t{i}": normal(shape, generator(seed, i), like=LIKE) for i, shape in enumerate(shapes)}


@pytest.mark.parametrize("defence", IDENTITIES.values(), ids=IDENTITIES)
@pytest.mark.parametrize("local", [None, LocalTraining(lr=0.1, steps=2)], ids=["gradient", "delta"])
def test_a_defence_turned_down_to_nothing_is_the_identity(defence, local):
    model, batch = dense(), batch_of([1, 2])
    plain, defended = shared(model, batch, local=local), shared(model, batch, defence=defence, local=local)
    assert all(torch.equal(defended.tensors[name], value) for name, value in plain.tensors.items())
    assert (defended.kind, defended.local, defended.num_examples) == (plain.kind, plain.local, plain.num_examples)
    assert defence.adapt(idlg()) == idlg() or defence.name == "clip"


@pytest.mark.parametrize("defence", DEFENCES.values(), ids=DEFENCES)
def test_a_defence_is_deterministic_by_seed_and_leaves_its_input_alone(defence):
    tensors = maps([(5, 4), (3,)], 0)
    copies = {name: value.clone() for name, value in tensors.items()}
    first, again, other = (flat(applied(defence, tensors, seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert torch.equal(first, other) is ("noise" not in defence.name and defence.name != "quantise")
    assert all(torch.equal(value, copies[name]) for name, value in tensors.items())
    assert not torch.equal(first, flat(tensors))


@pytest.mark.parametrize("defence", DEFENCES.values(), ids=DEFENCES)
def test_a_sealed_update_passes_untouched_and_the_network_stays(defence):
    sealed = SealedUpdate("test", b"x")
    hook = chain(Sealing(sealed), defence).hooks().update
    assert hook is not None
    assert hook(SharedUpdate("gradient", {"a": torch.ones(2)}), generator(0)) is sealed
    model = dense()
    assert defence.harden(model) == Hardened(model, model)
    assert not defence.changes_network


@given(sizes, st.floats(0, 0.99), st.integers(0, 99))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_pruning_zeroes_exactly_the_smallest_of_each_tensor_and_is_idempotent(shapes, fraction, seed):
    tensors = maps(shapes, seed)
    once = applied(prune(fraction), tensors)
    for name, value in tensors.items():
        gone = once[name] == 0
        assert int(gone.sum()) == int(fraction * value.numel())
        assert torch.equal(once[name][~gone], value[~gone])
        if gone.any():
            assert float(value[gone].abs().max()) <= float(value[~gone].abs().min())
    twice = applied(prune(fraction), once)
    assert all(torch.equal(twice[name], value) for name, value in once.items())


@given(sizes, st.floats(0, 0.99), st.integers(0, 99))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_global_pruning_zeroes_exactly_the_smallest_of_all(shapes, fraction, seed):
    tensors = maps(shapes, seed)
    found, before = flat(applied(prune(fraction, scope="global"), tensors)), flat(tensors)
    gone = found == 0
    assert int(gone.sum()) == int(fraction * len(before))
    assert torch.equal(found[~gone], before[~gone])
    if gone.any():
        assert float(before[gone].abs().max()) <= float(before[~gone].abs().min())


def test_global_pruning_may_leave_nothing_of_a_tensor():
    tensors = {"small": torch.full((4,), 0.1), "large": torch.arange(1.0, 5.0)}
    assert applied(prune(0.5, scope="global"), tensors)["small"].count_nonzero() == 0
    assert applied(prune(0.5), tensors)["small"].count_nonzero() == 2
    with pytest.raises(UsageError, match=r"no scope 'tensors'.*Did you mean 'tensor'"):
        prune(0.5, scope="tensors")  # type: ignore[arg-type]


def test_pruning_ties_zeroes_no_more_than_asked():
    pruned = applied(prune(0.5), {"a": torch.ones(10)})["a"]
    assert int((pruned == 0).sum()) == 5


def test_of_equal_entries_the_first_are_pruned():
    values = torch.tensor([1.0, 3.0, -1.0, 1.0, 2.0, 0.5])
    assert applied(prune(0.5), {"a": values})["a"].tolist() == [0, 3, 0, 1, 2, 0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_pruning_is_the_same_in_every_precision(dtype):
    """Only some are known to the faster way of selecting."""
    values = torch.tensor([0.5, -4.0, 0.25, 2.0, -0.5, 0.125, 8.0, -1.0], dtype=dtype)
    assert applied(prune(0.5), {"a": values})["a"].tolist() == [0, -4, 0, 2, 0, 0, 8, -1]


def test_pruning_keeps_what_is_no_number_in_sight():
    """A client that trained itself to NaN must not send zeros in its place."""
    pruned = applied(prune(0.5), {"a": torch.tensor([1.0, float("nan"), 3.0, 2.0])})["a"]
    assert bool(pruned[1].isnan())
    assert int((pruned == 0).sum()) == 2


@given(sizes, st.floats(1e-3, 1e3), st.integers(0, 99))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_clipping_bounds_the_norm_and_keeps_the_direction(shapes, bound, seed):
    tensors = maps(shapes, seed)
    clipped = applied(clip(bound), tensors)
    before, after = float(global_norm(tensors)), float(global_norm(clipped))
    assert after <= bound * (1 + 1e-12)
    assert after == pytest.approx(min(before, bound))
    cosine = torch.dot(flat(tensors), flat(clipped)) / (before * after)
    assert float(cosine) == pytest.approx(1.0)


def test_clipping_nothing_stays_nothing():
    assert torch.equal(applied(clip(1.0), {"a": torch.zeros(3)})["a"], torch.zeros(3))


@pytest.mark.parametrize(
    ("defence", "law", "variance"),
    [(gaussian_noise(0.3), stats.norm(scale=0.3), 0.09), (laplacian_noise(0.3), stats.laplace(scale=0.3), 0.18)],
    ids=["gaussian", "laplacian"],
)
def test_noise_has_its_law_and_variance_and_no_correlation_between_tensors(defence, law, variance):
    count = 40_000
    tensors = {"a": torch.full((count,), 2.0).double(), "b": torch.full((200, 200), -1.0).double()}
    found = applied(defence, tensors, seed=7)
    noise = [(found[name] - tensors[name]).flatten() for name in tensors]
    for values in noise:
        assert stats.kstest(values.numpy(), law.cdf).pvalue > 0.01
        # Four standard errors of a variance: kurtosis 3 (normal) or 6 (Laplace).
        error = variance * math.sqrt((float(law.stats("k")) + 2) / count)
        assert abs(float(values.var()) - variance) < 4 * error
        assert abs(float(values.mean())) < 4 * math.sqrt(variance / count)
    assert abs(float(torch.corrcoef(torch.stack(noise))[0, 1])) < 4 / math.sqrt(count)


@pytest.mark.parametrize(
    ("defence", "variance"),
    [(gaussian_noise(0.3, relative=True), 0.09), (laplacian_noise(0.3, relative=True), 0.18)],
    ids=["gaussian", "laplacian"],
)
def test_relative_noise_is_in_units_of_each_tensors_deviation(defence, variance):
    count = 40_000
    # Far from zero: a root mean square would make more noise than a deviation.
    tensors = {
        name: 5 + size * normal((count,), generator(0, name), like=LIKE) for name, size in (("a", 0.2), ("b", 7.0))
    }
    found = applied(defence, tensors, seed=7)
    for name, value in tensors.items():
        noise = (found[name] - value) / value.std(correction=0)
        assert float(noise.var()) == pytest.approx(variance, rel=0.05)
        assert abs(float(noise.mean())) < 4 * math.sqrt(variance / count)
    assert torch.equal(applied(defence, {"one": torch.ones(1)})["one"], torch.ones(1)), "one entry has no deviation"


def test_chains_apply_in_order_and_are_associative():
    tensors = maps([(5, 4), (3,)], 3)
    a, b, c = clip(0.5), gaussian_noise(0.1), prune(0.5)
    left, right, flat_chain = chain(chain(a, b), c), chain(a, chain(b, c)), chain(a, b, c)
    results = [flat(applied(each, tensors, 5)) for each in (left, right, flat_chain)]
    assert torch.equal(results[0], results[2])
    assert torch.equal(results[1], results[2])
    assert not torch.equal(results[2], flat(applied(chain(c, b, a), tensors, 5)))
    assert left.name == right.name == flat_chain.name == "clip+gaussian-noise+prune"
    assert left.adapt(idlg()) == right.adapt(idlg()) == flat_chain.adapt(idlg())


def test_the_first_defence_of_a_chain_acts_first():
    tensors = maps([(30, 30)], 2)
    noisy_last, clipped_last = (
        float(global_norm(applied(each, tensors)))
        for each in (chain(clip(1.0), gaussian_noise(0.5)), chain(gaussian_noise(0.5), clip(1.0)))
    )
    assert noisy_last > 10
    assert clipped_last == pytest.approx(1.0)


def test_the_informed_attacker_is_told_the_variance():
    for defence, variance in ((gaussian_noise(0.3), 0.3**2), (laplacian_noise(0.3), 2 * 0.3**2)):
        informed = defence.adapt(idlg())
        assert isinstance(informed, GradientMatching)
        assert informed.recipe.noise == pytest.approx(variance)
        assert informed.recipe.joins_rounds
    for defence, variance in (
        (gaussian_noise(0.3, relative=True), 0.3**2),
        (laplacian_noise(0.3, relative=True), 2 * 0.3**2),
        (chain(gaussian_noise(0.3, relative=True), gaussian_noise(0.4, relative=True)), 1.09 * 1.16 - 1),
    ):
        informed = defence.adapt(idlg())
        assert isinstance(informed, GradientMatching)
        assert (informed.recipe.noise, informed.recipe.relative_noise) == (0.0, pytest.approx(variance))
        assert informed.joins_rounds


def test_a_chain_of_one_is_that_defence():
    tensors = maps([(4, 4)], 1)
    assert torch.equal(applied(chain(prune(0.5)), tensors)["t0"], applied(prune(0.5), tensors)["t0"])


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_impossible_scales_are_refused(value):
    with pytest.raises(UsageError, match=r"gaussian-noise needs a finite sigma ≥ 0, got"):
        gaussian_noise(value)
    with pytest.raises(UsageError, match=r"laplacian-noise needs a finite scale ≥ 0, got"):
        laplacian_noise(value)
    if value != float("inf"):
        with pytest.raises(UsageError, match="clip needs norm > 0"):
            clip(value)
    with pytest.raises(UsageError, match=r"0 ≤ fraction < 1.*shares one entry in ten"):
        prune(value)


def test_rewriting_keeps_what_belongs_to_the_update():
    local = LocalTraining(lr=0.1)
    update = SharedUpdate("delta", {"a": torch.ones(2)}, num_examples=3, local=local, buffers={"b": torch.zeros(1)})
    hook = Negated().hooks().update
    assert hook is not None
    found = hook(update, generator(0))
    assert isinstance(found, SharedUpdate)
    assert (found.kind, found.num_examples, found.local) == ("delta", 3, local)
    assert list(found.buffers) == ["b"]
    assert found.tensors["a"].tolist() == [-1.0, -1.0]


@pytest.mark.parametrize("defence", [prune(0.7), clip(1.0), clip(0.05)], ids=["prune", "clip", "tight clip"])
def test_the_attacker_who_knows_the_defence_gets_much_more(defence):
    model, batch = dense(), batch_of([2])
    update = shared(model, batch, defence=defence)
    seen = observe(model, update, scenario="A", truth=batch)
    attack = idlg(steps=40, retries=1)
    reached = [float(score(a.reconstruct(seen, seed=2), batch).psnr) for a in (attack, defence.adapt(attack))]
    assert reached[1] > reached[0] + 20
