"""`leakscope train`: what it prints and writes, that it continues to the same bytes, and what it refuses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from leakscope.files import load_state

Command = Callable[..., tuple[int, str, str]]

QUICK = (
    *("train", "--data", "digits", "--model", "mlp", "--clients", "3", "--examples", "90", "--test-examples", "40"),
    *("--local", "lr=0.3,epochs=2,batch=8", "--quiet"),
)


def read(folder: Path) -> dict:
    return json.loads((folder / "result.json").read_text())


def test_it_learns_and_leaves_result_model_and_page(command: Command, tmp_path: Path) -> None:
    words = (*QUICK, "--rounds", "3", "--strategy", "fedboosting", "--central", "--out", str(tmp_path))
    code, out, err = command(*words)
    assert (code, err) == (0, "")
    found = read(tmp_path)
    assert list(found["trainings"]) == ["fedboosting-released", "central"]
    rounds = found["trainings"]["fedboosting-released"]
    assert [record["round"] for record in rounds] == [0, 1, 2]
    assert rounds[-1]["accuracy"] > rounds[0]["accuracy"]
    assert sum(rounds[-1]["weights"].values()) == pytest.approx(1)
    # Models sent for validation are counted.
    assert rounds[0]["bytes_down"] > 2.5 * rounds[0]["bytes_up"]
    assert "fedboosting-released\n  round  accuracy" in out
    assert load_state(tmp_path / "model.safetensors")
    page = (tmp_path / "report.html").read_text()
    assert "default-src &#39;none&#39;" in page
    assert "<script" not in page
    assert "seconds" not in json.dumps(found)


def test_the_same_command_continues_to_the_same_bytes(command: Command, tmp_path: Path) -> None:
    for folder, steps in (("straight", ["3"]), ("continued", ["1", "3", "3"])):
        for rounds in steps:
            code, out, _ = command(*QUICK, "--rounds", rounds, "--json", "--out", str(tmp_path / folder))
            assert code == 0
            assert json.loads(out) == read(tmp_path / folder)
    for name in ("result.json", "model.safetensors", "rounds/0002.safetensors"):
        assert (tmp_path / "straight" / name).read_bytes() == (tmp_path / "continued" / name).read_bytes()
    code, _, err = command(*QUICK, "--rounds", "3", "--seed", "1", "--out", str(tmp_path / "straight"))
    assert code == 2
    assert "holds another training" in err


def test_the_plane_has_boundaries_and_its_own_network(command: Command, tmp_path: Path) -> None:
    words = ("train", "--data", "two-gaussians", "--examples", "60", "--rounds", "1", "--quiet", "--out", str(tmp_path))
    assert command(*words)[0] == 0
    drawing = (tmp_path / "boundary-fedavg.svg").read_text()
    assert drawing.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    assert drawing in (tmp_path / "report.html").read_text()
    code, _, err = command(*words, "--model", "mlp")
    assert (code, "--model has no use" in err) == (2, True)


def test_key_lock_is_tested_with_other_keys(command: Command, tmp_path: Path) -> None:
    code, out, _ = command(*QUICK, "--rounds", "1", "--defence", "key-lock:key_length=8", "--out", str(tmp_path))
    assert code == 0
    assert "with a random key: " in out
    assert set(read(tmp_path)["keys"]) == {"own", "random_key", "initial_locks", "random_and_initial"}
    assert "What the model is worth without the clients' keys" in (tmp_path / "report.html").read_text()
    # Keys and lock layers are the clients': the model that is handed on has neither.
    written = load_state(tmp_path / "model.safetensors")
    assert written
    assert not [name for name in written if "lock" in name or name.endswith(".key")]


def test_a_failed_round_is_inconclusive_and_names_the_client(command: Command, tmp_path: Path) -> None:
    words = (*QUICK, "--rounds", "1", "--clients", "1", "--time-limit", "0.000001", "--out", str(tmp_path))
    code, _, err = command(*words)
    assert code == 3
    assert "0 of 1 clients completed it" in err
    assert "client 0: TimeoutError: no reply within 1e-06 s" in err


def test_the_result_of_another_command_is_not_replaced(command: Command, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("{}")
    code, _, err = command(*QUICK, "--rounds", "1", "--out", str(tmp_path))
    assert (code, "choose another --out" in err) == (2, True)
    assert (tmp_path / "result.json").read_text() == "{}"


REFUSED = {
    ("--strategy", "fedbost"): "unknown strategy 'fedbost'. Did you mean",
    ("--strategy", "fedboosting:formula=x"): "no formula 'x'",
    ("--strategy", "fedavg:mixing=0.9"): "strategy 'fedavg' has no option 'mixing'. It has none.",
    ("--server", "sgd:rate=1"): "has no option 'rate'",
    ("--server", "sgd:lr=fast"): "option of the wrong kind",
    ("--server", "adam:lr=nan"): "must be a finite number",
    ("--partition", "random"): "unknown partition scheme",
    ("--alpha", "0.1"): "--alpha has no effect with --partition iid",
    ("--shards", "3"): "--shards has no effect with --partition iid",
    ("--poison", "5:flip"): "clients are 0 to 2",
    ("--poison", "0:spin"): "cannot read poison '0:spin'",
    ("--examples", "0"): "--examples must be a whole number",
    ("--held-out", "1"): "--held-out must be a share",
    ("--local", "epochs=1"): "--local needs the clients' learning rate",
    ("--batch-size", "4"): "local.batch_size",
    ("--defence", "prun"): "unknown defence 'prun'",
    ("--model", "lenet7"): "unknown model 'lenet7'",
}


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_wrong_usage_is_one_line(command: Command, tmp_path: Path, words: tuple[str, str]) -> None:
    code, out, err = command(*QUICK, *words, "--rounds", "1", "--out", str(tmp_path))
    assert (code, out) == (2, "")
    assert REFUSED[words] in err


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_killed_anywhere_it_continues_to_the_same_bytes(tmp_path: Path) -> None:
    run = [sys.executable, "-m", "leakscope", *QUICK, "--rounds", "6", "--out"]
    subprocess.run([*run, str(tmp_path / "straight")], check=True, capture_output=True)
    target = tmp_path / "killed"
    for _ in range(3):
        _kill_after_a_round([*run, str(target)], target / "rounds")
    assert not (target / "result.json").exists()
    subprocess.run([*run, str(target)], check=True, capture_output=True)
    for name in ("result.json", "model.safetensors", "rounds/0005.safetensors"):
        assert (tmp_path / "straight" / name).read_bytes() == (target / name).read_bytes()


def _kill_after_a_round(words: list[str], rounds: Path) -> None:
    """Start the command, and kill it once it has finished one round more."""
    before = len(list(rounds.glob("*.json")))
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while process.poll() is None and len(list(rounds.glob("*.json"))) == before:
                time.sleep(0.01)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL
