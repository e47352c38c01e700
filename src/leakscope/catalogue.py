"""Every name that stands for code, and how a name with options is written. Needs nothing but Python.

A spec is a name with options, `prune:fraction=0.9`; `+` chains defences, `clip:norm=1+gaussian-noise:sigma=0.01`.
`package.module:function`, with options behind a second colon, is an attack or a defence of the user's own; where such a
spec may come from (never from a configuration file) is checked by who reads it.

Wrong names and options are refused from here, before torch and everything above it is imported.
"""

from __future__ import annotations

import ast
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

from leakscope.errors import BadInputError, MissingDataError, UsageError, suggest
from leakscope.option_ranges import check_attack_option, check_defence_option
from leakscope.user_code import is_code

# Name: where the function is, below `leakscope.attacks` and `leakscope.defences`.
ATTACKS = {
    "dlg": "dlg.dlg",
    "dlg-adam": "dlg.dlg_adam",
    "idlg": "idlg.idlg",
    "cpl": "cpl.cpl",
    "inverting-gradients": "inverting_gradients.inverting_gradients",
    "gradinversion": "gradinversion.gradinversion",
    "geng": "geng.geng",
    "agic": "agic.agic",
    "grnn": "grnn.grnn",
    "grnn-refined": "grnn_refined.refined_grnn",
    "gias": "gias.gias",
    "ggl": "ggl.ggl",
    "policy-aware": "policy_aware.policy_aware",
    "rgap": "rgap.rgap",
    "fc-inversion": "fc_inversion.fc_inversion",
    "embedding-tokens": "embedding_tokens.embedding_tokens",
    "mkor": "malicious.mkor.mkor",
    "class-fishing": "malicious.class_fishing.class_fishing",
    "robbing-the-fed": "malicious.robbing_the_fed.robbing_the_fed",
    "trap-weights": "malicious.trap_weights.trap_weights",
    "lbfgs-l2": "ats_study.lbfgs_l2",
    "adam-cosine": "ats_study.adam_cosine",
    "lbfgs-cosine": "ats_study.lbfgs_cosine",
    "adam-l1": "ats_study.adam_l1",
    "adam-l2": "ats_study.adam_l2",
    "sgd-cosine": "ats_study.sgd_cosine",
}
DEFENCES = {
    "gaussian-noise": "noise.gaussian_noise",
    "laplacian-noise": "noise.laplacian_noise",
    "prune": "prune.prune",
    "clip": "clip.clip",
    "transforms": "transforms.defence.transforms",
    "top-k": "top_k.top_k",
    "sign": "sign.sign",
    "quantise": "quantise.quantise",
    "dp-sgd": "dp_sgd.dp_sgd",
    "fed-cdp": "fed_cdp.fed_cdp",
    "dp-fedavg": "dp_fedavg.dp_fedavg",
    "soteria": "soteria.soteria",
    "precode": "precode.precode",
    "key-lock": "key_lock.key_lock",
    "sealed": "sealed.sealed",
}
TABLES = {"attack": ATTACKS, "defence": DEFENCES}
NONE = "none"
# Names only: `leakscope.models` and `leakscope.data` hold what they stand for, and tests compare.
NETWORKS = (
    *("lenet-dlg", "lenet-grnn", "lenet5", "mlp", "fcn3", "cnn6", "convnet", "convnet-9", "resnet20", "resnet32"),
    *("resnet20-4", "resnet18", "resnet18-grnn", "resnet34", "resnet50", "vgg16", "vit", "lstm", "crnn", "crnn-small"),
    *("lenet5-strided", "mkor-strided", "mkor-copy"),
)
DATA_SETS = (
    *(
        "digits",
        "faces",
        "sample-photos",
        "mnist",
        "fashion-mnist",
        "cifar10",
        "cifar100",
        "olivetti",
        "tiny-imagenet",
        "imagenet",
        "words-plain",
        "words-scene",
        "iiit5k",
    ),
)
FOLDER_PREFIX = "folder:"
_NPZ = ".npz"


_TRUTH = {"true": True, "false": False}


def parse_spec(spec: str) -> tuple[str, dict[str, Any]]:
    """Split `name:a=1,b=x` into its name and options; values are literals, or else strings."""
    name, _, rest = spec.strip().partition(":")
    function, _, after = rest.partition(":")
    if function and "=" not in function and name not in ATTACKS and name not in DEFENCES:
        name, rest = f"{name}:{function}", after
    options: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, equals, text = item.partition("=")
        if not equals:
            raise UsageError(f"cannot read option {item!r} in {spec!r}; write name:option=value,option=value")
        options[key.strip()] = parse_literal(text.strip())
    return name.strip(), options


def split_chain(spec: str) -> list[str]:
    """Split a chain at the `+` before a name; the one in 1e+3 belongs to a number."""
    return re.split(r"\+(?=[a-z])", spec)


