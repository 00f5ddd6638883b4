"""Checks of manifests: each with a manifest that makes it fire, and a corrected one."""

import pytest
from doctor_manifest_tools import findings, fired

from outlast.errors import SettingsError
from outlast.tools.doctor.finding import Level
from outlast.tools.doctor.manifests.files import read
from outlast.tools.doctor.manifests.shell import command_seconds
from outlast.tools.doctor.manifests.values import seconds_of
from support.cli import answer_of

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: agents}
spec:
  replicas: 4
  strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  template:
    spec:
      terminationGracePeriodSeconds: 75
      containers:
        - name: worker
          image: agents:1
          command: ["outlast", "worker", "agents.py"]
          env:
            - {name: OUTLAST_STORE, valueFrom: {secretKeyRef: {name: agents, key: store}}}
            - {name: OUTLAST_GRACE, value: "60"}
            - {name: OUTLAST_HTTP, value: "0.0.0.0:8080"}
            - {name: OUTLAST_HTTP_SECRET, valueFrom: {secretKeyRef: {name: agents, key: http}}}
          livenessProbe: {httpGet: {path: /health, port: 8080}, periodSeconds: 10}
          lifecycle: {preStop: {exec: {command: ["outlast", "drain", "--wait", "--timeout", "10"]}}}
"""

STATEFUL = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: agents}
spec:
  replicas: 1
  template:
    spec:
      containers:
        - name: worker
          command: ["outlast", "worker", "agents.py"]
          env: [{name: OUTLAST_STORE, value: "sqlite:////data/outlast.db"}, {name: OUTLAST_GRACE, value: "20"}]
          volumeMounts: [{name: data, mountPath: /data}, {name: tmp, mountPath: /tmp}]
      volumes: [{name: tmp, emptyDir: {}}]
  volumeClaimTemplates: [{metadata: {name: data}}]
"""

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: report}
spec:
  podFailurePolicy: {rules: [{action: Ignore, onExitCodes: {operator: In, values: [75]}}]}
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 40
      containers: [{name: run, command: ["outlast", "run", "a.py:f"], env: [{name: OUTLAST_GRACE, value: "30"}, {name: OUTLAST_STORE, value: "redis://redis/0"}]}]
"""

COMPOSE = """
services:
  agent:
    image: agents
    command: ["outlast", "worker", "agents.py"]
    stop_grace_period: 1m10s
    environment: {OUTLAST_GRACE: "60", OUTLAST_STORE: "sqlite:////data/x.db"}
    volumes: ["data:/data"]
  front: {image: agents, stop_grace_period: 40s, environment: {OUTLAST_STORE: "redis://redis/0"}}
  redis:
    image: redis:7
    command: ["redis-server", "--appendonly", "yes"]
    volumes: ["redis:/data"]
  other: {image: nginx}
"""

UNIT = """
[Service]
ExecStart=/opt/a/bin/outlast worker agents.py
Environment=OUTLAST_GRACE=60 OUTLAST_LEASE=25
TimeoutStopSec=65
KillMode=mixed
"""

DOCKERFILE = """
FROM python:3.12 AS build
ENTRYPOINT sh -c nonsense
FROM python:3.12-slim
ENV OUTLAST_GRACE=20 \\
    OUTLAST_LEASE=30
