"""Random workflows: a program is a JSON tree, and one workflow that executes any of them.

Only outcomes that do not depend on how long a crash delays a step are part of a result: time-outs are far longer or far
shorter than what they guard, races are between steps of clearly different length that start together, and the results of
concurrent branches are sorted.
"""

import asyncio
import json
import random

from outlast import Call, NotInRun, RunError, StepTimeout, now, sleep, step, uuid, workflow
from outlast import random as chance

Node = dict


class Refused(Exception):
    pass


@step
async def work(label: str, seconds: float) -> str:
    await asyncio.sleep(seconds)
    return label


@step
async def fail(label: str, seconds: float) -> str:
    await asyncio.sleep(seconds)
    raise Refused(label)


@step(retries=2, backoff=0.01)
async def flaky(label: str, seconds: float) -> str:
    from outlast import current

    await asyncio.sleep(seconds)
    if current().attempt < 3:
        raise Refused(f"{label} attempt {current().attempt}")
    return label


@step(timeout=0.0005)
async def slow(label: str, seconds: float) -> str:
    await asyncio.sleep(seconds * 1000 + 1000)
    return label


@step
async def stubborn(label: str, seconds: float) -> str:
    """Swallows its cancellation, and returns all the same."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        return f"{label}!"
    return label


@step
async def outer(label: str, seconds: float) -> str:
    first = await work(label, seconds)
    return first + await work(label + "2", seconds)


STEPS = {
    "work": work,
    "fail": fail,
    "flaky": flaky,
    "slow": slow,
    "stubborn": stubborn,
    "outer": outer,
}
ERRORS = (Refused, StepTimeout, TimeoutError, RunError)


def leaf(node: Node):
    return STEPS[node["step"]](node["label"], node["seconds"])


async def play(node: Node) -> list:
    """Execute a node; its outcome as JSON that does not depend on timing."""
    return await PLAY[node["do"]](node)


async def play_step(node: Node) -> list:
    try:
        return [await leaf(node)]
    except ERRORS as error:
        return [f"{type(error).__name__}"]


async def play_raw(node: Node) -> list:
    return [await leaf(node)]


async def play_seq(node: Node) -> list:
    return [item for part in node["parts"] for item in await play(part)]


async def play_gather(node: Node) -> list:
    results = await asyncio.gather(
        *[play(part) for part in node["parts"]], return_exceptions=node["keep"]
    )
    return [r if isinstance(r, list) else type(r).__name__ for r in results]


async def play_gather_steps(node: Node) -> list:
    results = await asyncio.gather(*[leaf(part) for part in node["parts"]], return_exceptions=True)
    return [r if isinstance(r, str) else type(r).__name__ for r in results]


async def play_group(node: Node) -> list:
    tasks: list = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(play(part)) for part in node["parts"]]
    except* ERRORS:
        tasks = []
    return [task.result() for task in tasks] or ["group failed"]


async def play_tasks(node: Node) -> list:
    tasks = [asyncio.create_task(play(part)) for part in node["parts"]]
    return [await task for task in reversed(tasks)]


async def play_race(node: Node) -> list:
    """The first of several steps that start together; the others are cancelled, and waited for."""
    tasks = [asyncio.create_task(leaf(part), name=part["label"]) for part in node["parts"]]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    rest = await asyncio.gather(*pending, return_exceptions=True)
    first = [
        task.result() if task.exception() is None else type(task.exception()).__name__
        for task in done
    ]
    return [sorted(first), len(rest)]


async def play_wait(node: Node) -> list:
    done, _ = await asyncio.wait([asyncio.create_task(play(part)) for part in node["parts"]])
    follow = [
        await work(f"after {i}", 0.0) for i, _ in enumerate(done)
    ]  # called in the order of a set
    return [sorted(json.dumps(task.result()) for task in done), follow]


async def play_completed(node: Node) -> list:
    seen = []
    for next_one in asyncio.as_completed([leaf(part) for part in node["parts"]]):
        try:
            seen.append(await next_one)
        except ERRORS as error:
            seen.append(type(error).__name__)
        await work("between", 0.0)
    return sorted(seen)


async def play_timeout(node: Node) -> list:
    try:
        async with asyncio.timeout(node["limit"]):
            result = await play(node["part"])
    except TimeoutError:
        return ["timed out"]
    # A stubborn step insists if it was under way, and is not started if the time-out was there first.
    return ["timed out"] if isinstance(result[0], str) and result[0].endswith("!") else result


async def play_cancel(node: Node) -> list:
    task = asyncio.create_task(play_raw(node["part"]))
    await work("before the cancel", 0.0)
    task.cancel()
    try:
        return [await task]
    except asyncio.CancelledError:
        return ["cancelled"]


async def play_finally(node: Node) -> list:
    try:
        return await play(node["part"])
    finally:
        await work("finally", 0.0)


async def play_sleep(node: Node) -> list:
    before = now()
    await sleep(node["seconds"])
    return [now() >= before]


async def play_chance(node: Node) -> list:
    return [0 <= chance() < 1, len(str(uuid()))]


async def play_child(node: Node) -> list:
    try:
        return await program(node["part"])
    except (RunError, *ERRORS) as error:
        return [type(error).__name__]


async def play_queue(node: Node) -> list:
    queue: asyncio.Queue = asyncio.Queue()

    async def produce() -> None:
        for part in node["parts"]:
            await queue.put(await play(part))
        await queue.put(None)

    producer = asyncio.create_task(produce())
    seen = []
    while (item := await queue.get()) is not None:
        seen.append(item)
    await producer
    return seen


PLAY = {
    "step": play_step, "seq": play_seq, "gather": play_gather, "gather_steps": play_gather_steps, "group": play_group,
    "tasks": play_tasks, "race": play_race, "wait": play_wait, "completed": play_completed, "timeout": play_timeout,
    "cancel": play_cancel, "finally": play_finally, "sleep": play_sleep, "chance": play_chance, "child": play_child,
    "queue": play_queue,
}  # fmt: skip


@workflow
async def program(node: dict) -> list:
    return await play(node)


class Maker:
    """Programs of one seed. `unit` is the length of a short step, in seconds."""

    def __init__(self, seed: int, unit: float = 1.0) -> None:
        self._dice = random.Random(seed)
        self._unit = unit
        self._labels = 0

    def call(self) -> Call[list]:
        return program(
            {"do": "seq", "parts": [self.node(3) for _ in range(self._dice.randint(1, 3))]}
        )

    def node(self, depth: int) -> Node:
        kinds = (
            list(PLAY)
            if depth > 0
            else ["step", "step", "gather_steps", "race", "completed", "sleep", "chance"]
        )
        do = self._dice.choice(kinds)
        return getattr(self, f"_{do}")(depth - 1)

    def _parts(self, depth: int, least: int = 1) -> list[Node]:
        return [self.node(depth) for _ in range(self._dice.randint(least, 3))]

    def _label(self) -> str:
        self._labels += 1
        return f"s{self._labels}"

    def _step(
        self,
        _: int = 0,
        kinds: tuple[str, ...] = ("work", "work", "fail", "flaky", "slow", "outer"),
    ) -> Node:
        seconds = self._dice.choice([0, 0, self._unit, 2 * self._unit])
        return {
            "do": "step",
            "step": self._dice.choice(kinds),
            "label": self._label(),
            "seconds": seconds,
        }

    def _racers(self) -> list[Node]:
        """Steps of clearly different length, in any order."""
        parts = [
            {
                "do": "step",
                "step": self._dice.choice(["work", "fail"]),
                "label": self._label(),
                "seconds": self._unit * 5**i,
            }
            for i in range(self._dice.randint(2, 3))
        ]
        self._dice.shuffle(parts)
        return parts

    def _seq(self, depth: int) -> Node:
        return {"do": "seq", "parts": self._parts(depth)}

    def _gather(self, depth: int) -> Node:
        return {"do": "gather", "parts": self._parts(depth), "keep": True}

    def _gather_steps(self, _: int) -> Node:
        return {"do": "gather_steps", "parts": [self._step() for _ in range(3)]}

    def _group(self, depth: int) -> Node:
        return {"do": "group", "parts": self._parts(depth)}

    def _tasks(self, depth: int) -> Node:
        return {"do": "tasks", "parts": self._parts(depth)}

    def _race(self, _: int) -> Node:
        return {"do": "race", "parts": self._racers()}

    def _wait(self, depth: int) -> Node:
        return {"do": "wait", "parts": self._parts(depth)}

    def _completed(self, _: int) -> Node:
        return {"do": "completed", "parts": [self._step() for _ in range(3)]}

    def _timeout(self, depth: int) -> Node:
        if self._dice.random() < 0.5:
            return {"do": "timeout", "limit": 1e7, "part": self.node(depth)}
        part = self._step(kinds=("work", "stubborn"))
        part["seconds"] = 1000 * self._unit
        return {"do": "timeout", "limit": self._unit / 2, "part": part}

    def _cancel(self, _: int) -> Node:
        part = self._step(kinds=("work", "fail"))
        part["seconds"] = 1000 * self._unit
        return {"do": "cancel", "part": part}

    def _finally(self, depth: int) -> Node:
        return {"do": "finally", "part": self.node(depth)}

    def _sleep(self, _: int) -> Node:
        return {"do": "sleep", "seconds": self._dice.choice([0, self._unit])}

    def _chance(self, _: int) -> Node:
        return {"do": "chance"}

    def _child(self, depth: int) -> Node:
        return {"do": "child", "part": self.node(depth)}

    def _queue(self, depth: int) -> Node:
        return {"do": "queue", "parts": self._parts(depth)}


__all__ = ["Maker", "NotInRun", "program"]
