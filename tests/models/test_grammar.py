"""The grammar of classifiers: every text is a tree or a clear error, and a tree survives every form it takes."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import ModelError
from ringfence.models.grammar import Leaf, Node, Tree, as_tree, parse, split_models

texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=12)
names = st.from_regex(r"[a-z][a-z0-9-]{0,5}", fullmatch=True)
keys = st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True).filter(lambda key: key not in ("node", "models"))
leaf_trees = texts.map(Leaf)
trees: st.SearchStrategy[Tree] = st.recursive(
    leaf_trees,
    lambda inner: st.builds(
        Node, names, st.lists(inner, max_size=3).map(tuple), st.dictionaries(keys, inner, max_size=2)
    ),
    max_leaves=8,
)


@given(trees)
def test_text_and_back(tree: Tree) -> None:
    assert parse(str(tree)) == tree


@given(trees)
def test_hash_agrees_with_equality(tree: Tree) -> None:
    assert hash(parse(str(tree))) == hash(tree)


@given(st.text(max_size=60))
def test_any_text_is_a_tree_or_a_model_error(text: str) -> None:
    with suppress(ModelError):
        parse(text)


def test_the_examples() -> None:
    tree = parse("aces(certify=soft(zoo:a:0, zoo:a:1), core=timm:vit_base, select=entropy, theta=0:1:0.01)")
    assert isinstance(tree, Node)
    assert tree.settings["certify"] == Node("soft", (Leaf("zoo:a:0"), Leaf("zoo:a:1")))
    assert tree.settings["theta"] == Leaf("0:1:0.01")
    assert parse("  resnet20@w a.pt ") == Leaf("resnet20@w a.pt")
    assert parse("C:\\models\\a.pt") == Leaf("C:\\models\\a.pt")
    assert split_models("a, soft(b,c) ,'x(1).pt'") == ["a", "soft(b, c)", "'x(1).pt'"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must name a model"),
        ("soft(a", "closing parenthesis"),
        ("soft(a,)", "must name a model"),
        ("soft(a, b) c", "ends after one model"),
        ("soft(k=1, a)", "before its settings"),
        ("soft(a, k=1, k=2)", "each setting"),
        ("soft (a)", "no space before"),
        ("'a", "closes its quotes"),
        ("a, b", "ends after one model"),
        ("soft(" * 60 + "a" + ")" * 60, "nested at most"),
        ("a" * 100_001, "characters"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        parse(text)


def test_a_source_stands_as_it_is_unless_it_begins_like_a_tree() -> None:
    assert as_tree("my models, old/a.pt") == Leaf("my models, old/a.pt")
    assert as_tree(" 'a(1).pt'") == Leaf("a(1).pt")
    assert as_tree("soft(a)") == Node("soft", (Leaf("a"),))


def test_settings_among_a_list_of_models_are_refused() -> None:
    with pytest.raises(ModelError, match="list of models"):
        split_models("a, k=1")


def test_a_leaf_beginning_like_a_setting_is_quoted() -> None:
    assert str(Leaf("seed=1.pt")) == "'seed=1.pt'"
    assert parse("soft('seed=1.pt')") == Node("soft", (Leaf("seed=1.pt"),))