STOPSIGNAL SIGTERM
ENTRYPOINT ["outlast"]
CMD ["worker", "agents.py"]
"""

FILES = {
    "d.yaml": DEPLOYMENT, "s.yaml": STATEFUL, "j.yaml": JOB, "compose.yaml": COMPOSE, "a.service": UNIT, "Dockerfile": DOCKERFILE,
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_correct_manifest_is_reported_as_correct(tmp_path, name):
    found = findings(tmp_path, name, FILES[name])
    assert fired(found) <= {("probes", "note")}, found
    assert {one.check for one in found if one.level is Level.OK} >= {"settings", "signals"}


@pytest.mark.parametrize(
    ("name", "old", "new", "check", "level", "says"),
    [
        ("d.yaml", "Seconds: 75", "Seconds: 70", "grace", "error", "grace 60 s after a preStop of 10 s"),
        ("d.yaml", "      terminationGracePeriodSeconds: 75\n", "", "grace", "error", "30 s by default"),
        ("d.yaml", '"--timeout", "10"', '"--timeout", "30"', "grace", "error", "preStop of 30 s"),
        ("d.yaml", '"--wait", "--timeout", "10"', '"--wait"', "grace", "note", "unknown"),
        ("d.yaml", '{name: OUTLAST_GRACE, value: "60"}', "{name: OUTLAST_GRACE, valueFrom: {configMapKeyRef: {name: a, key: b}}}", "grace", "note", "not in this file"),
        ("compose.yaml", "    stop_grace_period: 1m10s\n", "", "grace", "error", "stop_grace_period is 10 s by default"),
        ("compose.yaml", "1m10s", "60s", "grace", "error", "stop_grace_period is 60 s"),
        ("a.service", "TimeoutStopSec=65", "TimeoutStopSec=1min", "grace", "error", "TimeoutStopSec is 60 s"),
        ("a.service", "OUTLAST_GRACE=60", "OUTLAST_GRACE=100", "grace", "error", "100 s"),
        ("s.yaml", 'value: "20"', 'value: "29"', "grace", "error", "30 s by default"),
        ("d.yaml", '["outlast", "worker", "agents.py"]', '["sh", "-c", "outlast worker agents.py"]', "signals", "error", "given to a shell"),
        ("Dockerfile", 'ENTRYPOINT ["outlast"]\nCMD ["worker", "agents.py"]', "CMD outlast worker agents.py", "signals", "error", "given to a shell"),
        ("Dockerfile", "STOPSIGNAL SIGTERM", "STOPSIGNAL SIGQUIT", "signals", "error", "SIGQUIT"),
        ("compose.yaml", '["outlast", "worker", "agents.py"]', 'sh -c "cd x && outlast worker agents.py"', "signals", "error", "given to a shell"),
        ("a.service", "KillMode=mixed\n", "", "signals", "warning", "KillMode=control-group"),
        ("a.service", "KillMode=mixed", "KillMode=none", "signals", "warning", "nothing is stopped"),
        ("d.yaml", "{maxSurge: 1, maxUnavailable: 0}", "{maxSurge: 0, maxUnavailable: 2}", "rollout", "warning", "removes more workers than it adds"),
        ("d.yaml", "strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}", "strategy: {type: Recreate}", "rollout", "warning", "Recreate"),
        ("d.yaml", "replicas: 4", "replicas: 60", "rollout", "warning", "60 pods"),
        ("d.yaml", "replicas: 4", "replicas: 4\n  progressDeadlineSeconds: 60", "rollout", "warning", "progressDeadlineSeconds=60"),
        ("s.yaml", "sqlite:////data/outlast.db", "sqlite:////tmp/outlast.db", "filesystem", "error", "emptyDir"),
        ("s.yaml", "sqlite:////data/outlast.db", "sqlite:////var/outlast.db", "filesystem", "error", "in the container"),
        ("s.yaml", "sqlite:////data/outlast.db", "sqlite:///outlast.db", "filesystem", "warning", "working folder"),
        ("d.yaml", "valueFrom: {secretKeyRef: {name: agents, key: store}}", 'value: "sqlite:////data/x.db"', "filesystem", "error", "4 replicas"),
        ("compose.yaml", 'volumes: ["data:/data"]', 'tmpfs: ["/data"]', "filesystem", "error", "in memory"),
        ("compose.yaml", '"--appendonly", "yes"', '"--save", "60"', "redis", "error", "appendonly"),
        ("compose.yaml", '"yes"]', '"yes", "--maxmemory-policy", "allkeys-lru"]', "redis", "error", "allkeys-lru"),
        ("compose.yaml", '    volumes: ["redis:/data"]\n', "", "redis", "error", "on no volume"),
        ("d.yaml", "            - {name: OUTLAST_HTTP_SECRET, valueFrom: {secretKeyRef: {name: agents, key: http}}}\n", "", "http", "warning", "no secret"),
        ("d.yaml", "path: /health", "path: /ready", "probes", "error", "kills a worker"),
        ("d.yaml", "periodSeconds: 10", "periodSeconds: 2", "probes", "warning", "after 6 s"),
        ("s.yaml", "replicas: 1", "replicas: 1", "probes", "note", "no probes"),
        ("j.yaml", "values: [75]", "values: [7]", "job", "warning", "75"),
        ("d.yaml", "OUTLAST_GRACE, value", "OUTLAST_GRAZE, value", "settings", "error", "OUTLAST_GRACE"),
        ("d.yaml", 'value: "60"', 'value: "a minute"', "settings", "error", "not a number"),
        ("compose.yaml", "OUTLAST_GRACE", "OUTLASST_GRACE", "grace", "error", None),
    ],
)  # fmt: skip
def test_each_mistake_in_a_manifest_is_reported(tmp_path, name, old, new, check, level, says):
    assert FILES[name].count(old) == 1
    found = findings(tmp_path, name, FILES[name].replace(old, new))
    if says is None:  # a variable that is not ours is nobody's business: the default is in force
        assert (check, level) not in fired(found)
        return
    (one, *_) = [one for one in found if (one.check, one.level) == (check, level)]
    assert says in one.what or says in one.fix
    assert level == "note" or one.fix
    assert name in one.where


def test_a_server_without_a_host_is_for_this_machine(tmp_path):
    secret = "            - {name: OUTLAST_HTTP_SECRET, valueFrom: {secretKeyRef: {name: agents, key: http}}}\n"
    text = (
        DEPLOYMENT.replace(secret, "")
        .replace("0.0.0.0:8080", ":8080")
        .replace("httpGet: {path: /health, port: 8080}", "exec: {command: [x]}")
    )
    assert fired(findings(tmp_path, "d.yaml", text)) == set()


def test_shell_that_execs_the_worker_is_accepted(tmp_path):
    text = DEPLOYMENT.replace(
        '["outlast", "worker", "agents.py"]', '["sh", "-c", "exec outlast worker agents.py"]'
    )
    assert fired(findings(tmp_path, "d.yaml", text)) == set()


def test_the_budget_of_a_rollout_may_be_given(tmp_path):
    assert ("rollout", "warning") in fired(
        findings(tmp_path, "d.yaml", DEPLOYMENT, rollout_budget=60.0)
    )
    assert ("rollout", "warning") not in fired(
        findings(tmp_path, "d.yaml", DEPLOYMENT, rollout_budget=600.0)
    )


def test_an_autoscaler_says_how_many_pods_there_may_be(tmp_path):
    scaler = "---\nkind: HorizontalPodAutoscaler\nspec: {scaleTargetRef: {kind: Deployment, name: agents}, maxReplicas: 60}\n"
    assert ("rollout", "warning") in fired(findings(tmp_path, "d.yaml", DEPLOYMENT + scaler))


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("x.yaml", "a: [1", "line 1"),
        ("x.yaml", "just text", "no manifest"),
        ("x.yaml", "", "no manifest"),
        ("x.yaml", "a: 1", "neither"),
        ("x.service", "[Unit]\nA=b", "not a service unit"),
        ("x.service", "[Service]\nExecStart='a", "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_an_error(tmp_path, name, text, says):
    with pytest.raises(SettingsError, match=says):
        findings(tmp_path, name, text)


def test_a_file_that_is_not_there_or_no_text(tmp_path):
    with pytest.raises(SettingsError, match="No such file"):
        read(tmp_path / "none.yaml")
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match="UTF-8"):
        read(tmp_path / "x.yaml")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("65s", 65), ("1m5s", 65), ("1min 5s", 65), ("1h", 3600), (65, 65), ("65", 65), ("1m30", 90), ("0", 0), ("infinity", float("inf")), ("soon", None), ("", None), (None, None), (True, None)],
)  # fmt: skip
def test_durations_are_read_in_seconds(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("command", "seconds"),
    [
        (["sleep", "5"], 5), (["/bin/sh", "-c", "sleep 12"], 12), (["outlast", "drain", "--wait", "--timeout=8"], 8),
        (["outlast", "drain"], 5), (["outlast", "drain", "--wait"], None), (["curl", "x"], None), ([], 0),
    ],
)  # fmt: skip
def test_how_long_a_pre_stop_command_takes(command, seconds):
    assert command_seconds(command) == seconds


WRONG = """
kind: Deployment
metadata: {name: w}
spec:
  replicas: 2
  strategy: {type: Recreate}
  template:
    spec:
      containers:
        - name: w
          command: [outlast, worker, agents.py]
          env:
            - {name: OUTLAST_CHECKPOINT_RESERVE, value: "20"}
            - {name: OUTLAST_GRACES, value: "60"}
            - {name: OUTLAST_GRACE, value: "60"}
            - {name: OUTLAST_LEASE, value: "3"}
            - {name: OUTLAST_HTTP, value: "0.0.0.0:8080"}
            - {name: OUTLAST_STORE, value: "sqlite:////data/x.db"}
            - {name: OUTLAST_CONCURRENCY, value: many}
