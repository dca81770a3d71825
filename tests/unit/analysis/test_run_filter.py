"""Filter expressions over runs."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrain.runners.analysis.run_filter import parse_filter
from distrain.runners.analysis.run_keys import KnownKeys, RunKey, Value
from distrain.runners.errors import ConfigError

KEYS = KnownKeys(metrics=("top1", "loss"), settings=("model.args.width", "a.depth", "b.depth"))


class ARun(NamedTuple):
    values: dict[str, Value]
    search_text: str = ""

    def value_of(self, key: RunKey) -> Value:
        return self.values.get(key.name)


def matches(text: str, words: str = "", **values: Any) -> bool:
    named = {name.replace("__", "."): value for name, value in values.items()}
    return parse_filter(text, KEYS).matches(ARun(named, words))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("BASE line", True),
        ('"base line"', False),
        ('"line base"', True),
        ("base gone", False),
        ("-gone", True),
        ("-base", False),
        ("lr>0.05", True),
        ("train.lr>0.1", False),
        ("lr>=0.1 lr<=0.1 lr=1e-1", True),
        ("lr!=0.1", False),
        ("-lr=0.2", True),
        ("strategy=ddp", True),
        ("strategy=dd", False),
        ("strategy:DD", True),
        ("strategy:gone", False),
        ("strategy!=ddp", False),
        ('name="best one"', True),
        ('-name:"best two"', True),
        ("tag:pap", True),
        ("tag=pap", False),
        ("tag=paper tags=keep", True),
        ("-tag:paper", False),
        ("status:fail", True),
        ("status!=failed", False),
        ("top1>=98.5%", True),
        ("top1>0.985", False),
        ("loss>0", False),  # it has none
        ("-loss>0", True),
        ("loss!=0", True),
        ("width=64", True),
        ("compile=true", True),
        ("compile>0", False),
        ("age<2d", True),
        ("age<1d", False),
        ("age>1h30min age>1d2h", True),
        ("duration>90s", True),
        ("kind=run", True),
    ],
)
def test_a_run_is_selected_by_words_and_by_every_kind_of_key(text: str, expected: bool) -> None:
    found = matches(
        text,
        "the line base",
        train__lr=0.1,
        train__compile=True,
        strategy="ddp",
        name="Best One",
        tag=("paper", "keep"),
        status="failed",
        top1=0.985,
        model__args__width=64,
        age=100_000.0,
        duration=91.0,
        kind="run",
    )
    assert found == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("lrr>0.1", "no run has the key lrr; did you mean lr?"),
        ("qqqq://x", "no run has the key qqqq; put text that has an operator in quotes"),
        ("depth=3", "depth may be a.depth or b.depth: write one of them in full"),
        ("lr>abc", "lr> needs a number, not abc"),
        ("lr>", "lr> needs a value"),
        ("tag:", "tag: needs a value"),
        ("status>1", "status is text"),
        ("status:faled", "no status is called faled; it is one of queued, "),
        ("age<2", "with a unit: age<2d"),
        ("age=2d", "compare age with < or >"),
        ('name:"two', 'a quote is not closed, or is in the middle of a word: name:"two'),
    ],
)
def test_a_wrong_expression_is_explained_in_one_sentence(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_filter(text, KEYS)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_offered_word_is_a_key_and_every_setting_has_one() -> None:
    found = {KEYS.find(word).name for word in KEYS.words()}
    assert {"status", "top1", "train.lr", "model.args.width", "a.depth", "b.depth"} <= found
    assert len(found) == len(KEYS.words())


@given(st.text(alphabet='ab-"=<>:! .5%lr\n', max_size=24))
def test_any_text_is_a_filter_or_a_sentence(text: str) -> None:
    problem = ""
    try:
        parse_filter(text, KEYS).matches(ARun({}, "text"))
    except ConfigError as error:
        problem = str(error) or "nothing"
    assert problem != "nothing"
    assert "\n" not in problem


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_comparisons_are_those_of_numbers(bound: float, value: float) -> None:
    assert matches(f"lr>{bound!r}", train__lr=value) == (value > bound)
    assert matches(f"lr<={bound!r}", train__lr=value) == (value <= bound)
    assert matches(f"lr={bound!r}", train__lr=value) == (value == bound)


@given(st.text(st.characters(exclude_characters='"', exclude_categories=["Cs"]), min_size=1))
def test_a_text_in_quotes_is_searched_as_it_is(text: str) -> None:
    assert matches(f'"{text}"', f"before {text.casefold()} after")
    assert matches(f'-"{text}"', "") == bool(text.casefold())
