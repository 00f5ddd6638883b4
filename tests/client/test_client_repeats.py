"""An action whose answer is lost is done once: the proxy cuts the connection after the request was sent."""

import asyncio
from contextlib import suppress

import httpx
import pytest
from client_tools import (
    Unlucky,
    asking,
    failing,
    napping,
    paying,
    reporting,
    run_remote,
    speaking,
)

from outlast import Backpressure, OutlastError, RunParked, StoreUnavailable, WrongStatus
from outlast.client import ApiError, ServerUnavailable
from outlast.client.retry_policy import RetryPolicy
from outlast.client.transport import Transport
from outlast.http.api_server import ApiServer


def test_runs_without_ids_are_submitted_once():
    async def scenario(remote, client):
        remote.proxy.cut_replies(b"POST /v1/runs ", 3)
        run = await client.submit(reporting("tides"))
        remote.proxy.cut_replies(b"POST /v1/submissions ", 2)
        await client.submit_many([reporting("a"), reporting("b")])
        assert remote.proxy.cuts == 5
        assert len(await remote.app.runs()) == 3
        assert (await run.result()).topic == "tides"

    run_remote(scenario)


def test_items_without_ids_are_put_once():
    async def scenario(remote, client):
        remote.proxy.cut_replies(b"POST /v1/queues/", 2)
        await client.queue("emails").put_many([1, 2])
        assert remote.proxy.cuts == 2
        assert len(await remote.app.runs(items=True)) == 2

    run_remote(scenario)


def test_submission_that_has_filled_the_queue_is_not_refused_when_it_is_repeated():
    async def scenario(remote, client):
        await client.queue("small").limit(depth=1)
        remote.proxy.cut_replies(b"POST /v1/runs ", 2)
        await client.submit(napping(1.0), queue="small", delay=1000.0)
        await client.queue("tiny").limit(depth=2)
        remote.proxy.cut_replies(b"POST /v1/queues/tiny/items", 2)
        await client.queue("tiny").put_many([1, 2])
        assert remote.proxy.cuts == 4
        assert [one.queue for one in await remote.app.runs(items=None)] == ["tiny", "tiny", "small"]

    run_remote(scenario)


def test_message_that_ends_its_run_is_sent_once():
    async def scenario(remote, client):
        run = await client.submit(asking("why?"), id="r-1")
        remote.proxy.cut_replies(b"POST /v1/runs/r-1/messages", 3)
        await client.send("r-1", "answer", "because")
        assert remote.proxy.cuts == 3
        assert await run.result() == "why? because"
        sent = await client.submit(asking("who?"), id="r-2")
        await client.send("r-2", "answer", "me", message_id="m-1")
        await sent.result()
        # The run has ended, and this is a repeat.
        await client.send("r-2", "answer", "me", message_id="m-1")
        with pytest.raises(WrongStatus):
            await client.send("r-2", "answer", "me", message_id="m-2")

    run_remote(scenario)


def test_run_is_retried_once_even_if_it_has_ended_again():
    async def scenario(remote, client):
        run = await client.submit(failing(1), id="r-1")
        with pytest.raises(Unlucky):
            await run.result()
        remote.proxy.cut_replies(b"POST /v1/runs/r-1/retry", 3)
        await client.retry("r-1")
        with pytest.raises(Unlucky):
            await run.result()
        entries = await remote.app.journal("r-1")
        assert remote.proxy.cuts == 3
        assert [entry.kind for entry in entries].count("retry") == 1

    run_remote(scenario)


def test_effect_is_decided_once_and_its_run_resumed_once():
    async def scenario(remote, client):
        run = await client.submit(paying(5), id="r-1")
        with pytest.raises(RunParked):
            await run.result()
        remote.proxy.cut_replies(b"POST /v1/runs/r-1/", 2)
        await client.decide("r-1", "charge", happened="paid")
        assert await run.result() == "paid"
        kinds = [entry.kind for entry in await remote.app.journal("r-1")]
        assert (remote.proxy.cuts, kinds.count("decision")) == (2, 1)

    run_remote(scenario)


def test_run_is_cancelled_once():
    async def scenario(remote, client):
        await client.submit(napping(1000.0), id="r-1")
        remote.proxy.cut_replies(b"POST /v1/runs/r-1/cancel", 3)
        await client.cancel("r-1", "not needed")
        kinds = [entry.kind for entry in await remote.app.journal("r-1")]
        assert (remote.proxy.cuts, kinds.count("cancel") <= 1) == (3, True)

    run_remote(scenario)


def test_bulk_with_a_limit_is_not_repeated_once_it_may_have_been_done():
    async def scenario(remote, client):
        await client.submit_many([napping(1000.0)] * 4, delay=1000.0)
        remote.proxy.cut_replies(b"POST /v1/bulk", 1)
        with pytest.raises(ServerUnavailable, match="may have been done"):
            await client.bulk("cancel", workflow="napping", limit=2)
        assert len(await remote.app.runs(status="cancelled")) == 2
        remote.proxy.cut_replies(b"POST /v1/bulk", 1)
        await client.bulk("cancel", workflow="napping")
        assert len(await remote.app.runs(status="cancelled")) == 4

    run_remote(scenario)


