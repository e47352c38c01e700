"""Local training in the configuration of an audit."""

from __future__ import annotations

import pytest

from leakscope.audits.config import parse_config
from leakscope.errors import UsageError
from leakscope.report.words import local_words
from leakscope.types import LocalTraining


def test_plain_sgd_makes_the_cells_it_always_made():
    local = parse_config({"local": {"lr": "1e-4", "steps": 4}}).local
    assert local is not None
    assert local.settings() == {"lr": 1e-4, "steps": 4, "batch_size": 1}


def test_every_option_of_local_training_reaches_a_cell():
    given = {"lr": 0.01, "epochs": 2, "optimiser": "adamw", "betas": [0.8, 0.99], "weight_decay": 0.1, "shuffle": True}
    local = parse_config({"local": given}).local
    assert local is not None
    assert local == LocalTraining(**given)
    assert local.betas == (0.8, 0.99)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"lr": 0.1, "optimiser": "adm"}, r"local.*'adm'.* Did you mean 'adam'"),
        ({"lr": 0.1, "optimiser": "adam", "momentum": 0.9}, "local: momentum has no effect"),
        ({"lr": 0.1, "steps": 2, "epochs": 2}, "local: .*steps or epochs"),
        ({"lr": 0.1, "stps": 2}, "local.stps"),
        ({"lr": 0.0}, "local: .*lr > 0"),
    ],
)
def test_what_means_nothing_is_refused_with_its_place(given, match):
    with pytest.raises(UsageError, match=match):
        parse_config({"local": given})


def test_a_report_names_epochs_and_optimiser():
    assert local_words(LocalTraining(0.1, 4, 2)) == "4 local steps of 2, rate 0.1"
    assert local_words(LocalTraining(0.1, epochs=1, optimiser="adam")) == "1 local epoch of 1, rate 0.1, adam"
    assert local_words(LocalTraining(0.1, momentum=0.9)) == "1 local step of 1, rate 0.1, momentum 0.9"
