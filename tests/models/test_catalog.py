import ast
import importlib.util

import pytest

from models import catalog
from models.errors import TaskError

VALID = {"task": "classification", "model": "mlp", "data": "digits"}


def sentence(key, **changes):
    """The one problem that there should be, for `key`."""
    found = catalog.problems(**{**VALID, **changes})
    assert [named for named, _ in found] == [key], found
    return found[0][1]


def test_the_defaults_have_no_problem():
    assert catalog.problems(**VALID) == []


@pytest.mark.parametrize("builtins", catalog.BUILTINS.values())
def test_each_builtin_name_stands_for_something_that_is_defined(builtins):
    for builtin in builtins.values():
        module, _, name = builtin.target.partition(":")
        with open(importlib.util.find_spec(module).origin) as source:
            tree = ast.parse(source.read())
        assert name in {getattr(node, "name", None) for node in tree.body}
        assert builtin.about


def test_each_classification_model_of_torchvision_is_known_and_no_other():
    from models.torchvision_mend import torchvision

    names = torchvision.models.list_models(module=torchvision.models)
    assert catalog.torchvision_networks() == set(names)
    for name in names:
        assert callable(catalog.resolve("model", name))


def test_unknown_names_come_with_the_nearest_all_at_once():
    found = catalog.problems(task="clasification", model="resnet19", data="digit")
    assert found == [
        ("task.name", "unknown task 'clasification'; did you mean classification?"),
        ("model.name", found[1][1]),
        ("data.name", "unknown data set 'digit'; did you mean digits?"),
    ]
    assert "did you mean resnet18" in found[1][1]


def test_a_name_that_is_near_to_nothing_comes_with_what_there_is():
    assert sentence("model.name", model="xyz").endswith(
        "; there are cnn, mlp and torchvision's models"
    )


@pytest.mark.parametrize("name", ["mine.make", "mine.py:make", "mine:make:it", "mine:", ":make"])
def test_a_name_of_the_wrong_form_is_told_the_right_one(name):
    assert '"package.module:factory"' in sentence(
        "task.name", task=name
    ) or "mine:make" in sentence("task.name", task=name)


def test_a_users_own_module_is_found_in_the_current_folder_and_is_not_imported(own):
    own("mine", "def make(): ...\nraise SystemExit('imported')")
    own("pack.deep.mine", "class Make: ...\nraise SystemExit('imported')")
    assert sentence("model.name", model="mine:mak").endswith("defines no 'mak'; did you mean make?")
    assert catalog.problems(task="mine:make", model="pack.deep.mine:Make", data="digits") == []


def test_looking_for_a_module_leaves_nothing_behind_in_pythons_path(own, monkeypatch, tmp_path):
    own("mine", "def make(): ...")
    assert catalog.problems(**{**VALID, "task": "mine:make"}) == []
    monkeypatch.chdir(tmp_path.parent)
    assert "no module 'mine'" in sentence("task.name", task="mine:make")


def test_the_parent_of_a_dotted_name_is_not_imported(own):
    own("loud.__init__", "raise SystemExit('imported')")
    own("loud.mine", "def make(): ...")
    assert catalog.problems(**{**VALID, "task": "loud.mine:make"}) == []
    assert "no module 'loud.yours'" in sentence("task.name", task="loud.yours:make")


def test_a_missing_module_comes_with_the_nearest_file_of_the_folder(own):
    own("regression", "")
    assert "no module 'regresion'" in sentence("task.name", task="regresion:make")
    assert sentence("task.name", task="regresion:make").endswith("did you mean regression?")


def test_a_name_hidden_by_one_of_our_packages_is_told_so():
    assert "models is a package of distrain" in sentence("task.name", task="models.mine:make")


def test_a_module_that_is_not_python_is_told_with_its_line(own):
    own("broken", "x = 1\ndef make(:\n")
    assert "broken.py, line 2: " in sentence("task.name", task="broken:make")


@pytest.mark.parametrize(
    "text",
    [
        "from elsewhere import make",
        "import elsewhere as make",
        "make = lambda: None",
        "first, make = 1, 2",
        "make: object = print",
        "if True:\n    def make(): ...",
        "try:\n    import x\nexcept ImportError:\n    make = None",
        "from elsewhere import *",
        "def __getattr__(name): ...",
    ],
)
def test_a_factory_may_come_to_be_in_any_way_that_python_has(own, text):
    own("ways", text)
    assert catalog.problems(**{**VALID, "task": "ways:make"}) == []


def test_resolving_imports_from_the_current_folder_behind_all_else(own):
    own("fresh_module_a", "def make(): return 7")
    own("json", "raise SystemExit('shadowed the real one')")
    assert catalog.resolve("task", "fresh_module_a:make")() == 7
    assert callable(catalog.resolve("task", "json:dumps"))


def test_what_a_users_module_raises_comes_out_with_its_traceback(own):
    own("fresh_module_b", "def fault():\n    raise KeyError('mine')\nfault()")
    with pytest.raises(KeyError, match="mine") as caught:
        catalog.resolve("task", "fresh_module_b:make")
    assert caught.traceback[-1].name == "fault"


def test_a_module_that_the_users_module_lacks_is_the_users_own_error(own):
    own("fresh_module_c", "import not_installed_anywhere")
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        catalog.resolve("task", "fresh_module_c:make")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no_such_module:make", "no module 'no_such_module'"),
        ("fresh_module_d:mak", "'mak' is not defined there; did you mean make?"),
        ("fresh_module_d:number", "cannot be called"),
        ("resnet18", "unknown task"),
    ],
)
def test_resolving_what_is_not_there_is_one_sentence(own, name, says):
    own("fresh_module_d", "number = 1\ndef make(): ...")
    with pytest.raises(TaskError, match=says) as caught:
        catalog.resolve("task", name)
    assert caught.value.key == "task.name"


@pytest.mark.parametrize("data", ["mnist", "cifar10", "imagefolder"])
def test_a_missing_folder_is_named(data, tmp_path):
    assert sentence("data.root", data=data) == f"{data} is read from a folder: set data.root to it"
    gone = str(tmp_path / "gone")
    assert sentence("data.root", data=data, root=gone) == f"there is no folder {gone}"


def test_a_folder_without_the_files_says_which_are_missing_and_the_mend(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "test_batch").touch()
    (tmp_path / "t10k-images-idx3-ubyte.gz").touch()
    root = str(tmp_path)
    assert "has no val/; it needs train/ and val/" in sentence(
        "data.root", data="imagefolder", root=root
    )
    cifar = sentence("data.root", data="cifar10", root=root)
    assert "data_batch_5;" in cifar
    assert cifar.endswith("data.download = true")
    assert "t10k-images" not in sentence("data.root", data="mnist", root=root)


def test_missing_files_are_no_problem_where_they_may_be_downloaded(tmp_path):
    root = str(tmp_path / "new")
    for data in ("mnist", "cifar10"):
        assert catalog.problems(**{**VALID, "data": data}, root=root, download=True) == []
    assert sentence("data.root", data="imagefolder", root=root, download=True)
