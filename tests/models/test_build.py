from __future__ import annotations

import pytest
import torch
from torch import nn

from leakscope import models
from leakscope.errors import UsageError
from leakscope.models.resnet import BasicBlock, Bottleneck, PaddedShortcut, projected_shortcut

SMALL = [name for name in models.names() if name not in ("resnet18-grnn", "resnet34", "resnet50", "vgg16", "crnn")]
# Scores [T, n, classes] of pictures of text: see test_crnn.py.
CLASSIFIERS = [name for name in SMALL if name != "crnn-small"]


@pytest.fixture
def unfilled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave parameters empty: shapes need no numbers, and filling VGG-16's 138 million takes seconds."""
    monkeypatch.setattr("leakscope.models.initialise.initialise", lambda *_, **__: None)


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.usefixtures("unfilled")
@pytest.mark.parametrize(
    ("name", "num_classes", "image_size", "expected"),
    [
        ("convnet", 100, 32, 3_112_420),
        ("convnet-9", 100, 32, 3_703_012),
        ("resnet20-4", 100, 32, 4_350_884),
        ("resnet20", 10, 32, 269_722),
        ("resnet32", 10, 32, 464_154),
        ("resnet18", 10, 32, 11_173_962),
        ("resnet18", 1000, 224, 11_689_512),
        ("resnet34", 1000, 224, 21_797_672),
        ("resnet50", 10, 32, 23_520_842),
        ("resnet50", 1000, 224, 25_557_032),
        ("vgg16", 1000, 224, 138_357_544),
        ("vit", 10, 32, 108_554),
        ("lstm", 10, 32, 117_002),
    ],
)
def test_parameter_counts_are_the_published_ones(name: str, num_classes: int, image_size: int, expected: int) -> None:
    assert parameters(models.build(name, num_classes=num_classes, image_size=image_size)) == expected


def test_resnet20_4_has_65_tensors_and_21_convolutions() -> None:
    model = models.build("resnet20-4", num_classes=100)
    assert len(list(model.parameters())) == 65
    assert sum(isinstance(module, nn.Conv2d) for module in model.modules()) == 21


@pytest.mark.usefixtures("unfilled")
@pytest.mark.parametrize(("name", "count"), [("convnet", 8), ("convnet-9", 9), ("lenet-dlg", 3), ("vgg16", 13)])
def test_convolutions(name: str, count: int) -> None:
    assert sum(isinstance(module, nn.Conv2d) for module in models.build(name).modules()) == count


@pytest.mark.usefixtures("unfilled")
@pytest.mark.parametrize(
    ("name", "channels", "side", "layer", "features"),
    [
        ("lenet-dlg", 3, 32, "fc", 768),
        ("lenet-dlg", 1, 28, "fc", 588),
        ("lenet-dlg", 1, 8, "fc", 48),
        ("lenet-grnn", 3, 32, "fc1", 400),
        ("lenet5", 1, 28, "fc1", 400),
        ("convnet", 3, 32, "fc", 2304),
        ("mlp", 1, 8, "fc1", 64),
        ("vgg16", 3, 224, "classifier.fc1", 25_088),
    ],
)
def test_first_dense_layer_fits_the_image(name: str, channels: int, side: int, layer: str, features: int) -> None:
    linear = models.build(name, in_channels=channels, image_size=side).get_submodule(layer)
    assert isinstance(linear, nn.Linear)
    assert linear.in_features == features


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize(("channels", "side"), [(3, 32), (1, 28), (2, 37), (1, 16)])
def test_logits_have_one_column_per_class(name: str, channels: int, side: int) -> None:
    model = models.build(name, num_classes=7, in_channels=channels, image_size=side)
    logits = model(torch.rand(2, channels, side, side, generator=torch.Generator().manual_seed(0)))
    assert logits.shape == (2, 7)
    assert bool(torch.isfinite(logits).all())
    assert not torch.equal(logits[0], logits[1])


def test_large_images_get_the_large_stem() -> None:
    small, large = (models.build("resnet18", image_size=side) for side in (64, 65))
    assert small.get_parameter("conv1.weight").shape[-1] == 3
    assert large.get_parameter("conv1.weight").shape[-1] == 7
    assert isinstance(large.get_submodule("pool1"), nn.MaxPool2d)
    assert large(torch.rand(1, 3, 65, 65)).shape == (1, 10)


@pytest.mark.usefixtures("unfilled")
@pytest.mark.parametrize("side", [32, 64, 128, 256])
def test_grnns_resnet18_has_the_small_stem_at_any_size(side: int) -> None:
    model = models.build("resnet18-grnn", num_classes=100, image_size=side)
    assert model.get_parameter("conv1.weight").shape == (64, 3, 3, 3)
    assert isinstance(model.get_submodule("pool1"), nn.Identity)
    assert not any(isinstance(module, nn.ReLU) for module in model.modules())


