"""Write Kubernetes manifests.

Workers that share a store get a Deployment. A worker with a SQLite file on its volume gets a
StatefulSet.
"""

from __future__ import annotations

from outlast.tools.deploy.config import DeploymentConfig

_MADE_UP = "$(python3 -c 'import secrets; print(secrets.token_hex(24))')"
"""A command instead of an example value, so that a secret left unchanged is not publicly known."""
_CA_FOLDER = "/etc/outlast"
"""Where the pod has the CA certificate of the server.

libpq looks in the user's home folder by default, and this user has none.
"""


def deployment(n: DeploymentConfig) -> str:
    return f"""\
# Workers on {_STORES[n.store]}. Made by: {n.command("deployment")}
# The secret that it needs:
#   kubectl create secret generic {n.name} --from-literal=store={_EXAMPLES[n.store]}{_ca_given(n)} --from-literal=http-secret={_MADE_UP}
{_ca_said(n)}\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {n.name}
  labels: {{app.kubernetes.io/name: {n.name}}}
spec:
  # No number of replicas: it is the autoscaler's below, and every apply would set it back.
  progressDeadlineSeconds: {n.progress_deadline}
  strategy:
    type: RollingUpdate
    rollingUpdate: {{maxSurge: 1, maxUnavailable: 0}}    # the new pod is ready before an old one is told to stop
  selector:
    matchLabels: {{app.kubernetes.io/name: {n.name}}}
  template:
{_pod(n)}\
---
{_policy(n)}\
---
{_budget(n)}\
---
{_scaler(n)}"""


def statefulset(n: DeploymentConfig) -> str:
    return f"""\
# One worker with its store on a volume of its own. Made by: {n.command("statefulset")}
# A SQLite file serves the processes of one node; a second replica would be a second store. For more pods: --kind deployment --store postgres.
# The secret that it needs:
#   kubectl create secret generic {n.name} --from-literal=http-secret={_MADE_UP}
apiVersion: v1
kind: Service
metadata:
  name: {n.name}
  labels: {{app.kubernetes.io/name: {n.name}}}
spec:
  clusterIP: None
  selector: {{app.kubernetes.io/name: {n.name}}}
  ports:
    - {{name: http, port: {n.port}, targetPort: http}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {n.name}
  labels: {{app.kubernetes.io/name: {n.name}}}
spec:
  serviceName: {n.name}
  replicas: {n.replicas}
  updateStrategy: {{type: RollingUpdate}}    # the old pod is gone before the new one has the volume: its runs wait for so long, none is lost
  selector:
    matchLabels: {{app.kubernetes.io/name: {n.name}}}
  template:
{_pod(n)}\
  volumeClaimTemplates:
    - metadata:
        name: data
      spec:
        accessModes: [ReadWriteOncePod]      # a disk, never NFS or SMB: their locks and syncs are not SQLite's
        resources: {{requests: {{storage: 10Gi}}}}
---
{_policy(n)}\
---
{_budget(n)}"""


_STORES = {"postgres": "Postgres", "redis": "Redis", "sqlite": "SQLite"}
_EXAMPLES = {
    "postgres": f"'postgresql://agents:PASSWORD@postgres:5432/agents?sslmode=verify-full&sslrootcert={_CA_FOLDER}/ca.crt'",
    "redis": "'rediss://:PASSWORD@redis:6379/0?strict'",
}


def _ca_given(n: DeploymentConfig) -> str:
    return " --from-file=ca.crt=CA.pem" if n.store == "postgres" else ""


def _ca_said(n: DeploymentConfig) -> str:
    if not _ca_given(n):
        return ""
    return "# CA.pem is the certificate of whoever signed the server's: a managed Postgres has it for download.\n"


def _mounts(n: DeploymentConfig) -> str:
    if n.embedded:
        return "            - {name: data, mountPath: /data}\n"
    return (
        f"            - {{name: ca, mountPath: {_CA_FOLDER}, readOnly: true}}\n"
        if _ca_given(n)
        else ""
    )


def _volumes(n: DeploymentConfig) -> str:
    """Return the CA volume.

    It is optional: an address without a CA file needs no key in the secret.
    """
    if not _ca_given(n):
        return ""
    items = "items: [{key: ca.crt, path: ca.crt}], optional: true"
    return (
        f"        - {{name: ca, secret: {{secretName: {n.name}, {items}}}}}    # for sslrootcert\n"
    )


