"""Manifests in the shapes that they have in real life: what is wrong is found in each, and what is in order is not cried at."""

import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from outlast.errors import SettingsError
from outlast.settings.load import load
from outlast.tools.doctor import registry as examining
from outlast.tools.doctor.facts import Facts
from outlast.tools.doctor.finding import Level
from outlast.tools.doctor.manifests.files import read
from outlast.tools.doctor.manifests.shell import InFront, command_seconds, in_front, shell_in
from outlast.tools.doctor.registry import IN_MANIFESTS, examine
from support.cli import answer_in

STORE = '{name: OUTLAST_STORE, value: "redis://redis/0"}'


def pods(
    *,
    kind: str = "Deployment",
    command: str = '["outlast", "worker", "a.py"]',
    env: str = '{name: OUTLAST_GRACE, value: "20"}',
    more: str = "",
    pod: str = "terminationGracePeriodSeconds: 60",
    spec: str = "replicas: 1",
) -> str:
    return f"""
kind: {kind}
metadata: {{name: a}}
spec:
  {spec}
  template:
    spec:
      {pod}
      containers:
        - name: w
          command: {command}
          env: [{STORE}, {env}]
          readinessProbe: {{httpGet: {{path: /ready, port: 80}}}}
          {more}
"""


SQLITE = '{name: OUTLAST_STORE, value: "sqlite:////data/x.db"}'
DATA = "volumeMounts: [{name: data, mountPath: /data}]"
AGENT = """
services:
  a:
    image: x
    command: [outlast, worker, a.py]
    environment: {OUTLAST_GRACE: '60', OUTLAST_STORE: 'sqlite:////data/s/x.db'}
    stop_grace_period: 65s
    volumes: ['d:/data']
"""
ON_REDIS = AGENT.replace("sqlite:////data/s/x.db", "redis://redis/0")
UNIT = "[Service]\nExecStart=/x/outlast worker a.py\nEnvironment=OUTLAST_GRACE=60\nKillMode=mixed\n"
CALLS = 'CMD ["outlast", "worker", "a.py"]\n'


def findings(folder: Path, *files: tuple[str, str]) -> list:
    paths = []
    for name, text in files:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        paths.append(path)
    return examine(
        Facts(load({"store": "memory:"}, {}), "", workloads=tuple(read(*paths))), IN_MANIFESTS
    )


def fired(found) -> set[tuple[str, str]]:
    return {(one.check, one.level.value) for one in found if one.level is not Level.OK}


