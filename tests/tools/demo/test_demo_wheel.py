"""`pip install outlast && outlast demo`: the wheel and its base dependencies are enough."""

import os
import subprocess

from support.waiting import WAIT_SECONDS

EXTRAS = (
    "httpx",
    "starlette",
    "uvicorn",
    "psycopg",
    "redis",
    "prometheus_client",
    "opentelemetry",
    "yaml",
)


def test_wheel_environment_has_no_extras(environment):
    script = "import importlib.util, sys; print([one for one in sys.argv[1:] if importlib.util.find_spec(one)])"
    done = subprocess.run(
        [environment / "bin" / "python", "-c", script, *EXTRAS],
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_SECONDS,
    )
    assert done.stdout.strip() == "[]"


def test_wheel_alone_plays_the_demo(environment, recorded):
    command = recorded.output.strip().split("\n")[-1].removeprefix("Look closer").split()
    env = {
        "PATH": f"{environment}/bin:/usr/bin:/bin",
        "OUTLAST_ENV_FILE": "",  # the folder has one that no command can read
        "HOME": str(recorded.folder),
        "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
    }
    shown = subprocess.run(
        command,
        cwd=recorded.folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=True,
    )
    assert "1 death" in shown.stdout
