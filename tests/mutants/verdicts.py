"""Wrong formulas in what a verdict rests on: fit, status, null baselines, gate, confidence, tokens and tables."""

from __future__ import annotations

from mutants.mutant import Mutant

_FIT = ("explanation/test_fit.py",)
_STATUS = ("explanation/test_verdict.py",)
_COMPARED = ("explanation/test_matched_part.py",)
_DIAGNOSIS = ("explanation/test_diagnosis.py",)
_NULLS = ("audits/test_nulls.py",)
_GATE = ("report/test_gate.py",)
_WORST = ("report/test_worst.py", "report/test_gate.py")
_LABELS = ("matching/test_label_confidence.py", "matching/test_labels.py")

MUTANTS = (
    Mutant(
        "the last fifth beside all before it",
        "explanation/verdict.py",
        "known[-2 * last : -last] or known",
        "known[:-last] or known",
        ("explanation/test_verdict.py",),
    ),
    Mutant(
        "still falling by the lowest distance of a noisy run",
        "explanation/verdict.py",
        "median(known[-last:]) <",
        "min(known[-last:]) <",
        ("explanation/test_verdict.py",),
    ),
    Mutant("explained without the square", "explanation/fit.py", "max(cosine, 0.0) ** 2", "max(cosine, 0.0)", _FIT),
    Mutant("declared share without its 1 −", "explanation/fit.py", "declared = 1 - float", "declared = float", _FIT),
    Mutant(
        "best scale upside down",
        "explanation/fit.py",
        "cosine, product / length, declared",
        "cosine, length / product, declared",
        (*_FIT, *_DIAGNOSIS),
    ),
    Mutant(
        "unrelated inputs by the least",
        "explanation/fit.py",
        "return max(best_match(seen, inputs, targets, view=view).explained for inputs in draws)",
        "return min(best_match(seen, inputs, targets, view=view).explained for inputs in draws)",
        _FIT,
    ),
    Mutant(
        "unrelated inputs with other labels",
        "explanation/fit.py",
        "return max(best_match(seen, inputs, targets, view=view).explained for inputs in draws)",
        "return max(best_match(seen, inputs, 1 - targets, view=view).explained for inputs in draws)",
        _FIT,
    ),
    Mutant(
        "gain as a difference",
        "explanation/verdict.py",
        "return 1 - (1 - explained) / left",
        "return explained - unrelated + 0 * left",
        _STATUS,
    ),
    Mutant(
        "a diagnosis does not count", "explanation/verdict.py", "poor or fit.diagnosis", "poor", (*_STATUS, *_DIAGNOSIS)
    ),
    Mutant(
        "worse than the truth is as good",
        "explanation/verdict.py",
        "fit.explained >= fit.truth - TOLERANCE",
        "fit.explained <= fit.truth - TOLERANCE",
        _STATUS,
    ),
    Mutant(
        "what is hidden forgets how many numbers were shared",
        "explanation/verdict.py",
        "return (fit.truth - fit.unrelated) * redundancy <= HIDDEN",
        "return (fit.truth - fit.unrelated) <= HIDDEN",
        _STATUS,
    ),
    Mutant(
        "what is hidden is not compared with noise",
        "explanation/verdict.py",
        "<= HIDDEN * max(1 - fit.truth, 1e-12)",
        "<= HIDDEN",
        _STATUS,
    ),
    Mutant(
        "a truth that explains little need not be explained",
        "explanation/verdict.py",
        "return own > min(MARGIN, CONVINCING * most)",
        "return own > min(0.0, MARGIN, CONVINCING * most)",
        _STATUS,
    ),
    Mutant(
        "a run that failed counts where a good one would",
        "explanation/verdict.py",
        "return Status.OK if as_good else status",
        "return Status.OK if as_good or _explains_enough(fit, redundancy=redundancy) else status",
        _STATUS,
    ),
    Mutant(
        "a truth makes up for too few steps",
        "explanation/assess.py",
        "if has_failed and (is_short or is_mixture):",
        "if has_failed and is_mixture:",
        _COMPARED,
    ),
    Mutant(
        "a mixture counts where it explains the update",
        "explanation/assess.py",
        "if has_failed and (is_short or is_mixture):",
        "if has_failed and is_short:",
        ("audits/test_cell.py",),
    ),
    Mutant(
        "private numbers over shared ones",
        "explanation/assess.py",
        "redundancy=compared.count() / unknowns",
        "redundancy=unknowns / compared.count()",
        _COMPARED,
    ),
    Mutant(
        "earlier rounds do not count",
        "explanation/fit.py",
        "return (1 + len(self.seen.earlier)) * sum(",
        "return sum(",
        _COMPARED,
    ),
    Mutant(
        "a known defence is taken for a right description",
        "attack.py",
        "compared = MatchedPart(seen) if diagnosing else self.matched_part(seen)",
        "compared = self.matched_part(seen)",
        _COMPARED,
    ),
    Mutant(
        "the fit of one who knows of pruning counts what was pruned",
        "matching/distances/distance.py",
        "return self.base.view(_mask(found, target), target)",
        "return self.base.view(found, target)",
        _COMPARED,
    ),
    Mutant(
        "the fit counts tensors that were left out",
        "matching/gradient_matching.py",
        "return MatchedPart(self.recipe.matched(seen), self.recipe.distance.view_alone)",
        "return MatchedPart(seen, self.recipe.distance.view_alone)",
        _COMPARED,
    ),
    Mutant(
        "too few steps are enough",
        "explanation/verdict.py",
        "return fit is None or gain(fit.explained, fit.unrelated) <= _fitted(fit.unrelated)",
        "return False",
        _STATUS,
    ),
    Mutant(
        "a short run that explains what labels explain is finished",
        "explanation/verdict.py",
        "FITTED if unrelated < TELLING else EXACT",
        "FITTED",
        _STATUS,
    ),
    Mutant(
        "every network needs what a dense one needs",
        "networks/kinds.py",
        "return NetworkKind.DEEP",
        "return NetworkKind.DENSE",
        _STATUS,
    ),
    Mutant(
        "a falling distance is finished",
        "explanation/verdict.py",
        "median(known[-last:]) < (1 - FALLING)",
        "median(known[-last:]) > (1 - FALLING)",
        _STATUS,
    ),
    Mutant(
        "the lowest null counts",
        "audits/nulls.py",
        "return torch.stack(list(baselines.values())).amax(0)",
        "return torch.stack(list(baselines.values())).amin(0)",
        _NULLS,
    ),
    Mutant(
        "the farthest public picture",
        "audits/nulls.py",
        "_errors(victim, public).argmin(1)",
        "_errors(victim, public).argmax(1)",
        _NULLS,
    ),
    Mutant(
        "copies of private pictures are public", "audits/nulls.py", "> _COPY_MSE).all(0)", "> _COPY_MSE).any(0)", _NULLS
    ),
    Mutant(
        "at the gate is above it",
        "report/evidence.py",
        "return sum(example.psnr > threshold for",
        "return sum(example.psnr >= threshold for",
        _GATE,
    ),
    Mutant(
        "inconclusive wins over a leak",
        "report/gate.py",
        'status: Outcome = "leak" if judged.above(threshold) else "inconclusive" if reason else "within"',
        'status: Outcome = "inconclusive" if reason else "leak" if judged.above(threshold) else "within"',
        _GATE,
    ),
    Mutant(
        "without a gate a leak fails",
        "report/gate.py",
        'if self.is_default and self.status == "leak":',
        "if False:",
        _GATE,
    ),
    Mutant(
        "the worst image is the least bad",
        "report/evidence.py",
        "return max(self.examples, key=lambda example: example.badness, default=None)",
        "return min(self.examples, key=lambda example: example.badness, default=None)",
        _WORST,
    ),
    Mutant(
        "the worst image by PSNR before gain",
        "report/grades.py",
        "return level, psnr - _baseline(baseline_psnr), psnr, 0.0",
        "return level, psnr, psnr - _baseline(baseline_psnr), 0.0",
        _WORST,
    ),
    Mutant(
        "failed attacks are evidence of safety",
        "report/evidence.py",
        "self.ok >= ENOUGH_OK * self.attackable and not self.missing",
        "True",
        _GATE,
    ),
    Mutant(
        "weight decay that nobody declared proves classes",
        "matching/labels/confidence.py",
        "return max(declared, _DRIFT * float(torch.dot(sums, along) / along.square().sum()))",
        "return declared",
        _LABELS,
    ),
    Mutant(
        "weight decay read off with the wrong sign",
        "matching/labels/confidence.py",
        "_DRIFT * float(torch.dot(sums, along)",
        "-_DRIFT * float(torch.dot(sums, along)",
        _LABELS,
    ),
    Mutant(
        "stated confidence is the estimate",
        "matching/labels/confidence.py",
        "return shares[right - 1] + part * (shares[right] - shares[right - 1])",
        "return estimated",
        _LABELS,
    ),
    Mutant(
        "unknown confidence is certainty",
        "matching/labels/confidence.py",
        "unknown = torch.full_like(self.confidence, torch.nan)",
        "unknown = torch.ones_like(self.confidence)",
        _LABELS,
    ),
    Mutant(
        "a gap dealt the wrong way",
        "matching/labels/apportion.py",
        "left.argmax()",
        "left.argmin()",
        ("matching/test_labels.py", "matching/test_label_limits.py"),
    ),
    Mutant(
        "columns within half their range",
        "metrics/table.py",
        "TOLERANCE = 0.05",
        "TOLERANCE = 0.5",
        ("tasks/test_columns.py", "metrics/test_score.py"),
    ),
    Mutant(
        "token recall over all tokens of the set",
        "metrics/tokens.py",
        "torch.isin(text.unique(), found)",
        "torch.isin(found, text)",
        ("attacks/test_embedding_tokens.py",),
    ),
)
