"""`leakscope doctor`: is this installation fit to measure?"""

from __future__ import annotations

import importlib
import json
import platform

import typer

EXTRAS = {
    "lpips": ("lpips",),
    "torchvision": ("torchvision",),
    "flower": ("flwr",),
    "dp": ("opacus",),
    "he": ("tenseal", "phe", "gmpy2"),
    "search": ("optuna",),
    "prior": ("cma", "kornia"),
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
    broken = {name: reason for name, modules in EXTRAS.items() if (reason := _why_unusable(modules))}
    found = {
        "leakscope": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": str(torch.get_num_threads()),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "extras": ", ".join(name for name in EXTRAS if name not in broken) or "none",
        "missing extras": "; ".join(f"{name}: {reason}" for name, reason in broken.items()) or "none",
        "install them": f"pip install 'leakscope[{','.join(broken)}]'" if broken else "nothing to install",
        "data sets here": ", ".join(name for name in data.names() if data.is_available(name)),
        "self-check": f"{check.name}: {check.psnr:.1f} dB, {'passed' if check.passed else 'FAILED'}",
    }
    if as_json:
        typer.echo(json.dumps(found, indent=1))
    else:
        for name, value in found.items():
            typer.echo(f"{name:16} {value}")
    raise typer.Exit(0 if check.passed else 3)


def _why_unusable(modules: tuple[str, ...]) -> str | None:
    """Why an extra cannot be used; it is imported, since one that is installed may still not load."""
    module = ""
    try:
        for module in modules:
            importlib.import_module(module)
    except ModuleNotFoundError as error:
        return f"no package {error.name}"
    # A compiled package for another version of Python or torch may raise anything.
    except Exception as error:
        return f"{module} does not load ({type(error).__name__})"
    return None
