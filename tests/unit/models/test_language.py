import math
import tracemalloc

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from distrain.models.data import Data
from distrain.models.errors import TaskError
from distrain.models.language import Language, gpt, perplexity, text


def test_a_gpt_predicts_from_earlier_tokens_only():
    model = gpt(shape=(8,), classes=256, layers=2, width=16, heads=2).eval()
    tokens = torch.randint(256, (3, 8))
    changed = tokens.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 256
    before, after = model(tokens), model(changed)
    assert before.shape == (3, 8, 256)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


def test_input_and_output_embeddings_are_one_tensor():
    names = [name for name, _ in gpt(shape=(8,), classes=256).named_parameters()]
    assert "token.weight" in names
    assert not any("head" in name for name in names)


def test_an_untrained_gpt_knows_nothing():
    torch.manual_seed(0)
    data = text(root=None, context=32)
    task = Language(gpt(shape=data.shape, classes=data.classes), data)
    with torch.no_grad():
        total, count = task.metrics(task.model, data.eval.__getitems__(range(64)))["loss"]
    assert count == 64 * 32
    assert total.item() / count == pytest.approx(math.log(256), abs=0.2)


def test_the_operations_of_a_gpt_are_those_that_torch_counts():
    data = text(root=None, context=32)
    task = Language(gpt(shape=data.shape, classes=data.classes), data)
    assert (task.item, task.items_per_sample) == ("token", 32)
    batch = data.train.__getitems__(range(8))
    # Only this implementation of attention is made of operations that torch counts on a CPU.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        task.loss(task.model, batch).backward()
    assert 8 * task.flops_per_sample == pytest.approx(counter.get_total_flops(), rel=0.02)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"heads": 3}, "width must be a multiple of heads"),
        ({"context": 4}, "context is 4, and the samples have 8 tokens"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
        ({"shape": (3, 8, 8)}, "the samples are 3×8×8; use cnn"),
    ],
)
def test_what_a_gpt_cannot_be(arguments, problem):
    with pytest.raises(TaskError, match=problem):
        gpt(**{"shape": (8,), "classes": 256, "width": 16, **arguments})


def test_each_byte_is_predicted_once(tmp_path):
    file = tmp_path / "letters.txt"
    file.write_bytes(bytes(range(100)))
    data = text(root=str(file), context=10, holdout=0.31)  # 69 bytes to train, 31 to evaluate
    for dataset, first, windows in ((data.train, 0, 6), (data.eval, 69, 3)):
        inputs, targets = dataset.__getitems__(range(len(dataset)))
        assert inputs.flatten().tolist() == [*range(first, first + 10 * windows)]
        assert torch.equal(targets, inputs + 1)
    one, its_next = data.train[2]
    assert one.tolist() == [*range(20, 30)]
    assert its_next.tolist() == [*range(21, 31)]


def test_a_text_takes_little_more_memory_than_its_bytes(tmp_path):
    # given a text, of which a list of its bytes would be eight times as large
    size = 200_000
    (tmp_path / "text").write_bytes(bytes(size))
    tracemalloc.start()
    try:
        text(root=str(tmp_path / "text"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * size


def test_what_cannot_be_read_as_text(tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("short")
    for arguments, problem in (
        ({"root": str(tmp_path / "none")}, "there is no file"),
        ({"root": str(short)}, "5 bytes: too few for windows of 64"),
        ({"root": None, "context": 0}, "context must be 1 or more"),
        ({"root": None, "holdout": 1.0}, "holdout must be between 0 and 1"),
    ):
        with pytest.raises(TaskError, match=problem):
            text(**arguments)


def test_perplexity_and_bits_follow_from_the_mean_loss():
    windows = torch.utils.data.TensorDataset(torch.zeros(1, 2))
    by_bytes = Language(nn.Identity(), Data(train=windows, eval=windows, classes=256))
    assert by_bytes.derived({"loss": math.log(8)}) == pytest.approx(
        {"perplexity": 8.0, "bits_per_byte": 3.0}
    )
    by_words = Language(nn.Identity(), Data(train=windows, eval=windows, classes=5000))
    assert by_words.derived({"loss": 0.0}) == {"perplexity": 1.0}
    assert perplexity(1e6) == math.inf
