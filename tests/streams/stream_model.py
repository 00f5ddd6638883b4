"""A model for tests: every answer is in a voice of its own, so that two halves of different answers do not pass for one."""

import asyncio
import itertools
import re
from contextlib import aclosing

from outlast import CannotResume

WORD = re.compile(r"(\w+)-(\d+)\.")


def check_one_answer(text: str, words: int | None = None) -> None:
    """It is the beginning of one answer, or all of it: one voice, every word in its place."""
    found = WORD.findall(text)
    assert "".join(f"{voice}-{number}." for voice, number in found) == text, text
    assert len({voice for voice, _ in found}) <= 1, f"two answers in one: {text}"
    assert [int(number) for _, number in found] == list(range(len(found))), text
    assert words is None or len(found) == words, text


class Model:
    """Gives a word a second. `asked` is what it was asked to go on from, each time."""

    def __init__(self, words: int = 10, pause: float = 1.0) -> None:
        self.words, self.pause = words, pause
        self.voices = itertools.count()
        self.asked: list = []
        self.closed = 0
        self.breaks_at: list[int] = []
        """The word before which the next generations break, each once."""
        self.answers: dict[str, str] = {}
        """For cursors: the voice of each answer that it remembers."""

    async def restart(self, prompt: str = "q"):
        self.asked.append(None)
        async with aclosing(self._speak(f"{prompt}{next(self.voices)}", 0)) as words:
            async for word in words:
                yield word

    async def prefill(self, so_far: str, prompt: str = "q"):
        self.asked.append(so_far)
        check_one_answer(so_far)
        found = WORD.findall(so_far)
        voice = found[0][0] if found else f"{prompt}{next(self.voices)}"
        async with aclosing(self._speak(voice, len(found))) as words:
            async for word in words:
                yield word

    async def cursor(self, cursor: str | None, prompt: str = "q"):
        self.asked.append(cursor)
        if cursor is None:
            voice = f"{prompt}{next(self.voices)}"
            self.answers[voice], first = voice, 0
        else:
            voice, first = cursor.split(":")[0], int(cursor.split(":")[1]) + 1
            if voice not in self.answers:
                raise CannotResume(f"no answer {voice}")
        number = itertools.count(first)
        async with aclosing(self._speak(voice, first)) as words:
            async for word in words:
                yield word, f"{voice}:{next(number)}"

    async def _speak(self, voice: str, first: int):
        breaks_at = self.breaks_at.pop(0) if self.breaks_at else None
        try:
            for number in range(first, self.words):
                if number == breaks_at:
                    raise ConnectionError("the server is gone")
                await asyncio.sleep(self.pause)
                yield f"{voice}-{number}."
        finally:
            self.closed += 1


class Screen:
    """What shows an answer: it is set at the beginning of every attempt, and appended to. `shown` is every state of it."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.begun: list[tuple] = []

    def begin(self, answer) -> None:
        self.begun.append((answer.resumed_from, answer.restarted, answer.complete))
        self.shown.append(answer.text)

    def append(self, chunk: str) -> None:
        self.shown.append(self.shown[-1] + chunk)

    def check(self, words: int | None = None) -> None:
        for text in self.shown:
            check_one_answer(text)
        check_one_answer(self.shown[-1], words)