FINE = {
    "a base that is in order": ("d.yaml", pods()),
    "an empty variable of a chart is not set": ("d.yaml", pods(env="{name: OUTLAST_GRACE, value: }")),
    "a probe with empty fields": ("d.yaml", pods(more="livenessProbe: {httpGet: {path: /health, port: 80}, periodSeconds: , failureThreshold: }")),
    "empty tables of a chart": ("d.yaml", pods(more="lifecycle:\n          volumeMounts:\n          envFrom:")),
    "exec after a cd": ("d.yaml", pods(command='["sh", "-c", "cd /x && exec outlast worker a.py"]')),
    "exec at the end of a script": ("d.yaml", pods(command='["bash", "-ec", "set -e\\nexport A=1 # why\\n\\nexec outlast worker a.py\\n"]')),
    "exec in both branches": ("d.yaml", pods(command='["sh", "-c", "if test -f x; then exec outlast worker a.py; else exec outlast worker b.py; fi"]')),
    "exec with a variable in front": ("d.yaml", pods(command='["sh", "-c", "A=1 exec outlast worker a.py 2>&1"]')),
    "tini in front of the worker": ("d.yaml", pods(command='["tini", "--", "outlast", "worker", "a.py"]')),
    "nothing of ours": ("d.yaml", pods() + "---\n" + pods(command='["nginx", "-c", "/etc/outlast/nginx.conf"]', env="{name: A, value: b}", pod="terminationGracePeriodSeconds: 5").replace(STORE, "{name: B, value: c}")),
    "only an exec probe": ("d.yaml", pods().replace("httpGet: {path: /ready, port: 80}", "exec: {command: [x]}")),
    "a job that migrates": ("d.yaml", pods(kind="Job", command='["outlast", "migrate"]', pod="restartPolicy: Never")),
    "a job that a disruption does not fail": ("d.yaml", pods(kind="Job", spec="podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}")),
    "several on one node": ("d.yaml", pods(spec="replicas: 3", env=SQLITE, more=DATA, pod="terminationGracePeriodSeconds: 60\n      nodeSelector: {kubernetes.io/hostname: n1}\n      volumes: [{name: data, hostPath: {path: /x}}]")),
    "a file has one owner": ("d.yaml", pods(spec="strategy: {type: Recreate}", env=SQLITE, more=DATA)),
    "a share that is none": ("d.yaml", pods(spec="strategy: {rollingUpdate: {maxSurge: many%}}")),
    "an init container that ends": ("d.yaml", pods(pod="terminationGracePeriodSeconds: 60\n      initContainers: [{name: m, command: [outlast, migrate]}]")),
    "JSON with tabs": ("d.json", '{\n\t"kind": "Deployment", "spec": {"template": {"spec": {"terminationGracePeriodSeconds": 60, "containers": [{"env": [{"name": "OUTLAST_STORE", "value": "redis://x/0"}], "command": ["outlast", "worker"], "readinessProbe": {"tcpSocket": {}}}]}}}}'),
    "its own name goes before those of other tools": ("d.yaml", pods(env='{name: OUTLAST_GRACE, value: "20"}, {name: SHUTDOWN_TIMEOUT, valueFrom: {x: y}}, {name: DATABASE_URL, valueFrom: {x: y}}')),
    "a compose file": ("c.yaml", AGENT),
    "a period with a default": ("c.yaml", AGENT.replace("65s", "${STOP:-65s}")),
    "a setting with a default": ("c.yaml", AGENT.replace("'60'", "'${GRACE:-60}'")),
    "a volume with a default": ("c.yaml", AGENT.replace("d:/data", "${DATA:-./x}:/data")),
    "a tag of compose": ("c.yaml", AGENT + "    ports: !reset []\n    expose: !override ['80']\n"),
    "a key that is a number": ("c.yaml", AGENT.replace("{OUTLAST_GRACE", "{1: x, OUTLAST_GRACE")),
    "SIGINT by number": ("c.yaml", AGENT + "    stop_signal: 2\n"),
    "what it extends has the period": ("c.yaml", AGENT.replace("    stop_grace_period: 65s\n", "    extends: {service: base}\n") + "  base: {image: x, stop_grace_period: 2m}\n"),
    "a cache": ("c.yaml", AGENT + "  redis: {image: 'redis:7'}\n"),
    "a Redis by a shell": ("c.yaml", ON_REDIS + "  redis: {image: 'redis:7', command: [sh, -c, 'exec redis-server --appendonly yes'], volumes: ['r:/data']}\n"),
    "0 means never": ("a.service", UNIT + "TimeoutStopSec=0\n"),
    "a unit in words": ("a.service", UNIT + "TimeoutStopSec=1 minute 10 seconds\n"),
    "a unit with a mark in front": ("a.service", "\ufeff" + UNIT + "TimeoutStopSec=1min 10s\n"),
    "a unit that empties its list": ("a.service", UNIT + "Environment=OUTLAST_GRACE=300\nEnvironment=\nEnvironment=OUTLAST_GRACE=60\n"),
    "an argument with a default": ("Dockerfile", "FROM x\nARG G=20\nENV OUTLAST_GRACE=$G\n" + CALLS),
    "an argument without one": ("Dockerfile", "FROM x\nARG G\nENV OUTLAST_GRACE=${G}\n" + CALLS),
    "the old form with a quotation mark": ("Dockerfile", "FROM x\nENV MOTTO it's\n" + CALLS),
    "exec in shell form": ("Dockerfile", "FROM x\nCMD exec outlast worker a.py\n"),
}  # fmt: skip

