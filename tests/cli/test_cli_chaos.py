"""The command line of `outlast chaos`: usage lines have what is typed, refusals say what there is, and a verdict is not misread."""

import os
import signal
import subprocess
import sys
from pathlib import Path

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


def test_usage_and_refusals_have_the_command_as_it_is_typed(outlast):
    assert outlast("chaos", "--help").out.startswith("Usage: outlast chaos [OPTIONS]")
    assert outlast("chaos", "verify", "--help").out.startswith("Usage: outlast chaos verify [OPTIONS]")
    assert "Usage: outlast chaos [OPTIONS]" in outlast("chaos", "--blows", "flood").err


def test_a_module_without_submit_says_what_could_be_submitted(outlast):
    (outlast.folder / "flows.py").write_text(FLOWS)
    answer = outlast("chaos", "flows.py")
    assert answer.code == 2
    assert "There: report, sell." in answer.err


def chaos(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "outlast", "chaos", *words],
        capture_output=True, text=True, timeout=100, check=False, cwd=folder, env={**os.environ, **env},
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done


def test_a_wrong_setting_is_a_sentence_and_2(tmp_path):
    done = chaos(tmp_path, "--seconds", "1", OUTLAST_GRACES="3")
    assert done.returncode == 2
    assert "Did you mean OUTLAST_GRACE?" in done.stderr


def test_what_only_a_ledger_knows_is_not_read_as_a_failure(tmp_path):
    words = ("--submit", "report", "--args", '["{n}"]', "--seconds", "1", "--kills-per-minute", "0")
    (tmp_path / "flows.py").write_text(FLOWS)
    done = chaos(tmp_path, "flows.py", *words, "--report", "report")
    assert done.returncode == 0
    assert "verdict: nothing is violated; not known: no action twice, no stale fence, redone\n" in done.stdout


def test_an_interrupted_trial_says_where_the_logs_are(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "outlast", "chaos", "--seconds", "60", "--report", "report"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
    )  # fmt: skip
    try:
        assert "starting" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert f"there is no report, as it was not ended; what the workers logged is in {tmp_path}" in said
