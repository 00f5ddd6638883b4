"""Run agents in a web service that drains with its server: a deploy loses no request and no work.

pip install 'outlast[http]' fastapi
OUTLAST_HTTP=127.0.0.1:8081 uvicorn --app-dir examples service:web --port 8080
curl -X PUT '127.0.0.1:8080/answers/ada-1?question=tides'   # two seconds; a repeat is instant
curl 127.0.0.1:8081/ready                                   # 503 as soon as it drains

Send it SIGTERM or kill -9 while requests are in flight, then start it again. After SIGTERM it
accepts no more requests. A request in flight gets its answer, or 503 with Retry-After if its agent
will continue elsewhere. A client that repeats a PUT gets the answer of the same run.

Under gunicorn, each worker drains by itself: see docs/examples.md for the command. Do not set
OUTLAST_HTTP there, because all workers would use the same port.
"""

import asyncio
import os

from fastapi import FastAPI, HTTPException, Response

from outlast import Conflict, Draining, Outlast, step, workflow
from outlast.http import lifespan, routes

RETRY = {"Retry-After": "1"}


@step(retries=3)
async def ask_model(question: str, part: int) -> str:
    print(os.getpid(), "asks", question, part, flush=True)
    await asyncio.sleep(0.5)
    return f"{question}, part {part}"


@workflow
async def agent(question: str) -> list[str]:
    return [await ask_model(question, part) for part in range(1, 5)]


# Also a worker: it resumes runs that another replica released, even without a request.
app = Outlast(worker=True, workflows=[agent])
# Opens the app with the server, and drains it when the server shuts down.
web = FastAPI(lifespan=lifespan(app))
web.mount("/ops", routes(app))


@web.put("/answers/{id}")
async def answer(id: str, question: str, response: Response) -> dict[str, str | list[str]]:
    """Wait for the answer. The client chooses the id, so a repeated request joins the same run."""
    try:
        # Executes here. `submit` would leave it to any replica with a free slot.
        run = await app.start(agent(question), id=id)
        return {"id": id, "answer": await run.result(timeout=20)}
    except Draining:  # another process resumes from the last recorded step
        raise HTTPException(503, f"{id} continues elsewhere; ask again", headers=RETRY) from None
    except Conflict as error:  # another question with the same id
        raise HTTPException(409, str(error)) from None
    except TimeoutError:
        response.status_code = 202
        return {"id": id, "status": "still running; ask again"}