WRONG = {
    "an empty valueFrom": ("d.yaml", pods(env='{name: OUTLAST_GRACE, value: "100", valueFrom: }'), "grace", "error", "grace 100 s"),
    "a sleep and then a drain": ("d.yaml", pods(more='lifecycle: {preStop: {exec: {command: [sh, -c, "sleep 5 && outlast drain --wait --timeout 50"]}}}'), "grace", "error", "preStop of 55 s"),
    "a shell without a line": ("d.yaml", pods(more="lifecycle: {preStop: {exec: {command: [bash, run.sh]}}}"), "grace", "note", "unknown"),
    "a number that is not a string": ("d.yaml", pods(env="{name: OUTLAST_GRACE, value: 20}"), "settings", "error", "is not a string"),
    "a login shell": ("d.yaml", pods(command='["bash", "-l", "-c", "outlast worker a.py; true"]'), "signals", "error", "given to a shell"),
    "an option with a word": ("d.yaml", pods(command='["bash", "-o", "pipefail", "-c", "outlast worker a.py | tee x"]'), "signals", "error", "given to a shell"),
    "a shell behind tini": ("d.yaml", pods(command='["/usr/bin/tini", "-g", "--", "sh", "-c", "outlast worker a.py; true"]'), "signals", "error", "given to a shell"),
    "exec in a pipe": ("d.yaml", pods(command='["sh", "-c", "exec outlast worker a.py | tee log"]'), "signals", "error", "given to a shell"),
    "exec of a redirection": ("d.yaml", pods(command='["sh", "-c", "exec 2>&1; outlast worker a.py"]'), "signals", "error", "given to a shell"),
    "in the background": ("d.yaml", pods(command='["sh", "-c", "outlast worker a.py & wait"]'), "signals", "error", "given to a shell"),
    "a bash that becomes its last command": ("d.yaml", pods(command='["bash", "-lc", "cd x && outlast worker a.py"]'), "signals", "note", "replaces itself with the worker"),
    "a bash with something behind": ("d.yaml", pods(command='["bash", "-lc", "outlast worker a.py; echo"]'), "signals", "error", "given to a shell"),
    "a bash with its output led away": ("d.yaml", pods(command='["bash", "-lc", "outlast worker a.py > log"]'), "signals", "error", "given to a shell"),
    "a trap": ("d.yaml", pods(command='["sh", "-c", "trap stop TERM; outlast worker a.py & wait"]'), "signals", "note", "a shell with a trap"),
    "a script": ("d.yaml", pods(command='["/entrypoint.sh", "outlast", "worker"]'), "signals", "note", "/entrypoint.sh"),
    "a grace in a file": ("d.yaml", pods(env="{name: OUTLAST_GRACE_FILE, value: /run/x}"), "grace", "note", "not in this file"),
    "settings in a folder": ("d.yaml", pods(env="{name: OUTLAST_SECRETS_DIR, value: /run/x}"), "grace", "note", "not in this file"),
    "no store": ("d.yaml", pods().replace(STORE + ", ", ""), "filesystem", "note", "no store is named"),
    "a store on the command line": ("d.yaml", pods(command='["outlast", "worker", "a.py", "--store", "sqlite:////x/y.db"]'), "filesystem", "error", "in the container"),
    "another tool's store in a secret": ("d.yaml", pods(env=SQLITE + ", {name: DATABASE_URL, valueFrom: {x: y}}"), "filesystem", "error", "in the container"),
    "a sidecar": ("d.yaml", pods(pod="initContainers: [{name: s, restartPolicy: Always, command: [outlast, worker], env: [{name: OUTLAST_GRACE, value: '100'}]}]"), "grace", "error", "grace 100 s"),
    "a list": ("d.yaml", "kind: List\nitems:\n- kind: DeploymentList\n  items:\n  - spec: {template: {spec: {containers: [{command: [outlast, worker]}]}}}\n"  , "grace", "error", "30 s by default"),
    "a kind of another maker": ("d.yaml", pods(kind="Rollout", pod="terminationGracePeriodSeconds: 5"), "grace", "error", "is 5 s"),
    "a period that is a variable": ("d.yaml", pods(pod="terminationGracePeriodSeconds: $(GRACE)"), "grace", "note", "unknown"),
    "a state for each replica": ("d.yaml", pods(kind="StatefulSet", spec="replicas: 3", env=SQLITE, more=DATA), "filesystem", "error", "3 replicas"),
    "a folder for one process": ("c.yaml", AGENT.replace("sqlite:////", "file:///") + "    scale: 3\n", "filesystem", "error", "3 replicas"),
    "several on any node": ("d.yaml", pods(spec="replicas: 3", env=SQLITE, more=DATA), "filesystem", "error", "3 replicas"),
    "many with a state": ("d.yaml", pods(kind="StatefulSet", spec="replicas: 500"), "rollout", "warning", "500 pods, 1 at a time"),
    "a volume that goes with the pod": ("d.yaml", pods(env=SQLITE, more=DATA, pod="volumes: [{name: data, ephemeral: {}}]"), "filesystem", "error", "ephemeral"),
    "a volume that cannot be written": ("d.yaml", pods(env=SQLITE, more=DATA, pod="volumes: [{name: data, configMap: {}}]"), "filesystem", "error", "cannot be written"),
    "a mount that cannot be written": ("d.yaml", pods(env=SQLITE, more=DATA.replace("/data}", "/data, readOnly: true}")), "filesystem", "error", "cannot be written"),
    "any code but 75": ("d.yaml", pods(kind="Job", spec="podFailurePolicy: {rules: [{action: Ignore, onExitCodes: {operator: NotIn, values: [75]}}]}"), "job", "warning", "75"),
    "started again in its pod": ("d.yaml", pods(kind="Job", pod="restartPolicy: OnFailure"), "job", "warning", "75"),
    "a lease below the stall": ("d.yaml", pods(env='{name: OUTLAST_LEASE, value: "10"}'), "lease", "warning", "stall_max=20"),
    "a probe that nobody hears": ("d.yaml", pods(env='{name: OUTLAST_HTTP, value: "127.0.0.1:80"}'), "probes", "error", "only inside the pod"),
    "a probe at another port": ("d.yaml", pods(env='{name: OUTLAST_HTTP, value: "0.0.0.0:8080"}'), "probes", "error", "use port 80"),
    "a period of the surroundings": ("c.yaml", AGENT.replace("65s", "${STOP}"), "grace", "note", "unknown"),
    "a grace of the surroundings": ("c.yaml", AGENT.replace("'60'", "'${GRACE}'"), "grace", "note", "not in this file"),
    "a period in another file": ("c.yaml", AGENT.replace("    stop_grace_period: 65s\n", "    extends: {file: b.yaml, service: b}\n"), "grace", "note", "unknown"),
    "a signal by number": ("c.yaml", AGENT + "    stop_signal: 9\n", "signals", "error", "stopped by 9"),
    "a shell as the entrypoint": ("c.yaml", AGENT.replace("[outlast, worker, a.py]", "'\"outlast worker a.py; true\"'") + "    entrypoint: [sh, -c]\n", "signals", "error", "given to a shell"),
    "a tmpfs over the volume": ("c.yaml", AGENT + "    tmpfs: /data/s:size=5m\n", "filesystem", "error", "in memory"),
    "a volume on a network": ("c.yaml", AGENT + "volumes: {d: {driver_opts: {type: nfs, o: x}}}\n", "filesystem", "error", "network file system"),
    "a Redis with a configuration": ("c.yaml", ON_REDIS + "  redis: {image: 'redis:7', command: [redis-server, /etc/redis.conf]}\n", "redis", "note", "configuration"),
    "a Redis by its digest": ("c.yaml", ON_REDIS + "  redis: {image: 'redis@sha256:abc'}\n", "redis", "error", "appendonly"),
    "half a second": ("a.service", UNIT + "TimeoutStopSec=500ms\n", "grace", "error", "0.5 s"),
    "a time that is none": ("a.service", UNIT + "TimeoutStopSec=later\n", "grace", "note", "unknown"),
    "a stage of another": ("Dockerfile", "FROM x AS base\nENV OUTLAST_GRAZE=20\nCMD outlast worker a.py\nFROM base\nUSER 1\n", "settings", "error", "OUTLAST_GRACE"),
    "the command of another stage": ("Dockerfile", "FROM x AS base\nCMD outlast worker a.py\nFROM base\nUSER 1\n", "signals", "error", "given to a shell"),
    "a tab": ("Dockerfile", "FROM x\nCMD\toutlast worker a.py\n", "signals", "error", "given to a shell"),
}  # fmt: skip


