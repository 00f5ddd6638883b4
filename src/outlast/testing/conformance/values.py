"""Strange ids and values: whatever text is given comes back as it was, or is refused whole."""

from __future__ import annotations

import enum
import json
from typing import Any

import pytest

from outlast.store.protocol import BadValue
from outlast.store.rows import RunQuery
from outlast.store.verbs import Cancel, Claim, Forget, Keep, Prune, Send, Settle, Submit, Verb, Wait
from outlast.testing.conformance.harness import Desk, Promises, entry

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


class ValuePromises(Promises):
    @pytest.mark.parametrize("id", IDS.values(), ids=IDS.keys())
    def test_a_strange_id_is_an_id_like_any_other(self, desk: Desk, id: str) -> None:
        desk.submit("r")
        row = desk.held(id, token=id, workflow=id, queue=id, parent=id)
        assert desk.commit(
            entry(row, 1, key=id),
            Send(id, id, id, "1"),
            Send(id, id, id, "2"),
            Keep(id, id, {id: "1"}),
            Wait(row.pk, row.fence, (id,)),
            Cancel(id, id),
        ) == [None, None, None, 1, None, "running"]
        assert [e.key for e in desk.store.journal(row.pk)] == [id]
        assert [(m.name, m.id, m.value) for m in desk.store.messages(row.pk)] == [(id, id, "1")]
        session = desk.store.session(id)
        assert session is not None
        assert session.fields == {id: "1"}
        assert desk.store.cancels("w1") == [(id, id)]
        query = RunQuery(workflow=id, queue=id, parent=id, waiting_for=id)
        assert [found.id for found in desk.store.runs(query)] == [id]
        assert desk.commit(Settle(row.pk, row.fence, "cancelled", reason=id), Forget(id, id)) == [None, None]
        assert desk.row(id).reason == id
        assert desk.one(Prune(desk.clock.now + 1)) == 1
        assert desk.store.run(id) is None
        assert desk.row("r").status == "queued"

    @pytest.mark.parametrize("id", IDS.values(), ids=IDS.keys())
    def test_a_strange_id_can_be_claimed_by_name_queue_and_workflow(self, desk: Desk, id: str) -> None:
        desk.submit("r")
        desk.submit(id, queue=id, workflow=id)
        desk.enlist()
        assert [row.id for row in desk.one(Claim("w1", "t1", ids=(id,)))] == [id]
        desk.submit(id + "2", queue=id, workflow=id)
        claimed = desk.one(Claim("w1", "t2", queues=(id,), workflows=(id,), limit=5))
        assert [row.id for row in claimed] == [id + "2"]

    @pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
    def test_a_value_comes_back_as_it_was(self, desk: Desk, text: str) -> None:
        row = desk.held(args=text)
        assert desk.commit(
            entry(row, 1, value=text, args=text, error=text),
            Send("r", "m", "1", text),
            Keep("s", "t", {"f": text}),
            Settle(row.pk, row.fence, "failed", text, text, text),
        ) == [None, None, 1, None]
        now = desk.row()
        read = [now.args, now.value, now.error, now.reason]
        for e in desk.store.journal(row.pk):
            read += [e.value, e.args, e.error]
        read += [m.value for m in desk.store.messages(row.pk)]
        session = desk.store.session("s")
        assert session is not None
        read += [session.fields["f"]]
        assert len(read) == 9
        assert all(value == text for value in read)

    @pytest.mark.parametrize(
        "text", [Text("rome"), Word.ROME, City.ROME], ids=["subclass", "StrEnum", "Enum"]
    )
    def test_a_text_of_a_class_of_its_own_is_written_as_its_text(self, desk: Desk, text: str) -> None:
        """It is the key of who asks for `app.each` by an enum's values, and is looked for by its text in the next life."""
        row = desk.held()
        fields = dict.fromkeys(("kind", "key", "args", "value", "error", "cost"), text)
        assert desk.record(row, 1, **fields) is None
        assert desk.commit(entry(row, 2, **fields), entry(row, 3, **fields)) == [None, None]
        assert desk.commit(entry(row, 4, **fields), Send("r", text, text, text)) == [None, None]
        assert [[getattr(e, name) for name in fields] for e in desk.store.journal(row.pk)] == [
            ["rome"] * 6
        ] * 4
        assert [(m.name, m.id, m.value) for m in desk.store.messages(row.pk)] == [("rome", "rome", "rome")]

    def test_no_value_and_an_empty_one_are_two_things(self, desk: Desk) -> None:
        row = desk.held()
        desk.commit(entry(row, 1, value=None), entry(row, 2, value=""))
        assert [e.value for e in desk.store.journal(row.pk)] == [None, ""]

    def test_numbers_come_back_exactly(self, desk: Desk) -> None:
        row = desk.held(priority=-(2**31), timeout=0.1 + 0.2)
        assert (row.priority, row.timeout) == (-(2**31), 0.1 + 0.2)
        desk.record(row, 1, at=1_700_000_000.123_456_7, seconds=1e-9, attempt=2**31)
        (found,) = desk.store.journal(row.pk)
        assert (found.at, found.seconds, found.attempt) == (1_700_000_000.123_456_7, 1e-9, 2**31)

    def test_nothing_is_another_thing_than_zero(self, desk: Desk) -> None:
        zeros: dict[str, Any] = {
            "timeout": 0.0,
            "abandon_after": 0.0,
            "attempts_max": 0,
            "interruptions_max": 0,
        }
        for row in (desk.submit("queued", **zeros), desk.held("held", **zeros)):
            assert {name: getattr(row, name) for name in zeros} == zeros
        (row,) = desk.claim(ids=("queued",))
        assert row.deadline == desk.clock.now
        assert desk.release(row, interrupted=False, failed=True) == "dead"

    @pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
    def test_a_text_that_cannot_be_stored_is_a_bad_value_and_nothing_is_written(
        self, desk: Desk, text: str
    ) -> None:
        row = desk.held()
        batches: list[list[Verb]] = [
            [entry(row, 1), entry(row, 2, value=text)],
            [Keep("s", "t", {"f": "1"}), Send("r", "m", "1", text)],
            [entry(row, 1), Submit("new", "flow", text, "t", "s")],
        ]
        for batch in batches:
            with pytest.raises(BadValue):
                desk.store.commit(batch)
        assert desk.store.journal(row.pk) == []
        assert desk.store.messages(row.pk) == []
        assert desk.store.session("s") is None
        assert desk.store.run("new") is None
        assert desk.record(row, 1) is None  # and the store goes on

    def test_a_number_that_cannot_be_stored_is_a_bad_value_and_nothing_is_written(self, desk: Desk) -> None:
        row = desk.held()
        for bad in (entry(row, 2, attempt=10**30), entry(row, 2, at=float("nan")), entry(row, 2, key=None)):
            with pytest.raises(BadValue):
                desk.commit(entry(row, 1), bad)
        assert desk.store.journal(row.pk) == []
        assert desk.record(row, 1) is None

    def test_reading_what_cannot_be_stored_finds_nothing_or_is_a_bad_value(self, desk: Desk) -> None:
        for read in (
            lambda: desk.store.run("\ud800"),
            lambda: desk.store.session("\ud800"),
            lambda: desk.store.journal(2**70),
        ):
            try:
                assert not read()
            except BadValue:
                continue

    def test_an_empty_batch_is_no_work(self, desk: Desk) -> None:
        assert desk.commit() == []
