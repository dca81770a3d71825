"""What uses torchvision: networks by name, folders of images, downloads."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from distrain.models import files, vision
from distrain.models.data import collate
from distrain.models.errors import TaskError
from distrain.models.torchvision_compat import torchvision

KEYS = [[(0, 0), (0, 3)], [(0, 5), (0, 1)], [(1, 0), (1, 3)]]


@pytest.fixture
def folder(tmp_path):
    """Six training and four evaluation images of two classes, as files."""
    noise = np.random.default_rng(0)
    for part, count in (("train", 3), ("val", 2)):
        for name in ("cat", "dog"):
            (tmp_path / part / name).mkdir(parents=True)
            for number in range(count):
                pixels = noise.integers(0, 256, (40, 48, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / part / name / f"{number}.png")
    return tmp_path


def batches(dataset, workers):
    loader = DataLoader(
        dataset,
        batch_sampler=KEYS,
        num_workers=workers,
        collate_fn=collate,
        multiprocessing_context="spawn" if workers else None,
    )
    return [images for images, _ in loader]


def test_augmentation_is_the_same_in_spawned_loader_processes(folder):
    train = vision.imagefolder(root=str(folder), seed=5, size=16).train
    here = batches(train, 0)
    assert all(map(torch.equal, here, batches(train, workers=2)))
    assert not torch.equal(here[0], here[2])


def test_training_images_are_cropped_at_random_and_evaluation_images_in_the_middle(folder):
    data = vision.imagefolder(root=str(folder), seed=0, size=32)
    assert (data.classes, data.shape) == (2, (3, 32, 32))
    assert (len(data.train), len(data.eval)) == (6, 4)
    assert data.train.wants_epoch
    assert not hasattr(data.eval, "wants_epoch")
    image, label = data.train[0, 5]
    assert (image.shape, label) == ((3, 32, 32), 1)
    image, label = data.eval[0]
    assert (image.shape, label) == ((3, 32, 32), 0)
    assert torch.equal(image, data.eval[0][0])


def test_without_augmentation_training_images_are_cropped_like_evaluation_images(folder):
    train = vision.imagefolder(root=str(folder), seed=0, size=32, augment=False).train
    assert torch.equal(train[0][0], train[0][0])
    assert not hasattr(train, "wants_epoch")


def test_classes_that_only_one_part_has_are_refused(folder):
    (folder / "val" / "cat").rename(folder / "val" / "cow")
    with pytest.raises(TaskError, match=r"data.root: .* only one of them has cat, cow"):
        vision.imagefolder(root=str(folder), seed=0)


def test_a_class_without_images_is_named(folder):
    (folder / "train" / "eel").mkdir()
    with pytest.raises(TaskError, match=r"data.root: .*eel"):
        vision.imagefolder(root=str(folder), seed=0)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("resnet18", (3, 8, 8)),
        ("mobilenet_v3_small", (3, 32, 32)),
        ("vit_b_16", (3, 32, 32)),
        ("squeezenet1_1", (3, 224, 224)),
    ],
)
def test_a_network_is_torchvisions_with_the_given_classes(name, shape):
    model = vision.network(name, shape=shape, classes=4)
    assert model.training
    assert model.eval()(torch.zeros(1, *shape)).shape == (1, 4)


def test_a_network_with_auxiliary_heads_returns_plain_logits_in_training_too():
    model = vision.network("googlenet", shape=(3, 32, 32), classes=4)
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 4)
    with pytest.raises(TaskError, match="does not use aux_logits"):
        vision.network("googlenet", shape=(3, 32, 32), classes=4, aux_logits=True)


def test_arguments_reach_the_network():
    model = vision.network(
        "resnet18", shape=(3, 8, 8), classes=4, width_per_group=64, norm_layer=None
    )
    assert model.fc.out_features == 4
    with pytest.raises(TaskError, match=r"model.args: resnet18 does not take .*'hiden'"):
        vision.network("resnet18", shape=(3, 8, 8), classes=4, hiden=3)


def test_grey_images_are_refused_with_the_fix():
    with pytest.raises(TaskError) as caught:
        vision.network("resnet18", shape=(1, 8, 8), classes=10, data_name="digits")
    assert str(caught.value) == (
        "model.name: resnet18 takes images with 3 channels, but those of digits are 1×8×8; "
        "use cnn or mlp, or set data.args.channels = 3"
    )


def test_images_too_small_for_a_network_are_refused_before_training():
    with pytest.raises(
        TaskError, match=r"model.name: alexnet cannot take the 3×8×8 images of mine"
    ):
        vision.network("alexnet", shape=(3, 8, 8), classes=10, data_name="mine")


def test_files_that_another_rank_has_downloaded_are_not_downloaded_again(tmp_path, monkeypatch):
    calls = []

    def download_mnist(root, download):
        calls.append(root)
        for name in files.MNIST:
            (tmp_path / "new" / name).touch()

    monkeypatch.setattr(torchvision.datasets, "MNIST", download_mnist)
    vision.download("mnist", tmp_path / "new")
    vision.download("mnist", tmp_path / "new")
    assert calls == [str(tmp_path / "new")]


def test_a_failed_download_is_reported_in_one_sentence(tmp_path, monkeypatch):
    def fail(root, download):
        raise RuntimeError("no network")

    monkeypatch.setattr(torchvision.datasets, "CIFAR10", fail)
    with pytest.raises(
        TaskError, match=r"data.download: cifar10 could not be downloaded .*no network"
    ):
        vision.download("cifar10", tmp_path)