@pytest.mark.parametrize(
    ("name", "smallest"), [("lenet-grnn", 16), ("lenet5", 12), ("convnet", 9), ("convnet-9", 9), ("vgg16", 32)]
)
def test_too_small_images_name_the_smallest_side(name: str, smallest: int) -> None:
    with pytest.raises(UsageError, match=f"at least {smallest}×{smallest} pixels, got {smallest - 1}"):
        models.build(name, image_size=smallest - 1)
    assert models.build(name, image_size=smallest)(torch.rand(1, 3, smallest, smallest)).shape == (1, 10)


@pytest.mark.parametrize("name", SMALL)
def test_seed_decides_the_weights_and_the_global_state_is_untouched(name: str) -> None:
    before = torch.get_rng_state()
    first, again, other = (models.build(name, seed=seed).state_dict() for seed in (3, 3, 4))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(value, again[key]) for key, value in first.items())
    assert any(not torch.equal(value, other[key]) for key, value in first.items())


def test_another_number_of_classes_changes_the_last_layer_only() -> None:
    ten, twelve = (models.build("lenet5", num_classes=count).state_dict() for count in (10, 12))
    changed = {key for key, value in ten.items() if value.shape != twelve[key].shape}
    assert changed == {"fc3.weight", "fc3.bias"}
    assert all(torch.equal(value, twelve[key]) for key, value in ten.items() if key not in changed)


@pytest.mark.parametrize("name", models.names())
def test_networks_are_in_evaluation_mode_and_can_be_traced(name: str) -> None:
    model = models.build(name)
    assert not any(module.training for module in model.modules())
    traced = torch.fx.symbolic_trace(model)
    images = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(traced(images), model(images))


@pytest.mark.parametrize("name", SMALL)
def test_no_activation_works_in_place(name: str) -> None:
    assert not any(getattr(module, "inplace", False) for module in models.build(name).modules())


@pytest.mark.usefixtures("unfilled")
@pytest.mark.parametrize("name", [name for name in models.names() if name != "lstm"])
def test_activation_can_be_switched(name: str) -> None:
    kinds = {"relu": nn.ReLU, "leaky-relu": nn.LeakyReLU, "sigmoid": nn.Sigmoid, "gelu": nn.GELU}
    own = {"fcn3": "leaky-relu", "cnn6": "leaky-relu", "vit": "gelu", "resnet18-grnn": "sigmoid"}
    usual = "sigmoid" if name.startswith("lenet") else own.get(name, "relu")
    other = "relu" if usual == "sigmoid" else "sigmoid"
    for asked, found in ((None, usual), (usual, usual), (other, other)):
        present = {type(module) for module in models.build(name, activation=asked).modules()} & set(kinds.values())
        assert present == {kinds[found]}


@pytest.mark.parametrize(
    ("name", "init"), [("lenet-dlg", None), ("lenet-grnn", "paper"), ("resnet18-grnn", None), ("resnet18", "uniform")]
)
def test_uniform_start_covers_half_a_unit_on_every_tensor(name: str, init: str | None) -> None:
    for parameter in models.build(name, init=init).parameters():
        assert float(parameter.detach().abs().max()) <= 0.5
        assert float(parameter.detach().std()) > 0.1


def test_default_start_is_pytorchs() -> None:
    layer = models.build("lenet5", init="default", in_channels=1, image_size=28).get_submodule("fc1")
    for parameter in layer.parameters():
        # U(−1/√400, 1/√400), whose deviation is the bound over √3.
        assert float(parameter.detach().abs().max()) <= 1 / 20
        assert float(parameter.detach().std()) == pytest.approx(1 / 20 / 3**0.5, rel=0.1)


def test_kaiming_start_has_the_fan_out_deviation() -> None:
    model = models.build("resnet20-4")
    weight = model.get_parameter("layer3.1.conv2.weight").detach()
    assert float(weight.std()) == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.01)
    assert torch.equal(model.get_parameter("bn1.weight"), torch.ones(64))
    assert torch.equal(model.get_buffer("bn1.running_var"), torch.ones(64))


@pytest.mark.parametrize(
    ("name", "parameter", "fan"),
    # Layers with twice as many outputs as inputs: there the two fans differ.
    [
        ("resnet20-4", "layer2.0.conv1.weight", 128 * 9),
        ("resnet18", "layer2.0.conv1.weight", 128 * 9),
        ("resnet20", "layer2.0.conv1.weight", 16 * 9),
        ("resnet32", "layer3.0.conv1.weight", 32 * 9),
    ],
)
def test_residual_networks_start_from_the_fan_of_their_papers(name: str, parameter: str, fan: int) -> None:
    weight = models.build(name).get_parameter(parameter).detach()
    assert float(weight.std()) == pytest.approx((2 / fan) ** 0.5, rel=0.05)


