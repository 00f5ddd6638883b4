"""Check unusual ids and values: any text comes back unchanged, or is refused as a whole."""

from __future__ import annotations

import enum
import json
from typing import Any

import pytest

from outlast.store.commands import (
    Cancel,
    Claim,
    Command,
    DeleteSession,
    Prune,
    Send,
    Settle,
    SetWaiting,
    Submit,
    UpdateSession,
)
from outlast.store.protocol import BadValue
from outlast.store.rows import RunQuery
from outlast.testing.conformance.harness import Contract, StoreDriver, entry

IDS = {
    "path": "../../etc/x",
    "absolute": "/etc/passwd",
    "quotes": """it's "quoted" `here` ''""",
    "sql": "'; DROP TABLE runs; --",
    "wildcards": "100%_*?[a]",
    "braces": "{0} {id} %s $1 :id ?1",
    "emoji": "🌊🧑‍🚀 é ẞ 漢字",
    "spaces": "  two  spaces  ",
    "backslash": "a\\b\\u0000\\n",
    "colons": "a:b::c{d}",
    "long": "x" * 500,
    "long emoji": "🌊" * 500,
    "json": '["r"]',
}

TEXTS = {
    "empty": "",
    "null escaped": '"a\\u0000b"',
    "lone surrogate escaped": '"\\ud800"',
    "nan": "[NaN, Infinity, -Infinity]",
    "big integer": str(10**4000),
    "negative": str(-(2**70)),
    "deep": "[" * 20_000 + "]" * 20_000,
    "five megabytes": json.dumps("ab\n" * 1_300_000),
    "emoji": '"🌊🧑‍🚀"',
    "not json": "{",
    "newlines": "a\r\nb\n\n",
    "number": "1e400",
    "looks like null": "null",
}


