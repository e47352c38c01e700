"""One valid file of every kind that leakscope reads, small, and how it is read."""

from __future__ import annotations

import gzip
import io
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

import leakscope as ls
from leakscope.audits import load_config
from leakscope.audits.plan import make_plan
from leakscope.files import load_state, load_update, pack_tensors
from leakscope.matching.candidates import load_prior, save_prior
from leakscope.models import load_weights
from leakscope.priors.convolutional import ConvDecoder
from leakscope.priors.prior import Prior
from leakscope.report import write_report
from leakscope.rng import generator, uniform
from leakscope.runner.journal import Journal, encode

_SUMMARY = Path(__file__).parent.parent / "audits" / "run_of_0_1" / "summary.json"
_SLOW = ("yaml config", "update manifest", "summary")
_CONFIG = """\
title: A configuration
models: [mlp]
model_options: {mlp: {hidden: [16, 8], seed: 3}}
data: [digits]
size: 8
bounds: null
victims: 1
batch_size: 2
attacks: ['fc-inversion', 'inverting-gradients:steps=20']
defences: [none, 'prune:fraction=0.9']
scenarios: [C]
seeds: [0]
local: {lr: 0.01, steps: 4, batch_size: 2}
utility: {rounds: 5, clients: 2, batch_size: 4, lr: 0.1, examples: 20}
timeout: 100.0
"""


@dataclass(frozen=True)
class Kind:
    """A file's name and content, and the function that reads it."""

    name: str
    content: bytes
    read: Callable[[Path], object]
    # Takes a tenth of a second and more.
    is_slow: bool = False


def _arrays(save: Callable[..., None]) -> bytes:
    buffer = io.BytesIO()
    save(buffer, inputs=np.linspace(0, 1, 48, dtype=np.float32).reshape(3, 1, 4, 4), targets=np.array([0, 1, 2]))
    return buffer.getvalue()


def _array() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.arange(12.0).reshape(3, 4))
    return buffer.getvalue()


def _picture(form: str) -> bytes:
    buffer = io.BytesIO()
    shades = np.arange(12 * 12 * 3, dtype=np.uint8).reshape(12, 12, 3)
    Image.fromarray(shades).save(buffer, format=form)
    return buffer.getvalue()


def _idx() -> bytes:
    return struct.pack(">4B3I", 0, 0, 8, 3, 2, 28, 28) + bytes(range(256)) * 6 + bytes(32)


def _network() -> nn.Module:
    return ls.models.build("mlp", in_channels=1, image_size=4, num_classes=3, hidden=(5,), normalise="mnist")


def _torch() -> bytes:
    buffer = io.BytesIO()
    torch.save(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).state_dict(), buffer)
    return buffer.getvalue()


def _update(folder: Path) -> bytes:
    model = _network()
    batch = ls.Batch(uniform((4, 1, 4, 4), generator(0, "update")), torch.tensor([0, 1, 2, 0]))
    local = ls.LocalTraining(0.1, epochs=2, batch_size=2, momentum=0.9, schedule="step", decay_every=2)
    return ls.save_update(folder / "made.safetensors", ls.share(model, batch, local=local)).read_bytes()


def _prior(folder: Path) -> bytes:
    decoder = ConvDecoder((1, 12, 12), latent=3, width=2)
    weights = {name: torch.zeros(shape) for name, shape in decoder.shapes().items()}
    return save_prior(folder / "made.prior", Prior(decoder, weights, "nothing")).read_bytes()


def _residual() -> bytes:
    from leakscope.priors.residual import ResidualDecoder

    decoder = ResidualDecoder(2, 4, ((1, "conv"), (3, "block"), (5, "up"), (6, "out")))
    return pack_tensors({name: torch.zeros(shape) for name, shape in decoder.shapes().items()})


def _journal() -> bytes:
    kinds = ("journal", "start", "finish", "start", "finish")
    first = encode({"kind": "journal", "version": 1, "seq": 0})
    return first + b"".join(encode({"kind": kind, "seq": i, "key": f"{i:064x}"}) for i, kind in enumerate(kinds) if i)


