"""A step's own codec lets errors come back as themselves."""

import pytest

from outlast import SettingsError, StepFailed, step, workflow


class RateLimited(Exception):
    """An error like those of HTTP clients: it needs an object that cannot be recorded."""

    def __init__(self, message: str, response: object) -> None:
        super().__init__(message)
        self.response = response


class Response:
    def __init__(self, status: int) -> None:
        self.status = status


class Codec:
    def encode(self, error: BaseException):
        if isinstance(error, RateLimited):
            return {"message": str(error), "status": error.response.status}
        return None

    def decode(self, data) -> BaseException:
        return RateLimited(data["message"], Response(data["status"]))


def agent(step_):
    @workflow(name="agent")
    async def one() -> str:
        try:
            return await step_()
        except RateLimited as error:
            return f"{error} {error.response.status}"
        except StepFailed as error:
            return f"StepFailed {error.type_name}"
        except KeyError as error:
            return f"KeyError {error}"

    return one()


async def ask() -> str:
    raise RateLimited("slow down", Response(429))


def test_without_one_it_is_a_step_failed(world):
    assert world.run(agent(step(name="ask")(ask))).startswith("StepFailed")


def test_with_one_it_is_itself_now_and_in_a_replay(world):
    call = agent(step(name="ask", errors=Codec())(ask))
    assert world.run(call, id="r") == "slow down 429"
    assert world.replays(call, id="r") == "slow down 429"


def test_the_traceback_is_kept(world):
    @workflow
    async def one() -> str:
        try:
            await step(name="ask", errors=Codec())(ask)()
        except RateLimited as error:
            return str(error.__cause__)
        return ""

    assert "in ask" in world.run(one())


def test_other_errors_are_recorded_as_usual(world):
    async def fail() -> str:
        raise KeyError("k")

    assert world.run(agent(step(name="fail", errors=Codec())(fail))) == "KeyError 'k'"


@pytest.mark.parametrize("fault", ["encode", "decode", "type", "json", "size"])
def test_a_codec_that_fails_is_logged_and_not_used(world, caplog, fault):
    class Faulty(Codec):
        def encode(self, error):
            if fault == "encode":
                raise ValueError("broken")
            return {"json": {1, 2}, "size": "x" * 1_000_000}.get(fault) or super().encode(error)

        def decode(self, data):
            if fault == "decode":
                raise ValueError("broken")
            return OSError() if fault == "type" else super().decode(data)

    call = agent(step(name="ask", errors=Faulty())(ask))
    assert world.run(call).startswith("StepFailed")
    assert "The error codec of a step cannot record RateLimited" in caplog.text


def test_a_codec_that_changed_lets_the_run_continue(world, caplog):
    class Changed(Codec):
        def decode(self, data):
            raise ValueError("another format")

    world.run(agent(step(name="ask", errors=Codec())(ask)), id="r")
    call = agent(step(name="ask", errors=Changed())(ask))
    assert world.replays(call, id="r").startswith("StepFailed")
    assert "cannot rebuild" in caplog.text


def test_something_else_is_refused_at_once():
    with pytest.raises(SettingsError, match="has no encode"):
        step(errors=object())(ask)
