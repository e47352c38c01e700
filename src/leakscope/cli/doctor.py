"""`leakscope doctor`: is this installation fit to measure?"""

from __future__ import annotations

import importlib
import json
import os
import platform
from importlib import metadata

import typer

from leakscope.cli.terminal import echo
from leakscope.errors import install_line

# Distribution: what it is imported as. Without one of these nothing can be measured.
PACKAGES = {
    "torch": "torch",
    "numpy": "numpy",
    "scipy": "scipy",
    "scikit-learn": "sklearn",
    "scikit-image": "skimage",
    "pillow": "PIL",
    "safetensors": "safetensors",
    "pydantic": "pydantic",
    "pyyaml": "yaml",
    "jinja2": "jinja2",
    "typer": "typer",
    "rich": "rich",
}
EXTRAS = {
    "lpips": ("lpips",),
    "torchvision": ("torchvision",),
    "flower": ("flwr", "ray"),
    "ray": ("ray",),
    "dp": ("opacus",),
    "he": ("tenseal", "phe", "gmpy2"),
    "search": ("optuna",),
    "prior": ("cma", "kornia"),
}


def doctor(as_json: bool = typer.Option(False, "--json", help="Print as JSON.")) -> None:
    """Import every package and extra, list the data sets here, and check that a known attack succeeds.

    Example: leakscope doctor
    """
    from leakscope.version import __version__

    found = {"leakscope": __version__, "python": platform.python_version()}
    problems = {name: reason for name, module in PACKAGES.items() if (reason := _why_unusable((module,)))}
    usable = [f"{name} {_version(name)}" for name in PACKAGES if name not in problems]
    found["packages"] = ", ".join(usable) or "none"
    if problems:
        found["FAILED"] = "; ".join(f"{name}: {reason}" for name, reason in problems.items())
    found |= _extras()
    is_fit = not problems
    if is_fit:
        measured, is_fit = _measure()
        found |= measured
    if as_json:
        echo(json.dumps(found, indent=1))
    else:
        for name, value in found.items():
            echo(f"{name:16} {value}")
    raise typer.Exit(0 if is_fit else 3)


def _extras() -> dict[str, str]:
    # Read on import: looking at an installation must not tell anyone of it.
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    broken = {name: reason for name, modules in EXTRAS.items() if (reason := _why_unusable(modules))}
    usable = {name: modules for name, modules in EXTRAS.items() if name not in broken}
    versions = [
        f"{name} ({', '.join(f'{module} {_version(module)}' for module in modules)})"
        for name, modules in usable.items()
    ]
    return {
        "extras": ", ".join(versions) or "none",
        "missing extras": "; ".join(f"{name}: {reason}" for name, reason in broken.items()) or "none",
        "install them": install_line(*broken) if broken else "nothing to install",
    }


def _measure() -> tuple[dict[str, str], bool]:
    """What the machine has, and whether the self-check passed."""
    import torch

    from leakscope import data
    from leakscope.audits import self_check

    check = self_check()
    found = {
        "threads": str(torch.get_num_threads()),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "data sets here": ", ".join(name for name in data.names() if data.is_available(name)),
        "self-check": f"{check.name}: {check.psnr:.1f} dB, {'passed' if check.passed else 'FAILED'}",
    }
    return found, check.passed


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "of unknown version"


def _why_unusable(modules: tuple[str, ...]) -> str | None:
    """Why packages cannot be used; they are imported, since one that is installed may still not load."""
    module = ""
    try:
        for module in modules:
            importlib.import_module(module)
    except ModuleNotFoundError as error:
        return f"no package {error.name}"
    # A compiled package for another version of Python or torch may raise anything.
    except Exception as error:
        message = next(iter(str(error).splitlines()), "")
        return f"{module} does not load ({type(error).__name__}: {message})"
    return None
