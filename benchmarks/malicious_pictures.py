"""Pictures for `malicious_servers.py`, and a client's gradient of many large ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

import leakscope as ls
from leakscope.types import Batch, SharedUpdate


def cifar(count: int, *, size: int = 32) -> Batch:
    """Pictures of different CIFAR-100 classes, the first of each."""
    stored = np.load(Path(os.environ["LEAKSCOPE_DATA"]) / "cifar100.npz")
    labels = np.concatenate([stored["y_test"], stored["y_train"]]).reshape(-1)
    first = np.unique(labels, return_index=True)[1][:count]
    pixels = torch.from_numpy(np.concatenate([stored["x_test"], stored["x_train"]])[first]).permute(0, 3, 1, 2) / 255
    if size != 32:
        pixels = functional.interpolate(pixels, size=size, mode="bilinear").clamp(0, 1)
    return Batch(pixels, torch.from_numpy(labels[first]).long())


def photographs(count: int) -> Batch:
    """ImageNet photographs of different classes, the centre of each at 224 px."""
    paths = sorted((Path(os.environ["LEAKSCOPE_DATA"]) / "imagenet-samples").glob("*.JPEG"))[:count]
    pictures = []
    for path in paths:
        picture = Image.open(path).convert("RGB")
        side = min(picture.size)
        left, top = (picture.width - side) // 2, (picture.height - side) // 2
        square = picture.crop((left, top, left + side, top + side)).resize((224, 224), Image.Resampling.BILINEAR)
        pictures.append(torch.from_numpy(np.asarray(square).copy()).permute(2, 0, 1) / 255)
    return Batch(torch.stack(pictures), torch.tensor([int(path.name.split("_")[0]) for path in paths]))


def mean_gradient(model: nn.Module, batch: Batch, *, chunk: int, task: Any) -> SharedUpdate:
    """The gradient of the batch, a few pictures at a time."""
    total: dict[str, Tensor] = {}
    for place in range(0, len(batch), chunk):
        part = Batch(batch.inputs[place : place + chunk], batch.targets[place : place + chunk])
        update = ls.share(model, part, task=task)
        assert isinstance(update, SharedUpdate)
        for name, value in update.tensors.items():
            total[name] = total.get(name, 0) + value * (len(part) / len(batch))
    return SharedUpdate("gradient", total, num_examples=len(batch))


def garments(count: int, *, seed: int, unique: bool = False) -> Batch:
    """Fashion-MNIST pictures, drawn at random, or one of each class."""
    whole = ls.data.load("fashion-mnist", split="test")
    order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(seed))
    if unique:
        order = torch.tensor([int(order[(whole.targets[order] == label).nonzero()[0, 0]]) for label in range(count)])
    return Batch(whole.inputs[order[:count]], whole.targets[order[:count]])
