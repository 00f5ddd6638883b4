"""Lay out the checkpoints of a LangGraph thread in the fields of a session.

| field | contents |
|---|---|
| `c/NAMESPACE/CHECKPOINT` | a checkpoint: small values, metadata, parent, names of its blobs |
| `b/NAMESPACE/BLOB` | the value of a channel in one of its versions, shared by checkpoints |
| `w/NAMESPACE/CHECKPOINT/TASK/INDEX` | one pending write of a task |

Names of fields are ordered, so the newest checkpoint of a namespace is the last one with its
prefix. A namespace other than the root is shortened to a digest. README.md says what each write
means at a crash.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    PendingWrite,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

SESSIONS = "langgraph:"
"""What the ids of the sessions begin with. The id of the thread follows."""
CHECKPOINTS, BLOBS, WRITES = "c/", "b/", "w/"
OWNER = "__outlast_owner"
"""The key of a config that holds the number of the thread's owner. LangGraph keeps keys that begin
with two underscores out of the metadata."""
INLINE_MAX = 200
"""Longer texts are blobs."""


class Place(NamedTuple):
    """Where a config points to."""

    thread: str
    namespace: str | None = None
    """None: any."""
    checkpoint: str | None = None
    owner: int | None = None

    @classmethod
    def of(cls, config: RunnableConfig) -> Place:
        given = config["configurable"]
        return cls(
            str(given["thread_id"]),
            given.get("checkpoint_ns"),
            given.get("checkpoint_id"),
            given.get(OWNER),
        )


class Record(NamedTuple):
    """What the field of a checkpoint holds. The order is that of the stored list."""

    namespace: str
    id: str
    parent: str | None
    checkpoint: list[str]
    """The serialized checkpoint, without the values that are blobs."""
    metadata: list[str]
    blobs: dict[str, str]
    """The names of the fields with the other values, by channel."""

    @property
    def name(self) -> str:
        return checkpoint_name(self.namespace, self.id)

    @property
    def writes(self) -> str:
        """Return the prefix of the checkpoint's pending writes."""
        return writes_prefix(self.namespace, self.id)


def checkpoint_prefix(namespace: str) -> str:
    return f"{CHECKPOINTS}{_short(namespace)}/"


def checkpoint_name(namespace: str, id: str) -> str:
    return f"{checkpoint_prefix(namespace)}{_escaped(id)}"


def writes_prefix(namespace: str, id: str) -> str:
    return f"{WRITES}{_short(namespace)}/{_escaped(id)}/"


def write_name(namespace: str, id: str, task: str, index: int) -> str:
    return f"{writes_prefix(namespace, id)}{_escaped(task)}/{index}"


def blob_name(namespace: str, channel: str, version: object) -> str:
    return f"{BLOBS}{_short(namespace)}/{_digest(f'{len(channel)}/{channel}/{version}', 16)}"


def _short(namespace: str) -> str:
    return _digest(namespace, 8) if namespace else ""


def _digest(text: str, size: int) -> str:
    return blake2b(text.encode(), digest_size=size).hexdigest()


def _escaped(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F")


# -- values


def packed(serde: SerializerProtocol, value: Any) -> list[str]:
    """Return a value as JSON: what the serializer calls its type, and its bytes."""
    kind, data = serde.dumps_typed(value)
    return [kind, b2a_base64(data, newline=False).decode()]


def unpacked(serde: SerializerProtocol, stored: list[str]) -> Any:
    return serde.loads_typed((stored[0], a2b_base64(stored[1])))


def split(
    namespace: str, values: Mapping[str, Any], versions: ChannelVersions
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the small values, which are part of a checkpoint, and the names of the other blobs."""
    small = {channel: value for channel, value in values.items() if _is_small(value)}
    blobs = {
        channel: blob_name(namespace, channel, versions.get(channel))
        for channel in values
        if channel not in small
    }
    return small, blobs


def _is_small(value: Any) -> bool:
    kind = type(value)
    return value is None or kind in {bool, int, float} or (kind is str and len(value) <= INLINE_MAX)


def checkpoint_of(
    serde: SerializerProtocol, record: Record, blobs: Mapping[str, list[str]]
) -> Checkpoint:
    """Build a checkpoint from its record and its blobs."""
    checkpoint: Checkpoint = unpacked(serde, record.checkpoint)
    others = {channel: unpacked(serde, blobs[name]) for channel, name in record.blobs.items()}
    return {**checkpoint, "channel_values": {**checkpoint["channel_values"], **others}}


def metadata_of(serde: SerializerProtocol, record: Record) -> CheckpointMetadata:
    metadata: CheckpointMetadata = unpacked(serde, record.metadata)
    return metadata


def writes_of(serde: SerializerProtocol, stored: Mapping[str, list[Any]]) -> list[PendingWrite]:
    """Return pending writes in the order in which LangGraph applies them: path, task, index."""
    found = sorted(stored.values(), key=lambda write: write[:3])
    return [
        (task, channel, unpacked(serde, value)) for _path, task, _index, channel, value in found
    ]


def config_of(thread: str, namespace: str, checkpoint: str) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": thread,
            "checkpoint_ns": namespace,
            "checkpoint_id": checkpoint,
        }
    }
