"""Secrets are masked in log lines."""

import asyncio
import json
import logging

import pytest

from outlast import Outlast
from outlast.errors import StoreError
from outlast.logs import JSONFormatter, TextFormatter
from outlast.settings import Settings
from outlast.settings.redaction import secrets_of
from outlast.telemetry.error_text import format_error, redact

SECRET = "4111-1111-1111-1111"
PASSWORD = 'p"ä/ss wörd'


@pytest.fixture
def hiding(monkeypatch):
    from outlast.telemetry import logs

    monkeypatch.setattr(logs, "_secrets", {})
    return logs


def record(message: str, error: Exception | None = None, **extra) -> logging.LogRecord:
    info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord("anybody", logging.INFO, "file", 1, message, (), info)
    vars(made).update(extra)
    return made


def test_configured_secrets_are_masked_in_log_lines(hiding):
    hiding.hide(PASSWORD, "abc")
    quoted = "p%22%C3%A4%2Fss%20w%C3%B6rd"
    made = record(
        f"at postgresql://me:{quoted}@host",
        ValueError(PASSWORD),
        run=f"r {PASSWORD}",
        workers=[PASSWORD],
    )
    for formatter in (JSONFormatter(), TextFormatter()):
        line = formatter.format(made)
        assert "rd" not in line.replace("record", ""), line
        assert line.count("***") == 4
    assert "abcdef" in TextFormatter().format(record("abcdef")), (
        "a secret of three characters is in every other word"
    )


@pytest.mark.parametrize("formatter", [JSONFormatter(), TextFormatter()], ids=["json", "text"])
def test_quoted_secrets_are_masked_in_log_lines(hiding, formatter):
    secret = 'qu"ote\\back\nslash-ü'
    hiding.hide(secret)
    for text in (
        f"{secret!r}",
        f"{[secret]}",
        json.dumps(secret),
        json.dumps(secret, ensure_ascii=False),
    ):
        record = logging.makeLogRecord({"name": "x", "levelname": "INFO", "msg": "%s", "args": (text,), "reason": text, "event": text})  # fmt: skip
        said = formatter.format(record)
        assert "***" in said
        assert "back" not in said, said


def test_redis_default_user_is_not_a_secret():
    assert not any(secrets_of(Settings(store="redis://default@127.0.0.1:1/0")))


def test_app_masks_its_http_secret(hiding, tmp_path):
    async def main() -> None:
        async with Outlast(f"sqlite:///{tmp_path / 'a.db'}", http_secret="s3cret-of-mine"):
            pass

    asyncio.run(main())
    assert hiding.hidden("the header was Bearer s3cret-of-mine") == "the header was Bearer ***"


@pytest.mark.parametrize(
    ("address", "password"),
    [
        ("postgresql://me:hunter2-x@127.0.0.1:1/db", "hunter2-x"),
        ("postgresql://127.0.0.1:1/db?user=me&password=hunter2-x", "hunter2-x"),
        ("redis://:hunter2-x@127.0.0.1:1/0", "hunter2-x"),
        ("redis://me:hunter2%40x@127.0.0.1:1/0", "hunter2@x"),
        ("redis://hunter2-x@127.0.0.1:1/0", "hunter2-x"),
    ],
)
def test_store_password_is_in_no_log_record(hiding, heard, address, password):
    async def main() -> None:
        async with Outlast(address, store_patience=0.2):
            raise AssertionError

    with pytest.raises(StoreError) as failed:
        asyncio.run(main())
    assert password not in str(failed.value)
    assert hiding.hidden(f"it was {password}") == "it was ***"
    for one in heard.records:
        assert password not in repr(vars(one))
        assert password not in logging.Formatter().format(one)


def test_long_exception_chain_is_masked_up_to_a_limit():
    def chained(length: int) -> None:
        if length == 0:
            raise KeyError(SECRET)
        try:
            chained(length - 1)
        except Exception as error:
            raise ValueError(f"{length} {SECRET}") from error

    kinds = []
    with pytest.raises(ValueError) as caught:
        chained(30)
    redacted = redact(caught.value, 0)
    while redacted is not None:
        kinds.append(type(redacted).__name__)
        assert redacted.__context__ is None, "which is the same error again"
        redacted = redacted.__cause__
    assert kinds == ["ValueError"] * 10


def test_error_with_a_failing_str_is_still_logged():
    class Unsayable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert format_error(Unsayable(), 100).endswith(
        "Unsayable: (its message could not be read: RuntimeError)"
    )
    assert str(redact(Unsayable(), 100)) == "(its message could not be read: RuntimeError)"
