"""One run that pays: `http_once.py FOLDER KIND URL`, KIND one of verified, idempotent, blind. Says how it ended; start it again to go on."""

import json
import sys
import time

from outlast import OutlastError, run, workflow
from outlast.effects import http_effect

folder, kind, url = sys.argv[1:]
base = url.partition("/")[0] + "//" + url.split("/")[2]
TIMEOUT_SECONDS = 2.0
settings = {
    "timeout": TIMEOUT_SECONDS,
    "headers": {"X-Deadline": lambda: str(time.time() + TIMEOUT_SECONDS)},
    "undo": None,
}
verified = http_effect(
    "verified", verify_url=f"{base}/happened?key={{key}}", retries=20, **settings
)
idempotent = http_effect("idempotent", idempotent=True, retries=20, **settings)
blind = http_effect("blind", **settings)


@workflow
async def pay(kind: str, url: str) -> int:
    effect = {"verified": verified, "idempotent": idempotent, "blind": blind}[kind]
    answer = await effect("POST", url, json={"amount": 1})
    return int(answer.json()["n"])


try:
    store = f"sqlite:///{folder}/outlast.db"
    print(
        json.dumps(
            run(pay(kind, url), id="pay", store=store, effect_margin=0.5, verify_attempts=50)
        )
    )
except OutlastError as error:
    print(json.dumps({"error": type(error).__name__, "message": str(error)}))
