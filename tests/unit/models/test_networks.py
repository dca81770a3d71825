import pytest
import torch

from distrain.models.errors import TaskError
from distrain.models.networks import cnn, mlp


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32), (2, 6, 9)])
@pytest.mark.parametrize("factory", [mlp, cnn])
def test_networks_fit_any_image_and_number_of_classes(factory, shape):
    model = factory(shape=shape, classes=7)
    assert model(torch.zeros(2, *shape)).shape == (2, 7)


def test_an_mlp_takes_inputs_that_are_not_images():
    assert mlp(shape=(5,), classes=2, hidden=[3])(torch.zeros(4, 5)).shape == (4, 2)
    assert len(mlp(shape=(5,), classes=2, hidden=[])) == 2


def test_the_cnn_is_that_of_pytorchs_example():
    model = cnn(shape=(1, 28, 28), classes=10)
    sizes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    assert sizes == {
        "conv1.weight": (32, 1, 3, 3),
        "conv1.bias": (32,),
        "conv2.weight": (64, 32, 3, 3),
        "conv2.bias": (64,),
        "fc1.weight": (128, 9216),
        "fc1.bias": (128,),
        "fc2.weight": (10, 128),
        "fc2.bias": (10,),
    }
    assert (model.dropout1.p, model.dropout2.p) == (0.25, 0.5)


def test_dropout_can_be_turned_off():
    inputs = torch.ones(1, 1, 8, 8)
    for factory in (mlp, cnn):
        model = factory(shape=(1, 8, 8), classes=10, dropout=0.0)
        assert torch.equal(model(inputs), model(inputs))


def test_weights_depend_on_the_callers_seed():
    torch.manual_seed(4)
    first = mlp(shape=(5,), classes=2)
    torch.manual_seed(4)
    again = mlp(shape=(5,), classes=2)
    assert torch.equal(first[1].weight, again[1].weight)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: mlp(shape=(5,), classes=2, dropout=1.5), "dropout must be between 0 and 1"),
        (lambda: mlp(shape=(5,), classes=2, hidden=[8, 0]), "widths in hidden must be 1 or more"),
        (lambda: cnn(shape=(1, 8, 8), classes=2, dropout=0.6), "between 0 and 0.5, not 0.6"),
        (lambda: cnn(shape=(1, 4, 4), classes=2), "samples are 1×4×4; use mlp"),
        (lambda: cnn(shape=(16,), classes=2), "samples are 16; use mlp"),
    ],
)
def test_a_network_that_cannot_be_built_is_reported_in_one_sentence(make, problem):
    with pytest.raises(TaskError, match=problem):
        make()
