"""Execute the calls of a model as steps."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any

from agents import Model, ModelProvider, ModelResponse
from agents.items import TResponseStreamEvent

from outlast.api.context import Place, place
from outlast.api.step import Step, step
from outlast.codec.signature import Unrecorded
from outlast.integrations.openai_agents.errors import OpenAIErrorCodec
from outlast.integrations.openai_agents.responses import (
    decode_event,
    decode_response,
    digest,
    encode_event,
    encode_response,
    is_recorded,
    record_cost,
)

OnEvent = Callable[[TResponseStreamEvent], Awaitable[None] | None]
Body = Callable[[], Awaitable[Any]]
MODEL = "model"
"""What the name of a model's step ends with, and the key of its calls."""


async def _execute(body: Annotated[Body, Unrecorded], asked: str = "") -> Any:  # noqa: ARG001
    """Call the model. `asked` identifies the call where keys do not apply: in a step's body."""
    return await body()


class DurableModel(Model):
    """A model whose calls are steps in a workflow, and plain calls elsewhere.

    In the body of a step, as in a tool that runs an agent, they are steps within that step.
    """

    def __init__(
        self,
        agent: str,
        model: Model | str | None,
        provider: ModelProvider,
        on_event: OnEvent | None = None,
    ) -> None:
        """Wrap a model. A name is looked up at the first call."""
        self._model = model
        self._provider = provider
        self._on_event = on_event
        self._step: Step[..., Any] = step(name=f"{agent}.{MODEL}", errors=OpenAIErrorCodec())(
            _execute
        )

    @property
    def model(self) -> Model:
        """Return the wrapped model."""
        if not isinstance(self._model, Model):
            self._model = self._provider.get_model(self._model)
        return self._model

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """Call the model in a step, and return its recorded response."""
        if not _is_durable():
            return await self.model.get_response(*args, **kwargs)

        async def ask() -> Any:
            response = await self.model.get_response(*args, **kwargs)
            record_cost(response.usage)
            return encode_response(response)

        return decode_response(await self._recorded(ask, args, kwargs))

    async def stream_response(
        self, *args: Any, **kwargs: Any
    ) -> AsyncIterator[TResponseStreamEvent]:
        """Read the model's stream in a step, and yield its recorded events.

        While the step executes, `on_event` gets every event. Deltas are not recorded, so the
        workflow does not get them.
        """
        if not _is_durable():
            async for event in self.model.stream_response(*args, **kwargs):
                yield event
            return

        async def read() -> Any:
            events = []
            async for event in self.model.stream_response(*args, **kwargs):
                await self._publish(event)
                if is_recorded(event):
                    events.append(encode_event(event))
                response = getattr(event, "response", None)
                if getattr(event, "type", None) == "response.completed" and response is not None:
                    record_cost(response.usage)
            return events

        for event in await self._recorded(read, args, kwargs):
            yield decode_event(event)

    async def _publish(self, event: TResponseStreamEvent) -> None:
        if self._on_event is not None:
            answer = self._on_event(event)
            if inspect.isawaitable(answer):
                await answer

    async def _recorded(self, body: Body, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if place() is Place.WORKFLOW:
            return await self._step.keyed(MODEL)(body)
        # Agents that run at the same time in a step's body have no order, so there a call is
        # identified by what it asks.
        asked = kwargs["input"] if "input" in kwargs else args[1]
        return await self._step(body, digest(asked))

    def get_retry_advice(self, request: Any) -> Any:
        """Return the wrapped model's advice."""
        return self.model.get_retry_advice(request)

    async def close(self) -> None:
        """Close the wrapped model. In a workflow it stays open: other runs use it."""
        if place() is Place.OUTSIDE:
            await self.model.close()


def _is_durable() -> bool:
    return place() in (Place.WORKFLOW, Place.STEP)
