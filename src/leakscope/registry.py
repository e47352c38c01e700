"""Names of attacks and defences. The only place where a string stands for code.

A spec is a name with options, `prune:fraction=0.9`; `+` chains defences,
`clip:norm=1+gaussian-noise:sigma=0.01`. `package.module:function`, with options behind a second colon, is an attack
or a defence of the user's own; where a spec may come from (never from a configuration file) is checked by who reads it.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

from leakscope.attack import Attack
from leakscope.attacks import (
    agic,
    ats_study,
    cpl,
    dlg,
    fc_inversion,
    geng,
    ggl,
    gias,
    gradinversion,
    grnn,
    grnn_refined,
    idlg,
    inverting_gradients,
    policy_aware,
    rgap,
)
from leakscope.defence import Defence
from leakscope.defences import chain, clip, noise, prune
from leakscope.errors import UsageError, suggest
from leakscope.user_code import call, import_function, is_code

_Kind = TypeVar("_Kind", Attack, Defence)

ATTACKS: dict[str, Callable[..., Attack]] = {
    "dlg": dlg.dlg,
    "dlg-adam": dlg.dlg_adam,
    "idlg": idlg.idlg,
    "cpl": cpl.cpl,
    "inverting-gradients": inverting_gradients.inverting_gradients,
    "gradinversion": gradinversion.gradinversion,
    "geng": geng.geng,
    "agic": agic.agic,
    "grnn": grnn.grnn,
    "grnn-refined": grnn_refined.refined_grnn,
    "gias": gias.gias,
    "ggl": ggl.ggl,
    "policy-aware": policy_aware.policy_aware,
    "rgap": rgap.rgap,
    "fc-inversion": fc_inversion.fc_inversion,
    "lbfgs-l2": ats_study.lbfgs_l2,
    "adam-cosine": ats_study.adam_cosine,
    "lbfgs-cosine": ats_study.lbfgs_cosine,
    "adam-l1": ats_study.adam_l1,
    "adam-l2": ats_study.adam_l2,
    "sgd-cosine": ats_study.sgd_cosine,
}

DEFENCES: dict[str, Callable[..., Defence]] = {
    "gaussian-noise": noise.gaussian_noise,
    "laplacian-noise": noise.laplacian_noise,
    "prune": prune.prune,
    "clip": clip.clip,
}


def get_attack(name: str, **options: Any) -> Attack:
    """Return the attack `name` with the paper's defaults, changed by `options`."""
    if is_code(name):
        return _build_own(name, options, Attack, "a function that returns a leakscope.attack.Attack")
    return _build("attack", ATTACKS, name, options)


def get_defence(name: str, **options: Any) -> Defence:
    """Return the defence `name`; `parts=[…]` with the name "chain" applies several in turn."""
    if name == "chain":
        unknown = sorted(set(options) - {"parts"})
        if unknown:
            raise UsageError(f"defence 'chain' has no option {unknown[0]!r}; give parts=[…], the defences in order")
        return chain.chain(*(as_defence(part) for part in options.get("parts", ())))
    if is_code(name):
        return _build_own(name, options, Defence, "a function that returns a leakscope.defence.Defence")
    return _build("defence", DEFENCES, name, options)


def attack_from_spec(spec: str) -> Attack:
    """Build an attack from `name:option=value,…`."""
    name, options = parse_spec(spec)
    return get_attack(name, **options)


def defence_from_spec(spec: str) -> Defence | None:
    """Build a defence from `name:option=value,…`, several joined by `+`; "none" is None."""
    if spec == "none":
        return None
    parts = [parse_spec(part) for part in split_chain(spec)]
    built = [get_defence(name, **options) for name, options in parts]
    return built[0] if len(built) == 1 else chain.chain(*built)


def split_chain(spec: str) -> list[str]:
    """Split a chain at the `+` before a name; the one in 1e+3 belongs to a number."""
    return re.split(r"\+(?=[a-z])", spec)


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
        options[key.strip()] = _literal(text.strip())
    return name.strip(), options


def as_defence(value: str | Defence) -> Defence:
    """A defence by its spec, or as it is; "none" is the empty chain."""
    if not isinstance(value, str):
        return value
    return defence_from_spec(value) or chain.chain()


def _build(kind: str, table: dict[str, Callable[..., Any]], name: str, options: dict[str, Any]) -> Any:
    if name not in table:
        raise UsageError(f"unknown {kind} {name!r}.{suggest(name, table)}")
    allowed = inspect.signature(table[name]).parameters
    for option in options:
        if option not in allowed:
            raise UsageError(f"{kind} {name!r} has no option {option!r}.{suggest(option, allowed)}")
    try:
        return table[name](**options)
    except TypeError as error:
        raise UsageError(f"{kind} {name!r} cannot be built with {options}: {error}") from error


def _build_own(name: str, options: dict[str, Any], kind: type[_Kind], expected: str) -> _Kind:
    function: Callable[..., Any] = import_function(name, allow_code=True, expected=expected)
    found = call(name, lambda: function(**options), expected=expected)
    if not isinstance(found, kind):
        raise UsageError(f"{name!r} returned a {type(found).__name__}; expected {expected}")
    return found


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
