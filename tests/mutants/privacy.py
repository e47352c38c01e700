"""Wrong formulas in differential privacy: noise, clipping, ε and what it proves."""

from __future__ import annotations

from mutants.mutant import Mutant

_ACCOUNT = ("defences/test_accounting.py",)
_PROOF = ("defences/test_reconstruction.py",)


def _noise(test: str) -> tuple[str, ...]:
    # Single tests: the whole file attacks two networks, which takes a minute.
    return (f"defences/test_private_defences.py::test_{test}",)


MUTANTS = (
    Mutant(
        "privacy: DP-SGD's noise not divided by the batch",
        "defences/dp_sgd.py",
        "deviation = self.scale / len(context.batch)",
        "deviation = self.scale",
        _noise("the_noise_of_the_mean_has_its_law_and_its_deviation"),
    ),
    Mutant(
        "privacy: DP-SGD's attacker takes the deviation for the variance",
        "defences/dp_sgd.py",
        "recipe.sum_noise + self.scale**2",
        "recipe.sum_noise + self.scale",
        _noise("the_informed_attacker_is_told_the_variance_of_what_is_shared"),
    ),
    Mutant(
        "privacy: examples scaled up to the bound",
        "defences/per_example.py",
        "factor = (norm / lengths).clamp_max(1.0)",
        "factor = norm / lengths",
        _noise("clipping_bounds_every_example_over_all_tensors_together"),
    ),
    Mutant(
        "privacy: every tensor clipped by the first one's length",
        "defences/per_example.py",
        "lengths = squares.sum(0).sqrt()",
        "lengths = squares[0].sqrt()",
        _noise("clipping_bounds_every_example_over_all_tensors_together"),
    ),
    Mutant(
        "privacy: an infinite gradient passes",
        "defences/per_example.py",
        "kept = lengths.isfinite()",
        "kept = lengths >= 0",
        _noise("clipping_bounds_every_example_over_all_tensors_together"),
    ),
    Mutant(
        "privacy: noise of the norm squared",
        "defences/per_example.py",
        "return self.noise_multiplier * self.norm if self.noise_multiplier else 0.0",
        "return self.noise_multiplier * self.norm**2 if self.noise_multiplier else 0.0",
        _noise("the_noise_of_the_mean_has_its_law_and_its_deviation"),
    ),
    Mutant(
        "privacy: Fed-CDP's noise of the first bound",
        "defences/fed_cdp.py",
        "deviation = self.noise_multiplier * bound",
        "deviation = self.noise_multiplier * self.norm",
        _noise("fed_cdps_bound_and_noise_decay_over_local_steps"),
    ),
    Mutant(
        "privacy: Fed-CDP's bound rises",
        "defences/fed_cdp.py",
        "self.norm + (self.final_norm - self.norm)",
        "self.norm - (self.final_norm - self.norm)",
        _noise("fed_cdps_bound_and_noise_decay_over_local_steps"),
    ),
    Mutant(
        "privacy: Fed-CDP's noises add up to n, not √n",
        "defences/fed_cdp.py",
        "self.noise_multiplier * math.sqrt(least)",
        "self.noise_multiplier * least",
        _noise("epsilon_is_for_one_example_replaced_in_batches_of_fixed_size"),
    ),
    Mutant(
        "privacy: Fed-CDP's short batch has the noise of a full one",
        "defences/fed_cdp.py",
        'least = size if self.sampling == "fixed-batch" else examples % size or size',
        "least = size",
        _noise("epsilon_of_passes_counts_one_step_per_pass_and_no_sampling"),
    ),
    Mutant(
        "privacy: DP-FedAvg's noise without the norm",
        "defences/dp_fedavg.py",
        "return self.noise_multiplier * self.norm if self.noise_multiplier else 0.0",
        "return self.noise_multiplier if self.noise_multiplier else 0.0",
        _noise("the_noise_of_an_update_has_its_law_and_its_deviation"),
    ),
    Mutant(
        "privacy: DP-FedAvg scales small updates up",
        "defences/dp_fedavg.py",
        "float((self.norm / length).clamp_max(1.0))",
        "float(self.norm / length)",
        _noise("one_client_moves_its_update_by_no_more_than_twice_the_norm"),
    ),
    Mutant(
        "privacy: DP-FedAvg's attacker is not told of the noise",
        "defences/dp_fedavg.py",
        "noise=recipe.noise + self._scale**2",
        "noise=recipe.noise",
        _noise("the_informed_attacker_is_told_the_variance_of_what_is_shared"),
    ),
    Mutant(
        "privacy: replacing counted as taking away",
        "defences/privacy.py",
        "halved = multiplier / 2",
        "halved = multiplier",
        _noise("epsilon_is_for_one_example_replaced_in_batches_of_fixed_size"),
    ),
    Mutant(
        "privacy: dropped batches not counted in passes",
        "defences/privacy.py",
        "math.ceil(steps / max(1, math.floor(1 / rate + 1e-9)))",
        "math.ceil(steps * rate)",
        _noise("in_passes_no_example_is_in_more_steps_than_are_counted"),
    ),
    Mutant(
        "privacy: reconstruction from half the noise",
        "defences/privacy.py",
        "return math.sqrt(steps) / multiplier if multiplier else math.inf",
        "return 2 * math.sqrt(steps) / multiplier if multiplier else math.inf",
        _noise("what_is_proven_of_reconstruction_is_the_smallest_bound_and_not_below_the_guess"),
    ),
    Mutant(
        "privacy: reconstruction without steps",
        "defences/privacy.py",
        "return math.sqrt(steps) / multiplier if multiplier else math.inf",
        "return 1 / multiplier if multiplier else math.inf",
        _noise("what_is_proven_of_reconstruction_is_the_smallest_bound_and_not_below_the_guess"),
    ),
    Mutant(
        "privacy: the largest bound printed",
        "defences/privacy.py",
        "return min(found)",
        "return max(found)",
        _noise("what_is_proven_of_reconstruction_is_the_smallest_bound_and_not_below_the_guess"),
    ),
    Mutant(
        "privacy: a chain claims what another part broke",
        "defences/chain.py",
        'return None if mixed and found.unit == "example" else found',
        "return found",
        _noise("a_chain_keeps_a_guarantee_only_where_nothing_comes_between_clipping_and_noise"),
    ),
    Mutant(
        "privacy: attacker forgets the square of the batch",
        "matching/recipe.py",
        "self.sum_noise / size**2",
        "self.sum_noise / size",
        _noise("the_informed_attacker_is_told_the_variance_of_what_is_shared"),
    ),
    Mutant(
        "privacy: attacker forgets that steps average noise",
        "matching/recipe.py",
        "self.example_noise / size) / steps",
        "self.example_noise / size)",
        _noise("the_informed_attacker_is_told_the_variance_of_a_delta_as_a_mean_gradient"),
    ),
    Mutant(
        "privacy: the attacker who knows compares lengths",
        "defences/per_example.py",
        "return distance if distance.is_scale_free else Direction(distance)",
        "return distance",
        _noise("the_informed_attacker_is_told_the_variance_of_what_is_shared"),
    ),
    Mutant(
        "privacy: second term of the exact curve left out",
        "defences/accounting.py",
        "math.exp(first) - math.exp(min(second, first))",
        "math.exp(first) + 0 * second",
        _ACCOUNT,
    ),
    Mutant(
        "privacy: T steps as T times the shift",
        "defences/accounting.py",
        "mu = math.sqrt(steps) / multiplier",
        "mu = steps / multiplier",
        _ACCOUNT,
    ),
    Mutant(
        "privacy: the lower end of the search returned",
        "defences/accounting.py",
        "if gaussian_delta(mu, middle) > delta else (low, middle)",
        "if gaussian_delta(mu, middle) > 2 * delta else (low, middle)",
        _ACCOUNT,
    ),
    Mutant(
        "privacy: binomial moments with k² for k(k − 1)",
        "defences/accounting.py",
        "return _log_sum(weights + k * (k - 1) / (2 * multiplier**2))",
        "return _log_sum(weights + k * k / (2 * multiplier**2))",
        _ACCOUNT,
    ),
    Mutant(
        "privacy: rate and its complement swapped",
        "defences/accounting.py",
        "mixture = np.logaddexp(math.log1p(-rate), math.log(rate)",
        "mixture = np.logaddexp(math.log(rate), math.log1p(-rate)",
        _ACCOUNT,
    ),
    Mutant(
        "privacy: the older conversion to ε",
        "defences/accounting.py",
        "value + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)",
        "value - math.log(delta) / (order - 1)",
        _ACCOUNT,
    ),
    Mutant(
        "privacy: fixed batches with a single 2 for theorem 27's 4",
        "defences/accounting.py",
        "fine = math.log(4) +",
        "fine = math.log(2) +",
        _ACCOUNT,
    ),
    Mutant(
        "privacy: fixed batches' first term halved",
        "defences/accounting.py",
        "math.log(4) + _log_expm1(1 / multiplier**2)",
        "math.log(2) + _log_expm1(1 / multiplier**2)",
        _ACCOUNT,
    ),
    Mutant(
        "privacy: fixed batches' simple bound without its 2",
        "defences/accounting.py",
        "simple = math.log(2) + j * (j - 1)",
        "simple = j * (j - 1)",
        _ACCOUNT,
    ),
    Mutant(
        "privacy: calibration returns the noise that is too little",
        "defences/accounting.py",
        "        low, high = (low, middle) if epsilon_of(middle) <= target else (middle, high)\n    return high",
        "        low, high = (low, middle) if epsilon_of(middle) <= target else (middle, high)\n    return low",
        _ACCOUNT,
    ),
    Mutant(
        "privacy: reconstruction with the wrong sign",
        "defences/reconstruction.py",
        "ndtr(ndtri(prior) + mu)",
        "ndtr(ndtri(prior) - mu)",
        _PROOF,
    ),
    Mutant(
        "privacy: reconstruction without δ",
        "defences/reconstruction.py",
        "prior * math.exp(epsilon) + delta",
        "prior * math.exp(epsilon)",
        _PROOF,
    ),
    Mutant(
        "privacy: Hölder's exponent upside down",
        "defences/reconstruction.py",
        "* (order - 1) / order for order",
        "* order / (order - 1) for order",
        _PROOF,
    ),
)
