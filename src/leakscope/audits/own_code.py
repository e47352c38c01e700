"""Source of the user's own code: the file of each function, and all it imports from the user's project."""

from __future__ import annotations

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import util
from pathlib import Path

import torch
from torch import nn

import leakscope
from leakscope.audits.read_files import hash_file
from leakscope.registry import parse_spec, split_chain
from leakscope.user_code import import_function, is_code

_INSTALLED = ("site-packages", "dist-packages")


def hash_code(names: Iterable[str], *, network: nn.Module | None = None) -> str | None:
    """Hash of the source behind the functions among `names`; None where there are none.

    The file of each function counts, and every file that it imports, by a statement anywhere in it, from outside the
    standard library and the installed packages, whose versions count instead. `network` is what one of the functions
    built: its weights may come from a file that the function reads.
    """
    own = [name for name in names if is_code(name)]
    if not own:
        return None
    digest = hashlib.sha256()
    for name in own:
        digest.update(name.encode() + b"\0")
        for file in find_sources(_module_of(name)):
            digest.update(hash_file(file).encode())
    for key, value in () if network is None else (*network.named_parameters(), *network.named_buffers()):
        digest.update(key.encode() + value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def hash_specs(*specs: str) -> str | None:
    """As `hash_code`, of attacks and defences with their options."""
    return hash_code(parse_spec(part)[0] for spec in specs for part in split_chain(spec))


def find_sources(module: str) -> list[Path]:
    """The files of the user's project that `module` is made of: its own first, then what it imports, by name."""
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        file = _locate(name)
        if name in found or file is None or not _is_own(file):
            continue
        found[name] = file
        parents = name.split(".")[:-1]
        waiting += [".".join(parents[: depth + 1]) for depth in range(len(parents))]
        waiting += _imports(file, name if file.name == "__init__.py" else ".".join(parents))
    return [found[name] for name in sorted(found, key=lambda name: (name != module, name))]


def _module_of(name: str) -> str:
    function = import_function(name, allow_code=True, expected="a function of your own")
    return function.__module__ if function.__module__ in sys.modules else name.partition(":")[0]


def _locate(name: str) -> Path | None:
    """Where a module's source is; nothing is imported to find out."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        return None if loaded.__dict__.get("__file__") is None else Path(str(loaded.__file__))
    top, *rest = name.split(".")
    try:
        spec = util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None or not rest:
        return Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None
    for folder in spec.submodule_search_locations or ():
        base = Path(folder, *rest)
        for path in (base / "__init__.py", base.with_name(base.name + ".py")):
            if path.is_file():
                return path
    return None


@cache
def _is_own(file: Path) -> bool:
    path = file.resolve()
    if path.suffix != ".py" or not path.is_file() or any(part in _INSTALLED for part in path.parts):
        return False
    others = [Path(leakscope.__file__).parent, *(Path(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib"))]
    return not any(path.is_relative_to(folder.resolve()) for folder in others)


def _imports(file: Path, package: str) -> Iterator[str]:
    """Modules that a file may import; names that turn out to be none are dropped where they are looked for."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level and package else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            if base:
                yield base
            yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names)
