"""What a review of effects has found broken, each once: a run that was left behind, undone in part, or held up for nothing."""

import asyncio
import threading

import pytest
from outside import book, fail, outside, put, work

from outlast import (
    KEY,
    DuplicateName,
    Happened,
    Outlast,
    RunCancelled,
    RunDead,
    RunParked,
    StepTimeout,
    StoreUnavailable,
    effect,
    sleep,
    step,
    workflow,
)
from outlast.define.unit import unit
from outlast.replay.life import Life
from outlast.store.verbs import Submit
from outlast.testing import App, Broke, crash_everywhere
from outlast.testing.crash import Crash

LONG = 1e5
HOUR = 3600.0
broken: list[str] = []


@pytest.fixture(autouse=True)
def _fresh():
    outside.clear()
    broken.clear()


@step
async def breaks(seconds: float = 5.0) -> str:
    await asyncio.sleep(seconds)
    if "breaks" in broken:
        raise ValueError("no")
    return "mended"


@effect(timeout=10, idempotent=True)
async def reserve(what: str, key: str = KEY) -> str:
    await asyncio.sleep(0.1)
    outside.apply(f"+{what}", key)
    return f"reserved {what}"


@reserve.compensate(retries=2)
async def give_up(it: str, what: str, key: str = KEY) -> None:
    await asyncio.sleep(0.1)
    outside.apply(f"-{what}", key)


@workflow
async def child(seconds: float = 30.0) -> str:
    said = await reserve("flight")
    await asyncio.sleep(seconds)
    await reserve("seat")
    return said


@workflow
async def family(*, own: bool) -> list[str]:
    """It fails beside a child that has done something, and goes on."""
    if own:
        await reserve("hotel")
    return await asyncio.gather(child(), breaks())


owns = pytest.mark.parametrize("own", [True, False], ids=["with effects of its own", "without"])


def statuses(world) -> dict[str, str]:
    infos = world.do(lambda app: app.runs())
    return {info.id: "undoing" if info.undoing else info.status for info in infos}


def fails(world, call) -> None:
    """In an hour: whoever only waits has not ended by then."""

    async def main(app):
        with pytest.raises(ValueError, match="no"):
            await (await app.start(call, id="run")).result(timeout=HOUR)

    world.do(main)


def dies_once_written(world, call, written) -> None:
    """The plug is pulled right after the commit from which on `written()` is true."""
    store = world.store
    really = store.commit

    def commit(verbs):
        outcomes = really(verbs)
        if written():
            raise Crash
        return outcomes

    store.commit = store.try_commit = commit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(world), "_pull", _pull_and(world, store, type(world)._pull))
        world.die(call, after=LONG)


def _pull_and(world, store, pull):
    def both(_):
        del store.commit, store.try_commit
        pull(world)

    return both


# -- a parent fails: what of its children


def test_children_that_cannot_be_looked_at_keep_their_parent_from_ending(world):
    @workflow
    async def plain() -> None:
        await child(0.0)
        await fail()

    store, asked = world.store, []
    really = store.has_dealt

    def once_not(id):
        asked.append(id)
        if len(asked) == 1:
            raise StoreUnavailable("not now")
        return really(id)

    store.has_dealt = once_not
    with pytest.raises(StoreUnavailable):
        world.run(plain())
    assert world.status() == "queued"
    fails(world, plain())
    assert outside.undone == ["-seat", "-flight"]
    assert statuses(world) == {"run": "failed", "run/child#1": "cancelled"}


@owns
def test_a_run_that_fails_beside_a_child_has_ended_only_when_that_is_undone(world, own):
    broken.append("breaks")
    fails(world, family(own=own))
    assert statuses(world) == {"run": "failed", "run/child#1": "cancelled"}
    assert outside.left == []
    assert "+seat" not in outside.log


