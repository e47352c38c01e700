"""An update made without leakscope is attacked from the shell, and the image comes back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

HERE = Path(__file__).parent
SCRIPT = HERE / "plain_client.py"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("client")
    rows = np.linspace(0, 1, 8, dtype=np.float32)
    image = (0.5 + 0.4 * np.sin(5 * rows[:, None]) * np.cos(4 * rows[None, :]))[None].astype(np.float32)
    np.save(folder / "image.npy", image)
    subprocess.run([sys.executable, SCRIPT, folder, folder / "image.npy"], check=True)
    return folder


def _attack(client: Path, out: Path, *words: str) -> tuple[dict, float]:
    command = [sys.executable, "-m", "leakscope", "attack", str(client / "gradient.npz"),
               "--model", "plain_client:build", "--weights", str(client / "net.pt"),
               "--input-shape", "1,8,8", "--out", str(out), *words]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE, env=os.environ, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((out / "result.json").read_text())
    rebuilt = np.asarray(Image.open(out / result["images"][0]), dtype=np.float64) / 255
    truth = np.load(client / "image.npy")[0]
    return result, -10 * np.log10(np.mean((rebuilt - truth) ** 2))


def test_the_script_is_short_and_imports_no_leakscope() -> None:
    text = SCRIPT.read_text()
    assert "import leakscope" not in text
    assert len([line for line in text.splitlines() if line.strip()]) <= 20


@pytest.mark.parametrize(
    "attack",
    ["idlg", pytest.param("fc-inversion", marks=pytest.mark.slow), pytest.param("dlg", marks=pytest.mark.slow)],
)
def test_the_image_comes_back_knowing_nothing_but_model_and_update(client: Path, tmp_path: Path, attack: str) -> None:
    result, psnr = _attack(client, tmp_path / "out", "--attack", attack)
    assert result["labels"] == [7]
    # 8-bit pictures limit what can be measured to about 59 dB.
    assert psnr > 45


@pytest.mark.slow
def test_weights_passed_as_an_update_are_refused(client: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "leakscope", "attack", str(client / "net.pt"),
               "--model", "plain_client:build", "--input-shape", "1,8,8", "--out", str(tmp_path / "out")]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE, env=os.environ, check=False)
    assert done.returncode == 4
    assert "--before" in done.stderr
    assert not (tmp_path / "out").exists()
