"""Generate documents for a store, and read them."""

import json
from functools import cache
from pathlib import Path

import yaml
from jsonschema import Draft202012Validator

from outlast.tools.deploy.config import DeploymentConfig
from outlast.tools.deploy.documents import DOCUMENTS

DEPLOY = Path(__file__).parents[3] / "deploy"
SCHEMAS = Path(__file__).parent / "schemas"
CASES = [(kind, store) for kind, document in DOCUMENTS.items() for store in document.stores]
OTHER = {"grace": 137, "pre_stop": 23, "lease": 41, "concurrency": 7, "port": 9137, "objective": 219, "name": "bots", "image": "reg.example/bots:7", "module": "pkg.bots:app", "runbook_base": "https://docs.example:8443/a/runbook.html"}  # fmt: skip


def config_for(store: str, **chosen) -> DeploymentConfig:
    return DeploymentConfig(store=store, replicas=1 if store == "sqlite" else 3, **chosen)


def written(kind: str, store: str, **chosen) -> str:
    return DOCUMENTS[kind].write(config_for(store, **chosen))


def documents(kind: str, store: str, **chosen) -> list[dict]:
    return list(yaml.safe_load_all(written(kind, store, **chosen)))


@cache
def schema(name: str) -> Draft202012Validator:
    found = json.loads((SCHEMAS / f"{name}.json").read_text())
    Draft202012Validator.check_schema(found)
    return Draft202012Validator(found)


def of_kind(found: list[dict], kind: str) -> dict:
    (one,) = [document for document in found if document["kind"] == kind]
    return one


def worker_of(found: list[dict]) -> tuple[dict, dict, dict[str, str]]:
    """The pod's spec, its container, and the variables that have plain values."""
    (spec,) = [
        one["spec"]["template"]["spec"]
        for one in found
        if one["kind"] in ("Deployment", "StatefulSet")
    ]
    (container,) = spec["containers"]
    return (
        spec,
        container,
        {one["name"]: one["value"] for one in container["env"] if "value" in one},
    )