@owns
def test_a_child_whose_parent_dies_as_it_fails_is_not_executed_to_a_good_end(world, own):
    """The next life fails in replay, before it has come to its child."""
    broken.append("breaks")
    failed = [False]

    def written() -> bool:
        row = world._app.store.run("run")
        entries = world._app.store.journal(row.pk) if row is not None else []
        failed[0] = failed[0] or any(entry.kind == "step" and entry.error for entry in entries)
        return failed[0]

    dies_once_written(world, family(own=own), written)
    assert failed == [True]
    assert world.status() == "running"
    world.restart(1.0, worker=True, workflows=[family, child], poll=1.0)

    async def main(app):
        with pytest.raises(ValueError, match="no"):
            await (await app.start(family(own=own), id="run")).result(timeout=HOUR)
        left = list(outside.left)
        await asyncio.sleep(300)  # a worker takes whatever there is
        return left

    assert world.do(main) == []
    assert statuses(world) == {"run": "failed", "run/child#1": "cancelled"}
    assert outside.left == []
    assert "+seat" not in outside.log


def test_what_a_child_has_done_that_is_a_dead_letter_is_undone_with_its_parent(world):
    @workflow
    async def deadly() -> None:
        await put("flight")
        await work("dies", LONG)

    @workflow
    async def plain() -> None:
        await put("hotel")
        await deadly()

    world.restart(max_attempts=1)
    world.die(plain(), until=lambda: "dies" in outside.log)
    assert world.row("run/deadly#1").attempts_max == 1
    world.die(plain(), until=lambda: outside.log.count("dies") == 2, gap=HOUR)

    async def main(app):
        with pytest.raises(RunDead):
            await (await app.start(plain(), id="run")).result(timeout=HOUR)

    world.do(main)
    assert outside.undone == ["-flight", "-hotel"]
    assert statuses(world) == {"run": "failed", "run/deadly#1": "cancelled"}


def test_a_dead_letter_is_not_pruned_before_what_it_did_is_undone(world):
    @workflow
    async def deadly() -> None:
        await put("flight")
        await work("dies", LONG)

    world.restart(max_attempts=1)
    world.die(deadly(), until=lambda: "dies" in outside.log)
    world.die(deadly(), until=lambda: outside.log.count("dies") == 2, gap=HOUR)
    with pytest.raises(RunDead):
        world.run(deadly())
    world.clock.advance(LONG)
    assert world.do(lambda app: app.prune(HOUR)) == 0
    world.do(lambda app: app.cancel("run", "given up"))
    with pytest.raises(RunCancelled):
        world.run(deadly())
    assert outside.undone == ["-flight"]
    world.clock.advance(LONG)
    assert world.do(lambda app: app.prune(HOUR)) == 1


def test_what_a_grandchild_did_is_not_pruned_while_it_may_have_to_be_undone(world):
    @workflow
    async def grandchild() -> None:
        await put("flight")

    @workflow
    async def middle() -> None:
        await grandchild()

    @workflow
    async def long() -> None:
        await middle()
        await sleep(LONG)
        await breaks()

    broken.append("breaks")

    async def main(app):
        run = await app.start(long(), id="run")
        await asyncio.sleep(LONG / 2)
        assert await app.prune(HOUR) == 0
        with pytest.raises(ValueError, match="no"):
            await run.result()

    world.do(main)
    assert outside.undone == ["-flight"]


@owns
@pytest.mark.parametrize("writes", [0, 1, 2, 3])
def test_a_program_that_died_as_it_undid_does_not_wait_for_a_child_that_nobody_takes(world, writes, own):
    """It is no worker, and in that life it has not come to where it calls the child: it does not know its code."""
    broken.append("breaks")
    after: list[bool] = []

    def written() -> bool:
        row = world._app.store.run("run")
        if row is not None and row.undoing is not None:
            after.append(True)
        return len(after) > writes

    dies_once_written(world, family(own=own), written)
    assert world.row().undoing is not None
    world.restart(1.0)
    fails(world, family(own=own))
    assert statuses(world) == {"run": "failed", "run/child#1": "cancelled"}
    assert outside.left == []


