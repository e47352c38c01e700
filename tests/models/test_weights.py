from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from data_folder import data_root, needs
from leakscope import data, models
from leakscope.errors import BadInputError


def small(seed: int = 0) -> nn.Module:
    return models.build("resnet20", num_classes=3, image_size=8, seed=seed)


def saved(folder: Path, state: dict[str, Tensor]) -> Path:
    path = folder / "weights.safetensors"
    save_file({name: value.clone().contiguous() for name, value in state.items()}, path)
    return path


def assert_unchanged(model: nn.Module, before: dict[str, Tensor]) -> None:
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def copied(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_own_state_comes_back_bit_for_bit(tmp_path: Path) -> None:
    trained = small(seed=1)
    model = small(seed=2)
    assert models.load_weights(model, saved(tmp_path, trained.state_dict())) is model
    assert_unchanged(model, trained.state_dict())


def test_published_layout_is_translated_and_normalisation_stays(tmp_path: Path) -> None:
    trained = models.build("resnet20-4", image_size=8, seed=1)
    state = {
        "module." + name.replace("fc.", "linear.").replace(".shortcut.", ".downsample."): value
        for name, value in trained.state_dict().items()
        if not name.startswith("normalise.") and not name.endswith("num_batches_tracked")
    }
    model = models.build("resnet20-4", image_size=8, seed=2, normalise="cifar10")
    models.load_weights(model, saved(tmp_path, state))
    assert torch.equal(model.get_parameter("fc.weight"), trained.get_parameter("fc.weight"))
    assert torch.equal(
        model.get_parameter("layer2.0.shortcut.0.weight"), trained.get_parameter("layer2.0.shortcut.0.weight")
    )
    assert model.get_buffer("normalise.mean").tolist() == pytest.approx([0.49147, 0.48226, 0.44677])


def change(state: dict[str, Tensor], how: str) -> dict[str, Tensor]:
    weight = state["fc.weight"]
    if how == "missing":
        return {name: value for name, value in state.items() if name != "fc.weight"}
    replaced = {
        "extra": {"fc2.weight": weight},
        "transposed": {"fc.weight": weight.T},
        "integers": {"fc.weight": weight.to(torch.int64)},
        "nan": {"fc.weight": torch.full_like(weight, float("nan"))},
    }
    return {**state, **replaced[how]}


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("missing", r"1 missing \(fc.weight\)"),
        ("extra", r"1 unexpected \(fc2.weight\)"),
        ("transposed", r"fc.weight needs shape \[3, 64\], got \[64, 3\]"),
        ("integers", "needs torch.float32, got torch.int64"),
        ("nan", "fc.weight holds NaN or Inf"),
    ],
)
def test_a_file_that_does_not_fit_changes_nothing(tmp_path: Path, how: str, message: str) -> None:
    model = small()
    before = copied(model)
    with pytest.raises(BadInputError, match=message):
        models.load_weights(model, saved(tmp_path, change(small(seed=1).state_dict(), how)))
    assert_unchanged(model, before)


def test_truncated_files_are_bad_input_at_every_length(tmp_path: Path) -> None:
    whole = saved(tmp_path, small().state_dict()).read_bytes()
    broken = tmp_path / "broken.safetensors"
    for part in range(16):
        broken.write_bytes(whole[: len(whole) * part // 16])
        with pytest.raises(BadInputError, match=r"broken.safetensors'"):
            models.load_weights(small(), broken)


def test_pickles_are_refused_unread_and_absent_files_named(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    path.write_bytes(pickle.dumps({"fc.weight": [0.0]}))
    with pytest.raises(BadInputError, match=r"weights.pt': expected tensors, got a bare pickle"):
        models.load_weights(small(), path)
    with pytest.raises(BadInputError, match="no such file"):
        models.load_weights(small(), tmp_path / "absent.safetensors")


@needs("weights/cifar10_resnet20.safetensors")
@needs("weights/cifar10_resnet32.safetensors")
@needs("cifar10.npz")
@pytest.mark.parametrize(("name", "images"), [("resnet20", 400), ("resnet32", 100)])
def test_published_cifar_weights_reach_their_accuracy(name: str, images: int) -> None:
    root = data_root()
    assert root is not None
    # Those weights were trained with ImageNet's constants.
    model = models.load_weights(
        models.build(name, normalise="imagenet"), root / "weights" / f"cifar10_{name}.safetensors"
    )
    batch = data.load("cifar10", indices=range(images), root=root)
    with torch.no_grad():
        right = model(batch.inputs).argmax(1) == batch.targets
    assert float(right.float().mean()) > 0.88
