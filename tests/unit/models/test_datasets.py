"""The built-in data sets, from files in their real formats; nothing is downloaded."""

import gzip
import pickle
import struct

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from distrain.models import datasets, files
from distrain.models.errors import TaskError

CPU = torch.device("cpu")


def write_idx(path, array):
    """Write LeCun's format: magic number, big-endian dimensions, bytes."""
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    content = head + array.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_mnist(folder, ending=""):
    folder.mkdir(parents=True, exist_ok=True)
    pixels = np.arange(12 * 28 * 28, dtype=np.uint32).astype(np.uint8).reshape(12, 28, 28)
    labels = np.arange(12, dtype=np.uint8) % 10
    write_idx(folder / f"train-images-idx3-ubyte{ending}", pixels[:8])
    write_idx(folder / f"train-labels-idx1-ubyte{ending}", labels[:8])
    write_idx(folder / f"t10k-images-idx3-ubyte{ending}", pixels[8:])
    write_idx(folder / f"t10k-labels-idx1-ubyte{ending}", labels[8:])
    return pixels, labels


def write_cifar10(folder):
    folder.mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 256, (24, 3072), dtype=np.uint8)
    for number, name in enumerate([*files.CIFAR10_TRAIN, *files.CIFAR10_EVAL]):
        part = slice(4 * number, 4 * number + 4)
        batch = {"data": pixels[part], "labels": [number] * 4, "batch_label": name}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    return pixels


def test_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    expected = load_digits()
    data = datasets.digits(evaluate_on="all")
    assert torch.equal(data.eval.inputs[:, 0].double(), torch.from_numpy(expected.images))
    assert torch.equal(data.eval.labels, torch.from_numpy(expected.target))
    assert (data.classes, data.shape, len(data.eval)) == (10, (1, 8, 8), 1797)
    images = data.eval.__getitems__(range(1797))[0]
    assert abs(images.mean().item()) < 1e-3
    assert abs(images.std().item() - 1) < 1e-3


def test_digits_hold_out_the_same_fifth_of_each_digit():
    data, again = datasets.digits(), datasets.digits()
    assert (len(data.train), len(data.eval)) == (1437, 360)
    assert torch.equal(data.eval.inputs, again.eval.inputs)
    trained, held = data.train.labels.bincount(), data.eval.labels.bincount()
    shares = held / (trained + held)
    assert shares.min() > 0.19
    assert shares.max() < 0.21
    together = torch.cat([data.train.inputs, data.eval.inputs]).flatten(1).tolist()
    everything = datasets.digits(evaluate_on="all").eval.inputs.flatten(1).tolist()
    assert sorted(together) == sorted(everything)


def test_digits_in_three_channels_are_grey():
    data = datasets.digits(channels=3)
    images, _ = data.train.__getitems__([0, 1])
    assert tuple(images.shape[1:]) == data.shape == (3, 8, 8)
    assert torch.equal(images[:, 0], images[:, 2])


@pytest.mark.parametrize("holdout", [0.0, 1.0, -1.0])
def test_a_holdout_outside_of_0_to_1_is_refused(holdout):
    with pytest.raises(TaskError, match=r"data.args: holdout must be between 0 and 1"):
        datasets.digits(holdout=holdout)


def test_without_scikit_learn_the_error_names_what_to_install(monkeypatch):
    monkeypatch.setattr(files, "find_spec", lambda name: None)
    with pytest.raises(TaskError, match="pip install scikit-learn"):
        datasets.digits()


@pytest.mark.parametrize(("below", "ending"), [("", ""), ("", ".gz"), ("MNIST/raw", "")])
def test_mnist_is_read_from_its_files(tmp_path, below, ending):
    pixels, labels = write_mnist(tmp_path / below, ending)
    data = datasets.mnist(root=str(tmp_path))
    assert (data.shape, data.classes) == ((1, 28, 28), 10)
    assert np.array_equal(data.train.inputs[:, 0].numpy(), pixels[:8])
    assert np.array_equal(data.eval.inputs[:, 0].numpy(), pixels[8:])
    assert data.eval.labels.tolist() == labels[8:].tolist()
    images, _ = data.train.__getitems__([2])
    assert torch.allclose(images[0, 0], torch.from_numpy((pixels[2] - 33.33) / 78.57).float())


def test_mnist_is_read_as_torchvision_does(tmp_path):
    from distrain.models.torchvision_compat import torchvision

    write_mnist(tmp_path / "MNIST" / "raw")
    expected = torchvision.datasets.MNIST(str(tmp_path), train=True)
    train = datasets.mnist(root=str(tmp_path)).train
    assert torch.equal(expected.data, train.inputs[:, 0])
    assert torch.equal(expected.targets, train.labels)


