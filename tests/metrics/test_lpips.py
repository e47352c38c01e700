"""LPIPS: invariants with real weights, a second composition, and where weights come from."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from leakscope.errors import BadInputError, MissingDataError, MissingExtraError, UsageError
from leakscope.metrics import lpips

pytestmark = pytest.mark.data


@pytest.fixture
def alex(data_folder: Path) -> Path:
    return data_folder / "weights" / "lpips_alex.safetensors"


def blurred(images: Tensor, times: int) -> Tensor:
    for _ in range(times):
        images = nn.functional.avg_pool2d(nn.functional.pad(images, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
    return images


def composed(left: Tensor, right: Tensor, state: dict[str, Tensor]) -> Tensor:
    """The same distance built from layers: AlexNet's convolutions, hooks on the five ReLUs."""
    relus = [nn.ReLU() for _ in range(5)]
    trunk = nn.Sequential(
        nn.Conv2d(3, 64, 11, stride=4, padding=2),
        relus[0],
        nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2),
        relus[1],
        nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1),
        relus[2],
        nn.Conv2d(384, 256, 3, padding=1),
        relus[3],
        nn.Conv2d(256, 256, 3, padding=1),
        relus[4],
    )
    convs = [layer for layer in trunk if isinstance(layer, nn.Conv2d)]
    for conv, name in zip(convs, ("1.0", "2.3", "3.6", "4.8", "5.10"), strict=True):
        conv.load_state_dict({part: state[f"net.slice{name}.{part}"] for part in ("weight", "bias")})
    seen: list[Tensor] = []
    for relu in relus:
        relu.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    with torch.no_grad():
        for images in (left, right):
            trunk((images - mean.view(3, 1, 1)) / std.view(3, 1, 1))
    total = torch.zeros(len(left))
    for layer, (a, b) in enumerate(zip(seen[:5], seen[5:], strict=True)):
        a, b = nn.functional.normalize(a, dim=1), nn.functional.normalize(b, dim=1)
        weights = state[f"lin{layer}.model.1.weight"].view(1, -1, 1, 1)
        total += (weights * (a - b) ** 2).sum(1).mean((1, 2))
    return total


def test_agrees_with_a_second_composition(photos, alex):
    worse = (photos + 0.1 * torch.randn(photos.shape, generator=torch.Generator().manual_seed(0))).clamp(0, 1)
    # The published shift and scale on [-1, 1] are ImageNet's mean and std on [0, 1].
    torch.testing.assert_close(
        lpips(worse, photos, weights=alex), composed(worse, photos, load_file(alex)), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("net", ["alex", "vgg"])
def test_identical_is_zero_and_arguments_commute(photos, data_folder, net):
    path = data_folder / "weights" / f"lpips_{net}.safetensors"
    assert lpips(photos, photos, weights=path, net=net).tolist() == [0.0, 0.0]
    there = lpips(photos, photos.flip(0), weights=path, net=net)
    back = lpips(photos.flip(0), photos, weights=path, net=net)
    torch.testing.assert_close(there, back, rtol=1e-5, atol=1e-6)
    assert (there > 0.3).all()


def test_grows_with_blur_and_with_noise(photos, alex):
    noise = torch.randn(photos.shape, generator=torch.Generator().manual_seed(1))
    for series in (
        [blurred(photos, times) for times in (1, 3, 9)],
        [(photos + level * noise).clamp(0, 1) for level in (0.02, 0.1, 0.4)],
    ):
        values = torch.stack([lpips(images, photos, weights=alex) for images in series])
        assert (values.diff(dim=0) > 0.02).all()


def test_grey_equals_the_same_image_in_three_channels(photos, alex):
    grey = photos.mean(1, keepdim=True)
    worse = blurred(grey, 2)
    single = lpips(worse, grey, weights=alex)
    torch.testing.assert_close(single, lpips(worse.expand(-1, 3, -1, -1), grey.expand(-1, 3, -1, -1), weights=alex))


@pytest.mark.parametrize("size", [(8, 8), (28, 28), (30, 45), (5, 12)])
def test_small_images_are_enlarged(alex, size):
    rng = torch.Generator().manual_seed(2)
    images = torch.rand(3, 1, *size, generator=rng)
    values = lpips(images, images.flip(0), weights=alex)
    assert values[1] == 0
    assert (values[[0, 2]] > 0).all()


def test_chunks_do_not_show(alex):
    images = torch.rand(35, 3, 32, 32, generator=torch.Generator().manual_seed(3))
    whole = lpips(images, images.flip(0), weights=alex)
    torch.testing.assert_close(whole[33:], lpips(images[33:], images.flip(0)[33:], weights=alex), rtol=1e-4, atol=1e-5)


def test_double_stays_double_and_half_is_lifted(photos, alex):
    worse = blurred(photos, 2)
    reference = lpips(worse.double(), photos.double(), weights=alex)
    assert reference.dtype == torch.float64
    half = lpips(worse.half(), photos.half(), weights=alex)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half.double(), reference, rtol=0.01, atol=1e-3)


