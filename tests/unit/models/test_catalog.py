import ast
import importlib.util
import os
import sys

import pytest

from distrain.models import catalog
from distrain.models.errors import TaskError
from distrain.models.importing import make_importable, user_folders
from tests.support import ROOT

VALID = {"task": "classification", "model": "mlp", "data": "digits"}


def sentence(key, **changes):
    """Return the only problem, which must be of `key`."""
    found = catalog.problems(**{**VALID, **changes})
    assert [named for named, _ in found] == [key], found
    return found[0][1]


def test_the_defaults_have_no_problems():
    assert catalog.problems(**VALID) == []


@pytest.mark.parametrize("builtins", catalog.BUILTINS.values())
def test_the_factory_of_each_builtin_name_is_defined(builtins):
    for builtin in builtins.values():
        module, _, name = builtin.target.partition(":")
        with open(importlib.util.find_spec(module).origin) as source:
            tree = ast.parse(source.read())
        assert name in {getattr(node, "name", None) for node in tree.body}
        assert builtin.about


def test_exactly_the_classification_models_of_torchvision_are_known():
    from distrain.models.torchvision_compat import torchvision

    names = torchvision.models.list_models(module=torchvision.models)
    assert catalog.torchvision_networks() == set(names)
    for name in names:
        assert callable(catalog.resolve("model", name))


def test_sources_are_parsed_also_while_another_thread_parses(monkeypatch):
    """As CPython 3.11.7 and 3.12.1 fail: cpython#106905."""
    fails, parse = [True, True], ast.parse

    def fail_first(*arguments):
        if fails:
            fails.pop()
            raise SystemError("AST constructor recursion depth mismatch (before=54, after=31)")
        return parse(*arguments)

    catalog.torchvision_networks.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(ast, "parse", fail_first)
        known = catalog.torchvision_networks()
    assert "resnet18" in known
    assert not fails


def test_unknown_names_are_reported_all_at_once_with_similar_names():
    found = catalog.problems(task="clasification", model="resnet19", data="digit")
    assert found == [
        ("task.name", "unknown task 'clasification'; did you mean classification?"),
        ("model.name", found[1][1]),
        ("data.name", "unknown data set 'digit'; did you mean digits?"),
    ]
    assert "did you mean resnet18" in found[1][1]


def test_a_name_that_is_similar_to_none_is_reported_with_all_names():
    assert sentence("model.name", model="xyz").endswith(
        "; there are cnn, gpt, mlp and torchvision's models"
    )


@pytest.mark.parametrize("name", ["mine.make", "mine.py:make", "mine:make:it", "mine:", ":make"])
def test_a_name_of_the_wrong_form_is_reported_with_the_right_one(name):
    assert '"package.module:factory"' in sentence(
        "task.name", task=name
    ) or "mine:make" in sentence("task.name", task=name)


def test_a_users_own_module_is_found_in_the_current_folder_and_is_not_imported(own):
    own("mine", "def make(): ...\nraise SystemExit('imported')")
    own("pack.deep.mine", "class Make: ...\nraise SystemExit('imported')")
    assert sentence("model.name", model="mine:mak").endswith("defines no 'mak'; did you mean make?")
    assert catalog.problems(task="mine:make", model="pack.deep.mine:Make", data="digits") == []


def test_the_search_for_a_module_leaves_pythons_path_unchanged(own, monkeypatch, tmp_path):
    own("mine", "def make(): ...")
    before = sys.path.copy()
    assert catalog.problems(**{**VALID, "task": "mine:make"}) == []
    assert sys.path == before


def test_modules_are_searched_in_the_given_folders_only(own, tmp_path):
    own("first.mine", "def first(): ...")
    own("second.mine", "def second(): ...")
    own("second.other", "def make(): ...")
    folders = [str(tmp_path / "first"), str(tmp_path / "second")]
    assert catalog.problems(**{**VALID, "task": "mine:first"}, folders=folders) == []
    assert catalog.problems(**{**VALID, "task": "other:make"}, folders=folders) == []
    [(_, text)] = catalog.problems(**{**VALID, "task": "mine:second"}, folders=folders)
    assert text.startswith(f"{tmp_path}/first/mine.py defines no 'second'")
    [(_, text)] = catalog.problems(**{**VALID, "task": "third:make"}, folders=folders)
    assert text.startswith(f"no module 'third' in {folders[0]} or {folders[1]}, nor is one instal")


def test_the_folders_are_those_of_the_preset_and_of_the_launch(tmp_path):
    assert user_folders(None, tmp_path) == [str(tmp_path)]
    assert user_folders("/proj", tmp_path) == ["/proj", str(tmp_path)]
    assert user_folders("src", tmp_path) == [str(tmp_path / "src"), str(tmp_path)]
    assert user_folders(str(tmp_path), tmp_path) == [str(tmp_path)]


def test_the_users_folders_come_after_the_standard_library_and_before_all_else(monkeypatch):
    standard = ["/usr/lib/python311.zip", os.path.dirname(os.__file__)]
    monkeypatch.setattr(sys, "path", ["", *standard, "/site-packages", "/proj"])
    make_importable(["/presets", "/proj"])
    assert sys.path == [*standard, "/presets", "/proj", "", "/site-packages"]