def test_read_is_repeated_until_the_server_is_back():
    async def scenario(remote, client):
        await client.submit(reporting("tides"), id="r-1")
        remote.proxy.refuse()
        waiting = asyncio.ensure_future(client.runs())
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 0.1)
        assert not waiting.done()
        remote.proxy.accept_again()
        assert [one.id for one in await waiting] == ["r-1"]

    run_remote(scenario)


def test_client_gives_up_and_says_whether_the_action_may_have_been_done():
    async def scenario(remote, client):
        async with remote.client(patience=0.05) as hasty:
            remote.proxy.cut_replies(b"POST /v1/runs ", 1000)
            with pytest.raises(ServerUnavailable, match=r"may have been done.*is done once"):
                await hasty.submit(reporting("tides"), id="r-1")
            remote.proxy.heal()
            remote.proxy.refuse()
            with pytest.raises(StoreUnavailable, match="Nothing was done"):
                await hasty.submit(reporting("wind"), id="r-2")
            remote.proxy.accept_again()
            assert [one.id for one in await hasty.runs()] == ["r-1"]

    run_remote(scenario)


def test_full_queue_is_waited_for_as_long_as_the_caller_says():
    async def scenario(remote, client):
        queue = client.queue("emails")
        await queue.limit(depth=1)
        await queue.put(1, id="1")
        with pytest.raises(Backpressure) as full:
            await queue.put(2, id="2")
        assert (full.value.queue, full.value.depth, full.value.limit) == ("emails", 1, 1)
        waiting = asyncio.ensure_future(queue.put(2, id="2", wait=float("inf")))
        await asyncio.sleep(0)
        item = await remote.app.queue("emails").claim(wait=30.0)
        await item.ack()
        assert await waiting == "2"

    run_remote(scenario)


def test_watch_continues_after_its_last_event_when_it_is_cut():
    words = [f"word{number} " for number in range(40)]

    async def scenario(remote, client):
        await client.submit(speaking([*words, "wait", *words]), id="r-1")
        text, cuts = "", 0
        async with client.watch("r-1", "answer") as watch:
            async for event in watch:
                if event.kind == "reset":
                    text = ""
                elif event.kind == "data":
                    text += event.value
                    if event.value == "wait":
                        await client.send("r-1", "go")
                else:
                    assert text == event.result
                if cuts < 5:
                    for link in remote.proxy.links:
                        with remote.proxy._changing():
                            link.reset()
                    cuts += 1
        assert text == "".join([*words, "wait", *words])

    run_remote(scenario)


def test_watch_continues_on_another_server_after_a_drain():
    async def scenario(remote, client):
        await client.submit(speaking(["a", "wait", "b"]), id="r-1")
        async with client.watch("r-1", "answer") as watch:
            assert [(await anext(watch)).value for _ in range(2)] == ["a", "wait"]
            await remote.server.stop()
            second = ApiServer(remote.app, "127.0.0.1:0")
            second.start()
            try:
                remote.proxy.move_to(int(second.url.rpartition(":")[2]))
                await client.send("r-1", "go")
                assert [event.kind async for event in watch] == ["data", "end"]
            finally:
                await second.stop()

    run_remote(scenario)


def answers(*found):
    """Return a transport whose server gives these answers, and the requests and pauses so far."""
    asked, pauses, left = [], [], list(found)

    def handle(request):
        asked.append(request)
        following = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(following, Exception):
            raise following
        return following

    async def pause(seconds):
        pauses.append(seconds)

    http = httpx.AsyncClient(transport=httpx.MockTransport(handle), base_url="http://server")
    return Transport(http, RetryPolicy(1.0, 60.0, 0.2, 5.0, lambda: 0.0), pause), asked, pauses


def problem(status, error=None, **headers):
    document = {"status": status, "detail": "No.", "error": error, "next": "Wait."}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, json=document, headers=named)


DONE = httpx.Response(200, json={"ok": True})


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_answer_that_asks_for_patience_is_followed_by_a_repeat_with_the_same_key(status):
    transport, asked, pauses = answers(problem(status), problem(status, retry_after="7"), DONE)
    assert asyncio.run(transport.act("POST", "/v1/x", {}, key="k")) == {"ok": True}
    assert [one.headers["idempotency-key"] for one in asked] == ["k"] * 3
    assert pauses == [0.2, 7.0]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 500])
def test_other_answers_are_final(status):
    transport, asked, _ = answers(problem(status), DONE)
    with pytest.raises(ApiError, match="No") as refused:
        asyncio.run(transport.act("POST", "/v1/x", {}, key="k"))
    assert refused.value.status == status
    assert len(asked) == 1


def test_pauses_double_up_to_a_limit_with_jitter():
    policy = RetryPolicy(1.0, 60.0, 0.2, 5.0, lambda: 0.0)
    assert [policy.pause(number) for number in (1, 2, 3, 6, 1000)] == [0.2, 0.4, 0.8, 5.0, 5.0]
    least = RetryPolicy(1.0, 60.0, 0.2, 5.0, lambda: 1.0)
    assert least.pause(1) == 0.1
    assert policy.pause(1, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}) == 0.2


def test_answer_of_something_else_names_the_url_as_the_cause():
    page = httpx.Response(200, text="<html>")
    transport, asked, _ = answers(page)
    with pytest.raises(OutlastError, match="Check the URL"):
        asyncio.run(transport.get("/v1/me"))
    assert len(asked) == 1
