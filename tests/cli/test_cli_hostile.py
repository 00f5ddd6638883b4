"""Text from the store has no power over a terminal."""

from __future__ import annotations

import io
import json

import pytest

from outlast.cli.text import parse_age, readable, safe, span
from outlast.store.commands import Cancel, Send, Settle, SetWaiting

HOSTILE = (
    "\x1b]0;owned\x07 \x1b[2J [red]markup[/red] :smile: \u202eevil \x9b31m \r\n\x7f \u2028 line2"
)
FORBIDDEN = set("\x1b\x07\x9b\r\x7f\u202e\u2028")


def hostile_run(outlast):
    row = outlast.started("r[red]1", args=json.dumps({"topic": HOSTILE}))
    error = json.dumps({"type": f"m:{HOSTILE}", "message": HOSTILE, "traceback": HOSTILE})
    outlast.entry(row, 1, "step", f"key{HOSTILE}#1", value=json.dumps(HOSTILE))
    outlast.entry(row, 2, "step", "raw#1", value=HOSTILE)
    outlast.entry(row, 3, "attempt", "raw#2", error=error, value="NaN", attempt=1)
    outlast.entry(row, 4, "attempt", "raw#3", error=HOSTILE, value=HOSTILE, attempt=1)
    outlast.entry(row, 5, "cancel", value=json.dumps({"why": HOSTILE}))
    outlast.entry(row, 6, "death", value=json.dumps({"why": HOSTILE, "worker": HOSTILE}))
    outlast.entry(row, 7, "interruption", value="7")
    outlast.entry(row, 8, "retry", value=json.dumps({"from": None, "was": HOSTILE}))
    outlast.entry(row, 10, "message", HOSTILE, value="[]")
    outlast.entry(row, 9, HOSTILE[:10], value="1")
    outlast.commit(
        Send("r[red]1", HOSTILE, "m1", HOSTILE), SetWaiting(row.pk, row.fence, ("a\x1bb",))
    )
    outlast.commit(Cancel("r[red]1", HOSTILE))
    return row, error


def harmless(text):
    return not FORBIDDEN & set(text)


@pytest.mark.parametrize("status", [None, "failed", "parked", "cancelled", "dead"])
def test_run_output_escapes_control_characters(outlast, status):
    row, error = hostile_run(outlast)
    if status is not None:
        outlast.commit(
            Settle(
                row.pk,
                row.fence,
                status,
                error=error if status == "failed" else None,
                reason=HOSTILE,
            )
        )
    for words in (["runs"], ["show", "r[red]1"], ["show", "r[red]1", "--full"]):
        answer = outlast(*words)
        assert answer.code == 0
        assert harmless(answer.out + answer.err)
        assert "r[red]1" in answer.out
    assert "[red]markup[/red] :smile:" in answer.out
    for words in (["runs", "--json"], ["show", "r[red]1", "--json"]):
        answer = outlast(*words)
        assert harmless(answer.out)
        assert answer.json


def test_json_preserves_hostile_text(outlast):
    hostile_run(outlast)
    document = outlast("show", "r[red]1", "--json").json
    assert document["run"]["args"]["topic"] == HOSTILE
    assert document["run"]["cancelling"] == HOSTILE
    assert document["journal"][0]["value"] == HOSTILE


def test_a_hostile_result_is_still_json_and_harmless(outlast):
    answer = outlast("run", "agent.py:echo", json.dumps(HOSTILE), "--id", "r1")
    assert harmless(answer.out)
    assert json.loads(answer.out) == HOSTILE


def test_a_hostile_failure_is_one_harmless_line(outlast):
    (outlast.folder / "evil.py").write_text(
        f"from outlast import workflow\n\n@workflow\nasync def w() -> None:\n    raise ValueError({HOSTILE!r})\n"
    )
    answer = outlast("run", "evil.py:w", "--id", "r1")
    assert answer.code == 1
    assert harmless(answer.err)
    assert len(answer.err.splitlines()) == 2  # the second says where it is explained


def test_usage_error_escapes_its_arguments(outlast):
    for words in (
        ["run", f"{HOSTILE}:w"],
        ["run", f"agent.py:{HOSTILE}"],
        ["runs", "--older-than", HOSTILE],
        ["show", HOSTILE],
    ):
        answer = outlast(*words)
        assert answer.code in (1, 2)
        assert not {"\x1b", "\x07", "\x9b"} & set(answer.err)


def test_output_in_colour_holds_no_escape_but_its_own(outlast, monkeypatch):
    hostile_run(outlast)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    out = outlast("show", "r[red]1").out
    assert "\x1b[" in out
    assert "\x1b]" not in out
    assert "\x1b[2J" not in out


def test_a_terminal_of_another_encoding_gets_json_all_the_same(monkeypatch):
    from outlast.cli import output

    raw = io.BytesIO()
    monkeypatch.setattr(
        "sys.stdout", io.TextIOWrapper(raw, encoding="ascii", errors="backslashreplace")
    )
    output.document("é中\x7f")
    assert raw.getvalue().isascii()
    assert json.loads(raw.getvalue()) == "é中\x7f"


LONE_SURROGATES = "\udfff\udc00 \udbff \ud800"
CHARACTERS = LONE_SURROGATES + "".join(
    map(
        chr,
        (
            *range(0xD800),
            *range(0xE000, 0x20000),
            *range(0xE0000, 0xE0200),
            *range(0x10FF00, 0x110000),
        ),
    )
)
"""The first two planes, and what is special in the others."""


def test_safe_text_is_printable():
    assert safe(CHARACTERS).isprintable()


@pytest.mark.parametrize("indent", [None, 2])
def test_readable_json_is_the_same_value(indent):
    text = CHARACTERS
    value = {text: [text, None, True, -1, 10**30, {}, []], "": {"a": text}}
    shown = readable(value, indent)
    assert shown.replace("\n", "").isprintable()
    assert json.loads(shown) == value


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("5m", 300),
        ("2h", 7200),
        ("7d", 604800),
        ("1w", 604800),
        ("1h30m", 5400),
        ("0.5s", 0.5),
    ],
)
def test_age_has_a_number_and_a_unit(text, seconds):
    assert parse_age(text) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.25, "250 ms"),
        (0.9999, "1.0 s"),
        (59.96, "1 min"),
        (90, "1 min 30 s"),
        (3660, "1 h 1 min"),
        (90_000, "1 d 1 h"),
        (-1, "-1.0 s"),
    ],
)
def test_duration_is_rounded_for_people(seconds, text):
    assert span(seconds) == text