def test_the_parent_of_a_dotted_name_is_not_imported(own):
    own("loud.__init__", "raise SystemExit('imported')")
    own("loud.mine", "def make(): ...")
    assert catalog.problems(**{**VALID, "task": "loud.mine:make"}) == []
    assert "no module 'loud.yours'" in sentence("task.name", task="loud.yours:make")


def test_a_missing_module_comes_with_the_nearest_file_of_the_folder(own):
    own("regression", "")
    assert "no module 'regresion'" in sentence("task.name", task="regresion:make")
    assert sentence("task.name", task="regresion:make").endswith("did you mean regression?")


@pytest.mark.parametrize(
    ("target", "successor"),
    [
        ("models.networks:mlp", "models.networks is now distrain.models.networks"),
        ("runners.strategies:Own", "runners.strategies is now distrain.runners.strategies"),
        ("runners.record:Own", "runners.record is now distrain.runners.records.reader"),
    ],
)
def test_a_module_of_distrain_is_not_found_by_its_old_name(target, successor, own):
    assert successor in sentence("task.name", task=target)


@pytest.mark.parametrize("package", ["models", "runners", "presets", "tui"])
def test_the_users_own_package_may_have_a_name_of_ours(package, own):
    own(f"{package}.__init__", "")
    own(f"{package}.mine", "def make(): ...")
    assert catalog.problems(**{**VALID, "task": f"{package}.mine:make"}) == []
    assert f"no module '{package}.yours'" in sentence("task.name", task=f"{package}.yours:make")


def test_in_a_checkout_of_distrain_its_folders_are_not_the_users_packages(own, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert "is now distrain.models.networks" in sentence("task.name", task="models.networks:mlp")


def test_a_module_that_the_standard_library_hides_is_named(own, tmp_path):
    own("queue", "def make(): ...")
    text = sentence("task.name", task="queue:make")
    assert text == f"{tmp_path}/queue.py is hidden by Python's own module 'queue': rename it"


def test_a_module_with_a_syntax_error_is_reported_with_its_line(own):
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


def test_resolving_imports_the_users_modules_before_the_installed_ones(own):
    own("fresh_module_a", "def make(): return 7")
    own("json", "raise SystemExit('shadowed the real one')")
    assert catalog.resolve("task", "fresh_module_a:make")() == 7
    assert callable(catalog.resolve("task", "json:dumps"))


@pytest.mark.parametrize(
    ("text", "successor"),
    [
        ("from models.task import Task", "imports 'models': models is now distrain.models;"),
        (
            "from runners.strategies import Strategy",
            "imports 'runners.strategies': runners.strategies is now distrain.runners.strategies;",
        ),
    ],
)
def test_a_module_that_imports_an_old_name_is_told_the_new_one(own, monkeypatch, text, successor):
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(ROOT)])
    own("fresh_module_e", text)
    with pytest.raises(TaskError) as caught:
        catalog.resolve("task", "fresh_module_e:make")
    assert caught.value.sentence == f"fresh_module_e {successor} change the import"


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
    ("name", "problem"),
    [
        ("no_such_module:make", "no module 'no_such_module'"),
        ("fresh_module_d:mak", "'mak' is not defined there; did you mean make?"),
        ("fresh_module_d:number", "cannot be called"),
        ("resnet18", "unknown task"),
    ],
)
def test_a_name_that_cannot_be_resolved_is_reported_in_one_sentence(own, name, problem):
    own("fresh_module_d", "number = 1\ndef make(): ...")
    with pytest.raises(TaskError, match=problem) as caught:
        catalog.resolve("task", name)
    assert caught.value.key == "task.name"


@pytest.mark.parametrize("data", ["mnist", "cifar10", "imagefolder"])
def test_a_missing_folder_is_reported(data, tmp_path):
    unset = f"{data} is read from a folder; set data.root to its path"
    assert sentence("data.root", data=data) == unset
    gone = str(tmp_path / "gone")
    fix = "set data.root to the folder of the files"
    if data != "imagefolder":
        fix += ", or data.download = true to download them"
    assert sentence("data.root", data=data, root=gone) == f"there is no folder {gone}; {fix}"


def test_missing_files_of_a_folder_are_reported_with_the_fix(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "test_batch").touch()
    (tmp_path / "t10k-images-idx3-ubyte.gz").touch()
    root = str(tmp_path)
    assert "has no val/; it needs train/ and val/" in sentence(
        "data.root", data="imagefolder", root=root
    )
    cifar = sentence("data.root", data="cifar10", root=root)
    assert "data_batch_5;" in cifar
    assert cifar.endswith("set data.download = true to download them")
    assert "t10k-images" not in sentence("data.root", data="mnist", root=root)


def test_missing_files_are_no_problem_where_they_may_be_downloaded(tmp_path):
    root = str(tmp_path / "new")
    for data in ("mnist", "cifar10"):
        assert catalog.problems(**{**VALID, "data": data}, root=root, download=True) == []
    assert sentence("data.root", data="imagefolder", root=root, download=True)
