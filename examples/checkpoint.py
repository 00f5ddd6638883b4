"""Resume a plain script with a checkpoint, without a workflow or steps.

python examples/checkpoint.py       # kill -9 it or press Ctrl-C, then run the same command again
outlast sessions import-2026 --checkpoints

Installs: outlast. At most the page in flight is fetched again. In an async program, use
`async with` and await each call.
"""

import time

from outlast.sync import Outlast

PAGES = 40


def fetch(page: int) -> int:
    print(f"page {page}", flush=True)
    time.sleep(0.05)  # anything slow
    return page * page


def main() -> None:
    with Outlast() as app:
        task = app.checkpoint("import-2026")
        total = task.get("total", 0, type=int)
        for page in range(task.get("next", 0, type=int), PAGES):
            total += fetch(page)
            task.save(next=page + 1, total=total)  # atomic, and durable when it returns
        if not task.done("notified"):
            print("notify the team", flush=True)
            task.mark("notified")
        print(f"total {total} from {PAGES} pages")


if __name__ == "__main__":
    main()
