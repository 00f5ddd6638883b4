"""Define the settings: every limit is a number here.

`outlast.settings.load` defines where the values come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from outlast.settings.checks import check
from outlast.settings.redaction import for_display


@dataclass(frozen=True, slots=True, repr=False)
class Settings:
    """Hold the value of every setting, and raise SettingsError for impossible ones."""

    store: str = "sqlite:///outlast.db"
    """The address of the store."""

    lease: float = 30.0
    """Seconds a worker may hold its runs without a heartbeat."""
    heartbeat: float = 0.2
    """Seconds between heartbeats on one host. Without its lock, a worker is dead after missing two.
    """
    poll: float = 2.0
    """Seconds between polls of the store when no notification arrives."""
    store_patience: float = 30.0
    """Seconds that a write may take from its request on while the store is locked, full or away."""
    store_timeout: float = 10.0
    """Seconds that one store call may wait for an answer. Then the connection is replaced."""
    close_timeout: float = 5.0
    """Seconds that step bodies have to end when the app closes."""
    grace: float = 30.0
    """Seconds from the first stop signal to this process's end, at least 1. Or SHUTDOWN_TIMEOUT."""
    checkpoint_reserve: float = 3.0
    """Seconds of the grace for steps asked to stop. Unless given, at most a quarter of it."""
    exit_reserve: float = 2.0
    """Seconds of the grace for clean-up, report and closing. Unless given, at most a quarter."""
    signals: int = 1
    """Whether SIGTERM and SIGINT begin a drain. 0: no handler is installed."""
    http: str = ""
    """The address of the HTTP server, like 127.0.0.1:8080. Empty: no server."""
    http_secret: str = ""
    """The bearer token that POST /shutdown and GET /drain always require. Empty: see `http`."""
    api_tokens: str = ""
    """Who may use the HTTP API: items like name:role:token, separated by commas or line ends."""
    api_masked_roles: str = ""
    """The roles that see no values over the HTTP API, separated by commas."""
    api_cors_origins: str = ""
    """The origins whose pages may call the HTTP API, separated by commas. Empty: none."""
    api_body_max: int = 12_000_000
    """Bytes of one request's body to the HTTP API."""
    api_body_timeout: float = 30.0
    """Seconds within which the body of a request must arrive."""
    api_send_timeout: float = 30.0
    """Seconds that a client of the HTTP API may take to read what was sent, before it is dropped.
    """
    api_streams_max: int = 200
    """Requests of one caller that wait for a result or follow a stream at the same time."""
    api_connections_max: int = 1_000
    """Connections to `outlast serve`."""
    server: str = ""
    """The URL of the HTTP API that a `Client` and the command line use. Empty: the store is used.
    """
    token: str = ""
    """The bearer token for that API."""
    client_timeout: float = 30.0
    """Seconds that a `Client` waits for an answer before it repeats the request."""
    client_patience: float = 60.0
    """Seconds for which a `Client` repeats a request without an answer."""
    client_backoff: float = 0.2
    """Seconds until a `Client` repeats a request. Each further repeat doubles them."""
    client_backoff_max: float = 5.0
    """The limit of that doubling, in seconds."""
    health_stall: float = 0.0
    """Seconds that the event loop may be blocked before /health answers 503. 0: it never does."""
    stall_warn: float = 1.0
    """Seconds that a step may block the event loop before a warning names it. 0: no warning."""
    stall_max: float = 20.0
    """Seconds that the event loop may be blocked before this worker lets its lease run out."""
    metrics: int = 1
    """Whether metrics are counted. 0: nothing is counted, and /metrics is empty."""
    metrics_series_max: int = 500
    """Label sets per metric, and at most 100 per histogram. Further ones are counted as `other`."""
    log_values: int = 0
    """Characters of an argument, a result or an error's text that a log line may contain. 0: none.
    """

    check_workflows: int = 1
    """Whether a workflow's first execution checks for calls that differ in a replay. 0: no."""

    queues: str = "default"
    """The queues a worker claims from, separated by commas."""
    concurrency: int = 20
    """Runs that a worker claims and executes concurrently."""
    linger: float = 1.0
    """Minimum seconds that a worker holds a run that only waits."""
    progress_interval: float = 0.5
    """Seconds between two writes of one step's progress."""
    publish_interval: float = 0.1
    """Seconds between two writes of what one step publishes to a stream."""
    effect_margin: float = 5.0
    """Seconds past its timeout after which an effect's act counts as over, wherever it was started.
    """
    verify_attempts: int = 5
    """How often an effect's verify may be undecided before a person has to decide."""
    ramp: float = 5.0
    """Seconds from a worker's start until all of its slots are open. 0: at once."""
    new_share: float = 0.2
    """The share of a worker's slots that returned runs leave to new ones. 0: none."""
    returned_rate: float = 100.0
    """Returned runs that a worker takes over per second."""
    suspect_patience: float = 10.0
    """Seconds that busy workers leave a suspect to an idle one before they make room for it."""
    death_backoff: float = 1.0
    """Seconds until a run that died twice is tried again. Each further death doubles them."""
    death_backoff_max: float = 300.0
    """The limit of that doubling, in seconds."""
    item_memory: float = 60.0
    """Seconds that an acked item's id is remembered. Putting the id again within them adds no item.
    """

    chaos_kills_per_hour: float = 0.0
    """How often per hour `outlast worker` ends itself at random, after its first minute. 0: never.
    """
    chaos_mode: str = "drain"
    """How it does so: drain, kill, or both."""

    max_attempts: int = 5
    """Deaths in a row with nothing recorded, or failures of an item, that make a dead letter."""
    interruptions_max: int = 100
    """Interruptions in a row with nothing recorded that make a dead letter."""
    queue_depth_max: int = 1_000_000
    """Runs or items queued in one queue, unless the queue has its own limit."""
    submit_many_max: int = 100_000
    """Runs or items submitted in one commit."""

    value_size_max: int = 10_000_000
    """Bytes of one value as JSON."""
    stream_size_max: int = 10_000_000
    """Characters (as JSON) that one step may publish to a stream."""
    journal_entries_max: int = 1_000_000
    """Entries of one run."""
    messages_max: int = 10_000
    """Messages sent to one run, including those that it has received."""
    message_size_max: int = 256_000
    """Bytes of one message as JSON. With `messages_max` it bounds what others can make a run store.
    """
    session_fields_max: int = 1_000
    """Fields of one session or checkpoint, including lists."""
    session_items_max: int = 100_000
    """Items of one list of a session."""
    id_length_max: int = 500
    """Characters of a run's, message's or session's id."""
    name_length_max: int = 200
    """Characters of a workflow's, step's, queue's or message's name."""
    error_text_max: int = 20_000
    """Characters of a recorded message or traceback; longer ones are cut."""
    batch_size_max: int = 1_000
    """Commands in one transaction."""

    def __post_init__(self) -> None:
        """Raise SettingsError for a value of the wrong type, or for contradictory values."""
        check(self)

    def __repr__(self) -> str:
        """Return the values with secrets masked, because this may end up in a log."""
        values = (
            f"{field.name}={for_display(field.name, getattr(self, field.name))}"
            for field in fields(self)
        )
        return f"Settings({', '.join(values)})"

    @property
    def call_timeout(self) -> float:
        """Return the bound on one store call.

        A retry must fit into `store_patience`, and a few into `lease`.
        """
        return min(self.store_timeout, self.store_patience / 2, self.lease / 4)

    @classmethod
    def load(cls, given: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> Settings:
        """Return the settings in force.

        `given` (None means not given) comes first, then the environment and its files, then the
        defaults. Raise SettingsError for an unknown name, a value of the wrong type or an
        impossible value, before anything is opened.
        """
        from outlast.settings.load import load

        return load(given, environ).settings
