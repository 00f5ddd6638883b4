"""Parse `postgresql://user:password@host:5432/database?schema=outlast&pooler=no`.

Separate Outlast's own options from those that go to libpq.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote

from psycopg import pq

from outlast.errors import SettingsError
from outlast.settings.redaction import masked
from outlast.store.address import BAD_ADDRESS, PORT, PORT_MAX, server_parts

SCHEMA = "outlast"
_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
YES, NO = ("yes", "true", "on", "1"), ("no", "false", "off", "0")
DEFAULTS = {
    "connect_timeout": ("PGCONNECT_TIMEOUT", "10"),
    "application_name": ("PGAPPNAME", "outlast"),
    "keepalives_idle": ("", "30"),
    "keepalives_interval": ("", "10"),
    "tcp_user_timeout": ("", "30000"),
}
"""Options for libpq where neither the address nor the environment variable sets them. With them, a
server that disappears silently is noticed.
"""
OURS = ("schema", "schema_owner", "pooler", "migrate")
LIBPQ = frozenset(
    (
        *("host", "hostaddr", "port", "dbname", "user", "password", "service", "options"),
        *("application_name", "fallback_application_name", "client_encoding"),
        *(
            "connect_timeout",
            "keepalives",
            "keepalives_idle",
            "keepalives_interval",
            "keepalives_count",
        ),
        *("tcp_user_timeout", "target_session_attrs", "load_balance_hosts"),
        *(
            "min_protocol_version",
            "max_protocol_version",
            "channel_binding",
            "require_auth",
            "requirepeer",
        ),
        *("sslmode", "sslnegotiation", "sslcompression", "sslsni", "sslcertmode", "sslpassword"),
        *("sslcert", "sslkey", "sslrootcert", "sslcrl", "sslcrldir"),
        *("ssl_min_protocol_version", "ssl_max_protocol_version", "gssencmode", "krbsrvname"),
    )
)
"""The options of libpq that an address may have.

Excluded are options that load code, name a file to take a password from or to write to, hand
credentials on, or change the protocol. Each has a variable that the user's own environment may set,
or no use here.
"""
FILES = ("sslcert", "sslkey", "sslrootcert", "sslcrl", "sslcrldir")
"""Options that must be plain paths. For a key with a colon, libpq loads an OpenSSL engine, a shared
object.
"""


@dataclass(frozen=True)
class Address:
    place: str
    """The address as shown to people: without the password, and only with options that identify the
    store.
    """
    schema: str
    pooler: bool | None
    """Whether a transaction pooler is in between. None means that the connection finds out."""
    migrate: bool
    options: dict[str, str] = field(repr=False)
    """Options for libpq."""
    schema_owner: str | None = None
    """A role whose objects in the schema are trusted: see `schema_owner`."""

    def masked(self, text: str) -> str:
        """Return the text with the password masked."""
        for name in ("password", "sslpassword"):
            secret = self.options.get(name) or (
                os.environ.get("PGPASSWORD", "") if name == "password" else ""
            )
            if secret:
                for shape in (secret, quote(secret, safe="")):
                    text = text.replace(shape, "***")
        return text


def parse(address: str) -> Address:
    """Parse an address. Raise SettingsError for what neither Outlast nor libpq understands.

    No error message contains the password.
    """
    parts = server_parts(address)
    if "@" in parts.query:
        # What looks like an option may be part of a password.
        raise SettingsError(BAD_ADDRESS)
    user, hosts = _user_and_hosts(parts.netloc)
    options = {**user, **hosts}
    if len(parts.path) > 1:
        options["dbname"] = unquote(parts.path[1:])
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    ours: dict[str, str] = {name: given.pop(name) for name in OURS if name in given}
    host = f"?host={given['host']}" if "host" in given else ""
    place = f"{masked(address).partition('?')[0]}{host}"
    _check_options(given, place)
    options.update(given)
    for name, (variable, value) in DEFAULTS.items():
        if name not in options and not os.environ.get(variable):
            options[name] = value
    options["client_encoding"] = "UTF8"
    schema = ours.get("schema", SCHEMA)
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        raise SettingsError(
            f"{schema!r} in {place} cannot be the name of a schema: use up to 63 letters (a-z, "
            "A-Z), digits, _ and -, and begin with a letter or _, "
            "but not with pg_."
        )
    if schema != SCHEMA:
        place += f"{'&' if host else '?'}schema={schema}"
    pooler = _truth(ours, "pooler", place)
    migrate = _truth(ours, "migrate", place) is not False
    return Address(place, schema, pooler, migrate, options, ours.get("schema_owner") or None)


def _check_options(given: dict[str, str], place: str) -> None:
    allowed = LIBPQ & {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    refused = sorted(set(given) - allowed)
    if refused:
        raise SettingsError(
            f"option {', '.join(refused)} is not allowed in {place}. Allowed: "
            f"{', '.join(OURS)}, and of libpq's "
            f"{', '.join(sorted(allowed))}. For others set the variable of libpq, such as "
            "PGPASSFILE."
        )
    for name in FILES:
        if ":" in given.get(name, "") or "\0" in given.get(name, ""):
            raise SettingsError(
                f"{name} in {place} must be the path of a file, without a colon: libpq takes a "
                "name with a colon "
                "for an engine of OpenSSL, and loads it as code. Set PGSSLKEY if you mean "
                "an engine."
            )


def _truth(ours: dict[str, str], name: str, place: str) -> bool | None:
    value = ours.get(name, "").lower()
    if value not in (*YES, *NO, ""):
        raise SettingsError(f"{name} in {place} must be yes or no.")
    return None if not value else value in YES


def _user_and_hosts(netloc: str) -> tuple[dict[str, str], dict[str, str]]:
    before, _, after = netloc.rpartition("@")
    name, colon, password = before.partition(":")
    user = {"user": unquote(name)} if name else {}
    if colon:
        user["password"] = unquote(password)
    hosts, ports = [], []
    for each in after.split(",") if after else ():
        host, colon, port = each.rpartition(":") if not each.endswith("]") else (each, "", "")
        if not colon:
            host, port = each, ""
        if port and not (port.isascii() and port.isdigit() and 0 < int(port) <= PORT_MAX):
            raise SettingsError(
                f"the port in a postgresql: address must be {PORT}. Or else: {BAD_ADDRESS}"
            )
        hosts.append(unquote(host).strip("[]"))
        ports.append(port)
    found = {"host": ",".join(hosts)} if any(hosts) else {}
    if any(ports):
        found["port"] = ",".join(ports)
    return user, found
