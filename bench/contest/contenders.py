"""Who takes part: each with the packages of its environment, the stores it is measured on, and how it was set up, in words."""

from __future__ import annotations

from typing import Literal, NamedTuple

Store = Literal["sqlite", "postgres", "redis"]


class Contender(NamedTuple):
    name: str
    driver: str
    """The program in `drivers/`."""
    stores: tuple[Store, ...]
    packages: tuple[str, ...] = ()
    """What pip installs for it, pinned. Empty: it is measured from the environment that runs the bench."""


OUTLAST = Contender("Outlast", "outlast_driver.py", ("sqlite", "postgres", "redis"))
RAW = Contender("raw store", "raw_driver.py", ("sqlite", "postgres"))
DBOS = Contender("DBOS", "dbos_driver.py", ("sqlite", "postgres"), ("dbos==3.3.0",))
LANGGRAPH = Contender(
    "LangGraph",
    "langgraph_driver.py",
    ("sqlite", "postgres"),
    (
        "langgraph==1.2.20",
        "langgraph-checkpoint-sqlite==3.1.2",
        "langgraph-checkpoint-postgres==3.2.0",
        "psycopg[binary,pool]==3.3.8",
    ),
)
PGQUEUER = Contender(
    "pgqueuer", "pgqueuer_driver.py", ("postgres",), ("pgqueuer==1.6.0", "asyncpg==0.32.0")
)
CELERY = Contender(
    "Celery", "celery_driver.py", ("redis",), ("celery[redis]==5.7.0", "hiredis==3.5.0")
)
DRAMATIQ = Contender(
    "Dramatiq", "dramatiq_driver.py", ("redis",), ("dramatiq[redis]==2.2.1", "hiredis==3.5.0")
)

STEPS = (OUTLAST, RAW, DBOS, LANGGRAPH)
QUEUE = (OUTLAST, DBOS, PGQUEUER, CELERY, DRAMATIQ)
DEATH = QUEUE
