"""OutlastSessionStore keeps the transcripts of the Claude Agent SDK on every store."""

import asyncio

import pytest
from claude_agent_sdk import list_sessions_from_store, project_key_for_directory
from claude_agent_sdk.testing import run_session_store_conformance

from outlast import NotOwner, Outlast, SettingsError
from outlast.integrations.claude_agent import OutlastSessionStore, session_store

KEY = {"project_key": "proj", "session_id": "sess"}
SUB = {**KEY, "subpath": "subagents/agent-1"}


def entry(n: int) -> dict:
    return {"type": "user", "uuid": f"u{n}", "timestamp": f"2026-01-01T00:00:0{n}.000Z"}


def titled(n: int) -> dict:
    return {"type": "custom-title", "customTitle": f"title {n}", "uuid": f"t{n}"}


def used(address, main):
    """Execute `main(app)` with an app on the store at this address."""

    async def opened():
        async with Outlast(address) as app:
            await main(app)

    asyncio.run(opened())


def test_conformance_suite_of_the_sdk_passes(place):
    async def main(app):
        async def empty():
            for info in await app.sessions(limit=100):
                await app.session(info.id).clear()
            return OutlastSessionStore(app)

        await run_session_store_conformance(empty)

    used(place, main)


def test_entries_are_stored_once_by_several_stores(place):
    async def main(app):
        one, other = OutlastSessionStore(app), OutlastSessionStore(app)
        await one.append(KEY, [entry(1), entry(2)])
        await other.append(KEY, [entry(2), entry(3), entry(3)])
        await one.append(KEY, [entry(3), entry(4), {"type": "mode"}])
        await one.append(KEY, [{"type": "mode"}])
        mode = {"type": "mode"}
        assert await one.load(KEY) == [entry(1), entry(2), entry(3), entry(4), mode, mode]

    used(place, main)


def test_concurrent_appends_lose_no_entry_and_no_summary(place):
    async def main(app):
        stores = [OutlastSessionStore(app) for _ in range(3)]
        await asyncio.gather(
            *(stores[n % 3].append(SUB if n > 5 else KEY, [titled(n)]) for n in range(9))
        )
        assert {one["uuid"] for one in await stores[0].load(KEY)} == {f"t{n}" for n in range(6)}
        assert {one["uuid"] for one in await stores[0].load(SUB)} == {f"t{n}" for n in range(6, 9)}
        last = (await stores[0].load(KEY))[-1]
        (summary,) = await stores[1].list_session_summaries("proj")
        assert summary["data"]["custom_title"] == last["customTitle"]

    used(place, main)


def test_a_new_owner_shuts_out_the_old_one(place):
    async def main(app):
        old, new = OutlastSessionStore(app), OutlastSessionStore(app)
        await old.take(KEY)
        await old.append(KEY, [entry(1)])
        await new.take(KEY)
        with pytest.raises(NotOwner):
            await old.append(KEY, [entry(2)])
        await new.append(KEY, [entry(3)])
        assert await new.load(KEY) == [entry(1), entry(3)]

    used(place, main)


def test_projects_with_a_slash_do_not_see_each_other():
    async def main(app):
        store = OutlastSessionStore(app)
        await store.append({"project_key": "a/b", "session_id": "c"}, [entry(1)])
        assert await store.load({"project_key": "a", "session_id": "b/c"}) is None
        assert await store.list_sessions("a") == []
        assert [one["session_id"] for one in await store.list_sessions("a/b")] == ["c"]

    used("memory:", main)


def test_listing_reads_page_by_page(monkeypatch):
    async def main(app):
        monkeypatch.setattr(session_store, "PAGE", 2)
        store = OutlastSessionStore(app)
        for n in range(5):
            await store.append({"project_key": "p", "session_id": f"s{n}"}, [titled(n)])
        assert len(await store.list_sessions("p")) == 5

    used("memory:", main)


def test_the_sdk_lists_sessions_from_summaries(tmp_path):
    async def main(app):
        store = OutlastSessionStore(app)
        project = project_key_for_directory(str(tmp_path))
        session = "11111111-1111-4111-8111-111111111111"
        prompt = {**entry(1), "message": {"role": "user", "content": "Refund order 7."}}
        await store.append({"project_key": project, "session_id": session}, [prompt])
        (found,) = await list_sessions_from_store(store, directory=str(tmp_path))
        assert (found.session_id, found.first_prompt) == (session, "Refund order 7.")

    used("memory:", main)


def test_a_store_forgets_the_sessions_used_least_recently(monkeypatch):
    async def main(app):
        monkeypatch.setattr(session_store, "REMEMBERED", 2)
        store = OutlastSessionStore(app)
        keys = [{"project_key": "p", "session_id": f"s{n}"} for n in range(4)]
        for key in [*keys, *keys]:
            await store.append(key, [entry(1)])
        assert len(store._known) == 2
        assert [await store.load(key) for key in keys] == [[entry(1)]] * 4

    used("memory:", main)


def test_a_store_without_an_app_cannot_list():
    async def main(app):
        with pytest.raises(SettingsError, match=r"OutlastSessionStore\(app\)"):
            await OutlastSessionStore().list_sessions("p")

    used("memory:", main)
