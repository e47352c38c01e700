from __future__ import annotations

from dataclasses import replace

import pytest

from leakscope.cli.train_subject import TrainOptions, load_subject
from leakscope.data import info
from leakscope.errors import UsageError

WORDS = TrainOptions("words-plain", model="crnn-small", clients=2, examples=8, test_examples=4)


def test_words_are_trained_with_their_task() -> None:
    subject = load_subject(WORDS)
    assert subject.task == info("words-plain").task
    assert [len(client.train) for client in subject.clients] == [4, 4]
    assert subject.model(subject.test.inputs).shape == (25, 4, 37)
    assert load_subject(TrainOptions("digits", model="mlp", clients=2, examples=8)).task is None


def test_texts_are_not_dealt_by_label() -> None:
    with pytest.raises(UsageError, match="--partition by-class deals by label, and 'words-plain' has texts"):
        load_subject(replace(WORDS, partition="by-class"))