class Text(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return "a text of another class"

    __str__ = __repr__


class Word(enum.StrEnum):
    ROME = "rome"


class City(str, enum.Enum):  # noqa: UP042 - its str() is "City.ROME"
    ROME = "rome"


class ValueContract(Contract):
    @pytest.mark.parametrize("id", IDS.values(), ids=IDS.keys())
    def test_a_strange_id_is_an_id_like_any_other(self, driver: StoreDriver, id: str) -> None:
        driver.submit("r")
        row = driver.held(id, token=id, workflow=id, queue=id, parent=id)
        assert driver.commit(
            entry(row, 1, key=id),
            Send(id, id, id, "1"),
            Send(id, id, id, "2"),
            UpdateSession(id, id, {id: "1"}),
            SetWaiting(row.pk, row.fence, (id,)),
            Cancel(id, id),
        ) == [None, None, None, 1, None, "running"]
        assert [e.key for e in driver.store.journal(row.pk)] == [id]
        assert [(m.name, m.id, m.value) for m in driver.store.messages(row.pk)] == [(id, id, "1")]
        session = driver.store.session(id)
        assert session is not None
        assert session.fields == {id: "1"}
        assert driver.store.cancels("w1") == [(id, id)]
        query = RunQuery(workflow=id, queue=id, parent=id, waiting_for=id)
        assert [found.id for found in driver.store.runs(query)] == [id]
        assert driver.commit(
            Settle(row.pk, row.fence, "cancelled", reason=id), DeleteSession(id, id)
        ) == [
            None,
            None,
        ]
        assert driver.row(id).reason == id
        assert driver.one(Prune(driver.clock.now + 1)) == 1
        assert driver.store.run(id) is None
        assert driver.row("r").status == "queued"

    @pytest.mark.parametrize("id", IDS.values(), ids=IDS.keys())
    def test_a_strange_id_can_be_claimed_by_name_queue_and_workflow(
        self, driver: StoreDriver, id: str
    ) -> None:
        driver.submit("r")
        driver.submit(id, queue=id, workflow=id)
        driver.register_worker()
        assert [row.id for row in driver.one(Claim("w1", "t1", ids=(id,)))] == [id]
        driver.submit(id + "2", queue=id, workflow=id)
        claimed = driver.one(Claim("w1", "t2", queues=(id,), workflows=(id,), limit=5))
        assert [row.id for row in claimed] == [id + "2"]

    @pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
    def test_a_value_comes_back_as_it_was(self, driver: StoreDriver, text: str) -> None:
        row = driver.held(args=text)
        assert driver.commit(
            entry(row, 1, value=text, args=text, error=text),
            Send("r", "m", "1", text),
            UpdateSession("s", "t", {"f": text}),
            Settle(row.pk, row.fence, "failed", text, text, text),
        ) == [None, None, 1, None]
        now = driver.row()
        read = [now.args, now.value, now.error, now.reason]
        for e in driver.store.journal(row.pk):
            read += [e.value, e.args, e.error]
        read += [m.value for m in driver.store.messages(row.pk)]
        session = driver.store.session("s")
        assert session is not None
        read += [session.fields["f"]]
        assert len(read) == 9
        assert all(value == text for value in read)

    @pytest.mark.parametrize(
        "text", [Text("rome"), Word.ROME, City.ROME], ids=["subclass", "StrEnum", "Enum"]
    )
    def test_a_text_of_a_class_of_its_own_is_written_as_its_text(
        self, driver: StoreDriver, text: str
    ) -> None:
        """Calling `app.each` with an enum's values makes such a text the key.

        The next life looks it up by its plain text.
        """
        row = driver.held()
        fields = dict.fromkeys(("kind", "key", "args", "value", "error", "cost"), text)
        assert driver.record(row, 1, **fields) is None
        assert driver.commit(entry(row, 2, **fields), entry(row, 3, **fields)) == [None, None]
        assert driver.commit(entry(row, 4, **fields), Send("r", text, text, text)) == [None, None]
        assert [[getattr(e, name) for name in fields] for e in driver.store.journal(row.pk)] == [
            ["rome"] * 6
        ] * 4
        assert [(m.name, m.id, m.value) for m in driver.store.messages(row.pk)] == [
            ("rome", "rome", "rome")
        ]

    def test_no_value_and_an_empty_one_are_two_things(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.commit(entry(row, 1, value=None), entry(row, 2, value=""))
        assert [e.value for e in driver.store.journal(row.pk)] == [None, ""]

    def test_numbers_come_back_exactly(self, driver: StoreDriver) -> None:
        row = driver.held(priority=-(2**31), timeout=0.1 + 0.2)
        assert (row.priority, row.timeout) == (-(2**31), 0.1 + 0.2)
        driver.record(row, 1, at=1_700_000_000.123_456_7, seconds=1e-9, attempt=2**31)
        (found,) = driver.store.journal(row.pk)
        assert (found.at, found.seconds, found.attempt) == (1_700_000_000.123_456_7, 1e-9, 2**31)

    def test_nothing_is_another_thing_than_zero(self, driver: StoreDriver) -> None:
        zeros: dict[str, Any] = {
            "timeout": 0.0,
            "abandon_after": 0.0,
            "attempts_max": 0,
            "interruptions_max": 0,
        }
        for row in (driver.submit("queued", **zeros), driver.held("held", **zeros)):
            assert {name: getattr(row, name) for name in zeros} == zeros
        (row,) = driver.claim(ids=("queued",))
        assert row.deadline == driver.clock.now
        assert driver.release(row, interrupted=False, failed=True) == "dead"

    @pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
    def test_a_text_that_cannot_be_stored_is_a_bad_value_and_nothing_is_written(
        self, driver: StoreDriver, text: str
    ) -> None:
        row = driver.held()
        batches: list[list[Command]] = [
            [entry(row, 1), entry(row, 2, value=text)],
            [UpdateSession("s", "t", {"f": "1"}), Send("r", "m", "1", text)],
            [entry(row, 1), Submit("new", "flow", text, "t", "s")],
        ]
        for batch in batches:
            with pytest.raises(BadValue):
                driver.store.commit(batch)
        assert driver.store.journal(row.pk) == []
        assert driver.store.messages(row.pk) == []
        assert driver.store.session("s") is None
        assert driver.store.run("new") is None
        # The store keeps working.
        assert driver.record(row, 1) is None

    def test_a_number_that_cannot_be_stored_is_a_bad_value_and_nothing_is_written(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        for bad in (
            entry(row, 2, attempt=10**30),
            entry(row, 2, at=float("nan")),
            entry(row, 2, key=None),
        ):
            with pytest.raises(BadValue):
                driver.commit(entry(row, 1), bad)
        assert driver.store.journal(row.pk) == []
        assert driver.record(row, 1) is None

    def test_reading_what_cannot_be_stored_finds_nothing_or_is_a_bad_value(
        self, driver: StoreDriver
    ) -> None:
        for read in (
            lambda: driver.store.run("\ud800"),
            lambda: driver.store.session("\ud800"),
            lambda: driver.store.journal(2**70),
        ):
            try:
                assert not read()
            except BadValue:
                continue

    def test_an_empty_batch_is_no_work(self, driver: StoreDriver) -> None:
        assert driver.commit() == []
