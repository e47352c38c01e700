"""An audit prints what a defence proves of the training it measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leakscope.audits import parse_config, run_campaign
from leakscope.defences.accounting import gaussian_epsilon
from leakscope.defences.dp_sgd import dp_sgd
from leakscope.report.schema import parse_summary
from leakscope.types import LocalTraining

pytestmark = pytest.mark.usefixtures("inline_workers")

SPEC = "dp-sgd:norm=1.0,noise_multiplier=4.0"
CONFIG = {
    "models": ["mlp"],
    "model_options": {"mlp": {"hidden": [16], "activation": "sigmoid"}},
    "data": ["digits"],
    "attacks": ["fc-inversion"],
    "defences": ["none", SPEC, "clip:norm=1.0"],
    "utility": {"rounds": 6, "clients": 3, "batch_size": 10, "examples": 200},
    "adaptive": False,
    "workers": 1,
}


def test_epsilon_of_the_measured_training_is_in_summary_and_page(tmp_path: Path) -> None:
    run_campaign(parse_config(CONFIG), tmp_path / "run", quiet=True)
    text = (tmp_path / "run" / "summary.json").read_text()
    plain, private, clipped = json.loads(text)["defences"]
    assert plain["guarantee"] is None
    assert clipped["guarantee"] is None
    found, defence = private["guarantee"], dp_sgd(1.0, 4.0)
    # 200 examples over three clients: the smallest shard has the highest sampling rate.
    expected = defence.guarantee(examples=66, batch_size=10, steps=6)
    assert found["epsilon"] == pytest.approx(expected.epsilon)
    assert (found["sampling_rate"], found["steps"], found["unit"]) == (pytest.approx(10 / 66), 6, "example")
    assert found["reconstruction"]["0.1"] == pytest.approx(expected.reconstruction[0.1])
    one = defence.guarantee(examples=1, batch_size=1, steps=1)
    assert private["guarantee_of_one"]["epsilon"] == pytest.approx(one.epsilon)
    page = (tmp_path / "run" / "report.html").read_text()
    assert f"ε = {expected.epsilon:.3g} at δ = 1e-05, unit: example, sampling rate 0.152, rounds 6." in page
    assert parse_summary(json.loads(text)).defences[1].guarantee is not None


@pytest.mark.parametrize("share", ["gradient", "delta"])
def test_epsilon_counts_the_local_steps_of_the_audited_clients(tmp_path: Path, share: str) -> None:
    local = {"lr": 0.1, "epochs": 2, "batch_size": 5}
    config = {**CONFIG, "defences": [SPEC], "batch_size": 5, "local": local, "attacks": ["dlg-adam:steps=20"]}
    config["utility"] = {**CONFIG["utility"], "share": share}
    run_campaign(parse_config(config), tmp_path / "run", quiet=True)
    private = json.loads((tmp_path / "run" / "summary.json").read_text())["defences"][1]
    defence, training = dp_sgd(1.0, 4.0), LocalTraining(**local)
    expected = defence.guarantee(examples=66, batch_size=10, steps=6, local=training)
    found, one = private["guarantee"], private["guarantee_of_one"]
    # Ten examples twice in batches of five, in each of six rounds.
    assert (found["steps"], found["local_steps"]) == (24, 4)
    assert found["epsilon"] == pytest.approx(expected.epsilon)
    # An attack of the audit sees one change after two passes over five examples: two steps with each.
    assert one["epsilon"] == pytest.approx(gaussian_epsilon(2.0, steps=2, delta=1e-5))
    page = (tmp_path / "run" / "report.html").read_text()
    assert "sampling rate 0.152, rounds 6 of 4 local steps each." in page
    assert "From one update of 2 local steps" in page


def test_a_training_that_shares_changes_has_an_epsilon_of_its_own_local_steps(tmp_path: Path) -> None:
    config = {**CONFIG, "defences": [SPEC], "utility": {**CONFIG["utility"], "share": "delta"}}
    run_campaign(parse_config(config), tmp_path / "run", quiet=True)
    private = json.loads((tmp_path / "run" / "summary.json").read_text())["defences"][1]
    usual = LocalTraining(lr=0.1, epochs=1, batch_size=3)
    expected = dp_sgd(1.0, 4.0).guarantee(examples=66, batch_size=10, steps=6, local=usual)
    assert private["guarantee"]["epsilon"] == pytest.approx(expected.epsilon)
    assert (private["guarantee"]["steps"], private["guarantee"]["local_steps"]) == (24, 4)
