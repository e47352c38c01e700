"""Ren's thesis, Table 5.7: what the server can rebuild that is told the key, the lock, or both."""

from __future__ import annotations

from collections.abc import Iterator

from leakscope.reproduction import Claim, PaperNumber, PaperRecipe, RecipeCell, RecipeScale, Results, above, every
from leakscope.reproduction.drawing import Drawing, compare_groups
from leakscope.reproduction.papers import THESIS
from reproductions.thesis.lock_attacks import GRNN, SHARED, STAND_INS, arm_cells, make_scales
from reproductions.thesis.locks import NOTES

NAME = "thesis/table-5-7"
NOTHING, LAYERS, KEY, LOCK, READ, BOTH = "none", "none, layers known", "Key", "Lock", "Lock, key read off", "Both"
UNKNOWN_LOCK = "Key, layers unknown"
# Attackers of the released code run the victim's own network and know the lock's layers in any case; `shared=lock`
# sends their gradients as well. Of these the key can be read off, which the last attacker but one does.
SHARES: dict[str, tuple[str, bool]] = {
    NOTHING: ("key-lock", True),
    LAYERS: ("key-lock:lock_known=true", True),
    KEY: ("key-lock:shared=key,lock_known=true", False),
    UNKNOWN_LOCK: ("key-lock:shared=key", True),
    LOCK: ("key-lock:shared=lock", False),
    READ: ("key-lock:shared=lock", True),
    BOTH: ("key-lock:shared=both", False),
}
AT_SMOKE = (KEY, LOCK, READ)
AT_CPU = (NOTHING, LAYERS, KEY, LOCK, READ, BOTH)
# A smaller difference between two searches is taken for none.
SAME = 3.0


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """GRNN behind every way of sharing, on the pictures of Table 5.6; what shares nothing is a cell of that table."""
    chosen = {"smoke": AT_SMOKE, "cpu": AT_CPU, "paper": tuple(SHARES)}[scale.name]
    for one in scale.options["grid"]:
        yield from arm_cells(scale, one, attack=GRNN, arms={share: SHARES[share] for share in chosen}, tag="shared")


def better(ours: str, others: str, *, least: float = 0.0):
    """Whether GRNN rebuilds more where `ours` is shared than where `others` is, at as many steps."""
    return above("psnr", {"shared": ours}, {"shared": others}, least=least, ended="any")


def _figures(results: Results) -> list[Drawing]:
    told = {"title": "PSNR of GRNN by what the server is told", "label": "PSNR (dB)", "name": "shared"}
    return [compare_groups(results, "psnr", group="shared", **told)]


def _numbers() -> Iterator[PaperNumber]:
    columns = (
        *(("LeNet", data) for data in ("MNIST", "C-10", "C-100")),
        *(("ResNet-20", data) for data in ("MNIST", "C-10", "C-100")),
        *(("ResNet-18", data) for data in ("C-10", "C-100", "ILSVRC")),
    )
    for model, data in columns:
        for share in (KEY, LOCK, BOTH):
            tags = {"model": model, "data": data, "shared": share}
            yield PaperNumber("Table 5.7", f"GRNN, {model}, {data}", share, None, "dB", tags=tags)
    for share in (NOTHING, LAYERS, READ, UNKNOWN_LOCK):
        tags = {"model": "LeNet", "data": "C-10", "shared": share}
        yield PaperNumber("Table 5.7", "GRNN, LeNet, C-10", share, None, "dB", tags=tags)
    why = "GGL runs in thesis/table-5-5, without shared keys"
    yield PaperNumber("Table 5.7", "GGL, ResNet-18, ILSVRC", "all", None, "dB", why_not=why)


RECIPE = PaperRecipe(
    name=NAME,
    paper=THESIS,
    item="Table 5.7",
    title="pictures rebuilt by GRNN where the key, the lock or both are shared",
    scenario="C",
    claims=(
        Claim(
            "key-is-enough",
            "Where the key is shared and the lock's layers are known, GRNN rebuilds more than where nothing is shared.",
            "successful with the key alone at 32 × 32, by eye",
            every(better(KEY, NOTHING), better(KEY, LAYERS)),
        ),
        Claim(
            "lock-is-not-enough",
            "Where the lock's gradient is shared without the key, GRNN as published rebuilds less than with the key.",
            "no meaningful content, by eye",
            better(KEY, LOCK),
        ),
        Claim(
            "both-are-best",
            "Where both are shared, GRNN rebuilds more than with the key alone.",
            "image quality improves further, by eye",
            better(BOTH, KEY),
        ),
        Claim(
            "key-cannot-be-computed-from-the-lock",
            "An attacker who reads the key off the gradients of the lock's layers, by a division, still rebuilds at "
            "least 3 dB less than one who is given the key.",
            "the key gives the gradient of the lock, but not vice versa",
            better(KEY, READ, least=SAME),
        ),
    ),
    numbers=tuple(_numbers()),
    # Cells of half a minute, four pictures: what is shared is new, nothing shared is Table 5.6's.
    scales=make_scales(smoke=0.01, cpu=12, paper=2_600_000),
    cells=cells,
    figures=_figures,
    stand_ins=STAND_INS,
    shares=SHARED,
    notes=(
        *NOTES,
        "Claims compare attacks at equal length, whatever way they end. That lock gradients do not tell the key holds "
        "for the attackers of the thesis; with a bias in the lock's layers the key is a ratio of two gradients.",
    ),
)
