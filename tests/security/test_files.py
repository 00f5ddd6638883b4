"""File modes of backups, copies and manifests."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from security_tools import Shell

from outlast.cli import main
from outlast.store.address import store_at
from outlast.store.commands import DeregisterWorker, RegisterWorker, Submit, UpdateSession
from outlast.tools.doctor import facts


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> set[tuple[bool, int]]:
    return {
        (one.is_dir(), stat.S_IMODE(one.stat().st_mode))
        for one in folder.rglob("*")
        if one.name != "place"
    }


@pytest.mark.parametrize("scheme", ["sqlite", "file"])
def test_a_store_is_private_after_everything_that_happens_to_it(
    tmp_path, umask, scheme, capsys
) -> None:
    """Made, used, closed, opened again, pruned, looked at by commands and by the doctor."""
    (tmp_path / "place").mkdir(mode=0o755)
    address = f"{scheme}://{'/' if scheme == 'sqlite' else ''}{tmp_path}/place/outlast"
    for number in range(2):
        store = store_at(address)
        store.open()
        with closing(store):
            store.acquire_liveness(f"w{number}")
            commands = [
                RegisterWorker(f"w{number}", "h", 1, 60.0),
                Submit(f"r{number}", "flow", "{}", "t", "00" * 16),
                UpdateSession("s", f"t{number}", {"f": "1"}),
            ]
            store.commit(commands)
            assert modes(tmp_path) <= {(False, 0o600), (True, 0o700)}
            store.commit([DeregisterWorker(f"w{number}")])
    shell = Shell(address, capsys)
    for words in (
        ["runs"],
        ["cancel", "r0"],
        ["prune", "--older-than", "1s"],
        ["sessions", "s", "--delete"],
        ["doctor"],
    ):
        shell(*words)
        assert modes(tmp_path) <= {(False, 0o600), (True, 0o700)}, words


def test_the_doctors_copy_of_a_file_store_is_private_and_does_not_stay(
    tmp_path, umask, monkeypatch, capsys
) -> None:
    store = store_at(f"file://{tmp_path}/store")
    store.open()
    store.close()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    seen = []

    def copied(folder: Path, copy: Path) -> Path:
        found = original(folder, copy)
        seen.append(
            {
                stat.S_IMODE(one.stat().st_mode) & 0o077
                for one in (copy.parent, copy, *copy.rglob("*"))
            }
        )
        return found

    original = facts._copied
    monkeypatch.setattr(facts, "_copied", copied)
    Shell(f"file://{tmp_path}/store", capsys)("doctor")
    assert seen == [{0}]
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_manifest_has_the_mode_that_its_user_wants_and_no_secret(
    tmp_path, umask, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("OUTLAST_HTTP_SECRET", "hunter2-secret")
    monkeypatch.setenv("PGPASSWORD", "hunter2-password")
    with pytest.raises(SystemExit) as ended:
        main(["manifest", "--write", str(tmp_path / "deploy")])
    assert not ended.value.code, capsys.readouterr().err
    written = [one for one in (tmp_path / "deploy").rglob("*") if one.is_file()]
    assert len(written) > 3
    assert {stat.S_IMODE(one.stat().st_mode) for one in written} == {0o666 & ~umask}
    assert not [one for one in written if "hunter2" in one.read_text()]


@pytest.mark.parametrize(
    ("command", "name"), [("explain", "errors.md"), ("manifest", "Dockerfile")]
)
def test_command_output_files_do_not_follow_links(tmp_path, capsys, command, name) -> None:
    """A file is made beside the one that it replaces, under a name that anybody can tell beforehand."""
    folder, victim = tmp_path / "shared", tmp_path / "precious"
    victim.write_text("precious")
    with pytest.raises(SystemExit) as ended:
        main([command, "--write", str(folder)])
    assert not ended.value.code, capsys.readouterr().err
    (written,) = folder.rglob(name)
    whole = written.read_text()
    written.with_name(f".{name}.new").symlink_to(victim)
    with pytest.raises(SystemExit) as ended:
        main([command, "--write", str(folder)])
    assert not ended.value.code, capsys.readouterr().err
    assert victim.read_text() == "precious"
    assert written.read_text() == whole
    assert not written.is_symlink()
    assert not list(folder.rglob(".*.new"))
