from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from leakscope.errors import BadInputError
from leakscope.tasks import CTCText
from leakscope.tasks.ctc import negative_log_likelihood

CLASSES = 5


def scores_of(steps: int, texts: int, *, seed: int = 0, scale: float = 2.0, dtype=torch.float64) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(steps, texts, CLASSES, generator=rng, dtype=torch.float64)).to(dtype)


# No repeats, one repeat, all the same, one symbol, as long as the steps allow.
TEXTS = torch.tensor([[1, 2, 3, 0], [2, 2, 1, 0], [4, 4, 4, 4], [3, 0, 0, 0], [1, 2, 3, 4]])


def torchs(scores: Tensor, texts: Tensor, *, blank: int = 0, padding: int = 0) -> Tensor:
    """PyTorch's own value of every text."""
    lengths = (texts != padding).sum(1)
    steps = torch.full((len(texts),), len(scores))
    flat = texts[texts != padding]
    return functional.ctc_loss(scores.log_softmax(2), flat, steps, lengths, blank=blank, reduction="none")


@pytest.mark.parametrize("steps", [7, 12, 25])
@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_the_value_is_that_of_pytorch(steps: int, dtype: torch.dtype, close: float) -> None:
    scores = scores_of(steps, len(TEXTS), dtype=dtype)
    found = negative_log_likelihood(scores, TEXTS, blank=0, padding=0)
    torch.testing.assert_close(found, torchs(scores, TEXTS), rtol=close, atol=0)


def test_another_blank_and_another_padding() -> None:
    texts = torch.tensor([[0, 1, 1, -1], [2, 4, 0, 0]])
    scores = scores_of(9, 2)
    found = negative_log_likelihood(scores, texts, blank=3, padding=-1)
    torch.testing.assert_close(found, torchs(scores, texts, blank=3, padding=-1))


def test_the_mean_divides_every_text_by_its_length() -> None:
    scores = scores_of(9, len(TEXTS))
    steps, lengths = torch.full((len(TEXTS),), 9), (TEXTS != 0).sum(1)
    expected = functional.ctc_loss(scores.log_softmax(2), TEXTS, steps, lengths)
    torch.testing.assert_close(CTCText().loss(scores, TEXTS), expected)


def test_the_first_derivative_is_that_of_pytorch() -> None:
    scores = scores_of(8, len(TEXTS)).requires_grad_()
    (own,) = torch.autograd.grad(negative_log_likelihood(scores, TEXTS, blank=0, padding=0).sum(), scores)
    (theirs,) = torch.autograd.grad(torchs(scores, TEXTS).sum(), scores)
    torch.testing.assert_close(own, theirs)


def test_first_and_second_derivatives_are_those_of_the_value() -> None:
    scores = scores_of(7, len(TEXTS)).requires_grad_()

    def value(at: Tensor) -> Tensor:
        return negative_log_likelihood(at, TEXTS, blank=0, padding=0)

    assert torch.autograd.gradcheck(value, scores)
    assert torch.autograd.gradgradcheck(value, scores)


def test_sure_scores_leave_no_nan_in_either_derivative() -> None:
    """Logits of hundreds make states as good as unreachable."""
    scores = scores_of(7, len(TEXTS), scale=300.0, dtype=torch.float32).requires_grad_()
    value = CTCText().loss(scores, TEXTS)
    (first,) = torch.autograd.grad(value, scores, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), scores)
    assert all(bool(one.isfinite().all()) for one in (value, first, second))


def test_an_empty_text_is_blanks_from_first_to_last() -> None:
    scores = scores_of(4, 2)
    found = negative_log_likelihood(scores, torch.tensor([[0, 0], [1, 0]]), blank=0, padding=0)
    assert float(found[0]) == pytest.approx(-float(scores.log_softmax(2)[:, 0, 0].sum()))
    # Its mean has no length to be divided by.
    assert float(CTCText().loss(scores[:, :1], torch.tensor([[0, 0]]))) == pytest.approx(float(found[0]))


@pytest.mark.parametrize(
    ("text", "needed"), [([1, 2, 3, 4], 4), ([1, 1, 2, 2], 6), ([3, 3, 3, 0], 5), ([1, 2, 2, 0], 4)]
)
def test_a_text_that_no_alignment_spells_is_an_error_and_not_infinity(text: list[int], needed: int) -> None:
    texts = torch.tensor([[1, 0, 0, 0], text])
    assert bool(negative_log_likelihood(scores_of(needed, 2), texts, blank=0, padding=0).isfinite().all())
    with pytest.raises(BadInputError, match=rf"needs {needed} steps \(text 1 of the batch\), but the network returns"):
        CTCText().loss(scores_of(needed - 1, 2), texts)


def test_low_precision_is_computed_in_single() -> None:
    scores = scores_of(25, len(TEXTS), dtype=torch.bfloat16)
    found = CTCText().loss(scores, TEXTS)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, CTCText().loss(scores.float(), TEXTS))


def test_made_up_texts_can_be_learnt_in_few_steps() -> None:
    task = CTCText()
    texts = task.draw_targets(50, 37, torch.Generator().manual_seed(0))
    task.check_targets(texts, 37)
    assert texts.shape == (50, 5)
    assert not bool((texts[:, 1:] == texts[:, :-1]).any())
    assert bool(task.loss(torch.zeros(5, 50, 37), texts).isfinite())
