"""What the tables of MKOR compare, and their printed rows as numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from leakscope.reproduction import PaperNumber, RecipeCell, call_cell
from leakscope.reproduction.cells import Spec
from leakscope.reproduction.recipe import Tag

FUNCTION = "reproductions.mkor.servers:attack_batch"
# Largest and mean value over a batch, in the order the paper prints them.
COLUMNS = (
    ("maximum SSIM", "ssim_max", ""),
    ("average SSIM", "ssim", ""),
    ("maximum PSNR", "psnr_target_peak_max", "dB"),
    ("average PSNR", "psnr_target_peak", "dB"),
)
RAW_NLL = (
    "MKOR is measured on clients that train with the released code's loss, NLL of raw scores: only then is its Eq. 7 "
    "true."
)
COUNTED = (
    "Pictures are counted as in the paper: MKOR's result of a class stands beside every picture of the class, other "
    "attacks' results beside the pictures they are nearest to. An audit would give a result to one picture at most: "
    "`assigned_psnr`."
)


def mkor_cell(
    tags: Mapping[str, Tag],
    *,
    model: Spec,
    data: str,
    pool: Sequence[int],
    attack: str,
    loss: str = "cross-entropy",
    different: int | None = None,
    size: int | None = None,
    defence: str = "none",
    seed: int = 0,
    pictures: int = 0,
) -> RecipeCell:
    """One attack on one batch; labels are known to all attacks."""
    return call_cell(
        tags,
        FUNCTION,
        reads=[{"name": data, "split": "test", "indices": list(pool), "size": size}],
        attack=attack,
        data=data,
        indices=[list(pool)],
        model=model,
        loss=loss,
        different=different,
        size=size,
        defence=defence,
        scenario="B",
        seed=seed,
        pictures=pictures,
    )


def print_row(
    where: str, row: str, column: str, values: Sequence[float | None], *, tags: Mapping[str, Tag]
) -> Iterator[PaperNumber]:
    """One cell of a table, four numbers; None where the paper has a dash."""
    for (name, metric, unit), value in zip(COLUMNS, values, strict=True):
        if value is None:
            yield PaperNumber(where, row, f"{column}, {name}", None, unit, why_not="it rebuilds one picture of a batch")
        else:
            yield PaperNumber(where, row, f"{column}, {name}", value, unit, metric=metric, tags=tags)
