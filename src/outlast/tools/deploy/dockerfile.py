"""Write a Dockerfile.

It uses the exec form, so that the worker is PID 1 and receives the signals. The image does not run
as root and has no compilers or caches.
"""

from __future__ import annotations

from outlast.tools.deploy.config import DeploymentConfig

EXTRAS = {"postgres": "postgres,http", "redis": "redis,http", "sqlite": "http"}


def dockerfile(n: DeploymentConfig) -> str:
    return f"""\
# Made by: {n.command("dockerfile")}
# Beside it: {n.module}, a requirements.txt with outlast[{EXTRAS[n.store]}] in it, and the .dockerignore (--kind dockerignore).
#   docker build -t {n.image} .
FROM python:3.12-slim AS build
COPY requirements.txt .
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir -r requirements.txt

FROM python:3.12-slim
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# Its folders belong to it before a volume is laid over them: a new volume takes over who owns them.
RUN mkdir -p /data /logs && chown 10001:10001 /data /logs
WORKDIR /agents
COPY . .
USER 10001:10001
ENV OUTLAST_GRACE={n.grace} OUTLAST_LEASE={n.lease} OUTLAST_STALL_MAX={n.stall_max} OUTLAST_CONCURRENCY={n.concurrency} OUTLAST_HTTP=127.0.0.1:{n.port}
STOPSIGNAL SIGTERM
# `docker stop` waits 10 s unless told: docker stop --time {n.stop}
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \\
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:{n.port}/health', timeout=4)"]
ENTRYPOINT ["outlast"]
CMD ["worker", "{n.module}"]
"""


def dockerignore(n: DeploymentConfig) -> str:  # noqa: ARG001 - the same for all configurations
    """Write a .dockerignore.

    `COPY . .` copies everything not named here, including the secrets with the compose file's
    passwords.
    """
    return """\
# Made by: outlast manifest --kind dockerignore
# What must not get into the image: secrets, stores, and what is only in the way.
secrets/
**/.env
**/.env.*
**/*.db
**/*.db-*
**/*.db.d
**/.git
**/.venv
**/__pycache__
"""
