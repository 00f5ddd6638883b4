"""`outlast manifest` prints and writes documents, and refuses invalid values."""

import re
import subprocess
import sys

import pytest
from manifest_tools import CASES, DEPLOY, OTHER, written

from outlast.cli import main
from outlast.errors import SettingsError
from outlast.tools.deploy.config import DeploymentConfig
from outlast.tools.deploy.documents import DOCUMENTS
from support.cli import answer_in
from support.waiting import WAIT_SECONDS


@pytest.fixture
def manifest(tmp_path, capsys):
    return lambda *words: answer_in(tmp_path, ["manifest", *words], capsys)


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ({"grace": 0}, "--grace 0"),
        ({"grace": 1.5}, "whole number"),
        ({"store": "sqlite", "replicas": 2}, "2 stores"),
        ({"store": "mysql"}, "one of postgres, redis, sqlite"),
        ({"replicas": 9, "replicas_max": 3}, "--replicas-max 3"),
        ({"name": "Agents"}, "--name 'Agents'"),
        ({"name": "a: {b}"}, "--name"),
        ({"name": "on"}, "--name 'on'"),
        ({"name": "null"}, "--name 'null'"),
        ({"image": "a:"}, "--image 'a:'"),
        ({"image": "@a"}, "--image '@a'"),
        ({"lease": 4}, "--lease 4"),
        ({"module": "agents.py\n  evil: true"}, "--module"),
        ({"module": "--help"}, "--module"),
        ({"image": 'a"b'}, "--image"),
        ({"port": 80}, "--port 80"),
    ],
)
def test_invalid_values_are_refused(chosen, says):
    with pytest.raises(SettingsError, match=re.escape(says)):
        DeploymentConfig(**chosen)


def test_the_command_prints_and_writes_the_documents(tmp_path, manifest):
    printed = manifest("--kind", "deployment")
    assert (printed.code, printed.err) == (0, "")
    assert printed.out == (DEPLOY / "kubernetes/deployment.yaml").read_text()
    wrote = manifest("--write", tmp_path / "d", "--grace", 90, "--store", "redis")
    assert wrote.code == 0, wrote.err
    for document in DOCUMENTS.values():
        assert (tmp_path / "d" / document.path).stat().st_size > 0
    deployed = (tmp_path / "d/kubernetes/deployment.yaml").read_text()
    assert "on Redis" in deployed
    assert 'OUTLAST_GRACE, value: "90"' in deployed
    assert "sqlite:////" in (tmp_path / "d/kubernetes/statefulset.yaml").read_text(), (
        "the one that it can be"
    )
    said = manifest("--kind", "systemd", "--json", "--grace", 90).json
    assert said["numbers"]["grace"] == 90
    many = manifest("--kind", "deployment", "--json", "--store", "redis", "--replicas", 20).json
    assert {name: many["numbers"][name] for name in ("store", "replicas", "replicas_max")} == {
        "store": "redis",
        "replicas": 20,
        "replicas_max": 20,
    }
    assert "TimeoutStopSec=95" in said["documents"]["systemd"]
    assert (said["numbers"]["store"], said["numbers"]["replicas"]) == ("sqlite", 1)
    said = manifest("--kind", "deployment", "--store", "redis", "--json").json
    assert (said["numbers"]["store"], said["numbers"]["replicas"]) == ("redis", 3)


@pytest.mark.parametrize(("kind", "store"), [case for case in CASES if case[0] != "dashboard"])
@pytest.mark.parametrize("chosen", [{}, OTHER], ids=["default", "other"])
def test_the_command_named_in_a_document_reproduces_it(kind, store, chosen, capsys):
    text = written(kind, store, **chosen)
    (command,) = re.findall(r"Made by: outlast (.+)$", text, re.MULTILINE)
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    assert not ended.value.code
    assert capsys.readouterr().out == text


def test_the_example_command_creates_a_random_secret():
    for kind, store in (("deployment", "postgres"), ("statefulset", "sqlite")):
        (line,) = re.findall(r"^# +(kubectl create secret .+)$", written(kind, store), re.MULTILINE)
        words = [subprocess.check_output(["sh", "-c", line.replace("kubectl", "echo")], text=True) for _ in "ab"]  # fmt: skip
        found = [re.findall(r"http-secret=([0-9a-f]{48})$", said.strip())[0] for said in words]
        assert found[0] != found[1]


def test_the_command_ignores_invalid_settings_of_this_machine(tmp_path):
    """Every command imports this one: what is wrong in a file of settings must not end them all before they can say so."""

    def outlast(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "outlast", *words]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False, cwd=tmp_path
        )

    (tmp_path / ".env").write_text("OUTLAST_GRAZE=1\n")
    printed = outlast("manifest", "--kind", "systemd")
    assert (printed.returncode, printed.stderr) == (0, "")
    refused = outlast("runs")
    assert (refused.returncode, "Traceback" in refused.stderr) == (2, False)
    assert "OUTLAST_GRACE" in refused.stderr


def test_the_command_reports_wrong_options(tmp_path, manifest):
    for words, says in (
        ((), "--kind or --write"),
        (("--kind", "statefulset", "--store", "postgres"), "for --store sqlite"),
        (("--kind", "deployment", "--grace", "0"), "--grace 0"),
        (("--kind", "statefulset", "--replicas", "2"), "2 stores"),
        (("--kind", "deployment", "--replicas", "9", "--replicas-max", "3"), "--replicas-max 3"),
        (("--kind", "deployment", "--replicas-max", "-5"), "--replicas-max -5"),
    ):
        refused = manifest(*words, "--json")
        assert refused.code == 2, refused
        assert says in refused.json["error"]["message"]
    (tmp_path / "file").write_text("")
    refused = manifest("--write", tmp_path / "file")
    assert (refused.code, "cannot be written" in refused.err) == (1, True)
