import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from distrain.models.data import (
    Augmented,
    CropFlipData,
    FirstSamples,
    TensorData,
    collate,
    hash_keys,
    take_first,
)

IMAGES = torch.randint(0, 256, (20, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator())
LABELS = torch.arange(20)


class Pairs:
    """A data set without `__getitems__`."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return float(index), index


def noisy(raw):
    return raw + torch.rand(1).item() + random.random() + np.random.rand()


def test_a_batch_has_the_same_values_as_its_samples():
    data = TensorData(IMAGES, LABELS, mean=[1.0, 2.0, 3.0], std=[4.0, 5.0, 6.0])
    images, labels = data.__getitems__([3, 1, 19])
    assert labels.tolist() == [3, 1, 19]
    assert images.dtype == torch.float32
    for row, index in enumerate([3, 1, 19]):
        assert torch.equal(images[row], data[index][0])
        expected = (IMAGES[index, 2].double() - 3) / 6
        assert torch.allclose(images[row, 2].double(), expected)
    assert data.inputs.dtype == torch.uint8


def test_a_loader_keeps_whole_batches_and_joins_single_samples():
    for data in (TensorData(IMAGES.float(), LABELS), TensorDataset(IMAGES.float(), LABELS)):
        batches = list(DataLoader(data, batch_size=8, collate_fn=collate))
        assert torch.equal(torch.cat([images for images, _ in batches]), IMAGES.float())
        assert torch.equal(torch.cat([labels for _, labels in batches]), LABELS)


def test_inputs_and_labels_must_have_the_same_number():
    with pytest.raises(ValueError, match="20 inputs, but 3 labels"):
        TensorData(IMAGES, LABELS[:3])


@pytest.mark.parametrize("dataset", [TensorData(IMAGES, LABELS), Augmented(Pairs(), noisy, 0)])
def test_a_limit_takes_the_first_samples_and_keeps_the_interface_of_the_whole_set(dataset):
    first = take_first(dataset, 5)
    assert len(first) == 5
    assert hasattr(first, "__getitems__") == hasattr(dataset, "__getitems__")
    assert first.wants_epoch == getattr(dataset, "wants_epoch", False)
    key = (0, 4) if first.wants_epoch else 4
    assert str(first[key]) == str(dataset[key])
    with pytest.raises(IndexError):
        first[(0, 5) if first.wants_epoch else 5]


def test_no_limit_and_a_high_limit_take_all():
    dataset = TensorData(IMAGES, LABELS)
    assert take_first(dataset, None) is dataset
    assert len(FirstSamples(dataset, 1000)) == 20


def test_augmentation_depends_on_seed_epoch_and_index_only():
    data = Augmented(Pairs(), noisy, seed=1)
    first = [data[0, index] for index in range(10)]
    random.seed(9)
    torch.manual_seed(9)
    assert [data[0, index] for index in reversed(range(10))] == first[::-1]
    assert [data[1, index] for index in range(10)] != first
    assert [Augmented(Pairs(), noisy, seed=2)[0, index] for index in range(10)] != first
    assert len({value - index for value, index in first}) == 10


def test_augmentation_restores_all_random_generators():
    def draws():
        return torch.rand(1).item(), random.random(), np.random.rand()

    data = Augmented(Pairs(), noisy, seed=1)
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    undisturbed = [draws(), draws()]
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    first = draws()
    data[0, 3]
    assert [first, draws()] == undisturbed


def test_generators_are_restored_even_if_the_transform_raises():
    def fails(raw):
        torch.rand(1)
        raise RuntimeError("no")

    before = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="no"):
        Augmented(Pairs(), fails, seed=0)[0, 0]
    assert torch.equal(torch.get_rng_state(), before)


def test_a_shifted_image_is_a_possibly_mirrored_window_of_the_padded_one():
    data = CropFlipData(IMAGES, LABELS, None, None, pad=2, seed=3)
    padded = torch.nn.functional.pad(IMAGES, [2] * 4)
    images, labels = data.__getitems__([(5, index) for index in range(20)])
    assert torch.equal(labels, LABELS)
    augmentations = set()
    for index, image in enumerate(images):
        windows = {
            (top, left, flip): window.flip(2) if flip else window
            for top in range(5)
            for left in range(5)
            for window in [padded[index, :, top : top + 8, left : left + 8]]
            for flip in (False, True)
        }
        (found,) = [key for key, window in windows.items() if torch.equal(window, image)]
        augmentations.add(found)
    assert len(augmentations) > 10
    assert {flip for _, _, flip in augmentations} == {False, True}


def test_shifts_do_not_depend_on_the_batch_and_change_with_the_epoch():
    data = CropFlipData(IMAGES, LABELS, None, None, pad=2, seed=3)
    whole, _ = data.__getitems__([(0, index) for index in range(20)])
    for index in (19, 0, 7):
        assert torch.equal(data[0, index][0], whole[index])
    again, _ = data.__getitems__([(1, index) for index in range(20)])
    assert not torch.equal(again, whole)


def test_hashes_of_keys_are_reproducible_and_all_different():
    keys = [(epoch, index) for epoch in range(8) for index in range(100)]
    numbers = [hash_keys(seed, keys) for seed in (0, 1, 2**63)]
    assert len({int(number) for drawn in numbers for number in drawn}) == 2400
    assert hash_keys(0, [(0, 0)]).tolist() == [hash_keys(0, keys)[0]] == [0x238275BC38FCBE91]
    bits = [sum(int(number) >> bit & 1 for number in numbers[0]) for bit in range(64)]
    assert min(bits) > 330
    assert max(bits) < 470
