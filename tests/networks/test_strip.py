"""A stripped copy is the network and nothing else: no hook and no shadowed method of the caller's comes along."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm

from leakscope.networks import copy_network, freeze, settle, strip
from tiny import dense

IMAGES = torch.rand(3, 1, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


class Spy:
    """Remembers what it is shown."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def __call__(self, *shown: object) -> None:
        self.seen.append(shown)


@pytest.mark.parametrize(
    "register",
    [
        lambda module, spy: module.register_forward_hook(spy),
        lambda module, spy: module.register_forward_pre_hook(spy),
        lambda module, spy: module.register_full_backward_hook(spy),
        lambda module, spy: module.register_full_backward_pre_hook(spy),
        lambda module, spy: module.register_state_dict_post_hook(spy),
        lambda module, spy: module.register_state_dict_pre_hook(spy),
        lambda module, spy: module.register_load_state_dict_pre_hook(spy),
        lambda module, spy: module.register_load_state_dict_post_hook(spy),
    ],
)
def test_no_hook_of_the_callers_is_copied(register):
    model, spy = dense(), Spy()
    register(model[1], spy)
    copied = strip(model)
    copied(IMAGES.clone().requires_grad_()).sum().backward()
    copied.load_state_dict(copied.state_dict())
    assert spy.seen == []
    assert not any(
        isinstance(hook, Spy) for kind in vars(copied[1]).values() if isinstance(kind, dict) for hook in kind.values()
    )
    model(IMAGES.clone().requires_grad_()).sum().backward()
    model.load_state_dict(model.state_dict())
    assert spy.seen, "the caller's model must keep its hook"


def test_a_replaced_method_is_the_classs_own_again():
    model, expected, spy = dense(), dense()(IMAGES), Spy()
    original = model[1].forward
    model[1].forward = lambda input: (spy(input), original(input))[1]
    torch.testing.assert_close(strip(model)(IMAGES), expected)
    assert spy.seen == []
    frozen, (note,) = freeze(model)
    assert "forward of '1'" in note
    assert "does not get" in note
    assert "forward" not in vars(frozen[1])
    assert "forward" in vars(model[1])


def test_a_module_whose_only_forward_is_an_attribute_keeps_it():
    model = nn.Module()
    model.forward = torch.nn.functional.relu
    assert torch.equal(strip(model)(-IMAGES), torch.zeros_like(IMAGES))


def test_functions_kept_as_attributes_stay():
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=8, activation=torch.nn.functional.gelu, dropout=0.0).eval()
    values = torch.rand(2, 3, 8)
    torch.testing.assert_close(strip(layer)(values), layer(values))


def test_hooks_leave_a_note_and_a_plain_network_none():
    model = dense()
    assert freeze(model)[1] == ()
    model[3].register_forward_hook(Spy())
    (note,) = freeze(model)[1]
    assert "forward hooks of '3'" in note


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize(
    "decorate",
    [
        weight_norm,
        spectral_norm,
        parametrizations.weight_norm,
        parametrizations.spectral_norm,
        lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
    ],
)
def test_what_torch_hooks_in_is_part_of_the_network(decorate):
    model = dense().train()
    decorate(model[1])
    # A pass leaves a computed weight with its history behind, which plain deepcopy refuses.
    model(IMAGES)
    model.eval()
    frozen, notes = freeze(model)
    assert notes == ()
    torch.testing.assert_close(frozen(IMAGES), model(IMAGES))
    with torch.no_grad():
        for value in frozen[1].parameters():
            value.mul_(torch.linspace(0.5, 2.0, value.numel()).reshape(value.shape))
    assert not torch.equal(frozen(IMAGES), model(IMAGES)), "the weight must still follow from the parameters"
    assert settle(frozen, (1, 6, 6)).outputs == 4


def test_the_attackers_own_draw_survives_being_frozen_again():
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = dense()

        def forward(self, images):
            return self.inner(images) + torch.rand_like(images[:, 0, 0, :4])

    settled = settle(freeze(Noisy())[0], (1, 6, 6)).model
    again, notes = freeze(settled)
    assert notes == ()
    assert torch.equal(again(IMAGES), again(IMAGES))
    assert torch.equal(again(IMAGES), settled(IMAGES))


def test_a_copy_shares_nothing():
    model = dense()
    model.kept = [torch.rand(3, requires_grad=True) * 2]
    copied = copy_network(model)
    assert torch.equal(copied.kept[0], model.kept[0])
    assert copied.kept[0] is not model.kept[0]
    with torch.no_grad():
        copied[1].weight.add_(1)
        copied.kept[0].add_(1)
    assert torch.equal(model[1].weight, dense()[1].weight)
    assert not torch.equal(copied.kept[0], model.kept[0])
