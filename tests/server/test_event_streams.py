"""Follow runs over HTTP: server-sent events from a real server."""

import asyncio
import json
import logging

import httpx
import pytest
from server_tools import ITEMS, TOKENS

from outlast import Outlast, publish, receive, step, workflow
from outlast.http.api_server import ApiServer
from outlast.http.rest.event_stream import EventStream
from support.waiting import WAIT_SECONDS, wait_until_async

WORDS = [f"word{number} \n" for number in range(60)]


@step
async def talk() -> str:
    for word in WORDS:
        publish("answer", word)
        await asyncio.sleep(0)
    return "".join(WORDS)


@workflow
async def talking() -> str:
    return await talk()


@workflow
async def patient() -> str:
    await publish("answer", "one")
    return await receive("go")


class Events:
    """The events of one answer, and the last cursor that a browser would keep."""

    def __init__(self) -> None:
        self.kinds, self.documents, self.cursor, self.text = [], [], None, ""

    async def read(self, answer, until=lambda events: False):
        fields = {}
        async for line in answer.aiter_lines():
            self.text += f"{line}\n"
            name, _, value = line.partition(": ")
            if line:
                fields[name] = value
                continue
            self.cursor = fields.get("id", self.cursor)
            if "data" in fields:
                self.kinds.append(fields["event"])
                self.documents.append(json.loads(fields["data"]))
            fields = {}
            if until(self):
                break
        return self


class Live:
    """An Outlast with its API on a real socket."""

    def __init__(self, app, server, client):
        self.app, self.server, self.client = app, server, client

    async def submit(self, name, id):
        answer = await self.client.post("/v1/runs", json={"workflow": name, "id": id})
        assert answer.status_code == 201, answer.text

    async def follow(self, path, until=lambda events: False, **headers):
        async with self.client.stream("GET", path, headers=headers) as answer:
            assert answer.status_code == 200, await answer.aread()
            assert answer.headers["content-type"].startswith("text/event-stream")
            return await Events().read(answer, until)


@pytest.fixture
def live():
    def run(scenario, **settings):
        async def main():
            app = Outlast(
                "memory:",
                worker=True,
                workflows=[talking, patient],
                api_tokens=",".join(ITEMS),
                grace=60.0,
                **settings,
            )
            server = ApiServer(app, "127.0.0.1:0")
            async with app:
                server.start()
                headers = {"authorization": f"Bearer {TOKENS['olga'][1]}"}
                client = httpx.AsyncClient(
                    base_url=server.url, headers=headers, timeout=WAIT_SECONDS, trust_env=False
                )
                async with client:
                    try:
                        await scenario(Live(app, server, client))
                    finally:
                        await server.stop()

        asyncio.run(main())

    return run


def test_text_of_a_stream_equals_the_recorded_result(live):
    async def scenario(live):
        await live.submit("talking", "t")
        events = await live.follow("/v1/runs/t/streams/answer")
        assert events.kinds[-1] == "end"
        assert "reset" not in events.kinds
        text = "".join(one["value"] for one in events.documents[:-1])
        assert text == events.documents[-1]["result"] == "".join(WORDS)
        assert "retry: 1000" in events.text

    live(scenario)


def test_viewer_that_returns_with_its_cursor_receives_what_follows(live):
    async def scenario(live):
        await live.submit("talking", "t")
        first = await live.follow("/v1/runs/t/streams/answer", lambda seen: len(seen.kinds) == 7)
        rest = await live.follow(
            "/v1/runs/t/streams/answer?after=ignored", **{"last-event-id": first.cursor}
        )
        values = [one["value"] for one in (first.documents + rest.documents)[:-1]]
        assert values == WORDS
        path = f"/v1/runs/t/streams/answer?after={rest.cursor}"
        assert (await live.client.get(path)).status_code == 204, "an EventSource stops"

    live(scenario)


def test_run_is_followed_until_its_end(live):
    async def scenario(live):
        await live.submit("talking", "t")
        events = await live.follow("/v1/runs/t/watch")
        types = [one["value"]["type"] for one in events.documents[:-1]]
        assert types[0] == "status"
        assert {"execution_began", "step"} <= set(types)
        assert events.documents[-1]["status"] == "done"
        streams = (await live.client.get("/v1/runs/t/streams")).json()["streams"]
        assert streams == [{"name": "answer", "values": len(WORDS)}]

    live(scenario)


def test_wrong_cursor_and_unknown_run_are_problems(live):
    async def scenario(live):
        await live.submit("talking", "t")
        answer = await live.client.get("/v1/runs/t/watch?after=nonsense")
        assert (answer.status_code, answer.json()["error"]) == (422, "BadCursor")
        assert (await live.client.get("/v1/runs/no/watch")).status_code == 404

    live(scenario)


def test_drain_ends_a_stream_with_its_cursor_after_ready_is_503(live):
    async def scenario(live):
        await live.submit("patient", "p")
        seen = asyncio.Event()

        def noted(events):
            if events.kinds:
                seen.set()
            return False

        following = asyncio.ensure_future(live.follow("/v1/runs/p/streams/answer", noted))
        await seen.wait()
        assert (await live.client.get("/ready")).status_code == 200
        draining = asyncio.ensure_future(live.app.drain())
        events = await following
        assert (await live.client.get("/ready")).status_code == 503
        assert events.kinds == ["data"]
        tail = events.text.partition("shuts down")[2]
        assert f"id: {events.cursor}\n" in tail
        assert "retry: 1000" in tail
        await draining

    live(scenario)


def test_viewer_that_goes_away_is_forgotten(live):
    async def scenario(live):
        await live.submit("patient", "p")
        await live.follow("/v1/runs/p/watch", lambda events: True)
        waiting = live.server._web._api.state.outlast_api.waiting
        await wait_until_async(lambda: not waiting)

    live(scenario)


class Watch:
    """A watch that has an event at any time, until it is closed."""

    def __init__(self, events):
        self.cursor, self.ended, self.closed, self.events = None, False, False, events

    async def next_events(self, timeout=None):
        if not self.events:
            await asyncio.sleep(timeout)
        events, self.events = self.events, []
        return events

    async def aclose(self):
        self.closed = True


class State:
    def __init__(self):
        loop = asyncio.get_running_loop()
        self.announced, self.close_began = loop.create_future(), loop.create_future()


async def never():
    await asyncio.Event().wait()


def test_viewer_that_does_not_read_is_dropped_with_a_log_line(caplog):
    async def scenario():
        watch, released = Watch([]), []
        stream = EventStream(
            watch,
            lambda event: event,
            State(),
            send_seconds=0.01,
            release=lambda: released.append(1),
        )

        async def send(message):
            if message["type"] == "http.response.body":
                await never()

        with caplog.at_level(logging.WARNING):
            await stream({}, never, send)
        assert (watch.closed, released) == (True, [1])
        assert "did not read" in caplog.text

    asyncio.run(scenario())


def test_quiet_stream_sends_heartbeats():
    async def scenario():
        state, sent = State(), []
        stream = EventStream(
            Watch([]),
            lambda event: event,
            state,
            send_seconds=WAIT_SECONDS,
            release=lambda: None,
            heartbeat_seconds=0.001,
        )

        async def send(message):
            sent.append(message.get("body", b""))
            if sent.count(b": nothing new\n\n") == 2 and not state.announced.done():
                state.announced.set_result("drain")

        await stream({}, never, send)
        assert sent[-1] == b""

    asyncio.run(scenario())
