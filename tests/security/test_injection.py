"""Hostile texts stay texts in every field of every command, on every store."""

from __future__ import annotations

import os
from contextlib import closing
from typing import get_type_hints
from urllib.parse import quote

import pytest
from command_fields import COMMANDS, LEAVES, World, in_order, plain, swapped

from outlast.errors import SettingsError
from outlast.store.address import store_at
from outlast.store.rows import RunQuery
from outlast.store.session_rows import SessionQuery
from outlast.testing.conformance.harness import ManualClock
from support.stores import a_place

ALL = os.environ.get("OUTLAST_TEST_STORES") == "all"
STORES = ("sqlite", "file", "postgres", "redis", *(["memory"] if ALL else []))
"""Each has statements of its own; only `memory:` shares those of SQLite."""
HARMLESS = "harmless-text-"
TEXTS = {
    "SQL": """'); DROP TABLE runs; UPDATE runs SET status='done'; --""",
    "SQL, other quotes": """"; DELETE FROM "runs"; /* $$; $1 $tag$ E'\\' ::text ?1 :id %s %(x)s {0} \\""",
    "Lua": """]] .. os.exit() .. [[ "..redis.call('FLUSHALL').." ' \\" \\n \\0 --[[ """,
    "wildcards": "%_*?[a-z]^$.+|(){}\\%\\_ \t\n~\x7f",
}
ATTACKS = list(TEXTS.values()) if ALL else ["".join(TEXTS.values())]
"""A text that contains all others breaks out of every quote that one of them breaks out of."""


def attacked(request, tmp_path, kind: str, text: str) -> tuple[dict[str, object], list[object]]:
    """The outcomes, and what is in the store then."""
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    folder.mkdir()
    if kind == "memory":
        return _attacked("memory:", text)
    with a_place(request, kind, folder) as place:
        return _attacked(place, text)


def _attacked(place: str, text: str) -> tuple[dict[str, object], list[object]]:
    store = store_at(place, clock=ManualClock())
    store.open()
    with closing(store):
        world = World(store, text)
        world.attack()
        return {name: plain(outcome) for name, outcome in world.outcomes.items()}, world.dump()


@pytest.mark.parametrize("kind", STORES)
def test_injected_text_stays_text_in_every_field_of_every_command(request, tmp_path, kind) -> None:
    """What becomes of the store is the same as with a harmless text, but for the text itself: canaries, counts and all."""
    outcomes, told = attacked(request, tmp_path, kind, HARMLESS)
    assert str(told).count(HARMLESS) > 50
    for text in ATTACKS:
        under_attack, found = attacked(request, tmp_path, kind, text)
        assert under_attack == swapped(outcomes, HARMLESS, text)
        assert in_order(found) == in_order(swapped(told, HARMLESS, text))


def test_every_command_is_attacked() -> None:
    names = [leaf.name for leaf in LEAVES]
    assert len(names) == len(set(names)) > 80
    assert {name.partition(".")[0] for name in names} == {
        command.__name__ for command in COMMANDS
    } - {"Sweep"}


@pytest.mark.parametrize("kind", STORES)
def test_zero_byte_is_stored_or_refused_without_damage(request, tmp_path, kind) -> None:
    _, told = attacked(request, tmp_path, kind, "a\x00b")
    kept = [one for one in told if "canary" in str(one)]
    assert [one[0] for one in kept] == ["run", "entry", "message", "progress", "session", "session"]
    assert "recorded" in str(kept[1])
    assert "kept" in str(kept[4])


@pytest.mark.parametrize("kind", STORES)
def test_queries_match_hostile_texts_literally(request, tmp_path, kind) -> None:
    """Every text of every question, by type; and what is no question but takes a name."""
    if kind == "memory":
        _look("memory:")
        return
    with a_place(request, kind, tmp_path) as place:
        _look(place)


def _look(place: str) -> None:
    store = store_at(place, clock=ManualClock())
    store.open()
    with closing(store):
        World(store, HARMLESS)
        texts = [
            name
            for name, one in get_type_hints(RunQuery).items()
            if "str" in str(one) and name != "statuses"
        ]
        assert len(texts) == 8
        for text in TEXTS.values():
            for name in texts:
                assert store.runs(RunQuery(**{name: text})) == [], name
            assert store.runs(RunQuery(statuses=(text,))) == []
            assert (
                store.sessions(SessionQuery("session", text, 10))
                == store.sessions(SessionQuery(text, "", 10))
                == []
            )
            assert store.items(text, text) == store.held(text) == store.cancels(text) == []
            assert store.run(text) is store.session(text) is store.asked(text) is None
            assert store.depth(text) == 0
            assert store.durations([(text, text)]) in ({}, {(text, text): []})
            assert store.done(1, [text]) == {}
            assert not store.may_need_compensation(text)
            assert store.peek((text,), (text,)).unknown == ()
        assert [run.id for run in store.runs(RunQuery(workflow="flow"))] == ["canary"]


@pytest.mark.parametrize("kind", STORES)
def test_prefix_query_is_not_a_pattern(request, tmp_path, kind) -> None:
    if kind == "memory":
        _no_pattern("memory:")
        return
    with a_place(request, kind, tmp_path) as place:
        _no_pattern(place)


def _no_pattern(place: str) -> None:
    store = store_at(place, clock=ManualClock())
    store.open()
    with closing(store):
        World(store, HARMLESS)
        for prefix in ("%", "_", "*", "[a-z]", "can_ry", "c%", "?", "canar[y]", "\\"):
            assert store.sessions(SessionQuery("session", prefix, 10)) == [], prefix
        assert [one.id for one in store.sessions(SessionQuery("session", "can", 10))] == ["canary"]


@pytest.mark.parametrize(
    "text", [*TEXTS.values(), "a;b", 'a"b', "a b", "pg_x", "x" * 64, "", "a.b", "ünder"]
)
def test_invalid_schema_name_is_refused_before_connecting(text) -> None:
    """So it is in no statement either: `outlast migrate --sql` prints them for an address."""
    with pytest.raises(SettingsError, match="schema"):
        store_at(f"postgresql://nobody@localhost/x?schema={quote(text)}")


@pytest.mark.parametrize("text", [*TEXTS.values(), "a{b}", "a b", "a\nb", "", "x" * 101])
def test_invalid_redis_prefix_is_refused_before_connecting(text) -> None:
    with pytest.raises(SettingsError, match="prefix"):
        store_at(f"redis://localhost/0?prefix={quote(text)}")


def test_prefix_with_pattern_characters_does_not_reach_other_stores(redis_server) -> None:
    """Two stores in one server, of which one has a name that would match the other's as a pattern."""
    found = {}
    for prefix in ("ab", "a*", "a?", "[a]b", "%s", "']..x..['"):
        store = store_at(
            f"{redis_server.url}{'&' if '?' in redis_server.url else '?'}prefix={quote(prefix)}",
            clock=ManualClock(),
        )
        store.open()
        with closing(store):
            World(store, HARMLESS)
            found[prefix] = len(store.runs(RunQuery()))
    assert set(found.values()) == {1}
