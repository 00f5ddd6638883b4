"""Compare a store with a model of streams: random publications, repeats and takeovers."""

from __future__ import annotations

import json
import random

import pytest

from outlast.store.commands import FENCE, OFFSET, Publish, Refused
from outlast.store.rows import RunRow
from outlast.testing.conformance.harness import Contract, StoreDriver
from outlast.testing.conformance.stream_driver import STREAM, Viewer, publish, text

WRITERS = ("one", "two", "three")
TURNS = 150


class Model:
    """Model a stream as a list of pairs of writer and letter, in the order of readers."""

    def __init__(self) -> None:
        self.values: list[tuple[str, str]] = []
        self.owners: dict[str, tuple[int, int]] = {}
        """The fence and the attempt of each part."""
        self.replaced = 0

    def part(self, writer: str) -> str:
        return "".join(letter for name, letter in self.values if name == writer)

    def text(self) -> str:
        return "".join(letter for _, letter in self.values)

    def apply(self, command: Publish, fence: int) -> Refused | None:
        if command.fence != fence:
            return Refused(FENCE)
        mine = (command.fence, command.attempt)
        owner = self.owners.get(command.writer, mine)
        length, count = len(self.part(command.writer)), len(command.values)
        if owner[0] == fence and owner > mine:
            return None
        if owner == mine and command.after + count <= length and command.after != length:
            return None
        if command.after != (length if owner == mine or command.resumes else 0):
            return Refused(OFFSET, str(length))
        if command.after != length:
            self.values = [pair for pair in self.values if pair[0] != command.writer]
            self.replaced += 1
        self.values += [(command.writer, json.loads(value)) for value in command.values]
        self.owners[command.writer] = mine
        return None


class Publications:
    """Choose random commands, most of which a store accepts."""

    def __init__(self, chance: random.Random, model: Model) -> None:
        self._chance, self._model = chance, model
        self._past: list[Publish] = []
        self._letters = 0

    def next(self, row: RunRow) -> Publish:
        chance = self._chance
        if self._past and chance.random() < 0.15:
            return chance.choice(self._past[-6:])
        writer = chance.choice(WRITERS)
        fence, attempt = self._model.owners.get(writer, (row.fence, 1))
        if fence != row.fence:
            attempt = 1
        attempt = max(1, attempt + chance.choice((0, 0, 0, 0, 0, 0, 1, -1)))
        length = len(self._model.part(writer))
        after = chance.choice((*(length,) * 4, 0, 0, max(0, length - 1), length + 1))
        command = publish(
            row,
            "".join(self._letter() for _ in range(chance.randrange(4))),
            after,
            writer=writer,
            attempt=attempt,
            resumes=chance.random() < 0.3,
            last=chance.random() < 0.2,
        )
        self._past.append(command)
        return command

    def _letter(self) -> str:
        """Return a letter that was not used before, so that a value seen twice is noticed."""
        self._letters += 1
        return chr(0x4E00 + self._letters)


class StreamModelContract(Contract):
    @pytest.mark.parametrize("seed", range(4))
    def test_a_stream_is_what_the_rules_of_publish_make_of_it(
        self, driver: StoreDriver, seed: int
    ) -> None:
        chance = random.Random(seed)  # noqa: S311 - no secret
        model, row = Model(), driver.held()
        choose = Publications(chance, model)
        viewers = [Viewer() for _ in range(3)]
        for _ in range(TURNS):
            if chance.random() < 0.04:
                driver.release(row)
                row = driver.take()
            batch = [choose.next(row) for _ in range(chance.randrange(1, 4))]
            expected = [model.apply(command, row.fence) for command in batch]
            assert driver.commit(*batch) == expected
            if model.owners:
                assert text(driver, row) == model.text()
            for viewer in viewers:
                if chance.random() < 0.3:
                    viewer.read(driver, row, limit=chance.choice((1, 3, 1000)))
        assert model.replaced > 3
        for writer in model.owners:
            part = driver.store.part(row.pk, STREAM, writer)
            assert part is not None
            assert "".join(json.loads(part.values)) == model.part(writer)
            assert part.length == len(model.part(writer))
        for viewer in viewers:
            for _ in range(len(model.values) + 2):
                viewer.read(driver, row, limit=1)
            assert viewer.seen == model.text()
            assert 0 < viewer.resets <= model.replaced
