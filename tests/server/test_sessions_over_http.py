"""Read and change sessions and checkpoints over HTTP."""

import asyncio

import pytest

S = "/v1/sessions/s"


async def post(api, rest, body=None, key=None, status=200, root=S):
    headers = {} if key is None else {"idempotency-key": key}
    answer = await api.olga.post(f"{root}/{rest}", json=body, headers=headers)
    assert answer.status_code == status, answer.text
    return answer.json()


async def values(api, root=S):
    return (await api.vera.get(f"{root}/values")).json()["values"]


@pytest.mark.parametrize("root", ["/v1/sessions/s", "/v1/checkpoints/s"])
def test_fields_and_lists_are_changed_and_read(served, root):
    async def scenario(api):
        change = {"set": {"name": "Ada", "age": 36, "b": 1}, "append": {"turns": [1, 2, 3]}}
        made = await post(api, "update", change, root=root)
        assert made == {"version": 1, "made": True}
        await post(api, "update", {"append": {"turns": [4]}, "delete": ["b"], "keep": 3}, root=root)
        read = {
            "values": {"values": {"age": 36, "name": "Ada", "turns": [2, 3, 4]}},
            "fields": {"fields": {"age": 36, "name": "Ada"}},
            "fields?prefix=a": {"fields": {"age": 36}},
            "fields?limit=1&reverse=true": {"fields": {"name": "Ada"}},
            "fields?after=age": {"fields": {"name": "Ada"}},
            "fields?names=age&names=no": {"fields": {"age": 36}},
            "fields/age": {"found": True, "value": 36},
            "fields/turns": {"found": True, "value": [2, 3, 4]},
            "fields/no": {"found": False, "value": None},
            "lists/turns": {"items": [2, 3, 4]},
            "lists/turns?start=1&stop=-1": {"items": [3]},
            "lists/turns?last=2": {"items": [3, 4]},
            "lists/turns?last=0": {"items": []},
            "lists/no": {"items": []},
        }
        for rest, wanted in read.items():
            answer = await api.vera.get(f"{root}/{rest}")
            assert answer.json() == wanted, rest
        assert (
            await post(api, "replace", {"field": "turns", "index": -1, "value": "x"}, root=root)
        )["version"] == 3
        assert await post(api, "pop", {"field": "turns", "count": 2}, root=root) == {
            "items": [3, "x"]
        }
        assert await post(api, "clear", root=root) == {"cleared": "s"}
        assert await values(api, root) == {}

    served(scenario)


def test_session_and_checkpoint_with_one_id_are_two(served):
    async def scenario(api):
        await api.app.session("s").set("of", "session")
        await api.app.checkpoint("s").save(of="checkpoint")
        for space in ("session", "checkpoint"):
            assert await values(api, f"/v1/{space}s/s") == {"of": space}
            (listed,) = (await api.vera.get(f"/v1/{space}s")).json()["sessions"]
            assert (listed["id"], listed["fields"]) == ("s", ["of"])
            shown = (await api.vera.get(f"/v1/{space}s/s")).json()["session"]
            assert shown["values"] == {"of": space}
        assert (await api.olga.delete("/v1/sessions/s")).status_code == 200
        assert await values(api, "/v1/checkpoints/s") == {"of": "checkpoint"}
        assert (await api.olga.delete("/v1/checkpoints/s")).json()["deleted"]["id"] == "s"

    served(scenario)


def test_refused_changes_name_the_error_and_change_nothing(served):
    async def scenario(api):
        await post(api, "update", {"set": {"n": 1}, "append": {"l": [1]}})
        stale = await post(api, "update", {"set": {"n": 2}, "version": 7}, status=409)
        assert (stale["error"], stale["expected"], stale["current"]) == ("VersionConflict", 7, 1)
        missing = {"field": "l", "index": 5, "value": 0}
        gone = await post(api, "replace", missing, status=404)
        assert gone["type"] == "urn:outlast:problem:IndexError"
        absent = await post(api, "update", {"set": {"n": 3}, "if_absent": True})
        assert absent == {"version": 1, "made": False}
        some = {"set": {"n": 3, "m": 3}, "if_absent": ["n"]}
        assert await post(api, "update", some) == {"version": 2, "made": True}
        assert await values(api) == {"l": [1], "m": 3, "n": 1}
        for wrong in (
            {},
            {"set": {"n": 1}, "delete": ["n"]},
            {"set": {"n": 1}, "append": {"n": [1]}},
            {"append": {"l": []}},
            {"set": {"n": 1}, "if_absent": ["other"]},
            {"set": {"": 1}},
            {"set": {"n": 1}, "ttl": 0},
            {"set": {"n": 1}, "since": 1},
        ):
            await post(api, "update", wrong, status=422)
        await post(api, "update", {"set": {"n": "x" * 300}}, status=413)
        too_many = {"set": {str(number): 1 for number in range(9)}}
        assert (await post(api, "update", too_many, status=422))["limit"] == "session_fields_max"
        assert (await values(api))["n"] == 1

    served(scenario, settings={"value_size_max": 200, "session_fields_max": 5})