@pytest.mark.timeout(60)
@owns
def test_wherever_a_run_dies_that_fails_beside_a_child_nothing_is_left(own):
    def look() -> None:
        assert outside.left == [], outside.log

    def fresh() -> None:
        outside.clear()
        broken.append("breaks")

    points = {"writes": range(1, 30), "acts": range(1, 6)}
    report = crash_everywhere(family(own=own), fresh=fresh, check=look, **points)
    assert report.error == "ValueError: no"
    assert report.crashes > 30


@owns
def test_a_retry_has_a_child_done_anew_that_was_ended_with_its_parent(world, own):
    broken.append("breaks")
    fails(world, family(own=own))
    broken.clear()
    world.do(lambda app: app.retry("run"))
    assert world.run(family(own=own)) == ["reserved flight", "mended"]
    assert outside.left == ["hotel", "flight", "seat"][not own :]
    assert statuses(world) == {"run": "done", "run/child#1": "done"}
    assert world.replays(family(own=own)) == ["reserved flight", "mended"]


def test_a_parent_that_waits_for_a_child_to_be_undone_writes_nothing_meanwhile(world):
    @effect(timeout=1000, idempotent=True)
    async def lend() -> None:
        """Slow to take back."""

    @lend.compensate
    async def take_back(it: None) -> None:
        await asyncio.sleep(20)

    @workflow
    async def lends() -> None:
        await lend()

    @workflow
    async def plain() -> None:
        await lends()
        await fail()

    written: list[str] = []
    store, really = world.store, world.store.commit

    def commit(verbs):
        written.extend(type(verb).__name__ for verb in verbs)
        return really(verbs)

    store.commit = commit
    store.try_commit = lambda verbs: None  # then it is committed as any other
    fails(world, plain())
    assert written.count("UndoChild") <= 3
    assert written.count("Cancel") <= 3


def test_who_is_stuck_at_a_child_is_told_only_what_helps(world):
    @workflow
    async def plain() -> None:
        await child(0.0)
        await fail()

    outside.broken.add("-flight")
    with pytest.raises(RunParked) as caught:
        world.run(plain())
    reason = caught.value.reason
    assert "outlast decide" not in reason, "there is no effect of its own to decide on"
    assert "`outlast retry run/child#1`" in reason
    assert "`outlast retry run`" in reason
    outside.broken.clear()

    async def as_told(app):
        await app.retry("run/child#1")
        await app.retry("run")

    world.do(as_told)
    fails(world, plain())
    assert outside.left == []


# -- units


@effect(timeout=60, idempotent=True)
async def shut(what: str) -> str:
    outside.log.append(f"+{what}")
    return what


@shut.compensate
async def slowly_open(it: str | None, what: str) -> None:
    await asyncio.sleep(20)
    outside.log.append(f"-{what}")


@workflow
async def cut_short(steps: int = 0) -> str:
    """Time is up while the unit is being undone."""
    try:
        async with asyncio.timeout(5), unit("u"):
            await shut("gate")
            raise ValueError("no")
    except TimeoutError:
        pass
    for number in range(steps):
        await work(f"step {number}", 1.0)
    return await put("b")


def test_a_unit_that_is_cancelled_as_it_is_undone_is_left(world):
    assert world.run(cut_short()) == "put b"
    assert outside.log == ["+gate", "-gate", "+b"]
    assert world.replays(cut_short()) == "put b"


def test_a_unit_that_was_cancelled_does_not_hold_up_a_drain(world):
    async def main(app):
        await app.start(cut_short(1000), id="run")
        await asyncio.sleep(30)
        begun = len(outside.log)
        before = world.clock.elapsed
        await app.drain("test", grace=100)
        return world.clock.elapsed - before, len(outside.log) - begun

    seconds, begun = world.do(main)
    assert seconds < 5
    assert begun <= 1


# -- drains


