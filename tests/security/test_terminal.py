"""Log lines, manifests and usage errors escape control characters."""

from __future__ import annotations

import json
import logging
import sys

import pytest
from security_tools import ESCAPES, FORBIDDEN, Shell, harmless

from outlast.cli import main
from outlast.logs import JSONFormatter, TextFormatter
from outlast.telemetry.logs import FIELDS


class Hostile(Exception):
    """A name cannot be hostile here, its text can."""


def hostile_record() -> logging.LogRecord:
    try:
        raise Hostile(ESCAPES) from ValueError(ESCAPES)
    except Hostile:
        record = logging.LogRecord(
            f"outlast.{ESCAPES}",
            logging.WARNING,
            ESCAPES,
            1,
            f"%s {ESCAPES}",
            (ESCAPES,),
            sys.exc_info(),
        )
    for name in FIELDS:
        setattr(record, name, [ESCAPES, {ESCAPES: 1}] if name == "reason" else ESCAPES)
    record.stack_info = ESCAPES
    return record


@pytest.mark.parametrize("formatter", [TextFormatter(), JSONFormatter()], ids=["text", "json"])
def test_log_lines_escape_control_characters(formatter) -> None:
    text = formatter.format(hostile_record())
    assert not FORBIDDEN & set(text)
    if isinstance(formatter, JSONFormatter):
        assert len(text.splitlines()) == 1
        assert json.loads(text)["message"] == f"{ESCAPES} {ESCAPES}"
    else:
        assert all(line.startswith("    ") for line in text.splitlines()[1:])


MANIFEST = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": ESCAPES, "namespace": ESCAPES},
    "spec": {
        "replicas": ESCAPES,
        "template": {
            "spec": {
                "terminationGracePeriodSeconds": ESCAPES,
                "containers": [
                    {
                        "name": ESCAPES,
                        "image": ESCAPES,
                        "command": ["outlast", "worker", ESCAPES],
                        "env": [{"name": f"OUTLAST_{ESCAPES}", "value": ESCAPES}],
                    }
                ],
                "volumes": [{"name": ESCAPES}],
            }
        },
    },
}


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["people", "json"])
def test_doctor_escapes_control_characters_of_a_manifest(tmp_path, capsys, form) -> None:
    (tmp_path / "deploy.yaml").write_text(json.dumps(MANIFEST))
    (tmp_path / "Dockerfile").write_text(
        f"FROM x\nENV OUTLAST_X={ESCAPES}\nCMD outlast worker {ESCAPES}\n"
    )
    (tmp_path / "worker.service").write_text(
        f"[Service]\nExecStart=/bin/outlast worker {ESCAPES}\nEnvironment=OUTLAST_Y={ESCAPES}\n"
    )
    answer = Shell("memory:", capsys)("doctor", "--manifest", str(tmp_path), *form)
    assert harmless(answer)
    assert answer.code in (1, 2)


@pytest.mark.parametrize(
    "words",
    [
        [ESCAPES], ["runs", "--status", ESCAPES], ["runs", "--workflow", ESCAPES], ["queues", ESCAPES], ["limit", ESCAPES], ["drain", "--worker", ESCAPES],
        ["drains", ESCAPES], ["sessions", ESCAPES], ["sessions", "--prefix", ESCAPES], ["decide", ESCAPES, ESCAPES, "--did-not"], ["send", ESCAPES, ESCAPES],
        ["cancel", ESCAPES], ["retry", ESCAPES], ["resume", ESCAPES], ["worker", ESCAPES], ["submit", ESCAPES], ["run", ESCAPES], ["manifest", "--kind", ESCAPES],
        ["chaos", "--seconds", ESCAPES], ["chaos", "verify", "--since", ESCAPES], ["prune", "--older-than", ESCAPES], ["runs", "--store", f"x://{ESCAPES}"],
        ["doctor", "--manifest", ESCAPES], ["bench", "--seconds", ESCAPES], ["migrate", "--store", f"postgresql://h/x?schema={ESCAPES}"],
    ],
    ids=lambda words: " ".join(word for word in words if word.isprintable()),
)  # fmt: skip
def test_commands_escape_control_characters_of_their_arguments(
    tmp_path, monkeypatch, capsys, words
) -> None:
    """What was typed may have come by a paste, or by a script that has it from somewhere. A few of these words are typer's: it shows marks of direction as they are."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(words)
    out, err = capsys.readouterr()
    assert ended.value.code
    assert "Traceback" not in err
    assert not {"\x1b", "\x07", "\x9b", "\x7f"} & set(out + err)
