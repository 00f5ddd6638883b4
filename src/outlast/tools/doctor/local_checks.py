"""Check where the store lies, and who can reach the HTTP server."""

from __future__ import annotations

from collections.abc import Iterator

from outlast.settings.http_address import is_for_this_machine
from outlast.tools.doctor.facts import Facts
from outlast.tools.doctor.finding import Finding, error, note, ok, warning

NETWORK = {
    "nfs",
    "nfs4",
    "cifs",
    "smb2",
    "smb3",
    "smbfs",
    "9p",
    "afs",
    "coda",
    "ceph",
    "glusterfs",
    "lustre",
    "gpfs",
    "beegfs",
    "orangefs",
    "virtiofs",
    "vboxsf",
    "vmhgfs",
    "prl_fs",
    "drvfs",
    "fakeowner",
}
"""File systems of another machine, or of this machine's host.

Any FUSE file system counts too, except those in LOCAL_FUSE.
"""
LOCAL_FUSE = {"fuseblk", "fuse.fuse-overlayfs"}
PASSING = {"overlay", "aufs", "fuse.fuse-overlayfs", "tmpfs", "ramfs"}
FREE_ERROR = 100_000_000
FREE_WARNING = 1_000_000_000
FREE_SHARE = 0.05
SECRET_CHARACTERS_MIN = 16


def filesystem(facts: Facts) -> Iterator[Finding]:
    folder = facts.folder
    if folder is None:
        return
    where = str(folder.path)
    found = False
    if not folder.writable and not facts.read_only:
        found = True
        yield error(
            "this user cannot write the store, its folder or the files beside it (-wal, -shm, .d).",
            "Let the worker's user own it (in Kubernetes: fsGroup).",
            where,
        )
    kind = folder.mount.kind if folder.mount is not None else None
    if kind is None:
        yield note(
            "the file system of the store is unknown: this system does not report it.",
            "It must be a local disk: not NFS, SMB or FUSE.",
            where,
        )
    elif kind in NETWORK or (kind.startswith("fuse") and kind not in LOCAL_FUSE):
        found = True
        yield error(
            f"the store is on {kind}: locks and syncs over a network are not reliable enough for "
            f"{facts.scheme}, and records may be lost.",
            "Use a local disk, or a Postgres or Redis store.",
            where,
        )
    elif kind in PASSING:
        found = True
        yield warning(
            f"the store is on {kind}: it is lost with the "
            f"container{' or the next boot' if kind == 'tmpfs' else ''}.",
            "Mount a volume at its folder.",
            where,
        )
    if 0 <= folder.free < FREE_ERROR:
        found = True
        yield error(
            f"only {folder.free / 1e6:.0f} MB are free: soon nothing can be recorded.",
            "Make room, or `outlast prune`.",
            where,
        )
    elif 0 <= folder.free < FREE_WARNING and folder.free < folder.size * FREE_SHARE:
        found = True
        yield warning(
            f"only {folder.free / 1e6:.0f} MB are free.",
            "Make room, or `outlast prune --older-than 7d`.",
            where,
        )
    if folder.open_to_others:
        found = True
        yield warning(
            f"every user of this machine may read or write {', '.join(folder.open_to_others)}: the "
            "store holds arguments, results and sessions unencrypted.",
            "Run chmod o-rwx on them, unless that is intended.",
            where,
        )
    if not found:
        disk = "a local disk" if kind is None else f"a local disk ({kind})"
        rights = "read-only for this user" if facts.read_only else "writable"
        free = f", {folder.free / 1e9:.1f} GB free" if folder.free >= 0 else ""
        yield ok(f"{disk}, {rights}{free}.", where)


def http(facts: Facts) -> Iterator[Finding]:
    settings = facts.loaded.settings
    if not settings.http:
        yield note(
            "there is no HTTP server: no probes, no metrics.",
            "OUTLAST_HTTP=127.0.0.1:8080 starts one.",
        )
    elif is_for_this_machine(settings.http):
        yield ok(f"the HTTP server is for this machine only ({settings.http}).")
    elif not settings.http_secret:
        yield warning(
            f"the HTTP server is open to others ({settings.http}) and has no secret: anyone who "
            "reaches it may read /drain and /metrics, and through a sidecar or proxy on this host "
            "also end the worker.",
            "Set OUTLAST_HTTP_SECRET, or bind it to 127.0.0.1.",
        )
    elif len(settings.http_secret) < SECRET_CHARACTERS_MIN:
        yield warning(
            f"the HTTP server is open to others ({settings.http}), and its secret has fewer than "
            f"{SECRET_CHARACTERS_MIN} characters: the number of guesses is not limited.",
            "Set OUTLAST_HTTP_SECRET to 32 random characters: `openssl rand -hex 16` prints some.",
        )
    else:
        yield ok(f"the HTTP server ({settings.http}) has a secret for /shutdown and /drain.")