@pytest.mark.parametrize("grace", [30, 300])
def test_a_drain_does_not_wait_for_a_run_that_must_be_decided_and_may_begin_nothing(world, grace):
    @effect(timeout=1, undo=None)
    async def post() -> str:
        raise ConnectionError("cut")

    async def steps() -> None:
        for number in range(3):
            await work(f"step {number}", 10)

    @workflow
    async def both() -> None:
        await asyncio.gather(post(), steps())

    async def main(app):
        await app.start(both(), id="run")
        await asyncio.sleep(8)  # by then nobody can tell
        before = world.clock.elapsed
        report = await app.drain("test", grace=grace)
        return world.clock.elapsed - before, report.left

    seconds, left = world.do(main)
    assert (seconds < 5, left) == (True, [])
    assert outside.log == ["step 0"], "it went on to its end, and no other was begun"
    assert world.status() == "parked"
    assert "post#1" in world.row().reason


@pytest.mark.parametrize("grace", [30, 300])
def test_a_drain_does_not_wait_for_a_unit_whose_next_effect_has_no_time(world, grace):
    @effect(timeout=400, undo=None)
    async def slow() -> None:
        outside.log.append("slow")

    @workflow
    async def one() -> None:
        async with unit("u"):
            await work("first", 10)
            await slow()

    async def main(app):
        await app.start(one(), id="run")
        await asyncio.sleep(5)
        before = world.clock.elapsed
        report = await app.drain("test", grace=grace)
        return world.clock.elapsed - before, report.left

    seconds, left = world.do(main)
    assert (seconds < 10, left) == (True, [])
    assert world.status() == "queued"
    world.restart()
    world.run(one())
    assert outside.log == ["first", "slow"]


def test_an_effect_that_has_no_time_any_more_when_its_intent_is_recorded_is_not_begun(world, monkeypatch):
    """The drain may begin while the intent is written. Cut in its act, only a person could say whether it happened."""
    record = Life.record_and_wait

    async def recorded(self, kind, key, **fields) -> None:
        await record(self, kind, key, **fields)
        if not world.app.draining:
            self.house.drain.begin("test", grace=20)
            await asyncio.sleep(0.05)

    @effect(timeout=100, undo=None)
    async def slow() -> str:
        outside.log.append("slow")
        return "slow"

    @workflow
    async def one() -> str:
        return await slow()

    async def main(app):
        await app.start(one(), id="run")
        await app.wait_drain()
        return (await app.drain()).left

    with monkeypatch.context() as slowly:
        slowly.setattr(Life, "record_and_wait", recorded)
        assert world.do(main) == []
    assert (outside.log, world.status(), world.kinds()) == (
        [],
        "queued",
        ["intent", "attempt", "interruption"],
    )
    world.restart()
    assert world.run(one()) == "slow"
    assert outside.log == ["slow"]


@pytest.mark.parametrize(
    ("comes", "kinds"),
    [("ok", ["intent", "step", "interruption"]), ("lost", ["intent", "attempt", "interruption"])],
)
def test_what_comes_of_an_act_after_the_grace_is_recorded_and_the_run_given_back_then(world, comes, kinds):
    @effect(timeout=500, idempotent=True, undo=None)
    async def slow() -> str:
        outside.attempts["slow"] += 1
        await asyncio.sleep(100)
        if comes == "lost" and outside.attempts["slow"] == 1:
            raise ConnectionError(comes)
        return "slow"

    @workflow
    async def one() -> str:
        return await slow()

    async def main(app):
        await app.start(one(), id="run")
        await asyncio.sleep(5)
        report = await app.drain("test", grace=10)
        assert [left.id for left in report.left] == ["run"]
        assert (await app.get(one, "run").info()).status == "running", "it acts"
        await asyncio.sleep(200)
        return (await app.get(one, "run").info()).status

    assert world.do(main) == "queued"
    assert world.kinds() == kinds
    world.restart()
    assert world.run(one()) == "slow"
    assert outside.attempts["slow"] == (1 if comes == "ok" else 2)


# -- stubs and names


