"""No stale result: a cell's key covers what it reads and what computes it, and workers check what they read."""

from __future__ import annotations

import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from leakscope import rng
from leakscope.audits import execute as execute_module
from leakscope.audits import grid as grid_module
from leakscope.audits import make_plan, parse_config, run_campaign
from leakscope.audits.execute import execute
from leakscope.audits.inputs import RECORD, DataRecord
from leakscope.audits.own_code import find_sources
from leakscope.audits.plan import Plan
from leakscope.audits.stale import find_changes
from leakscope.audits.subject import Subject
from leakscope.files import write_tensors
from leakscope.matching.candidates import save_prior
from leakscope.priors import Prior
from leakscope.priors.convolutional import ConvDecoder, initialise
from leakscope.software import hash_source, software
from leakscope.types import Status
from own_files import draw_photographs, save_rows, write_module

pytestmark = pytest.mark.usefixtures("inline_workers")

PACKAGE = Path(execute_module.__file__).parents[1]
SMALL: dict[str, Any] = {
    "model_options": {"mlp": {"hidden": [4]}},
    "attacks": ["fc-inversion"],
    "victims": 1,
    "workers": 1,
    "utility": None,
}


def _plan(record: DataRecord | None = None, **values: Any) -> Plan:
    return make_plan(parse_config({**SMALL, **values}, allow_code=True), record=record)


def _run(plan: Plan) -> list[tuple[Status, str]]:
    """What a worker would make of the cells now."""
    found = [execute(cell.to_json(), inputs=plan.inputs) for cell in plan.cells]
    return [(outcome.status, outcome.record.get("message", "")) for outcome in found]


def _save_weights(path: Path, model: torch.nn.Module, shift: float = 0.0) -> Path:
    return write_tensors(path, {name: value + shift for name, value in model.state_dict().items()})


def _save_prior(path: Path, seed: int) -> Path:
    decoder = ConvDecoder((1, 8, 8), latent=4, width=4)
    return save_prior(path, Prior(decoder, initialise(decoder.shapes(), rng.generator(seed))))


def test_other_weights_in_the_same_file_are_another_cell(tmp_path: Path) -> None:
    network = Subject(_plan().attacks[0].subject).model()
    file = _save_weights(tmp_path / "w.safetensors", network)
    before = _plan(weights=str(file))
    assert _run(before)[0][0] is Status.OK
    _save_weights(file, network, shift=0.5)
    assert _run(before) == [
        (Status.ERROR, "the file of the weights changed after this run was planned; run the same command again to "
         "compute it again")
    ]  # fmt: skip
    assert _plan(weights=str(file)).attacks[0].key != before.attacks[0].key


def test_another_prior_in_the_same_file_is_another_cell(tmp_path: Path) -> None:
    file = _save_prior(tmp_path / "prior.safetensors", seed=0)
    attack = f"ggl:prior={file},optimiser=adam,steps=2"
    before = _plan(attacks=[attack])
    again = _plan(attacks=[attack])
    assert before.attacks[0].key == again.attacks[0].key
    _save_prior(file, seed=1)
    assert "a file that an option" in _run(before)[0][1]
    assert _plan(attacks=[attack]).attacks[0].key != before.attacks[0].key


@pytest.mark.parametrize("name", ["torch", "numpy", "scipy", "leakscope", "python", "source"])
def test_another_version_or_source_is_another_cell(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _plan()
    assert name in before.attacks[0].software
    other = {**software(), name: "0.0"}
    monkeypatch.setattr(grid_module, "software", lambda: other)
    after = _plan()
    assert after.attacks[0].key != before.attacks[0].key
    assert "leakscope, or a library that it computes with, changed" in _run(after)[0][1]
    assert len(find_changes(before.attacks[0].to_json(), after.attacks[0].to_json())) == 1


def test_every_file_that_computes_counts_and_no_other(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "p", ignore=shutil.ignore_patterns("__pycache__"))
    whole = hash_source(tmp_path / "p")
    assert whole == hash_source(PACKAGE) == software()["source"]
    for name in ("cli/audit.py", "report/render.py", "report/templates/report.css", "audits/summary.py", "progress.py"):
        (tmp_path / "p" / name).write_text("changed")
    assert hash_source(tmp_path / "p") == whole
    computing = ["attacks/dlg.py", "audits/cell.py", "report/schema.py", "runner/worker.py", "rng.py", "data/npz.py"]
    seen = {whole}
    for name in computing:
        with (tmp_path / "p" / name).open("a") as file:
            file.write("# changed\n")
        seen.add(hash_source(tmp_path / "p"))
    (tmp_path / "p" / "new.py").write_text("")
    seen.add(hash_source(tmp_path / "p"))
    assert len(seen) == len(computing) + 2


def test_what_own_code_imports_from_the_project_is_part_of_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "ownproject"
    (package / "parts").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "nets.py").write_text(
        "import torch\nfrom .parts import layers\n"
        "def rows():\n    from ownproject.late import WIDTH\n    torch.manual_seed(0)\n    return layers.net(WIDTH)\n"
    )
    (package / "late.py").write_text("WIDTH = 16\n")
    (package / "parts" / "__init__.py").write_text("")
    (package / "parts" / "layers.py").write_text(
        "from torch import nn\nfrom . import sizes\n"
        "def net(width):\n    return nn.Sequential(nn.Linear(sizes.INPUTS, width), nn.Sigmoid(), nn.Linear(width, 3))\n"
    )
    (package / "parts" / "sizes.py").write_text("INPUTS = 6\n")
    (package / "unused.py").write_text("")
    save_rows(tmp_path / "rows.npz")
    settings = {"models": ["ownproject.nets:rows"], "data": ["rows.npz"], "bounds": "none", "model_options": {}}
    before = _plan(**settings)
    names = [path.relative_to(package).as_posix() for path in find_sources("ownproject.nets")]
    assert names[0] == "nets.py"
    assert set(names) == {"nets.py", "__init__.py", "late.py", "parts/__init__.py", "parts/layers.py", "parts/sizes.py"}
    assert _run(before)[0][0] is Status.OK
    (package / "unused.py").write_text("# changed\n")
    assert _plan(**settings).attacks[0].key == before.attacks[0].key
    for changed in ("parts/sizes.py", "late.py"):
        with (package / changed).open("a") as file:
            file.write("# changed\n")
        after = _plan(**settings)
        assert after.attacks[0].key != before.attacks[0].key
        assert "the source of 'ownproject.nets:rows'" in _run(before)[0][1]
        before = after


