"""Which layers are safe to share? A layer-by-layer leakage profile under one named attack.

Two views of every layer. *GradSim* is cheap and attack-free: how similar the layer's gradient stays to the
true one along the straight way from noise to the private inputs (Gao et al., CVPR 2021); a layer whose
gradient says "closer" early on steers a reconstruction. *PSNR* is what the attack gets when only this layer is
shared, when everything but this layer is shared, and when all layers up to this one are shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from leakscope import rng as random
from leakscope.attack import Attack, Watch
from leakscope.client import replay_gradient, share, trainable
from leakscope.errors import UnsuitableError, UsageError
from leakscope.metrics import guess_baseline, score
from leakscope.networks import freeze
from leakscope.observation.checks import not_shared
from leakscope.observation.observe import observe_many
from leakscope.observation.restrict import layers, restrict
from leakscope.observation.scenario import Scenario
from leakscope.types import Batch, LocalTraining, Loss, Reconstruction, SharedUpdate, Status

VIEWS = ("alone", "without", "up to")
# Above the blind guess by this much, the eye begins to find the picture again.
MARGIN_DB = 3.0

OnAttack = Callable[[int, int, str], None]


@dataclass(frozen=True)
class View:
    """What the attack got from one selection of layers, as the PSNR of the example that leaked most.

    Without a PSNR there is no evidence either way; `status` and `reason` say why.
    """

    psnr: float | None
    status: Status
    reason: str = ""


@dataclass(frozen=True)
class LayerLeak:
    """One layer: how much of the update it is, its GradSim, and a view per selection."""

    name: str
    numbers: int
    gradsim: float
    views: dict[str, View]


@dataclass(frozen=True)
class LeakageProfile:
    """All layers in the model's order, beside the whole update and the blind guess."""

    attack: str
    scenario: str
    everything: View
    baseline: float
    layers: tuple[LayerLeak, ...]

    def leaking(self, view: str = "alone") -> tuple[str, ...]:
        """Layers from which the attack got more than the blind guess and a margin."""
        return tuple(name for name, seen in self._of(view).items() if self.above(seen))

    def inconclusive(self, view: str = "alone") -> dict[str, View]:
        """Layers on which the attack gave no evidence (refused, diverged, …): neither leaking nor safe."""
        return {name: seen for name, seen in self._of(view).items() if seen.psnr is None}

    def above(self, view: View) -> bool:
        """Whether the attack came the margin above the blind guess."""
        return view.psnr is not None and view.psnr > self.baseline + MARGIN_DB

    def _of(self, view: str) -> dict[str, View]:
        measured = self.layers[0].views
        if view not in measured:
            raise UsageError(
                f"this profile measured {', '.join(map(repr, measured)) or 'no view'}, got {view!r}; ask for one of "
                f"these, or profile again with views= ({', '.join(VIEWS)})"
            )
        return {leak.name: leak.views[view] for leak in self.layers}

    def verdict(self) -> str:
        """One sentence that names the attack it rests on."""
        whole, measured = self.everything, self.layers[0].views
        leaking = self.leaking("alone") if "alone" in measured else ()
        if not self.above(whole):
            # What leaked is evidence even then; only the failures lose their meaning.
            yet = (
                f" Yet it came {MARGIN_DB:g} dB above the blind guess from {', '.join(leaking)} alone."
                if leaking
                else ""
            )
            return f"Inconclusive: {_explain_failure(self)}, so its failures on single layers mean nothing.{yet}"
        if "alone" not in measured:
            return f"{self.attack} gets {whole.psnr:.1f} dB from the whole update (blind guess {self.baseline:.1f} dB)."
        unknown = [f"{name} ({view.status})" for name, view in self.inconclusive("alone").items()]
        if len(unknown) == len(self.layers):
            return f"Inconclusive: {self.attack} gave no evidence on any layer alone: {', '.join(unknown)}."
        rest = f" No evidence alone, so not called safe: {', '.join(unknown)}." if unknown else ""
        return f"{_describe_layers(self, leaking)}{rest}"


def leakage_profile(
    model: nn.Module,
    batch: Batch,
    attack: Attack,
    *,
    scenario: str | Scenario = "B",
    views: Iterable[str] = VIEWS,
    local: LocalTraining | None = None,
    seed: int = 0,
    loss: Loss | None = None,
    say: OnAttack | None = None,
    watch: Watch | None = None,
) -> LeakageProfile:
    """Attack the update layer by layer; `say(done, total, what)` hears of every finished attack, `watch` of steps."""
    wanted = tuple(dict.fromkeys(views))
    if not set(wanted) <= set(VIEWS):
        raise UsageError(f"views must be among {', '.join(VIEWS)}, got {', '.join(wanted)}")
    frozen, notes = freeze(model)
    update = share(model, batch, local=local, seed=seed, loss=loss)
    if not isinstance(update, SharedUpdate):
        raise UsageError("the update is sealed; nobody can profile it")
    names = list(layers(update))
    target = _Target(frozen, notes, batch, update, scenario, loss)
    done, total = 0, 1 + len(names) * len(wanted)

    def view_of(what: str, kept: list[str]) -> View:
        nonlocal done
        view = target.attack_layers(kept, attack, seed, watch)
        done += 1
        if say is not None:
            say(done, total, what)
        return view

    everything = view_of("everything", names)
    similar = gradsim(model, batch, seed=seed, loss=loss)
    rows = []
    for place, (name, tensors) in enumerate(layers(update).items()):
        kept = {"alone": [name], "without": names[:place] + names[place + 1 :], "up to": names[: place + 1]}
        numbers = sum(update.tensors[tensor].numel() for tensor in tensors)
        similarity = sum(similar[tensor] for tensor in tensors) / len(tensors)
        seen = {view: view_of(f"{view} {name}", kept[view]) for view in wanted}
        rows.append(LayerLeak(name, numbers, similarity, seen))
    rung = scenario if isinstance(scenario, str) else scenario.name
    return LeakageProfile(attack.name, rung, everything, float(guess_baseline(batch).max()), tuple(rows))


