"""Honest .pt files load exactly, through the child; dishonest ones stop before it."""

from __future__ import annotations

import io
import zipfile

import pytest
import torch
from torch import nn

from leakscope.errors import BadInputError
from leakscope.files import check_update, load_state, load_update, torch_reader


def test_a_checkpoint_loads_exactly(put, build) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2).to(torch.bfloat16))
    state = model.state_dict()
    state["view"] = torch.arange(12.0).reshape(3, 4).T
    state["slice"] = torch.arange(10)[2:7:2]
    state["empty"] = torch.zeros(0, 3)
    momentum = torch.optim.SGD(model.parameters(), lr=0.1).state_dict()
    path = put("s.pt", build["torch"]({"epoch": 3, "state_dict": state, "optimizer": momentum}))
    loaded = load_state(path)
    assert list(loaded) == list(state)
    for name, value in state.items():
        assert loaded[name].dtype == value.dtype
        assert torch.equal(loaded[name], value)


def test_a_list_of_gradients_takes_the_models_names(put, build) -> None:
    model = nn.Linear(3, 2)
    gradients = [nn.Parameter(torch.randn(2, 3)), torch.randn(2)]
    notes: list[str] = []
    update = check_update(load_update(put("g.pth", build["torch"](gradients))), model, notes=notes)
    assert list(update.tensors) == ["weight", "bias"]
    assert torch.equal(update.tensors["weight"], gradients[0])
    assert "order of the model's parameters" in notes[0]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.ones(1).expand(5), "overlap in memory"),
        (torch.as_strided(torch.ones(4), (3, 2), (1, 1)), "overlap in memory"),
        (torch.ones(2, dtype=torch.complex64), "ComplexFloatStorage"),
        (torch.ones(2).to_sparse(), "_rebuild_sparse_tensor"),
        (torch.ones(2, device="meta"), "mentions"),
        (torch.ones(2).to(torch.float8_e4m3fn), "mentions"),
    ],
)
def test_tensors_that_are_not_plain_are_refused(put, build, value: torch.Tensor, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        load_state(put("s.pt", build["torch"]({"w": value})))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "got 0"),
        ({"a": 1}, "got 0"),
        ([], "list of tensors"),
        ([torch.ones(1), None], "list of tensors only"),
        (3, "list of tensors"),
        ({"a": {"w": torch.ones(1)}, "b": {"w": torch.ones(1)}}, r"got 2 \('a, b'\)"),
        ({"../w": torch.ones(1)}, "path segment"),
        ({("a", "b"): torch.ones(1)}, "key of type tuple"),
    ],
)
def test_other_contents_are_refused(put, build, value: object, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        load_state(put("s.pt", build["torch"](value)))


def test_a_window_beyond_its_storage_is_refused(put, build) -> None:
    with zipfile.ZipFile(io.BytesIO(build["torch"]({"w": torch.ones(7)}))) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    program = members["archive/data.pkl"]
    # One 7 follows the storage's location, the other the offset 0: the count and the shape.
    for old, new, message in (
        (b"QK\0K\7\x85", b"QK\0K\x08\x85", "needs 8 stored elements and holds 7"),
        (b"QK\0K\7\x85", b"QK\1K\7\x85", "needs 8 stored elements and holds 7"),
        (b"K\7tq", b"K\x08tq", "needs 32 bytes, the archive holds 28"),
        (b"X\1\0\0\x000q", b"X\1\0\0\x001q", "the archive holds none"),
    ):
        assert program.count(old) == 1
        members["archive/data.pkl"] = program.replace(old, new)
        with pytest.raises(BadInputError, match=message):
            load_state(put("s.pt", build["zip"](members)))


def test_a_flipped_bit_in_the_data_is_noticed(put, build) -> None:
    data = bytearray(build["torch"]({"w": torch.full((100,), 1.5)}))
    data[data.index(torch.full((4,), 1.5).numpy().tobytes()) + 7] ^= 1
    with pytest.raises(BadInputError, match=r"checksum of 'archive/data/0' differs"):
        load_state(put("s.pt", bytes(data)))


def test_many_views_of_one_storage_do_not_multiply(put, build) -> None:
    block = torch.ones(4096)
    views = {f"w{index}": block.view(64, 64) for index in range(200)}
    with pytest.raises(BadInputError, match="they share storage"):
        load_state(put("s.pt", build["torch"](views)))


@pytest.mark.usefixtures("no_child")
def test_tied_weights_are_fine(put, build) -> None:
    weight = torch.ones(64, 64)
    assert len(load_state(put("s.pt", build["torch"]({"a": weight, "b": weight})))) == 2


def test_disagreement_between_the_two_readers_is_an_error(put, samples) -> None:
    path = put("s.pt", samples[".pt"])
    with path.open("rb") as file:
        source = torch_reader.ByteSource(str(path), file, path.stat().st_size, 2**20)
        _, specs = torch_reader.inspect_torch(source)
        with pytest.raises(BadInputError, match="other tensors than the file describes"):
            torch_reader._compare(source, specs, {"0.weight": torch.zeros(1)})
