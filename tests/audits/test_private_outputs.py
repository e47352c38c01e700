"""Nothing a run writes names the private folder, or holds a hash that tells which pictures are in it."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
import stat
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leakscope.audits import make_plan, parse_config, price_campaign, run_campaign
from leakscope.audits.inputs import RECORD, DataRecord, Inputs, name_data
from leakscope.audits.run import publish
from leakscope.audits.subject import Subject
from own_files import draw_photographs

pytestmark = pytest.mark.usefixtures("inline_workers")

SETTINGS: dict[str, Any] = {
    "model_options": {"mlp": {"hidden": [4]}},
    "attacks": ["fc-inversion"],
    "victims": 2,
    "workers": 1,
    "size": 8,
    "utility": None,
}


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("canary-ward-7") / "patients"
    draw_photographs(folder)
    return folder


def _digests(data: bytes) -> list[str]:
    """How a hash of `data` may be written, whole or cut."""
    found = [hashlib.new(name, data).digest() for name in ("md5", "sha1", "sha256", "sha512", "blake2b", "blake2s")]
    found += [zlib.crc32(data).to_bytes(4, "big"), zlib.adler32(data).to_bytes(4, "big")]
    return [text for digest in found for text in (digest.hex()[:16], base64.b64encode(digest).decode()[:12])]


def _secrets(private: Path, settings: dict[str, Any]) -> list[bytes]:
    plan = make_plan(parse_config(settings))
    batch = Subject(plan.attacks[0].subject, plan.inputs).private_examples()
    pixels = [batch.inputs, *batch.inputs, (batch.inputs * 255).round().byte(), *(batch.inputs * 255).round().byte()]
    contents = [np.ascontiguousarray(values.numpy()).tobytes() for values in pixels]
    contents.append(contents[0] + batch.targets.numpy().tobytes())
    contents += [path.read_bytes() for path in private.rglob("*") if path.is_file()]
    texts = [str(private), str(private.parent.name), *(text for content in contents for text in _digests(content))]
    return [text.encode() for text in texts] + [content[:64] for content in contents]


def test_no_output_holds_the_path_or_a_hash_of_the_pictures(
    private: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = {**SETTINGS, "data": [str(private)]}
    command = f"leakscope audit --data {private} --size 8"
    found = run_campaign(parse_config(settings), tmp_path / "run", command=command)
    again = run_campaign(parse_config(settings), tmp_path / "run", command=command)
    assert again.sweep.executed == 0
    assert found.summary.cells[0].data == "patients"
    assert found.summary.config["data"] == ["patients"]
    assert found.summary.reproduce == ["leakscope audit --data patients --size 8"]
    said = capfd.readouterr()
    bill = json.dumps(price_campaign(parse_config(settings)).to_dict())
    outputs = {path.name: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert {"summary.json", "report.html", "journal.jsonl", "config.yaml", RECORD} <= outputs.keys()
    outputs |= {"out": said.out.encode(), "err": said.err.encode(), "bill": bill.encode()}
    secrets = _secrets(private, settings)
    held = [(name, secret) for name, content in outputs.items() for secret in secrets if secret in content]
    assert held == []


def test_the_key_is_in_one_file_that_only_the_owner_reads(private: Path, tmp_path: Path) -> None:
    settings = parse_config({**SETTINGS, "data": [str(private)]})
    run_campaign(settings, tmp_path / "run", quiet=True)
    record = tmp_path / "run" / RECORD
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    key = json.loads(record.read_text())["key"]
    assert len(key) == 64
    holders = [p.name for p in (tmp_path / "run").rglob("*") if p.is_file() and key.encode() in p.read_bytes()]
    assert holders == [RECORD]
    assert DataRecord.read(tmp_path / "run").key.hex() == key
    assert key not in repr(DataRecord.read(tmp_path / "run"))


def test_two_folders_hold_the_same_bytes(private: Path, tmp_path: Path) -> None:
    settings = parse_config({**SETTINGS, "data": [str(private)]})
    for name in ("one", "two"):
        run_campaign(settings, tmp_path / name, quiet=True)
    one, two = ({p.name: p.read_bytes() for p in (tmp_path / name / "cells").iterdir()} for name in ("one", "two"))
    assert one == two
    records = [DataRecord.read(tmp_path / name) for name in ("one", "two")]
    assert records[0].seen != records[1].seen, "each folder has its own key"


def test_an_error_of_a_cell_names_no_path(private: Path) -> None:
    inputs = Inputs(locations={"patients": str(private), "other": "folder:wards/other"}, weights="/secret/net.pt")
    text = inputs.redact(f"{private}/a.png: bad; {private.resolve()}; wards/other; /secret/net.pt; patients")
    assert text == "patients/a.png: bad; patients; other; net.pt; patients"
    assert inputs.redact("nothing / private") == "nothing / private"


def test_a_command_with_an_apostrophe_names_no_path() -> None:
    place = "/home/o'brien/ward 7"
    command = shlex.join(["leakscope", "audit", "--data", place])
    told = Inputs(locations={"ward 7": place}).redact(command)
    assert shlex.split(told) == ["leakscope", "audit", "--data", "ward 7"]


def test_names_are_told_apart_and_never_pass_for_a_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    places = ["digits", "folder:digits", "photos", "/other/photos", "a/rows.npz", "b/rows.npz", "nets:photos", "."]
    names = name_data(places)
    assert list(names.values()) == [
        "digits",
        "digits (2)",
        "photos",
        "photos (2)",
        "rows.npz",
        "rows.npz (2)",
        "nets:photos",
        tmp_path.name,
    ]
    config = parse_config({"data": places, "weights": "/x/net.pt"}, allow_code=True)
    inputs = Inputs(locations={name: place for place, name in names.items()})
    assert publish(config, inputs).data == tuple(names.values())
    assert publish(config, inputs).weights == "net.pt"
