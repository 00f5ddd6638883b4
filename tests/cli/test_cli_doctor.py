"""The command line of `outlast doctor`: files as a shell or a pipe gives them, and findings that can be read."""

import fcntl
import io
import os
import pty
import re
import struct
import sys
import termios
from pathlib import Path

import pytest

from outlast.store.commands import Claim, Sweep
from support.spawned import spawn
from support.waiting import WAIT_SECONDS

DOCKERFILE = 'FROM python:3.12\nENTRYPOINT ["outlast"]\nCMD ["worker", "agents.py"]\n'
UNIT = "[Service]\nExecStart=/bin/sh -c 'outlast worker agents.py'\nKillMode=mixed\n"
POD = """
kind: Pod
metadata: {name: agents}
spec:
  terminationGracePeriodSeconds: 20
  containers:
    - {name: worker, command: [outlast, worker, agents.py]}
"""


def test_doctor_reads_every_file_of_a_glob(outlast):
    (outlast.folder / "Dockerfile").write_text(DOCKERFILE)
    (outlast.folder / "agents.service").write_text(UNIT)
    answer = outlast("doctor", "--json", "--manifest", "Dockerfile", "agents.service")
    assert answer.code == 1
    assert {one["where"].partition(":")[0] for one in answer.json["findings"]} == {
        "Dockerfile",
        "agents.service",
    }


def test_doctor_reads_the_manifests_of_a_folder(outlast):
    deploy = outlast.folder / "deploy"
    (deploy / "more").mkdir(parents=True)
    (deploy / "pod.yaml").write_text(POD)
    (deploy / "agents.service").write_text(UNIT)
    (deploy / "Dockerfile").write_text(DOCKERFILE)
    (deploy / "values.yml").write_text("image: {tag: 1}\n")
    (deploy / "README.md").write_text("no manifest")
    (deploy / "more" / "pod.yaml").write_text("{[")
    answer = outlast("doctor", "--json", "--manifest", "deploy")
    assert answer.code == 1
    checks = [one for one in answer.json["findings"] if one["check"] == "files"]
    assert [(one["level"], one["what"]) for one in checks] == [
        (
            "note",
            "values.yml is left out: it has neither a `kind` (Kubernetes) nor `services` (compose).",
        ),
        (
            "ok",
            "read: Dockerfile, agents.service, pod.yaml. Its subfolders (more) are not read.",
        ),
    ]
    judged = {one["where"].partition(":")[0] for one in answer.json["findings"]}
    assert judged == {"deploy", "deploy/Dockerfile", "deploy/agents.service", "deploy/pod.yaml"}


def test_doctor_refuses_folders_without_readable_manifests(outlast):
    deploy = outlast.folder / "deploy"
    deploy.mkdir()
    (deploy / "README.md").write_text("no manifest")
    answer = outlast("doctor", "--manifest", "deploy")
    assert answer.code == 2 and "deploy has no manifest" in answer.err
    (deploy / "pod.yaml").write_text("{[")
    answer = outlast("doctor", "--manifest", "deploy")
    assert answer.code == 2 and "deploy/pod.yaml" in answer.err and "not valid YAML" in answer.err


def test_doctor_reads_a_manifest_from_stdin(outlast, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(POD.encode())))
    answer = outlast("doctor", "--manifest", "-")
    assert answer.code == 1
    assert "terminationGracePeriodSeconds is 20 s" in answer.out
    assert "outlast: 1 error, 0 warnings.\n" in answer.err


def test_doctor_skips_checks_of_a_wrong_setting(outlast):
    env = "- {name: worker, env: [{name: OUTLAST_GRACE, value: '9 s'}],"
    (outlast.folder / "pod.yaml").write_text(POD.replace("- {name: worker,", env))
    answer = outlast("doctor", "--json", "--manifest", "pod.yaml")
    (wrong,) = [one for one in answer.json["findings"] if one["level"] == "error"]
    assert (
        "OUTLAST_GRACE='9 s'" in wrong["what"]
        and "Checks that depend on it were skipped" in wrong["fix"]
    )
    judged = {one["check"] for one in answer.json["findings"]}
    assert not {"grace", "rollout"} & judged and {"lease", "signals", "filesystem"} <= judged


