"""Settings that a manifest takes from a ConfigMap in the same file."""

import pytest
from doctor_manifest_tools import findings, fired

from outlast.tools.doctor.finding import Level

MAPPED = """
apiVersion: v1
kind: ConfigMap
metadata: {name: agents}
data: {OUTLAST_GRACE: "60", lease: "4"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: agents}
spec:
  template:
    spec:
      terminationGracePeriodSeconds: 40
      containers:
        - name: worker
          image: agents
          args: ["worker", "agents.py"]
          envFrom: [{configMapRef: {name: agents}}]
          env: [{name: OUTLAST_LEASE, valueFrom: {configMapKeyRef: {name: agents, key: lease}}}]
"""


def test_what_a_config_map_of_the_files_says_is_judged(tmp_path):
    found = findings(tmp_path, "m.yaml", MAPPED)
    assert {("grace", "error"), ("lease", "warning")} <= fired(found), found
    assert any("grace 60 s" in one.what for one in found)
    fixed = MAPPED.replace("Seconds: 40", "Seconds: 70").replace('lease: "4"', 'lease: "30"')
    assert fired(findings(tmp_path, "m.yaml", fixed)) <= {
        ("probes", "note"), ("rollout", "warning"), ("filesystem", "note"),
    }  # fmt: skip


def test_what_a_container_says_itself_goes_before_a_config_map(tmp_path):
    own = MAPPED.replace("env: [{", 'env: [{name: OUTLAST_GRACE, value: "30"}, {')
    assert not any(
        one.check == "grace" and one.level is Level.ERROR
        for one in findings(tmp_path, "m.yaml", own)
    )


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("metadata: {name: agents}\ndata", "metadata: {name: other}\ndata", "not in this file"),
        ("metadata: {name: agents}\ndata", "metadata: {name: agents, namespace: b}\ndata", "not in this file"),
        ('OUTLAST_GRACE: "60"', "OUTLAST_GRACE: 60", "is not a string"),
        ('{OUTLAST_GRACE: "60"', '{OUTLAST_GRACES: "60"', "no such setting"),
        ("envFrom: [{", "envFrom: [{prefix: OUTLAST_, ", "no such setting"),
    ],
)  # fmt: skip
def test_a_config_map_is_taken_as_kubernetes_takes_it(tmp_path, old, new, says):
    assert old in MAPPED
    assert any(says in one.what for one in findings(tmp_path, "m.yaml", MAPPED.replace(old, new)))
