"""Kill the worker, the viewer and the server in the middle of an answer that is watched."""

import os

import pytest
from watched_scene import Scene, SceneOverHttp, own_place

from support.seeds import seeded_random
from support.waiting import WAIT_SECONDS

__all__ = ["own_place"]

KILLS = int(os.environ.get("OUTLAST_TEST_KILLS", "20"))
KILLS_WITH_SERVER = KILLS if "OUTLAST_TEST_KILLS" in os.environ else 6
"""A server takes seconds to start again."""
KILLS_OVER_HTTP = KILLS if "OUTLAST_TEST_KILLS" in os.environ else 5


@pytest.mark.timeout(4 * WAIT_SECONDS + KILLS * 10)
@pytest.mark.parametrize(
    ("own_place", "way"),
    [
        ("sqlite", "prefill"),
        pytest.param("sqlite", "restart", marks=pytest.mark.extended),
        pytest.param("postgres", "prefill", marks=pytest.mark.extended),
        ("postgres", "restart"),
        ("redis", "prefill"),
        pytest.param("redis", "restart", marks=pytest.mark.extended),
    ],
    indirect=["own_place"],
)
def test_viewer_is_never_shown_what_is_later_silently_contradicted(own_place, way, tmp_path):
    place, server = own_place
    scene = Scene(place, way, tmp_path, server)
    kills = KILLS if server is None else KILLS_WITH_SERVER
    scene.play(kills, seeded_random(f"{place.partition(':')[0]} {way}"))
    scene.check()


@pytest.mark.timeout(4 * WAIT_SECONDS + KILLS * 10)
@pytest.mark.parametrize(
    ("own_place", "way"),
    [
        ("sqlite", "prefill"),
        pytest.param("sqlite", "restart", marks=pytest.mark.extended),
        pytest.param("postgres", "prefill", marks=pytest.mark.extended),
        pytest.param("postgres", "restart", marks=pytest.mark.extended),
        pytest.param("redis", "prefill", marks=pytest.mark.extended),
        pytest.param("redis", "restart", marks=pytest.mark.extended),
    ],
    indirect=["own_place"],
)
def test_reader_over_http_is_never_shown_what_is_later_silently_contradicted(
    own_place, way, tmp_path
):
    place, server = own_place
    scene = SceneOverHttp(place, way, tmp_path, server)
    scene.play(KILLS_OVER_HTTP, seeded_random(f"http {place.partition(':')[0]} {way}"))
    scene.check()
