"""Ren's thesis, Table 5.6: what DLG and GRNN rebuild with and without a key-lock."""

from __future__ import annotations

from collections.abc import Iterator

from leakscope.reproduction import Claim, PaperNumber, PaperRecipe, Results, above
from leakscope.reproduction.drawing import Drawing, compare_groups
from leakscope.reproduction.papers import THESIS
from leakscope.reproduction.results import Ended
from reproductions.thesis.lock_attacks import DLG, GRNN, STAND_INS, grid_cells, make_scales
from reproductions.thesis.locks import KNOWN, LEGACY, LOCKED, NORMALISED, NOTES, PLAIN, RELU, UNSCALED

NAME = "thesis/table-5-6"
# MSE, PSNR, LPIPS with VGG and with AlexNet, SSIM: each without and with the lock.
PRINTED = {
    (DLG, "LeNet", "MNIST"): (49.97, 140.87, 32.71, 26.64, 0.27, 0.70, 0.13, 0.56, 0.724, -0.003),
    (DLG, "LeNet", "C-10"): (29.62, 98.76, 41.14, 28.20, 0.13, 0.48, 0.08, 0.32, 0.724, 0.006),
    (DLG, "LeNet", "C-100"): (25.30, 101.44, 39.85, 28.09, 0.08, 0.49, 0.04, 0.33, 0.859, 0.009),
    (GRNN, "LeNet", "MNIST"): (0.35, 103.46, 52.78, 28.00, 0.00, 0.69, 0.00, 0.45, 1.000, 0.108),
    (GRNN, "LeNet", "C-10"): (0.78, 92.12, 49.29, 28.52, 0.00, 0.49, 0.00, 0.26, 1.000, 0.101),
    (GRNN, "LeNet", "C-100"): (1.05, 100.82, 48.65, 28.18, 0.00, 0.49, 0.00, 0.28, 0.999, 0.085),
    (GRNN, "ResNet-20", "MNIST"): (1.62, 101.28, 47.82, 28.14, 0.04, 0.64, 0.00, 0.36, 0.998, 0.010),
    (GRNN, "ResNet-20", "C-10"): (9.12, 86.42, 40.86, 28.85, 0.00, 0.43, 0.00, 0.24, 0.984, 0.051),
    (GRNN, "ResNet-20", "C-100"): (20.79, 99.25, 38.09, 28.28, 0.00, 0.45, 0.00, 0.25, 0.963, 0.032),
    (GRNN, "ResNet-18", "C-10"): (15.59, 72.55, 38.41, 29.56, 0.01, 0.46, 0.01, 0.54, 0.965, 0.153),
    (GRNN, "ResNet-18", "C-100"): (34.63, 85.33, 34.13, 28.97, 0.03, 0.48, 0.02, 0.55, 0.917, 0.159),
    (GRNN, "ResNet-18", "ILSVRC"): (13.26, 62.87, 38.36, 30.22, 0.04, 0.40, 0.03, 0.48, 0.932, 0.273),
}
PRINTED_GGL = (63.59, 87.22, 30.22, 28.79, 0.40, 0.47, 0.39, 0.46, 0.231, 0.180)
METRICS = (("MSE", ""), ("PSNR", "dB"), ("LPIPS-V", ""), ("LPIPS-A", ""), ("SSIM", ""))
OURS = {"PSNR": LEGACY, "LPIPS-A": "lpips", "SSIM": "ssim"}
WHY_NOT = {
    "MSE": "the root of the mean squared error in 8-bit steps; it follows from the PSNR beside it: 255² / 10^(PSNR/10)",
    "LPIPS-V": "cells measure LPIPS with AlexNet",
}


def lowered(attack: str, ours: str, others: str, *, metric: str = "psnr", unit: str = "dB", ended: Ended = "any"):
    """Whether an attack rebuilds more behind `ours` than behind `others`, picture by picture."""
    told = {"attack": attack}
    return above(metric, {**told, "method": ours}, {**told, "method": others}, unit=unit, ended=ended)


