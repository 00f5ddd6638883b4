"""Understand variables that other tools made common, where no Outlast setting overrides them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode

from outlast.errors import SettingsError
from outlast.settings.origin import Kind, Origin, RawValue
from outlast.settings.redaction import masked

GRACE = "SHUTDOWN_TIMEOUT"
STORES = ("DATABASE_URL", "REDIS_URL", "REDIS_HOST", "STATE_DB_PATH")
"""In order of precedence."""
OURS = Path("outlast.db")
"""The file of the default store."""

# Patterns are compiled when they are used: few programs set these variables.
_DRIVER = r"(?is)(postgres(?:ql)?)\+\w+(://.*)"
_REDIS = r"(?i)(?:redis|rediss|unix)://"
_HOST = r"[\w.:\[\]%-]+"
_LIBPQ = (
    "application_name|channel_binding|client_encoding|connect_timeout|dbname|"
    "fallback_application_name|gss.*|host|hostaddr|keepalives.*|krbsrvname|load_balance_hosts|"
    "options|passfile|password|port|require_auth|requirepeer|service|ssl.+|"
    "target_session_attrs|tcp_user_timeout|user"
)


def grace_of(environ: Mapping[str, str]) -> RawValue | None:
    text = environ.get(GRACE, "")
    return RawValue(text, Origin(Kind.FOREIGN, GRACE)) if text else None


def store_of(environ: Mapping[str, str]) -> RawValue | None:
    """Return the store that another tool's variable names, or None.

    Raise SettingsError if the working folder also contains the default store: after an upgrade, the
    runs in it must not disappear from view.
    """
    for name, address_of in zip(STORES, (_database, _redis, _redis_host, _state), strict=True):
        address = address_of(environ)
        if address is None:
            continue
        if OURS.exists() and not _is_ours(address):
            raise SettingsError(
                f"two stores are possible: {OURS} in this folder, and {masked(address)} from "
                f"{name}. Choose one: set "
                f"OUTLAST_STORE=sqlite:///{OURS}, or OUTLAST_STORE with the other address."
            )
        return RawValue(address, Origin(Kind.FOREIGN, name))
    return None


def _is_ours(address: str) -> bool:
    path = unquote(address.removeprefix("sqlite:///").partition("?")[0])
    return address.startswith("sqlite:///") and Path(path).resolve() == OURS.resolve()


def plain_address(address: str) -> str:
    """Return the address with a lower-case scheme and without SQLAlchemy's driver.

    `postgresql+psycopg://` becomes `postgresql://`.
    """
    found = re.fullmatch(_DRIVER, address)
    scheme, colon, rest = (found[1] + found[2] if found else address).partition(":")
    return f"{scheme.lower()}{colon}{rest}" if scheme.isalpha() else address


def _database(environ: Mapping[str, str]) -> str | None:
    address = plain_address(environ.get("DATABASE_URL", "").strip())
    if not re.match(r"postgres(?:ql)?://", address, re.IGNORECASE):
        # It names MySQL, or another program's SQLite file.
        return None
    head, mark, query = address.partition("?")
    return f"{head}?{options}" if mark and (options := _libpq_options(query)) else head


def _libpq_options(query: str) -> str:
    """Return the options that libpq understands.

    The others were meant for another driver, and `schema` for another program.
    """
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if re.fullmatch(_LIBPQ, name):
            options[name] = value
        # asyncpg and node use this option. The result is never less safe than it was meant.
        elif name == "ssl":
            options["sslmode"] = (
                "require" if value.lower() in ("true", "1", "yes", "on", "") else value
            )
        # Prisma uses this option.
        elif name == "pgbouncer" and value.lower() in ("true", "1"):
            options["pooler"] = "yes"
    return urlencode(options, quote_via=quote)


def _redis(environ: Mapping[str, str]) -> str | None:
    address = environ.get("REDIS_URL", "").strip()
    if not re.match(_REDIS, address):
        return None
    head, _, query = address.partition("?")
    # Keep the database and the TLS options. The others were meant for another client.
    options = {
        name: value for name, value in parse_qsl(query) if name == "db" or name.startswith("ssl_")
    }
    return _strict(head, options)


def _redis_host(environ: Mapping[str, str]) -> str | None:
    host = environ.get("REDIS_HOST", "").strip()
    if not host:
        return None
    if not re.fullmatch(_HOST, host):
        raise SettingsError(
            "REDIS_HOST has a character that no host name can have. Put an address into "
            "REDIS_URL, or set OUTLAST_STORE=redis://…"
        )
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    password = environ.get("REDIS_PASSWORD", "")
    user_info = f":{quote(password, safe='')}@" if password else ""
    port = _number(environ, "REDIS_PORT", "6379", 65_535)
    database = _number(environ, "REDIS_DB", "0", 1_000_000)
    return _strict(f"redis://{user_info}{host}:{port}/{database}", {})


def _strict(address: str, options: dict[str, str]) -> str:
    """Return the address with `strict=yes`.

    A server found this way is usually a cache. Outlast refuses a server that may lose acknowledged
    writes.
    """
    return f"{address}?{urlencode(options | {'strict': 'yes'}, quote_via=quote)}"


def _number(environ: Mapping[str, str], name: str, default: str, most: int) -> int:
    text = environ.get(name, "").strip() or default
    # Kubernetes sets this form for a Service called redis.
    linked = re.fullmatch(r"\w+://.*:(\d+)", text)
    digits = linked[1] if linked else text
    if not re.fullmatch(r"\d{1,9}", digits, re.ASCII) or int(digits) > most:
        raise SettingsError(
            f"{name}={masked(text)!r} is not a number from 0 to {most}. Fix it, or name the store: "
            "OUTLAST_STORE=redis://…"
        )
    return int(digits)


def _state(environ: Mapping[str, str]) -> str | None:
    path = environ.get("STATE_DB_PATH", "").strip()
    if path.lower().startswith("sqlite://"):
        return plain_address(path)
    if not path or path == ":memory:" or "://" in path:
        # It names no file.
        return None
    return f"sqlite:///{quote(path)}"
