"""What malicious servers take, beside the figures of the MKOR paper; one line of JSON a run, none is run twice.

    LEAKSCOPE_DATA=<folder> python benchmarks/malicious_servers.py --out table.jsonl --parts strided failing defences

strided   the two modified networks, a hundred CIFAR-100 pictures of different classes (paper: 156.7 dB)
failing   cross-entropy with every class in the batch
vgg       VGG16 at 224 px with CIFAR-100 pictures of different classes (paper, raw NLL: 24.14 dB, SSIM 0.87)
imagenet  ImageNet photographs at 224 px, and what a thousand would take
defences  relative Gaussian noise on the gradient, Soteria, transformed pictures, on the copying network and LeNet-5
lenet     LeNet-5 and its strided form, batches of a hundred with repeated labels, beside four other attacks
          (the paper's Table 2: 12.79 dB and SSIM 0.27 on average for MKOR, 13.53 and 0.38 strided)

Gradients of many large pictures are computed in chunks and averaged: the networks have no batch statistics.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from malicious_pictures import cifar, garments, mean_gradient, photographs
from torch import nn
from torch.nn import functional

import leakscope as ls
from leakscope.attack import CraftContext
from leakscope.attacks.idlg import idlg
from leakscope.errors import UnsuitableError
from leakscope.matching.labels import Known
from leakscope.metrics import psnr, ssim
from leakscope.tasks import Classification
from leakscope.types import Batch, Reconstruction

RAW = Classification(loss=functional.nll_loss)
Row = dict[str, Any]
Job = tuple[Row, Callable[[], Row]]


def large(batch: Batch, *, classes: int, chunk: int, options: Row) -> Row:
    """MKOR on VGG16 with times, memory and bounds."""
    size = batch.inputs.shape[-1]
    attack: Any = ls.get_attack("mkor", **options)
    task = RAW if options.get("loss") == "raw-nll" else None
    began = time.perf_counter()
    context = CraftContext(input_shape=(3, size, size), num_classes=classes)
    crafted = attack.craft(ls.models.build("vgg16", num_classes=classes, image_size=size), context=context)
    crafted_at = time.perf_counter()
    worked = time.process_time()
    update = mean_gradient(crafted.model, batch, chunk=chunk, task=task)
    sent_at, worked = time.perf_counter(), time.process_time() - worked
    seen = replace(ls.observe(crafted.model, update, truth=batch, task=task), secret=crafted.secret)
    seen_at = time.perf_counter()
    found = attack.reconstruct(seen)
    read_at = time.perf_counter()
    bounds, order = attack.bounds(seen), batch.targets.argsort()
    outside = max(float((bounds.lower - batch.inputs[order]).max()), float((batch.inputs[order] - bounds.upper).max()))
    return {
        **summarise(ls.score(found, batch)),
        "status": str(found.status),
        "outside_bounds": outside,
        "craft_s": round(crafted_at - began, 1),
        "gradient_s": round(sent_at - crafted_at, 1),
        # What the gradient takes of one core, however busy the machine is with other work.
        "gradient_cpu_s": round(worked, 1),
        "observe_s": round(seen_at - sent_at, 1),
        "read_s": round(read_at - seen_at, 1),
        "gradient_share": round((sent_at - crafted_at) / (read_at - began), 3),
        "peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }


def summarise(scores: Any) -> Row:
    """Averages and largest values over the examples."""
    return {
        "psnr": round(float(scores.psnr.mean()), 2),
        "psnr_max": round(float(scores.psnr.max()), 2),
        "ssim": round(float(scores.ssim.mean()), 3),
        "ssim_max": round(float(scores.ssim.max()), 3),
    }


def by_class(found: Reconstruction, batch: Batch) -> Row:
    """As the paper counts repeated labels: the one result of a class beside every picture of it."""
    assert found.targets is not None
    places = {int(label): place for place, label in enumerate(found.targets)}
    known = [place for place, label in enumerate(batch.targets.tolist()) if label in places]
    guesses = torch.stack([found.inputs[places[int(batch.targets[place])]] for place in known])
    truth = batch.inputs[known]
    values = {"psnr": psnr(guesses, truth), "ssim": ssim(guesses, truth)}
    return {
        **{name: round(float(value.sum() / len(batch)), 3) for name, value in values.items()},
        **{f"{name}_max": round(float(value.max()), 3) for name, value in values.items()},
    }


def audited(model: nn.Module, batch: Batch, attack: Any, **options: Any) -> Row:
    """One cell as leakscope audits it."""
    began = time.perf_counter()
    try:
        result = ls.audit(model, batch, attack, prior_alone=False, **options)
    except UnsuitableError as reason:
        return {"status": "refused", "notes": [str(reason)]}
    row = {"status": str(result.status), "seconds": round(time.perf_counter() - began, 1), "notes": result.notes[-1:]}
    if result.scores is not None:
        row |= summarise(result.scores)
    if result.trained_scores is not None:
        row |= {f"trained_{name}": value for name, value in summarise(result.trained_scores).items()}
    return row


def strided(_chosen: argparse.Namespace) -> Iterator[Job]:
    """The modified networks, which lose nothing."""
    for network in ("mkor-strided", "mkor-copy"):
        for form in ("naive", "inconspicuous"):
            for loss, count in (("raw-nll", 100), ("cross-entropy", 99)):
                model = ls.models.build(network, num_classes=100)
                attack = ls.get_attack("mkor", form=form, loss=loss)
                task = RAW if loss == "raw-nll" else None
                key = {"part": "strided", "network": network, "form": form, "loss": loss, "pictures": count}
                yield key, lambda m=model, n=count, a=attack, t=task: audited(m, cifar(n), a, task=t)


def failing(_chosen: argparse.Namespace) -> Iterator[Job]:
    """Every class occurs under cross-entropy."""
    model = ls.models.build("mkor-strided", num_classes=100)
    for variant in ("absent-class", "dump-class"):
        key = {"part": "failing", "network": "mkor-strided", "variant": variant, "pictures": 100}
        yield key, lambda v=variant: audited(model, cifar(100), ls.get_attack("mkor", variant=v))


def vgg(chosen: argparse.Namespace) -> Iterator[Job]:
    """VGG16 with enlarged CIFAR-100 pictures."""
    for form, loss in (("naive", "cross-entropy"), ("inconspicuous", "cross-entropy"), ("naive", "raw-nll")):
        options = {"form": form, "loss": loss}
        count = min(chosen.pictures, 99 if loss == "cross-entropy" else 100)
        key = {"part": "vgg", "pictures": count, "size": chosen.size, **options}
        yield (
            key,
            lambda n=count, o=options: large(cifar(n, size=chosen.size), classes=100, chunk=chosen.chunk, options=o),
        )


def imagenet(chosen: argparse.Namespace) -> Iterator[Job]:
    """Photographs, and the plan for a thousand."""
    count = min(chosen.pictures, 16)

    def run() -> Row:
        row = large(photographs(count), classes=1000, chunk=min(chosen.chunk, count), options={})
        # Crafting does not depend on the batch; reading grows with the classes that occur.
        hours = (row["craft_s"] + 1000 / count * (row["gradient_cpu_s"] + row["read_s"])) / 3600
        memory = row["peak_gb"] + 1000 * 25088 * 8 / 2**30
        return row | {"a_thousand": {"core_hours": round(hours, 2), "peak_gb": round(memory, 2)}}

    yield {"part": "imagenet", "pictures": count}, run


def defences(_chosen: argparse.Namespace) -> Iterator[Job]:
    """What the paper puts MKOR against."""
    specs = ["none", *(f"gaussian-noise:sigma={size},relative=True" for size in (1e-4, 1e-3, 1e-2, 1e-1))]
    for network, batch, classes in (("mkor-copy", cifar(99), 100), ("lenet5", garments(10, seed=0, unique=True), 10)):
        shape = batch.inputs.shape
        model = ls.models.build(network, num_classes=classes, in_channels=shape[1], image_size=shape[2])
        # Soteria takes one derivative for each feature and example: too many on the copying network.
        for spec in [
            *specs,
            "transforms:policy=3-1-7",
            *(["soteria", "soteria:layer=fc1"] if network == "lenet5" else []),
        ]:
            key = {"part": "defences", "network": network, "defence": spec}
            # Under noise the paper grants the labels.
            options = {"defence": spec, "scenario": "B", "task": RAW}
            yield key, lambda m=model, b=batch, o=options: audited(m, b, ls.get_attack("mkor", loss="raw-nll"), **o)


def lenet(chosen: argparse.Namespace) -> Iterator[Job]:
    """Table 2 of the paper."""
    # iDLG's rule reads one label; on a batch what is left of it is DLG with known labels.
    known = idlg(steps=chosen.steps, retries=0).revised(lambda recipe: replace(recipe, labels=Known()))
    attacks = {
        "mkor": ls.get_attack("mkor", loss="raw-nll"),
        "mkor, dump class": ls.get_attack("mkor", variant="dump-class"),
        "inverting-gradients": ls.get_attack("inverting-gradients", steps=chosen.steps),
        "dlg": ls.get_attack("dlg", steps=chosen.steps, restarts=1, retries=0),
        "idlg, labels known": replace(known, num_examples=None),
        "class-fishing": ls.get_attack("class-fishing", searches=12, steps=chosen.steps),
    }
    for network in ("lenet5", "lenet5-strided"):
        model = ls.models.build(network, num_classes=10, in_channels=1, image_size=28)
        for number in range(chosen.batches):
            for name in chosen.attacks or attacks:
                key = {
                    "part": "lenet",
                    "network": network,
                    "batch": number,
                    "pictures": chosen.pictures,
                    "attack": name,
                }
                if not name.startswith("mkor"):
                    key["steps"] = chosen.steps
                yield (
                    key,
                    lambda m=model, a=attacks[name], n=number: _lenet_row(m, a, garments(chosen.pictures, seed=n)),
                )


def _lenet_row(model: nn.Module, attack: Any, batch: Batch) -> Row:
    if attack.name != "mkor":
        # Labels are granted to the honest ones, for whom a hundred examples are hard enough.
        return audited(model, batch, attack, scenario="C" if attack.is_malicious else "B")
    task = RAW if attack.loss == "raw-nll" else None
    crafted = attack.craft(model, context=CraftContext(input_shape=(1, 28, 28), num_classes=10))
    update = ls.share(crafted.model, batch, task=task)
    found = attack.reconstruct(
        replace(ls.observe(crafted.model, update, truth=batch, task=task), secret=crafted.secret)
    )
    # Counted as the paper counts, and as an audit does: a mixture belongs to one example at most.
    fair = {f"assigned_{name}": value for name, value in summarise(ls.score(found, batch)).items()}
    return {"status": str(found.status), **by_class(found, batch), **fair}


PARTS = {one.__name__: one for one in (strided, failing, vgg, imagenet, defences, lenet)}


def main() -> None:
    """Run what is missing, print every line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--pictures", type=int, default=100, help="in a batch of vgg, imagenet (at most 16) and lenet")
    parser.add_argument("--size", type=int, default=224, help="side of the pictures of vgg")
    parser.add_argument("--chunk", type=int, default=4, help="pictures at a time in gradients of vgg and imagenet")
    parser.add_argument("--batches", type=int, default=10, help="of lenet")
    parser.add_argument("--steps", type=int, default=300, help="of the attacks beside MKOR in lenet")
    parser.add_argument("--attacks", nargs="+", help="only these in lenet")
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    for part in chosen.parts:
        for key, run in PARTS[part](chosen):
            lines = [json.loads(line) for line in chosen.out.read_text().splitlines()] if chosen.out.exists() else []
            if any(key.items() <= {name: line.get(name) for name in key}.items() for line in lines):
                continue
            row = key | run()
            with chosen.out.open("a") as stream:
                stream.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
