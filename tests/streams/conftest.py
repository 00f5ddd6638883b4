from stream_work import fresh  # noqa: F401 - a fixture
