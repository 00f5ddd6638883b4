"""Read an answer over HTTP as a browser's EventSource does: `answer_reader.py PORT TOKEN [CURSOR]`.

It prints one event per line. After a broken connection it returns with the id of the last event.
"""

import json
import sys
import time

import httpx

port, token, *rest = sys.argv[1:]
URL = f"http://127.0.0.1:{port}/v1/runs/run/streams/answer"
RETRY_SECONDS = 0.05


def read(answer: httpx.Response, cursor: str | None) -> tuple[str | None, bool]:
    """Print the events of one answer. Return the cursor of the last one, and whether it was the end."""
    fields: dict[str, str] = {}
    try:
        for line in answer.iter_lines():
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
                continue
            # A blank line ends an event. What comes without one was cut off, and counts for nothing.
            cursor, kind = fields.get("id", cursor), fields.get("event")
            if "data" in fields and kind != "problem":
                document = json.loads(fields["data"])
                assert document["kind"] == kind
                print(json.dumps({**document, "cursor": cursor}), flush=True)
                if kind == "end":
                    return cursor, True
            fields = {}
    except httpx.TransportError:
        pass  # The web process is gone.
    return cursor, False


def main(cursor: str | None) -> None:
    with httpx.Client(trust_env=False, timeout=30) as client:
        while True:
            headers = {"authorization": f"Bearer {token}"}
            if cursor is not None:
                headers["last-event-id"] = cursor
            try:
                with client.stream("GET", URL, headers=headers) as answer:
                    if answer.status_code == 204:
                        return
                    if answer.status_code == 200:
                        cursor, ended = read(answer, cursor)
                        if ended:
                            return
                    else:
                        # The run is not there yet, or the store is away.
                        assert answer.status_code in (404, 503), answer.read()
            except httpx.TransportError:
                pass  # Nothing listens yet, or the process that did was killed.
            time.sleep(RETRY_SECONDS)


main(*rest or [None])
