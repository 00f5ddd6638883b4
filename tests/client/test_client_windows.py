"""Debounced submissions and windows through the client."""

from datetime import UTC

import pytest
from client_tools import reporting, run_remote

from outlast import AlreadySubmitted, SettingsError


def test_submissions_in_a_window_are_those_of_the_store():
    async def scenario(remote, client):
        options = {"key": "ann", "queue": "elsewhere"}
        first = await client.submit(reporting("a"), debounce=60, debounce_max=90, **options)
        second = await client.submit(reporting("b"), debounce=60, debounce_max=90, **options)
        theirs = await remote.app.submit(reporting("c"), debounce=60, debounce_max=90, **options)
        assert first.id == second.id == theirs.id
        assert (await first.info()).key == "ann"
        await client.submit(reporting("a"), id="doc", window=60, queue="elsewhere")
        with pytest.raises(AlreadySubmitted) as raised:
            await client.submit(reporting("b"), id="doc", window=60, queue="elsewhere")
        assert raised.value.until.tzinfo is UTC
        assert raised.value.id.startswith("doc~")
        with pytest.raises(SettingsError, match="needs an id or a key"):
            await client.submit(reporting("a"), debounce=5)

    run_remote(scenario)


@pytest.mark.parametrize("on_repeat", ["reject", "join", "replace"])
def test_submission_whose_answer_was_cut_is_accepted_once(on_repeat):
    async def scenario(remote, client):
        remote.proxy.cut_replies(b"POST /v1/runs ", 3)
        run = await client.submit(reporting("tides"), id="doc", window=60, on_repeat=on_repeat)
        assert remote.proxy.cuts == 3
        assert [info.id for info in await remote.app.runs()] == [run.id]
        assert (await run.result()).topic == "tides"

    run_remote(scenario)
