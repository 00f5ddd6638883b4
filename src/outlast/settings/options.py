"""The settings as keyword options of `Outlast`, `run` and the testing `App`, for type checkers."""

from __future__ import annotations

from typing import TypedDict


class SettingsOptions(TypedDict, total=False):
    """Every setting except those with their own parameters, and those of a client.

    A test compares it with `Settings`.
    """

    lease: float | None
    heartbeat: float | None
    poll: float | None
    store_patience: float | None
    store_timeout: float | None
    close_timeout: float | None
    grace: float | None
    checkpoint_reserve: float | None
    exit_reserve: float | None
    signals: int | None
    http: str | None
    http_secret: str | None
    api_tokens: str | None
    api_masked_roles: str | None
    api_cors_origins: str | None
    api_body_max: int | None
    api_body_timeout: float | None
    api_send_timeout: float | None
    api_streams_max: int | None
    api_connections_max: int | None
    health_stall: float | None
    stall_max: float | None
    stall_warn: float | None
    metrics: int | None
    metrics_series_max: int | None
    log_values: int | None
    check_workflows: int | None
    concurrency: int | None
    linger: float | None
    progress_interval: float | None
    publish_interval: float | None
    effect_margin: float | None
    verify_attempts: int | None
    ramp: float | None
    new_share: float | None
    returned_rate: float | None
    suspect_patience: float | None
    death_backoff: float | None
    death_backoff_max: float | None
    item_memory: float | None
    chaos_kills_per_hour: float | None
    chaos_mode: str | None
    max_attempts: int | None
    interruptions_max: int | None
    queue_depth_max: int | None
    submit_many_max: int | None
    value_size_max: int | None
    stream_size_max: int | None
    journal_entries_max: int | None
    messages_max: int | None
    message_size_max: int | None
    session_fields_max: int | None
    session_items_max: int | None
    id_length_max: int | None
    name_length_max: int | None
    error_text_max: int | None
    batch_size_max: int | None
