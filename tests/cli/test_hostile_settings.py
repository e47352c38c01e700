"""Settings that nobody means, from a file: one line and exit code 2 or 4, in seconds, and never a traceback."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from leakscope.errors import BadInputError
from leakscope.priors import Prior, describe, recognise
from leakscope.priors.convolutional import ConvDecoder

Command = Callable[..., tuple[int, str, str]]

# What a file says, and what is said of it.
WRONG = {
    "model_options: {mlpp: {hidden: [4]}}": "unknown model 'mlpp'. Did you mean 'mlp'",
    "model_options: {'my.net:build': {hidden: [4]}}": "unknown model 'my.net:build'",
    "model_options: {mlp: {hiden: [4]}}": "have no 'hiden'. Did you mean 'hidden'",
    "model_options: {mlp: {num_classes: 3}}": "'num_classes'",
    "model_options: {mlp: {image_size: 9}}": "'image_size'",
    "model_options: {mlp: {hidden: [4], hidden: [5]}}": "the key 'hidden' occurs twice",
    "model_options: {mlp: {hidden: [4]}, mlp: {hidden: [5]}}": "the key 'mlp' occurs twice",
    "model_options: {mlp: {hidden: [1000000000000]}}": "at most 1,000,000",
    "model_options: {mlp: {hidden: [1000000, 1000000]}}": "the budget is 2.0 GiB",
    "model_options: {mlp: {hidden: [0]}}": "whole widths ≥ 1",
    "model_options: {mlp: {hidden: 4}}": "as in [256, 128]",
    "model_options: {mlp: {hidden: [4], activation: [x]}}": "unknown activation",
    "model_options: {mlp: 3}": "model_options.mlp",
    "{models: [resnet18], data: [sample-photos], size: 4096, victims: 1}": "the budget is 2.0 GiB",
    "size: 4097": "from 1 to 4096",
    "size: [4096, 4097]": "from 1 to 4096",
    'data: ["a\\0b"]': "is not a folder",
    'data: ["/tmp/a\\0b"]': "is not a folder",
    'data: ["a\\0b.npz"]': "check the path",
    'weights: "a\\0b.pt"': "check the path",
    'models: ["a\\0b"]': "unknown model",
    'attacks: ["gias:prior=a\\0b"]': "a\\x00b",
    "classes: 0": "classes",
    "normalise: foo": "no normalisation constants",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_file_with_them_is_refused_in_one_line(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    usual = "" if text.startswith("{") else "victims: 1\n"
    Path("c.yaml").write_text(usual + text)
    began = time.monotonic()
    code, out, err = command("audit", "--config", "c.yaml", "--dry-run", "--out", "run")
    assert code in (2, 4), (out, err)
    assert WRONG[text] in err
    assert len(err.splitlines()) == 1
    assert time.monotonic() - began < 20
    assert not Path("run").exists()


def test_options_of_a_known_network_that_is_not_audited_are_kept(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("{models: [mlp], model_options: {lenet5: {activation: relu}}, fail_above: .nan}")
    code, _out, err = command("audit", "--config", str(path))
    assert (code, "fail_above" in err) == (2, True), "refused for the other reason only"


@pytest.mark.parametrize("command_words", [("audit", "--dry-run"), ("profile", "--data", "digits")])
def test_no_classes_are_not_ten(command: Command, command_words: tuple[str, ...]) -> None:
    code, _out, err = command(*command_words, "--model", "mlp", "--classes", "0")
    assert code == 2
    assert "classes" in err


@pytest.mark.parametrize("field", ["width", "latent"])
def test_a_prior_without_width_is_a_bad_file(field: str) -> None:
    decoder = ConvDecoder((1, 8, 8), latent=2, width=2)
    tensors = {name: torch.zeros(shape) for name, shape in decoder.shapes().items()}
    found, metadata = describe(Prior(decoder, tensors, "test"))
    (key,) = metadata
    recognise(found, metadata)
    manifest = json.loads(metadata[key]) | {field: 0}
    with pytest.raises(BadInputError, match=f"not valid at '{field}'"):
        recognise(found, {key: json.dumps(manifest)})
