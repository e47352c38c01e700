from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from flower_network import LOCAL, examples, network
from leakscope.audits.captured import CapturedUpdate, CaptureRequest, attack_captured
from leakscope.files import save_update, write_tensors
from tiny import shared


@pytest.fixture
def request_of(tmp_path):
    """A request for the update of client 0."""
    weights = write_tensors(tmp_path / "model.safetensors", network().state_dict())
    path = save_update(tmp_path / "u.safetensors", shared(network(), examples(0), local=LOCAL))
    update = CapturedUpdate(str(path), str(weights), "client-0", 0)
    return CaptureRequest((update,), "flower_network:network", "fc-inversion", "C", (1, 6, 6))


def test_with_the_truth_there_is_a_score_beside_the_fit(request_of):
    (row,) = attack_captured(replace(request_of, truth="flower_network:examples"))
    assert (row["name"], row["client"], row["status"]) == ("client-0", 0, "ok")
    assert row["worst_psnr"] > 40 > row["best_null_psnr"]
    assert row["explained"] > row["unrelated"]


def test_without_the_truth_there_is_a_fit_and_no_score(request_of):
    (row,) = attack_captured(request_of)
    assert row["status"] == "ok"
    assert row["explained"] > 0.9
    assert row["worst_psnr"] is None


def test_a_request_survives_the_pipe(request_of):
    assert CaptureRequest.of(json.loads(json.dumps(asdict(request_of)))) == request_of
    without = replace(request_of, bounds=None)
    assert CaptureRequest.of(json.loads(json.dumps(asdict(without)))) == without


@pytest.mark.parametrize(
    ("changes", "status", "reason"),
    [
        ({"truth": "flower_network:network"}, "error", "flower_network:network"),
        ({"truth": "flower_network:pair"}, "error", "2 examples for client 0, whose update is of 1"),
        ({"model": "flower_network:examples"}, "error", "flower_network:examples"),
        ({"attack": "embedding-tokens"}, "refused", ""),
    ],
)
def test_what_cannot_be_attacked_is_a_row_with_the_reason(request_of, changes, status, reason):
    (row,) = attack_captured(replace(request_of, **changes))
    assert row["status"] == status, row
    assert reason in row["reason"]


def test_one_bad_file_does_not_hide_the_next(request_of):
    (good,) = request_of.updates
    bad = replace(good, path=good.path + ".absent", name="client-9")
    rows = list(attack_captured(replace(request_of, updates=(bad, good))))
    assert [row["status"] for row in rows] == ["error", "ok"]
