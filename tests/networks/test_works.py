"""Networks that gradient attacks must cope with: client, observation, attack, score."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from leakscope import models
from leakscope.client import share
from leakscope.metrics import guess_baseline, score
from leakscope.observation.observe import observe
from leakscope.registry import get_attack
from leakscope.testing import smallest_problem
from leakscope.types import Batch, LocalTraining, Status
from tiny import shared

PICTURE = smallest_problem().batch.inputs
ONE = Batch(PICTURE, torch.tensor([2]))
TWO = Batch(torch.cat([PICTURE, PICTURE.transpose(2, 3).flip(3)]), torch.tensor([2, 0]))


class Frame(nn.Module):
    """Embeds the rows of an 8 × 8 image, lets `mix` work on them, and classifies."""

    def __init__(self, mix: nn.Module) -> None:
        super().__init__()
        self.rows, self.mix, self.head = nn.Linear(8, 16), mix, nn.Linear(128, 4)

    def forward(self, images):
        rows = self.rows(images.squeeze(1))
        return self.head((rows + self.mix(rows)).flatten(1))


class UsersAttention(nn.Module):
    def __init__(self, *, weights: bool) -> None:
        super().__init__()
        self.inner, self.weights = nn.MultiheadAttention(16, 2, batch_first=True), weights

    def forward(self, rows):
        return self.inner(rows, rows, rows, need_weights=self.weights)[0]


class Fused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, rows):
        return functional.scaled_dot_product_attention(*self.qkv(rows).chunk(3, -1))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.cells: nn.RNNBase = kind(16, 16, batch_first=True)  # type: ignore[call-arg]

    def forward(self, rows):
        return self.cells(rows)[0]


class Tied(nn.Module):
    """Two layers with one weight, each with its own bias."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)
        self.second.weight = self.first.weight

    def forward(self, rows):
        return self.second(self.first(rows).sigmoid())


class FixedMask(nn.Module):
    """Dropout whose mask is part of the model, and so known to whoever has the model."""

    mask: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        kept = torch.rand(16, generator=torch.Generator().manual_seed(1)) > 0.3
        self.register_buffer("mask", kept / 0.7)

    def forward(self, rows):
        return rows * self.mask


