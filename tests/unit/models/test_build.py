"""Building a task from the sections of a config."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from distrain.models.build import build_task, own_parts
from distrain.models.errors import TaskError


@pytest.fixture
def build(section):
    def make(task=None, model=None, data=None, **others):
        return build_task(
            task or section("classification"),
            model or section("mlp"),
            data or section("digits"),
            **others,
        )

    return make


def error_of(build, **sections):
    with pytest.raises(TaskError) as caught:
        build(**sections)
    return str(caught.value)


def test_the_default_is_an_mlp_that_classifies_digits(build):
    task = build(label_smoothing=0.1)
    assert (len(task.train), len(task.eval), task.label_smoothing) == (1437, 360, 0.1)
    batch = task.collate(task.train.__getitems__(range(16)))
    assert 2 < task.loss(task.model, batch).item() < 3


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_weights_depend_on_the_callers_seed_only(build, section, model):
    def weights(data):
        torch.manual_seed(3)
        task = build(model=section(model), data=data)
        return torch.cat([value.flatten() for value in task.model.state_dict().values()])

    noise = section("synthetic", shape=[1, 8, 8], classes=10, pool=3)
    assert torch.equal(weights(section("digits")), weights(noise))


def test_a_torchvision_network_by_name(build, section):
    task = build(model=section("resnet18"), data=section("digits", channels=3))
    batch = task.collate(task.train.__getitems__(range(4)))
    assert task.loss(task.model, batch).isfinite()


def test_arguments_of_the_config_reach_the_factories(build, section):
    task = build(model=section("mlp", hidden=[5]), data=section("digits", holdout=0.5))
    assert task.model[1].out_features == 5
    assert len(task.eval) == 899


def test_limits_take_the_first_samples(build, section):
    task = build(data=section("digits", train_limit=100, eval_limit=7))
    assert (len(task.train), len(task.eval)) == (100, 7)
    assert hasattr(task.train, "__getitems__")


def test_a_data_set_that_is_a_property_is_used_unless_a_limit_shortens_it(build, section, own):
    own(
        "in_properties",
        """
from distrain.models.classification import Classification

class Task(Classification):
    train = property(lambda self: self.data.train, lambda self, _: None)
    eval = property(lambda self: [self.data.train[0]] * 8)

    def __init__(self, model, data):
        self.model, self.data = model, data
""",
    )
    task = section("in_properties:Task")
    assert len(build(task=task, data=section("digits", eval_limit=8)).eval) == 8
    problem = error_of(build, task=task, data=section("digits", eval_limit=7))
    assert problem.startswith("data.eval_limit: `eval` of in_properties:Task is a property")


@pytest.mark.parametrize(
    ("kind", "name", "args", "problem"),
    [
        ("model", "mlp", {"hiden": 3}, "mlp takes no argument 'hiden'; did you mean hidden?"),
        (
            "model",
            "mlp",
            {"hidden": "x"},
            "hidden of mlp must be a list, each a whole number, not 'x'",
        ),
        ("model", "mlp", {"hidden": [1.5]}, "must be a list, each a whole number, not [1.5]"),
        ("model", "cnn", {"dropout": True}, "dropout of cnn must be a number, not True"),
        ("data", "digits", {"channels": "3"}, "channels of digits must be a whole number, not '3'"),
        ("data", "digits", {"evaluate_on": "test"}, "must be 'heldout' or 'all', not 'test'"),
        (
            "data",
            "synthetic",
            {"on_device": 1},
            "on_device of synthetic must be true or false, not 1",
        ),
        ("task", "classification", {"top": 3}, "classification takes no argument 'top'"),
    ],
)
def test_a_wrong_argument_is_reported_in_one_sentence(build, section, kind, name, args, problem):
    message = error_of(build, **{kind: section(name, **args)})
    assert message.startswith(f"{kind}.args: ")
    assert problem in message


def test_a_network_that_cannot_take_the_data_is_reported_with_both_names(build, section):
    message = error_of(build, model=section("resnet18"))
    assert message.startswith(
        "model.name: resnet18 takes images with 3 channels, but those of digits are"
    )


def test_a_missing_folder_is_error_of(build, section):
    assert error_of(build, data=section("mnist")).startswith(
        "data.root: mnist is read from a folder"
    )


OWN = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
from distrain.models.classification import Classification
from distrain.models.data import Data
from distrain.models.task import Task

def data(seed, n: int = 12):
    inputs = torch.arange(n * 4).view(n, 4).float() + seed
    pairs = TensorDataset(inputs, torch.arange(n) % 3)
    return Data(pairs, pairs, classes=3, shape=(4,))

def network(shape, classes, scale: float = 1.0, **others):
    layer = nn.Linear(shape[0], classes)
    nn.init.constant_(layer.weight, scale)
    return layer

class Halved(Classification):
    def loss(self, model, batch):
        return super().loss(model, batch) / 2

class Alone(Task):
    def __init__(self, width: int):
        self.model = nn.Linear(width, 1)
        self.train = self.eval = TensorDataset(torch.ones(9, width))
    def loss(self, model, batch):
        return model(batch[0]).mean()
    def metrics(self, model, batch):
        return {"loss": (model(batch[0]).double().sum(), len(batch[0]))}

def stream():
    task = Alone(2)
    task.train = iter([])
    return task

class Bare(Alone):
    def __init__(self): ...

def nothing(): ...

def fails():
    raise KeyError("mine")

def hints(width: "Unheard" = 1): return Alone(width)

def listed(widths: [int] = [1]): return Alone(widths[0])
"""


