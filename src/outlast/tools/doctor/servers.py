"""Check what a server can lose, and how it is reached."""

from __future__ import annotations

from collections.abc import Iterator

from outlast.tools.doctor.facts import Facts
from outlast.tools.doctor.finding import Finding, error, note, ok, warning

SKEW_SECONDS = 1.0


_BROKEN = "a crash of its machine may leave the database broken"
_DURABLE = (
    (
        "fsync",
        _BROKEN,
        (
            "ALTER SYSTEM SET fsync = on, then SELECT pg_reload_conf(). The setting belongs to the "
            "server, not to a role."
        ),
    ),
    (
        "full_page_writes",
        _BROKEN,
        (
            "ALTER SYSTEM SET full_page_writes = on, then SELECT pg_reload_conf(). The setting "
            "belongs to the server, not to a role."
        ),
    ),
)


def redis(facts: Facts) -> Iterator[Finding]:
    if facts.scheme != "redis" or not facts.server:
        yield from _silent("redis", facts)
        return
    server = facts.server
    for danger in server["dangers"]:
        level = note if "does not tell" in danger else error
        yield level(danger, "`outlast explain redis` says what each setting can lose.")
    if server.get("appendfsync") == "everysec":
        yield note(
            "appendfsync is everysec: a crash of its machine loses up to about a second of what "
            "was acknowledged.",
            "`appendfsync always` loses nothing (`outlast explain redis`).",
        )
    elif server.get("appendfsync") is None:
        yield note(
            "the server does not report appendfsync (CONFIG GET).",
            "With `everysec` a crash of its machine loses up to about a second, with `always` "
            "nothing (`outlast explain redis`).",
        )
    yield from _skew(facts)
    if not server["dangers"]:
        yield ok(
            f"Redis {server.get('version') or '?'}: appendonly is on, nothing is evicted, "
            "and it is not a replica."
        )


def postgres(facts: Facts) -> Iterator[Finding]:
    if facts.scheme != "postgresql" or not facts.server:
        yield from _silent("postgresql", facts)
        return
    server = facts.server
    found = False
    for name, what, fix in _DURABLE:
        if server.get(name) == "off":
            found = True
            yield error(f"{name} is off: {what}.", fix)
    if server.get("synchronous_commit") == "off":
        found = True
        yield warning(
            "synchronous_commit is off: a crash may lose what your own steps commit with this "
            "role. Outlast turns it on for its own commits.",
            "Set it to on: ALTER ROLE … SET synchronous_commit = on.",
        )
    if facts.read_only and server.get("replica"):
        found = True
        yield note("this server is a standby: it may be behind the primary.")
    elif not facts.read_only and (
        server.get("replica") or server.get("transaction_read_only") == "on"
    ):
        found = True
        yield error(
            "this server accepts no writes: it is a replica, or read-only.",
            "Give the address of the primary (target_session_attrs=read-write).",
        )
    if server.get("pooler"):
        found = True
        yield note(
            "a transaction pooler is in between: no LISTEN, no advisory locks. New work is found "
            "by polling, and a death by the lease.",
            "Give workers a direct address (or session pooling), or lower poll and lease. "
            "?pooler=yes in the address skips the detection.",
        )
    most = int(server.get("max_connections", 0))
    used = int(server.get("used", 0))
    if most and used > most * 0.8:
        found = True
        yield warning(
            f"{used} of {most} connections are taken.",
            "Each worker takes three. Raise max_connections, or put a pooler in between.",
        )
    skewed = list(_skew(facts))
    yield from skewed
    if not found and not skewed:
        yield ok(
            f"PostgreSQL {server.get('server_version')}: durable, direct, {used} of {most} "
            "connections taken."
        )


def _silent(scheme: str, facts: Facts) -> Iterator[Finding]:
    if facts.scheme == scheme and facts.server_error:
        yield note(f"the server's settings could not be read: {facts.server_error}")


def _skew(facts: Facts) -> Iterator[Finding]:
    skew = float(facts.server.get("skew", 0.0))
    trip = float(facts.server.get("trip", 0.0))
    if abs(skew) > SKEW_SECONDS + trip:
        yield warning(
            f"this machine's clock is {abs(skew):.1f} s {'behind' if skew > 0 else 'ahead of'} the "
            "server's.",
            "Outlast uses the server's clock, so nothing is lost, but logs and traces do not "
            "match. Start NTP.",
        )
