"""P30: a count of a few bytes never starts a loop without end, from a file or from a program."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import leakscope as ls
from leakscope.counts import MOST_EXAMPLES, MOST_SIMULATED_STEPS, MOST_STEPS
from leakscope.errors import BadInputError, LeakscopeError, UnsuitableError, UsageError
from leakscope.matching.labels.apportion import apportion
from leakscope.observation.observe import observe
from leakscope.rng import generator, normal
from leakscope.types import LocalTraining, SharedUpdate
from tiny import batch_of, dense, seen_of, shared

_HUGE = (10**7, 10**12, 10**30, 10**5000)


def _digits(count: int) -> str:
    # Python refuses to write out 5,000 digits.
    return f"{count.bit_length()} bits"


@pytest.fixture(autouse=True)
def quick():
    began = time.monotonic()
    yield
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("count", _HUGE, ids=_digits)
@pytest.mark.parametrize("name", ["steps", "epochs"])
def test_so_many_local_steps_are_refused(name, count):
    with pytest.raises(UsageError, match=rf"LocalTraining\.{name} must be at most 100,000, got .*; correct it"):
        LocalTraining(0.1, **{name: count})


@pytest.mark.parametrize("count", _HUGE[1:], ids=_digits)
def test_so_many_examples_are_refused(count):
    with pytest.raises(UsageError, match=r"num_examples must be at most 1,000,000,000, got .*; correct it"):
        SharedUpdate("gradient", {"w": torch.ones(3)}, num_examples=count)
    with pytest.raises(UsageError, match=r"batch_size must be at most 1,000,000,000"):
        LocalTraining(0.1, batch_size=count)


def test_passes_over_many_examples_are_counted_without_dealing_them():
    assert LocalTraining(0.1, epochs=3, batch_size=1000).count_steps(20_000_001) == 3 * 20_001
    assert LocalTraining(0.1, epochs=3, batch_size=1000, drop_last=True).count_steps(20_000_001) == 3 * 20_000
    with pytest.raises(UsageError, match="are 2,000,000,000 local steps, at most 100,000 are possible"):
        LocalTraining(0.1, epochs=2).count_steps(10**9)


@pytest.mark.parametrize("fields", [{"epochs": 5}, {"steps": 100_000}, {"steps": 1, "shuffle": True}])
def test_an_order_that_memory_cannot_hold_is_refused(fields):
    with pytest.raises(UsageError, match="at most 10,000,000 are possible"):
        LocalTraining(0.1, batch_size=10**8, **fields).order(10**8, generator(0))


def test_one_step_of_a_large_client_needs_no_memory():
    assert LocalTraining(0.1, steps=2, batch_size=3).order(MOST_EXAMPLES) == ((0, 1, 2), (3, 4, 5))


@pytest.mark.parametrize(("field", "value"), [("num_examples", 10**12), ("steps", 10**7), ("epochs", 10**7)])
def test_a_manifest_with_a_huge_count_is_a_bad_file(tmp_path, field, value):
    model, batch = dense(), batch_of([0, 1])
    fields = {"epochs": 3} if field == "epochs" else {"steps": 3}
    path = ls.save_update(tmp_path / "u.safetensors", shared(model, batch, local=LocalTraining(0.1, **fields)))
    data = path.read_bytes()
    # Escaped once: the manifest is text inside the header's JSON.
    old = next(re.finditer(rf'\\"{field}\\":\d+'.encode(), data))
    header = data[8:].replace(old[0], rf"\"{field}\":{value}".encode())
    length = int.from_bytes(data[:8], "little") + len(header) - len(data) + 8
    path.write_bytes(length.to_bytes(8, "little") + header)
    with pytest.raises(BadInputError, match=rf"not valid at '(local\.)?{field}': .*less than or equal to [\d_]+;"):
        ls.load_update(path)


@pytest.mark.parametrize("scenario", ["A", "C", "E"])
@pytest.mark.parametrize("attack", ["dlg-adam:steps=2", "agic:steps=2", "fc-inversion"])
def test_the_largest_counts_that_are_allowed_end_at_once(attack, scenario):
    from leakscope.registry import attack_from_spec

    model, batch = dense(), batch_of([0, 1])
    for local in (LocalTraining(1e-3, MOST_STEPS), LocalTraining(1e-3, epochs=1, batch_size=MOST_EXAMPLES)):
        update = SharedUpdate("delta", shared(model, batch).tensors, MOST_EXAMPLES, local)
        known = update if scenario in "CDE" else SharedUpdate("delta", update.tensors, 2, local)
        labels = batch.targets if scenario in "AB" else None
        # Refused in some cases, done in others; `quick` is what matters.
        with contextlib.suppress(LeakscopeError):
            seen = observe(model, known, scenario=scenario, input_shape=(1, 6, 6), targets=labels)
            attack_from_spec(attack).reconstruct(seen)


def test_more_examples_than_numbers_are_not_rebuilt():
    model, batch = dense(), batch_of([0, 1])
    update = SharedUpdate("gradient", shared(model, batch).tensors, num_examples=20_000)
    seen = observe(model, update, scenario="C", input_shape=(1, 6, 6))
    with pytest.raises(UnsuitableError, match="an update of 988 numbers cannot hold 20,000 examples"):
        ls.get_attack("inverting-gradients", steps=2).reconstruct(seen)
    with pytest.raises(UnsuitableError, match="cannot hold 10,000,000 examples"):
        ls.get_attack("dlg-adam", steps=2, num_examples=10**7).reconstruct(seen_of(model, batch, scenario="E"))


def test_labels_of_many_examples_take_little_memory():
    model, batch = dense(classes=100), batch_of([0, 1])
    update = SharedUpdate("gradient", shared(model, batch).tensors, num_examples=100_000)
    seen = observe(model, update, scenario="C", input_shape=(1, 6, 6))
    before = _peak()
    guess = ls.infer_labels(seen)
    assert len(guess.labels) == len(guess.confidence) == 100_000
    assert _peak() - before < 200 * 2**20
    with pytest.raises(UsageError, match="labels to read off an update must be at most 1,000,000, got 1,000,000,000"):
        ls.infer_labels(seen, count=10**9)


def _peak() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_too_many_steps_are_not_simulated():
    seen = _delta_of(MOST_SIMULATED_STEPS + 1)
    with pytest.raises(UnsuitableError, match="1,001 local steps cannot be simulated for each prediction"):
        ls.get_attack("inverting-gradients", steps=2, replay="simulate").reconstruct(seen)


def _delta_of(steps):
    model, batch = dense(), batch_of([0, 1])
    local = LocalTraining(1e-6, steps, 2)
    update = SharedUpdate("delta", shared(model, batch).tensors, 2, local)
    return observe(model, update, scenario="A", input_shape=(1, 6, 6), targets=batch.targets)


def test_as_many_steps_as_are_simulated_end_soon_and_fit():
    before = _peak()
    found = ls.get_attack("inverting-gradients", steps=2).reconstruct(_delta_of(MOST_SIMULATED_STEPS))
    assert not any("too many to simulate" in note for note in found.notes)
    # `quick` sees to the time.
    assert _peak() - before < 400 * 2**20


def test_more_steps_are_compared_with_one_gradient_where_the_attack_may_choose():
    found = ls.get_attack("inverting-gradients", steps=2).reconstruct(_delta_of(MOST_SIMULATED_STEPS + 1))
    assert "1,001 local steps are too many to simulate: compared with one gradient of all examples" in found.notes


def test_a_simulation_that_needs_more_than_the_budget_is_refused(monkeypatch):
    seen = _delta_of(200)
    monkeypatch.setenv("LEAKSCOPE_BUDGET_MB", "5")
    with pytest.raises(UnsuitableError, match=r"200 local steps of this network need [\d,]+ bytes .* --budget-mb"):
        ls.get_attack("inverting-gradients", steps=2).reconstruct(seen)
    monkeypatch.setenv("LEAKSCOPE_BUDGET_MB", "100")
    ls.get_attack("inverting-gradients", steps=2).reconstruct(seen)


@pytest.mark.parametrize(("name", "steps"), [("dense", 600), pytest.param("mlp", 300, marks=pytest.mark.slow)])
def test_what_a_simulated_step_is_said_to_need_is_about_what_it_takes(name, steps):
    program = f"""
