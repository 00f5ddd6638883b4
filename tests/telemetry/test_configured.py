"""`outlast.logs.configure`: a worker's log lines, for any program."""

import json
import textwrap
from pathlib import Path

import pytest

from support.processes import Program

PROGRAM = """
    import logging
    import outlast.logs
    {before}
    outlast.logs.configure({form})
    logging.getLogger("outlast.mine").info("hello", extra={{"run": "r1", "step": "s#1", "attempt": 2, "fence": 7}})
"""


def printed(folder: Path, form: str = "", before: str = "") -> str:
    program = textwrap.dedent(PROGRAM).format(form=form, before=before)
    with Program.python("-c", program, folder=folder) as process:
        assert (process.wait(), process.output) == (0, ""), process.describe()
        return process.errors


@pytest.mark.parametrize("form", ["", '"json"'])
def test_log_lines_are_json_without_a_terminal(tmp_path, form):
    line = json.loads(printed(tmp_path, form))
    assert {name: line[name] for name in ("level", "logger", "message", "run", "step", "attempt", "fence")} == {
        "level": "info", "logger": "outlast.mine", "message": "hello", "run": "r1", "step": "s#1", "attempt": 2, "fence": 7,
    }  # fmt: skip


def test_text_format_appends_fields(tmp_path):
    assert printed(tmp_path, '"text"').endswith(
        "outlast.mine  hello  run=r1 step=s#1 attempt=2 fence=7\n"
    )


def test_existing_logging_setup_is_kept_unless_a_format_is_given(tmp_path):
    own = "logging.basicConfig(level='INFO', format='mine %(message)s %(run)s')"
    assert printed(tmp_path, before=own) == "mine hello r1\n"
    assert json.loads(printed(tmp_path, '"json"', before=own))["run"] == "r1"


def test_unknown_log_format_is_refused():
    with pytest.raises(ValueError, match="xml"):
        __import__("outlast.logs").logs.configure("xml")
