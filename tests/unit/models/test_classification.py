import pytest
import torch
import torch.nn.functional as F
from torch import nn

from distrain.models.classification import Classification, rank_of_label
from distrain.models.data import Data, TensorData
from distrain.models.datasets import synthetic

NAN, INF = float("nan"), float("inf")


def made(logits, labels, **args):
    """A task whose "network" gives these very logits."""
    data = TensorData(torch.as_tensor(logits), torch.as_tensor(labels))
    return Classification(nn.Identity(), Data(data, data), **args)


def sums(task, *parts):
    """Metrics added up over batches of these indices."""
    found = [task.metrics(task.model, task.eval.__getitems__(part)) for part in parts]
    return {
        name: (sum(batch[name][0] for batch in found), sum(batch[name][1] for batch in found))
        for name in found[0]
    }


def test_counts_are_the_same_integers_however_the_batch_is_split():
    generator = torch.Generator().manual_seed(0)
    # Few distinct values, so that ties are everywhere.
    logits = torch.randint(0, 4, (1001, 10), generator=generator).half()
    task = made(logits, torch.randint(10, (1001,), generator=generator))
    whole = sums(task, range(1001))
    for width in (1, 2, 3, 7, 250, 1000):
        parts = [range(start, min(start + width, 1001)) for start in range(0, 1001, width)]
        split = sums(task, *parts)
        for name in ("top1", "top5"):
            assert split[name][0].dtype == torch.int64
            assert (split[name][0].item(), split[name][1]) == (whole[name][0].item(), 1001)
        assert split["loss"][0].item() == pytest.approx(whole["loss"][0].item(), rel=1e-12)


def test_metrics_are_those_of_plain_torch():
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(50, 8, generator=generator)
    labels = torch.randint(8, (50,), generator=generator)
    found = sums(made(logits, labels), range(50))
    best = logits.topk(5).indices
    assert found["top1"][0] == (best[:, 0] == labels).sum()
    assert found["top5"][0] == (best == labels[:, None]).sum()
    assert found["loss"][0].dtype == torch.float64
    assert found["loss"][0].item() / 50 == pytest.approx(F.cross_entropy(logits, labels).item())


@pytest.mark.parametrize(
    ("logits", "label", "rank"),
    [
        ([3.0, 2.0, 1.0], 0, 0),
        ([3.0, 2.0, 1.0], 2, 2),
        ([1.0, 1.0, 1.0], 0, 0),
        ([1.0, 1.0, 1.0], 2, 2),
        ([INF, 0.0, -INF], 0, 0),
        ([NAN, 2.0, 1.0], 1, 5),
        ([3.0, NAN, 1.0], 1, 5),
        ([NAN] * 7, 0, 7),
    ],
)
def test_the_rank_of_a_label_is_settled_in_ties_and_never_first_with_nan(logits, label, rank):
    assert rank_of_label(torch.tensor([logits]), torch.tensor([label])).tolist() == [rank]


def test_top5_of_fewer_classes_is_all_but_nan():
    task = made([[1.0, 2.0], [2.0, 1.0], [NAN, 1.0]], [0, 0, 0])
    found = sums(task, range(3))
    assert (found["top1"][0].item(), found["top5"][0].item()) == (1, 2)


def test_smoothing_is_of_the_training_loss_alone():
    logits, labels = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0])
    plain, smooth = made(logits, labels), made(logits, labels, label_smoothing=0.2)
    batch = (logits, labels)
    expected = F.cross_entropy(logits, labels, label_smoothing=0.2)
    assert torch.equal(smooth.loss(smooth.model, batch), expected)
    assert smooth.loss(smooth.model, batch) != plain.loss(plain.model, batch)
    assert str(smooth.metrics(smooth.model, batch)) == str(plain.metrics(plain.model, batch))


def test_the_loss_is_in_full_precision_and_of_the_model_that_is_given():
    task = made(torch.zeros(2, 3), [0, 1])
    given = nn.Linear(3, 3).bfloat16()
    loss = task.loss(given, (torch.ones(2, 3).bfloat16(), torch.tensor([0, 1])))
    assert loss.dtype == torch.float32
    loss.backward()
    assert given.weight.grad is not None


def test_the_best_checkpoint_has_the_highest_top1():
    assert (Classification.best, Classification.best_is) == ("top1", "max")


def test_batches_move_with_their_memory_format():
    task = made(torch.zeros(2, 3), [0, 1])
    images, labels = task.to(
        [torch.zeros(2, 3, 4, 4), torch.zeros(2, dtype=torch.long)],
        torch.device("cpu"),
        memory_format=torch.channels_last,
    )
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert labels.shape == (2,)


def test_data_that_lies_on_the_device_is_looked_up_there():
    here = torch.device("cpu")
    data = synthetic(seed=0, device=here, shape=[3, 4, 4], classes=5, pool=4, on_device=True)
    task = Classification(nn.Flatten(), data)
    loaded = task.collate(task.train.__getitems__([0, 5]))
    images, labels = task.to(loaded, here, memory_format=torch.channels_last)
    assert images.shape == (2, 3, 4, 4)
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert torch.isfinite(task.loss(task.model, (images, labels)))