def _pod(n: DeploymentConfig) -> str:
    store = (
        '{name: OUTLAST_STORE, value: "sqlite:////data/outlast.db"}'
        if n.embedded
        else f"{{name: OUTLAST_STORE, valueFrom: {{secretKeyRef: {{name: {n.name}, key: store}}}}}}"
    )
    return f"""\
    metadata:
      labels: {{app.kubernetes.io/name: {n.name}}}
      annotations: {{prometheus.io/scrape: "true", prometheus.io/port: "{n.port}", prometheus.io/path: /metrics}}
    spec:
      terminationGracePeriodSeconds: {n.period}    # preStop {n.pre_stop} + OUTLAST_GRACE {n.grace} + 5 for the node; the pod is gone as soon as the worker is
      automountServiceAccountToken: false
      enableServiceLinks: false
      securityContext:
        runAsNonRoot: true
        runAsUser: 10001
        runAsGroup: 10001
        fsGroup: 10001
        fsGroupChangePolicy: OnRootMismatch
        seccompProfile: {{type: RuntimeDefault}}
      containers:
        - name: worker
          image: "{n.image}"
          command: ["outlast", "worker", "{n.module}"]    # no shell in between: it is PID 1 and gets the signals
          env:
            - {store}
            - {{name: OUTLAST_GRACE, value: "{n.grace}"}}
            - {{name: OUTLAST_LEASE, value: "{n.lease}"}}
            - {{name: OUTLAST_STALL_MAX, value: "{n.stall_max}"}}    # a loop that stands still is noticed before its lease is over
            - {{name: OUTLAST_CONCURRENCY, value: "{n.concurrency}"}}
            - {{name: OUTLAST_HTTP, value: "0.0.0.0:{n.port}"}}    # probes come from outside the pod
            - {{name: OUTLAST_HTTP_SECRET, valueFrom: {{secretKeyRef: {{name: {n.name}, key: http-secret}}}}}}
            - {{name: OUTLAST_HEALTH_STALL, value: "{n.health_stall}"}}    # longer than a drain: no probe cuts one short
          ports:
            - {{name: http, containerPort: {n.port}}}
          startupProbe: {{httpGet: {{path: /health, port: http}}, periodSeconds: 2, timeoutSeconds: 2, failureThreshold: 60}}
          readinessProbe: {{httpGet: {{path: /ready, port: http}}, periodSeconds: 2, timeoutSeconds: 2, failureThreshold: 1}}
          livenessProbe: {{httpGet: {{path: /health, port: http}}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6}}
          lifecycle:
            preStop:    # the drain begins here, and SIGTERM joins it; a worker that is done by then is not sent one
              exec: {{command: ["outlast", "drain", "--wait", "--timeout", "{n.pre_stop}", "--why", "its pod is to go"]}}
          resources:
            requests: {{cpu: 250m, memory: 256Mi}}
            limits: {{memory: 1Gi}}    # an OOM kill is a death: what was under way is redone, and a run that does it again and again is a dead letter
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {{drop: [ALL]}}
          volumeMounts:
            - {{name: tmp, mountPath: /tmp}}
{_mounts(n)}\
      volumes:
        - {{name: tmp, emptyDir: {{}}}}
{_volumes(n)}"""


def _policy(n: DeploymentConfig) -> str:
    return f"""\
# Only Prometheus may reach the HTTP server: /health, /ready and /metrics have no secret. The kubelet's probes come from the node itself,
# which most network plugins let in under any policy. Where yours does not, add an ipBlock with the nodes' addresses to `from`.
# A policy does nothing in a cluster whose network plugin does not enforce them.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {n.name}
spec:
  podSelector:
    matchLabels: {{app.kubernetes.io/name: {n.name}}}
  policyTypes: [Ingress]
  ingress:
    - from:    # where your Prometheus is: its namespace, by the label that Kubernetes gives each
        - namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: monitoring}}}}
      ports:
        - {{protocol: TCP, port: http}}
"""


def _budget(n: DeploymentConfig) -> str:
    return f"""\
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {n.name}
spec:
  maxUnavailable: 1    # one at a time; with minAvailable, one replica could never be moved
  selector:
    matchLabels: {{app.kubernetes.io/name: {n.name}}}
"""


def _scaler(n: DeploymentConfig) -> str:
    return f"""\
# Needs an adapter that serves outlast_queue_load_max, a recording rule of prometheus/alerts.yaml, as an external metric: what is ready and what executes, not what is delayed.
# Every worker exports that of the whole queue: a sum over them would grow with every pod that is added.
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {n.name}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {n.name}}}
  minReplicas: {n.replicas}
  maxReplicas: {n.replicas_max}
  metrics:
    - type: External
      external:
        metric:
          name: outlast_queue_load_max
          selector: {{matchLabels: {{queue: default}}}}
        target: {{type: AverageValue, averageValue: "{n.concurrency}"}}    # as many pods as have a slot for each; full ones stay while more is queued
  behavior:
    scaleUp:
      policies: [{{type: Pods, value: 2, periodSeconds: 30}}]
    scaleDown:
      stabilizationWindowSeconds: 300
      policies: [{{type: Pods, value: 1, periodSeconds: {n.scale_down}}}]    # one whole drain at a time
"""
