"""Stream an answer from a model, and resume it after a crash of the agent or the model's server.

pip install 'outlast[httpx]'
python examples/model_server.py 8765 &
python examples/stream.py prefill            # or cursor, or restart: whatever the model supports
outlast show answer-prefill

Kill either process with kill -9, or the agent with Ctrl-C, then run the same command again.
"""

import json
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import httpx

from outlast import CannotResume, resume_stream, run, step, workflow

URL = os.environ.get("MODEL_URL", "http://127.0.0.1:8765")


async def events(path: str, **question: object) -> AsyncGenerator[dict[str, str], None]:
    async with (
        httpx.AsyncClient(timeout=30) as client,
        client.stream("POST", URL + path, json=question) as response,
    ):
        if response.status_code == 404:
            raise CannotResume(f"{URL} has no such answer")
        response.raise_for_status()
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                if event.get("done"):
                    return
                yield event
    # Without the model's "done" event, the answer is incomplete.
    raise ConnectionError("the answer was cut short")


async def prefill(so_far: str, prompt: str) -> AsyncIterator[str]:
    async with aclosing(events("/generate", prompt=prompt, prefill=so_far)) as answer:
        async for event in answer:
            yield event["token"]


async def cursor(last: str | None, prompt: str) -> AsyncIterator[tuple[str, str]]:
    async with aclosing(events("/answers", prompt=prompt, cursor=last)) as answer:
        async for event in answer:
            yield event["token"], event["cursor"]


async def restart(prompt: str) -> AsyncIterator[str]:
    async with aclosing(events("/generate", prompt=prompt, prefill="")) as answer:
        async for event in answer:
            yield event["token"]


def stream_of(prompt: str, by: str):
    if by == "prefill":
        return resume_stream(prefill, prompt, by="prefill", stall=10)
    if by == "cursor":
        return resume_stream(cursor, prompt, by="cursor", stall=10)
    return resume_stream(restart, prompt, stall=10)


def show(kind: str, text: str) -> None:
    """Print what a browser would receive: the text so far once, then each new token."""
    print(json.dumps({kind: text}), flush=True)


@step(retries=100, backoff=0.2, backoff_max=2)
async def answer(prompt: str, by: str) -> str:
    async with stream_of(prompt, by) as stream:
        how = "starts clean" if stream.restarted else "resumes" if stream.resumed_from else "starts"
        print(how, file=sys.stderr, flush=True)
        show("set", stream.text)
        async for token in stream:
            show("append", token)
    return stream.text


@workflow
async def agent(prompt: str, by: str) -> str:
    return await answer(prompt, by)


if __name__ == "__main__":
    by = sys.argv[1] if len(sys.argv) > 1 else "prefill"
    show("answer", run(agent("How do tides come and go?", by), id=f"answer-{by}"))