@pytest.mark.parametrize("shape", FINE)
def test_doctor_accepts_each_correct_manifest(tmp_path, shape):
    assert fired(findings(tmp_path, FINE[shape])) == set()


@pytest.mark.parametrize("shape", WRONG)
def test_doctor_reports_each_wrong_manifest(tmp_path, shape):
    name, text, check, level, says = WRONG[shape]
    found = findings(tmp_path, (name, text))
    assert [
        one
        for one in found
        if (one.check, one.level) == (check, level) and says in one.what + one.fix
    ], found


def test_an_autoscaler_in_a_list_of_another_file_counts(tmp_path):
    one = pods(
        kind="Deployment", spec="strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}"
    )
    for scaler in (
        "kind: HorizontalPodAutoscaler\n  spec: {scaleTargetRef: {kind: Deployment, name: a}, maxReplicas: 500}",
        "kind: ScaledObject\n  spec: {scaleTargetRef: {name: a}, maxReplicaCount: 500}",
    ):
        found = findings(tmp_path, ("d.yaml", one), ("s.yaml", f"kind: List\nitems:\n- {scaler}\n"))
        assert ("rollout", "warning") in fired(found)


def test_drop_in_of_a_systemd_unit_is_read(tmp_path):
    (tmp_path / "a.service.d").mkdir()
    over = tmp_path / "a.service.d" / "override.conf"
    over.write_text("[Service]\nEnvironment=OUTLAST_GRACE=100\n")
    (one,) = [
        one
        for one in findings(tmp_path, ("a.service", UNIT + "TimeoutStopSec=70"))
        if one.check == "grace"
    ]
    assert (one.level, "grace 100 s" in one.what) == (Level.ERROR, True)
    alone = fired(findings(tmp_path, ("a.service.d/override.conf", over.read_text())))
    assert alone == {("grace", "note")}, "what a drop-in does not set, its unit sets"