class AllConvolutional(nn.Module):
    """No linear layer at all."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.Sigmoid(), nn.Conv2d(16, 4, 8))

    def forward(self, images):
        return self.layers(images).flatten(1)


def convolutions(*, norm: bool = False) -> nn.Sequential:
    middle = [nn.BatchNorm2d(8)] if norm else []
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), *middle, nn.ReLU(), nn.Flatten(), nn.Linear(512, 4))


def perceptron() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.Sigmoid(), nn.Linear(48, 4))


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, activation="gelu", batch_first=True)


def frozen(part: int, model: nn.Sequential) -> nn.Sequential:
    model[part].requires_grad_(False)
    return model


SEEN_BY_IDLG = {
    "eval batch norm": lambda: convolutions(norm=True).eval(),
    "relu": lambda: convolutions(),
    "residual": lambda: Frame(nn.Sequential(nn.ReLU(), nn.Linear(16, 16))),
    "known mask": lambda: Frame(FixedMask()).train(),
    "nn.MultiheadAttention": lambda: Frame(UsersAttention(weights=False)),
    "nn.MultiheadAttention with weights": lambda: Frame(UsersAttention(weights=True)).eval(),
    "scaled_dot_product_attention": lambda: Frame(Fused()),
    "nn.TransformerEncoderLayer, eval": lambda: Frame(encoder()).eval(),
    "nn.LSTM": lambda: Frame(Recurrent(nn.LSTM)),
    "nn.GRU": lambda: Frame(Recurrent(nn.GRU)),
    "tied weights": lambda: Frame(Tied()),
    "frozen first layer": lambda: frozen(0, convolutions()),
    "in evaluation mode": lambda: perceptron().eval(),
}


def attacked(model: nn.Module, batch: Batch, attack: str, *, scenario: str = "C", local=None, **options):
    """Run the attack end to end; how far above a blind guess it came, in dB, for every example."""
    update = share(model, batch, local=local, seed=1)
    seen = observe(model, update, scenario=scenario, truth=batch)
    found = get_attack(attack, **options).reconstruct(seen)
    assert found.status is Status.OK
    gain = score(found, batch).psnr - guess_baseline(batch)
    return found, gain.tolist()


@pytest.mark.parametrize("make", SEEN_BY_IDLG.values(), ids=SEEN_BY_IDLG)
def test_idlg_finds_picture_and_label(make):
    found, (gain,) = attacked(make(), ONE, "idlg", steps=12, retries=0)
    assert found.targets.tolist() == [2]
    assert gain > 30
    assert not any("evidence" in note for note in found.notes)


def test_the_vision_transformer_can_be_attacked():
    # Double precision and retries: in single precision rounding decides whether one start of L-BFGS gets there.
    model = models.build("vit", num_classes=4, in_channels=1, image_size=8).double()
    found, (gain,) = attacked(model, Batch(PICTURE.double(), ONE.targets), "idlg", steps=25, retries=3)
    assert found.targets.tolist() == [2]
    assert gain > 3


@pytest.mark.parametrize("make", [lambda: Frame(Fused()), lambda: Frame(Recurrent(nn.LSTM))], ids=["fused", "lstm"])
def test_local_steps_of_such_networks_are_simulated(make):
    local = LocalTraining(lr=0.05, steps=2, batch_size=1)
    found, (gain,) = attacked(make(), ONE, "inverting-gradients", scenario="A", local=local, steps=100)
    assert gain > 3
    assert any("local steps are simulated" in note for note in found.notes)


def test_batch_statistics_of_the_candidates_themselves_are_replayed():
    found, gain = attacked(convolutions(norm=True).train(), TWO, "inverting-gradients", scenario="B", steps=60)
    assert min(gain) > 3
    assert any(note.startswith("structured") for note in found.notes)


@pytest.mark.parametrize("make", [AllConvolutional, lambda: frozen(3, perceptron())], ids=["all conv", "frozen head"])
def test_without_a_shared_linear_head_labels_are_optimised_or_granted(make):
    torch.manual_seed(0)
    _found, (gain,) = attacked(make(), ONE, "dlg", steps=30, retries=0)
    assert gain > 6
    _found, (gain,) = attacked(make(), ONE, "inverting-gradients", scenario="B", steps=100)
    assert gain > 6


def test_frozen_parameters_are_absent_from_the_update_and_not_reported_missing():
    model = frozen(1, perceptron())
    update = shared(model, ONE)
    assert list(update.tensors) == ["3.weight", "3.bias"]
    assert observe(model, update, truth=ONE).notes == ()


def test_the_recurrent_reference_network_can_be_attacked():
    model = models.build("lstm", num_classes=4, in_channels=1, image_size=8, init="uniform")
    found, (gain,) = attacked(model, ONE, "idlg", steps=8, retries=0)
    assert found.targets.tolist() == [2]
    assert gain > 3


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_low_precision_is_attacked_in_single_precision(dtype):
    model, batch = perceptron().to(dtype), ONE.to(dtype)
    found, (gain,) = attacked(model, batch, "idlg", steps=15, retries=0)
    assert gain > 20
    assert found.inputs.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert any(f"computed in {dtype}" in note for note in found.notes) is (dtype != torch.float64)
    assert {value.dtype for value in model.parameters()} == {dtype}


def test_batch_statistics_and_soft_labels_follow_the_precision():
    model = convolutions(norm=True).eval().bfloat16()
    soft = Batch(ONE.inputs.bfloat16(), torch.tensor([[0.0, 0.25, 0.75, 0.0]], dtype=torch.bfloat16))
    seen = observe(model, share(model, soft, seed=1), scenario="A", truth=soft)
    assert seen.targets.dtype == seen.dtype == torch.float32
    assert {value.dtype for value in seen.batch_statistics.values()} == {torch.float32}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("make", [lambda: Frame(Recurrent(nn.LSTM)), lambda: Frame(Fused())], ids=["lstm", "fused"])
def test_kernels_without_second_derivative_are_avoided_on_cuda(make):
    found, (gain,) = attacked(make().cuda(), ONE.to("cuda"), "idlg", steps=12, retries=0)
    assert gain > 6
    assert found.inputs.is_cuda
