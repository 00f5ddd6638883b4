"""`outlast manifest`: generate deployment files from one set of numbers."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from outlast.cli.options import JsonOption
from outlast.cli.output import answering, document, print_message, write_whole
from outlast.errors import OutlastError, SettingsError
from outlast.tools.deploy.config import BACKENDS, DeploymentConfig
from outlast.tools.deploy.documents import DOCUMENTS, Document

Kind = StrEnum("Kind", {name.upper(): name for name in DOCUMENTS})  # type: ignore[misc]
Backend = StrEnum("Backend", {name.upper(): name for name in BACKENDS})  # type: ignore[misc]
_DEFAULT = DeploymentConfig()


def manifest(
    *,
    kind: Annotated[
        Kind | None,
        typer.Option("--kind", metavar="KIND", help=f"What to print: {', '.join(Kind)}."),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write",
            metavar="FOLDER",
            help="Write every kind into this folder instead. Existing files are overwritten.",
        ),
    ] = None,
    store: Annotated[
        Backend | None,
        typer.Option(
            "--store", help="The store of the workers. sqlite is one worker with a volume."
        ),
    ] = None,
    grace: Annotated[
        int, typer.Option("--grace", help="OUTLAST_GRACE, in seconds.")
    ] = _DEFAULT.grace,
    pre_stop: Annotated[
        int,
        typer.Option("--pre-stop", help="Seconds the preStop command waits for the drain."),
    ] = _DEFAULT.pre_stop,
    lease: Annotated[
        int, typer.Option("--lease", help="OUTLAST_LEASE, in seconds.")
    ] = _DEFAULT.lease,
    replicas: Annotated[
        int | None,
        typer.Option("--replicas", min=1, help="Number of workers; with autoscaling, the minimum."),
    ] = None,
    replicas_max: Annotated[
        int | None,
        typer.Option(
            "--replicas-max",
            help=f"The maximum for autoscaling. By default {_DEFAULT.replicas_max}.",
        ),
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", help="Runs a worker executes at once.")
    ] = _DEFAULT.concurrency,
    port: Annotated[
        int, typer.Option("--port", help="Port of the HTTP server, for probes and metrics.")
    ] = _DEFAULT.port,
    objective: Annotated[
        int,
        typer.Option(
            "--objective",
            help="Seconds within which an interrupted run must resume. Alerts use it.",
        ),
    ] = _DEFAULT.objective,
    runbook_base: Annotated[
        str,
        typer.Option(
            "--runbook-base",
            metavar="URL",
            help="Address of your copy of the runbook. Each alert then gets a runbook_url.",
        ),
    ] = _DEFAULT.runbook_base,
    name: Annotated[
        str, typer.Option("--name", help="The name of the deployment.")
    ] = _DEFAULT.name,
    image: Annotated[str, typer.Option("--image", help="The container image.")] = _DEFAULT.image,
    module: Annotated[
        str,
        typer.Option("--module", metavar="MODULE[:APP]", help="The module for `outlast worker`."),
    ] = _DEFAULT.module,
    as_json: JsonOption = False,
) -> None:
    """Print a deployment document for workers.

    The kinds are a Dockerfile and its .dockerignore, a compose file, Kubernetes manifests, a
    systemd unit, alert rules and a dashboard. Grace periods, time-outs of preStop commands, probes,
    leases and alerts all follow from the same numbers. `outlast doctor --manifest FILE` checks a
    document after you changed it.
    """
    with answering(as_json):
        if (kind is None) == (write is None):
            raise SettingsError(f"Pass either --kind or --write. Kinds: {', '.join(DOCUMENTS)}.")
        numbers = DeploymentConfig(
            name=name,
            image=image,
            module=module,
            grace=grace,
            pre_stop=pre_stop,
            lease=lease,
            replicas=1,
            replicas_max=_DEFAULT.replicas_max if replicas_max is None else replicas_max,
            concurrency=concurrency,
            port=port,
            objective=objective,
            runbook_base=runbook_base,
        )
        chosen = DOCUMENTS if kind is None else {kind.value: DOCUMENTS[kind.value]}
        if replicas_max is None:
            numbers = replace(numbers, replicas_max=max(numbers.replicas_max, replicas or 1))
        used = {
            one: _for(found, numbers, store, replicas, only=kind is not None)
            for one, found in chosen.items()
        }
        texts = {one: found.write(used[one]) for one, found in chosen.items()}
        if write is not None:
            for one, text in texts.items():
                _put(write / DOCUMENTS[one].path, text)
        if as_json:
            # Compose stands for all kinds, because it supports every store.
            representative = used["compose" if kind is None else kind.value]
            document(
                {
                    "numbers": asdict(representative)
                    | {"period": representative.period, "stop": representative.stop},
                    "documents": texts,
                }
            )
        elif write is None:
            sys.stdout.write("".join(texts.values()))
        else:
            print_message(f"{write}: {', '.join(sorted(DOCUMENTS[one].path for one in texts))}.")


def _for(
    found: Document,
    numbers: DeploymentConfig,
    store: Backend | None,
    replicas: int | None,
    *,
    only: bool,
) -> DeploymentConfig:
    """Return the numbers with the store and the replicas for one kind of document.

    Use the kind's main store if none was asked for, or if all kinds are written and this one does
    not support it. Raise SettingsError if the only kind does not.
    """
    backend = found.stores[0] if store is None else store.value
    if backend not in found.stores:
        if only:
            raise SettingsError(
                f"this kind is for --store {' or '.join(found.stores)}, not {backend}."
            )
        backend = found.stores[0]
    embedded = backend == "sqlite"
    count = 1 if embedded and not (only and replicas) else replicas or _DEFAULT.replicas
    return replace(numbers, store=backend, replicas=count)


def _put(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    except OSError as error:
        raise OutlastError(f"{path} cannot be written: {error.strerror or error}.") from None
