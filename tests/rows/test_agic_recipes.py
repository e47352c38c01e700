"""What AGIC's recipes compute themselves: matching rates, owners, ratios of times, gains; and what they pair."""

from __future__ import annotations

import torch
from reproductions.agic import figure_8, figure_9, table_4
from reproductions.agic.epochs import Sent, find_owners, matching_rate, send_epochs
from reproductions.agic.local_steps import attack_timed, median_step
from reproductions.agic.methods import attack_delta, attack_gradient
from reproductions.networks import small_convnet

from leakscope.reproduction import RecipeCell, Results, network
from leakscope.reproduction.results import CellResult
from leakscope.runner import CellOutcome
from leakscope.types import Batch, Reconstruction, Status


def sight(images, labels) -> Reconstruction:
    return Reconstruction(images, torch.tensor(labels), loss=0.0, status=Status.OK)


def cell(tags, *, psnr=10.0, seconds=0.0) -> CellResult:
    record = {"values": {"psnr": [[psnr]], "step_seconds": seconds}, "notes": []}
    return CellResult(RecipeCell(tags, {}), CellOutcome(Status.UNFINISHED, record, {}))


def images(count: int, seed: int = 0):
    return torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def test_a_permutation_of_noisy_copies_is_matched_in_full():
    first, order = images(6), torch.tensor([3, 0, 5, 1, 4, 2])
    found = [sight(first, range(6)), sight((first + 0.01 * images(6, 1))[order], order.tolist())]
    owners = [torch.arange(6), order]
    for labels in (False, True):
        for pooling in (False, True):
            assert matching_rate(found, owners, labels=labels, pooling=pooling) == 1.0
    # Owners of the second epoch count, not its places.
    assert matching_rate(found, [torch.arange(6), torch.arange(6)], labels=False, pooling=False) < 0.5


def test_labels_keep_apart_what_looks_alike():
    first = torch.cat([images(1), images(1)])
    found = [sight(first, [0, 1]), sight(first.flip(0), [1, 0])]
    assert matching_rate(found, [torch.arange(2), torch.tensor([1, 0])], labels=True, pooling=False) == 1.0
    assert matching_rate(found, [torch.arange(2), torch.tensor([1, 0])], labels=False, pooling=False) == 0.0


def test_pooling_sees_means_of_two_by_two_and_no_pooling_sees_pixels():
    checks = torch.zeros(1, 1, 8, 8)
    checks[..., ::2, ::2] = checks[..., 1::2, 1::2] = 1.0
    # Pooled, the checks are the grey picture; pixel by pixel they are nearer to the checks with a lighter tone.
    grey, tinted = torch.full_like(checks, 0.5), (checks * 0.8 + 0.2).clamp(0, 1)
    found = [sight(checks, [0]), sight(torch.cat([grey, tinted]), [0, 0])]
    owners = [torch.tensor([0]), torch.tensor([0, 1])]
    assert matching_rate(found, owners, labels=False, pooling=True) == 1.0
    assert matching_rate(found, owners, labels=False, pooling=False) == 0.0


def test_a_rate_is_a_share_of_all_images():
    first = images(4)
    found = [sight(first, [0, 1, 2, 3]), sight(first[:2], [0, 1])]
    assert matching_rate(found, [torch.arange(4), torch.arange(2)], labels=True, pooling=False) == 0.5


def test_epochs_deal_the_same_images_anew_and_owners_stay_inside_an_update():
    batch = Batch(images(6), torch.arange(6), (0.0, 1.0))
    model = small_convnet(seed=0, channels=1, side=8, classes=10)
    sent = send_epochs(batch, (model, model), size=2, seed=3)
    assert [one.places.tolist() for one in sent[0]] == [[0, 1], [2, 3], [4, 5]]
    later = [place for one in sent[1] for place in one.places.tolist()]
    assert sorted(later) == list(range(6))
    assert later != list(range(6))
    update = sent[1][0]
    own = update.places.tolist()
    # Owners follow labels: an image of the right label, however far the picture is from it.
    swapped = sight(batch.inputs[own].flip(0), batch.targets[own].flip(0).tolist())
    assert find_owners(swapped, update, batch).tolist() == own[::-1]
    confused = sight(batch.inputs[own].flip(0), batch.targets[own].tolist())
    assert find_owners(confused, update, batch).tolist() == own
    # No owner outside the update.
    other = [place for place in range(6) if place not in own][:2]
    foreign = sight(batch.inputs[other], batch.targets[other].tolist())
    assert find_owners(foreign, update, batch).tolist() == [-1, -1]


def test_of_one_label_the_nearest_image_is_the_owner():
    batch = Batch(images(3), torch.tensor([5, 5, 1]), (0.0, 1.0))
    update = Sent(None, torch.tensor([2, 1, 0]))
    found = sight((batch.inputs + 0.01)[[0, 2, 1]], [5, 1, 5])
    assert find_owners(found, update, batch).tolist() == [0, 2, 1]