"""


def test_a_wrong_variable_hides_nothing_but_what_goes_by_it(tmp_path):
    found = findings(tmp_path, "w.yaml", WRONG)
    told = [one.what for one in found if (one.check, one.level) == ("settings", Level.ERROR)]
    assert len(told) == 2
    assert "OUTLAST_GRACES: no such setting" in told[0] and "OUTLAST_CONCURRENCY='many'" in told[1]
    assert {
        ("grace", "error"),
        ("lease", "warning"),
        ("http", "warning"),
        ("filesystem", "error"),
    } <= fired(found)
    of_itself = findings(
        tmp_path, "w.yaml", WRONG.replace('OUTLAST_GRACE, value: "60"', "OUTLAST_GRACE, value: 1m")
    )
    assert not {"grace", "rollout"} & {one.check for one in of_itself}, "by which grace?"
    assert {("lease", "warning"), ("http", "warning"), ("filesystem", "error")} <= fired(of_itself)


def test_shell_in_a_systemd_unit_is_reported_with_execstart(tmp_path):
    start = "ExecStart=/opt/a/bin/outlast worker agents.py"
    assert start in UNIT
    (found,) = [
        one
        for one in findings(tmp_path, "a.service", UNIT.replace(start, "ExecStart=/bin/sh -c 'outlast worker agents.py'"))
        if one.check == "signals"
    ]  # fmt: skip
    assert "PID 1" not in found.what and "ExecStart" in found.fix


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("KillMode=mixed", "KillMode=mixed\nEnvironment=OUTLAST_HTTP=127.0.0.1:80", "(127.0.0.1:80) is for this machine only."),
        ("KillMode=mixed", "KillMode=mixed\nEnvironment=OUTLAST_HTTP=0.0.0.0:80 OUTLAST_HTTP_SECRET=a-long-secret", "is open to others, and has a secret."),
        (" OUTLAST_LEASE=25", "", "1 setting is in order."),
    ],
)  # fmt: skip
def test_what_is_in_order_says_in_which_way(tmp_path, old, new, says):
    assert old in UNIT
    assert any(
        one.what.endswith(says) for one in findings(tmp_path, "a.service", UNIT.replace(old, new))
    )


BARE = "services: {agent: {image: agents, command: ARGS, stop_grace_period: 5s, environment: {}}}"


@pytest.mark.parametrize(
    ("args", "env", "judged"),
    [
        ('["worker", "agents.py"]', "{}", True),
        ('["worker", "--queue", "mail", "agents.py:app"]', "{}", True),
        ('["worker", "agents"]', "{OUTLAST_LEASE: '30'}", True),
        ('["worker"]', "{}", False),  # another program's
        ('["worker", "agents"]', "{}", False),
        ('["migrate"]', "{OUTLAST_LEASE: '30'}", False),  # it ends by itself
        ('["python", "agents.py"]', "{OUTLAST_LEASE: '30'}", True),
    ],
)
def test_an_image_that_calls_outlast_is_known_by_what_it_is_given(tmp_path, args, env, judged):
    found = findings(tmp_path, "compose.yaml", BARE.replace("ARGS", args).replace("{}", env))
    assert any(one.check == "grace" and one.level is Level.ERROR for one in found) is judged, found


def test_files_in_which_there_is_nothing_to_judge_are_not_in_order(tmp_path, capsys):
    found = findings(tmp_path, "compose.yaml", "services: {front: {image: nginx}}")
    assert fired(found) == {("settings", "warning")}
    path = str(tmp_path / "compose.yaml")
    assert answer_of(["doctor", "--manifest", path], capsys).code == 0
    assert answer_of(["doctor", "--strict", "--manifest", path], capsys).code == 1
