"""Changes of sessions outside runs: set if absent, pop, replace, and several parts."""

import asyncio

import pytest
from session_tools import within

from outlast import (
    LimitExceeded,
    Outlast,
    SettingsError,
    VersionConflict,
)
from outlast.store.commands import UpdateSession

# -- set if absent


def test_absent_field_is_set_once(world):
    async def main(s):
        first = await s.set("a", 1, if_absent=True)
        again = await s.set("a", 2, if_absent=True)
        await s.append("l", 1)
        of_list = await s.set("l", 2, if_absent=True)
        return [first, again, of_list, await s.all(), (await s.info()).version]

    assert within(world, main) == [True, False, False, {"a": 1, "l": [1]}, 2]


def test_of_two_processes_one_sets_an_absent_field(place):
    async def main():
        async with Outlast(place, signals=0) as one, Outlast(place, signals=0) as two:
            for turn in range(10):
                ids = f"s{turn}"
                won = await asyncio.gather(
                    *(
                        app.session(ids).set("a", n, if_absent=True)
                        for n, app in enumerate((one, two, one, two))
                    )
                )
                assert sorted(won) == [False, False, False, True]
                assert await two.session(ids).get("a") == won.index(True)

    asyncio.run(main())


def test_update_if_absent_leaves_what_is_there(world):
    async def main(s):
        await s.set("a", 1)
        versions = [
            await s.update(a=2, b=2, if_absent=True),
            await s.update(a=3, b=3, if_absent=True),
        ]
        return [versions, await s.all()]

    assert within(world, main) == [[2, 2], {"a": 1, "b": 2}]


def test_wrong_version_is_a_conflict_even_if_the_field_is_absent(world):
    with pytest.raises(VersionConflict):
        within(world, lambda s: s.set("a", 1, version=3, if_absent=True))


# -- several parts of one session


def test_update_sets_appends_and_deletes_at_once(world):
    async def main(s):
        await s.update(draft="x", state="old")
        version = await s.update(
            {"state": "new"},
            append={"turns": [1, 2, 3], "log": ["done"]},
            delete=["draft", "none"],
            keep=2,
            version=1,
        )
        return [version, await s.all()]

    assert within(world, main) == [2, {"state": "new", "turns": [2, 3], "log": ["done"]}]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, "takes the fields to set"),
        ({"append": {"l": []}}, "no values to append"),
        ({"append": {"l": "text"}}, "takes a list of values, not one str"),
        ({"append": {"l": b"bytes"}}, "takes a list of values, not one bytes"),
        ({"append": {"l": {"a": 1}}}, "takes a list of values, not one dict"),
        ({"append": {"l": [1]}, "delete": ["l"]}, "'l' cannot be deleted and written"),
        ({"append": {"l": [1]}, "l": 2}, "'l' cannot be set and appended to"),
        ({"delete": "draft"}, "must be a list of field names"),
        ({"a": 1, "keep": 0}, "keep=0"),
        ({"a": 1, "version": -1}, "version=-1"),
    ],
)
def test_contradictory_update_is_refused_before_any_write(world, options, error):
    for name in ("update", "change"):
        with pytest.raises((ValueError, TypeError), match=error):
            within(world, lambda s, name=name: getattr(s, name)(**options))
    assert world.store.session("s") is None


# -- lists


def test_pop_removes_the_newest_items(world):
    async def main(s):
        await s.append("l", "a", "b", "c", "d")
        got = [await s.pop("l"), await s.pop("l", 2), await s.last("l")]
        return [*got, await s.pop("l", 5), await s.pop("l"), (await s.info()).lists]

    assert within(world, main) == [["d"], ["b", "c"], ["a"], ["a"], [], {}]


def test_replace_changes_one_item(world):
    async def main(s):
        await s.append("l", "a", "b", "c")
        await s.replace("l", 0, "x")
        await s.replace("l", -1, "z")
        return await s.last("l")

    assert within(world, main) == ["x", "b", "z"]


@pytest.mark.parametrize("index", [3, -4, 99])
def test_replace_of_a_missing_item_is_an_index_error(world, index):
    async def main(s):
        await s.append("l", 1, 2, 3)
        await s.replace("l", index, 9)

    with pytest.raises(
        IndexError, match=f"list 'l' of session 's' has 3 items, and none at {index}"
    ):
        within(world, main)
    assert world.store.items("s", "l") == ["1", "2", "3"]
    with pytest.raises(IndexError, match="has 0 items"):
        within(world, lambda s: s.replace("none", 0, 1))


def test_range_is_a_slice(world):
    async def main(s):
        await s.append("l", *range(10))
        slices = [(0, 3), (3, None), (-2, None), (2, -6), (8, 99), (5, 5)]
        return [await s.range("l", *one) for one in slices] + [await s.range("none")]

    assert within(world, main) == [[0, 1, 2], [*range(3, 10)], [8, 9], [2, 3], [8, 9], [], []]


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.pop("l", 0),
        lambda s: s.pop("l", True),
        lambda s: s.pop("l", 1.5),
        lambda s: s.replace("l", "0", 1),
        lambda s: s.range("l", None),
        lambda s: s.range("l", 0, 1.5),
        lambda s: s.fields("a", limit=-1),
    ],
)
def test_invalid_numbers_are_refused(world, call):
    with pytest.raises(ValueError, match="must be a whole number"):
        within(world, call)


