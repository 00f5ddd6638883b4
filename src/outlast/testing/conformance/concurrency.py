"""Check concurrent use: threads of one store object, and several objects at one location."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from outlast.store.commands import (
    Claim,
    Command,
    Record,
    Refused,
    RegisterWorker,
    Release,
    Send,
    SetQueueLimits,
    Submit,
    SubmitMany,
)
from outlast.store.rows import RunQuery
from outlast.testing.conformance.crowd import CROWD, Crowd
from outlast.testing.conformance.harness import EVERYTHING, StoreDriver, entry


class CrowdContract(Crowd):
    def test_each_run_is_claimed_once(self, driver: StoreDriver, crowd: list[StoreDriver]) -> None:
        driver.commit(*(Submit(f"r{n}", "flow", "[]", f"s{n}", "seed") for n in range(200)))

        def claim_all(number: int) -> list[tuple[str, int]]:
            mine, worker = crowd[number], f"w{number}"
            claimed: list[tuple[str, int]] = []
            mine.store.acquire_liveness(worker)
            mine.one(RegisterWorker(worker, "host", 1, 60.0))
            while rows := mine.one(Claim(worker, f"{worker}-{len(claimed)}", limit=3)):
                claimed += [(row.id, row.fence) for row in rows]
            return claimed

        claimed = [pair for share in self._together(claim_all) for pair in share]
        assert Counter(id for id, _ in claimed) == Counter(f"r{n}" for n in range(200))
        assert len({fence for _, fence in claimed}) == 200

    def test_a_queue_never_executes_more_than_it_may_over_all_workers(
        self, driver: StoreDriver, crowd: list[StoreDriver]
    ) -> None:
        """Let every worker claim all it can, and count the runs in flight before each settle."""
        driver.one(SetQueueLimits("default", None, 3))
        driver.commit(*(Submit(f"r{n}", "flow", "[]", f"s{n}", "seed") for n in range(60)))
        driver.commit(
            *(Submit(f"c{n}", "flow", "[]", f"c{n}", "seed", parent="r0") for n in range(10))
        )
        workers = [mine.register_worker(f"w{number}") for number, mine in enumerate(crowd)]
        left = 70

        def work(number: int) -> tuple[int, int]:
            nonlocal left
            mine, most, turn = crowd[number], 0, 0
            while left > 0:
                turn += 1
                rows = mine.one(Claim(workers[number], f"{number}-{turn}", limit=5))
                under_way = mine.store.runs(RunQuery(statuses=("running",), limit=100))
                most = max(most, sum(row.parent is None for row in under_way))
                for row in rows:
                    mine.settle(row)
                with counting:
                    left -= len(rows)
            return most, turn

        counting = threading.Lock()
        most = max(share[0] for share in self._together(work))
        assert most == 3
        assert {row.status for row in driver.store.runs(EVERYTHING)} == {"done"}

    def test_a_queue_is_never_deeper_than_it_may_be(
        self, driver: StoreDriver, crowd: list[StoreDriver]
    ) -> None:
        driver.one(SetQueueLimits("default", 10, None))

        def put(number: int) -> int:
            commands: list[Command] = [
                Submit(f"{number}-{n}", "flow", "[]", "t", "s") for n in range(6)
            ]
            many = SubmitMany(
                tuple(Submit(f"{number}+{n}", "flow", "[]", "t", "s") for n in range(3))
            )
            outcomes = [crowd[number].one(command) for command in [*commands, many]]
            accepted = sum(not isinstance(outcome, Refused) for outcome in outcomes[:-1])
            return accepted + (0 if isinstance(outcomes[-1], Refused) else 3)

        assert sum(self._together(put)) == driver.store.depth("default") == 10

    def test_one_run_that_many_want_by_name_goes_to_one(
        self, driver: StoreDriver, crowd: list[StoreDriver]
    ) -> None:
        workers = [mine.register_worker(f"w{number}") for number, mine in enumerate(crowd)]
        for turn in range(20):
            driver.submit(f"r{turn}")
            commands = [Claim(worker, f"{worker}-{turn}", ids=(f"r{turn}",)) for worker in workers]

            def claim(number: int, commands: list[Claim] = commands) -> Any:
                return crowd[number].one(commands[number])

            outcomes = self._together(claim)
            assert sorted(len(rows) for rows in outcomes) == [0] * (CROWD - 1) + [1]

    def test_one_id_that_many_submit_is_new_for_one(self, crowd: list[StoreDriver]) -> None:
        for turn in range(20):
            outcomes = self._together(
                lambda number, turn=turn: crowd[number].one(  # type: ignore[misc]
                    Submit(f"r{turn}", "flow", str(number), f"t{number}", "seed")
                )
            )
            assert sum(outcome.new for outcome in outcomes) == 1
            args = {outcome.row.args for outcome in outcomes if outcome.row is not None}
            assert args == {crowd[0].row(f"r{turn}").args}

    def test_messages_of_many_senders_are_numbered_without_gaps(
        self, driver: StoreDriver, crowd: list[StoreDriver]
    ) -> None:
        row = driver.submit()

        def send(number: int) -> None:
            for turn in range(25):
                crowd[number].one(Send("r", "m", f"{number}-{turn}", "1"))
                crowd[number].one(Send("r", "m", f"all-{turn}", str(number)))

        self._together(send)
        messages = driver.store.messages(row.pk)
        assert [message.number for message in messages] == [*range(1, 25 * (CROWD + 1) + 1)]
        assert len({message.id for message in messages}) == len(messages)
        for number in range(CROWD):
            own = [message.id for message in messages if message.id.startswith(f"{number}-")]
            assert own == [f"{number}-{turn}" for turn in range(25)]

    def test_a_stale_writer_never_gets_between_a_claim_and_its_entries(
        self, driver: StoreDriver, crowd: list[StoreDriver]
    ) -> None:
        """Let every life record two entries under its fence while others may take the run."""
        driver.submit()
        workers = [mine.register_worker(f"w{number}") for number, mine in enumerate(crowd)]
        lives: list[tuple[int, int]] = []
        stop = threading.Event()

        def live(number: int) -> None:
            mine, turn = crowd[number], 0
            while len(lives) < 60 and not stop.is_set():
                turn += 1
                rows = mine.one(Claim(workers[number], f"{number}-{turn}", ids=("r",)))
                if not rows:
                    current = mine.row()
                    mine.one(Release(current.pk, current.fence, "taken away"))
                    continue
                (row,) = rows
                journal = mine.store.journal(row.pk)
                seq = (journal[-1].seq if journal else 0) + 1
                recorded = 0
                for offset in range(2):
                    command = Record(row.pk, seq + offset, row.fence, "step", f"{row.fence}", 1.0)
                    if mine.one(command) is not None:
                        break
                    recorded += 1
                lives.append((row.fence, recorded))

        self._together(live)
        journal = driver.store.journal(driver.row().pk)
        assert [e.seq for e in journal] == [*range(1, len(journal) + 1)]
        steps = Counter(int(e.key) for e in journal if e.kind == "step")
        assert steps == Counter({fence: recorded for fence, recorded in lives if recorded})
        order = [int(e.key) for e in journal if e.kind == "step"]
        assert order == sorted(order), (
            "the entries of an older fence never follow those of a younger one"
        )

    def test_readers_never_see_half_of_a_batch(
        self, driver: StoreDriver, crowd: list[StoreDriver]
    ) -> None:
        row = driver.held()
        stop = threading.Event()

        def read(number: int) -> int:
            looks = 0
            if number == 0:
                try:
                    for turn in range(50):
                        driver.commit(*(entry(row, turn * 10 + n + 1) for n in range(10)))
                finally:
                    stop.set()
            while not stop.is_set():
                assert len(crowd[number].store.journal(row.pk)) % 10 == 0
                looks += 1
            return looks

        self._together(read)
        assert len(driver.store.journal(row.pk)) == 500