def test_other_pictures_in_the_same_folder_are_another_cell(tmp_path: Path) -> None:
    draw_photographs(tmp_path / "photos")
    settings = {"data": [str(tmp_path / "photos")], "size": 8}
    before = _plan(**settings)
    record = before.inputs.new_record
    assert _plan(record, **settings).attacks[0].key == before.attacks[0].key
    pictures = sorted((tmp_path / "photos").rglob("*.*"))
    contents = [path.read_bytes() for path in pictures]
    for path in pictures[1:]:
        path.write_bytes(contents[0])
    pictures[0].write_bytes(contents[1])
    after = _plan(record, **settings)
    assert (before.attacks[0].subject.data_version, after.attacks[0].subject.data_version) == (1, 2)
    assert after.attacks[0].key != before.attacks[0].key
    assert _run(before)[0][1].startswith("the data 'photos' changed")
    for path, content in zip(pictures, contents, strict=True):
        path.write_bytes(content)
    back = _plan(after.inputs.new_record, **settings)
    assert back.attacks[0].key == before.attacks[0].key, "the first results are of these pictures"


def test_training_data_are_checked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    own = write_module(tmp_path)
    settings = {"models": [f"{own}:rows"], "data": [f"{own}:table"], "bounds": "none", "model_options": {}}
    plan = _plan(**settings, utility={"rounds": 2, "clients": 2})
    parts = plan.inputs.hashes[f"{own}:table"]
    assert parts.keys() == {"private", "train", "test"}
    assert len(set(parts.values())) == 3
    assert {status for status, _ in _run(plan)} == {Status.OK}
    parts["train"] = parts["test"]  # type: ignore[index]
    assert [status for status, _ in _run(plan)] == [Status.OK, Status.ERROR]


def test_a_run_says_why_finished_cells_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = parse_config(SMALL)
    assert run_campaign(config, tmp_path / "run", quiet=True).sweep.executed == 1
    assert run_campaign(config, tmp_path / "run", quiet=True).sweep.executed == 0
    now = software()["torch"]
    with monkeypatch.context() as patch:
        patch.setattr(grid_module, "software", lambda: {**software(), "torch": "9.9.9"})
        capsys.readouterr()
        found = run_campaign(config, tmp_path / "run")
    assert found.sweep.executed == 1
    assert f"cells that were finished run again: torch was {now} and is 9.9.9" in capsys.readouterr().err
    # The worker has the real torch, and so refuses to compute for another.
    assert [cell.status for cell in found.summary.cells] == ["error"]
    (tmp_path / "run" / RECORD).unlink()
    assert run_campaign(config, tmp_path / "run").sweep.executed == 1, "without its record nobody knows the data"
    said = capsys.readouterr().err
    assert "cells that were finished run again: " in said
    assert "the data changed" in said


def test_a_cell_of_an_earlier_version_says_so() -> None:
    new = _plan().attacks[0].to_json()
    old = {name: value for name, value in new.items() if name != "software"}
    assert find_changes(old, new) == [
        "they were computed by an earlier version of leakscope, which did not record with what"
    ]
    other = {**new, "software": {**new["software"], "torch": "2.10.0", "source": "0"}}
    assert find_changes(other, new) == [
        "the source of leakscope changed",
        f"torch was 2.10.0 and is {new['software']['torch']}",
    ]


def test_a_weights_file_is_hashed_in_pieces(tmp_path: Path) -> None:
    large = tmp_path / "large.bin"
    with large.open("wb") as file:
        file.truncate(300 << 20)
    program = (
        "import resource, sys\nfrom leakscope.audits.read_files import hash_file\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\nhash_file(sys.argv[1])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(large)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 20 * 1024


def test_modules_without_a_file_are_no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "made_up", types.ModuleType("made_up"))
    assert find_sources("made_up") == []