def gradsim(
    model: nn.Module, batch: Batch, *, points: int = 21, seed: int = 0, loss: Loss | None = None
) -> dict[str, float]:
    """Mean cosine with the true gradient, per tensor, along the way from uniform noise to the inputs."""
    if points < 2:
        raise UsageError(f"gradsim needs at least 2 points, got {points}")
    noise = random.uniform(tuple(batch.inputs.shape), random.generator(seed, "gradsim"), like=batch.inputs)
    frozen, _notes = freeze(model)
    parameters = {name: value.detach().requires_grad_() for name, value in trainable(frozen).items()}

    def gradient(inputs: Tensor) -> dict[str, Tensor]:
        return replay_gradient(
            frozen, parameters, inputs, batch.targets, loss=loss or functional.cross_entropy, create_graph=False
        )

    truth = gradient(batch.inputs)
    rows = []
    for step in range(points):
        found = gradient(torch.lerp(noise, batch.inputs, step / (points - 1)))
        rows.append([float(_cosine(found[name], truth[name])) for name in truth])
    curve = torch.tensor(rows, dtype=torch.float64)
    area = torch.trapezoid(curve, dx=1 / (points - 1), dim=0)
    return dict(zip(truth, area.tolist(), strict=True))


@dataclass(frozen=True)
class _Target:
    """The update that is profiled, and what an observation of it needs."""

    model: nn.Module
    notes: tuple[str, ...]
    batch: Batch
    update: SharedUpdate
    scenario: str | Scenario
    loss: Loss | None

    def attack_layers(self, names: list[str], attack: Attack, seed: int, watch: Watch | None) -> View:
        """What `attack` gets from the named layers alone."""
        if not names:
            return View(None, Status.REFUSED, "no layer is left to share")
        kept = restrict(self.update, names)
        try:
            seen = observe_many(
                self.model, [kept], scenario=self.scenario, truths=[self.batch], loss=self.loss, notes=self.notes
            )[0]
            found = attack.reconstruct(seen, seed, watch=watch, diagnosing=False)
            found = attack.judge(seen, found, [self.batch])
        except UnsuitableError as reason:
            return View(None, Status.REFUSED, str(reason))
        if found.status is not Status.OK:
            # That the other layers are absent is the very question, not a reason.
            asked = not_shared(kept, self.model)
            return View(self._leaked(found), found.status, "; ".join(n for n in found.notes if n not in asked))
        if not found.inputs.flatten(1).isfinite().all(1).any():
            # Scored, it would look like an attack that a layer had stopped.
            return View(None, Status.NAN, "no reconstruction is made of finite numbers")
        return View(float(score(found, self.batch).psnr.max()), Status.OK)

    def _leaked(self, found: Reconstruction) -> float | None:
        # What was rebuilt by the margin above a guess leaks whatever became of the attack.
        best = float(score(found, self.batch).psnr.max())
        return best if best > float(guess_baseline(self.batch).max()) + MARGIN_DB else None


def _cosine(left: Tensor, right: Tensor) -> Tensor:
    left, right = left.flatten().double(), right.flatten().double()
    return torch.dot(left, right) / (left.norm() * right.norm()).clamp_min(1e-300)


def _explain_failure(profile: LeakageProfile) -> str:
    """How the attack failed on the whole update."""
    whole = profile.everything
    if whole.psnr is None:
        return f"{profile.attack} ended {whole.status} on the whole update"
    return (
        f"{profile.attack} got {whole.psnr:.1f} dB from the whole update, which is not {MARGIN_DB:g} dB above the "
        f"blind guess of {profile.baseline:.1f} dB"
    )


def _describe_layers(profile: LeakageProfile, leaking: tuple[str, ...]) -> str:
    """The sentence on the layers that gave evidence alone."""
    whole, unknown = profile.everything, profile.inconclusive("alone")
    quiet = [leak.name for leak in profile.layers if leak.name not in leaking and leak.name not in unknown]
    if not leaking:
        which = f"Of the layers tested alone, none ({', '.join(quiet)})" if unknown else "No single layer"
        return (
            f"{which} let {profile.attack} come {MARGIN_DB:g} dB above the blind guess of "
            f"{profile.baseline:.1f} dB (all layers together: {whole.psnr:.1f} dB). A stronger attack may do better."
        )
    others = "1 other" if len(quiet) == 1 else f"{len(quiet)} others"
    rest = f"; from {others} alone it did not ({', '.join(quiet)})" if quiet else ""
    return (
        f"{profile.attack} came {MARGIN_DB:g} dB above the blind guess of {profile.baseline:.1f} dB from "
        f"{len(leaking)} of {len(profile.layers)} layers alone ({', '.join(leaking)}){rest}."
    )