def test_weights_are_found_in_the_data_folder(photos, alex, data_folder, monkeypatch):
    monkeypatch.setenv("LEAKSCOPE_DATA", str(data_folder))
    assert torch.equal(lpips(photos, photos.flip(0)), lpips(photos, photos.flip(0), weights=alex))


def test_weights_are_taken_from_the_package(photos, alex, monkeypatch, tmp_path):
    state = load_file(alex)
    asked = []

    def build(*, net: str, verbose: bool) -> SimpleNamespace:
        asked.append((net, verbose))
        return SimpleNamespace(state_dict=lambda: state)

    monkeypatch.setenv("LEAKSCOPE_DATA", str(tmp_path))
    monkeypatch.setitem(sys.modules, "lpips", SimpleNamespace(LPIPS=build))
    assert torch.equal(lpips(photos, photos.flip(0)), lpips(photos, photos.flip(0), weights=alex))
    assert asked == [("alex", False)]


def test_without_weights_the_message_is_the_remedy(photos, monkeypatch):
    monkeypatch.delenv("LEAKSCOPE_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "lpips", None)
    with pytest.raises(MissingExtraError, match=r"pip install .* -e '\.\[lpips\]'"):
        lpips(photos, photos)


def test_a_failed_download_is_named(photos, monkeypatch):
    def build(**_options):
        raise OSError("no route to host")

    monkeypatch.delenv("LEAKSCOPE_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "lpips", SimpleNamespace(LPIPS=build))
    with pytest.raises(MissingDataError, match="no route to host"):
        lpips(photos, photos)


def test_files_that_do_not_fit_are_named(photos, alex, tmp_path):
    with pytest.raises(MissingDataError, match="no LPIPS weights at"):
        lpips(photos, photos, weights=tmp_path / "absent.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"not a tensor in sight")
    with pytest.raises(BadInputError, match=r"broken.safetensors': expected safetensors"):
        lpips(photos, photos, weights=tmp_path / "broken.safetensors")
    save_file({"weight": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(BadInputError, match=r"does not hold LPIPS weights for alex: scaling_layer\.shift"):
        lpips(photos, photos, weights=tmp_path / "other.safetensors")
    with pytest.raises(BadInputError, match=r"does not hold LPIPS weights for vgg: net\.slice1\.2\.weight"):
        lpips(photos, photos, weights=alex, net="vgg")


def test_wrong_network_and_channels(photos, alex):
    with pytest.raises(UsageError, match="Did you mean 'alex'"):
        lpips(photos, photos, net="alexnet")  # type: ignore[arg-type]
    with pytest.raises(BadInputError, match="1 or 3 channels, got 2"):
        lpips(photos[:, :2], photos[:, :2], weights=alex)