def _numbers() -> Iterator[PaperNumber]:
    for (attack, model, data), values in PRINTED.items():
        for place, (metric, unit) in enumerate(METRICS):
            for method, value in zip((PLAIN, LOCKED), values[2 * place : 2 * place + 2], strict=True):
                tags = {"attack": attack, "model": model, "data": data, "method": method}
                row, column = f"{attack}, {model}, {data}", f"{metric} {method}"
                if metric in WHY_NOT:
                    yield PaperNumber("Table 5.6", row, column, value, unit, why_not=WHY_NOT[metric])
                else:
                    yield PaperNumber("Table 5.6", row, column, value, unit, metric=OURS[metric], tags=tags)
    for place, (metric, unit) in enumerate(METRICS):
        for method, value in zip((PLAIN, LOCKED), PRINTED_GGL[2 * place : 2 * place + 2], strict=True):
            row, why = "GGL, ResNet-18, ILSVRC", "GGL runs in thesis/table-5-5"
            yield PaperNumber("Table 5.6", row, f"{metric} {method}", value, unit, why_not=why)
    for method in (NORMALISED, UNSCALED, KNOWN, RELU):
        tags = {"attack": GRNN, "model": "LeNet", "data": "C-10", "method": method}
        yield PaperNumber("Table 5.6", "GRNN, LeNet, C-10", f"PSNR {method}", None, "dB", metric=LEGACY, tags=tags)


def _figures(results: Results) -> list[Drawing]:
    return [
        compare_groups(
            results,
            "psnr",
            group="method",
            title=f"PSNR of {attack} by what stands behind the first convolution",
            label="PSNR (dB)",
            name=str(attack).lower(),
            attack=attack,
        )
        for attack in results.tags("attack")
    ]


CLAIMS = (
    Claim(
        "dlg-lowered",
        "DLG as published, which does not know the lock, rebuilds less behind a key-lock.",
        "41.14 to 28.20 dB on CIFAR-10, in the PSNR of its code (34.2 to 8.3 dB)",
        lowered(DLG, PLAIN, LOCKED),
    ),
    Claim(
        "grnn-lowered",
        "GRNN as published, which does not know the lock, rebuilds less behind a key-lock.",
        "49.29 to 28.52 dB on CIFAR-10, in the PSNR of its code (50.5 to 8.9 dB)",
        lowered(GRNN, PLAIN, LOCKED),
    ),
    Claim(
        "grnn-less-similar",
        "GRNN's pictures are less similar in structure behind a key-lock.",
        "SSIM 1.000 to 0.101 on CIFAR-10",
        lowered(GRNN, PLAIN, LOCKED, metric="ssim", unit="SSIM"),
    ),
    Claim(
        "lowers-more-than-normalisation",
        "GRNN rebuilds less behind a key-lock than behind the same normalisation with a trained scale and shift.",
        "not compared: the LeNet without the lock has no normalisation",
        lowered(GRNN, NORMALISED, LOCKED),
    ),
    Claim(
        "dlg-fails-behind-normalisation",
        "DLG rebuilds less behind normalisation alone than behind the bare network.",
        "with batch normalisation or a key-lock DLG failed in all experiments",
        lowered(DLG, PLAIN, NORMALISED),
    ),
    Claim(
        "protects-against-a-knowing-grnn",
        "GRNN that knows of the lock and searches for scale and shift rebuilds less than behind normalisation alone.",
        "no such attacker; those of the released code know the lock's layers",
        lowered(GRNN, NORMALISED, KNOWN, ended="ok"),
    ),
    Claim(
        "protects-against-a-knowing-dlg",
        "DLG that knows of the lock and searches for scale and shift rebuilds less than behind normalisation alone.",
        "no such attacker",
        lowered(DLG, NORMALISED, KNOWN, ended="ok"),
    ),
)

RECIPE = PaperRecipe(
    name=NAME,
    paper=THESIS,
    item="Table 5.6",
    title="what DLG and GRNN rebuild of one picture with and without a key-lock",
    scenario="C",
    claims=CLAIMS,
    numbers=tuple(_numbers()),
    # 24 cells of GRNN, 37 s each, and 16 of DLG, at most 28 s. At the paper's scale there are 1,560, and one of
    # ResNet-18 at 256 pixels takes 5 days.
    scales=make_scales(smoke=0.01, cpu=7, paper=3_000_000),
    cells=grid_cells,
    figures=_figures,
    stand_ins=STAND_INS,
    legacy_metric=LEGACY,
    notes=(
        *NOTES,
        "The first claims are about published attacks at equal length, which do not know of the lock: however they "
        "end, they are no evidence that a lock protects. That is asked of the attackers who know, and of those that "
        "ended well only.",
    ),
)
