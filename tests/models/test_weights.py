from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
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
        "inf": {"fc.weight": torch.full_like(weight, float("-inf"))},
        "1e300": {"fc.weight": torch.full_like(weight, -1e300, dtype=torch.float64)},
        "1e30": {"fc.weight": torch.full_like(weight, 1e30)},
        "variance": {"bn1.running_var": -state["bn1.running_var"]},
        "deviation": {"normalise.std": torch.zeros(3)},
    }
    return {**state, **replaced[how]}


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("missing", r"1 missing \(fc.weight\)"),
        ("extra", r"1 unexpected \(fc2.weight\)"),
        ("transposed", r"fc.weight needs shape \[3, 64\], got \[64, 3\]"),
        ("integers", "needs torch.float32, got torch.int64"),
        ("nan", "fc.weight holds NaN or Inf: expected finite numbers, got 192 NaN and 0 Inf among 192"),
        ("inf", "fc.weight holds NaN or Inf: expected finite numbers, got 0 NaN and 192 Inf among 192"),
        ("1e300", r"fc.weight is too large: expected numbers up to 1.84e\+19 in torch.float32, got 1e\+300"),
        ("1e30", r"fc.weight is too large: expected numbers up to 1.84e\+19 in torch.float32, got 1e\+30"),
        ("variance", "bn1.running_var must be ≥ 0, got -1"),
        ("deviation", "normalise.std must be > 0, got 0"),
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


class Wrapped(nn.Module):
    """A model that a user wrapped, with the normalisation in front."""

    def __init__(self, name: str, inner: nn.Module) -> None:
        super().__init__()
        self.normalise = models.Normalise((0.5,), (0.5,))
        self.add_module(name, inner)


def linear(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))


def write(folder: Path, suffix: str, state: dict[str, Tensor]) -> Path:
    path = folder / f"weights{suffix}"
    if suffix == ".npz":
        np.savez(path, **{name: value.numpy() for name, value in state.items()})  # type: ignore[arg-type]
    elif suffix == ".safetensors":
        return saved(folder, state)
    else:
        torch.save(state, path)
    return path


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth", ".npz"])
def test_every_format_gives_the_same_weights(tmp_path: Path, suffix: str) -> None:
    trained, model = linear(1), linear(2)
    models.load_weights(model, write(tmp_path, suffix, trained.state_dict()))
    assert_unchanged(model, trained.state_dict())


@pytest.mark.parametrize("key", ["state_dict", "model", "model_state_dict"])
def test_a_checkpoint_may_hold_the_state_among_other_things(tmp_path: Path, key: str) -> None:
    trained, model = linear(1), linear(2)
    optimiser = torch.optim.SGD(trained.parameters(), lr=0.1)
    path = tmp_path / "checkpoint.pt"
    torch.save({"epoch": 3, key: trained.state_dict(), "optimizer": optimiser.state_dict()}, path)
    models.load_weights(model, path)
    assert_unchanged(model, trained.state_dict())


@pytest.mark.parametrize("prefix", ["module.", "net.", "model.", "a.b."])
def test_a_prefix_of_the_file_is_taken_off(tmp_path: Path, prefix: str) -> None:
    trained, model = linear(1), linear(2)
    models.load_weights(model, saved(tmp_path, {prefix + name: value for name, value in trained.state_dict().items()}))
    assert_unchanged(model, trained.state_dict())


@pytest.mark.parametrize("name", ["net", "1"])
def test_a_prefix_of_the_model_is_allowed_for_and_normalisation_stays(tmp_path: Path, name: str) -> None:
    trained, model = linear(1), Wrapped(name, linear(2))
    models.load_weights(model, saved(tmp_path, trained.state_dict()))
    assert_unchanged(model.get_submodule(name), trained.state_dict())
    assert model.normalise.mean.tolist() == [0.5]


def test_two_networks_in_one_file_are_ambiguous(tmp_path: Path) -> None:
    both = {f"{name}.{key}": v for name in ("student", "teacher") for key, v in linear().state_dict().items()}
    with pytest.raises(BadInputError, match=r"several prefixes \('student\.', 'teacher\.'\)"):
        models.load_weights(linear(), saved(tmp_path, both))


def test_a_file_for_one_of_two_branches_is_refused(tmp_path: Path) -> None:
    model = nn.ModuleDict({"left": linear(), "right": linear()})
    with pytest.raises(BadInputError, match=r"8 missing \(left.0.weight, left.0.bias, left.1.weight, …\), 4 "):
        models.load_weights(model, saved(tmp_path, linear().state_dict()))


def test_what_stands_beside_the_prefix_is_listed_alone(tmp_path: Path) -> None:
    state = {f"model.{name}": value for name, value in linear().state_dict().items()}
    with pytest.raises(BadInputError, match=r"0 missing, 1 unexpected \(loss.scale\)"):
        models.load_weights(linear(), saved(tmp_path, {**state, "loss.scale": torch.ones(1)}))


def test_only_the_first_three_names_are_listed(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"4 missing \(0.weight, 0.bias, 1.weight, …\), 1 unexpected \(x\)"):
        models.load_weights(linear(), saved(tmp_path, {"x": torch.ones(1)}))


def tied() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    return model


@pytest.mark.parametrize("kept", ["0.weight", "1.weight"])
def test_one_name_of_a_tied_weight_is_enough(tmp_path: Path, kept: str) -> None:
    model = tied()
    models.load_weights(model, saved(tmp_path, {kept: torch.eye(3)}))
    assert torch.equal(model[0].weight, torch.eye(3))


def test_a_tied_weight_with_two_values_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="are one tensor in the model, but differ"):
        models.load_weights(tied(), saved(tmp_path, {"0.weight": torch.eye(3), "1.weight": torch.zeros(3, 3)}))


def test_links_are_followed(tmp_path: Path) -> None:
    trained, model = linear(1), linear(2)
    (tmp_path / "link.safetensors").symlink_to(saved(tmp_path, trained.state_dict()))
    models.load_weights(model, tmp_path / "link.safetensors")
    assert_unchanged(model, trained.state_dict())


class Payload:
    """Creates a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def test_a_model_file_that_would_run_code_is_refused(tmp_path: Path) -> None:
    torch.save({"0.weight": Payload(tmp_path / "canary")}, tmp_path / "evil.pt")
    with pytest.raises(BadInputError, match=r"evil.pt.*nothing was run"):
        models.load_weights(linear(), tmp_path / "evil.pt")
    assert not (tmp_path / "canary").exists()


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


def test_numbers_too_large_for_a_half_precision_network_are_refused(tmp_path: Path) -> None:
    model = small().half()
    state = copied(small()) | {"fc.weight": torch.full((3, 64), 7e4)}
    with pytest.raises(
        BadInputError, match=r"fc.weight is too large: expected numbers up to 6.55e\+04 in torch.float16"
    ):
        models.load_weights(model, saved(tmp_path, state))


def test_weights_beyond_the_budget_are_refused_and_the_option_named(tmp_path: Path) -> None:
    path = saved(tmp_path, small().state_dict())
    with pytest.raises(BadInputError, match=r"the budget is 104,857; pass a larger budget_mb \(--budget-mb\)"):
        models.load_weights(small(), path, budget_mb=0.1)
