"""Concurrent writers of a session, listing, and what is refused."""

import asyncio
from datetime import UTC, datetime

import pytest
from session_tools import DAY, later, within

from outlast import (
    BadName,
    LimitExceeded,
    OutlastError,
    SettingsError,
    Unrecordable,
    VersionConflict,
)
from outlast.store.commands import Append, DeleteSession, UpdateSession
from outlast.store.protocol import CommitUnknown

# -- others in between


def losing_the_answer(world, kind, action, meanwhile):
    """Do `action(session)`; its commit is made, `meanwhile(store)` happens, and then the answer is lost, so that it is repeated."""
    commit = world.store.commit

    def lost(commands):
        if not any(isinstance(command, kind) for command in commands):
            return commit(commands)
        world.store.commit = commit
        commit(commands)
        meanwhile(world.store)
        raise CommitUnknown("the answer was lost")

    world.store.commit = lost
    return within(world, action)


def test_repeated_clear_does_not_clear_a_new_session(world):
    within(world, lambda s: s.set("old", 1))
    anew = UpdateSession("s", "other", {"new": "1"}, version=0)
    losing_the_answer(world, DeleteSession, lambda s: s.clear(), lambda store: store.commit([anew]))
    assert within(world, lambda s: s.all()) == {"new": 1}


def test_repeated_change_does_not_restore_a_cleared_session(world):
    cleared = DeleteSession("s", "other")
    made = losing_the_answer(
        world, UpdateSession, lambda s: s.append("l", "x"), lambda store: store.commit([cleared])
    )
    assert made == 1
    assert within(world, lambda s: s.all()) == {}


def test_delete_after_a_clear_does_not_create_a_session(world):
    async def main(app):
        session, store = app.session("s"), app._open.services.store
        await session.set("f", 1)
        ask = store.execute

        async def late(command, **how):
            app._open.store.commit([DeleteSession("s", "other")])
            return await ask(command)

        store.execute = late
        return [await session.delete("f"), await session.info()]

    assert world.do(main) == [0, None]


@pytest.mark.parametrize(("becomes", "found"), [("value", "now"), (None, "default")])
def test_list_replaced_during_a_read_returns_the_new_value(world, becomes, found):
    within(world, lambda s: s.append("f", 1, 2))
    items = world.store.items

    def late(*args):
        world.store.items = items
        world.store.commit([UpdateSession("s", "other", {"f": '"now"' if becomes else None})])
        return items(*args)

    world.store.items = late
    assert within(world, lambda s: s.get("f", "default")) == found


def test_read_does_not_shorten_a_concurrently_extended_ttl(world):
    async def main(app):
        session, store = app.session("s", ttl=60), app._open.services.store
        await session.set("f", 1)
        await asyncio.sleep(30)
        put = store.enqueue

        def late(command, *rest):
            store.enqueue = put
            app._open.store.commit([UpdateSession("s", "other", {"f": "2"}, ttl=None)])
            put(command, *rest)

        store.enqueue = late
        await session.get("f")
        await asyncio.sleep(1)
        return (await session.info()).expires_at

    assert world.do(main) is None


# -- listing


def test_sessions_are_listed_newest_change_first(world):
    for id in ("user:a", "user:b", "chat:a"):
        within(world, lambda s: s.update(a=1), id=id)
        later(world, 1)
    within(world, lambda s: s.append("turns", 1, 2), id="user:a", ttl=None)
    infos = world.do(lambda app: app.sessions())
    assert [info.id for info in infos] == ["user:a", "chat:a", "user:b"]
    assert (infos[0].version, infos[0].fields, infos[0].lists) == (2, ("a",), {"turns": 2})
    assert infos[0].expires_at is None
    assert [info.id for info in world.do(lambda app: app.sessions("user:", limit=1))] == ["user:a"]
    assert world.do(lambda app: app.sessions("user%")) == []


def test_listing_spans_several_pages(world):
    world.store.commit([UpdateSession(f"s{n:03}", "t", {}) for n in range(250)])
    names = [info.id for info in world.do(lambda app: app.sessions(limit=1000))]
    assert names == [f"s{n:03}" for n in reversed(range(250))]
    assert len(world.do(lambda app: app.sessions(limit=120))) == 120


