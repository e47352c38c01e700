"""P4: names, shapes, dtypes and values are checked against the model before any compute."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from leakscope.errors import BadInputError
from leakscope.files import check_update
from leakscope.rng import generator, normal_like
from leakscope.types import SharedUpdate


def _model() -> nn.Module:
    layers = [nn.Conv2d(3, 4, 5), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(6, 8), nn.Linear(8, 2)]
    return nn.Sequential(*layers)


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    rng = generator(0)
    return {name: normal_like(value.detach(), rng) for name, value in model.named_parameters()}


def _checked(tensors: dict[str, Tensor], **options: object) -> SharedUpdate:
    return check_update(SharedUpdate("gradient", tensors), _model(), **options)  # type: ignore[arg-type]


def test_a_fitting_update_is_returned_unchanged() -> None:
    model = _model()
    tensors = _tensors(model)
    notes: list[str] = []
    update = check_update(SharedUpdate("delta", tensors, num_examples=3), model, notes=notes)
    assert (update.kind, update.num_examples, notes) == ("delta", 3, [])
    assert all(torch.equal(update.tensors[name], value) for name, value in tensors.items())


def test_order_follows_the_model() -> None:
    tensors = dict(reversed(_tensors(_model()).items()))
    assert list(_checked(tensors).tensors) == [name for name, _ in _model().named_parameters()]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("4.bias"), r"'4.bias' is missing \(1 of 8 .*partial=True"),
        (lambda t: t.update({"4.bais": t.pop("4.bias")}), "no such parameter .* did you mean '4.bias'"),
        (lambda t: t.update({"zzzz": torch.ones(1)}), "no such parameter .* is this the right model"),
        (lambda t: t.update({"3.weight": t["3.weight"].T}), r"expected shape \[8, 6\], got \[6, 8\]; it looks transp"),
        (lambda t: t.update({"0.weight": t["0.weight"].permute(0, 2, 3, 1)}), "axes look permuted"),
        (lambda t: t.update({"0.weight": t["0.weight"].flatten(1)}), r"use tensor.reshape\(4, 3, 5, 5\)"),
        (lambda t: t.update({"3.weight": torch.ones(9, 6)}), "right model"),
        (lambda t: t.update({"3.weight": t["4.weight"], "4.weight": t["3.weight"]}), "'4.weight' has the shape .*perm"),
        (lambda t: t.update({"4.bias": torch.ones(0)}), r"got \[0\]"),
        (lambda t: t.update({"4.bias": torch.ones(2, dtype=torch.int8)}), "int8; undo the quantisation"),
        (lambda t: t.update({"4.bias": torch.ones(2, dtype=torch.bool)}), "torch.bool"),
        (lambda t: t.update({"4.bias": torch.ones(2, dtype=torch.complex64)}), "complex64"),
        (lambda t: t.update({"4.bias": torch.tensor([1.0, float("nan")])}), "'4.bias': 1 NaN and 0 Inf among 2"),
        (lambda t: t.update({"4.bias": torch.tensor([float("inf"), -float("inf")])}), "0 NaN and 2 Inf"),
        (lambda t: t.update({"4.bias": torch.tensor([1.0, float("nan")]).half()}), "1 NaN .* of torch.float16"),
        (
            lambda t: t.update({"4.bias": torch.tensor([1e300, 0], dtype=torch.float64)}),
            "1 Inf among 2 values of torch.float32",
        ),
        (lambda t: t.update({"1.running_mean": torch.full((4,), float("nan"))}), "'1.running_mean': 4 NaN"),
    ],
)
def test_what_does_not_fit_is_named(change, message: str) -> None:
    tensors = _tensors(_model())
    change(tensors)
    with pytest.raises(BadInputError, match=message):
        _checked(tensors)


def test_partial_updates_are_accepted_on_request() -> None:
    tensors = {"4.bias": torch.ones(2)}
    assert list(_checked(tensors, partial=True).tensors) == ["4.bias"]
    with pytest.raises(BadInputError, match="7 of 8"):
        _checked(tensors)


def test_frozen_parameters_need_not_be_shared() -> None:
    model = _model()
    tensors = _tensors(model)
    for name in ("0.weight", "0.bias"):
        model.get_parameter(name).requires_grad_(False)
        del tensors[name]
    assert len(check_update(SharedUpdate("gradient", tensors), model).tensors) == 6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precision_is_converted_with_one_note(dtype: torch.dtype) -> None:
    tensors = {name: value.to(dtype) for name, value in _tensors(_model()).items()}
    notes = ["earlier"]
    update = _checked(tensors, notes=notes)
    assert {value.dtype for value in update.tensors.values()} == {torch.float32}
    assert notes == ["earlier", f"tensors were converted from {dtype} to the model's torch.float32"]


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.", "module._orig_mod."])
def test_wrapper_prefixes_come_off(prefix: str) -> None:
    tensors = _tensors(_model())
    notes: list[str] = []
    update = _checked({prefix + name: value for name, value in tensors.items()}, notes=notes)
    assert list(update.tensors) == list(tensors)
    assert "wrapper prefixes" in notes[0]


def test_a_wrapped_model_takes_bare_names() -> None:
    model = nn.DataParallel(_model())
    update = check_update(SharedUpdate("gradient", _tensors(_model())), model)
    assert next(iter(update.tensors)) == "module.0.weight"


def test_a_state_dict_is_split_into_weights_and_buffers() -> None:
    model = _model()
    update = check_update(SharedUpdate("delta", model.state_dict()), model)
    assert list(update.tensors) == [name for name, _ in model.named_parameters()]
    assert set(update.buffers) == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    with pytest.raises(BadInputError, match="only buffers"):
        check_update(SharedUpdate("delta", {"1.running_mean": torch.ones(4)}), model)


def test_buffers_with_names_of_their_own_are_known_from_the_model() -> None:
    model = nn.Linear(2, 1)
    model.register_buffer("scale", torch.ones(1))
    update = check_update(SharedUpdate("delta", model.state_dict()), model)
    assert list(update.buffers) == ["scale"]


def test_positions_become_names() -> None:
    values = list(_tensors(_model()).values())
    update = _checked({str(index): value for index, value in enumerate(values)})
    assert list(update.tensors) == [name for name, _ in _model().named_parameters()]
    with pytest.raises(BadInputError, match="no such parameter"):
        _checked({str(index): value for index, value in enumerate(values[:-1])})


class _Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 3, bias=False)
        self.b = nn.Linear(3, 3, bias=False)
        self.b.weight = self.a.weight


def test_tied_parameters_count_once() -> None:
    model, value = _Tied(), torch.ones(3, 3)
    for tensors in ({"a.weight": value}, {"b.weight": value}, {"a.weight": value, "b.weight": value}):
        assert list(check_update(SharedUpdate("gradient", tensors), model).tensors) == ["a.weight"]
    with pytest.raises(BadInputError, match="are tied in the model, but differ"):
        check_update(SharedUpdate("gradient", {"a.weight": value, "b.weight": 2 * value}), model)


def test_neither_model_nor_update_is_touched() -> None:
    model = _model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    tensors = {name: value.half() for name, value in _tensors(model).items()}
    check_update(SharedUpdate("gradient", tensors), model)
    assert all(value.dtype == torch.float16 for value in tensors.values())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
