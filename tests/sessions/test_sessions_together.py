"""Changes of several sessions at once, outside runs."""

import asyncio

import pytest

from outlast import LimitExceeded, Outlast, VersionConflict, update_sessions


def test_several_sessions_change_together(world):
    async def main(app):
        a, b = app.session("a"), app.session("b", ttl=None)
        await b.update(x=1, old=1)
        versions = await update_sessions(
            a.change(name="Ada"),
            b.change({"x": 2}, append={"l": [1, 2]}, delete=["old"], version=1),
        )
        return [versions, await a.all(), await b.all()]

    assert world.do(main) == [[1, 2], {"name": "Ada"}, {"x": 2, "l": [1, 2]}]


def test_refused_change_of_one_session_changes_none(world):
    async def main(app):
        a, b = app.session("a"), app.session("b")
        await b.set("x", 1)
        with pytest.raises(VersionConflict, match="session 'b' is at version 1, not 7"):
            await update_sessions(a.change(x=2), b.change(x=2, version=7))
        return [await a.info(), await b.all()]

    assert world.do(main) == [None, {"x": 1}]


def test_limit_of_one_session_refuses_all(world):
    world.restart(session_items_max=2)

    async def main(app):
        a, b = app.session("a"), app.session("b")
        with pytest.raises(LimitExceeded, match="list 'l' of session 'b'"):
            await update_sessions(a.change(x=2), b.change(append={"l": [1, 2, 3]}))
        return [await a.info(), await b.info()]

    assert world.do(main) == [None, None]


def test_invalid_groups_are_refused(world):
    async def main(app):
        a = app.session("a")
        with pytest.raises(ValueError, match="one change per session"):
            await update_sessions(a.change(x=1), app.session("a").change(y=1))
        with pytest.raises(ValueError, match="takes changes"):
            await update_sessions()
        with pytest.raises(TypeError, match=r"takes what session\.change"):
            await update_sessions(a.change(x=1), {"a": 1})
        with pytest.raises(TypeError, match=r"takes what session\.change"):
            await update_sessions(a)
        return await a.info()

    assert world.do(main) is None


def test_sessions_of_two_apps_are_refused(tmp_path):
    async def main():
        async with (
            Outlast(f"sqlite:///{tmp_path}/1.db", signals=0) as one,
            Outlast(f"sqlite:///{tmp_path}/2.db", signals=0) as two,
        ):
            changes = [app.session("a").change(x=1) for app in (one, two)]
            with pytest.raises(ValueError, match="sessions of one Outlast"):
                await update_sessions(*changes)
            return [await app.sessions() for app in (one, two)]

    assert asyncio.run(main()) == [[], []]


def test_total_size_of_a_group_is_limited(world):
    world.restart(value_size_max=30)

    async def main(app):
        changes = [app.session(id).change(x="x" * 14) for id in "ab"]
        with pytest.raises(LimitExceeded, match="several sessions"):
            await update_sessions(*changes)
        return await app.sessions()

    assert world.do(main) == []
