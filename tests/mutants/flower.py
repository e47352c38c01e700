"""Wrong formulas in what runs inside Flower; those that need Flower are tried where it is installed (.venv-extras)."""

from __future__ import annotations

import importlib.util

from mutants.mutant import Mutant

_CAPTURED = ("audits/test_captured.py",)
_OWN = ("audits/test_own_update.py",)
_DEFENDING = ("flower/test_defending.py",)
_GATING = ("flower/test_gating.py",)
_CAPTURE = ("flower/test_capture.py",)
_EXPERIMENT = ("flower/test_experiment.py",)
_CHECKING = ("flower/test_checking.py",)
_BOOSTING = ("flower/test_boosting.py",)
_SEALING = ("flower/test_sealing.py",)

_ANYWHERE = (
    Mutant(
        "Flower: an own update is scored by its mildest example",
        "audits/own_update.py",
        "float(scores.psnr.max())",
        "float(scores.psnr.min()) - 100",
        _OWN,
    ),
    Mutant(
        "Flower: an attack that ran out of time is evidence",
        "audits/own_update.py",
        "OwnLeakage(attack.name, Status.TIMEOUT,",
        "OwnLeakage(attack.name, Status.OK,",
        _OWN,
    ),
    Mutant(
        "Flower: a truth of another number of examples is taken",
        "audits/captured.py",
        "if update.num_examples not in (None, len(batch)):",
        "if False:",
        _CAPTURED,
    ),
    Mutant(
        "Flower: one bad file ends the audit",
        "audits/captured.py",
        "except LeakscopeError as error:",
        "except KeyError as error:",
        _CAPTURED,
    ),
)
_WITH_FLOWER = (
    Mutant(
        "Flower: the defended change is taken off the weights",
        "flower/records.py",
        "before[name].to(wide) + update.tensors[name].to(wide)",
        "before[name].to(wide) - update.tensors[name].to(wide)",
        _DEFENDING,
    ),
    Mutant(
        "Flower: the defended change goes out without the weights",
        "flower/records.py",
        "before[name].to(wide) + update.tensors[name].to(wide)",
        "update.tensors[name].to(wide)",
        _DEFENDING,
    ),
    Mutant(
        "Flower: the undefended weights go out",
        "flower/defending.py",
        "reply.content[sent.key] = to_record(arrays)",
        "to_record(arrays)",
        _DEFENDING,
    ),
    Mutant(
        "Flower: the server can repeat the noise",
        "flower/defending.py",
        ", round_of(message), _digest(update.tensors))",
        ", round_of(message))",
        _DEFENDING,
    ),
    Mutant(
        "Flower: the same noise in every round",
        "flower/defending.py",
        "client_number(context), round_of(message), _digest",
        "client_number(context), _digest",
        _DEFENDING,
    ),
    Mutant(
        "Flower: the same noise for every client",
        "flower/defending.py",
        '"flower", client_number(context), round_of(message)',
        '"flower", round_of(message)',
        _DEFENDING,
    ),
    Mutant(
        "Flower: noise from a fixed seed",
        "flower/defending.py",
        "secrets.randbits(62) if self.seed is None",
        "0 if self.seed is None",
        _DEFENDING,
    ),
    Mutant(
        "Flower: what top-k held back is forgotten",
        "flower/defending.py",
        "            context.state[self._state_key] = to_record(held_back)",
        "            pass",
        _DEFENDING,
    ),
    Mutant(
        "Flower: what cannot be defended goes out",
        "flower/defending.py",
        '            return refuse(message, f"{self.defence.name}: {error}")',
        "            return call_next(message, context)",
        _DEFENDING,
    ),
    Mutant(
        "Flower: NaN goes out",
        "flower/defending.py",
        "if not all_finite({name: value for name, value in arrays.items() if value.is_floating_point()}):",
        "if False:",
        _DEFENDING,
    ),
    Mutant(
        "Flower: an action of its own is no training",
        "flower/defending.py",
        'message.metadata.message_type.partition(".")[0] == "train"',
        'message.metadata.message_type == "train"',
        _DEFENDING,
    ),
    Mutant(
        "Flower: statistics go out that should stay",
        "flower/defending.py",
        'after = sent.tensors if self.buffers == "send" else',
        "after = sent.tensors if self.buffers else",
        _DEFENDING,
    ),
    Mutant(
        "Flower: dp-sgd from outside",
        "defence.py",
        "return self.changes_network or any(hook is not None for hook in inside)",
        "return self.changes_network",
        _DEFENDING,
    ),
    Mutant(
        "Flower: precode from outside",
        "defence.py",
        "return self.changes_network or any(hook is not None for hook in inside)",
        "return any(hook is not None for hook in inside)",
        _DEFENDING,
    ),
    Mutant(
        "Flower: a chain acts from outside where its first part does",
        "defences/chain.py",
        "any(part.acts_in_training() for part in self.parts)",
        "all(part.acts_in_training() for part in self.parts)",
        _DEFENDING,
    ),
    Mutant(
        "Flower: keys leave the client",
        "flower/own_training.py",
        "for n, v in network.client.state_dict().items() if n not in network.private}",
        "for n, v in network.client.state_dict().items()}",
        _DEFENDING,
    ),
    Mutant(
        "Flower: a client forgets between rounds",
        "flower/own_training.py",
        "    context.state[MEMORY] = to_record(own.memory.state())",
        "    own.memory.state()",
        _DEFENDING,
    ),
    Mutant(
        "Flower: the gate lets leaks pass",
        "flower/gating.py",
        "worst.worst_psnr > self.threshold_db:",
        "worst.worst_psnr < self.threshold_db - 1000:",
        _GATING,
    ),
    Mutant(
        "Flower: the gate takes no evidence for safety",
        "flower/gating.py",
        "if doubtful is not None:",
        "if False:",
        _GATING,
    ),
    Mutant(
        "Flower: the gate sends what it cannot measure",
        "flower/gating.py",
        "if not self.sends_inconclusive:",
        "if self.sends_inconclusive:",
        _GATING,
    ),
    Mutant(
        "Flower: the gate knows no defence",
        "flower/gating.py",
        "attacks = (chosen,) if knowing == chosen else (chosen, knowing)",
        "attacks = (chosen,)",
        _GATING,
    ),
    Mutant(
        "Flower: a captured change with the wrong sign",
        "flower/records.py",
        "return delta(before, after, local=local, num_examples=num_examples)",
        "return delta(after, before, local=local, num_examples=num_examples)",
        _CAPTURE,
    ),
    Mutant(
        "Flower: a captured update without its number of examples",
        "flower/capture.py",
        "local=local, num_examples=examples)",
        "local=local)",
        _CAPTURE,
    ),
    Mutant(
        "Flower: every client's weights are those of the first",
        "flower/capture.py",
        "return self.first if self.record is record else name(to_tensors(record))",
        "return self.first",
        _CAPTURE,
    ),
    Mutant(
        "Flower: skipped audits are not counted",
        "flower/leakage.py",
        "counts.skipped += count",
        "counts.skipped += 0",
        _CAPTURE,
    ),
    Mutant(
        "Flower: names of arrays in alphabetical order",
        "flower/records.py",
        "return dict(zip(order, tensors.values(), strict=True))",
        "return dict(zip(sorted(order), tensors.values(), strict=True))",
        _CAPTURE,
    ),
    Mutant(
        "Flower: rounds count from one",
        "flower/own_training.py",
        "round=round_of(message) - 1)",
        "round=round_of(message))",
        _EXPERIMENT,
    ),
    Mutant(
        "Flower: running statistics do not come back",
        "flower/client_side.py",
        "to_record({**reply.update.tensors, **reply.buffers})",
        "to_record(reply.update.tensors)",
        _EXPERIMENT,
    ),
    Mutant(
        "Flower: a client that failed is averaged",
        "flower/server_side.py",
        "        if message.has_error():\n",
        "        if False:\n",
        _EXPERIMENT,
    ),
    Mutant(
        "Flower: NaN is averaged",
        "flower/checking.py",
        "if value.is_floating_point() and not bool(value.isfinite().all()):",
        "if False:",
        _CHECKING,
    ),
    Mutant(
        "Flower: too few clients are enough",
        "flower/checking.py",
        "math.ceil(share * asked - 1e-9)",
        "math.floor(share * asked - 1e-9)",
        _CHECKING,
    ),
    Mutant(
        "Flower: the validation matrix is turned round",
        "flower/boosting.py",
        "rows = [[answers[place, node] for node in judges] for place in kept]",
        "rows = [[answers[p, node] for p in kept] for node in judges]",
        _BOOSTING,
    ),
    Mutant(
        "Flower: training losses always count",
        "flower/boosting.py",
        "        if self._rule.training_loss:\n",
        "        if True:\n",
        _BOOSTING,
    ),
    Mutant(
        "Flower: FedBoosting weighs by numbers of examples",
        "flower/boosting.py",
        "[read_arrays(reply).tensors for reply in counted], weights)",
        "[read_arrays(reply).tensors for reply in counted], [1 / len(counted)] * len(counted))",
        _BOOSTING,
    ),
    Mutant(
        "Flower: a sealed update counts twice",
        "flower/sealed_strategy.py",
        "            if one.update.client in known:\n",
        "            if False:\n",
        _SEALING,
    ),
    Mutant(
        "Flower: sealed weights of another network are added up",
        "flower/sealed_strategy.py",
        'if (update.kind, update.contents) != ("tensors", self._expected.contents):',
        "if False:",
        _SEALING,
    ),
    Mutant(
        "Flower: sealed clients all count the same",
        "flower/sealed_strategy.py",
        "[count / sum(examples) for count in examples]",
        "[1 / len(examples) for count in examples]",
        _SEALING,
    ),
    Mutant(
        "Flower: the number of examples beside a seal is believed",
        "flower/sealed_strategy.py",
        " or told != update.num_examples:",
        ":",
        _SEALING,
    ),
    Mutant(
        "Flower: of counters the smallest is kept",
        "flower/sealed_strategy.py",
        "for one in counters]).amax(0)",
        "for one in counters]).amin(0)",
        _SEALING,
    ),
    Mutant(
        "Flower: a server may hold the keys that open",
        "flower/sealed_strategy.py",
        "if not isinstance(public, SealingKey):",
        "if False:",
        _SEALING,
    ),
    Mutant(
        "Flower: a client opens another's weights",
        "flower/sealed_records.py",
        "if not total.is_total:",
        "if False:",
        _SEALING,
    ),
    Mutant(
        "Flower: weights in the clear pass beside sealed ones",
        "flower/sealed_records.py",
        "if clear := sorted(name for name, value in tensors.items() if value.is_floating_point()):",
        "if clear := list[str]():",
        _SEALING,
    ),
    Mutant(
        "Flower: what cannot be sealed goes out in the clear",
        "flower/sealing.py",
        '            return refuse(message, f"sealing: {error}")',
        "            return call_next(message, context)",
        _SEALING,
    ),
    Mutant(
        "Flower: replies to evaluation leave with arrays in the clear",
        "flower/sealing.py",
        "if reply.has_error() or not reply.content.array_records:",
        "if reply.has_error() or not is_training(message):",
        _SEALING,
    ),
)

MUTANTS = (*_ANYWHERE, *(_WITH_FLOWER if importlib.util.find_spec("flwr") else ()))
