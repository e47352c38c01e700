"""Plain-language meaning of every measure on the page, for readers who know neither attacks nor decibels."""

from __future__ import annotations

GLOSSARY: tuple[tuple[str, str], ...] = (
    (
        "PSNR (dB)",
        "How close a reconstruction is to the original, pixel by pixel: 10·log₁₀(1 / MSE) with pixels in [0, 1]. "
        "Higher means more was given away. Every 10 dB is a ten times smaller squared error. On small photographs a "
        "person usually recognises the content from about 17 dB on, and 30 dB is hard to tell from the original.",
    ),
    (
        "SSIM",
        "Structural similarity: how well edges and texture agree, 0 for none and 1 for identical. "
        "It notices shapes that PSNR misses, and forgives an overall change of brightness that PSNR punishes.",
    ),
    ("MSE", "Mean squared error over all pixels, pixels in [0, 1]. Lower means more was given away."),
    ("LPIPS", "Distance between deep features of both images. Lower means more alike to a human eye."),
    (
        "Null baselines, best null, gain",
        "What is reached without the update, in dB. Blind guess: the better of plain grey and noise. Prior alone: what "
        "the same attack makes of the update of something else. Nearest public picture: the nearest of many other "
        "pictures of the same kind. The best null is the highest of them, image by image; only the gain over it was "
        "given away by the update.",
    ),
    (
        "Worst, median",
        "Worst is the image of which most was given away: by grade, then by gain, then by PSNR. Every figure called "
        "worst belongs to this one image. It decides the grade, because privacy is lost one person at a time. The "
        "median is the typical image.",
    ),
    (
        "Unexplained, unfinished",
        "An attack whose result explains the update no better than an unrelated picture would, or which was cut short "
        "while it still got closer. Neither shows that anything is safe; what such an attack did rebuild counts.",
    ),
    (
        "Label right",
        "Share of examples whose class, or text where pictures show words, the attacker named correctly, whatever the "
        "picture looks like.",
    ),
    (
        "Attacker: unaware, knows it",
        "The unaware attacker acts as if there were no defence. The other knows which defence is on and adapts to it. "
        "A defence is judged by whichever of both gets more.",
    ),
    (
        "Accuracy lost (points)",
        "Accuracy without a defence minus accuracy with it, in percentage points, after the same training.",
    ),
    ("Step time ×, upload ×", "Time of one client step and bytes sent, relative to no defence; both measured."),
    (
        "Matching loss",
        "What an attack minimises: the distance between the update it would cause and the update it saw. "
        "A small loss does not prove a good picture, nor a large one a safe one.",
    ),
    (
        "ok, diverged, nan, oom, timeout, error",
        "How an attack ended. Only ok counts as evidence. The others are failures of the attack, never protection.",
    ),
    (
        "refused, sealed",
        "Nothing could be attacked: the scenario withholds what the attack needs, or the update was encrypted.",
    ),
)
