"""The command line of `outlast doctor`: files as a shell or a pipe gives them, and findings that can be read."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

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


def test_files_that_a_shell_has_made_of_a_pattern_are_all_looked_at(outlast):
    (outlast.folder / "Dockerfile").write_text(DOCKERFILE)
    (outlast.folder / "agents.service").write_text(UNIT)
    answer = outlast("doctor", "--json", "--manifest", "Dockerfile", "agents.service")
    assert answer.code == 1
    assert {one["where"].partition(":")[0] for one in answer.json["findings"]} == {
        "Dockerfile",
        "agents.service",
    }


def test_of_a_folder_its_manifests_are_taken_and_it_is_said_which(outlast):
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
        ("note", "values.yml is left out: it has neither a `kind` (Kubernetes) nor `services` (compose)."),
        ("ok", "read: Dockerfile, agents.service, pod.yaml. The folders in it (more) are not looked into."),
    ]
    judged = {one["where"].partition(":")[0] for one in answer.json["findings"]}
    assert judged == {"deploy", "deploy/Dockerfile", "deploy/agents.service", "deploy/pod.yaml"}


def test_a_folder_without_a_manifest_is_refused_and_so_is_a_broken_file_in_one(outlast):
    deploy = outlast.folder / "deploy"
    deploy.mkdir()
    (deploy / "README.md").write_text("no manifest")
    answer = outlast("doctor", "--manifest", "deploy")
    assert answer.code == 2 and "deploy has no manifest in it" in answer.err
    (deploy / "pod.yaml").write_text("{[")
    answer = outlast("doctor", "--manifest", "deploy")
    assert answer.code == 2 and "deploy/pod.yaml" in answer.err and "no YAML" in answer.err


def test_a_manifest_comes_through_a_pipe(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "outlast", "doctor", "--manifest", "-"],
        input=POD, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    assert "terminationGracePeriodSeconds is 20 s" in done.stdout
    assert "outlast: 1 error, 0 warnings.\n" in done.stderr


def test_what_goes_by_a_wrong_setting_is_said_to_be_left_out_and_the_rest_is_judged(outlast):
    env = "- {name: worker, env: [{name: OUTLAST_GRACE, value: '9 s'}],"
    (outlast.folder / "pod.yaml").write_text(POD.replace("- {name: worker,", env))
    answer = outlast("doctor", "--json", "--manifest", "pod.yaml")
    (wrong,) = [one for one in answer.json["findings"] if one["level"] == "error"]
    assert "OUTLAST_GRACE='9 s'" in wrong["what"] and "What goes by it is not judged" in wrong["fix"]
    judged = {one["check"] for one in answer.json["findings"]}
    assert not {"grace", "rollout"} & judged and {"lease", "signals", "filesystem"} <= judged


def lines_on_a_terminal(words: list[str], folder: object, columns: int) -> list[str]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    process = subprocess.Popen(words, cwd=folder, stdout=theirs, stderr=subprocess.DEVNULL, env=env)
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 65536):
            said += part
    except OSError:  # the other end is closed: Linux says so by an error
        process.wait(60)
    finally:
        os.close(ours)
    return re.sub(r"\x1b\[[0-9;]*m", "", said.decode()).splitlines()


def test_findings_are_broken_on_a_terminal_and_never_in_a_pipe(tmp_path):
    (tmp_path / "pod.yaml").write_text(POD)
    words = [sys.executable, "-m", "outlast", "doctor", "--manifest", "pod.yaml"]
    lines = lines_on_a_terminal(words, tmp_path, 72)
    assert max(map(len, lines)) <= 72
    assert lines[0].startswith("ok ")
    assert [line for line in lines if line.startswith(" " * 18)], "what is broken goes on beneath itself"
    piped = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert max(map(len, piped.stdout.splitlines())) > 72
