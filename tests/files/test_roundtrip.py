"""What save_update writes, load_update returns, and other readers of safetensors understand."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes

from leakscope.errors import BadInputError, UsageError
from leakscope.files import load_state, load_update, save_update
from leakscope.rng import generator, normal
from leakscope.types import LocalTraining, SharedUpdate

_NAMES = st.from_regex(r"[a-zé_]{1,8}(\.[a-z0-9]{1,4}){0,2}", fullmatch=True)
_DTYPES = st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool])
_AMOUNT = {"lr": st.floats(1e-9, 1e3), "batch_size": st.integers(1, 99), "weight_decay": st.floats(0, 1)}
_SHARE = st.floats(0.01, 0.99)
_LOCAL = st.one_of(
    st.builds(LocalTraining, **_AMOUNT, steps=st.integers(1, 99), shuffle=st.booleans()),
    st.builds(
        LocalTraining,
        **_AMOUNT,
        epochs=st.integers(1, 9),
        drop_last=st.booleans(),
        momentum=_SHARE,
        dampening=_SHARE,
        schedule=st.just("step"),
        decay_every=st.integers(1, 9),
        decay_factor=_SHARE,
    ),
    st.builds(LocalTraining, **_AMOUNT, momentum=_SHARE, nesterov=st.booleans(), schedule=st.just("linear")),
    st.builds(
        LocalTraining,
        **_AMOUNT,
        optimiser=st.sampled_from(["adam", "adamw"]),
        betas=st.tuples(_SHARE, _SHARE),
        eps=st.floats(1e-12, 1e-2),
        schedule=st.just("cosine"),
        final_fraction=_SHARE,
    ),
)


@st.composite
def _updates(draw: st.DrawFn) -> SharedUpdate:
    names = draw(st.lists(_NAMES, min_size=1, max_size=6, unique=True))
    tensors = {}
    for index, name in enumerate(names):
        shape = draw(array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
        tensors[name] = normal(shape, generator(index)).to(draw(_DTYPES))
    cut = draw(st.integers(1, len(names)))
    return SharedUpdate(
        draw(st.sampled_from(["gradient", "delta"])),
        {name: tensors[name] for name in names[:cut]},
        draw(st.none() | st.integers(1, 10**6)),
        draw(st.none() | _LOCAL),
        {name: tensors[name] for name in names[cut:]},
    )


@settings(max_examples=100, deadline=None)
@given(update=_updates())
def test_save_then_load_is_the_identity(update: SharedUpdate) -> None:
    with tempfile.TemporaryDirectory() as folder:
        loaded = load_update(save_update(Path(folder) / "u.safetensors", update))
    assert (loaded.kind, loaded.num_examples, loaded.local) == (update.kind, update.num_examples, update.local)
    for before, after in ((update.tensors, loaded.tensors), (update.buffers, loaded.buffers)):
        assert list(before) == list(after)
        for name, value in before.items():
            assert after[name].dtype == value.dtype
            assert torch.equal(after[name], value)


def _update() -> SharedUpdate:
    return SharedUpdate("delta", {"w": torch.ones(2, 3)}, num_examples=3)


def test_the_library_reads_what_we_write(tmp_path: Path) -> None:
    path = save_update(tmp_path / "u.safetensors", _update())
    assert torch.equal(safetensors.torch.load_file(path)["w"], torch.ones(2, 3))


def test_we_read_what_the_library_writes(put, samples, build) -> None:
    loaded = load_state(put("foreign.safetensors", samples[".safetensors"]))
    for name, value in build["tensors"]().items():
        assert loaded[name].dtype == value.dtype
        assert torch.equal(loaded[name], value)


def test_a_foreign_file_is_a_gradient_unless_the_caller_says_otherwise(put, samples) -> None:
    path = put("foreign.safetensors", samples[".safetensors"])
    assert load_update(path).kind == "gradient"
    update = load_update(path, kind="delta", num_examples=2, local=LocalTraining(0.1))
    assert (update.kind, update.num_examples, update.local) == ("delta", 2, LocalTraining(0.1))
    assert list(update.buffers) == ["bn.num_batches_tracked"]


def test_caller_and_manifest_must_agree(tmp_path: Path) -> None:
    path = save_update(tmp_path / "u.safetensors", _update())
    assert load_update(path, local=LocalTraining(0.5)).local == LocalTraining(0.5)
    with pytest.raises(BadInputError, match="file says kind=delta, the caller kind=gradient"):
        load_update(path, kind="gradient")
    with pytest.raises(BadInputError, match="num_examples=3"):
        load_update(path, num_examples=4)


_MANIFEST = {"format": 1, "kind": "delta", "num_examples": None, "local": None, "tensors": ["w"], "buffers": []}


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("{}", "not valid at 'format'"),
        ("not json", "not valid"),
        (_MANIFEST | {"format": 2}, "at 'format'.* update leakscope"),
        (_MANIFEST | {"num_examples": 0}, "at 'num_examples'"),
        (_MANIFEST | {"local": {"lr": -1.0, "steps": 1, "batch_size": 1}}, "at 'local.lr'"),
        (_MANIFEST | {"local": {"lr": 0.1, "moment": 0.9}}, "at 'local.moment'.* update leakscope"),
        (_MANIFEST | {"local": {"lr": 0.1, "optimiser": "adm"}}, "at 'local'.*Did you mean 'adam'"),
        (_MANIFEST | {"local": {"lr": 0.1, "optimiser": "adam", "momentum": 0.9}}, "momentum has no effect"),
        (_MANIFEST | {"local": {"lr": 0.1, "steps": 1, "epochs": 1}}, "steps or epochs"),
        (_MANIFEST | {"num_exmaples": 1}, "at 'num_exmaples'"),
        (_MANIFEST | {"tensors": ["v"]}, "other tensors"),
        (_MANIFEST | {"tensors": ["w", "w"]}, "other tensors"),
        (_MANIFEST | {"tensors": [], "buffers": ["w"]}, "empty"),
    ],
)
def test_a_wrong_manifest_is_refused(put, manifest: str | dict, message: str) -> None:
    text = manifest if isinstance(manifest, str) else json.dumps(manifest | {"leakscope": "1"})
    data = safetensors.torch.save({"w": torch.ones(1)}, metadata={"leakscope": text})
    with pytest.raises(BadInputError, match=message):
        load_update(put("u.safetensors", data))


def test_tied_and_strided_tensors_are_saved_by_value(tmp_path: Path) -> None:
    weight = torch.arange(6.0).reshape(2, 3)
    update = SharedUpdate("gradient", {"a": weight, "b": weight, "c": weight.T, "d": torch.zeros(1).expand(4)})
    loaded = load_update(save_update(tmp_path / "u.safetensors", update)).tensors
    assert torch.equal(loaded["a"], loaded["b"])
    assert torch.equal(loaded["c"], weight.T)
    assert loaded["d"].shape == (4,)


def test_what_cannot_be_loaded_is_not_saved(tmp_path: Path) -> None:
    one = torch.ones(1)
    for update in (
        SharedUpdate("gradient", {"a": one}, buffers={"a": one}),
        SharedUpdate("gradient", {"../a": one}),
        SharedUpdate("gradient", {"a": one.to(torch.complex64)}),
    ):
        with pytest.raises(BadInputError):
            save_update(tmp_path / "u.safetensors", update)
    assert list(tmp_path.iterdir()) == []


def test_names_are_given_to_tensors_without_them(put, samples) -> None:
    path = put("g.npy", samples[".npy"])
    assert list(load_update(path).tensors) == ["0"]
    assert list(load_update(path, names=["fc.weight"]).tensors) == ["fc.weight"]
    with pytest.raises(BadInputError, match="expected 1 different names, got 2"):
        load_update(path, names=["a", "b"])
    with pytest.raises(BadInputError, match="has its own"):
        load_update(put("n.npz", samples[".npz"]), names=["a", "b", "c", "d"])


def test_wrong_arguments_are_usage_errors(put, samples) -> None:
    path = put("g.npy", samples[".npy"])
    with pytest.raises(UsageError, match="kind"):
        load_update(path, kind="weights")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="before="):
        load_update(path, kind="gradient", before={})
    with pytest.raises(UsageError, match="budget_mb"):
        load_update(path, budget_mb=0)
    with pytest.raises(UsageError, match="expected a path"):
        load_update(3)  # type: ignore[arg-type]


def test_local_training_as_0_1_wrote_it_loads(put) -> None:
    local = {"lr": 0.1, "steps": 3, "batch_size": 2}
    manifest = json.dumps(_MANIFEST | {"local": local, "leakscope": "0.1.0"})
    data = safetensors.torch.save({"w": torch.ones(1)}, metadata={"leakscope": manifest})
    assert load_update(put("u.safetensors", data)).local == LocalTraining(0.1, 3, 2)


def test_plain_sgd_is_written_as_0_1_reads_it(tmp_path: Path) -> None:
    update = SharedUpdate("delta", {"w": torch.ones(2)}, local=LocalTraining(0.1, 3, 2))
    path = save_update(tmp_path / "u.safetensors", update)
    with safetensors.safe_open(path, "pt") as file:
        stored = json.loads(file.metadata()["leakscope"])
    assert stored["local"] == {"lr": 0.1, "steps": 3, "batch_size": 2}
