"""Sessions outside a run: fields, lists, versions and expiry."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, date, datetime

import pytest
from session_tools import DAY, later, within

from outlast import Unrecordable, VersionConflict
from outlast.store.commands import SESSION_MEMORY
from outlast.testing import App


@dataclass
class Turn:
    who: str
    text: str


# -- fields


def test_fields_survive_a_restart(world):
    assert within(world, lambda s: s.set("name", "Ada")) == 1
    assert within(world, lambda s: s.update({"age": 36}, langs=["en", "it"])) == 2
    world.restart()
    assert within(world, lambda s: s.get("name")) == "Ada"
    assert within(world, lambda s: s.all()) == {"name": "Ada", "age": 36, "langs": ["en", "it"]}


def test_missing_field_gives_the_default(world):
    assert within(world, lambda s: s.get("name")) is None
    assert within(world, lambda s: s.get("name", "nobody")) == "nobody"
    assert within(world, lambda s: s.all()) == {}
    assert within(world, lambda s: s.last("turns")) == []
    assert within(world, lambda s: s.info()) is None


def test_none_is_a_value_and_delete_removes_it(world):
    within(world, lambda s: s.update(a=None, b=1))
    assert within(world, lambda s: s.get("a", "default")) is None
    assert within(world, lambda s: s.delete("a", "absent")) == 2
    assert within(world, lambda s: s.get("a", "default")) == "default"
    assert within(world, lambda s: s.all()) == {"b": 1}


def test_delete_does_not_create_a_session(world):
    assert within(world, lambda s: s.delete("a")) == 0
    assert within(world, lambda s: s.info()) is None


def test_clear_removes_the_session(world):
    within(world, lambda s: s.set("a", 1))
    within(world, lambda s: s.append("l", 1))
    assert within(world, lambda s: s.clear()) is None
    assert within(world, lambda s: s.all()) == {}
    assert within(world, lambda s: s.clear()) is None
    assert within(world, lambda s: s.set("b", 1, version=0)) == 1


def test_values_are_decoded_by_type(world):
    born = date(1815, 12, 10)
    within(world, lambda s: s.update(born=born, turn=Turn("user", "hi"), pair=(1, 2)))
    assert within(world, lambda s: s.get("born", type=date)) == born
    assert within(world, lambda s: s.get("turn", type=Turn)) == Turn("user", "hi")
    assert within(world, lambda s: s.get("turn")) == {"who": "user", "text": "hi"}
    assert within(world, lambda s: s.get("absent", 7, type=int)) == 7
    with pytest.raises(Unrecordable, match="field 'born' of session 's'"):
        within(world, lambda s: s.get("born", type=int))


def test_unrecordable_value_is_refused_before_any_write(world):
    for bad in (object(), print, {1: object()}):
        with pytest.raises(Unrecordable):
            within(world, lambda s, bad=bad: s.update(fine=1, bad=bad))
        with pytest.raises(Unrecordable):
            within(world, lambda s, bad=bad: s.append("l", 1, bad))
    assert within(world, lambda s: s.info()) is None


# -- lists


def test_last_reads_from_the_end(world):
    for n in range(5):
        assert within(world, lambda s, n=n: s.append("turns", Turn("user", str(n)))) == n + 1
    assert within(world, lambda s: s.last("turns", 2, type=Turn)) == [
        Turn("user", "3"),
        Turn("user", "4"),
    ]
    assert [turn["text"] for turn in within(world, lambda s: s.last("turns"))] == list("01234")
    assert within(world, lambda s: s.last("turns", 0)) == []
    assert len(within(world, lambda s: s.last("turns", None))) == 5
    assert len(within(world, lambda s: s.get("turns", type=list[Turn]))) == 5


def test_keep_retains_only_the_newest_items(world):
    for n in range(5):
        within(world, lambda s, n=n: s.append("l", n, n + 0.5, keep=3))
    assert within(world, lambda s: s.last("l")) == [3.5, 4, 4.5]


def test_all_returns_fields_and_lists(world):
    within(world, lambda s: s.update(a=1, b={"c": None}))
    within(world, lambda s: s.append("l", 1, "two"))
    assert within(world, lambda s: s.all()) == {"a": 1, "b": {"c": None}, "l": [1, "two"]}


def test_set_and_append_replace_each_other(world):
    within(world, lambda s: s.append("f", 1))
    within(world, lambda s: s.set("f", "value"))
    assert within(world, lambda s: s.get("f")) == "value"
    assert within(world, lambda s: s.last("f")) == []
    within(world, lambda s: s.append("f", 2))
    assert within(world, lambda s: s.get("f")) == [2]


# -- versions


def test_wrong_version_is_a_conflict_and_writes_nothing(world):
    assert within(world, lambda s: s.set("n", 1, version=0)) == 1
    with pytest.raises(VersionConflict, match="session 's' is at version 1, not 0") as caught:
        within(world, lambda s: s.update(n=2, m=3, version=0))
    assert (caught.value.session, caught.value.expected, caught.value.current) == ("s", 0, 1)
    assert within(world, lambda s: s.all()) == {"n": 1}
    assert within(world, lambda s: s.set("n", 2, version=1)) == 2


def test_compare_and_set_loses_no_increment(address):
    async def count_up(app):
        session = app.session("s")
        for _ in range(10):
            while True:
                info = await session.info()
                try:
                    await session.set(
                        "n", await session.get("n", 0) + 1, version=info.version if info else 0
                    )
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


def test_session_expires_a_ttl_after_the_last_access(world):
    within(world, lambda s: s.set("a", 1), ttl=10)
    later(world, 9.9)
    assert within(world, lambda s: s.get("a"), ttl=10) == 1
    later(world, 9.9)
    assert within(world, lambda s: s.last("l"), ttl=10) == []
    later(world, 9.9)
    assert within(world, lambda s: s.all(), ttl=10) == {"a": 1}
    later(world, 10.1)
    assert within(world, lambda s: s.get("a"), ttl=10) is None


def test_read_extends_the_expiry_only_after_a_tenth_of_the_ttl(world):
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


def test_info_does_not_extend_the_expiry(world):
    within(world, lambda s: s.set("a", 1), ttl=10)
    later(world, 9)
    before = within(world, lambda s: s.info(), ttl=10)
    world.do(lambda app: app.sessions())
    assert within(world, lambda s: s.info(), ttl=10) == before
    later(world, 2)
    assert within(world, lambda s: s.info(), ttl=10) is None


def test_read_never_shortens_the_ttl(world):
    within(world, lambda s: s.set("a", 1), ttl=1000)
    within(world, lambda s: s.get("a"), ttl=1)
    later(world, 500)
    assert within(world, lambda s: s.get("a"), ttl=None) == 1
    later(world, 1e6)
    assert within(world, lambda s: s.get("a"), ttl=5) == 1  # it never expires any more
    assert within(world, lambda s: s.info()).expires_at is None


def test_read_succeeds_though_the_expiry_cannot_be_extended(world, caplog):
    world.restart(store_patience=0.1)  # in real seconds

    async def main(app):
        from outlast.errors import StoreUnavailable

        session = app.session("s", ttl=10)
        await session.set("a", 1)
        await asyncio.sleep(5)
        writer = app._open.writer
        write = writer._commit
        writer._commit = lambda commands: (_ for _ in ()).throw(StoreUnavailable("full"))
        found = await session.get("a")
        await asyncio.sleep(0.01)
        writer._commit = write
        return found

    assert world.do(main) == 1
    assert "The expiry of session 's' was not extended: full" in caplog.text


def test_session_is_kept_for_a_day_by_default(world):
    within(world, lambda s: s.set("a", 1))
    info = within(world, lambda s: s.info())
    assert (info.expires_at - info.updated_at).total_seconds() == DAY
    assert info.updated_at.tzinfo is UTC
    assert abs(info.updated_at - datetime.fromtimestamp(world.clock(), UTC)).total_seconds() < 1


def test_expired_sessions_are_pruned(world):
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


def test_worker_prunes_expired_sessions():
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