@pytest.mark.parametrize("raises", [True, False])
def test_a_stubbed_effect_touches_nothing_of_the_world(raises):
    @workflow
    async def one() -> None:
        await book("a")
        raise LookupError

    app = App()
    if raises:
        app.stub(book, raises=ConnectionError("cut"))
    else:
        app.stub(book, returns="ticket a")
    with pytest.raises(ConnectionError if raises else LookupError):
        app.run(one(), id="run")
    assert app.executed["book"] == 1, "what a stub raises did not happen, and nobody need be asked"
    assert outside.log == []
    assert outside.told == []


def _made_for(tenant: str):
    @effect(timeout=5, idempotent=True)
    async def charge() -> str:
        outside.log.append(f"+{tenant}")
        return tenant

    @charge.compensate
    async def refund(it: str | None) -> None:
        outside.log.append(f"-{tenant}")

    return charge


def test_of_two_effects_that_the_same_code_made_with_one_name_the_first_is_refused(world):
    """It would be undone by the other one's compensation."""
    first, second = _made_for("A"), _made_for("B")

    @workflow
    async def one(which: int) -> None:
        await (first, second)[which]()
        await fail()

    with pytest.raises(DuplicateName, match="charge"):
        world.run(one(0))
    assert outside.log == []
    with pytest.raises(ValueError, match="no"):
        world.run(one(1), id="other")
    assert outside.log == ["+B", "-B"]


# -- a program that is no worker


def test_a_decision_in_a_program_that_is_no_worker_leaves_the_run_to_who_starts_it(world):
    @effect(timeout=1)
    async def post() -> str:
        outside.attempts["post"] += 1
        if outside.attempts["post"] == 1:
            raise ConnectionError("cut")
        return "posted"

    @post.compensate
    async def unpost(it: str | None) -> None:
        """It was not posted."""

    @workflow
    async def one() -> str:
        await put("a")
        return await post()

    async def main(app):
        with pytest.raises(RunParked):
            await (await app.start(one(), id="run")).result(timeout=HOUR)
        await app.decide("run", "post#1", did_not=True)
        await asyncio.sleep(100)
        assert (await app.get(one, "run").info()).status == "queued"
        return await (await app.start(one(), id="run")).result(timeout=HOUR)

    assert world.do(main) == "posted"
    assert outside.done == ["+a"]


def test_a_run_whose_effect_acted_on_after_its_app_was_left_is_given_back_when_that_ends(file_world):
    @effect(timeout=10, idempotent=True, undo=None)
    async def slow() -> str:
        outside.attempts["slow"] += 1
        await asyncio.sleep(3)
        return "slow"

    @workflow
    async def one() -> str:
        return await slow()

    async def main(app):
        async with file_world.another(close_timeout=1.0) as other:
            await other.start(one(), id="run")
            await asyncio.sleep(0.5)
        assert (await app.get(one, "run").info()).status == "running", "it acts"
        await asyncio.sleep(4)
        assert (await app.get(one, "run").info()).status == "queued"
        return await (await app.start(one(), id="run")).result(timeout=HOUR)

    assert file_world.do(main) == "slow"
    assert outside.attempts["slow"] == 1, "what came of it was recorded"


# -- threads that hang: in real time, as a virtual clock stands still while one is at work


@pytest.fixture
def gate():
    """What a thread that hangs waits for."""
    gate = threading.Event()
    yield gate
    gate.set()


def hanging(gate):
    @step(timeout=0.2)
    def hang() -> None:
        gate.wait(30)

    return hang


def in_real_time(call, after=None):
    async def main():
        async with Outlast("memory:", effect_margin=0.1, close_timeout=0.2) as app:
            run = await app.start(call, id="run")
            if after is not None:
                await after(app)
            return await run.result(timeout=20)

    return asyncio.run(main())


@effect(timeout=0.3, backoff=0.1, undo=None)
async def verified() -> str:
    outside.attempts["verified"] += 1
    raise ConnectionError("cut")


@verified.verify
async def was() -> Happened[str] | None:
    return Happened("it did")


@effect(timeout=0.3, backoff=0.1, idempotent=True, undo=None)
async def repeated() -> str:
    outside.attempts["repeated"] += 1
    if outside.attempts["repeated"] == 1:
        raise ConnectionError("cut")
    return "it does"


