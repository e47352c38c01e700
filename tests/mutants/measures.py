"""Wrong formulas in metrics, grades and verdicts."""

from __future__ import annotations

from mutants.mutant import Mutant

_PIXEL = ("metrics/test_pixel.py",)
_LEGACY = ("metrics/test_legacy.py",)
_SSIM = ("metrics/test_structure.py",)
_GRADE = ("report/test_grade.py",)
_SCORE = ("metrics/test_score.py", "metrics/test_assign.py")

MUTANTS = (
    Mutant(
        "PSNR of absolute errors",
        "metrics/pixel.py",
        "return decibels(mse(reconstruction, truth))",
        "return decibels(mae(reconstruction, truth))",
        _PIXEL,
    ),
    Mutant("PSNR of 20 logarithms", "metrics/pixel.py", "return -10 * (floored", "return -20 * (floored", _PIXEL),
    Mutant(
        "PSNR without the peak's square",
        "metrics/pixel.py",
        "(floored / peak**2)",
        "(floored / peak)",
        (*_PIXEL, *_LEGACY),
    ),
    Mutant(
        "blind guess takes the worse of both",
        "metrics/pixel.py",
        "return torch.maximum(psnr(grey, examples), psnr(noise, examples))",
        "return torch.minimum(psnr(grey, examples), psnr(noise, examples))",
        ("metrics/test_baselines.py",),
    ),
    Mutant(
        "blind guess of black",
        "metrics/pixel.py",
        "grey = torch.full_like(examples, 0.5)",
        "grey = torch.full_like(examples, 0.0)",
        ("metrics/test_baselines.py",),
    ),
    Mutant(
        "SSIM without the structure's 2",
        "metrics/structure.py",
        "pattern = (2 * covariance + C2)",
        "pattern = (covariance + C2)",
        _SSIM,
    ),
    Mutant(
        "SSIM's constants swapped",
        "metrics/structure.py",
        "C1, C2 = 0.01**2, 0.03**2",
        "C1, C2 = 0.03**2, 0.01**2",
        _SSIM,
    ),
    Mutant("SSIM's window of σ 3", "metrics/structure.py", "WINDOW, SIGMA = 11, 1.5", "WINDOW, SIGMA = 11, 3.0", _SSIM),
    Mutant(
        "GRNN's legacy PSNR without its root",
        "metrics/legacy.py",
        "(right * 255).round()).sqrt()",
        "(right * 255).round())",
        _LEGACY,
    ),
    Mutant(
        "conversion of a root-MSE figure",
        "metrics/legacy.py",
        "return 2 * reported - PEAK_8BIT_DB",
        "return reported - PEAK_8BIT_DB",
        _LEGACY,
    ),
    Mutant(
        "GGL's legacy range", "metrics/legacy.py", "_mse(2 * left - 1, 2 * right - 1)", "_mse(left, right)", _LEGACY
    ),
    Mutant("MKOR's legacy peak", "metrics/legacy.py", "peak=right.flatten(1).amax(1)", "peak=1.0", _LEGACY),
    Mutant("Inverting Gradients' legacy peak", "metrics/legacy.py", "peak=1 / scale", "peak=scale", _LEGACY),
    Mutant(
        "assignment of the largest total error",
        "metrics/assign.py",
        "linear_sum_assignment(cost",
        "linear_sum_assignment(-cost",
        _SCORE,
    ),
    Mutant(
        "broken pictures win the assignment",
        "metrics/assign.py",
        "masked_fill(~finite, BROKEN)",
        "masked_fill(~finite, 0.0)",
        _SCORE,
    ),
    Mutant(
        "worst is the best",
        "metrics/summarise.py",
        "numbers.max() if higher_is_worse else numbers.min()",
        "numbers.min() if higher_is_worse else numbers.max()",
        ("metrics/test_summarise.py",),
    ),
    Mutant(
        "success above, not at, the level",
        "metrics/summarise.py",
        "numbers >= level if higher_is_worse",
        "numbers > level if higher_is_worse",
        ("metrics/test_summarise.py",),
    ),
    Mutant(
        "identification counts farther pictures",
        "metrics/identification.py",
        "(columns < own).sum(0)",
        "(columns > own).sum(0)",
        ("metrics/test_identification.py",),
    ),
    Mutant(
        "chance of identification",
        "metrics/identification.py",
        "chance=1 / len(pool)",
        "chance=1 / len(truth)",
        ("metrics/test_identification.py",),
    ),
    Mutant(
        "grade by PSNR, not by gain",
        "report/grades.py",
        "gain = psnr - _baseline(baseline_psnr)",
        "gain = psnr",
        _GRADE,
    ),
    Mutant(
        "grades rounded towards safe",
        "report/grades.py",
        "level = math.ceil((by_gain",
        "level = math.floor((by_gain",
        _GRADE,
    ),
    Mutant(
        "an unknown guess makes pictures look safer",
        "report/grades.py",
        "ASSUMED_BASELINE_DB = 10.0",
        "ASSUMED_BASELINE_DB = 20.0",
        _GRADE,
    ),
    Mutant(
        "SSIM alone makes an F",
        "report/grades.py",
        "return level if by_gain == NEAR_COPY else min(level, NEAR_COPY - 1)",
        "return level",
        _GRADE,
    ),
)
