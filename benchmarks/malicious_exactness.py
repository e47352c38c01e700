"""How exact the closed forms of malicious servers are, on CIFAR-100 pictures of different classes; a table in a minute.

    LEAKSCOPE_DATA=<folder> python benchmarks/malicious_exactness.py

What the first fully connected layer received (MKOR, raw NLL) and the brackets of every pixel, both on VGG16; the
gradient of the body under class fishing beside the fished example's; Robbing-the-Fed's pictures in bins of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from malicious_pictures import cifar
from torch import Tensor, nn
from torch.nn import functional

import leakscope as ls
from leakscope.attack import CraftContext
from leakscope.attacks.malicious.decoupling.read import read_classes
from leakscope.tasks import Classification
from leakscope.types import Batch

RAW = Classification(loss=functional.nll_loss)
CLASSES, SIDE = 20, 64


class Figure(NamedTuple):
    """The largest error of one closed form, the size of what it is an error of, and how small it must be beside it."""

    what: str
    error: float
    size: float
    aim: float


def play(attack: Any, model: nn.Module, batch: Batch, *, task: Any = None) -> Any:
    """One round: craft, share; what the server observes, with its secret."""
    context = CraftContext(input_shape=tuple(batch.inputs.shape[1:]), num_classes=CLASSES)
    crafted = attack.craft(model, context=context)
    update = ls.share(crafted.model, batch, task=task)
    return replace(ls.observe(crafted.model, update, truth=batch, task=task), secret=crafted.secret)


def mkor() -> Iterator[Figure]:
    """Features and brackets, in both forms."""
    batch = cifar(CLASSES, size=SIDE)
    for form in ("naive", "inconspicuous"):
        attack: Any = ls.get_attack("mkor", form=form, loss="raw-nll")
        seen = play(attack, ls.models.build("vgg16", num_classes=CLASSES, image_size=SIDE), batch, task=RAW)
        found, _ = read_classes(seen, seen.secret.paths, has_softmax=False)
        received = _received(seen.model, batch)
        error = torch.stack([one.features for one in found]) - received
        name = f"MKOR, {form}: what the first linear layer received"
        yield Figure(name, float(error.abs().max()), float(received.abs().max()), 1e-6)
        bounds = attack.bounds(seen)
        outside = torch.maximum(bounds.lower - batch.inputs, batch.inputs - bounds.upper)
        # A pixel may be its own bound, computed in another order.
        yield Figure(
            f"MKOR, {form}: pixels outside their brackets, furthest", max(0.0, float(outside.max())), 1.0, 1e-6
        )


def _received(model: nn.Module, batch: Batch) -> Tensor:
    """What the first linear layer receives for each example."""
    layer = next(module for module in model.modules() if isinstance(module, nn.Linear))
    found: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _layer, inputs: found.append(inputs[0].detach()))
    with torch.no_grad():
        model(batch.inputs)
    hook.remove()
    return found[0]


def class_fishing() -> Iterator[Figure]:
    """The body's gradient of the batch, and of the fished example alone over the size of the batch."""
    # In single precision the gradient of a deep network depends on how many examples are added up together.
    for network, kind in (("lenet5", torch.float32), ("resnet20", torch.float32), ("resnet20", torch.float64)):
        batch = cifar(CLASSES).to(dtype=kind)
        model = ls.models.build(network, num_classes=CLASSES).to(kind)
        seen = play(ls.get_attack("class-fishing", target=4), model, batch)
        alone = ls.share(seen.model, Batch(batch.inputs[4:5], batch.targets[4:5]))
        assert isinstance(alone, ls.SharedUpdate)
        body = [name for name in alone.tensors if not name.startswith(seen.secret.head)]
        wanted = {name: alone.tensors[name] / len(batch) for name in body}
        error = max(float((seen.update.tensors[name] - wanted[name]).abs().max()) for name in body)
        size = max(float(value.abs().max()) for value in wanted.values())
        name = f"class fishing, {network} in {str(kind)[6:]}: gradient of the body − the example's / {len(batch)}"
        yield Figure(name, error, size, 1e-6)


def robbing_the_fed() -> Iterator[Figure]:
    """Pictures that fell into bins of their own, beside the nearest of the batch."""
    batch = cifar(CLASSES)
    attack = ls.get_attack("robbing-the-fed", bins=400)
    seen = play(attack, ls.models.build("lenet5", num_classes=CLASSES), batch)
    found = attack.reconstruct(seen)
    assert found.members is not None
    single = [place for place, count in enumerate(found.members) if count == 1]
    distances = (found.inputs[single][:, None] - batch.inputs).abs().flatten(2).amax(2)
    assert len(set(distances.argmin(1).tolist())) == len(single), "one picture was found twice"
    name = f"Robbing-the-Fed, lenet5: {len(single)} of {len(batch)} pictures in bins of their own"
    yield Figure(name, float(distances.amin(1).max()), 1.0, 1e-4)


def main() -> None:
    """Print one line for each."""
    torch.set_num_threads(1)
    print("| what | largest error | largest value | aim, of it | |\n|---|---|---|---|---|")
    for part in (mkor, class_fishing, robbing_the_fed):
        for one in part():
            verdict = "holds" if one.error <= one.aim * one.size else "FAILS"
            print(f"| {one.what} | {one.error:.1e} | {one.size:.2g} | {one.aim:.0e} | {verdict} |", flush=True)


if __name__ == "__main__":
    main()
