"""Run pytest on a few lines of tests, in a process of its own."""

from pathlib import Path

from support.processes import Program

# Only the plugin of Outlast is tested. To import the others takes longer than the tests.
_WITHOUT = [
    f"-pno:{name}" for name in ("cacheprovider", "xdist", "hypothesispytest", "anyio", "timeout")
]


def run_pytest(folder: Path, tests: str, *options: str) -> str:
    """Write `tests` to `test_agents.py` in `folder`, run them and return the output."""
    folder.mkdir(exist_ok=True)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_agents.py").write_text(tests)
    # A forked process has imported modules that pytest would rewrite.
    quietly = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    command = ["-m", "pytest", "-q", "--strict-markers", *quietly, *_WITHOUT, *options]
    with Program.python(*command, folder=folder) as process:
        process.wait()
    return process.output
