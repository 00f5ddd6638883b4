"""Record the types of the messages that runs wait for, so that a form can ask for them.

`receive("decision", Decision)` names the type in code that only a worker has. The worker that
begins to wait records a JSON schema: in one session per workflow, with one field per name of a
message. It does so once per process and schema, so a run that waits costs no further write.

The schema is a hint. The worker still checks a message when a run receives it. Without a
schema, or with one of another version of the code, a form may send a value that does not fit.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from outlast.codec.codecs import Codec
from outlast.codec.json_schema import schema_text
from outlast.engine.store_client import StoreClient
from outlast.store.commands import SessionLimits, UpdateSession
from outlast.store.protocol import Store

MESSAGE_TYPES = "message_types"
"""The session space in which workers record the schemas."""
KEPT_SECONDS = 90 * 86_400.0
"""How long a schema stays after the last process that recorded it."""
NAMES_MAX = 200
"""How many names of messages are kept per workflow. Programs may make names of ids."""
LIMITS = SessionLimits(fields=NAMES_MAX, items=1, popped=1)


class MessageTypes:
    """Record the schemas that this process knows, each one once."""

    def __init__(self, client: StoreClient) -> None:
        self._client = client
        self._recorded: dict[str, dict[str, str | None]] = {}
        """The schemas by workflow and name, as far as they were recorded or have none."""

    def record(self, workflow: str, codecs: Mapping[str, Codec]) -> None:
        """Record the schemas of messages that a run of the workflow waits for."""
        known = self._recorded.setdefault(workflow, {})
        fields: dict[str, str | None] = {}
        for name, codec in codecs.items():
            if name not in known and len(known) >= NAMES_MAX:
                continue
            text = schema_text(codec)
            if text is not None and known.get(name) != text:
                fields[name] = text
            known[name] = text
        if fields:
            command = UpdateSession(
                workflow, secrets.token_hex(8), fields, KEPT_SECONDS, space=MESSAGE_TYPES,
                extends=True, limits=LIMITS,
            )  # fmt: skip
            # Without it, a form asks for JSON.
            self._client.writer.enqueue(command, lambda *_: None)


def message_schemas(store: Store, workflow: str, names: Sequence[str]) -> dict[str, Any]:
    """Return the schemas that are known of messages of a workflow, by name."""
    session = store.session(workflow, MESSAGE_TYPES, names=tuple(names))
    found: dict[str, Any] = {}
    for name, text in ({} if session is None else session.fields).items():
        try:
            schema = json.loads(text)
        except ValueError:
            # Damaged: as if there were none.
            continue
        if isinstance(schema, dict):
            found[name] = schema
    return found
