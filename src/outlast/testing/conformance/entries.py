"""Check Record and the journal: what was recorded comes back once, in order."""

from __future__ import annotations

from outlast.store.commands import Record, Release
from outlast.store.rows import Entry
from outlast.testing.conformance.harness import Contract, StoreDriver, entry


class EntryContract(Contract):
    def test_an_entry_comes_back_as_it_was_recorded(self, driver: StoreDriver) -> None:
        row = driver.held()
        fields = {
            "kind": "step",
            "key": "flow/ask#1",
            "at": 12.25,
            "args": "f00",
            "value": '{"a": 1}',
            "error": '"e"',
        }
        assert (
            driver.record(row, 1, **fields, seconds=0.5, attempt=3, asked=True, cost='{"usd":0.5}')
            is None
        )
        assert driver.record(row, 2, kind="fired", key="t", at=13.0) is None
        assert driver.store.journal(row.pk) == [
            Entry(
                1,
                "step",
                "flow/ask#1",
                12.25,
                "f00",
                '{"a": 1}',
                '"e"',
                0.5,
                3,
                asked=True,
                cost='{"usd":0.5}',
                fence=row.fence,
            ),
            Entry(2, "fired", "t", 13.0, fence=row.fence),
        ]

    def test_a_batch_of_entries_keeps_its_order(self, driver: StoreDriver) -> None:
        row = driver.held()
        assert (
            driver.commit(*(entry(row, seq, value=str(seq)) for seq in range(1, 501)))
            == [None] * 500
        )
        assert [(e.seq, e.value) for e in driver.store.journal(row.pk)] == [
            (n, str(n)) for n in range(1, 501)
        ]

    def test_the_same_entry_again_is_accepted_and_not_written(self, driver: StoreDriver) -> None:
        row = driver.held()
        first = entry(row, 1, value='"first"')
        assert driver.commit(first, first, entry(row, 2)) == [None, None, None]
        assert driver.one(first) is None
        assert driver.one(first._replace(value='"second"', at=99.0)) is None
        assert [(e.seq, e.value) for e in driver.store.journal(row.pk)] == [
            (1, '"first"'),
            (2, None),
        ]

    def test_the_same_entry_again_is_accepted_even_when_its_fence_is_void(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        driver.record(row, 1)
        driver.settle(row)
        before = driver.store.journal(row.pk)
        assert driver.record(row, 1) is None
        assert driver.store.journal(row.pk) == before

    def test_a_journal_is_read_in_pages(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.commit(*(entry(row, seq) for seq in range(1, 26)))
        pages, after = [], 0
        while page := driver.store.journal(row.pk, after=after, limit=10):
            pages.append([e.seq for e in page])
            after = page[-1].seq
        assert pages == [[*range(1, 11)], [*range(11, 21)], [*range(21, 26)]]
        assert driver.store.journal(row.pk, after=25) == []

    def test_each_run_has_a_journal_of_its_own(self, driver: StoreDriver) -> None:
        one, two = driver.held("one"), driver.held("two")
        driver.commit(entry(one, 1, value="1"), entry(two, 1, value="2"), entry(one, 2, value="3"))
        assert [e.value for e in driver.store.journal(one.pk)] == ["1", "3"]
        assert [e.value for e in driver.store.journal(two.pk)] == ["2"]

    def test_a_run_that_is_not_there_has_no_journal(self, driver: StoreDriver) -> None:
        assert driver.store.journal(123_456) == []
        assert driver.store.messages(123_456) == []

    def test_the_next_life_goes_on_after_the_entries_of_the_store_itself(
        self, driver: StoreDriver
    ) -> None:
        first = driver.held()
        driver.record(first, 1)
        driver.one(Release(first.pk, first.fence, "drain"))
        second = driver.take()
        assert [(e.seq, e.kind) for e in driver.store.journal(second.pk)] == [
            (1, "step"),
            (2, "interruption"),
        ]
        assert driver.one(Record(second.pk, 3, second.fence, "step", "k", 2.0)) is None
        assert driver.kinds(second) == ["step", "interruption", "step"]