@effect(timeout=0.3, undo=None)
async def unknown() -> str:
    raise ConnectionError("cut")


@pytest.mark.parametrize(("which", "says"), [(verified, "it did"), (repeated, "it does")])
def test_a_steps_thread_that_hangs_does_not_keep_an_effect_from_being_resolved(gate, which, says):
    hang = hanging(gate)

    @workflow
    async def one() -> str:
        with pytest.raises(StepTimeout):
            await hang.aio()
        return await which()

    assert in_real_time(one()) == says


def test_a_run_that_must_be_decided_is_parked_when_its_last_thread_has_ended(gate):
    """Not before: whoever goes on with it must not meet that thread."""
    hang = hanging(gate)

    @workflow
    async def one() -> str:
        with pytest.raises(StepTimeout):
            await hang.aio()
        return await unknown()

    async def release(app):
        await asyncio.sleep(1.0)
        assert (await app.get(one, "run").info()).status == "running"
        gate.set()

    with pytest.raises(RunParked, match="unknown#1"):
        in_real_time(one(), release)


def test_a_run_that_fails_with_an_effect_open_and_a_steps_thread_hanging_ends(gate):
    hang = hanging(gate)

    @effect(timeout=1, backoff=0.1)
    async def send() -> str:
        raise ConnectionError("cut")

    @send.verify
    async def sent() -> Happened[str] | None:
        return Happened("it did")

    @send.compensate
    async def unsend(it: str | None) -> None:
        outside.log.append(f"-{it}")

    @workflow
    async def one() -> None:
        await asyncio.gather(send(), hang.aio())

    with pytest.raises(StepTimeout):
        in_real_time(one())
    assert outside.log == ["-it did"]


# -- memory


def kept(journal) -> int:
    """How many characters the fold keeps of arguments and results."""
    texts = [
        text
        for one in journal.dealings.places.values()
        for text in (one.arguments, one.value, one.closed.value if one.closed is not None else None)
    ]
    return sum(len(text or "") for text in texts)


@pytest.mark.parametrize("replayed", [False, True])
def test_a_life_does_not_keep_what_effects_were_given_and_gave_that_need_not_be_undone(world, replayed):
    size, count = 1000, 20

    @effect(timeout=10, idempotent=True, undo=None)
    async def tell(number: int, text: str) -> str:
        return text

    @effect(timeout=10, idempotent=True)
    async def give(text: str) -> str:
        return text

    @give.compensate
    async def take_back(it: str | None, text: str) -> None:
        outside.told.append((it, text))

    @workflow
    async def one() -> None:
        told = [await tell(number, "x" * size) for number in range(count)]
        assert [len(text) for text in told] == [size] * count
        await give("y" * size)
        await work("rest", LONG)
        await fail()

    if replayed:
        world.die(one(), until=lambda: "rest" in outside.log)

    async def main(app):
        run = await app.start(one(), id="run")
        while outside.log.count("rest") < 1 + replayed:
            await asyncio.sleep(1)
        journal = app._open.lives["run"].journal
        assert len(journal.dealings.places) == count + 1
        characters = kept(journal)
        with pytest.raises(ValueError, match="no"):
            await run.result(timeout=2 * LONG)
        return characters

    assert world.do(main) < 5 * size, "of the one to be undone, nothing more"
    assert outside.told == [("y" * size, "y" * size)]


# -- crash_everywhere looks at what a failed run has left


def test_a_crash_test_tells_of_a_child_that_a_failed_run_has_left():
    """No workflow leaves one: the child is made by hand, and its parent has never called it."""
    broken.append("breaks")

    @workflow
    async def one() -> None:
        await breaks()

    async def by_hand(app):
        await asyncio.sleep(1)
        app.store.commit([Submit("crash/child#1", "child", "[]", "token", "seed", parent="crash")])

    with pytest.raises(Broke, match="not ended, or not been undone: crash/child#1"):
        crash_everywhere(one(), outside=by_hand)
