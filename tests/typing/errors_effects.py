"""What the type checkers must refuse of effects. Never executed: see `errors.py`."""

from __future__ import annotations

from outlast import KEY, Happened, Outlast, compensate_with, effect, sync, workflow


@effect(timeout=30)
async def pay(amount: int, key: str = KEY) -> str:
    return f"{amount}{key}"


@pay.verify
async def was_paid(key: str) -> Happened[str] | None:
    return Happened(key)


@pay.compensate
async def refund(receipt: str) -> None:
    print(receipt)


@effect(timeout=30)
def write(path: str) -> int:
    return len(path)


# -- a timeout there must be


@effect()  # type: ignore[call-overload, untyped-decorator]  # pyright: ignore[reportCallIssue, reportUntypedFunctionDecorator]
async def endless(amount: int) -> str:
    return str(amount)


# -- options that do not exist, or are of another type


@effect(timeout=30, retry_on=OSError)  # type: ignore[call-overload, untyped-decorator]  # pyright: ignore[reportCallIssue, reportUntypedFunctionDecorator]
async def misspelt(amount: int) -> str:
    return str(amount)


@effect(timeout=30, undo=refund)  # type: ignore[call-overload, untyped-decorator]  # pyright: ignore[reportArgumentType]
async def mistaken(amount: int) -> str:
    return str(amount)


@effect(timeout=30, failed_on="OSError")  # type: ignore[call-overload, untyped-decorator]  # pyright: ignore[reportArgumentType]
async def misnamed(amount: int) -> str:
    return str(amount)


# -- verify answers Happened with the effect's result, or None


@pay.verify  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
async def says_yes(key: str) -> bool:
    return bool(key)


@pay.verify  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
async def says_another_result(key: str) -> Happened[int] | None:
    return Happened(len(key))


@write.verify  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def says_text(path: str) -> str:
    return path


pay.verify(True)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
pay.verify(was_paid("k"))  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


# -- a compensation takes the effect's result


@pay.compensate  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
async def refund_number(receipt: int) -> None:
    print(receipt)


@pay.compensate  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
async def refund_nothing() -> None: ...


@write.compensate(timeout=60)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def erase_text(length: str) -> None:
    print(length)


pay.compensate("refund")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


@workflow
async def inside(amount: int) -> None:
    # -- the arguments of an effect
    await pay("3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await pay()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await pay(amount, key=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await write.aio(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    # -- a missing await, and one too many
    pay(amount)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    compensate_with(refund, "r")  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    await write("x")  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]

    # -- the wrong type
    number: int = await pay(amount)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(number)

    # -- what compensate_with is given is what its effect takes
    await compensate_with(refund)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    await compensate_with(refund, 3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await compensate_with(was_paid, "k")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


@workflow
def inside_sync() -> None:
    sync.compensate_with(refund, "r")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
    sync.compensate_with(write, 3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def program() -> None:
    async with Outlast() as app:
        app.decide("r-1", "pay", did_not=True)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
        await app.decide("r-1", pay, did_not=True)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await app.decide("r-1", "pay", happens="x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
