"""An audit whose cells run elsewhere: what is sent, what is limited, what is refused, and equal bytes."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from leakscope.audits import parse_config, run_campaign
from leakscope.audits.config import check_before_torch
from leakscope.audits.execute import execute_planned
from leakscope.audits.inputs import DataRecord, Inputs
from leakscope.audits.limits import choose_limits
from leakscope.audits.plan import make_plan
from leakscope.errors import UsageError
from leakscope.types import Status

ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {
    "model_options": {"mlp": {"hidden": [4]}},
    "attacks": ["fc-inversion"],
    "victims": 1,
    "utility": None,
    "seeds": [0, 1, 2],
}
CLUSTER = "ray://head.example:10001"


@pytest.fixture
def with_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: found("json" if name == "ray" else name, *rest)
    )


def test_inputs_reach_a_worker_whole() -> None:
    record = DataRecord(b"\x00key\xff", {"ward": ("a", "b")}, first=7)
    inputs = Inputs(record, {"ward": "/data/ward"}, {"ward": {"test": "c"}}, "/data/net.pt")
    assert Inputs.from_json(json.loads(json.dumps(inputs.to_json()))) == inputs


def test_a_file_that_a_node_does_not_have_is_named_without_its_path(tmp_path: Path) -> None:
    import numpy

    place = tmp_path / "private" / "ward.npz"
    place.parent.mkdir()
    numpy.savez(
        place, inputs=numpy.linspace(0, 1, 512, dtype="float32").reshape(8, 1, 8, 8), targets=numpy.arange(8) % 2
    )
    plan = make_plan(parse_config({**SMALL, "data": [str(place)], "seeds": [0]}))
    place.rename(tmp_path / "elsewhere.npz")
    found = execute_planned(plan.cells[0].cell.spec, inputs=plan.inputs.to_json())
    assert found.status is Status.ERROR
    assert found.record["error"] in ("BadInputError", "MissingDataError")
    assert "ward" in found.record["message"]
    assert str(tmp_path) not in json.dumps(found.record)


@pytest.mark.usefixtures("with_ray")
def test_a_shared_cluster_is_used_only_as_far_as_the_user_says(tmp_path: Path) -> None:
    config = parse_config(SMALL)
    check_before_torch(config, workers=3, on=CLUSTER)
    check_before_torch(parse_config({**SMALL, "workers": 3}), on=CLUSTER)
    check_before_torch(config, on="ray")
    for refuse in (lambda: check_before_torch(config, on=CLUSTER), lambda: run_campaign(config, tmp_path, on=CLUSTER)):
        with pytest.raises(UsageError, match="say how many of its processors to use"):
            refuse()
    with pytest.raises(UsageError, match="workers must be ≥ 1, got 0"):
        check_before_torch(config, workers=0, on=CLUSTER)


def test_this_machine_says_nothing_of_the_memory_of_another() -> None:
    def limit(on: str, **settings: Any) -> int | None:
        return choose_limits(parse_config({**SMALL, **settings}), workers=2, seconds=None, on=on).memory_mb

    assert limit(CLUSTER) is None
    assert limit("ray") is not None
    assert limit(CLUSTER, memory_mb=3000) == 3000


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_an_audit_on_ray_writes_the_bytes_of_one_on_processes(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(json.dumps(SMALL))
    settings = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    for on in ("processes", "ray"):
        words = ["audit", "--config", "c.yaml", "--out", on, "--on", on, "--workers", "2", "--quiet", "--json"]
        command = [sys.executable, "-m", "leakscope", *words]
        done = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1, 3), done.stderr
        json.loads(done.stdout)
    assert _hashes(tmp_path / "ray") == _hashes(tmp_path / "processes")
    assert len(_hashes(tmp_path / "ray")) == 3


def _hashes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (folder / "cells").iterdir()}
