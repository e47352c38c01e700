"""Updates made of two states."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

from leakscope.errors import BadInputError
from leakscope.files import check_update, delta, load_update, save_update
from leakscope.types import LocalTraining, SharedUpdate


def _states() -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    before = {name: value.clone() for name, value in nn.BatchNorm1d(3).state_dict().items()}
    return before, {name: value + 1 for name, value in before.items()}


def test_weights_are_subtracted_and_buffers_kept() -> None:
    before, after = _states()
    update = delta(before, after, local=LocalTraining(0.1), num_examples=2)
    assert update.kind == "delta"
    assert {name: value.tolist() for name, value in update.tensors.items()} == {"weight": [1] * 3, "bias": [1] * 3}
    assert torch.equal(update.buffers["running_var"], after["running_var"])
    assert check_update(update, nn.BatchNorm1d(3)).local == LocalTraining(0.1)


def test_half_precision_differences_are_exact() -> None:
    before = {"w": torch.tensor([1000.0]).half()}
    after = {"w": torch.tensor([1000.5]).half()}
    change = delta(before, after).tensors["w"]
    assert (change.dtype, change.item()) == (torch.float32, 0.5)


def test_the_result_does_not_share_memory() -> None:
    before, after = _states()
    update = delta(before, after)
    after["weight"].zero_()
    assert update.tensors["weight"].tolist() == [1] * 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("bias"), "'bias' is only in before"),
        (lambda state: state.update(new=torch.ones(1)), "'new' is only in after"),
        (lambda state: state.update(bias=torch.ones(4)), r"before is \[3\] torch.float32, after is \[4\]"),
        (lambda state: state.update(bias=torch.ones(3).double()), "after is .* torch.float64"),
    ],
)
def test_two_models_do_not_make_a_delta(change, message: str) -> None:
    before, after = _states()
    change(after)
    with pytest.raises(BadInputError, match=message):
        delta(before, after)


def test_integers_alone_are_no_update() -> None:
    with pytest.raises(BadInputError, match="no floating-point weights"):
        delta({"n": torch.ones(1).int()}, {"n": torch.ones(1).int()})


def test_pairs_of_files(tmp_path: Path) -> None:
    before, after = _states()
    safetensors.torch.save_file(before, tmp_path / "before.safetensors")
    safetensors.torch.save_file(after, tmp_path / "after.safetensors")
    for earlier in (before, tmp_path / "before.safetensors", str(tmp_path / "before.safetensors")):
        update = load_update(tmp_path / "after.safetensors", before=earlier, num_examples=4)
        assert (update.kind, update.num_examples) == ("delta", 4)
        assert update.tensors["bias"].tolist() == [1] * 3
    saved = save_update(tmp_path / "u.safetensors", SharedUpdate("delta", {"w": torch.ones(1)}))
    with pytest.raises(BadInputError, match="needs a file of weights"):
        load_update(saved, before=before)
