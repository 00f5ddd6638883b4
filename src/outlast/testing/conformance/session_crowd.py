"""Check that concurrent changes of sessions neither get lost nor block each other forever."""

from __future__ import annotations

from outlast.store.commands import (
    LIMIT,
    OWNER,
    PRESENT,
    Append,
    Changed,
    Refused,
    SessionLimits,
    UpdateSession,
    UpdateSessions,
)
from outlast.testing.conformance.crowd import CROWD, Crowd
from outlast.testing.conformance.harness import StoreDriver
from outlast.testing.conformance.session_driver import kept

TURNS = 20


class SessionCrowdContract(Crowd):
    def test_of_many_changes_to_one_version_of_a_session_one_is_made(
        self, driver: StoreDriver, crowd: list[StoreDriver]
    ) -> None:
        def count_up(number: int) -> None:
            done = 0
            while done < 20:
                session = crowd[number].store.session("s")
                version, value = (session.version, int(session.fields["n"])) if session else (0, 0)
                assert version == value, "a session is read as it was at one time"
                kept = crowd[number].one(
                    UpdateSession(
                        "s", f"{number}-{done}-{version}", {"n": str(value + 1)}, version=version
                    )
                )
                done += not isinstance(kept, Refused)

        self._together(count_up)
        session = driver.store.session("s")
        assert session is not None
        assert (session.version, session.fields) == (20 * CROWD, {"n": str(20 * CROWD)})

    def test_of_what_many_append_to_one_list_nothing_is_lost_and_each_is_in_its_order(
        self, driver: StoreDriver, crowd: list[StoreDriver]
    ) -> None:
        def append(number: int) -> None:
            for turn in range(20):
                more = {"l": Append((f"{number}-{turn}a", f"{number}-{turn}b"))}
                version = crowd[number].one(
                    UpdateSession("s", f"{number}-{turn}", {}, appends=more)
                )
                session = crowd[number].store.session("s")
                assert session is not None
                assert session.version >= version
                assert session.lists == {"l": 2 * session.version}, (
                    "a session is read as it was at one time"
                )

        self._together(append)
        items = driver.store.items("s", "l")
        assert len(items) == 40 * CROWD
        for number in range(CROWD):
            own = [item for item in items if item.startswith(f"{number}-")]
            assert own == [f"{number}-{turn}{half}" for turn in range(20) for half in "ab"]
        assert all(one[:-1] == two[:-1] for one, two in zip(items[::2], items[1::2], strict=True))

    def test_of_many_who_set_an_absent_field_one_sets_it(
        self, driver: StoreDriver, crowd: list[StoreDriver]
    ) -> None:
        for turn in range(TURNS):
            outcomes = self._together(
                lambda number, turn=turn: crowd[number].one(  # type: ignore[misc]
                    UpdateSession(f"s{turn}", str(number), {"a": str(number)}, absent=("a",))
                )
            )
            assert sorted(outcomes, key=str) == [1, *[Refused(PRESENT, "1")] * (CROWD - 1)]
            assert kept(driver, f"s{turn}").fields == {"a": str(outcomes.index(1))}

    def test_groups_that_name_their_sessions_in_opposite_order_all_end(
        self, driver: StoreDriver, crowd: list[StoreDriver]
    ) -> None:
        """Let half of the crowd begin at each end, also of sessions that do not exist yet."""

        def change(number: int) -> None:
            for turn in range(TURNS):
                ids = [f"{turn // 5}-{n}" for n in range(5)]
                changes = [
                    UpdateSession(id, f"{number}-{turn}", {}, appends={"l": Append((str(number),))})
                    for id in (ids if number % 2 else reversed(ids))
                ]
                answer = crowd[number].one(UpdateSessions(tuple(changes)))
                assert len(set(answer)) == 1, "all of them change together"

        self._together(change)
        for part in range(TURNS // 5):
            lists = [driver.store.items(f"{part}-{n}", "l") for n in range(5)]
            assert all(items == lists[0] for items in lists)
            assert sorted(lists[0]) == sorted(str(n) for n in range(CROWD) for _ in range(5))

    def test_money_that_groups_move_is_neither_made_nor_lost(
        self, driver: StoreDriver, crowd: list[StoreDriver]
    ) -> None:
        driver.commit(*(UpdateSession(f"a{n}", "t", {"n": "10"}) for n in range(3)))

        def move(number: int) -> int:
            moved = tries = 0
            while moved < TURNS:
                tries += 1
                ids = [f"a{(number + tries) % 3}", f"a{(number + tries + 1 + number % 2) % 3}"]
                rows = [kept(crowd[number], id) for id in ids]
                changes = [
                    UpdateSession(
                        row.id,
                        f"{number}-{tries}",
                        {"n": str(int(row.fields["n"]) + change)},
                        version=row.version,
                    )
                    for row, change in zip(rows, (-1, 1), strict=True)
                ]
                answer = crowd[number].one(UpdateSessions(tuple(changes)))
                moved += not isinstance(answer, Refused)
            return moved

        assert sum(self._together(move)) == TURNS * CROWD
        rows = [kept(driver, f"a{n}") for n in range(3)]
        assert sum(int(row.fields["n"]) for row in rows) == 30
        assert sum(row.version for row in rows) == 3 + 2 * TURNS * CROWD

    def test_items_that_many_pop_go_to_one_each(
        self, driver: StoreDriver, crowd: list[StoreDriver]
    ) -> None:
        items = tuple(str(n) for n in range(60))
        driver.one(UpdateSession("s", "t", {}, appends={"l": Append(items)}))

        def pop(number: int) -> list[str]:
            got: list[str] = []
            while True:
                answer = crowd[number].one(
                    UpdateSession("s", f"{number}-{len(got)}", {}, pops={"l": 2})
                )
                if not isinstance(answer, Changed):
                    return got
                got += answer.popped["l"]

        popped = [item for share in self._together(pop) for item in share]
        assert sorted(popped, key=int) == list(items)

    def test_a_limit_holds_for_all_writers_together(
        self, driver: StoreDriver, crowd: list[StoreDriver]
    ) -> None:
        limits = SessionLimits(fields=10, items=15, popped=99)

        def write(number: int) -> list[int]:
            made = [0, 0]
            for turn in range(TURNS):
                token, name = f"{number}-{turn}", f"f{number}-{turn}"
                for which, command in enumerate(
                    (
                        UpdateSession("f", token, {name: "1"}, limits=limits),
                        UpdateSession("l", token, {}, appends={"l": Append(("1",))}, limits=limits),
                    )
                ):
                    answer = crowd[number].one(command)
                    made[which] += not isinstance(answer, Refused)
                    assert not isinstance(answer, Refused) or answer.why == LIMIT
            return made

        made = self._together(write)
        assert [sum(counts) for counts in zip(*made, strict=True)] == [10, 15]
        assert len(kept(driver, "f").fields) == 10
        assert kept(driver, "l").lists == {"l": 15}

    def test_no_write_of_an_old_owner_follows_the_take_of_a_new_one(
        self, driver: StoreDriver, crowd: list[StoreDriver]
    ) -> None:
        """Let each owner write its number twice, while others take the session."""

        def own(number: int) -> None:
            for turn in range(TURNS):
                taken = crowd[number].one(UpdateSession("s", f"t{number}-{turn}", {}, take=True))
                for part in range(2):
                    answer = crowd[number].one(
                        UpdateSession(
                            "s",
                            f"{number}-{turn}-{part}",
                            {},
                            owner=taken.owner,
                            appends={"l": Append((str(taken.owner),))},
                        )
                    )
                    if isinstance(answer, Refused):
                        assert answer.why == OWNER
                        assert int(answer.detail) > taken.owner

        self._together(own)
        owners = [int(item) for item in driver.store.items("s", "l")]
        assert owners == sorted(owners)
        assert kept(driver).owner == max(owners)
