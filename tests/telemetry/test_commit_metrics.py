"""Commits are counted with their commands, their times and their failures."""

import pytest
from meter_tools import child, numbers

from outlast.errors import StoreBroken
from outlast.store.commands import FENCE, STATUS, Refused
from outlast.store.commit_metrics import Commits
from outlast.telemetry import names
from outlast.telemetry.meters import buckets, merged


def test_commit_metrics_count_commands_and_stale_fences():
    commits = Commits()
    commits.add([None, Refused(FENCE), Refused(STATUS)], 0.0007)
    commits.add([None], 3.0)
    commits.failed("unknown")
    commands, total = buckets(names.COMMIT_COMMANDS, merged([commits.commands])[()])
    assert (dict(commands)["1.0"], dict(commands)["5.0"], dict(commands)["+Inf"], total) == (
        1,
        2,
        2,
        4,
    )
    seconds, _ = buckets(names.COMMIT_SECONDS_TAKEN, merged([commits.seconds, commits.seconds])[()])
    assert (dict(seconds)["0.001"], dict(seconds)["+Inf"]) == (2, 4), "of two threads: their sums"
    assert (commits.stale, commits.failures.counts["unknown",]) == (1, 1)


def test_unknown_commits_are_counted(world):
    from outlast.store.protocol import CommitUnknown

    async def main(app):
        real, fails = app.store.commit, [CommitUnknown("gone"), CommitUnknown("gone")]

        def commit(commands):
            if fails:
                raise fails.pop()
            return real(commands)

        app.store.commit = commit
        try:
            await (await app.start(child(), id="run")).result()
        finally:
            app.store.commit = real
        return numbers(app, "outlast_commit_failures_total")

    assert world.do(main)["unknown",] == 2


def test_broken_store_is_counted(world):
    async def main(app):
        real = app.store.commit

        def broken(_):
            raise StoreBroken("its file is damaged")

        app.store.commit = broken
        try:
            with pytest.raises(StoreBroken):
                await app.start(child(), id="run")
        finally:
            app.store.commit = real
        return numbers(app, "outlast_commit_failures_total")

    assert world.do(main)["fault",] == 1
