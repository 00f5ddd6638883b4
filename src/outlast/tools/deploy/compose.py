"""Write a compose file: the agent with its volumes, and a durable server for its store."""

from __future__ import annotations

from outlast.tools.deploy.config import DeploymentConfig

_STORE = {
    "postgres": "OUTLAST_STORE_FILE: /run/secrets/store    # it has the password in it",
    "redis": "OUTLAST_STORE: redis://redis:6379/0?strict",
    "sqlite": "OUTLAST_STORE: sqlite:////data/outlast.db",
}


_SECRETS = """\
#   mkdir -m 700 secrets    # the .dockerignore (--kind dockerignore) keeps it out of the image
#   python3 -c 'import secrets; print(secrets.token_hex(24), end="")' > secrets/postgres-password
#   printf 'postgresql://agents:%s@postgres:5432/agents' "$(cat secrets/postgres-password)" > secrets/store
#   chmod 644 secrets/*     # for the containers' users, whatever your umask is; the folder keeps others out
"""
_REDIS = """
  redis:
    image: redis:7-alpine
    # everysec may lose the last second at a power cut; always loses nothing. An evicted key would be a lost run.
    command: ["redis-server", "--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction"]
    restart: unless-stopped
    stop_grace_period: 30s
    volumes:
      - redis:/data
    healthcheck: {test: ["CMD", "redis-cli", "ping"], interval: 5s, timeout: 3s, retries: 10}
"""
_POSTGRES = """
  postgres:
    image: postgres:16-alpine
    restart: unless-stopped
    stop_signal: SIGINT    # a fast shutdown: sessions are ended, nothing is lost
    stop_grace_period: 60s
    environment:
      POSTGRES_USER: agents
      POSTGRES_DB: agents
      POSTGRES_PASSWORD_FILE: /run/secrets/postgres-password
    secrets: [postgres-password]
    volumes:
      - postgres:/var/lib/postgresql/data
    # By TCP: while it makes its database, it answers on its socket only, and is not ready yet.
    healthcheck: {test: ["CMD", "pg_isready", "-h", "127.0.0.1", "-U", "agents"], interval: 5s, timeout: 3s, retries: 20}
"""
_FILES = """
secrets:
  postgres-password: {file: ./secrets/postgres-password}
  store: {file: ./secrets/store}
"""


def compose(n: DeploymentConfig) -> str:
    """Write a compose file with the agent and the server of its store, and nothing else."""
    postgres, redis = n.store == "postgres", n.store == "redis"
    depends = (
        "" if n.embedded else f"\n    depends_on:\n      {n.store}: {{condition: service_healthy}}"
    )
    secrets = "\n    secrets: [store]" if postgres else ""
    volumes = "".join(
        [
            f"  {name}: {{}}\n"
            for name, is_there in (("redis", redis), ("postgres", postgres))
            if is_there
        ]
    )
    return f"""\
# Made by: {n.command("compose")}
{_SECRETS if postgres else ""}#   docker compose up --build --scale agent={1 if n.embedded else n.replicas}
name: {n.name}
services:
  agent:
    build: .
    image: "{n.image}"
    command: ["worker", "{n.module}"]
    restart: unless-stopped
    stop_signal: SIGTERM
    stop_grace_period: {n.stop}s    # OUTLAST_GRACE {n.grace} + 5; the container is gone as soon as the worker is
    environment:
      {_STORE[n.store]}
      OUTLAST_GRACE: "{n.grace}"
      OUTLAST_LEASE: "{n.lease}"
      OUTLAST_STALL_MAX: "{n.stall_max}"
      OUTLAST_CONCURRENCY: "{n.concurrency}"
      OUTLAST_HTTP: 127.0.0.1:{n.port}    # for the health check of the image{secrets}
    volumes:
      - data:/data
      - logs:/logs    # what the agents write by themselves; the worker logs to stderr
    read_only: true
    tmpfs: [/tmp]
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    logging: {{driver: json-file, options: {{max-size: 10m, max-file: "5"}}}}{depends}
{_REDIS if redis else ""}{_POSTGRES if postgres else ""}
volumes:
  data: {{}}
  logs: {{}}
{volumes}{_FILES if postgres else ""}"""
