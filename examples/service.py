"""A web service that runs agents, and drains with its server: a deploy loses no request and no work.

pip install 'outlast[http]' fastapi
OUTLAST_HTTP=127.0.0.1:8081 uvicorn --app-dir examples service:web --port 8080
curl -X PUT '127.0.0.1:8080/answers/ada-1?question=tides'       # the answer, in about two seconds; the same again: at once
curl 127.0.0.1:8081/ready                                       # for the load balancer: 503 as soon as it drains

Send it SIGTERM (or kill -9) while requests are under way, and start it again. After SIGTERM it takes no more requests; one that is under way is
answered: with its answer, or with 503 and Retry-After if its agent will go on elsewhere. Whoever repeats a PUT gets the same run's answer.

Under gunicorn (pip install gunicorn uvicorn-worker), whose workers drain each on their own, without OUTLAST_HTTP, as they would want the same port:
OUTLAST_GRACE=25 gunicorn --pythonpath examples -k uvicorn_worker.UvicornWorker -w 2 -b :8080 --graceful-timeout 30 service:web
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


# A worker too: what another replica has left goes on here, asked for or not.
app = Outlast(worker=True, workflows=[agent])
web = FastAPI(
    lifespan=lifespan(app)
)  # opens it with the server, and drains it when the server shuts down
web.mount("/ops", routes(app))


@web.put("/answers/{id}")
async def answer(id: str, question: str, response: Response) -> dict[str, str | list[str]]:
    """Wait for the answer. The id is the client's: a repeated request joins the run of the first one."""
    try:
        # Here; `submit` leaves it to whichever replica has a free slot.
        run = await app.start(agent(question), id=id)
        return {"id": id, "answer": await run.result(timeout=20)}
    except Draining:  # this process leaves; another goes on from the last recorded step
        raise HTTPException(503, f"{id} goes on elsewhere: ask again", headers=RETRY) from None
    except Conflict as error:  # another question under an id that has one
        raise HTTPException(409, str(error)) from None
    except TimeoutError:
        response.status_code = 202
        return {"id": id, "status": "still working: ask again"}