def test_pop_of_more_than_a_value_may_hold_is_refused(world):
    world.restart(value_size_max=20)

    async def main(s):
        await s.append("l", "a" * 10)
        await s.append("l", "b" * 10)
        with pytest.raises(LimitExceeded, match="value_size_max"):
            await s.pop("l", 2)
        return [await s.pop("l"), await s.last("l")]

    assert within(world, main) == [["b" * 10], ["a" * 10]]


# -- fields


def test_fields_are_read_by_prefix(world):
    async def main(s):
        await s.update({"p:1": 1, "p:2": 2, "p:3": 3, "q": 4})
        await s.append("p:list", 1)
        return [
            await s.fields("p:"),
            await s.fields("p:", limit=2, reverse=True),
            await s.fields("p:", after="p:1", limit=1),
            await s.fields("none"),
            list(await s.fields()),
        ]

    assert within(world, main) == [
        {"p:1": 1, "p:2": 2, "p:3": 3},
        {"p:3": 3, "p:2": 2},
        {"p:2": 2},
        {},
        ["p:1", "p:2", "p:3", "q"],
    ]


def test_sessions_are_listed_in_the_order_of_their_ids(world):
    async def main(app):
        for n in (3, 1, 2):
            await app.session(f"s{n}").set("a", n)
        await app.session("t").set("a", 1)
        pages = [
            await app.sessions("s", order="id"),
            await app.sessions("s", order="id", after="s1", limit=1),
        ]
        with pytest.raises(ValueError, match="order='id'"):
            await app.sessions(after="s1")
        with pytest.raises(ValueError, match="must be 'updated' or 'id'"):
            await app.sessions(order="name")
        return [[info.id for info in page] for page in pages]

    assert world.do(main) == [["s1", "s2", "s3"], ["s2"]]


# -- bytes

ANY_BYTES = bytes(range(256))


def test_bytes_come_back_as_they_were(world):
    async def main(s):
        await s.set("b", ANY_BYTES)
        await s.append("l", ANY_BYTES, b"")
        await s.replace("l", 1, b"\xff")
        return [
            await s.get("b", type=bytes),
            await s.range("l", type=bytes),
            await s.fields("b", type=bytes),
            await s.pop("l", type=bytes),
        ]

    assert within(world, main) == [
        ANY_BYTES,
        [ANY_BYTES, b"\xff"],
        {"b": ANY_BYTES},
        [b"\xff"],
    ]


# -- what a change costs


def test_growing_write_reads_no_values(world):
    """A change is one command: the store looks only at what it names."""
    world.store.commit([UpdateSession("s", "t", {f"f{n}": "1" for n in range(50)})])
    reads: list[str] = []
    for name in ("session", "fields", "items", "sessions"):
        read = getattr(world.store, name)

        def counted(*args, name=name, read=read, **options):
            reads.append(name)
            return read(*args, **options)

        setattr(world.store, name, counted)

    async def main(s):
        await s.set("a", 1)
        await s.append("l", 1, 2)
        await s.set("b", 1, if_absent=True)
        await s.pop("l")
        await s.replace("l", 0, 3)
        await s.update({"c": 1}, append={"l": [4]}, delete=["a"])

    within(world, main)
    assert reads == []


def test_fields_are_read_by_name(world):
    async def main(s):
        await s.update({"b": 1, "a": 2, "c": 3})
        await s.append("l", 1)
        found = await s.fields(names=["c", "a", "a", "l", "none"])
        for wrong in ({"prefix": "a"}, {"limit": 1}, {"after": "a"}, {"reverse": True}):
            with pytest.raises(ValueError, match="takes no prefix"):
                await s.fields(names=["a"], **wrong)
        with pytest.raises(TypeError, match="list of field names"):
            await s.fields(names="abc")
        return [found, list(found), await s.fields(names=[])]

    assert within(world, main) == [{"a": 2, "c": 3}, ["a", "c"], {}]


def test_only_the_named_fields_are_set_if_absent(world):
    async def main(s):
        await s.update(a=1, b=1)
        await s.update({"a": 2, "b": 2, "c": 2}, if_absent=["a", "c"])
        with pytest.raises(ValueError, match="'d', which is not a field to set"):
            await s.update({"a": 3}, if_absent=["d"])
        with pytest.raises(TypeError, match="list of field names"):
            await s.update({"a": 3}, if_absent="a")
        return await s.all()

    assert within(world, main) == {"a": 1, "b": 2, "c": 2}


def test_a_handle_may_have_a_limit_of_its_own(world):
    world.restart(session_fields_max=2)

    async def main(app):
        wide = app.session("s", fields_max=4)
        await wide.update(a=1, b=2, c=3)
        with pytest.raises(LimitExceeded, match="fields_max=2"):
            await app.session("s").set("d", 4)
        await wide.set("d", 4)
        with pytest.raises(LimitExceeded):
            await wide.set("e", 5)
        for wrong in (0, True, 1.5):
            with pytest.raises(SettingsError, match="whole number from 1"):
                app.session("s", fields_max=wrong)
        return sorted(await wide.all())

    assert world.do(main) == ["a", "b", "c", "d"]
