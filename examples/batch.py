"""A sync program: records processed one by one, each at most once more than it must be.

python examples/batch.py 20
"""

import sys
import time

from outlast.sync import run, step, workflow


@step
def process(record: int) -> int:
    time.sleep(0.01)
    return record * record


@workflow
def batch(records: int) -> int:
    return sum(process(record) for record in range(records))


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print(run(batch(count), id=f"batch-{count}"))
