"""Wrong formulas of text recognition: the CTC loss, the recognisers, rendered and labelled words."""

from __future__ import annotations

from mutants.mutant import Mutant

_CTC = ("tasks/test_ctc.py",)
_CRNN = ("models/test_crnn.py",)
_WORDS = ("data/test_words.py",)
_LABELLED = ("data/test_labelled_words.py",)
_AUDITS = ("audits/test_words.py",)

MUTANTS = (
    Mutant(
        "CTC skips the blank between equal symbols",
        "tasks/ctc.py",
        "(states != blank) & (states != before)",
        "states != blank",
        _CTC,
    ),
    Mutant(
        "CTC never skips a blank",
        "tasks/ctc.py",
        "barrier[2].masked_fill_(~may_skip, _NEVER)",
        "barrier[2].fill_(_NEVER)",
        _CTC,
    ),
    Mutant(
        "CTC must end in the blank",
        "tasks/ctc.py",
        "[2 * lengths, (2 * lengths - 1)",
        "[2 * lengths, (2 * lengths)",
        _CTC,
    ),
    Mutant(
        "CTC of an empty text counts its end twice",
        "tasks/ctc.py",
        "lengths[:, None] == 0, _NEVER",
        "lengths[:, None] < 0, _NEVER",
        _CTC,
    ),
    Mutant("CTC begins in any state", "tasks/ctc.py", "device=odds.device) < 2", "device=odds.device) < 9", _CTC),
    Mutant("CTC's never is infinite", "tasks/ctc.py", "_NEVER = -1e30", '_NEVER = float("-inf")', _CTC),
    Mutant("CTC in half precision", "tasks/ctc.py", "dtype=torch.promote_types(scores.dtype, torch.float32)", "", _CTC),
    Mutant("CTC needs no step for a repeat", "tasks/ctc.py", "needed = lengths + repeats", "needed = lengths", _CTC),
    Mutant(
        "CTC's mean without the lengths",
        "tasks/text.py",
        "(each / (targets != self._filler).sum(1).clamp_min(1)).mean()",
        "each.mean()",
        ("tasks/test_ctc.py", "tasks/test_tasks.py"),
    ),
    Mutant(
        "labels of texts are tried",
        "matching/labels/last_layer.py",
        '    _check_has_labels(seen, "read off this update")\n',
        "",
        _AUDITS,
    ),
    Mutant(
        "CRNN pools without a column in front", "models/crnn.py", "left = 1 if number == 6 else 0", "left = 0", _CRNN
    ),
    Mutant(
        "CRNN halves the width four times", "models/crnn.py", "nn.MaxPool2d(2, stride=(2, 1))", "nn.MaxPool2d(2)", _CRNN
    ),
    Mutant(
        "columns from right to left",
        "models/crnn.py",
        "maps.flatten(1, 2).unbind(2)",
        "maps.flip(3).flatten(1, 2).unbind(2)",
        _CRNN,
    ),
    Mutant(
        "columns by a permutation, whose gradient PyTorch misreads for one picture",
        "models/crnn.py",
        "torch.stack(maps.flatten(1, 2).unbind(2))",
        "maps.permute(3, 0, 1, 2).flatten(2)",
        _CRNN,
    ),
    Mutant(
        "held-out texts anywhere",
        "data/word_texts.py",
        "if ((before + code) % HELD_OUT_EVERY == 0) == held_out",
        "if True",
        _WORDS,
    ),
    Mutant(
        "common words in both splits", "data/word_texts.py", "codes[is_held_out(codes) == held_out]", "codes", _WORDS
    ),
    Mutant(
        "numbers of a word depend on its place in the batch",
        "data/words.py",
        "(places + np.uint64(1)) * _GOLDEN",
        "(np.arange(len(places), dtype=np.uint64) + np.uint64(1)) * _GOLDEN",
        _WORDS,
    ),
    Mutant(
        "narrow words count",
        "data/labelled_words.py",
        "return scaled >= least_width and",
        "return",
        _LABELLED,
    ),
    Mutant(
        "words without an alignment count",
        "data/labelled_words.py",
        "len(text) + repeats <= _LONGEST",
        "len(text) <= _LONGEST",
        _LABELLED,
    ),
    Mutant("words in their own case", "data/labelled_words.py", "text.upper()) for", "text) for", _LABELLED),
    Mutant(
        "accuracy trained as classification",
        "federated/training.py",
        "step = ClientStep.of(network, defence=defence, local=local, loss=loss, task=task)",
        "step = ClientStep.of(network, defence=defence, local=local, loss=loss)",
        _AUDITS,
    ),
    Mutant(
        "cells without the task of their data",
        "audits/execute.py",
        "        task=subject.task,\n        rounds",
        "        rounds",
        _AUDITS,
    ),
)