def lines_on_a_terminal(words: list[str], folder: object, columns: int) -> list[str]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    with Path(os.devnull).open("w") as nowhere:
        process = spawn(words, stdout=theirs, stderr=nowhere, cwd=folder, env=env)
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 65536):
            said += part
    except OSError:  # the other end is closed: Linux says so by an error
        process.wait(WAIT_SECONDS)
    finally:
        os.close(ours)
    return re.sub(r"\x1b\[[0-9;]*m", "", said.decode()).splitlines()


def test_doctor_wraps_findings_only_on_a_terminal(outlast, tmp_path):
    (tmp_path / "pod.yaml").write_text(POD)
    words = [sys.executable, "-u", "-m", "outlast", "doctor", "--manifest", "pod.yaml"]
    lines = lines_on_a_terminal(words, tmp_path, 72)
    assert max(map(len, lines)) <= 72
    assert lines[0].startswith("ok ")
    assert [line for line in lines if line.startswith(" " * 18)], (
        "what is broken goes on beneath itself"
    )
    piped = outlast("doctor", "--manifest", "pod.yaml")
    assert max(map(len, piped.out.splitlines())) > 72


UNSAFE = """
import time
raise RuntimeError("a file that is checked is not imported")
from outlast import workflow

@workflow
async def report() -> float:
    return time.time()
"""


def test_doctor_checks_workflows_without_importing_them(outlast):
    (outlast.folder / "unsafe.py").write_text(UNSAFE)
    answer = outlast("doctor", "unsafe.py", "--json")
    (finding,) = answer.json["findings"]
    assert (answer.code, finding["check"], finding["level"]) == (0, "determinism", "warning")
    assert finding["what"].startswith("workflow report calls time.time()")
    assert (finding["fix"], finding["where"]) == ("Use now() instead.", "unsafe.py:8")
    assert outlast("doctor", "unsafe.py", "--strict").code == 1


@pytest.mark.parametrize(
    ("text", "code", "level"),
    [
        ("from outlast import workflow\n\n@workflow\nasync def w() -> None: ...\n", 0, "ok"),
        ("x = 1\n", 0, "note"),
        ("def broken(:\n", 1, "error"),
    ],
)
def test_doctor_reports_on_any_python_file(outlast, text, code, level):
    (outlast.folder / "some.py").write_text(text)
    answer = outlast("doctor", "some.py", "--json")
    assert (answer.code, [one["level"] for one in answer.json["findings"]]) == (code, [level])


def test_a_python_file_that_is_not_there_is_an_error(outlast):
    answer = outlast("doctor", "nowhere.py")
    assert answer.code == 2
    assert "nowhere.py" in answer.err


def test_doctor_tells_an_unclaimed_queue_from_an_unknown_workflow(outlast):
    outlast.registered(queues=("q2",))
    outlast.submitted("r1", queue="q4")
    outlast.submitted("r2", workflow="old", queue="q2")
    found = {one["where"]: one for one in outlast("doctor", "--json").json["findings"]}
    assert found["queue q4"]["what"] == (
        "runs of report are ready, and no live worker claims from this queue."
    )
    assert "--queue q4" in found["queue q4"]["fix"]
    assert found["queue q2"]["what"] == "runs wait for workflows that no live worker knows: old."


def test_doctor_warns_of_runs_that_keep_losing_their_workers(outlast):
    outlast.started("r1", lease=0.0)
    outlast.commit(Sweep())

    def warned():
        findings = outlast("doctor", "--json").json["findings"]
        return [one["what"] for one in findings if "lost several workers" in one["what"]]

    assert warned() == [], "one death is not to blame on a run"
    outlast.registered("w2", lease=0.0)
    outlast.commit(Claim("w2", "t", ids=("r1",)), Sweep(backoff=0.0))
    assert warned() == ["1 run has lost several workers in a row with nothing recorded: r1."]