# -- what is refused


@pytest.mark.parametrize("id", ["", "a\nb", "a\x00b", "\ud800", 7, None])
def test_invalid_session_id_is_refused(world, id):
    with pytest.raises(BadName, match="session id"):
        world.app.session(id)


@pytest.mark.parametrize(
    "ttl",
    [
        0,
        -1,
        float("inf"),
        float("nan"),
        "10",
        True,
        1e12,
        1e308,
        pytest.param(10**5000, id="huge"),
        101 * 365.25 * DAY,
    ],
)
def test_invalid_ttl_is_refused(world, ttl):
    with pytest.raises(SettingsError, match="ttl="):
        world.app.session("s", ttl=ttl)


def test_ttl_may_be_a_hundred_years(world):
    within(world, lambda s: s.set("a", 1), ttl=100 * 365.25 * DAY)
    assert (
        99
        <= (within(world, lambda s: s.info()).expires_at - datetime.now(UTC)).days / 365.25
        <= 101
    )
    world.store.commit(
        [
            UpdateSession("late", "t", {"a": "1"}, ttl=1e12),
            UpdateSession("later", "t", {"a": "1"}, ttl=1e300),
        ]
    )
    assert within(world, lambda s: s.info(), id="late").expires_at.year == 9999
    assert {info.id for info in world.do(lambda app: app.sessions())} == {"s", "late", "later"}


@pytest.mark.parametrize("name", ["", "a\nb", 7])
def test_invalid_field_name_is_refused(world, name):
    for call in (
        lambda s: s.get(name),
        lambda s: s.set(name, 1),
        lambda s: s.update({name: 1}),
        lambda s: s.append(name, 1),
        lambda s: s.delete(name),
        lambda s: s.last(name),
    ):
        with pytest.raises(BadName, match="field name"):
            within(world, call)


def test_field_may_have_any_printable_name(world):
    names = ["a/b#c", "ключ", "🌊", "with space", "version", "x" * 200]
    within(world, lambda s: s.update(dict.fromkeys(names, 1)))
    assert within(world, lambda s: s.all()) == dict.fromkeys(names, 1)
    with pytest.raises(LimitExceeded, match="name_length_max"):
        within(world, lambda s: s.set("x" * 201, 1))


def test_invalid_calls_are_refused(world):
    for call, words in (
        (lambda s: s.update(), "takes the fields"),
        (lambda s: s.append("l"), "takes the values"),
        (lambda s: s.append("l", 1, keep=0), "keep=0"),
        (lambda s: s.append("l", 1, keep=True), "keep=True"),
        (lambda s: s.delete(), "clear"),
        (lambda s: s.last("l", -1), "count=-1"),
        (lambda s: s.set("a", 1, version=-1), "version=-1"),
        (lambda s: s.set("a", 1, version="1"), "version='1'"),
    ):
        with pytest.raises(ValueError, match=words):
            within(world, call)
    with pytest.raises(ValueError, match="limit=-1"):
        world.do(lambda app: app.sessions(limit=-1))
    assert within(world, lambda s: s.info()) is None


def test_session_of_a_closed_app_is_refused(world):
    session = world.app.session("s")
    with pytest.raises(OutlastError, match="not open"):
        session.get("a")


def test_oversized_value_is_refused_before_any_write(world):
    world.restart(value_size_max=100)
    for call in (
        lambda s: s.set("a", "x" * 99),
        lambda s: s.update(a="x" * 50, b="x" * 50),
        lambda s: s.append("l", "x" * 50, "x" * 50),
    ):
        with pytest.raises(LimitExceeded, match="value_size_max"):
            within(world, call)
    assert within(world, lambda s: s.info()) is None
    within(world, lambda s: s.set("a", "x" * 98))


