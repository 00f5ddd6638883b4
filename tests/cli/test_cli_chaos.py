"""The command line of `outlast chaos`: usage lines have what is typed, refusals say what there is, and a verdict is not misread."""

import signal

from cli_processes import Command

FLOWS = """
from outlast import step, workflow

@step
async def look(topic: str) -> str:
    return topic

@workflow
async def report(topic: str) -> str:
    return await look(topic)

@workflow
async def sell(topic: str) -> str:
    return await look(topic)
"""


def test_chaos_usage_shows_the_full_command(outlast):
    assert outlast("chaos", "--help").out.startswith("Usage: outlast chaos [OPTIONS]")
    assert outlast("chaos", "verify", "--help").out.startswith(
        "Usage: outlast chaos verify [OPTIONS]"
    )
    assert "Usage: outlast chaos [OPTIONS]" in outlast("chaos", "--faults", "flood").err


def test_chaos_without_submit_lists_the_workflows(outlast):
    (outlast.folder / "flows.py").write_text(FLOWS)
    answer = outlast("chaos", "flows.py")
    assert answer.code == 2
    assert "Available: report, sell." in answer.err


def test_chaos_with_a_wrong_setting_exits_2(tmp_path):
    with Command(tmp_path, "chaos", "--seconds", "1", OUTLAST_GRACES="3") as experiment:
        assert experiment.wait() == 2
        assert "Did you mean OUTLAST_GRACE?" in experiment.errors
        assert "Traceback" not in experiment.errors


def test_chaos_verdict_without_a_ledger_is_not_a_failure(tmp_path):
    words = ("--submit", "report", "--args", '["{n}"]', "--seconds", "1", "--kills-per-minute", "0")
    (tmp_path / "flows.py").write_text(FLOWS)
    with Command(tmp_path, "chaos", "flows.py", *words, "--report", "report") as experiment:
        assert experiment.wait() == 0, experiment.describe()
        said = experiment.output
    assert (
        "verdict: no violations found. Could not be checked in full: no action twice, no stale fence, redone\n"
        in said
    )


def test_interrupted_chaos_says_where_the_logs_are(tmp_path):
    with Command(tmp_path, "chaos", "--seconds", "600", "--report", "report") as experiment:
        experiment.wait_until(lambda: "starting" in experiment.output)
        assert experiment.end_by(signal.SIGINT) == 130
        said = experiment.errors
    assert (
        f"there is no report, because chaos was interrupted; the workers' logs are in {tmp_path}"
        in said
    )
