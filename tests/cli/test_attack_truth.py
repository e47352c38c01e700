"""`leakscope attack` with the true examples, and on a folder of updates: grades, page, exit codes."""

from __future__ import annotations

import csv
import html
import json
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from leakscope import SharedUpdate, save_update

Command = Callable[..., tuple[int, str, str]]

MODULE = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.Sigmoid(), nn.Linear(12, 10))
"""


def build() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.Sigmoid(), nn.Linear(12, 10))


def example(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return torch.rand((1, 1, 4, 4), generator=draw), torch.tensor([seed % 10])


def gradient(inputs: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
    network = build()
    loss = nn.functional.cross_entropy(network(inputs), targets)
    names = [name for name, _ in network.named_parameters()]
    return dict(zip(names, torch.autograd.grad(loss, list(network.parameters())), strict=True))


def save_truth(path: Path, *examples: tuple[torch.Tensor, torch.Tensor]) -> None:
    inputs, targets = (torch.cat(part) for part in zip(*examples, strict=True))
    np.savez(path, inputs=inputs.numpy(), targets=targets.numpy())


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder `updates` with the gradients of three examples, and their truth by name and in one file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mynet", raising=False)
    (tmp_path / "mynet.py").write_text(MODULE)
    (tmp_path / "updates").mkdir()
    (tmp_path / "truth").mkdir()
    everything = [example(seed) for seed in (1, 2, 3)]
    for number, one in enumerate(everything):
        update = SharedUpdate("gradient", gradient(*one), 1)
        save_update(tmp_path / "updates" / f"client{number}.safetensors", update)
        save_truth(tmp_path / "truth" / f"client{number}.npz", one)
    save_truth(tmp_path / "all.npz", *everything)
    return tmp_path


@pytest.fixture
def attack(command: Command, here: Path) -> Command:
    def run(*words: str, update: str = "updates", name: str = "fc-inversion") -> tuple[int, str, str]:
        given = ("--model", "mynet:build", "--input-shape", "1,4,4", "--attack", name, "--out", "out")
        return command("attack", update, *given, *words)

    return run


def result(here: Path) -> dict:
    return json.loads((here / "out" / "result.json").read_text())


@pytest.mark.parametrize("truth", ["truth", "all.npz"])
def test_a_folder_is_graded_and_a_leak_exits_1(attack: Command, here: Path, truth: str) -> None:
    assert attack("--truth", truth)[0] == 0, "without a gate a leak is a finding"
    code, out, err = attack("--truth", truth, "--fail-above", "20")
    assert (code, err) == (1, "")
    found = result(here)
    assert [entry["worst"]["grade"] for entry in found["updates"]] == ["F", "F", "F"]
    assert {entry["file"] for entry in found["updates"]} == {f"client{n}.safetensors" for n in range(3)}
    assert found["exit_code"] == 1
    assert found["line"] in out
    assert found["line"].startswith("FAILED: ")
    summary = json.loads((here / "out" / "summary.json").read_text())
    assert summary["verdict"]["grade"] == "F"
    assert all(cell["baselines"]["blind guess"] for cell in summary["cells"])
    assert len(list((here / "out").glob("update-*-0000.png"))) == 3


def test_the_page_and_the_table_are_those_of_an_audit(attack: Command, here: Path) -> None:
    attack("--truth", "truth")
    page = (here / "out" / "report.html").read_text()
    assert "What to do" in page
    assert "Leak above threshold" in page
    assert "data:image/png" not in page, "private pictures only on request"
    with open(here / "out" / "results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["data"] for row in rows) == [f"client{n}.safetensors" for n in range(3)]
    assert all(float(row["psnr"]) > 40 for row in rows)
    attack("--truth", "truth", "--show-images")
    assert "data:image/png" in (here / "out" / "report.html").read_text()


def test_results_are_listed_worst_first(attack: Command, here: Path) -> None:
    inputs, targets = example(2)
    noisy = {name: value + 0.02 * torch.randn_like(value) for name, value in gradient(inputs, targets).items()}
    save_update(here / "updates" / "client1.safetensors", SharedUpdate("gradient", noisy, 1))
    attack("--truth", "truth")
    entries = result(here)["updates"]
    assert entries[-1]["file"] == "client1.safetensors"
    assert entries[-1]["worst"]["psnr"] < entries[0]["worst"]["psnr"]


def test_without_truth_there_is_a_fit_and_no_grade(attack: Command, here: Path) -> None:
    code, out, _ = attack()
    found = result(here)
    assert code == 0
    assert found["grade"] == "?"
    assert all(entry["scores"] is None and entry["worst"] is None for entry in found["updates"])
    assert all(entry["fit"]["explained"] > 0.9 for entry in found["updates"])
    assert "grade" not in out
    page = (here / "out" / "report.html").read_text()
    assert "Not graded" in page
    assert "none is needed" not in page, "nothing was measured, so nothing is safe"


def test_a_gate_above_the_leak_is_within(attack: Command, here: Path) -> None:
    code, out, _ = attack("--truth", "truth", "--fail-above", "200")
    assert code == 0
    assert "PASSED" in out


def test_a_bad_file_is_named_and_the_rest_goes_on(attack: Command, here: Path) -> None:
    (here / "updates" / "broken.npz").write_bytes(b"PK\x03\x04 nothing")
    code, out, _ = attack()
    assert code == 4
    assert "broken.npz: error: " in out
    found = {entry["file"]: entry["status"] for entry in result(here)["updates"]}
    assert found["broken.npz"] == "error"
    assert sum(status == "ok" for status in found.values()) == 3
    assert "broken.npz" in (here / "out" / "report.html").read_text()
    assert attack("--truth", "truth", "--fail-above", "20")[0] == 1, "a leak is a leak, whatever else failed"


def test_a_result_that_is_no_evidence_exits_3(attack: Command, here: Path) -> None:
    noise = {name: torch.randn_like(value) for name, value in gradient(*example(1)).items()}
    save_update(here / "updates" / "client9.safetensors", SharedUpdate("gradient", noise, 1))
    code, out, _ = attack(name="inverting-gradients:steps=30")
    statuses = {entry["file"]: entry["status"] for entry in result(here)["updates"]}
    assert statuses["client9.safetensors"] != "ok"
    assert code == 3
    assert f"client9.safetensors: {statuses['client9.safetensors']}" in out


def test_one_file_with_its_truth(attack: Command, here: Path) -> None:
    code, out, _ = attack("--truth", "truth/client0.npz", "--fail-above", "20", update="updates/client0.safetensors")
    assert code == 1
    assert "worst example: " in out
    assert "grade F" in out
    found = result(here)
    assert found["file"] == "client0.safetensors"
    assert found["fit"]["truth"] > 0.99
    assert found["images"] == ["image-0000.png"]


def test_the_truth_gives_away_no_more_than_the_scenario_grants(attack: Command, here: Path) -> None:
    """Wrong labels in the truth change what is scored, and nothing that the attacker of scenario C does."""
    inputs, _ = example(1)
    save_truth(here / "lied.npz", (inputs, torch.tensor([7])))
    single = "updates/client0.safetensors"
    attack("--truth", "truth/client0.npz", "--scenario", "C", update=single)
    honest = result(here)
    attack("--truth", "lied.npz", "--scenario", "C", update=single)
    lied = result(here)
    assert lied["labels"] == honest["labels"] == [1]
    assert lied["loss"] == honest["loss"]
    assert lied["scores"]["label_correct"] == [False]
    attack("--truth", "truth/client0.npz", "--scenario", "B", update=single)
    assert result(here)["labels"] == [1]


@pytest.mark.parametrize(
    ("words", "code", "needle"),
    [
        (("--truth", "nowhere.npz"), 4, "nowhere.npz"),
        (("--truth", "truth/client0.npz"), 2, "fewer than the updates together"),
        (("--fail-above", "20"), 2, "--truth"),
        (("--public", "all.npz"), 2, "--truth"),
        (("--no-prior-alone",), 2, "--truth"),
        (("--fail-above", "nan", "--truth", "truth"), 2, "finite"),
        (("--labels", "1", "--scenario", "B"), 2, "folder"),
        (("--truth", "all.npz", "--input-shape", "16"), 4, "shape"),
    ],
)
def test_what_cannot_work_is_refused(attack: Command, here: Path, words: tuple, code: int, needle: str) -> None:
    found, out, err = attack(*words)
    assert found == code, (out, err)
    assert needle in err + out


def test_an_empty_folder_is_a_bad_input(attack: Command, here: Path) -> None:
    (here / "empty").mkdir()
    code, _, err = attack(update="empty")
    assert code == 4
    assert "holds no update" in err


def test_the_folder_of_an_audit_is_not_overwritten(attack: Command, here: Path) -> None:
    (here / "out").mkdir()
    (here / "out" / "summary.json").write_text("{}")
    code, _, err = attack()
    assert code == 2
    assert "choose another --out" in err
    assert (here / "out" / "summary.json").read_text() == "{}"


def test_weights_in_the_same_folder_are_no_update(attack: Command, here: Path) -> None:
    safetensors.torch.save_file(build().state_dict(), here / "updates" / "net.safetensors")
    code, _, _ = attack("--weights", "updates/net.safetensors")
    assert code == 0
    assert len(result(here)["updates"]) == 3


def test_every_null_stands_beside_the_score_of_a_folder_at_no_cost(attack: Command, here: Path) -> None:
    attack("--truth", "truth", "--fail-above", "20")
    summary = json.loads((here / "out" / "summary.json").read_text())
    for cell in summary["cells"]:
        assert set(cell["baselines"]) == {"blind guess", "prior alone", "nearest public picture"}
        best = [max(values) for values in zip(*cell["baselines"].values(), strict=True)]
        assert cell["scores"]["baseline_psnr"] == best
        assert any("an update of the same form" in note for note in cell["notes"])
    assert not any("prior alone" in line or "nearest" in line for line in summary["not_tested"])
    # What came back from client1 is what the prior of client0's attack is said to give.
    truths = {n: example(n + 1)[0] for n in range(3)}
    by_name = {cell["data"]: cell for cell in summary["cells"]}
    other = float(10 * torch.log10(1 / (truths[0] - truths[1]).square().mean()))
    assert by_name["client0.safetensors"]["baselines"]["prior alone"][0] == pytest.approx(other, abs=0.05)


def test_one_update_alone_is_held_against_smooth_noise(attack: Command, here: Path) -> None:
    _, out, _ = attack("--truth", "truth/client0.npz", update="updates/client0.safetensors")
    found = result(here)
    assert set(found["worst"]["baselines"]) == {"blind guess", "prior alone"}
    assert any("smooth noise" in note for note in found["notes"])
    assert found["worst"]["gain"] == pytest.approx(found["worst"]["psnr"] - found["worst"]["baseline_psnr"])
    assert f"over {found['worst']['best_null']}" in out
    untested = json.loads((here / "out" / "summary.json").read_text())["not_tested"]
    assert any("nearest public picture" in line for line in untested)
    assert not any("prior alone" in line for line in untested)


def test_public_pictures_make_a_null_and_the_truth_among_them_does_not(attack: Command, here: Path) -> None:
    one = ("--truth", "truth/client0.npz")
    attack(*one, "--public", "all.npz", update="updates/client0.safetensors")
    found = result(here)["worst"]["baselines"]
    truth, *others = (example(seed)[0] for seed in (1, 2, 3))
    nearest = max(float(10 * torch.log10(1 / (truth - other).square().mean())) for other in others)
    assert found["nearest public picture"] == pytest.approx(nearest, abs=1e-3)
    assert found["prior alone"] < 30, "the truth is no public picture, so the attack was not given its update"


def test_prior_alone_can_be_switched_off(attack: Command, here: Path) -> None:
    attack("--truth", "truth", "--no-prior-alone")
    summary = json.loads((here / "out" / "summary.json").read_text())
    assert all("prior alone" not in cell["baselines"] for cell in summary["cells"])
    assert any("prior alone" in line for line in summary["not_tested"])


def test_an_update_of_the_same_example_is_no_null(attack: Command, here: Path) -> None:
    """Two rounds of one client: what comes back from the one must not pass for what is known without the other."""
    for name in ("client1", "client2"):
        save_update(here / "updates" / f"{name}.safetensors", SharedUpdate("gradient", gradient(*example(1)), 1))
        save_truth(here / "truth" / f"{name}.npz", example(1))
    attack("--truth", "truth", "--fail-above", "20")
    for entry in result(here)["updates"]:
        assert entry["worst"]["grade"] == "F"
        assert entry["worst"]["baselines"]["prior alone"] < 20
        assert "nearest public picture" not in entry["worst"]["baselines"]


def test_a_delta_alone_is_held_against_a_delta_of_the_declared_training(attack: Command, here: Path) -> None:
    inputs, targets = example(1)
    delta = {name: -0.1 * value for name, value in gradient(inputs, targets).items()}
    safetensors.torch.save_file(delta, here / "delta.safetensors")
    words = ("--kind", "delta", "--lr", "0.1", "--num-examples", "1", "--scenario", "C")
    code, out, err = attack("--truth", "truth/client0.npz", *words, update="delta.safetensors")
    assert code == 0, (out, err)
    assert set(result(here)["worst"]["baselines"]) == {"blind guess", "prior alone"}
    attack("--truth", "truth/client0.npz", "--kind", "delta", update="delta.safetensors")
    assert set(result(here)["worst"]["baselines"]) == {"blind guess", "prior alone"}, "without a rate, too"


@pytest.mark.parametrize("is_folder", [True, False])
@pytest.mark.parametrize("ward", ["ward-7", "o'brien & söhne <7>"])
def test_no_output_holds_the_path_of_a_private_file(attack: Command, here: Path, is_folder: bool, ward: str) -> None:
    private = here / "canary-home" / ward
    private.mkdir(parents=True)
    shutil.copytree(here / "updates", private / "updates")
    shutil.copytree(here / "truth", private / "truth")
    safetensors.torch.save_file(build().state_dict(), private / "net.safetensors")
    (private / "updates" / "broken.npz").write_bytes(b"PK\x03\x04 nothing")
    update, truth = private / "updates", private / "truth"
    if not is_folder:
        update, truth = update / "client0.safetensors", truth / "client0.npz"
    words = ("--truth", str(truth), "--public", str(here / "all.npz"), "--weights", str(private / "net.safetensors"))
    attack(*words, "--show-images", "--out", str(private / "out"), update=str(update))
    outputs = {path.name: path.read_bytes() for path in (private / "out").rglob("*") if path.is_file()}
    assert {"result.json", "summary.json", "report.html", "results.csv"} <= outputs.keys()
    for name, content in outputs.items():
        text = content.decode(errors="replace")
        plain = json.dumps(json.loads(text), ensure_ascii=False) if name.endswith(".json") else html.unescape(text)
        for secret in ("canary-home", ward, str(here)):
            assert not any(secret in shown for shown in (text, plain, unquote(text))), (name, secret)
    words = shlex.split(json.loads(outputs["summary.json"])["reproduce"][0])
    assert words[words.index("--truth") + 1] == truth.name
