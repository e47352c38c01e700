from __future__ import annotations

import pytest
import torch
from torch import nn

from leakscope import models
from leakscope.errors import UsageError
from leakscope.tasks import CTCText

RECOGNISERS = ["crnn", "crnn-small"]


def build(name: str, *, size: tuple[int, int] = (32, 100), **options) -> nn.Module:
    return models.build(name, num_classes=37, image_size=size, **options)


@pytest.mark.parametrize("name", RECOGNISERS)
@pytest.mark.parametrize(("size", "steps"), [((32, 100), 25), ((32, 32), 8), ((32, 144), 36), ((48, 64), 16)])
def test_there_is_a_step_for_every_four_columns(name: str, size: tuple[int, int], steps: int) -> None:
    output = build(name, size=size)(torch.rand(2, 3, *size))
    assert output.shape == (steps, 2, 37)
    assert bool(output.isfinite().all())
    assert not torch.equal(output[:, 0], output[:, 1])


def test_the_layers_are_the_published_ones() -> None:
    model = build("crnn")
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    assert [one.out_channels for one in convolutions] == [64, 128, 256, 256, 512, 512, 512]
    assert [one.kernel_size for one in convolutions] == [(3, 3)] * 6 + [(2, 2)]
    order = [name for name, _ in model.named_children()]
    assert [name for name in order if name.startswith("norm")] == ["normalise", "norm3", "norm5", "norm7"]
    for number in (3, 5, 7):
        place = order.index(f"norm{number}")
        assert order[place - 2 : place] == [f"conv{number}", f"act{number}"]
    assert {name: model.get_submodule(name).stride for name in ("pool1", "pool2", "pool4", "pool6")} == {
        "pool1": 2,
        "pool2": 2,
        "pool4": (2, 1),
        "pool6": (2, 1),
    }
    cells = model.get_submodule("rnn.cells")
    assert (cells.hidden_size, cells.num_layers, cells.bidirectional) == (256, 2, True)
    assert model.get_submodule("fc").in_features == 512


@pytest.mark.parametrize(
    ("name", "least", "most"), [("crnn", 8_700_000, 8_750_000), ("crnn-small", 250_000, 1_000_000)]
)
def test_sizes(name: str, least: int, most: int) -> None:
    assert least < sum(value.numel() for value in build(name).parameters()) < most


@pytest.mark.parametrize("name", RECOGNISERS)
def test_columns_are_read_from_left_to_right(name: str) -> None:
    """Ink at the left moves the first steps most, ink at the right the last."""
    model = build(name, seed=1)
    paper = torch.zeros(2, 3, 32, 100)
    paper[0, :, :, :12], paper[1, :, :, -12:] = 1, 1
    with torch.no_grad():
        moved = (model(paper) - model(torch.zeros(2, 3, 32, 100))).square().sum(2).sqrt()
    assert int(moved[:, 0].argmax()) < 8
    assert int(moved[:, 1].argmax()) > 16


@pytest.mark.parametrize("name", RECOGNISERS)
def test_too_flat_pictures_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="at least 32×32 pixels, got 31×100"):
        build(name, size=(31, 100))


def test_the_constants_of_words_put_pixels_between_minus_one_and_one() -> None:
    layer = build("crnn-small", normalise="words-plain").get_submodule("normalise")
    assert layer(torch.tensor([0.0, 0.5, 1.0]).expand(1, 3, 1, 3))[0, 0, 0].tolist() == [-1.0, 0.0, 1.0]


def test_the_small_recogniser_learns_a_few_words() -> None:
    from leakscope.data import RenderedWords

    model, task = build("crnn-small", normalise="words-plain"), CTCText()
    batch = RenderedWords("plain").batch(range(8))
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    model.train()
    # Sixty are on the edge: whether six words are read by then depends on how a processor rounds.
    for _ in range(100):
        optimiser.zero_grad()
        loss = task.loss(model(batch.inputs), batch.targets)
        loss.backward()
        optimiser.step()
    model.eval()
    with torch.no_grad():
        assert task.count_correct(model(batch.inputs), batch.targets) >= 6


@pytest.mark.parametrize("name", RECOGNISERS)
def test_the_gradient_of_one_picture_is_that_of_the_picture_twice(name: str) -> None:
    """PyTorch misreads what reaches a batch-normalising layer where one picture makes maps of one row."""
    model, task = build(name).eval(), CTCText()
    picture = torch.rand(1, 3, 32, 100, generator=torch.Generator().manual_seed(0))
    text = torch.tensor([[3, 1, 30]])

    def gradient(count: int) -> list[torch.Tensor]:
        loss = task.loss(model(picture.repeat(count, 1, 1, 1)), text.repeat(count, 1))
        return list(torch.autograd.grad(loss, list(model.parameters())))

    for one, two in zip(gradient(1), gradient(2), strict=True):
        assert float((one - two).norm()) < 1e-3 * float(two.norm())
