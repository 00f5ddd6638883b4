"""Measure how many small faults in the core the tests notice.

    make coverage                                   # records which test executes which line
    python scripts/mutants.py --count 300 --seed 1  # samples mutants and runs tests on them

A mutant is one small change in a function: a comparison, a constant, a condition, a call left out.
The script collects the tests once. For each mutant it forks, replaces the code of the function in
memory, and runs tests that execute the changed line until one fails. It runs at most TESTS_MAX of
them. Half are those that also execute the rarest lines nearby, since few tests enter an unusual
branch. A mutant that fails no test survives: either nothing checks that line, or the change makes
no difference. A mutant whose tests do not end in time counts as killed. A mutant that could not be
put in place is an error and counts as neither.

Processes that a test starts execute the unchanged code. A mutant that only they would notice counts
as survived.
"""

import argparse
import ast
import copy
import gc
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import pytest
from coverage import CoverageData

from outlast.testing import servers

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src/outlast"
TARGETS = ("api", "engine", "execution", "shutdown", "store")
TESTS_MAX = 60
NEAR_LINES = 6
MUTANT_SECONDS = 120.0

PASSED, FAILED, BROKEN = 0, 1, 2
OUTCOMES = {PASSED: "survived", FAILED: "killed"}
"""What the exit code of a child means. Any other code, or a signal, is a measurement error."""

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


class Mutant(NamedTuple):
    """One change: the `number`-th node of a file, changed in the `variant`-th way."""

    path: str
    number: int
    variant: int
    line: int
    what: str

    @property
    def title(self) -> str:
        return f"{self.path}:{self.line} {self.what}"


