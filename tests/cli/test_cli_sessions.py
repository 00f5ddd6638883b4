"""`outlast sessions`: list, show, delete."""

from __future__ import annotations

import json

from outlast.store.commands import CHECKPOINT, SESSION_MEMORY, Append, UpdateSession


def fill(outlast) -> None:
    turns = tuple(json.dumps({"who": "user", "text": f"turn {n}"}) for n in range(15))
    outlast.commit(
        UpdateSession(
            "user:ada",
            "t",
            {"name": '"Ada"', "age": "36"},
            ttl=3600.0,
            appends={"turns": Append(turns)},
        ),
        UpdateSession("user:bob", "t", {"name": '"Bob"'}),
        UpdateSession("import", "t", {"page": "3", "done:fetch": "null"}, space=CHECKPOINT),
    )


def test_sessions_are_listed(outlast) -> None:
    fill(outlast)
    answer = outlast("sessions")
    assert answer.code == 0
    head, bob, ada = answer.out.splitlines()
    assert head.split() == ["ID", "VERSION", "UPDATED", "EXPIRES", "FIELDS"]
    assert bob.split()[0] == "user:bob"
    assert "never" in bob
    assert "age, name, turns[15]" in ada
    assert "in 1 h" in ada or "in 59 min" in ada


def test_a_list_has_a_prefix_and_a_limit(outlast) -> None:
    fill(outlast)
    found = outlast("sessions", "--prefix", "user:a", "--json").json
    assert [one["id"] for one in found["sessions"]] == ["user:ada"]
    assert found["sessions"][0]["lists"] == {"turns": 15}
    assert found["sessions"][0]["fields"] == ["age", "name"]
    one = outlast("sessions", "--limit", "1", "--json").json
    assert (len(one["sessions"]), one["more"]) == (1, True)
    assert "Showing 1 session;" in outlast("sessions", "--limit", "1").err
    assert "no sessions match" in outlast("sessions", "--prefix", "user_").err


def test_one_is_shown_with_its_fields_and_last_items(outlast) -> None:
    fill(outlast)
    answer = outlast("sessions", "user:ada")
    assert answer.code == 0
    assert 'name = "Ada"' in answer.out
    assert "turns: 15 items, the last 10" in answer.out
    assert "turn 14" in answer.out
    assert "turn 4" not in answer.out
    assert "turn 0" in outlast("sessions", "user:ada", "--limit", "15").out
    shown = outlast("sessions", "user:ada", "--limit", "2", "--json").json["session"]
    assert shown["values"] == {"age": 36, "name": "Ada"}
    assert [turn["text"] for turn in shown["last"]["turns"]] == ["turn 13", "turn 14"]


def test_checkpoints_are_shown_too(outlast) -> None:
    fill(outlast)
    assert [
        one["id"] for one in outlast("sessions", "--checkpoints", "--json").json["checkpoints"]
    ] == ["import"]
    assert "page = 3" in outlast("sessions", "import", "--checkpoints").out
    answer = outlast("sessions", "import")
    assert (answer.code, "no session has the id 'import'" in answer.err) == (3, True)


def test_sessions_delete_removes_one_session(outlast) -> None:
    fill(outlast)
    answer = outlast("sessions", "user:ada", "--delete")
    assert (answer.code, "deleted session user:ada (it was at version 1)" in answer.err) == (
        0,
        True,
    )
    answer = outlast("sessions", "user:ada", "--delete", "--json")
    assert (answer.code, answer.json["error"]["type"]) == (3, "UnknownSession")
    assert (
        outlast("sessions", "import", "--delete", "--checkpoints", "--json").json["deleted"]["id"]
        == "import"
    )
    assert [one["id"] for one in outlast("sessions", "--json").json["sessions"]] == ["user:bob"]


def test_looking_moves_no_expiry(outlast) -> None:
    fill(outlast)
    first = outlast("sessions", "user:ada", "--json").json["session"]["expires"]
    outlast("sessions")
    assert outlast("sessions", "user:ada", "--json").json["session"]["expires"] == first


def test_contradictory_arguments_of_sessions_are_refused(outlast) -> None:
    fill(outlast)
    assert outlast("sessions", "--delete").code == 2
    assert outlast("sessions", "x", "--prefix", "y").code == 2
    assert outlast("sessions", "a\nb").code == 2


def test_session_output_escapes_control_characters(outlast) -> None:
    outlast.commit(
        UpdateSession(
            "evil\x1b[31m",
            "t",
            {"na\x1b[2Jme": '"\\u001b[31m"'},
            appends={"l\n": Append(('"x\u202e"',))},
        )
    )
    for words in (("sessions",), ("sessions", "--json")):
        out = outlast(*words).out
        assert "\x1b" not in out
        assert "\u202e" not in out


def test_pruning_deletes_what_has_expired(outlast) -> None:
    import sqlite3
    from contextlib import closing

    outlast.commit(
        UpdateSession("gone", "t", {}, ttl=0.001),
        UpdateSession("just gone", "t", {}, ttl=0.001),
        UpdateSession("stays", "t", {}),
    )
    with closing(sqlite3.connect(outlast.db)) as db:
        db.execute("UPDATE sessions SET expires = expires - ? WHERE id = 'gone'", (SESSION_MEMORY,))
        db.commit()
        assert outlast("prune", "--older-than", "7d").code == 0
        assert db.execute("SELECT id FROM sessions ORDER BY id").fetchall() == [
            ("just gone",),
            ("stays",),
        ]


PROGRAM = """
from outlast import VersionConflict, session, workflow


@workflow
async def chat() -> None:
    s = session("s")
    await s.append("turns", "hello")
    try:
        await s.set("a", 1, version=9)
    except VersionConflict:
        pass
"""


def test_the_timeline_of_a_run_says_what_it_did_with_sessions(outlast) -> None:
    (outlast.folder / "chat.py").write_text(PROGRAM)
    assert outlast("run", "chat.py:chat", "--id", "r").code == 0
    out = outlast("show", "r").out
    assert "session.append#1  s: append turns → version 1" in out
    assert "s: set a → refused, it was at version 1" in out


READER = """
from outlast import session, update_sessions, workflow


@workflow
async def reader() -> None:
    s = session("s")
    await s.update({"a": 1, "b": 2})
    await s.set("long", "y" * 3000)
    await s.get("a")
    await s.get("none")
    await s.last("turns")
    await s.info()
    await s.delete("a")
    await s.update({"c": 1}, append={"turns": [1, 2, 3]}, delete=["b"])
    await s.set("c", 2, if_absent=True)
    await s.pop("turns", 2)
    await s.replace("turns", -1, 4)
    await s.range("turns", 0, 1)
    await s.fields("c")
    await update_sessions(s.change(c=3), session("other").change(append={"l": [1]}))
    await s.clear()
"""


def test_the_timeline_says_which_fields_a_run_read_and_changed(outlast) -> None:
    (outlast.folder / "reader.py").write_text(READER)
    assert outlast("run", "reader.py:reader", "--id", "r").code == 0
    said = [line.partition("s: ")[2] for line in outlast("show", "r").out.splitlines()]
    assert [one for one in said if one] == [
        "update a, b → version 1",
        "set long → version 2",
        "get a → 1",
        "get none → nothing",
        "last turns → []",
        "info → version 2",
        "delete a → version 3",
        "update turns, b, c → version 4",
        "set c → not set, it has a value (version 4)",
        "pop turns → version 5, 2 items",
        "replace turns → version 6",
        "range turns → [4]",
        'fields c → {"c": 1}',
        "clear",
    ]
    assert "s, other: update_sessions → version 7; version 1" in outlast("show", "r").out
