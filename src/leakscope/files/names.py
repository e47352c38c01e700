"""Names of tensors: which are allowed, and how the names of a file are fitted to those of a model."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable

from torch import nn

from leakscope.errors import BadInputError

MAX_NAME = 512
# "w:0" is how TensorFlow names the first output of w, not a drive.
_DRIVE = re.compile(r"[A-Za-z]:(?!\d+$)")
_SEPARATOR = re.compile(r"[/\\]")
# Modules that wrap a whole model and put their attribute's name before every parameter.
_WRAPPERS = frozenset({"module", "_orig_mod", "_module", "_fsdp_wrapped_module", "_forward_module"})
_LEADING = _WRAPPERS | {"model", "net", "network"}


def name_problem(name: str) -> str | None:
    """Say why `name` cannot name a tensor, or return None when it can.

    Example:
        >>> name_problem("layer1.0.conv.weight") is None
        True
        >>> name_problem("../weights")
        "has the path segment '..'"
    """
    if not name:
        return "is empty"
    if len(name) > MAX_NAME:
        return f"is {len(name)} characters long, at most {MAX_NAME} are allowed"
    # Category C: control, format (bidirectional overrides), surrogate, unassigned.
    odd = [char for char in name if unicodedata.category(char).startswith("C")]
    if odd:
        return f"holds the unprintable character U+{ord(odd[0]):04X}"
    if name[0] in "/\\" or _DRIVE.match(name):
        return "is an absolute path"
    if ".." in _SEPARATOR.split(name):
        return "has the path segment '..'"
    return "is reserved" if name == "__metadata__" else None


def match_names(names: Iterable[str], model: nn.Module) -> tuple[dict[str, str], str | None]:
    """Return name → parameter or buffer name where all fit, and a note when they were changed.

    Tried in turn: the names as they are, positions ("0", "1", …) in parameter order, names without
    the prefixes that wrappers such as DataParallel or torch.compile add on either side.
    """
    given = list(names)
    known = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    known |= {name for name, _ in model.named_buffers(remove_duplicate=False)}
    as_is = {name: name for name in given}
    if known.issuperset(given):
        return as_is, None
    if (by_position := _by_position(given, model)) is not None:
        return by_position, "tensors without names were taken in the order of the model's parameters"
    bare = {_bare(name): name for name in known}
    found = {name: bare[_bare(name)] for name in given if _bare(name) in bare}
    unambiguous = len(bare) == len(known) and len(set(found.values())) == len(given)
    if unambiguous:
        return found, "wrapper prefixes such as 'module.' were taken off the tensor names"
    return as_is, None


def _by_position(given: list[str], model: nn.Module) -> dict[str, str] | None:
    if given != [str(index) for index in range(len(given))]:
        return None
    everything = [name for name, _ in model.named_parameters()]
    trainable = [name for name, value in model.named_parameters() if value.requires_grad]
    for order in (trainable, everything):
        if len(order) == len(given):
            return dict(zip(given, order, strict=True))
    return None


def _bare(name: str) -> str:
    parts = name.split(".")
    while len(parts) > 1 and parts[0] in _LEADING:
        del parts[0]
    # torch.compile and FSDP also wrap submodules, in the middle of a name.
    return ".".join(part for part in parts[:-1] if part not in _WRAPPERS) + "." + parts[-1]


def match_state(given: Collection[str], wanted: Collection[str], *, optional: Collection[str] = ()) -> dict[str, str]:
    """Return name in the file → name in the model for a state dict, where a wrapper stands in between.

    Either all names of the model are those of the file behind one common prefix ("net.", "1."), or all of the
    file are those of the model behind one ("module.", "model."). Names in `optional` may be absent from the file.

    Raises:
        BadInputError: No prefix fits, or several do; the message lists the first three names.
    """
    required = [name for name in wanted if name not in optional] or list(wanted)
    candidates = [("", {name: name for name in given})]
    candidates += [(prefix, {name: prefix + name for name in given}) for prefix in _prefixes(next(iter(given)), wanted)]
    candidates += [(prefix, _strip_prefix(given, prefix)) for prefix in _prefixes(required[0], given)]
    found = {prefix: mapping for prefix, mapping in candidates if set(required) <= set(mapping.values())}
    whole = {prefix: m for prefix, m in found.items() if len(m) == len(given) and set(m.values()) <= set(wanted)}
    if len(whole) == 1 or "" in whole:
        return whole[""] if "" in whole else next(iter(whole.values()))
    if len(found) > 1:
        prefixes = ", ".join(map(repr, list(found)[:3]))
        raise BadInputError(f"it fits behind several prefixes ({prefixes}); save the one network that is meant")
    mapping = next(iter(found.values()), {})
    missing = [name for name in required if name not in given and name not in mapping.values()]
    extra = [name for name in given if mapping.get(name, name) not in wanted]
    raise BadInputError(
        f"{_first_three(missing, 'missing')}, {_first_three(extra, 'unexpected')}; "
        "build the network the file was trained with"
    )


def _prefixes(name: str, among: Iterable[str]) -> list[str]:
    """What stands before `name` in longer names that end with it."""
    return [longer.removesuffix(name) for longer in among if longer.endswith("." + name)]


def _strip_prefix(names: Iterable[str], prefix: str) -> dict[str, str]:
    return {name: name.removeprefix(prefix) for name in names if name.startswith(prefix)}


def _first_three(names: list[str], word: str) -> str:
    shown = ", ".join(names[:3])
    return f"{len(names)} {word}" + (f" ({shown}{', …' if len(names) > 3 else ''})" if names else "")


def find_tied_names(model: nn.Module) -> dict[str, str]:
    """Return second name → first name of every tied parameter."""
    first = {id(value): name for name, value in model.named_parameters()}
    pairs = model.named_parameters(remove_duplicate=False)
    return {name: first[id(value)] for name, value in pairs if first[id(value)] != name}