import resource, torch, leakscope as ls
from leakscope.steps.local import measure_step_bytes, replay_local
from tiny import dense
model = dense().float() if {name!r} == "dense" else ls.models.build("mlp", in_channels=1, image_size=6)
inputs, targets = torch.rand(2, 1, 6, 6, requires_grad=True), torch.tensor([0, 1])
def simulate(count):
    local = ls.LocalTraining(1e-4, count, 2)
    loss = torch.nn.functional.cross_entropy
    return replay_local(model, dict(model.named_parameters()), inputs, targets, local=local, loss=loss)
said = measure_step_bytes(simulate)
held = lambda: int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
before = held()
kept = simulate({steps})
print(said * {steps} / (held() - before))
"""
    folders = [str(Path(ls.__file__).parents[1]), str(Path(__file__).parent)]
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert 0.5 < float(done.stdout) < 2.5


def _one_by_one(expected, count, least):
    whole = torch.maximum(expected.round(), least).clamp_min(0)
    missing = count - int(whole.sum())
    for _ in range(abs(missing)):
        if missing > 0:
            whole[(expected - whole).argmax()] += 1
        else:
            whole[torch.where(whole > least, expected - whole, torch.inf).argmin()] -= 1
    return whole


@pytest.mark.parametrize("seed", range(20))
def test_dealing_at_once_equals_dealing_one_by_one(seed):
    rng = generator(seed, "apportion")
    count, classes = 300 + 10 * seed, 2 + seed
    spread = (0.01, 0.1, 1.0)[seed % 3] * count
    expected = (spread * normal((classes,), rng, like=torch.empty(0, dtype=torch.float64))).clamp(-count, 2 * count)
    least = (torch.arange(classes) % 3 == 0).double()
    assert torch.equal(apportion(expected, count, least=least), _one_by_one(expected, count, least))
    # Far from the sum, in both directions.
    even = torch.full((classes,), 5.5, dtype=torch.float64)
    assert torch.equal(apportion(even, count, least=least), _one_by_one(even, count, least))


def test_dealing_a_million_takes_no_time():
    for mean in (-1e6, 0.0, 1e6):
        found = apportion(torch.full((1000,), mean, dtype=torch.float64), 10**6, least=torch.zeros(1000))
        assert found.tolist() == [1000.0] * 1000