NINES = ",".join(["*{}"] * 9)
LISTS = "".join(f"x{n}: &a{n} [{NINES.replace('{}', f'a{n - 1}')}]\n" for n in range(1, 9))
MERGES = "".join(f"x{n}: &a{n} {{<<: [{NINES.replace('{}', f'a{n - 1}')}]}}\n" for n in range(1, 9))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "x0: &a0 [q, q]\n" + LISTS + pods(env="{name: A, value: *a8}"),
            "more than 1,000,000 values",
        ),
        ("x0: &a0 {q: 1}\n" + MERGES + pods(), "more than 1,000,000 values"),
        ("kind: Deployment\nspec: &a {template: *a}\n", "more than 1,000,000 values"),
        ("a: " + "[" * 100_000, "nested too deeply"),
        ("kind: x\na: 2026-13-45", "not valid YAML"),
        ("kind: !!python/object/apply:os.system [ls]", "not valid YAML"),
        ("kind: x\na: " + "1" * 5_000, "not valid YAML"),
    ],
    ids=["lists", "merges", "circle", "deep", "date", "python", "digits"],
)
def test_no_file_can_hang_the_doctor_or_make_it_fall(tmp_path, text, says):
    with pytest.raises(SettingsError, match=says):
        findings(tmp_path, ("x.yaml", text))


@pytest.fixture
def doctor(tmp_path, capsys, monkeypatch):
    """What it finds in these files, typed where they are. Its standard input is what is `given`."""

    def call(*words: str, given: str = "") -> tuple[int, dict]:
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(given.encode())))
        answer = answer_in(tmp_path, ["doctor", "--json", "--manifest", *words], capsys)
        assert "Traceback" not in answer.err
        return answer.code, answer.json

    return call


def test_what_a_shell_makes_of_a_pattern_and_what_comes_through_a_pipe(tmp_path, doctor):
    (tmp_path / "a.yaml").write_text(pods())
    (tmp_path / "b.yaml").write_text(pods(pod="terminationGracePeriodSeconds: 5"))
    code, answer = doctor("a.yaml", "b.yaml")
    assert (code, [one["where"] for one in answer["findings"] if one["level"] == "error"]) == (
        1,
        ["b.yaml: Deployment a/w"],
    )
    code, answer = doctor("-", given=pods())
    assert (code, answer["ok"]) == (0, True)
    assert "standard input: Deployment a/w" in {one["where"] for one in answer["findings"]}
    code, answer = doctor("none.yaml")
    assert (code, "cannot be read" in answer["error"]["message"]) == (2, True)


