"""The doctor asks real servers, each set up in a way that is in order, or is not."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from outlast.settings.load import load
from outlast.store.address import store_at
from outlast.store.postgres.address import parse
from outlast.testing import servers
from outlast.tools.doctor.facts import gather
from outlast.tools.doctor.finding import Finding, Level
from outlast.tools.doctor.fleet import store as store_check
from outlast.tools.doctor.servers import postgres, redis

sys.path.insert(0, str(Path(__file__).parents[2] / "store"))
from transaction_pooler import pooling

from support.waiting import WAIT_SECONDS


def told(check, address: str) -> list[Finding]:
    return [one for one in check(gather(load({"store": address}, {}))) if one.level is not Level.OK]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--appendonly", "yes", "--appendfsync", "always"), None),
        (("--appendonly", "yes", "--appendfsync", "everysec"), "everysec"),
        (("--appendonly", "no"), "appendonly is off"),
        (("--appendonly", "yes", "--appendfsync", "always", "--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru"), "allkeys-lru"),
        (("--appendonly", "yes", "--appendfsync", "always", "--maxmemory", "50mb", "--maxmemory-policy", "volatile-lru"), None),
        (("--appendonly", "yes", "--appendfsync", "always", "--replicaof", "127.0.0.1", "1"), "replica"),
    ],
    ids=["durable", "everysec", "nothing kept", "evicting", "evicting others", "replica"],
)  # fmt: skip
def test_doctor_reports_what_a_redis_can_lose(options, says):
    with servers.redis_server(None, *options) as server:
        found = told(redis, server.url)
    if says is None:
        assert found == []
    else:
        assert [one for one in found if says in one.what], found


def said_of(address: str, *words: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "outlast", *words, "--store", address], capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
    )  # fmt: skip
    return done.stdout, done.stderr


def test_what_a_redis_can_lose_is_said_once_and_in_our_own_form():
    with servers.redis_server(None, "--appendonly", "no") as server:
        store = store_at(server.url)
        store.open()
        store.close()
        out, err = said_of(server.url, "doctor")
        assert out.count("appendonly is off") == 1 and "appendonly" not in err
        for words in (("chaos", "verify", "--since", "1h"), ("runs",)):
            out, err = said_of(server.url, *words)
            (line,) = [line for line in err.splitlines() if "appendonly is off" in line]
            assert line.startswith("outlast: ") and "appendonly" not in out


def test_a_redis_that_may_not_tell_is_no_redis_in_order():
    import redis as client

    with servers.redis_server(None, "--appendonly", "yes", "--appendfsync", "always") as server:
        with client.Redis(unix_socket_path=server.url.removeprefix("unix://")) as admin:
            admin.execute_command(
                "ACL", "SETUSER", "low", "on", ">hush", "~*", "&*", "+@all", "-config", "-info"
            )
        low = server.url.replace("unix://", "unix://low:hush@")
        found = told(redis, low)
        assert {one.level for one in found} == {Level.NOTE}
        assert any("appendonly" in one.what for one in found)
        assert any("appendfsync" in one.what for one in found)
        (wrong,) = told(store_check, low.replace("hush", "wrong"))
        assert (wrong.level, "wrong" in wrong.what) == (Level.ERROR, False)


def test_what_a_postgres_can_lose_and_how_it_is_reached():
    with servers.postgres_server(durable=True) as server:
        assert told(postgres, server.url) == []
        socket = Path(parse(server.url).options["host"]) / ".s.PGSQL.5432"
        with (
            tempfile.TemporaryDirectory(dir="/tmp") as folder,
            pooling(socket, Path(folder)) as pooler,
        ):
            (found,) = told(
                postgres, f"postgresql://postgres@/postgres?host={pooler.own_socket.parent}"
            )
            assert (found.level, "transaction pooler" in found.what) == (Level.NOTE, True)


@pytest.mark.parametrize(
    ("start", "missing"),
    [(servers.postgres_server, "redis"), (servers.redis_server, "psycopg")],
    ids=["postgres without redis", "redis without psycopg"],
)
def test_a_server_is_checked_without_the_package_of_the_other(start, missing):
    with start(None) as server:
        store = store_at(server.url)
        store.open()
        store.close()
        code = (
            f"import sys; sys.modules[{missing!r}] = None; import outlast.cli; outlast.cli.main()"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, "doctor", "--store", server.url],
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )
    assert "Traceback" not in done.stderr
    assert "the store can be opened and read" in done.stdout


def test_fixes_that_doctor_names_work():
    import psycopg

    with (
        servers.postgres_server(None, "synchronous_commit=off") as server,
        psycopg.connect(server.url, autocommit=True) as db,
    ):
        found = told(postgres, server.url)
        assert {one.what.split()[0] for one in found} == {
            "fsync",
            "synchronous_commit",
            "full_page_writes",
        }
        for one in found:
            name = one.what.split()[0]
            sentence = (
                "ALTER SYSTEM SET" if "ALTER SYSTEM" in one.fix else "ALTER ROLE postgres SET"
            )
            db.execute(f"{sentence} {name} = on")
