"""Users of a Redis server with the rights that docs/redis.md gives to Outlast, and no others."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import redis

PAGE = (Path(__file__).parents[2] / "docs" / "redis.md").read_text()
RULE = re.search(r"^    redis-cli (ACL SETUSER outlast .*(?:\n        .*)*)", PAGE, re.MULTILINE)[1]
PASSWORD = "PASSWORD"


def rule_for(tenant: str) -> list[str]:
    """Return the command of the page for a tenant, whose prefix is its name."""
    return shlex.split(RULE.replace("\\\n", " ").replace("outlast", tenant))


@contextmanager
def redis_tenant(server: str) -> Iterator[str]:
    """Yield the address of a new tenant. Its keys and its user are removed at the end."""
    tenant = f"t-{uuid4().hex}"
    with redis.Redis.from_url(server) as admin:
        admin.execute_command(*rule_for(tenant))
        host = urlsplit(server).netloc.rpartition("@")[2]
        here = urlsplit(server)._replace(netloc=f"{tenant}:{PASSWORD}@{host}").geturl()
        yield f"{here}{'&' if '?' in here else '?'}prefix={tenant}"
        admin.acl_deluser(tenant)
        remove_keys(admin, tenant)


def remove_keys(admin: redis.Redis, tenant: str) -> None:
    """Remove every key of a tenant."""
    keys = list(admin.scan_iter(f"*{tenant}*", count=10_000))
    if keys:
        admin.unlink(*keys)
