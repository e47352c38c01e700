"""Wrong formulas in Soteria, PRECODE and key-lock, in their attackers, and in the search for unknown tensors."""

from __future__ import annotations

from mutants.mutant import Mutant

_SOTERIA, _PRECODE, _LOCK = (f"defences/test_{name}.py::test_" for name in ("soteria", "precode", "key_lock"))
_UNKNOWN = "networks/test_unknowns.py::test_"
_SCORES = (_SOTERIA + "scores_are_those_of_the_formula",)
_COLUMNS = (_SOTERIA + "columns_below_the_percentile_go_and_nothing_else",)
_S_NAMED = (_SOTERIA + "the_named_divisors",)
_S_LAYER = (_SOTERIA + "the_defended_layer_is_the_last_that_runs_or_the_named_one",)
_S_DEAD = (_SOTERIA + "features_that_nothing_moves_go_first",)
_S_ONLY = (_SOTERIA + "only_what_was_shared_is_left_out",)
_P_LOSS = (_PRECODE + "the_loss_is_cross_entropy_and_bits",)
_P_FORWARD = (_PRECODE + "what_it_computes",)
_P_EVAL = (_PRECODE + "noise_is_drawn_in_evaluation_mode_too",)
_P_NOISE = (_PRECODE + "with_the_clients_noise_the_truth_explains_the_update",)
_P_PLACE = (_PRECODE + "the_bottleneck_stands_before_the_classifier",)
_P_MATCHED = (_PRECODE + "the_attacker_who_knows_matches_up_to_the_first_fully_connected_layer_of_the_end",)
_L_FORMULA = (_LOCK + "scale_and_shift_come_from_the_key_through_two_layers",)
_L_CHAIN = (_LOCK + "each_lock_has_scale_and_shift_of_the_one_before_as_keys",)
_L_NORM = (_LOCK + "in_a_network_with_normalisation_nothing_but_scale_and_shift_changes",)
_L_AVERAGE = (_LOCK + "a_new_normalisation_has_a_scale_only_where_it_is_trained",)
_L_KEY = (_LOCK + "the_key_is_uniform_and_the_clients_own",)
_L_SECRET = (_LOCK + "what_the_client_keeps_never_reaches_the_server",)
_L_DEAD = (_LOCK + "relu_kills_about_half_of_the_channels_and_their_filters",)
_L_READ = (
    _LOCK + "a_shared_lock_gives_the_key_away",
    _LOCK + "the_attacker_who_searches_for_the_lock_sees_the_picture_again",
)
_U_SEARCH = (_UNKNOWN + "a_search_for_them_finds_the_picture_too",)
_U_ROWS = (_UNKNOWN + "every_example_has_a_row",)
_U_LOCAL = (_UNKNOWN + "local_steps_use_the_rows_of_their_examples",)
_U_FAST = (_UNKNOWN + "the_fast_route_steps_aside",)

