"""Wrong formulas in federated rounds: weights, the server's step, replies, bytes, the baseline, continuation."""

from __future__ import annotations

from mutants.mutant import Mutant

_STRATEGY = ("federated/test_strategy.py",)
_VALIDATION = (
    "federated/test_federation.py::"
    "test_cross_validation_is_the_loss_of_each_clients_model_on_the_others_held_out_examples",
)
_BYTES = ("federated/test_federation.py::test_bytes_are_counted_with_the_models_sent_for_validation",)
_FAULTS = ("federated/test_faults.py",)
_CHECKPOINTS = ("federated/test_checkpoints.py",)
_CENTRAL = ("federated/test_central.py",)
_KEYS = ("federated/test_keys.py",)

MUTANTS = (
    Mutant(
        "every client counts the same under FedAvg",
        "federated/strategy.py",
        "return [reply.num_examples / total for reply in replies]",
        "return [1 / len(replies) for reply in replies]",
        _STRATEGY,
    ),
    Mutant(
        "the written formula with one softmax",
        "federated/fedboosting.py",
        "scores = torch.softmax(fitness, 0) * losses.sum(1)",
        "scores = fitness * losses.sum(1)",
        _STRATEGY,
    ),
    Mutant(
        "the written formula with the mean of V",
        "federated/fedboosting.py",
        "scores = torch.softmax(fitness, 0) * losses.sum(1)",
        "scores = torch.softmax(fitness, 0) * losses.mean(1)",
        _STRATEGY,
    ),
    Mutant(
        "the written formula mended in silence",
        "federated/fedboosting.py",
        "return torch.softmax(scores, 0).tolist()",
        "return torch.softmax(-scores, 0).tolist()",
        _STRATEGY,
    ),
    Mutant(
        "weights by what validators lose, not by what models do",
        "federated/fedboosting.py",
        "1 / losses.mean(1).clamp_min",
        "1 / losses.mean(0).clamp_min",
        _STRATEGY,
    ),
    Mutant(
        "the released formula grows with the training loss",
        "federated/fedboosting.py",
        "better = 1 / fitness.clamp_min(_SMALLEST_LOSS)",
        "better = fitness.clamp_min(_SMALLEST_LOSS)",
        _STRATEGY,
    ),
    Mutant(
        "training losses count although they are switched off",
        "federated/fedboosting.py",
        "losses if self.training_loss else None",
        "losses",
        _STRATEGY,
    ),
    Mutant(
        "the server climbs along mean changes",
        "federated/experiment.py",
        'update.tensors if update.kind == "gradient" else scale(update.tensors, -1.0)',
        "update.tensors",
        ("federated/test_federation.py::test_learns",),
    ),
    Mutant(
        "the server forgets its momentum",
        "federated/server.py",
        "        self.memory = memory\n",
        "",
        ("federated/test_federation.py::test_fedsgd_is_gradient_descent_on_all_examples",),
    ),
    Mutant(
        "mixing gives every other client the whole rest",
        "federated/validation.py",
        "rest = 0.0 if not others else (1.0 - own) / others",
        "rest = 0.0 if not others else (1.0 - own)",
        ("federated/test_federation.py::test_mixing_validates_nine_tenths_of_a_client_and_its_share_of_the_others",),
    ),
    Mutant(
        "models are validated without the global weights' rate",
        "federated/server.py",
        'rate = 1.0 if update.kind == "delta" else -self.experiment.server.lr',
        "rate = self.experiment.server.lr / 2",
        _VALIDATION,
    ),
    Mutant(
        "models are validated with the old statistics",
        "federated/validation.py",
        "_ValidatedModel(update, replies[place].buffers, replies[place].bytes_sent)",
        "_ValidatedModel(update, {}, replies[place].bytes_sent)",
        _VALIDATION,
    ),
    Mutant(
        "the matrix is turned",
        "federated/validation.py",
        "[[column[place] for column in judges] for place in kept]",
        "[[column[place] for place in kept] for column in judges]",
        _VALIDATION,
    ),
    Mutant(
        "the training loss of the model that was received",
        "federated/client.py",
        'if update.kind == "delta":\n        parameters',
        'if update.kind == "nothing":\n        parameters',
        _VALIDATION,
    ),
    Mutant(
        "models for validation cost nothing",
        "federated/validation.py",
        "        bytes_down=down,\n",
        "",
        _BYTES,
    ),
    Mutant(
        "a client receives its own model again",
        "federated/validation.py",
        "if is_mixed or owner != number",
        "if is_mixed or owner is not None",
        _BYTES,
    ),
    Mutant(
        "the first tenth is held out",
        "federated/client.py",
        "cls(number, _rows(batch, slice(kept)), _rows(batch, slice(kept, None)), poison=poison)",
        "cls(number, _rows(batch, slice(-kept, None)), _rows(batch, slice(-kept)), poison=poison)",
        ("federated/test_federation.py::test_the_last_tenth_is_held_out",),
    ),
    Mutant(
        "the same clients in every round",
        "federated/server.py",
        'generator(self.experiment.seed, "select", round)',
        'generator(self.experiment.seed, "select")',
        ("federated/test_federation.py::test_a_fraction_takes_part_drawn_anew_for_every_round",),
    ),
    Mutant(
        "statistics of the last client instead of the mean",
        "federated/server.py",
        "average_tensors([reply.buffers for reply in replies], weights)",
        "average_tensors([replies[-1].buffers], [1.0])",
        ("federated/test_federation.py::test_batch_statistics_are_the_clients_mean",),
    ),
    Mutant(
        "labels are flipped to a class too high",
        "federated/poison.py",
        "self.flip_labels - 1 - batch.targets",
        "self.flip_labels - batch.targets",
        ("federated/test_federation.py::test_flipped_labels_count_down_from_the_last_class",),
    ),
    Mutant(
        "a poisoned client validates honestly",
        "federated/client.py",
        "held_out = self.held_out if self.poison is None else self.poison.spoil_data(self.held_out)",
        "held_out = self.held_out",
        ("federated/test_federation.py::test_a_poisoned_client_validates_with_its_poisoned_data",),
    ),
    Mutant(
        "gradients are validated uphill",
        "federated/server.py",
        "else -self.experiment.server.lr",
        "else self.experiment.server.lr",
        ("federated/test_federation.py::test_gradients_are_validated_one_step_downhill",),
    ),
    Mutant(
        "NaN passes",
        "federated/faults.py",
        "if value.is_floating_point() and not bool(torch.isfinite(value).all()):",
        "if False:",
        _FAULTS,
    ),
    Mutant(
        "replies of another round count",
        "federated/faults.py",
        "if (reply.client, reply.round) != (client, round):",
        "if reply.client != client:",
        _FAULTS,
    ),
    Mutant(
        "one completed client is always enough",
        "federated/experiment.py",
        "return max(1, math.ceil(self.min_completed * selected - 1e-9))",
        "return 1",
        ("federated/test_faults.py::test_below_the_minimum_the_round_fails_with_reasons",),
    ),
    Mutant(
        "failures are forgotten",
        "federated/play.py",
        "return replace(done, replies=replies, failures=tuple(every))",
        "return replace(done, replies=replies)",
        _FAULTS,
    ),
    Mutant(
        "late replies count",
        "federated/play.py",
        "if time_limit is not None and reply.seconds > time_limit:",
        "if False:",
        ("federated/test_faults.py::test_a_late_reply_does_not_count",),
    ),
    Mutant(
        "the server's optimiser starts again after a stop",
        "federated/checkpoints.py",
        'int(groups["server/step"][""]), groups.get("server/first", {}), groups.get("server/second", {})',
        "0",
        _CHECKPOINTS,
    ),
    Mutant(
        "clients forget what they kept after a stop",
        "federated/checkpoints.py",
        'client.memory.restore(groups.get(f"client/{client.number}", {}))',
        "pass",
        _CHECKPOINTS,
    ),
    Mutant(
        "a folder serves any experiment",
        "federated/identity.py",
        '"settings": {name: tell(name, value) for name, value in settings.items()},',
        '"settings": {},',
        ("federated/test_checkpoints.py::test_a_folder_with_another_training_is_refused",),
    ),
    Mutant(
        "a folder serves any loss",
        "federated/identity.py",
        '"probe": _probe(model, clients[0].train, experiment),',
        '"probe": "",',
        ("federated/test_checkpoints.py::test_a_loss_that_was_edited_in_place_is_another_training",),
    ),
    Mutant(
        "the baseline makes the steps of one client",
        "federated/central.py",
        "return replace(local, steps=local.steps * selected)",
        "return local",
        _CENTRAL,
    ),
    Mutant(
        "the baseline draws the batch of one client",
        "federated/central.py",
        "return min(examples, batch_size * selected)",
        "return min(examples, batch_size)",
        _CENTRAL,
    ),
    Mutant(
        "keys and lock layers change places",
        "federated/keys.py",
        "(key_source if name in keys else lock_source)[name]",
        "(lock_source if name in keys else key_source)[name]",
        _KEYS,
    ),
    Mutant(
        "clients' keys and locks enter the server's model",
        "federated/evaluation.py",
        "network = copy_network(model) if any(memory.private for memory in memories) else model",
        "network = model",
        _KEYS,
    ),
    Mutant(
        "the server starts with the first client's key",
        "federated/server.py",
        "        self.network = without_private(self.network)\n",
        "        pass\n",
        _KEYS,
    ),
    Mutant(
        "the written model holds what never leaves a client",
        "federated/federation.py",
        "if name not in self.network.private}",
        "if name}",
        ("cli/test_train.py::test_key_lock_is_tested_with_other_keys",),
    ),
)