def _read_config(path: Path) -> object:
    config = load_config(path)
    # Planning builds networks and reads data: only as much of it as a quick test bears.
    small = config.victims * config.batch_size <= 50 and len(config.attacks) * len(config.defences) < 50
    return make_plan(config) if small and set(config.data) == {"digits"} and config.models == ("mlp",) else config


def _read_update(path: Path) -> object:
    from leakscope.files import check_update
    from leakscope.observation.observe import observe

    network = _network()
    update = check_update(load_update(path, budget_mb=1), network)
    seen = observe(network, update, scenario="C", input_shape=(1, 4, 4))
    try:
        return ls.infer_labels(seen)
    finally:
        ls.get_attack("inverting-gradients", steps=1).reconstruct(seen)


def _read_prior(path: Path) -> object:
    prior = load_prior(path, budget_mb=1).at((1, 12, 12), like=torch.empty(0))
    return prior.decode(prior.sample(1, generator(0, "prior")))


def _read_idx(path: Path) -> object:
    (path.parent / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">4BI", 0, 0, 8, 1, 2) + bytes([3, 7]))
    return ls.data.load("mnist", root=path.parent)


def _read_journal(path: Path) -> object:
    journal = Journal(path)
    journal.close()
    return journal.records


def _read_cifar(path: Path) -> object:
    return ls.data.load("cifar10", root=path.parent)


def _read_pictures(path: Path) -> object:
    return ls.data.load(str(path.parent), size=8)


def readable_files(folder: Path) -> dict[str, Kind]:
    """Every kind by name; `folder` is for files that only a path can be written to."""
    state = {name: value.double() for name, value in _network().state_dict().items()}
    found = [
        ("safetensors", "a.safetensors", pack_tensors(state), lambda path: load_state(path, budget_mb=1)),
        ("weights", "w.safetensors", pack_tensors(state), lambda path: load_weights(_network(), path, budget_mb=1)),
        ("npz", "a.npz", _arrays(np.savez), lambda path: load_state(path, budget_mb=1)),
        ("packed npz", "a.npz", _arrays(np.savez_compressed), lambda path: load_state(path, budget_mb=1)),
        ("npz data", "d.npz", _arrays(np.savez), lambda path: ls.data.load(str(path))),
        ("npy", "a.npy", _array(), lambda path: load_state(path, budget_mb=1)),
        ("pt", "a.pt", _torch(), lambda path: load_state(path, budget_mb=1)),
        ("png folder", "a.png", _picture("PNG"), _read_pictures),
        ("jpeg folder", "a.jpg", _picture("JPEG"), _read_pictures),
        ("gif folder", "a.gif", _picture("GIF"), _read_pictures),
        ("tiff folder", "a.tif", _picture("TIFF"), _read_pictures),
        ("idx", "t10k-images-idx3-ubyte", _idx(), _read_idx),
        ("idx gz", "t10k-images-idx3-ubyte.gz", gzip.compress(_idx(), mtime=0), _read_idx),
        ("cifar", "test_batch.bin", bytes([3]) + bytes(3072), _read_cifar),
        ("yaml config", "c.yaml", _CONFIG.encode(), _read_config),
        ("update manifest", "u.safetensors", _update(folder), _read_update),
        ("prior manifest", "p.safetensors", _prior(folder), _read_prior),
        ("residual prior", "r.safetensors", _residual(), _read_prior),
        ("summary", "summary.json", _short_summary(), lambda path: write_report(path.parent)),
        ("journal", "journal.jsonl", _journal(), _read_journal),
    ]
    return {kind: Kind(name, content, read, kind in _SLOW) for kind, name, content, read in found}


def _short_summary() -> bytes:
    content = json.loads(_SUMMARY.read_text())
    content["cells"] = content["cells"][:2]
    return json.dumps(content).encode()
