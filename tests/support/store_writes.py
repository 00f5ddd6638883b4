"""Write runs and entries of other workers into the store of an open app."""

from outlast.store.commands import Record, RegisterWorker, Submit


class Writes:
    """Write into the store of an open app what would be tedious to bring about."""

    def __init__(self, app):
        self.store = app._open.store
        self._execute = app._open.writer.execute

    async def commit(self, *commands):
        return [await self._execute(command) for command in commands]

    async def held(self, id, worker="living", lease=1e6, **fields):
        """Submit a run that a worker of another process holds, and return its row."""
        submit = Submit(id, "report", '{"topic":"ink"}', f"t {id}", "00" * 16, **fields)
        await self.commit(
            RegisterWorker(worker, "some-host", 4242, lease, ("default",), ("report",), 4),
            submit._replace(worker=worker),
        )
        return self.store.run(id)

    async def entry(self, row, seq, kind, key="", **fields):
        at = row.created + seq
        record = Record(row.pk, seq, row.fence, kind, key, at, **fields)
        assert await self.commit(record) == [None]
