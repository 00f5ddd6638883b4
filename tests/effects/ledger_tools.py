"""The ledger's process, and its log as seen from outside."""

import http.client
import json
import socket
import sys
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

HERE = Path(__file__).parent
sys.path[:0] = [
    str(HERE.parent / "process"),
    str(HERE.parent / "fleet"),
    str(HERE / "programs_ledger"),
]

from process_tools import Program

from outlast import fencing
from support.waiting import WAIT_SECONDS
from support.waiting import wait_until as until

__all__ = ["Ledger", "Program", "until"]


class Ledger:
    """`with Ledger(folder) as ledger:` a process with its log in that folder. It keeps its port when it is restarted."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "ledger.log"
        self._reserved = socket.socket()
        """Bound, but not listening: nobody else gets the port while the ledger is down."""
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._reserved.bind(("127.0.0.1", 0))
        self.port = int(self._reserved.getsockname()[1])
        self.program: Program | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        self._reserved.close()

    # -- the process

    def start(self) -> Self:
        self.program = Program(str(HERE / "ledger.py"), self.folder, self.port)
        self.program.wait_for_message()
        return self

    def kill(self) -> None:
        if self.program is not None:
            self.program.kill()
            self.program = None

    def restart(self) -> Self:
        self.kill()
        return self.start()

    # -- requests

    def get(self, path: str, **headers: str) -> tuple[int, Any]:
        return self._request("GET", path, None, headers)

    def post(self, path: str, key: str, *, run: str = "r", fence: int = 1, body: Any = None) -> int:
        """The status of the answer; 0 if there was none."""
        headers = {"Idempotency-Key": key, **fencing.fence_headers(run, fence=fence)}
        try:
            return self._request("POST", path, json.dumps(body), headers)[0]
        except (OSError, http.client.HTTPException):
            return 0

    def happened(self, key: str, *, run: str = "r", fence: int = 1) -> int:
        return self.get(f"/happened?key={key}", **fencing.fence_headers(run, fence=fence))[0]

    def _request(
        self, method: str, path: str, body: str | None, headers: dict[str, str]
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_SECONDS)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    # -- what is there to see

    def log(self) -> list[dict[str, Any]]:
        """The whole lines of the file itself."""
        text = self.path.read_bytes() if self.path.exists() else b""
        return [json.loads(line) for line in text[: text.rfind(b"\n") + 1].splitlines()]

    def lines(self, *whats: str) -> list[dict[str, Any]]:
        return [line for line in self.log() if line["what"] in whats]

    def acts(self) -> dict[str, list[dict[str, Any]]]:
        """Applied acts by their keys."""
        return self._by("key", "act")

    def undone(self) -> dict[str, list[dict[str, Any]]]:
        """Applied undoings by the keys of what they undo."""
        found: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for line in self.lines("undo"):
            found[line["body"]["undoes"]].append(line)
        return dict(found)

    def _by(self, name: str, *whats: str) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for line in self.lines(*whats):
            found[line[name]].append(line)
        return dict(found)

    def assert_nothing_was_done_under_a_stale_fence(self) -> None:
        newest: dict[str, int] = {}
        for line in self.lines("act", "undo", "repeat", "asked"):
            assert line["fence"] >= newest.get(line["run"], 0), f"{line} is of an old fence"
            newest[line["run"]] = line["fence"]