MUTANTS = (
    Mutant(
        "Soteria divides by the feature's size",
        "defences/soteria.py",
        "(features.detach().T + epsilon)",
        "(features.detach().T.abs() + epsilon)",
        _SCORES,
    ),
    Mutant(
        "Soteria multiplies by the feature",
        "defences/soteria.py",
        "lengths / (features",
        "lengths * (features",
        _SCORES,
    ),
    Mutant(
        "Soteria knows a step by its features alone",
        "defences/soteria.py",
        '{**gradient, " inputs": inputs, " features": features}',
        '{" inputs": inputs, " features": features}',
        (_SOTERIA + "a_network_with_the_same_features_and_other_derivatives_is_scored_by_itself",),
    ),
    Mutant(
        "Soteria's lengths squared",
        "defences/soteria.py",
        "part.flatten(2).norm(dim=2)",
        "part.flatten(2).square().sum(dim=2)",
        _SCORES,
    ),
    Mutant(
        "Soteria takes the first example",
        "defences/soteria.py",
        "neginf=-torch.inf).sum(1)",
        "neginf=-torch.inf)[:, 0]",
        _SCORES,
    ),
    Mutant(
        "Soteria zeroes the most telling columns",
        "defences/soteria.py",
        "(scores >= least)",
        "(scores <= least)",
        _COLUMNS,
    ),
    Mutant(
        "Soteria keeps the percentile",
        "defences/soteria.py",
        "self.percentile / 100)",
        "1 - self.percentile / 100)",
        _COLUMNS,
    ),
    Mutant(
        "Soteria's GGL divisor × 1e9",
        "defences/soteria.py",
        '"ggl": 1e-10}',
        '"ggl": 1e-1}',
        _S_NAMED,
    ),
    Mutant(
        "Soteria defends the first layer that runs", "defences/soteria.py", "return ran[-1]", "return ran[0]", _S_LAYER
    ),
    Mutant(
        "Soteria leaves undefined scores",
        "defences/soteria.py",
        "ratios.nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf)",
        "ratios",
        _S_DEAD,
    ),
    Mutant(
        "Soteria takes no feature at once where examples are many",
        "defences/soteria.py",
        "max(1, _AT_ONCE // len(inputs))",
        "_AT_ONCE // len(inputs)",
        (_SOTERIA + "more_features_or_examples_than_fit_at_once",),
    ),
    Mutant(
        "the attacker who knows Soteria matches its tensor",
        "defences/soteria.py",
        "leave_out=(*recipe.leave_out, DefendedWeight(self.layer))",
        "leave_out=recipe.leave_out",
        _S_LAYER,
    ),
    Mutant(
        "the attacker who knows Soteria forgets which layer",
        "defences/soteria.py",
        "DefendedWeight(self.layer))",
        "DefendedWeight())",
        _S_LAYER,
    ),
    Mutant(
        "a tensor that is left out is matched where names are given",
        "matching/recipe.py",
        "for name in (self.only or shared) if name not in left_out",
        "for name in (self.only or [n for n in shared if n not in left_out])",
        _S_ONLY,
    ),
    Mutant(
        "PRECODE's KL in nats",
        "defences/precode.py",
        "nats.sum(1).mean() / math.log(2)",
        "nats.sum(1).mean()",
        _P_LOSS,
    ),
    Mutant("PRECODE's KL a mean over its numbers", "defences/precode.py", "nats.sum(1).mean()", "nats.mean()", _P_LOSS),
    Mutant("PRECODE's KL without the logarithm", "defences/precode.py", " - self.spread.log()\n", "\n", _P_LOSS),
    Mutant(
        "PRECODE's KL with the wrong sign",
        "defences/precode.py",
        "+ self.weight * output.bits",
        "- self.weight * output.bits",
        _P_LOSS,
    ),
    Mutant("PRECODE's KL weight × 100", "defences/precode.py", "weight: float = 1e-3", "weight: float = 1e-1", _P_LOSS),
    Mutant(
        "PRECODE's spread is an exponential",
        "defences/precode.py",
        "spread = functional.softplus(raw)",
        "spread = raw.exp()",
        _P_FORWARD,
    ),
    Mutant("PRECODE's noise not scaled", "defences/precode.py", "mean + spread * noise", "mean + noise", _P_FORWARD),
    Mutant(
        "PRECODE activates the decoded features",
        "defences/precode.py",
        "self.head(self.decode(mean + spread * noise))",
        "self.head(self.decode(mean + spread * noise).relu())",
        _P_FORWARD,
    ),
    Mutant(
        "PRECODE is quiet in evaluation mode",
        "defences/precode.py",
        "else torch.randn_like(mean)",
        "else torch.randn_like(mean) * self.training",
        _P_EVAL,
    ),
    Mutant(
        "PRECODE's noise from a seed that anyone has",
        "defences/precode.py",
        "else torch.randn_like(mean)",
        "else random.normal_like(mean, random.generator(0))",
        _P_NOISE,
    ),
    Mutant("PRECODE half as wide", "defences/precode.py", "width: int = 256", "width: int = 128", _P_PLACE),
    Mutant(
        "the attacker who knows PRECODE does not search for the noise",
        "defences/precode.py",
        "unknowns=True, draws_anew=True",
        "draws_anew=True",
        _P_NOISE,
    ),
    Mutant(
        "the attacker who knows PRECODE matches the bottleneck too",
        "defences/precode.py",
        "leave_out=(*recipe.leave_out, BehindFirstLinear())",
        "leave_out=recipe.leave_out",
        _P_MATCHED,
    ),
    Mutant(
        "the attacker who knows PRECODE leaves out the layer that gives its input away",
        "defences/precode.py",
        "behind = list(modules)[last_other + 2 :]",
        "behind = list(modules)[last_other + 1 :]",
        _P_MATCHED,
    ),
    Mutant(
        "key-lock scales by the shift",
        "defences/locks.py",
        "act(self.scale(keys[0])), act(self.shift(keys[1]))",
        "act(self.shift(keys[1])), act(self.shift(keys[1]))",
        _L_FORMULA,
    ),
    Mutant(
        "key-lock's shift without its activation",
        "defences/locks.py",
        "act(self.shift(keys[1]))",
        "self.shift(keys[1])",
        _L_FORMULA,
    ),
    Mutant(
        "key-lock subtracts the shift",
        "defences/locks.py",
        "* x + shift.reshape(shape)",
        "* x - shift.reshape(shape)",
        _L_FORMULA,
    ),
    Mutant(
        "a lock's keys swapped",
        "defences/locks.py",
        "return act(self.scale(keys[0]))",
        "keys = (keys[1], keys[0])\n        return act(self.scale(keys[0]))",
        _L_CHAIN,
    ),
    Mutant(
        "chained locks forget the one before",
        "defences/locks.py",
        "self.before[0].values() if self.before",
        "tuple(torch.ones_like(v) for v in self.before[0].values()) if self.before",
        _L_CHAIN,
    ),
    Mutant(
        "key-lock keeps the normalisation's own scale",
        "defences/locks.py",
        "norm if affine else _forget_affine(norm)",
        "norm",
        _L_NORM,
    ),
    Mutant(
        "key-lock forgets stored statistics",
        "defences/locks.py",
        "norm if affine else _forget_affine(norm)",
        "norm if affine else nn.BatchNorm2d(place.channels, affine=False, dtype=like.dtype).train(norm.training)",
        _L_NORM,
    ),
    Mutant(
        "a new normalisation has a scale of its own",
        "defences/locks.py",
        "kind(place.channels, affine=affine,",
        "kind(place.channels, affine=True,",
        _L_AVERAGE,
    ),
    Mutant(
        "key-lock's key is negative too",
        "defences/key_lock.py",
        "key = random.uniform((",
        "key = 1 - 2 * random.uniform((",
        _L_KEY,
    ),
    Mutant(
        "key-lock shares its lock",
        "defences/key_lock.py",
        'found |= own if self.shared in ("none", "key") else set()',
        "",
        _L_SECRET,
    ),
    Mutant("key-lock's server has the key", "defences/key_lock.py", "torch.full_like(key, 0.5)", "key", _L_SECRET),
    Mutant(
        "key-lock's server has the lock",
        "defences/key_lock.py",
        "if not (sends_lock or self.lock_known):",
        "if False:",
        _L_SECRET,
    ),
    Mutant(
        "dead channels counted by the shift",
        "defences/locks.py",
        "(module.values()[0] == 0)",
        "(module.values()[1] == 0)",
        _L_DEAD,
    ),
    Mutant(
        "the key is a product instead of a quotient",
        "defences/locks.py",
        'shared["scale.weight"][row] / divisor}',
        'shared["scale.weight"][row] * divisor}',
        _L_READ,
    ),
    Mutant(
        "the attacker who knows key-lock does not search for it",
        "defences/key_lock.py",
        "unknowns=True, leave_out",
        "leave_out",
        _L_READ,
    ),
    Mutant(
        "the attacker who knows key-lock matches the last layers, too",
        "defences/key_lock.py",
        "needless = (BehindFirstLinear(), *(",
        "needless = (*(), *(",
        (f"{_LOCK}the_attacker_who_knows_matches_nothing_behind_the_first_fully_connected_layer",),
    ),
    Mutant(
        "the attacker who knows key-lock matches the lock's own tensors",
        "defences/key_lock.py",
        "(LockTensors(),) if",
        "() if",
        _L_READ,
    ),
    Mutant(
        "unknown tensors do not move",
        "matching/objective.py",
        "gradient |= {UNKNOWN + name: value for",
        "gradient |= {UNKNOWN + name: 0 * value for",
        _U_SEARCH,
    ),
    Mutant(
        "unknown tensors move the wrong way",
        "matching/objective.py",
        "gradient |= {UNKNOWN + name: value for",
        "gradient |= {UNKNOWN + name: -value for",
        _U_SEARCH,
    ),
    Mutant(
        "the loss is stored without unknown tensors",
        "matching/engine.py",
        "victim=g // restarts, given=given[g])",
        "victim=g // restarts)",
        _U_ROWS,
    ),
    Mutant(
        "the fit forgets unknown tensors",
        "explanation/diagnosis.py",
        "seen = replace(seen, given=reconstruction.unknowns)",
        "seen = replace(seen)",
        _U_SEARCH,
    ),
    Mutant(
        "local steps use the wrong rows of unknown tensors",
        "steps/local.py",
        "given=take_examples(model, given, rows)",
        "given=take_examples(model, given, [0] * len(rows))",
        _U_LOCAL,
    ),
    Mutant(
        "the fast route ignores unknown tensors",
        "matching/routes.py",
        "    if unknown:\n",
        "    if False and unknown:\n",
        _U_FAST,
    ),
)
