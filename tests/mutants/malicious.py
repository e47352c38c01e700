"""Wrong formulas in malicious servers: what carries the picture, what keeps classes apart, how it is read."""

from __future__ import annotations

from mutants.mutant import Mutant

_PLACE = "attacks/malicious/"
_MKOR = (_PLACE + "test_mkor.py",)
_FISHING = (_PLACE + "test_class_fishing.py",)
_ROBBING = (_PLACE + "test_robbing_the_fed.py",)
_TRAPS = (_PLACE + "test_trap_weights.py",)
_ROUTES, _FILTERS, _BRACKETS = (f"{_PLACE}carrying/{name}.py" for name in ("routes", "filters", "brackets"))
_PATHS, _READ, _LOSSES = (f"{_PLACE}decoupling/{name}.py" for name in ("paths", "read", "losses"))

MUTANTS = (
    Mutant("offsets without the padding", _ROUTES, "one.row + (row - padding)", "one.row + row", _MKOR),
    Mutant(
        "pooling does not widen the window", _ROUTES, "for more in range(stage.pool_size)", "for more in (0,)", _MKOR
    ),
    Mutant("stride forgotten", _ROUTES, "step = plan.step * stride", "step = plan.step", _MKOR),
    Mutant("inverted channels without their bias", _FILTERS, "(mean if sign > 0 else 1.0 - mean)", "mean", _MKOR),
    Mutant(
        "normalisation multiplied instead of undone",
        _FILTERS,
        "sign * strength.beta * std",
        "sign * strength.beta / std",
        _MKOR,
    ),
    Mutant(
        "stored variance not rooted",
        _FILTERS,
        "(layer.running_var[outputs] + layer.eps).sqrt()",
        "(layer.running_var[outputs] + layer.eps)",
        _MKOR,
    ),
    Mutant(
        "carried outputs keep what they heard", _FILTERS, "    layer.weight[outputs] = _noise(", "    _noise(", _MKOR
    ),
    Mutant("lower bound not inverted", _BRACKETS, "lower = [1 - _tightest(", "lower = [_tightest(", _MKOR),
    Mutant("loosest bound", _BRACKETS, "best = torch.minimum(best,", "best = torch.maximum(0 * best,", _MKOR),
    Mutant("beta left in", _BRACKETS, "values = values / beta", "values = values / 1", _MKOR),
    Mutant("zeroed features believed", _BRACKETS, 'values.masked_fill(values == 0, float("nan"))', "values", _MKOR),
    Mutant("ways heard through either sign", _PATHS, "layer.weight[goal] = layer.weight[goal].abs()", "pass", _MKOR),
    Mutant("alpha not applied to the bias", _PATHS, "style.alpha * first.bias[one]", "first.bias[one]", _MKOR),
    Mutant("one way under dropout", _PATHS, "_SPARE_PATHS = 4", "_SPARE_PATHS = 1", _MKOR),
    Mutant("nothing dumped", _PATHS, "_DUMP_BIAS = 60.0", "_DUMP_BIAS = 0.0", _MKOR),
    Mutant(
        "absent class added",
        _READ,
        "entries[absent].mean(0) - entries[present]",
        "entries[absent].mean(0) + entries[present]",
        _MKOR,
    ),
    Mutant("unequal scores ignored", _READ, "moved = base + extra.T @ sums", "moved = base", _MKOR),
    Mutant("gains multiplied", _READ, "(factor / gains)", "(factor * gains)", _MKOR),
    Mutant("every batch has an absent class", _READ, "if not absent or float(", "if float(", _MKOR),
    Mutant("any loss will do", _LOSSES, "    if expected in names:", "    if True:", _MKOR),
    Mutant("mixtures pass for people", _PLACE + "mixtures.py", "any(count == 1 for count in members)", "True", _MKOR),
    Mutant(
        "counts of all others not shifted",
        _PLACE + "fished_gradient.py",
        "(chances - gradient.bias)",
        "(-gradient.bias)",
        _FISHING,
    ),
    Mutant(
        "others not lifted", _PLACE + "fished_gradient.py", "head.bias.fill_(lift)", "head.bias.fill_(0.0)", _FISHING
    ),
    Mutant(
        "a cut below instead of above",
        _PLACE + "fished_gradient.py",
        "else -SHARPNESS * self.cut",
        "else SHARPNESS * self.cut",
        _FISHING,
    ),
    Mutant("the body moves between rounds", _PLACE + "class_fishing.py", "if context.history:", "if False:", _FISHING),
    Mutant(
        "rows not subtracted",
        _PLACE + "robbing_the_fed.py",
        "torch.cat([weight[:-1] - weight[1:], weight[-1:]])",
        "weight",
        _ROBBING,
    ),
    Mutant(
        "any bin is one example",
        _PLACE + "robbing_the_fed.py",
        "alone = is_valid & (least < proof)",
        "alone = is_valid",
        _ROBBING,
    ),
    Mutant(
        "bins that rise",
        _PLACE + "robbing_the_fed.py",
        "-self.gain * torch.tensor(edges)",
        "self.gain * torch.tensor(edges)",
        _ROBBING,
    ),
    Mutant(
        "the wrong half is larger",
        _PLACE + "trap_weights.py",
        "torch.where(negative, -scale * sizes, sizes)",
        "torch.where(negative, -sizes, scale * sizes)",
        _TRAPS,
    ),
    Mutant("rows not proven", _PLACE + "proven_rows.py", "(least < PROOF)", "(least < torch.inf)", _TRAPS),
)
