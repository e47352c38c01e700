"""`leakscope doctor`: is this installation fit to measure?"""

from __future__ import annotations

import importlib.util
import json
import platform

import typer

EXTRAS = {
    "lpips": "lpips",
    "torchvision": "torchvision",
    "flower": "flwr",
    "dp": "opacus",
    "he": "tenseal",
    "search": "optuna",
    "prior": "cma",
}


def doctor(as_json: bool = typer.Option(False, "--json", help="Print as JSON.")) -> None:
    """Check versions, extras, data sets, and that a known attack succeeds.

    Example: leakscope doctor
    """
    import torch

    from leakscope import data
    from leakscope.audits import self_check
    from leakscope.version import __version__

    check = self_check()
    found = {
        "leakscope": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": str(torch.get_num_threads()),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "extras": ", ".join(name for name, module in EXTRAS.items() if importlib.util.find_spec(module)) or "none",
        "data sets here": ", ".join(name for name in data.names() if data.is_available(name)),
        "self-check": f"{check.name}: {check.psnr:.1f} dB, {'passed' if check.passed else 'FAILED'}",
    }
    if as_json:
        typer.echo(json.dumps(found, indent=1))
    else:
        for name, value in found.items():
            typer.echo(f"{name:16} {value}")
    raise typer.Exit(0 if check.passed else 3)
