"""`leakscope inspect`: one answer, its exit code, the page, and files that are refused."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from leakscope import models
from leakscope.files import write_tensors
from leakscope.inspection import calibration, fingerprint

Command = Callable[..., tuple[int, str, str]]
SHAPE = ("--arch", "mlp", "--input-shape", "1,8,8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an honest model of the last round and this one, and a crafted one."""
    monkeypatch.chdir(tmp_path)
    network = models.build("mlp", in_channels=1, image_size=8)
    write_tensors("last.safetensors", network.state_dict())
    with torch.no_grad():
        for value in network.parameters():
            value.mul_(1.01)
    write_tensors("good.safetensors", network.state_dict())
    with torch.no_grad():
        network.get_parameter("fc3.weight").zero_()[0] = 0.5
        network.get_parameter("fc3.bias").fill_(1000.0)[0] = 0.0
    write_tensors("bad.safetensors", network.state_dict())
    return tmp_path


def test_an_honest_model_is_clean_and_weights_alone_are_called_so(folder: Path, command: Command) -> None:
    code, out, err = command("inspect", "good.safetensors", *SHAPE)
    assert (code, err) == (0, "")
    assert out.startswith("WEIGHTS ONLY: no listed construction was found")
    assert "not detected: SEER-class" in out
    held = calibration()["held_out"]
    assert f"{held['false_alarms']} of {held['honest']} honest ones raised a false alarm" in out
    assert f"{held['detected']} of {held['crafted']} crafted ones were found" in out
    assert "not checked: firing-rates: needs at least 16 examples of your own, got 0" in out
    state = models.load_weights(models.build("mlp", in_channels=1, image_size=8), "good.safetensors").state_dict()
    assert f"fingerprint: {fingerprint(state)}" in out
    assert oct((folder / "runs/inspect/inspection.html").stat().st_mode)[-3:] == "600"


def test_a_crafted_model_is_refused_with_exit_code_1(folder: Path, command: Command) -> None:
    words = ("inspect", "bad.safetensors", "--arch", "mlp", "--batch", "digits", "--previous", "last.safetensors")
    code, out, _ = command(*words, "--json")
    result = json.loads(out)
    assert (code, result["exit_code"], result["answer"], result["passive"]) == (1, 1, "no", None)
    assert {"zeros", "head", "round-change"} <= {one["detector"] for one in result["findings"]}
    worst = result["findings"][0]
    assert worst["evidence"][0]["tensor"] == "fc3.weight"
    assert worst["evidence"][0]["value"] > worst["limit"]
    assert json.loads((folder / "runs/inspect/inspection.json").read_text()) == result
    page = (folder / "runs/inspect/inspection.html").read_text()
    assert "<script" not in page
    assert "SEER-class" in page
    assert "fc3.weight" in page


def test_what_an_honest_server_could_take_is_in_the_same_answer(folder: Path, command: Command) -> None:
    words = ("inspect", "good.safetensors", "--arch", "mlp", "--batch", "digits", "--budget", "1s", "--quiet")
    code, out, _ = command(*words)
    assert code == 0
    assert out.startswith(
        "ONLY WITH A DEFENCE: no listed construction was found, but an honest server could take this:"
    )
    assert "fc-inversion on an update of 1 example: grade F" in out
    code, out, _ = command(*words, "--fail-above", "30")
    assert (code, "above the gate of 30 dB" in out) == (1, True)
    code, out, _ = command(*words, "--budget", "none")
    assert (code, out.split(":")[0]) == (0, "YES, AS FAR AS WAS CHECKED")


def test_another_fingerprint_is_a_finding(folder: Path, command: Command) -> None:
    code, out, _ = command("inspect", "good.safetensors", *SHAPE, "--hash", "0" * 64)
    assert (code, "same-for-all" in out) == (1, True)