def test_number_of_fields_is_limited(world):
    world.restart(session_fields_max=3)
    with pytest.raises(LimitExceeded, match="session_fields_max=3"):
        within(world, lambda s: s.update(a=1, b=1, c=1, d=1))
    assert within(world, lambda s: s.info()) is None
    within(world, lambda s: s.update(a=1, b=1))
    within(world, lambda s: s.append("c", 1))
    for call in (lambda s: s.set("d", 1), lambda s: s.append("d", 1), lambda s: s.update(a=2, d=1)):
        with pytest.raises(LimitExceeded, match="the fields of session 's': 4 is more than"):
            within(world, call)
    assert within(world, lambda s: s.all()) == {"a": 1, "b": 1, "c": [1]}
    within(world, lambda s: s.update(a=2, b=2, c=2))
    within(world, lambda s: s.append("b", 2))
    within(world, lambda s: s.delete("a"))
    within(world, lambda s: s.set("d", 1))


def test_number_of_list_items_is_limited(world):
    world.restart(session_items_max=3)
    within(world, lambda s: s.append("l", 1, 2))
    with pytest.raises(
        LimitExceeded, match="list 'l' of session 's': 4 is more than session_items_max=3"
    ):
        within(world, lambda s: s.append("l", 3, 4))
    assert within(world, lambda s: s.last("l")) == [1, 2]
    within(world, lambda s: s.append("l", 3, 4, keep=3))
    with pytest.raises(LimitExceeded, match="session_items_max"):
        within(world, lambda s: s.append("l", 5, keep=10))
    assert within(world, lambda s: s.last("l")) == [2, 3, 4]


def test_oversized_session_can_be_reduced(world):
    world.store.commit(
        [UpdateSession("s", "t", dict.fromkeys("abcdef", "1"), appends={"l": Append(("1",) * 9)})]
    )
    world.restart(session_fields_max=3, session_items_max=3)
    within(world, lambda s: s.delete("a", "b"))
    within(world, lambda s: s.set("c", 2))
    within(world, lambda s: s.append("l", 2, keep=2))
    assert within(world, lambda s: s.all()) == {"c": 2, "d": 1, "e": 1, "f": 1, "l": [1, 2]}
    with pytest.raises(LimitExceeded, match="session_fields_max"):
        within(world, lambda s: s.set("new", 1))


def test_repr_shows_the_session_id(world):
    assert repr(world.app.session("s")) == "<session 's'>"
    assert world.app.session("s").id == "s"


@pytest.mark.parametrize("ttl", [None, 30 * DAY])
def test_write_without_a_ttl_shortens_nothing(world, ttl):
    within(world, lambda s: s.set("a", 1), ttl=ttl)
    before = within(world, lambda s: s.info())
    within(world, lambda s: s.set("b", 2))
    within(world, lambda s: s.append("c", 3))
    assert within(world, lambda s: s.info()).expires_at == before.expires_at
    within(world, lambda s: s.set("a", 1), ttl=60)
    assert within(world, lambda s: s.info()).expires_at < datetime.fromtimestamp(
        world.clock() + DAY, UTC
    )


def test_new_session_without_a_ttl_is_kept_for_a_day(world):
    within(world, lambda s: s.set("a", 1))
    later(world, DAY * 0.95)
    within(world, lambda s: s.set("a", 2))
    later(world, DAY * 0.95)
    assert within(world, lambda s: s.get("a")) == 2
    later(world, DAY * 1.01)
    assert within(world, lambda s: s.get("a")) is None


@pytest.mark.parametrize(
    "value", [object(), lambda: None, {1: 2}], ids=["object", "function", "numbers for keys"]
)
def test_unrecordable_value_error_names_the_field(world, value):
    for write in (lambda s: s.set("mood", value), lambda s: s.append("mood", value)):
        with pytest.raises(Unrecordable) as said:
            within(world, write)
        assert str(said.value).startswith("field 'mood' of session 's' cannot take this ")
        assert "annotate" not in str(said.value)


def test_conflict_with_a_missing_session_says_so(world):
    with pytest.raises(VersionConflict, match="does not exist, so it is not at version 77"):
        within(world, lambda s: s.set("a", 1, version=77))
