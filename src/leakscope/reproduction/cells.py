"""What a recipe asks for: cells as plain JSON, with tags to find their results by."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leakscope.reproduction.recipe import Tag
from leakscope.runner import JSON
from leakscope.runner.cells import canonical_json
from leakscope.types import LocalTraining

Spec = dict[str, JSON]


@dataclass(frozen=True)
class RecipeCell:
    """One piece of work.

    Attributes:
        tags: what tells it from the recipe's other cells; claims and numbers find results by them. They are not part
            of the work: another recipe may tag the same cell otherwise.
        spec: the work as plain JSON, made by the functions below.
        expected: how else than well it may end, each status with the reason, such as {"unfinished": "compared at equal
            steps"}; a cell that ends so is no reason to call a run inconclusive, and no evidence of protection either.
    """

    tags: Mapping[str, Tag]
    spec: Mapping[str, JSON] = field(repr=False)
    expected: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What progress and the page call it."""
        return " ".join(f"{name}={value}" for name, value in self.tags.items())

    @property
    def victims(self) -> list[list[int]]:
        """The private batches it attacks, as places in the data set; none where it trains."""
        found: Any = self.spec.get("indices") or []
        return [list(batch) for batch in found]


def network(name: str, *, seed: int = 0, mode: str = "eval", trained: Spec | None = None, **options: JSON) -> Spec:
    """A network: a reference name with options of `leakscope.models.build`, or `reproductions.module:function`.

    A function gets `seed`, `channels`, `side` and `classes` of the data, and the options by keyword. Classes, channels
    and size follow from the data unless `classes` is among the options. `weights` is a file below the data folder.
    `trained` is what `training` returns: the network as it is afterwards; each is trained once and kept beside the
    cells.
    """
    found: Spec = {"name": name, "seed": seed, "mode": mode}
    return found | ({} if trained is None else {"trained": trained}) | ({"options": options} if options else {})


def training(
    data: str | Sequence[str],
    *,
    rounds: int,
    local: LocalTraining | None = None,
    clients: int = 1,
    strategy: str = "fedavg",
    defence: str = "none",
    examples: int | None = None,
    test_examples: int | None = None,
    seed: int = 0,
    **options: JSON,
) -> Spec:
    """A federated training, as `leakscope.federated.train_federated` takes it; one client trains centrally.

    Several data sets are one client each, tested on the test examples of all. `two-gaussians` is the task in the plane.
    With `local` None clients send gradients of `batch_size` examples.

    Options: test_data (other sets to test on), partition, alpha, shards, size, batch_size, held_out, server, fraction,
    min_completed, poison (a list), seal, freeze_batch_norm, and `central` = True for all clients' examples in one
    place, as many of them seen.
    """
    found: Spec = {"data": data if isinstance(data, str) else list(data), "rounds": rounds, "clients": clients}
    found |= {"local": None if local is None else local.settings(), "strategy": strategy, "defence": defence}
    return found | {"examples": examples, "test_examples": test_examples, "seed": seed, **options}


def attack_cell(
    tags: Mapping[str, Tag],
    *,
    model: Spec,
    data: str,
    indices: Sequence[Sequence[int]],
    attack: str,
    defence: str = "none",
    adaptive: bool = False,
    local: LocalTraining | None = None,
    scenario: str = "C",
    seed: int = 0,
    rounds: int | None = None,
    split: str = "test",
    size: int | None = None,
    lpips: bool = False,
    legacy: str = "",
    pictures: int = 0,
    expected: Mapping[str, str] | None = None,
) -> RecipeCell:
    """An attack on what clients with these examples share: one cell of an audit.

    It brings back, for every victim, one value per example of `psnr`, `ssim`, `mse`, `label_correct`, `baseline_psnr`
    (a blind guess), `lpips` where asked for; `trained_psnr` and its like against what was trained on, where a defence
    transforms pictures; `legacy` where one is named; and `loss`, `evaluations`.

    Args:
        tags: what tells it from the recipe's other cells.
        model: as `network` returns it.
        data: a data set.
        indices: one list per victim, places in `split`.
        attack: a spec, such as `agic:beta=50,steps=500`.
        defence: a spec, or `none`.
        adaptive: whether the attacker knows the defence.
        local: how clients train before they share; None for one gradient.
        scenario: what the server knows.
        seed: of the attack and the clients.
        rounds: how often the server asks; by default as often as the attack needs.
        split: of the data.
        size: side to bring pictures to.
        lpips: measure LPIPS, too.
        legacy: a function of `leakscope.metrics.legacy`, such as `psnr_root_mse_8bit`.
        pictures: of how many victims original and reconstruction are kept for the page.
        expected: how else than well it may end, with the reason.
    """
    spec: Spec = {
        "kind": "attack",
        "network": model,
        "data": data,
        "split": split,
        "size": size,
        "indices": [list(batch) for batch in indices],
        "attack": attack,
        "defence": defence,
        "adaptive": adaptive,
        "local": None if local is None else local.settings(),
        "scenario": scenario,
        "seed": seed,
        "rounds": rounds,
        "lpips": lpips,
        "legacy": legacy,
        "pictures": pictures,
    }
    return RecipeCell(dict(tags), _plain(spec), expected or {})


def training_cell(
    tags: Mapping[str, Tag], *, model: Spec | None, how: Spec, expected: Mapping[str, str] | None = None
) -> RecipeCell:
    """A training from the first round to the last; `two-gaussians` brings its own network.

    It brings back `accuracy` and `loss` of the end, `accuracies` and `losses` round by round, `weights` of the clients
    in the last round, `bytes_up`, `bytes_down`, `tested`; of a key-lock `random_key`, `initial_locks`,
    `random_and_initial`; of the task in the plane a picture `boundary` of what the model decides.

    Args:
        tags: what tells it from the recipe's other cells.
        model: as `network` returns it.
        how: as `training` returns it.
        expected: how else than well it may end, with the reason.
    """
    return RecipeCell(dict(tags), _plain({"kind": "training", "network": model, "training": how}), expected or {})


def call_cell(
    tags: Mapping[str, Tag],
    function: str,
    *,
    reads: Sequence[Spec] = (),
    expected: Mapping[str, str] | None = None,
    **settings: JSON,
) -> RecipeCell:
    """A measure that is neither: `reproductions.<module>:function`, called with `settings` by keyword.

    It returns a `leakscope.reproduction.CallValues`: values by name, numbers or lists of them, and small pictures.
    Where it attacks examples, they are the setting `indices`, as in `attack_cell`, and a network is the setting
    `model`, for `leakscope.reproduction.networks.build_network`. `reads` are the arguments of `leakscope.data.load` for
    what the function loads, `name` among them: other data are another cell.
    """
    spec: Spec = {
        "kind": "call",
        "function": function,
        "settings": settings,
        "reads_data": [dict(one) for one in reads],
    }
    if "indices" in settings:
        spec["indices"] = settings["indices"]
    return RecipeCell(dict(tags), _plain(spec), expected or {})


def _plain(spec: Spec) -> Spec:
    return json.loads(canonical_json(spec))