def variants(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """Yield a description and a replacement for each way to change this node."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
        other = COMPARISONS[type(node.ops[0])]
        changed = copy.deepcopy(node)
        changed.ops = [other()]
        yield f"{ast.unparse(node)} -> {ast.unparse(changed)}", changed
    elif isinstance(node, ast.BoolOp):
        changed_op = copy.deepcopy(node)
        changed_op.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield f"{ast.unparse(node)} -> {ast.unparse(changed_op)}", changed_op
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"{ast.unparse(node)} -> without not", node.operand
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        changed_sum = copy.deepcopy(node)
        changed_sum.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        yield f"{ast.unparse(node)} -> {ast.unparse(changed_sum)}", changed_sum
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield f"{node.value} -> {not node.value}", ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield f"{node.value} -> {node.value + 1}", ast.Constant(node.value + 1)
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        negated = copy.deepcopy(node)
        negated.test = ast.UnaryOp(ast.Not(), negated.test)
        yield f"if {ast.unparse(node.test)} -> negated", negated
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
        yield f"{ast.unparse(node)} -> left out", ast.Pass()
    elif isinstance(node, ast.Return) and node.value is not None:
        yield f"{ast.unparse(node)} -> return None", ast.Return(ast.Constant(None))
    elif isinstance(node, ast.Break):
        yield "break -> continue", ast.Continue()


class _Replace(ast.NodeTransformer):
    def __init__(self, target: ast.AST, replacement: ast.AST) -> None:
        self._target, self._replacement = target, replacement

    def visit(self, node: ast.AST) -> Any:
        if node is self._target:
            return ast.copy_location(self._replacement, node)
        return super().visit(node)


def nodes_in_functions(tree: ast.Module) -> Iterator[tuple[int, ast.AST]]:
    """Yield (number, node) for nodes inside function bodies, except annotations and defaults."""
    inside: set[ast.AST] = set()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in function.body:
                inside.update(ast.walk(statement))
    for number, node in enumerate(ast.walk(tree)):
        if node in inside:
            yield number, node


def mutants_of(path: Path) -> Iterator[Mutant]:
    name = str(path.relative_to(ROOT))
    for number, node in nodes_in_functions(ast.parse(path.read_text())):
        for variant, (what, _) in enumerate(variants(node)):
            yield Mutant(name, number, variant, node.lineno, what.replace("\n", " ")[:120])  # type: ignore[attr-defined]


def mutated_code(mutant: Mutant) -> CodeType:
    """Return the code of the module with the change in it."""
    tree = ast.parse((ROOT / mutant.path).read_text())
    target = next(node for number, node in nodes_in_functions(tree) if number == mutant.number)
    replacement = list(variants(target))[mutant.variant][1]
    changed = ast.fix_missing_locations(_Replace(target, replacement).visit(tree))
    return compile(changed, str(ROOT / mutant.path), "exec")


def codes_in(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from codes_in(constant)


def apply(mutant: Mutant) -> int:
    """Give every function of the module its changed code. Return how many functions changed."""
    path = str(ROOT / mutant.path)
    new = {(code.co_qualname, code.co_firstlineno): code for code in codes_in(mutated_code(mutant))}
    changed = 0
    gc.unfreeze()  # tests/conftest.py freezes what collection made, which hides it from get_objects
    for function in [found for found in gc.get_objects() if isinstance(found, FunctionType)]:
        code = function.__code__
        if code.co_filename != path:
            continue
        other = new.get((code.co_qualname, code.co_firstlineno))
        if other is not None and other != code and other.co_freevars == code.co_freevars:
            function.__code__ = other
            changed += 1
    return changed


class Reach:
    """Which tests execute which line, from the data that `make coverage` has left."""

    def __init__(self, file: Path) -> None:
        self._data = CoverageData(str(file))
        self._data.read()
        self._lines: dict[str, dict[int, set[str]]] = {}

    def tests(self, mutant: Mutant) -> list[str]:
        """Return the tests that execute the line, those of rare lines nearby first."""
        if mutant.path not in self._lines:
            found = self._data.contexts_by_lineno(str(ROOT / mutant.path))
            self._lines[mutant.path] = {
                line: {context.rpartition("|")[0] for context in contexts if "|" in context}
                for line, contexts in found.items()
            }
        lines = self._lines[mutant.path]
        near = [lines.get(line, set()) for line in range(mutant.line - 2, mutant.line + NEAR_LINES)]

        def rarity(test: str) -> int:
            return min(len(tests) for tests in near if test in tests)

        return sorted(lines.get(mutant.line, set()), key=lambda test: (rarity(test), test))


def chosen_of(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return at most TESTS_MAX tests: the first ones, and the rest spread evenly."""
    first, rest = items[: TESTS_MAX // 2], items[TESTS_MAX // 2 :]
    return first + rest[:: max(2 * len(rest) // TESTS_MAX, 1)][: TESTS_MAX // 2]


class Session:
    """A pytest plugin: in place of the tests it runs the mutants."""

    def __init__(self, sample: list[tuple[Mutant, list[str]]], jobs: int, report: Path) -> None:
        self._sample, self._jobs, self._report = sample, jobs, report
        self.results: list[tuple[str, Mutant]] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        running: dict[int, tuple[Mutant, float]] = {}
        waiting = list(reversed(self._sample))
        while waiting or running:
            while waiting and len(running) < self._jobs:
                mutant, tests = waiting.pop()
                reaching = [items[test] for test in tests if test in items]
                if not reaching:
                    self._note("unreached", mutant)
                    continue
                chosen = chosen_of(reaching)
                running[self._fork(session, mutant, chosen)] = mutant, time.monotonic()
            self._collect(running)
        return True

    def _fork(self, session: pytest.Session, mutant: Mutant, items: list[pytest.Item]) -> int:
        sys.stdout.flush()
        if pid := os.fork():
            return pid
        os.setsid()
        code = BROKEN
        try:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 1)
            os.dup2(null, 2)
            if not apply(mutant):
                return 0  # unreachable code or a class body: no function has changed
            for position, item in enumerate(items):
                following = items[position + 1] if position + 1 < len(items) else None
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.testsfailed:
                    session._setupstate.teardown_exact(None)
                    break
            code = FAILED if session.testsfailed else PASSED
        finally:
            os._exit(code)

    def _collect(self, running: dict[int, tuple[Mutant, float]]) -> None:
        time.sleep(0.02)
        for pid, (mutant, started) in list(running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            late = time.monotonic() - started > MUTANT_SECONDS
            if not ended and not late:
                continue
            if not ended:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            del running[pid]
            code = os.waitstatus_to_exitcode(status) if ended else FAILED
            self._note(OUTCOMES.get(code, "error"), mutant)

    def _note(self, outcome: str, mutant: Mutant) -> None:
        self.results.append((outcome, mutant))
        print(f"{len(self.results)}/{len(self._sample)} {outcome:9} {mutant.title}", flush=True)
        with self._report.open("a") as report:
            report.write(json.dumps({"outcome": outcome, **mutant._asdict()}) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--coverage", type=Path, default=ROOT / ".coverage")
    parser.add_argument("--report", type=Path, default=ROOT / "mutants.jsonl")
    given = parser.parse_args()
    reach = Reach(given.coverage)
    files = sorted(path for target in TARGETS for path in (PACKAGE / target).rglob("*.py"))
    every = [mutant for path in files for mutant in mutants_of(path)]
    sample = random.Random(given.seed).sample(every, min(given.count, len(every)))
    chosen = [(mutant, reach.tests(mutant)) for mutant in sample]
    given.report.write_text("")
    plugin = Session(chosen, given.jobs, given.report)
    wanted = sorted({test.partition("::")[0] for _, tests in chosen for test in tests})
    os.chdir(ROOT)
    with servers.postgres_server() as postgres, servers.redis_server() as redis:
        os.environ.update(OUTLAST_TEST_POSTGRES=postgres.url, OUTLAST_TEST_REDIS=redis.url)
        pytest.main(
            ["-q", "-p", "no:xdist", "-p", "no:cov", "--no-header", *wanted], plugins=[plugin]
        )
    counts = {name: [mutant for outcome, mutant in plugin.results if outcome == name]
              for name in ("killed", "survived", "unreached", "error")}  # fmt: skip
    print(f"\n{len(every)} possible, {len(sample)} sampled: " + ", ".join(
        f"{len(found)} {name}" for name, found in counts.items()))  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
