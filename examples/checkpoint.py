"""A plain script that goes on where it was killed: no workflow, no steps, just a checkpoint.

python examples/checkpoint.py       # kill -9 it, or Ctrl-C; then the same command again
outlast sessions import-2026 --checkpoints

Installs: outlast. At most the page under way is fetched again. An async program says `async with`, and `await` before each call.
"""

import time

from outlast.sync import Outlast

PAGES = 40


def fetch(page: int) -> int:
    print(f"page {page}", flush=True)
    time.sleep(0.05)  # whatever takes long
    return page * page


def main() -> None:
    with Outlast() as app:
        task = app.checkpoint("import-2026")
        total = task.get("total", 0, type=int)
        for page in range(task.get("next", 0, type=int), PAGES):
            total += fetch(page)
            task.save(next=page + 1, total=total)  # both or none, durable when it returns
        if not task.done("told"):
            print("tell somebody", flush=True)
            task.mark("told")
        print(f"{total} of {PAGES} pages")


if __name__ == "__main__":
    main()
