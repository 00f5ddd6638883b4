"""Ids and names that every store can hold and every terminal can show."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast import BadName, LimitExceeded
from outlast.codec.identifiers import (
    check_id,
    check_name,
    check_queue_name,
    escape_name,
    new_ids,
    unescape_name,
)

printable = st.text(
    st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=50
)


@given(printable)
def test_any_printable_text_is_an_id(text):
    assert check_id(text, 50) == text


@given(printable)
def test_any_printable_text_is_a_name(text):
    assert check_name(text, 50) == text


@given(printable, st.sampled_from(["/", "#"]), printable)
def test_queue_name_may_not_contain_a_separator(before, divider, after):
    with pytest.raises(BadName, match="contains '/' or '#'"):
        check_queue_name(before + divider + after, 200)
    assert check_id(before + divider + after, 200)


@given(st.text(), st.text())
def test_escaped_names_contain_no_separators_and_stay_different(one, other):
    escaped = escape_name(one)
    assert not set("/#[]") & set(escaped)
    assert unescape_name(escaped) == one
    assert (escaped == escape_name(other)) == (one == other)


@given(
    st.text(max_size=20), st.characters(categories=["Cc", "Cs", "Zl", "Zp"]), st.text(max_size=20)
)
def test_a_character_that_cannot_be_stored_or_shown_is_refused_anywhere(before, bad, after):
    for check in (check_id, check_name):
        with pytest.raises(BadName) as refused:
            check(before + bad + after, 100)
        str(refused.value).encode(), "the message itself can be shown"


@pytest.mark.parametrize("text", ["", None, 5, b"bytes", ["x"]])
def test_empty_or_non_text_names_are_refused(text):
    with pytest.raises(BadName):
        check_id(text, 10)


def test_length_limit_is_named_in_the_error():
    assert check_id("x" * 10, 10)
    with pytest.raises(LimitExceeded) as refused:
        check_id("x" * 11, 10)
    assert (refused.value.limit, refused.value.allowed, refused.value.asked) == (
        "id_length_max",
        10,
        11,
    )


def test_new_ids_ascend_and_are_unique():
    ids = [*new_ids(1_000), *new_ids(0)]
    assert ids == sorted(set(ids))
    assert {len(check_name(id, 32)) for id in ids} == {32}
    assert not {id[16:] for id in ids} & {id[16:] for id in new_ids(1_000)}
