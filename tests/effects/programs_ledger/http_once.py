"""One run that pays: `http_once.py FOLDER KIND URL`, KIND one of verified, idempotent, blind. Says how it ended; start it again to go on."""

import json
import sys

from outlast import OutlastError, run, workflow
from outlast.effects import http_effect

folder, kind, url = sys.argv[1:]
base = url.partition("/")[0] + "//" + url.split("/")[2]
verified = http_effect("verified", timeout=1.0, verify_url=f"{base}/happened?key={{key}}", undo=None)
idempotent = http_effect("idempotent", timeout=1.0, idempotent=True, undo=None)
blind = http_effect("blind", timeout=1.0, undo=None)


@workflow
async def pay(kind: str, url: str) -> int:
    effect = {"verified": verified, "idempotent": idempotent, "blind": blind}[kind]
    answer = await effect("POST", url, json={"amount": 1})
    return int(answer.json()["n"])


try:
    print(
        json.dumps(run(pay(kind, url), id="pay", store=f"sqlite:///{folder}/outlast.db", effect_margin=0.3))
    )
except OutlastError as error:
    print(json.dumps({"error": type(error).__name__, "message": str(error)}))
