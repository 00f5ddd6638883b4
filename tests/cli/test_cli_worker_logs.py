"""Log lines of a worker as JSON and as text."""

import json
import logging
import sys

import pytest

from outlast.logs import JSONFormatter, TextFormatter


def record(message="claimed %s", args=("it",), **extra):
    made = logging.LogRecord("outlast.worker", logging.INFO, __file__, 1, message, args, None)
    made.created = 1_700_000_000.25
    for name, value in extra.items():
        setattr(made, name, value)
    return made


def test_json_log_line_has_only_known_fields():
    made = record(
        event="claimed",
        run="r1",
        worker="w1",
        fence=7,
        queue="q",
        workflow="w",
        status="done",
        seconds=0.25,
        x=1,
    )
    assert json.loads(JSONFormatter().format(made)) == {
        "time": "2023-11-14T22:13:20.250000Z", "level": "info", "logger": "outlast.worker", "event": "claimed",
        "message": "claimed it", "run": "r1", "workflow": "w", "status": "done", "worker": "w1", "fence": 7, "queue": "q",
        "seconds": 0.25,
    }  # fmt: skip


def test_text_log_line_has_key_value_pairs():
    line = TextFormatter().format(
        record(run="r 1", worker="w1", fence=7, seconds=0.25, queues=["a", "b"])
    )
    assert line == (
        '2023-11-14 22:13:20.250  INFO     outlast.worker  claimed it  run="r 1" worker=w1 fence=7 queues=["a", "b"] seconds=0.25'
    )


@pytest.mark.parametrize("formatter", [JSONFormatter(), TextFormatter()])
def test_a_log_line_has_no_power_over_a_terminal(formatter):
    hostile = "\x1b]0;owned\x07\r\nline2 \u202e\x9b31m\x7f"
    try:
        raise ValueError(hostile)
    except ValueError:
        trace = sys.exc_info()
    made = record(hostile, (), run=hostile, queue=hostile, event=hostile)
    assert "\n" not in formatter.format(made)
    made.exc_info = trace
    line = formatter.format(made)
    assert all(char.isprintable() or char == "\n" for char in line)
    assert "ValueError" in line
    if isinstance(formatter, JSONFormatter):
        assert json.loads(line)["run"] == hostile


def test_log_record_with_odd_extras_is_one_line():
    made = record("%d", ("x",), run=object, seconds=float("nan"), fence=None, workers={"a"})
    document = json.loads(JSONFormatter().format(made))
    assert document["message"].startswith("%d (TypeError")
    assert document["workers"] == ["a"]
    assert document["seconds"] is None
    assert "fence" not in document
