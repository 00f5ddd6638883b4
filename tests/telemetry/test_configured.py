"""`outlast.logs.configure`: a worker's log lines, for any program."""

import json
import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
    import logging
    import outlast.logs
    {before}
    outlast.logs.configure({form})
    logging.getLogger("outlast.mine").info("hello", extra={{"run": "r1", "step": "s#1", "attempt": 2, "fence": 7}})
"""


def printed(form: str = "", before: str = "") -> str:
    program = textwrap.dedent(PROGRAM).format(form=form, before=before)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == ""
    return done.stderr


@pytest.mark.parametrize("form", ["", '"json"'])
def test_where_there_is_no_terminal_a_line_is_an_object(form):
    line = json.loads(printed(form))
    assert {name: line[name] for name in ("level", "logger", "message", "run", "step", "attempt", "fence")} == {
        "level": "info", "logger": "outlast.mine", "message": "hello", "run": "r1", "step": "s#1", "attempt": 2, "fence": 7,
    }  # fmt: skip


def test_text_is_for_people():
    assert printed('"text"').endswith("outlast.mine  hello run=r1 step=s#1 attempt=2 fence=7\n")


def test_a_program_that_has_set_up_logging_keeps_its_own_unless_it_asks():
    own = "logging.basicConfig(level='INFO', format='mine %(message)s %(run)s')"
    assert printed(before=own) == "mine hello r1\n"
    assert json.loads(printed('"json"', before=own))["run"] == "r1"


def test_a_form_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="xml"):
        __import__("outlast.logs").logs.configure("xml")