def test_figure_8_divides_times_of_one_method_on_one_victim():
    times = {("InvG", 1): 2.0, ("InvG", 8): 10.0, ("AGIC", 1): 2.0, ("AGIC", 8): 2.1}
    results = Results(
        tuple(
            cell({"method": method, "local": local, "victim": victim}, seconds=value * (1 + victim))
            for (method, local), value in times.items()
            for victim in range(3)
        )
    )
    verdicts = {claim.id: claim.judge(results) for claim in figure_8.CLAIMS}
    assert verdicts["simulation-grows"].n == 3
    assert abs(verdicts["simulation-grows"].effect - 5.0) < 1e-9
    assert abs(verdicts["faster"].effect - 10 / 2.1) < 1e-9
    assert verdicts["faster"].outcome == "holds"
    assert verdicts["five-times-faster"].outcome == "does not hold"
    assert abs(verdicts["constant-time"].effect - (1.1 - 1.05)) < 1e-9
    assert verdicts["constant-time"].outcome == "holds"


def test_the_time_of_a_step_is_the_median_between_two_and_leaves_out_what_comes_before():
    assert median_step([100.0, 101.0, 105.0, 106.0]) == 1.0


def test_a_timed_attack_scores_one_batch_and_times_a_step():
    found = attack_timed(
        attack="inverting-gradients:replay=simulate,steps=4",
        data="digits",
        indices=[[3, 4]],
        model=network("reproductions.networks:small_convnet"),
        local={"lr": 1e-4, "steps": 2, "batch_size": 1},
        scenario="A",
        seed=0,
    )
    assert [len(unit) for unit in found.values["psnr"]] == [2]
    assert 0 < found.values["step_seconds"] < 1


def test_figure_9_pairs_what_differs_in_one_thing():
    psnr = {("untrained", 1, False): 10.0, ("untrained", 50, False): 14.0, ("untrained", 50, True): 14.2}
    psnr |= {("trained", 1, False): 8.0, ("trained", 2, False): 8.5, ("untrained", 1, True): 0.0}
    results = Results(
        tuple(
            cell({"network": net, "beta": beta, "modifier": modifier, "victim": victim}, psnr=value + victim)
            for (net, beta, modifier), value in psnr.items()
            for victim in range(3)
        )
    )
    verdicts = {claim.id: claim.judge(results) for claim in figure_9.CLAIMS}
    effects = {name: verdict.effect for name, verdict in verdicts.items()}
    assert {verdict.n for verdict in verdicts.values()} == {3}
    assert abs(effects["untrained"] - 4.0) < 1e-9
    assert abs(effects["trained"] - 0.5) < 1e-9
    assert abs(effects["weakens"] - 3.5) < 1e-9
    assert abs(effects["modifier-helps"] - 0.2) < 1e-9
    # 2 % of 14, 15 and 16 dB less the 0.2 dB that it added.
    assert abs(effects["modifier-little"] - (0.02 * 15 - 0.2)) < 1e-9


def test_table_4_never_pairs_a_batch_of_one_with_one_of_four():
    results = Results(
        tuple(
            cell({"data": "CIFAR-10", "batch": batch, "method": method, "victim": victim}, psnr=value + victim)
            for (method, batch), value in {
                ("AGIC", 1): 30.0,
                ("InvG", 1): 20.0,
                ("AGIC", 4): 17.0,
                ("InvG", 4): 14.0,
            }.items()
            for victim in range(2)
        )
    )
    verdicts = {claim.id: claim.judge(results) for claim in table_4.RECIPE.claims}
    assert (verdicts["agic-above-invg-batch-1"].effect, verdicts["agic-above-invg-batch-1"].n) == (10.0, 2)
    assert (verdicts["agic-above-invg-batch-4"].effect, verdicts["agic-above-invg-batch-4"].n) == (3.0, 2)


def test_figure_9_runs_cells_of_table_4_once():
    tables = {str(one.spec): one.tags["method"] for one in table_4.cells(table_4.RECIPE.scale("cpu"))}
    found = [one for one in figure_9.cells(figure_9.RECIPE.scale("cpu")) if str(one.spec) in tables]
    shared = {(tables[str(one.spec)], one.tags["beta"], one.tags["modifier"]) for one in found}
    assert shared == {("InvG", 1, False), ("AGIC", 50, True)}
    assert len(found) == 10


def test_methods_are_what_their_names_say():
    held = {name: attack_gradient(name, schedule="held", steps=7) for name in table_4.METHODS}
    assert held["InvG"] == held["AGIC"].replace("beta=50,relu_modifier=true", "beta=1,relu_modifier=false")
    deltas = {name: attack_delta(name, schedule="accelerated", steps=7) for name in ("InvG", "AGIC, one batch", "AGIC")}
    assert "simulate" in deltas["InvG"]
    assert "beta=1,relu_modifier=false" in deltas["AGIC, one batch"]
    assert "beta=50,relu_modifier=true" in deltas["AGIC"]
