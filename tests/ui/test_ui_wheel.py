"""The wheel has everything that the pages need."""

import subprocess
import sys
import zipfile
from pathlib import Path

from outlast.http.web import rendering
from support.waiting import WAIT_SECONDS

ROOT = Path(__file__).parents[2]
WEB = Path(rendering.__file__).parent


def test_wheel_has_every_template_and_static_file(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=WAIT_SECONDS,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as found:
        packed = {name: found.read(name) for name in found.namelist() if "/http/web/" in name}
    here = [*WEB.glob("templates/*"), *WEB.glob("static/*")]
    assert len(here) > 20
    assert {one.name for one in WEB.glob("static/*")} == set(rendering.STATIC)
    for file in here:
        name = f"outlast/http/web/{file.relative_to(WEB)}"
        assert packed.get(name) == file.read_bytes(), name