def parse_literal(text: str) -> Any:
    """A number or a list as Python writes them, a truth value in any case; anything else is a string."""
    # As a string "false" would count as true.
    if text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def check_network(name: str) -> None:
    """Refuse a network that is neither a reference network nor named as code."""
    if name not in NETWORKS and not is_code(name):
        raise UsageError(f"unknown model {name!r}.{suggest(name, NETWORKS)}")


def check_data(name: str) -> None:
    """Refuse data that are neither a known set nor named as a path or as code."""
    is_path = name.startswith(FOLDER_PREFIX) or name.lower().endswith(_NPZ) or os.path.lexists(name)
    if name not in DATA_SETS and not is_path and not is_code(name) and not any(sign in name for sign in "/\\\0"):
        raise UsageError(explain_unknown_data(name))


def check_data_exist(name: str) -> None:
    """Refuse a path of data that leads nowhere; what a name stands for elsewhere is not looked for."""
    if name in DATA_SETS or is_data_code(name):
        return
    if name.startswith(FOLDER_PREFIX) or not name.lower().endswith(_NPZ):
        find_folder(name)
    elif not os.path.lexists(os.path.expanduser(name)):
        raise BadInputError(f"{name!r}: no such file; check the path")


def find_folder(name: str) -> Path:
    """The folder of pictures that `name` stands for."""
    folder = Path(name.removeprefix(FOLDER_PREFIX)).expanduser()
    if not os.path.isdir(folder):
        raise MissingDataError(
            f"{str(folder)!r} is not a folder; give the path of a folder of pictures or of an .npz file"
        )
    return folder


def explain_unknown_data(name: str) -> str:
    """What to do about data that nobody knows."""
    return (
        f"unknown data set {name!r}.{suggest(name, DATA_SETS)} Data of your own: the path of a folder of pictures or "
        "of an .npz file, or package.module:function."
    )


def is_data_code(name: str) -> bool:
    """Whether `name` is a function that returns data: `folder:photos` and `a:b.npz` are files."""
    return not name.startswith(FOLDER_PREFIX) and not name.lower().endswith(_NPZ) and is_code(name)


def check_spec(kind: str, spec: str) -> None:
    """Refuse an attack or a chain of defences with an unknown name or option; a user's own code is not looked at."""
    for part in split_chain(spec) if kind == "defence" else [spec]:
        name, options = parse_spec(part)
        for option, value in options.items():
            refuse_non_finite(f"{kind} {name!r}: {option}", value)
        if not is_code(name) and not (kind == "defence" and (spec == NONE or name == "chain")):
            check_options(kind, name, options)


def check_options(kind: str, name: str, options: dict[str, Any]) -> None:
    """Refuse a name that is not there, an option that it does not have, and a number that is outside its range."""
    if name not in TABLES[kind]:
        raise UsageError(f"unknown {kind} {name!r}.{suggest(name, TABLES[kind])}")
    known = declared_options(kind, name)
    for option in options:
        if option not in known:
            told = suggest(option, known) if known else " It has none."
            raise UsageError(f"{kind} {name!r} has no option {option!r}.{told}")
    check = check_attack_option if kind == "attack" else check_defence_option
    for option, value in options.items():
        # The default says what is used instead.
        if value is not None or known[option] != "None":
            check(name, option, value)


def refuse_non_finite(where: str, value: Any) -> None:
    """Refuse NaN and infinity in a value that nothing else checks, however deep."""
    # Written as 1e999, or as a word that float() would read.
    words = ("nan", "inf", "infinity")
    strange = isinstance(value, str) and value.lower().lstrip("+-").removeprefix(".") in words
    if strange or (isinstance(value, float) and (value != value or value in (float("inf"), float("-inf")))):
        raise UsageError(f"{where} must be a finite number, got {value!r}")
    if isinstance(value, dict):
        for name, part in value.items():
            refuse_non_finite(f"{where}.{name}", part)
    for part in value if isinstance(value, (list, tuple)) else ():
        refuse_non_finite(where, part)


def declared_options(kind: str, name: str) -> dict[str, str | None]:
    """Options of an attack or a defence with their defaults as its source writes them; None where one must be given."""
    arguments = _definition(kind, name).args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    pairs = [*zip(positional, defaults, strict=True), *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return {argument.arg: None if default is None else ast.unparse(default) for argument, default in pairs}


def first_line(kind: str, name: str) -> str:
    """The sentence that an attack or a defence says of itself."""
    return (ast.get_docstring(_definition(kind, name)) or "").partition("\n")[0]


def _definition(kind: str, name: str) -> ast.FunctionDef:
    module, _, function = TABLES[kind][name].rpartition(".")
    source = Path(__file__).parent / f"{kind}s" / f"{module.replace('.', '/')}.py"
    return next(node for node in _parse(source).body if isinstance(node, ast.FunctionDef) and node.name == function)


@cache
def _parse(source: Path) -> ast.Module:
    return ast.parse(source.read_text(encoding="utf-8"))