def test_repeat_with_an_idempotency_key_changes_nothing_and_answers_the_same(served):
    async def scenario(api):
        for rest, body in (
            ("update", {"append": {"l": [1, 2]}}),
            ("pop", {"field": "l"}),
            ("replace", {"field": "l", "index": 0, "value": "x"}),
            ("take", None),
        ):
            first = await post(api, rest, body, key="k")
            after = await values(api)
            assert await post(api, rest, body, key="k") == first, rest
            assert await values(api) == after
        both = {"changes": [{"id": "a", "append": {"l": [1]}}, {"id": "b", "set": {"n": 1}}]}
        for _ in range(2):
            answer = await api.olga.post(
                "/v1/session-updates", json=both, headers={"idempotency-key": "k"}
            )
            assert answer.json() == {"versions": [1, 1]}
        assert await values(api, "/v1/sessions/a") == {"l": [1]}
        await post(api, "clear", key="k")
        await post(api, "update", {"set": {"n": 1}})
        await post(api, "clear", key="k")
        assert await values(api) == {"n": 1}

    served(scenario)


def test_several_sessions_are_changed_all_or_none(served):
    async def scenario(api):
        await post(api, "update", {"set": {"n": 1}})
        for changes, status in (
            ([{"id": "a", "set": {"n": 1}}, {"id": "s", "set": {"n": 2}, "version": 7}], 409),
            ([{"id": "a", "set": {"n": 1}}, {"id": "a", "set": {"m": 2}}], 422),
            ([], 422),
        ):
            answer = await api.olga.post("/v1/session-updates", json={"changes": changes})
            assert answer.status_code == status, answer.text
        assert await values(api, "/v1/sessions/a") == {}
        assert await values(api) == {"n": 1}

    served(scenario)


def test_only_the_newest_owner_writes(served):
    async def scenario(api):
        first = (await post(api, "take"))["owner"]
        await post(api, "update", {"set": {"n": 1}, "owner": first})
        second = (await post(api, "take"))["owner"]
        assert second > first
        lost = await post(api, "update", {"set": {"n": 2}, "owner": first}, status=409)
        assert (lost["error"], lost["owner"], lost["current"]) == ("NotOwner", first, second)
        await post(api, "clear", {"owner": first}, status=409)
        await post(api, "clear", {"owner": second})
        shown = (await api.vera.get(S)).json()["session"]
        assert (shown["values"], shown["owner"]) == ({}, second)

    served(scenario)


def test_expiry_is_what_the_request_says_and_reading_does_not_move_it(served):
    async def scenario(api):
        async def expires(root=S):
            return (await api.vera.get(root)).json()["session"]["expires"]

        assert await post(api, "touch") == {"touched": False}
        await post(api, "update", {"set": {"n": 1}, "ttl": 3600})
        first = await expires()
        for rest in ("values", "fields", "fields/n", "lists/n"):
            assert (await api.vera.get(f"{S}/{rest}")).status_code == 200
        assert await expires() == first
        assert await post(api, "touch", {"ttl": 7200}) == {"touched": True}
        assert await expires() > first
        later = await expires()
        await post(api, "update", {"set": {"n": 2}})
        assert await expires() > later, "a day by default"
        await post(api, "touch", {"ttl": None})
        assert await expires() is None
        task = "/v1/checkpoints/s"
        await post(api, "update", {"set": {"n": 1}}, root=task)
        assert await expires(task) is None

    served(scenario)


def test_sessions_are_listed_by_id_or_by_change(served):
    async def scenario(api):
        for id in ("b", "c", "a", "d"):
            await api.app.session(id).set("n", 1)
            store = api.app._open.store
            changed = store.session(id).updated
            while store.now() == changed:
                await asyncio.sleep(0)

        async def pages(query):
            found, after = [], ""
            while True:
                answer = await api.vera.get(f"/v1/sessions?limit=1{query}{after}")
                page = answer.json()
                found += [one["id"] for one in page["sessions"]]
                if page["next"] is None:
                    return found
                after = f"&after={page['next']}"

        assert await pages("") == ["a", "b", "c", "d"]
        assert await pages("&order=updated") == ["d", "a", "c", "b"]
        by_id = await api.vera.get("/v1/sessions?order=updated&after=a")
        assert [one["id"] for one in by_id.json()["sessions"]] == ["c", "b"]
        unknown = await api.vera.get("/v1/sessions?order=updated&after=no")
        assert unknown.status_code == 404

    served(scenario)