def test_mlp_takes_hidden_widths_and_others_refuse_them() -> None:
    model = models.build("mlp", hidden=(5,), image_size=8, in_channels=1)
    assert [tuple(p.shape) for p in model.parameters()] == [(5, 64), (5,), (10, 5), (10,)]
    with pytest.raises(UsageError, match="hidden is for 'mlp' only"):
        models.build("lenet5", hidden=(5,))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "resnet-20"}, "Did you mean 'resnet20'"),
        ({"name": "lenet5", "activation": "tanh"}, "unknown activation 'tanh'"),
        ({"name": "lenet5", "init": "unifrom"}, "Did you mean 'uniform'"),
        ({"name": "lenet5", "num_classes": 0}, "num_classes must be a whole number ≥ 1"),
        ({"name": "lenet5", "image_size": 28.0}, "image_size must be a whole number"),
        ({"name": "mlp", "hidden": (0,)}, "hidden needs whole widths"),
    ],
)
def test_wrong_choices_are_usage_errors(options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        models.build(options.pop("name"), **options)


def test_second_derivatives_exist_through_every_layer_kind() -> None:
    model = models.build("resnet20", activation="sigmoid").double()
    images = torch.rand(1, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    images.requires_grad_()
    loss = nn.functional.cross_entropy(model(images), torch.tensor([1]))
    gradients = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    (second,) = torch.autograd.grad(sum((g.square().sum() for g in gradients), torch.zeros(())), images)
    assert float(second.abs().max()) > 0


@pytest.mark.parametrize(("name", "init"), [("vit", None), ("vit", "default"), ("lstm", "default"), ("vit", "uniform")])
def test_attention_and_recurrence_are_filled_by_every_rule(name: str, init: str | None) -> None:
    model = models.build(name, image_size=8, in_channels=1, init=init)
    assert all(bool(torch.isfinite(value).all()) for value in model.parameters())
    if name == "vit" and init != "uniform":
        assert torch.equal(model.get_parameter("norm.weight"), torch.ones(64))
        assert float(model.get_parameter("tokens.positions").detach().std()) == pytest.approx(0.02, rel=0.1)


def test_a_side_that_patches_do_not_divide_is_padded() -> None:
    assert models.build("vit", image_size=37).get_parameter("tokens.positions").shape == (1, 101, 64)
    assert models.build("vit", image_size=36).get_parameter("tokens.positions").shape == (1, 82, 64)


@pytest.mark.parametrize("name", [name for name in CLASSIFIERS if name not in ("resnet18",)])
@pytest.mark.parametrize("size", [(32, 44), (45, 32)])
def test_every_network_takes_pictures_that_are_not_square(name: str, size: tuple[int, int]) -> None:
    model = models.build(name, num_classes=4, in_channels=1, image_size=size)
    assert model(torch.rand(2, 1, *size)).shape == (2, 4)


@pytest.mark.parametrize("name", ["lenet5", "mlp", "vit", "cnn6"])
def test_a_pair_of_equal_sides_is_the_square(name: str) -> None:
    square, pair = (models.build(name, image_size=size, seed=3).state_dict() for size in (16, (16, 16)))
    assert all(torch.equal(value, pair[key]) for key, value in square.items())


@pytest.mark.parametrize("size", [(32,), (32, 0), (32, 2.0), "32", (8, 8, 8), True])
def test_sizes_that_are_none_are_refused(size: object) -> None:
    with pytest.raises(UsageError, match="image_size must be a whole number from 1 to 4096, or a pair"):
        models.build("mlp", image_size=size)


def test_the_smaller_side_must_suffice() -> None:
    with pytest.raises(UsageError, match="at least 12×12 pixels, got 11×40"):
        models.build("lenet5", image_size=(11, 40))


@pytest.mark.parametrize("block", [BasicBlock, Bottleneck])
def test_what_a_residual_branch_leaves_out_comes_through_the_shortcut(block: type[BasicBlock | Bottleneck]) -> None:
    width = 4
    layer = block(width * block.expansion, width, 1, activation=nn.ReLU, shortcut=projected_shortcut).eval()
    last = layer.conv2 if isinstance(layer, BasicBlock) else layer.conv3
    nn.init.zeros_(last.weight)
    inputs = torch.randn(2, width * block.expansion, 5, 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(layer(inputs), inputs.relu())


def test_a_padded_shortcut_has_the_old_channels_in_the_middle() -> None:
    inputs = torch.randn(1, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    found = PaddedShortcut(2, 6, 2)(inputs)
    assert torch.equal(found[:, 2:4], inputs[:, :, ::2, ::2])
    assert not found[:, [0, 1, 4, 5]].any()
