"""What the tests of sessions outside runs share."""

DAY = 86_400.0


def within(world, action, id="s", **options):
    """What `action(session)` gives in the process that is alive now."""

    async def main(app):
        return await action(app.session(id, **options))

    return world.do(main)


def later(world, seconds):
    world.clock.advance(seconds)