def test_existing_mnist_files_are_not_downloaded_again(tmp_path, monkeypatch):
    write_mnist(tmp_path)
    monkeypatch.setattr(datasets, "download_files", None)
    assert len(datasets.mnist(root=str(tmp_path), download=True).train) == 8


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\x00\x08\x03\x00",
        b"not an IDX file at all",
        bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3]),
        bytes([0, 0, 8, 1, 0, 0, 0, 2, 1, 2]),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_damaged_mnist_file_is_reported_by_name(tmp_path, content, pack):
    write_mnist(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte").unlink()
    ending = "" if pack is bytes else ".gz"
    (tmp_path / f"t10k-images-idx3-ubyte{ending}").write_bytes(pack(content))
    with pytest.raises(TaskError, match=r"t10k-images-idx3-ubyte\S* is not an IDX file of 3 dim"):
        datasets.mnist(root=str(tmp_path))


def test_a_truncated_compressed_file_is_reported_by_name(tmp_path):
    write_mnist(tmp_path, ".gz")
    path = tmp_path / "train-labels-idx1-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(TaskError, match=r"data.root: .*train-labels-idx1-ubyte.gz is not"):
        datasets.mnist(root=str(tmp_path))


@pytest.mark.parametrize("below", ["here", "root/cifar-10-batches-py"])
def test_cifar10_is_read_from_its_files(tmp_path, below):
    pixels = write_cifar10(tmp_path / below)
    root = str(tmp_path / below.split("/")[0])
    data = datasets.cifar10(root=root, seed=0, augment=False)
    assert np.array_equal(data.train.inputs.flatten(1).numpy(), pixels[:20])
    assert data.train.labels.tolist() == [n for n in range(5) for _ in range(4)]
    assert np.array_equal(data.eval.inputs.flatten(1).numpy(), pixels[20:])
    assert not hasattr(data.train, "wants_epoch")
    assert datasets.cifar10(root=root, seed=0).train.wants_epoch


def test_a_pickle_that_would_run_code_is_refused(tmp_path):
    class Harm:
        def __reduce__(self):
            return print, ("harm",)

    write_cifar10(tmp_path / "root")
    (tmp_path / "root" / "data_batch_3").write_bytes(pickle.dumps({"data": Harm()}))
    with pytest.raises(TaskError, match=r"data_batch_3 is not a batch file .* builtins.print"):
        datasets.cifar10(root=str(tmp_path / "root"), seed=0)


class Made:
    """What pickle makes by a call of numpy."""

    def __init__(self, *arguments):
        self.arguments = arguments

    def __reduce__(self):
        return np.ndarray, self.arguments


POINTER = Made((1,), "O", b"A" * 8)  # an array of objects, at an address that the file chooses
FOLLOWED = pickle.dumps({"data": Made(POINTER, "u1"), "labels": [0]}, protocol=2)
TOO_LONG = b"\x80\x04\x8e" + b"\xff" * 8  # bytes of this length


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", pickle.dumps([1]), pickle.dumps({}), FOLLOWED, TOO_LONG]
)
def test_a_damaged_cifar10_file_is_reported_by_name(tmp_path, content):
    write_cifar10(tmp_path / "root")
    (tmp_path / "root" / "test_batch").write_bytes(content)
    with pytest.raises(TaskError, match="test_batch is not a batch file"):
        datasets.cifar10(root=str(tmp_path / "root"), seed=0)


@pytest.mark.parametrize("on_device", [False, True])
def test_synthetic_data_repeats_a_seeded_pool(on_device):
    def batch(seed, indices):
        data = datasets.synthetic(
            seed=seed, device=CPU, shape=[3, 4], classes=5, pool=7, samples=30, on_device=on_device
        )
        assert (len(data.train), data.shape, data.classes) == (30, (3, 4), 5)
        loaded = next(iter(DataLoader(data.train, batch_sampler=[indices], collate_fn=lambda x: x)))
        return data.finish(loaded) if data.finish else loaded

    inputs, labels = batch(0, [1, 8, 2])
    assert inputs.shape == (3, 3, 4)
    assert labels.max() < 5
    assert torch.equal(inputs[0], inputs[1])
    assert not torch.equal(inputs[0], inputs[2])
    assert torch.equal(inputs, batch(0, [1, 8, 2])[0])
    assert not torch.equal(inputs, batch(1, [1, 8, 2])[0])


def test_no_data_set_draws_from_the_generator_of_the_weights(tmp_path):
    write_cifar10(tmp_path / "c")
    write_mnist(tmp_path / "m")
    before = torch.get_rng_state()
    datasets.digits()
    datasets.mnist(root=str(tmp_path / "m"))
    datasets.cifar10(root=str(tmp_path / "c"), seed=0).train[0, 0]
    datasets.synthetic(seed=0, device=CPU, shape=[4], pool=2)
    assert torch.equal(torch.get_rng_state(), before)