@pytest.fixture
def mine(own):
    own("own_parts", OWN)


@pytest.mark.usefixtures("mine")
class TestUserCode:
    def test_network_and_data_get_the_parameters_that_they_name(self, build, section):
        task = build(
            model=section("own_parts:network", scale=2),
            data=section("own_parts:data", n=6),
            seed=100,
        )
        assert isinstance(task.model, nn.Linear)
        assert (task.model.weight == 2).all()
        assert len(task.train) == 6
        assert task.train[0][0][0] == 100
        batch = task.collate([task.train[index] for index in range(6)])
        assert task.loss(task.model, batch).isfinite()

    def test_a_task_can_use_the_built_in_data_and_network(self, build, section):
        halved, whole = build(task=section("own_parts:Halved")), build()
        batch = whole.train.__getitems__(range(8))
        assert halved.loss(whole.model, batch) == whole.loss(whole.model, batch) / 2

    def test_data_and_network_are_not_built_for_a_task_that_does_not_name_them(
        self, build, section
    ):
        task = build(
            task=section("own_parts:Alone", width=2),
            data=section("mnist", root="/nowhere", train_limit=5),
        )
        assert len(task.train) == 5
        assert isinstance(task.train.dataset, TensorDataset)

    @pytest.mark.parametrize(
        ("name", "parts"),
        [
            ("own_parts:Alone", {"model": "Linear", "data": "TensorDataset"}),
            ("own_parts:Halved", {}),
            ("classification", {}),
        ],
    )
    def test_what_a_task_has_in_place_of_other_sections_is_named(self, build, section, name, parts):
        chosen = section(name, **({"width": 3} if name == "own_parts:Alone" else {}))
        task = build(task=chosen, data=section("digits", train_limit=5))
        assert own_parts(chosen, task) == parts

    @pytest.mark.parametrize(
        ("name", "args"), [("hints", {"width": 3}), ("listed", {"widths": [3]})]
    )
    def test_annotations_that_are_no_types_are_ignored(self, build, section, name, args):
        assert build(task=section(f"own_parts:{name}", **args)).model.in_features == 3

    @pytest.mark.parametrize(
        ("name", "problem"),
        [
            ("Alone", "task.args: own_parts:Alone needs width"),
            (
                "nothing",
                "task.name: own_parts:nothing returned None, not a distrain.models.task.Task",
            ),
            (
                "stream",
                "task.name: `train` of own_parts:stream is a list_iterator, which can be iterated "
                "only once",
            ),
            ("Bare", "task.name: the task of own_parts:Bare has no `model`"),
        ],
    )
    def test_a_wrong_task_is_reported_in_one_sentence(self, build, section, name, problem):
        assert error_of(build, task=section(f"own_parts:{name}")).startswith(problem)

    def test_a_wrong_network_or_data_is_reported_in_one_sentence(self, build, section):
        name = "own_parts:nothing"
        assert "not a torch.nn.Module" in error_of(build, model=section(name))
        assert "not a distrain.models.data.Data" in error_of(build, data=section(name))

    def test_label_smoothing_that_a_task_would_ignore_is_refused(self, build, section):
        with pytest.raises(TaskError, match=r"train.label_smoothing: own_parts:Alone does not use"):
            build(task=section("own_parts:Alone", width=2), label_smoothing=0.1)

    def test_exceptions_of_the_users_code_pass_unchanged(self, build, section):
        with pytest.raises(KeyError, match="mine") as caught:
            build(task=section("own_parts:fails"))
        assert caught.traceback[-1].name == "fails"


def test_an_error_can_be_pickled():
    import pickle

    error = pickle.loads(pickle.dumps(TaskError("model.args", "no")))
    assert (error.key, error.sentence, str(error)) == ("model.args", "no", "model.args: no")
