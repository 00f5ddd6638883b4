"""Run the tests of the adapters under each version of the frameworks that they support.

`make integrations` calls it. It makes one environment per version in `.venv-integrations/`, and
runs `tests/integrations` in each of them. It also starts runs under one version and finishes them
under the other.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".venv-integrations"
TESTS = ROOT / "tests/integrations"
ACROSS_VERSIONS = TESTS / "across_versions.py"


class Framework(NamedTuple):
    """A framework, and the versions that its adapter supports."""

    adapter: str
    """The name of the adapter, and of the folder of its tests."""
    package: str
    versions: tuple[str, str]
    """The newest version, and the previous minor one."""
    agent: str
    """The program in the folder that is killed. See tests/support/agent_programs.py."""
    also: tuple[str, ...] = ()
    """What its tests need beside the framework and the test tools."""
    only_here: tuple[str, ...] = ()
    """The files of tests that need it, which `make test` does not run."""


FRAMEWORKS = (
    Framework(
        "claude_agent",
        "claude-agent-sdk",
        ("0.2.184", "0.2.170"),
        "support_claude.py",
        only_here=("with_real_program.py",),
    ),
    Framework("openai_agents", "openai-agents", ("0.24.0", "0.23.1"), "support_agent.py"),
    Framework(
        "pydantic_ai",
        "pydantic-ai-slim",
        ("2.66.0", "2.64.0"),
        "durable_agent.py",
        ("pydantic-ai-slim[mcp]",),
        ("with_mcp_servers.py",),
    ),
    Framework(
        "langgraph",
        "langgraph",
        ("1.2.22", "1.1.10"),
        "support_graph.py",
        (
            "langgraph-checkpoint-conformance>=0.0.2",
            "langgraph-checkpoint-sqlite",  # for bench.savers
            "langgraph-checkpoint-postgres",
        ),
    ),
)


@dataclass(frozen=True)
class Environment:
    """The environment of one version of a framework."""

    framework: Framework
    version: str

    @property
    def name(self) -> str:
        return f"{self.framework.package}-{self.version}"

    @property
    def python(self) -> Path:
        return FOLDER / self.name / "bin/python"

    @property
    def requirements(self) -> list[str]:
        return [f"{self.framework.package}=={self.version}", *self.framework.also]

    def install(self) -> None:
        """Make the environment, unless it has what pyproject.toml and the table ask for."""
        stamp = FOLDER / self.name / ".installed"
        wanted = "\n".join([*self.requirements, (ROOT / "pyproject.toml").read_text()])
        if stamp.exists() and stamp.read_text() == wanted:
            return
        print(f"== installing {self.name}", flush=True)
        _execute(sys.executable, "-m", "venv", "--clear", FOLDER / self.name)
        pip = (self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        _execute(*pip, "--upgrade", "pip>=25.1")
        _execute(*pip, "--editable", ".[all]", "--group", "test-tools", *self.requirements)
        stamp.write_text(wanted)

    def test(self, other: Environment, options: Sequence[str]) -> bool:
        """Run the tests of the adapter here, and return whether they passed.

        Runs that start here finish in the other environment.
        """
        print(f"== {self.name}", flush=True)
        folder = TESTS / self.framework.adapter
        variables = {
            "OUTLAST_TEST_AGENT": str(folder / self.framework.agent),
            "OUTLAST_TEST_OTHER_PYTHON": str(other.python),
        }
        files = [folder / name for name in self.framework.only_here]
        command = [self.python, "-m", "pytest", *options, folder, *files, ACROSS_VERSIONS]
        env = {**os.environ, **variables}
        return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode == 0


def _execute(*command: object) -> None:
    subprocess.run([str(word) for word in command], cwd=ROOT, check=True)


def environments(framework: Framework) -> tuple[Environment, Environment]:
    """Return the environments of the newest and of the previous version."""
    newest, previous = framework.versions
    return Environment(framework, newest), Environment(framework, previous)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "adapters",
        nargs="*",
        metavar="ADAPTER",
        help="which adapters to test: " + ", ".join(one.adapter for one in FRAMEWORKS),
    )
    parser.add_argument("--install", action="store_true", help="only make the environments")
    parser.add_argument(
        "--python",
        metavar="ADAPTER",
        help="only make the environment of its newest version, and print the interpreter",
    )
    parser.add_argument("--pytest", default="-q -n 2", help="options of pytest (default: -q -n 2)")
    given = parser.parse_args()
    named = {*given.adapters, *([given.python] if given.python else [])}
    unknown = named - {one.adapter for one in FRAMEWORKS}
    if unknown:
        parser.error(f"no such adapter: {', '.join(sorted(unknown))}")
    for framework in FRAMEWORKS:
        if framework.adapter == given.python:
            newest, _ = environments(framework)
            newest.install()
            print(newest.python)
            return
    failed: list[str] = []
    for framework in FRAMEWORKS:
        if given.adapters and framework.adapter not in given.adapters:
            continue
        newest, previous = environments(framework)
        for one in (newest, previous):
            one.install()
        if not given.install:
            pairs = ((newest, previous), (previous, newest))
            failed += [
                one.name for one, other in pairs if not one.test(other, given.pytest.split())
            ]
    if failed:
        sys.exit(f"The tests failed with {', '.join(failed)}.")


if __name__ == "__main__":
    main()