def test_an_architecture_that_was_not_agreed_is_a_finding(folder: Path, command: Command) -> None:
    code, out, _ = command("inspect", "good.safetensors", *SHAPE, "--agreed", "lenet-dlg")
    assert code == 1
    assert "architecture: conv1.weight: differences 1 (missing)" in out


@pytest.mark.parametrize("kind", ["pickle", "cut", "other network", "not a number", "huge", "no file", "empty"])
def test_bad_files_are_refused_with_exit_code_4(folder: Path, command: Command, kind: str) -> None:
    whole, path = Path("good.safetensors").read_bytes(), Path("sent.safetensors")
    if kind == "pickle":
        path.write_bytes(pickle.dumps({"fc1.weight": print}))
    elif kind == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif kind == "other network":
        write_tensors(path, models.build("lenet5", in_channels=1, image_size=16).state_dict())
    elif kind == "not a number":
        state = models.build("mlp", in_channels=1, image_size=8).state_dict()
        state["fc2.bias"][3] = float("nan")
        write_tensors(path, state)
    elif kind == "huge":
        header = json.dumps({"fc1.weight": {"dtype": "F32", "shape": [10**6, 10**6], "data_offsets": [0, 4 * 10**12]}})
        path.write_bytes(len(header).to_bytes(8, "little") + header.encode())
    elif kind == "empty":
        path.write_bytes(b"")
    code, out, err = command("inspect", str(path), *SHAPE)
    assert (code, out) == (4, "")
    assert err.count("\n") == 1
    assert not Path("runs").exists()


@pytest.mark.parametrize("kind", ["pickle", "other network", "not a number"])
def test_a_bad_model_of_the_last_round_is_refused_as_well(folder: Path, command: Command, kind: str) -> None:
    path = Path("earlier.safetensors")
    if kind == "pickle":
        path.write_bytes(pickle.dumps({"fc1.weight": print}))
    elif kind == "other network":
        write_tensors(path, models.build("lenet5", in_channels=1, image_size=16).state_dict())
    else:
        state = models.build("mlp", in_channels=1, image_size=8).state_dict()
        state["fc2.bias"][3] = float("inf")
        write_tensors(path, state)
    code, out, err = command("inspect", "good.safetensors", *SHAPE, "--previous", str(path))
    assert (code, out, err.count("\n")) == (4, "", 1)
    assert "earlier.safetensors" in err


def test_a_network_of_four_bits_is_no_finding(folder: Path, command: Command) -> None:
    network = models.build("mlp", in_channels=1, image_size=8)
    with torch.no_grad():
        for value in (one for one in network.parameters() if one.ndim > 1):
            # Longer tails than a fresh network has, so that most weights are rounded to zero.
            part = value / value.abs().max() * 0.9999
            value.copy_(part.sign() * (-(1 - part.abs()).log()) ** 1.3)
            step = value.abs().max() / 7
            value.copy_((value / step).round() * step)
    assert float((network.get_parameter("fc1.weight") == 0).float().mean()) > 0.55
    write_tensors("four.safetensors", network.state_dict())
    code, out, _ = command("inspect", "four.safetensors", *SHAPE)
    assert (code, "zeros" in out) == (0, False)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--fail-above", "20"), "--fail-above has no effect without examples"),
        (("--size", "8"), "--size has no effect without examples"),
        (("--batch", "digits"), "--input-shape has no effect beside --batch"),
        (("--pruned", "1"), "--pruned must be a share"),
        (("--budget", "never"), "--budget: expected a length of time"),
        (("--examples", "0"), "--examples must be a number of examples"),
        (("--update-size", "65"), "--update-size 65 is more than the 64 examples"),
        (("--arch", "lenet6"), "unknown model 'lenet6'"),
    ],
)
def test_wrong_usage_is_told_in_one_line(folder: Path, command: Command, words, told: str) -> None:
    code, out, err = command("inspect", "good.safetensors", *SHAPE, *words)
    assert (code, out) == (2, "")
    assert told in err