def test_nothing_but_the_files_is_looked_at(tmp_path, doctor):
    (tmp_path / ".env").write_text("OUTLAST_GRAZE=1\n")
    (tmp_path / "outlast.db").touch()
    text = pods().replace(STORE, '{name: DATABASE_URL, value: "postgresql://h/db"}')
    (tmp_path / "d.yaml").write_text(text)
    code, answer = doctor("d.yaml")
    assert (code, [one for one in answer["findings"] if one["level"] != "ok"]) == (0, [])


def test_a_check_that_fails_is_told_and_the_others_are_made(tmp_path, monkeypatch):
    def broken(facts):
        raise ZeroDivisionError("oh")

    monkeypatch.setitem(examining.IN_MANIFESTS, "grace", broken)
    found = findings(tmp_path, ("d.yaml", pods()))
    assert fired(found) == {("grace", "note")}
    assert "could not be made: ZeroDivisionError" in next(
        one.what for one in found if one.check == "grace"
    )
    assert {one.check for one in found} >= {"settings", "signals", "probes"}


@pytest.mark.parametrize(
    ("line", "does"),
    [
        ("exec outlast worker a", "NOTHING"), ('exec "$@"', "NOTHING"), ("cd x; exec outlast worker a", "NOTHING"), ("cd x || exit 1; exec outlast worker", "NOTHING"),
        ("# exec\noutlast worker a", "STAYS"), ("echo exec outlast worker a", "STAYS"), ("(exec outlast worker a)", "STAYS"), ("exec outlast worker a & wait", "STAYS"),
        ("outlast worker a || exec sleep 5", "STAYS"), ("", "STAYS"), ("outlast 'worker", "STAYS"), ("trap x TERM; outlast worker & wait", "TRAPS"),
        ("exec", "STAYS"), ("exec outlast worker a # x; y | z", "NOTHING"),
    ],
)  # fmt: skip
def test_whether_a_shell_stays_in_front(line, does):
    assert in_front(line) is InFront[does]


@pytest.mark.parametrize(
    ("line", "does"),
    [("", "STAYS"), ("# only a comment", "STAYS"), ("outlast worker a # x | y", "BASH")],
)
def test_whether_bash_stays_in_front(line, does):
    assert in_front(line, "bash") is InFront[does]


@pytest.mark.parametrize(
    ("command", "line", "script"),
    [
        (["sh", "-c", "x"], "x", None), (["bash", "-euo", "pipefail", "-c", "x"], "x", None), (["bash", "--norc", "-c", "x"], "x", None),
        (["busybox", "sh", "-c", "x"], "x", None), (["env", "A=1", "sh", "-lc", "x"], "x", None), (["sh", "run.sh"], None, "run.sh"), (["sh", "-c"], "", None),
    ],
)  # fmt: skip
def test_shell_command_is_split_into_options_and_script(command, line, script):
    assert shell_in(command)[:2] == (line, script)


@pytest.mark.parametrize(
    "command", [["outlast", "worker"], ["tini", "--", "outlast"], ["python", "-c", "x"], []]
)
def test_no_shell_is_seen_where_there_is_none(command):
    assert shell_in(command) is None


@pytest.mark.parametrize(
    ("command", "seconds"),
    [
        (["sh", "-c", "sleep 5; outlast drain --wait --timeout 20"], 25), (["sh", "-c", "sleep 1m 5s && true"], 65), (["sh", "-c", "kill -TERM 1; sleep 3"], 3),
        (["timeout", "10", "x"], 10), (["timeout", "-k", "5", "10", "x"], None), (["sh", "-c", "sleep 5 && wait-for-it"], None), (["curl", "--max-time", "4", "x"], 4),
        (["sh", "-c"], 0), (["sh", "-ec", "exec sleep 7"], 7), (["sleep", "$SECONDS"], None),
    ],
)  # fmt: skip
def test_how_long_commands_take_one_after_another(command, seconds):
    assert command_seconds(command) == seconds
