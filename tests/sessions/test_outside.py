"""Sessions in a program: durable when a call returns, the same for everybody, and gone some time after the last access."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, date, datetime

import pytest

from outlast import BadName, LimitExceeded, OutlastError, SettingsError, Unrecordable, VersionConflict
from outlast.store.protocol import CommitUnknown
from outlast.store.verbs import SESSION_MEMORY, Append, Forget, Keep
from outlast.testing import App

DAY = 86_400.0


@dataclass
class Turn:
    who: str
    text: str


def within(world, action, id="s", **options):
    """What `action(session)` gives in the process that is alive now."""

    async def main(app):
        return await action(app.session(id, **options))

    return world.do(main)


def later(world, seconds):
    world.clock.advance(seconds)


# -- fields


def test_what_was_set_is_there_for_the_next_process(world):
    assert within(world, lambda s: s.set("name", "Ada")) == 1
    assert within(world, lambda s: s.update({"age": 36}, langs=["en", "it"])) == 2
    world.restart()
    assert within(world, lambda s: s.get("name")) == "Ada"
    assert within(world, lambda s: s.all()) == {"name": "Ada", "age": 36, "langs": ["en", "it"]}


def test_what_is_not_there_is_the_default(world):
    assert within(world, lambda s: s.get("name")) is None
    assert within(world, lambda s: s.get("name", "nobody")) == "nobody"
    assert within(world, lambda s: s.all()) == {}
    assert within(world, lambda s: s.last("turns")) == []
    assert within(world, lambda s: s.info()) is None


def test_none_is_a_value_and_delete_takes_one_away(world):
    within(world, lambda s: s.update(a=None, b=1))
    assert within(world, lambda s: s.get("a", "default")) is None
    assert within(world, lambda s: s.delete("a", "absent")) == 2
    assert within(world, lambda s: s.get("a", "default")) == "default"
    assert within(world, lambda s: s.all()) == {"b": 1}


def test_deleting_of_a_session_that_is_not_there_does_not_make_it(world):
    assert within(world, lambda s: s.delete("a")) == 0
    assert within(world, lambda s: s.info()) is None


def test_clear_leaves_nothing(world):
    within(world, lambda s: s.set("a", 1))
    within(world, lambda s: s.append("l", 1))
    assert within(world, lambda s: s.clear()) is None
    assert within(world, lambda s: s.all()) == {}
    assert within(world, lambda s: s.clear()) is None
    assert within(world, lambda s: s.set("b", 1, version=0)) == 1


def test_values_have_types(world):
    born = date(1815, 12, 10)
    within(world, lambda s: s.update(born=born, turn=Turn("user", "hi"), pair=(1, 2)))
    assert within(world, lambda s: s.get("born", type=date)) == born
    assert within(world, lambda s: s.get("turn", type=Turn)) == Turn("user", "hi")
    assert within(world, lambda s: s.get("turn")) == {"who": "user", "text": "hi"}
    assert within(world, lambda s: s.get("absent", 7, type=int)) == 7
    with pytest.raises(Unrecordable, match="field 'born' of session 's'"):
        within(world, lambda s: s.get("born", type=int))


def test_a_value_that_json_cannot_carry_is_refused_before_anything_is_written(world):
    for bad in (object(), print, {1: object()}):
        with pytest.raises(Unrecordable):
            within(world, lambda s, bad=bad: s.update(fine=1, bad=bad))
        with pytest.raises(Unrecordable):
            within(world, lambda s, bad=bad: s.append("l", 1, bad))
    assert within(world, lambda s: s.info()) is None


# -- lists


def test_turns_are_read_from_the_end(world):
    for n in range(5):
        assert within(world, lambda s, n=n: s.append("turns", Turn("user", str(n)))) == n + 1
    assert within(world, lambda s: s.last("turns", 2, type=Turn)) == [Turn("user", "3"), Turn("user", "4")]
    assert [turn["text"] for turn in within(world, lambda s: s.last("turns"))] == list("01234")
    assert within(world, lambda s: s.last("turns", 0)) == []
    assert len(within(world, lambda s: s.last("turns", None))) == 5
    assert len(within(world, lambda s: s.get("turns", type=list[Turn]))) == 5


def test_only_the_newest_are_kept(world):
    for n in range(5):
        within(world, lambda s, n=n: s.append("l", n, n + 0.5, keep=3))
    assert within(world, lambda s: s.last("l")) == [3.5, 4, 4.5]


def test_everything_is_read_lists_too(world):
    within(world, lambda s: s.update(a=1, b={"c": None}))
    within(world, lambda s: s.append("l", 1, "two"))
    assert within(world, lambda s: s.all()) == {"a": 1, "b": {"c": None}, "l": [1, "two"]}


def test_set_over_a_list_and_append_to_a_value_put_one_in_the_place_of_the_other(world):
    within(world, lambda s: s.append("f", 1))
    within(world, lambda s: s.set("f", "value"))
    assert within(world, lambda s: s.get("f")) == "value"
    assert within(world, lambda s: s.last("f")) == []
    within(world, lambda s: s.append("f", 2))
    assert within(world, lambda s: s.get("f")) == [2]


# -- versions


def test_a_change_to_another_version_is_a_conflict_and_writes_nothing(world):
    assert within(world, lambda s: s.set("n", 1, version=0)) == 1
    with pytest.raises(VersionConflict, match="session 's' is at version 1, not 0") as caught:
        within(world, lambda s: s.update(n=2, m=3, version=0))
    assert (caught.value.session, caught.value.expected, caught.value.current) == ("s", 0, 1)
    assert within(world, lambda s: s.all()) == {"n": 1}
    assert within(world, lambda s: s.set("n", 2, version=1)) == 2


def test_of_many_that_count_up_by_compare_and_set_none_is_lost(address):
    async def count_up(app):
        session = app.session("s")
        for _ in range(10):
            while True:
                info = await session.info()
                try:
                    await session.set("n", await session.get("n", 0) + 1, version=info.version if info else 0)
                    break
                except VersionConflict:
                    continue

    async def main():
        from outlast import Outlast

        async with Outlast(address, signals=0) as app:
            await asyncio.gather(*(count_up(app) for _ in range(4)))
            return await app.session("s").get("n"), (await app.session("s").info()).version

    assert asyncio.run(main()) == (40, 40)


# -- expiry


def test_a_session_is_gone_a_ttl_after_the_last_access(world):
    within(world, lambda s: s.set("a", 1), ttl=10)
    later(world, 9.9)
    assert within(world, lambda s: s.get("a"), ttl=10) == 1
    later(world, 9.9)
    assert within(world, lambda s: s.last("l"), ttl=10) == []
    later(world, 9.9)
    assert within(world, lambda s: s.all(), ttl=10) == {"a": 1}
    later(world, 10.1)
    assert within(world, lambda s: s.get("a"), ttl=10) is None


def test_a_read_is_a_write_only_when_a_tenth_of_the_time_has_passed(world):
    within(world, lambda s: s.set("a", 1), ttl=100)
    before = within(world, lambda s: s.info(), ttl=100)
    later(world, 9)
    within(world, lambda s: s.get("a"), ttl=100)
    assert within(world, lambda s: s.info(), ttl=100) == before
    later(world, 2)
    within(world, lambda s: s.get("a"), ttl=100)
    after = within(world, lambda s: s.info(), ttl=100)
    assert (after.version, after.updated_at) == (before.version, before.updated_at)
    assert 10 < (after.expires_at - before.expires_at).total_seconds() < 12


def test_a_look_at_it_moves_nothing(world):
    within(world, lambda s: s.set("a", 1), ttl=10)
    later(world, 9)
    before = within(world, lambda s: s.info(), ttl=10)
    world.do(lambda app: app.sessions())
    assert within(world, lambda s: s.info(), ttl=10) == before
    later(world, 2)
    assert within(world, lambda s: s.info(), ttl=10) is None


def test_a_read_never_shortens_the_time(world):
    within(world, lambda s: s.set("a", 1), ttl=1000)
    within(world, lambda s: s.get("a"), ttl=1)
    later(world, 500)
    assert within(world, lambda s: s.get("a"), ttl=None) == 1
    later(world, 1e6)
    assert within(world, lambda s: s.get("a"), ttl=5) == 1  # it never expires any more
    assert within(world, lambda s: s.info()).expires_at is None


def test_a_read_succeeds_though_the_expiry_cannot_be_moved(world, caplog):
    async def main(app):
        from outlast.errors import StoreUnavailable

        session = app.session("s", ttl=10)
        await session.set("a", 1)
        await asyncio.sleep(5)
        writer = app._open.writer
        write = writer._persist
        writer._persist = lambda verbs: (_ for _ in ()).throw(StoreUnavailable("full"))
        found = await session.get("a")
        await asyncio.sleep(0.01)
        writer._persist = write
        return found

    assert world.do(main) == 1
    assert "the expiry of session 's' was not moved: full" in caplog.text


def test_by_default_it_is_kept_for_a_day(world):
    within(world, lambda s: s.set("a", 1))
    info = within(world, lambda s: s.info())
    assert (info.expires_at - info.updated_at).total_seconds() == DAY
    assert info.updated_at.tzinfo is UTC
    assert abs(info.updated_at - datetime.fromtimestamp(world.clock(), UTC)).total_seconds() < 1


def test_what_has_expired_is_pruned_by_hand_and_by_workers(world):
    within(world, lambda s: s.set("a", 1), ttl=5)
    within(world, lambda s: s.set("a", 1), id="other", ttl=500)
    later(world, 10)
    within(world, lambda s: s.clear(), id="cleared")
    for seconds, left in (
        (SESSION_MEMORY - 10, ["cleared", "other", "s"]),
        (10, ["cleared", "other"]),
        (5, ["other"]),
    ):
        later(world, seconds)
        assert world.do(lambda app: app.prune(older_than=1e6)) == 0
        assert ids_in(world.store) == left


def test_a_worker_forgets_what_has_expired():
    from outlast import step, workflow

    @step
    async def wait() -> None:
        await asyncio.sleep(100 + SESSION_MEMORY)

    @workflow
    async def flow() -> None:
        await wait()

    app = App(worker=True, workflows=[flow], poll=1.0, heartbeat=0.1, lease=1e6)

    async def main(app):
        await app.session("s", ttl=5).set("a", 1)
        await app.session("other").set("a", 1)
        await (await app.submit(flow())).result()
        return ids_in(app.store)

    assert app.do(main) == ["other"]


def ids_in(store):
    return sorted(id for (id,) in store._db.execute("SELECT id FROM sessions"))


# -- others in between


def losing_the_answer(world, kind, action, meanwhile):
    """Do `action(session)`; its commit is made, `meanwhile(store)` happens, and then the answer is lost, so that it is repeated."""
    commit = world.store.commit

    def lost(verbs):
        if not any(isinstance(verb, kind) for verb in verbs):
            return commit(verbs)
        world.store.commit = commit
        commit(verbs)
        meanwhile(world.store)
        raise CommitUnknown("the answer was lost")

    world.store.commit = lost
    return within(world, action)


def test_a_clear_that_is_repeated_takes_nothing_from_who_made_the_session_anew(world):
    within(world, lambda s: s.set("old", 1))
    anew = Keep("s", "other", {"new": "1"}, version=0)
    losing_the_answer(world, Forget, lambda s: s.clear(), lambda store: store.commit([anew]))
    assert within(world, lambda s: s.all()) == {"new": 1}


def test_a_change_that_is_repeated_brings_back_nothing_that_was_cleared(world):
    cleared = Forget("s", "other")
    made = losing_the_answer(world, Keep, lambda s: s.append("l", "x"), lambda store: store.commit([cleared]))
    assert made == 1
    assert within(world, lambda s: s.all()) == {}


def test_deleting_of_what_was_cleared_meanwhile_does_not_make_it(world):
    async def main(app):
        session, writer = app.session("s"), app._open.writer
        await session.set("f", 1)
        ask = writer.ask

        async def late(verb):
            app._open.store.commit([Forget("s", "other")])
            return await ask(verb)

        writer.ask = late
        return [await session.delete("f"), await session.info()]

    assert world.do(main) == [0, None]


@pytest.mark.parametrize(("becomes", "found"), [("value", "now"), (None, "default")])
def test_a_list_that_becomes_something_else_while_it_is_read_is_that(world, becomes, found):
    within(world, lambda s: s.append("f", 1, 2))
    items = world.store.items

    def late(*args):
        world.store.items = items
        world.store.commit([Keep("s", "other", {"f": '"now"' if becomes else None})])
        return items(*args)

    world.store.items = late
    assert within(world, lambda s: s.get("f", "default")) == found


def test_a_read_does_not_shorten_what_another_has_made_longer_meanwhile(world):
    async def main(app):
        session, writer = app.session("s", ttl=60), app._open.writer
        await session.set("f", 1)
        await asyncio.sleep(30)
        put = writer.put

        def late(verb, *rest):
            writer.put = put
            app._open.store.commit([Keep("s", "other", {"f": "2"}, ttl=None)])
            put(verb, *rest)

        writer.put = late
        await session.get("f")
        await asyncio.sleep(1)
        return (await session.info()).expires_at

    assert world.do(main) is None


# -- listing


def test_sessions_are_listed_those_changed_last_first(world):
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


def test_more_than_a_page_is_listed(world):
    world.store.commit([Keep(f"s{n:03}", "t", {}) for n in range(250)])
    names = [info.id for info in world.do(lambda app: app.sessions(limit=1000))]
    assert names == [f"s{n:03}" for n in reversed(range(250))]
    assert len(world.do(lambda app: app.sessions(limit=120))) == 120


# -- what is refused


@pytest.mark.parametrize("id", ["", "a\nb", "a\x00b", "\ud800", 7, None])
def test_an_id_is_one_like_any_other(world, id):
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
def test_a_time_to_live_is_a_number_of_seconds(world, ttl):
    with pytest.raises(SettingsError, match="ttl="):
        world.app.session("s", ttl=ttl)


def test_a_time_to_live_may_be_a_hundred_years_and_what_is_later_is_shown_as_the_last_there_is(world):
    within(world, lambda s: s.set("a", 1), ttl=100 * 365.25 * DAY)
    assert 99 <= (within(world, lambda s: s.info()).expires_at - datetime.now(UTC)).days / 365.25 <= 101
    world.store.commit([Keep("late", "t", {"a": "1"}, ttl=1e12), Keep("later", "t", {"a": "1"}, ttl=1e300)])
    assert within(world, lambda s: s.info(), id="late").expires_at.year == 9999
    assert {info.id for info in world.do(lambda app: app.sessions())} == {"s", "late", "later"}


@pytest.mark.parametrize("name", ["", "a\nb", 7])
def test_a_field_has_a_printable_name(world, name):
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


def test_a_field_may_have_any_printable_name(world):
    names = ["a/b#c", "ключ", "🌊", "with space", "version", "x" * 200]
    within(world, lambda s: s.update(dict.fromkeys(names, 1)))
    assert within(world, lambda s: s.all()) == dict.fromkeys(names, 1)
    with pytest.raises(LimitExceeded, match="name_length_max"):
        within(world, lambda s: s.set("x" * 201, 1))


def test_calls_without_sense_say_so(world):
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


def test_a_session_of_an_outlast_that_is_not_open_says_so(world):
    session = world.app.session("s")
    with pytest.raises(OutlastError, match="not open"):
        session.get("a")


def test_a_value_may_be_only_so_long_and_nothing_of_it_is_written(world):
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


def test_a_session_may_have_only_so_many_fields(world):
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


def test_a_list_may_have_only_so_many_items(world):
    world.restart(session_items_max=3)
    within(world, lambda s: s.append("l", 1, 2))
    with pytest.raises(LimitExceeded, match="list 'l' of session 's': 4 is more than session_items_max=3"):
        within(world, lambda s: s.append("l", 3, 4))
    assert within(world, lambda s: s.last("l")) == [1, 2]
    within(world, lambda s: s.append("l", 3, 4, keep=3))
    with pytest.raises(LimitExceeded, match="session_items_max"):
        within(world, lambda s: s.append("l", 5, keep=10))
    assert within(world, lambda s: s.last("l")) == [2, 3, 4]


def test_a_session_that_is_too_large_already_can_be_made_smaller(world):
    world.store.commit([Keep("s", "t", dict.fromkeys("abcdef", "1"), appends={"l": Append(("1",) * 9)})])
    world.restart(session_fields_max=3, session_items_max=3)
    within(world, lambda s: s.delete("a", "b"))
    within(world, lambda s: s.set("c", 2))
    within(world, lambda s: s.append("l", 2, keep=2))
    assert within(world, lambda s: s.all()) == {"c": 2, "d": 1, "e": 1, "f": 1, "l": [1, 2]}
    with pytest.raises(LimitExceeded, match="session_fields_max"):
        within(world, lambda s: s.set("new", 1))


def test_a_repr_says_which(world):
    assert repr(world.app.session("s")) == "<session 's'>"
    assert world.app.session("s").id == "s"


@pytest.mark.parametrize("ttl", [None, 30 * DAY])
def test_a_write_that_says_nothing_of_the_time_shortens_nothing(world, ttl):
    within(world, lambda s: s.set("a", 1), ttl=ttl)
    before = within(world, lambda s: s.info())
    within(world, lambda s: s.set("b", 2))
    within(world, lambda s: s.append("c", 3))
    assert within(world, lambda s: s.info()).expires_at == before.expires_at
    within(world, lambda s: s.set("a", 1), ttl=60)
    assert within(world, lambda s: s.info()).expires_at < datetime.fromtimestamp(world.clock() + DAY, UTC)


def test_a_new_session_of_which_nobody_said_how_long_is_kept_for_a_day(world):
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
def test_a_value_that_cannot_be_kept_is_refused_by_the_name_of_its_field(world, value):
    for write in (lambda s: s.set("mood", value), lambda s: s.append("mood", value)):
        with pytest.raises(Unrecordable) as said:
            within(world, write)
        assert str(said.value).startswith("field 'mood' of session 's' cannot take this ")
        assert "annotate" not in str(said.value)


def test_a_conflict_with_a_session_that_is_not_there_says_so(world):
    with pytest.raises(VersionConflict, match="is not there, so not at version 77"):
        within(world, lambda s: s.set("a", 1, version=77))
