"""What each route says."""

import logging

import pytest

from outlast.http import Sample

GETS = ["/health", "/ready", "/metrics", "/drain"]


def test_health_reports_alive(serve, client):
    answer = client.get(f"{serve()}/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "alive"})


def test_stalled_loop_is_unhealthy_only_with_health_stall(serve, client, worker):
    worker.stall = 12.34
    assert client.get(f"{serve()}/health").status_code == 200
    strict = serve(health_stall=10.0)
    answer = client.get(f"{strict}/health")
    assert answer.status_code == 503
    assert answer.json()["status"] == "stalled"
    assert "12.3 s" in answer.json()["reason"]
    worker.stall = 10.0
    assert client.get(f"{strict}/health").status_code == 200


def test_ready_returns_503_with_the_reason(serve, client, worker):
    url = serve()
    answer = client.get(f"{url}/ready")
    assert (answer.status_code, answer.json()) == (200, {"status": "ready"})
    worker.reason = "draining: SIGTERM"
    answer = client.get(f"{url}/ready")
    assert (answer.status_code, answer.json()) == (
        503,
        {"status": "not ready", "reason": "draining: SIGTERM"},
    )


def test_drain_route_returns_the_view(serve, client, worker):
    worker.view = {
        "draining": True,
        "under_way": [{"run": "ü-1", "step": "research", "seconds": 1.5}],
    }
    answer = client.get(f"{serve()}/drain")
    assert (answer.status_code, answer.json()) == (200, worker.view)


def test_shutdown_begins_a_drain_and_records_the_peer(serve, client, worker):
    url = serve()
    answer = client.post(f"{url}/shutdown")
    assert (answer.status_code, answer.json()) == (202, {"status": "draining"})
    assert client.post(f"{url}/shutdown", json={"reason": "deploy 7"}).status_code == 202
    assert worker.begun == [
        "POST /shutdown from 127.0.0.1",
        "POST /shutdown from 127.0.0.1: deploy 7",
    ]


def test_shutdown_reason_is_reduced_to_one_log_line(serve, client, worker):
    content = b'{"reason": "a\\nb\\u0000c\\ud800d\\u001b[31m\\u202e"}'
    assert client.post(f"{serve()}/shutdown", content=content).status_code == 202
    assert worker.begun == ["POST /shutdown from 127.0.0.1: a b c d [31m"]


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b'"text"',
        b"null",
        b'{"reason": 1}',
        b'{"reason": null}',
        b"\xff\xfe",
        b"[" * 1024,
        b"0" * 1024,
    ],
)
def test_invalid_shutdown_body_begins_no_drain(serve, client, worker, content):
    answer = client.post(f"{serve()}/shutdown", content=content)
    assert answer.status_code == 400
    assert "reason" in answer.json()["error"]
    assert worker.begun == []


def test_shutdown_body_is_limited_to_one_kilobyte(serve, client, worker):
    url = serve()
    fits = b'{"reason": "' + b"x" * (1024 - 14) + b'"}'
    assert len(fits) == 1024
    assert client.post(f"{url}/shutdown", content=fits).status_code == 202
    assert len(worker.begun) == 1
    answer = client.post(f"{url}/shutdown", content=fits + b" ")
    assert answer.status_code == 413
    assert "1024" in answer.json()["error"]
    assert len(worker.begun) == 1


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_post_shuts_down(serve, client, worker, method):
    answer = client.request(method, f"{serve()}/shutdown")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.headers["cache-control"] == "no-store"
    assert worker.begun == []


@pytest.mark.parametrize("path", GETS)
def test_head_is_a_get_without_a_body(serve, client, path):
    url = serve()
    answer = client.head(url + path)
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-length"] == client.get(url + path).headers["content-length"]
    assert client.post(url + path).status_code == 405


@pytest.mark.parametrize(
    "path", ["/", "/health/", "/Health", "/health/x", "/%2e%2e/shutdown", "/docs"]
)
def test_unknown_path_is_a_json_404(serve, client, path):
    answer = client.get(serve() + path)
    assert (answer.status_code, answer.json()) == (404, {"error": "Not Found"})
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", [*GETS, "/shutdown"])
def test_internal_error_is_logged_and_not_shown(serve, client, worker, path, caplog):
    worker.broken = RuntimeError("the password is swordfish")
    url = serve(health_stall=1.0)
    with caplog.at_level(logging.ERROR):
        answer = client.request("POST" if path == "/shutdown" else "GET", url + path)
    assert answer.status_code == 500
    assert set(answer.json()) == {"error"}
    assert answer.headers["cache-control"] == "no-store"
    assert "swordfish" not in answer.text
    (record,) = [record for record in caplog.records if record.exc_info]
    assert record.name == "outlast.http"
    assert "swordfish" in caplog.text


@pytest.mark.parametrize(
    "view", [{"seconds_left": float("nan")}, {"run": object()}, {"run": "\ud800"}]
)
def test_drain_view_that_is_not_json_is_a_500(serve, client, worker, view):
    worker.view = view
    url = serve()
    assert client.get(f"{url}/drain").status_code == 500
    assert client.get(f"{url}/health").status_code == 200


def test_responses_are_not_cached_and_do_not_name_the_server(serve, client):
    url = serve()
    for path in GETS:
        answer = client.get(url + path)
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers


def test_metrics_route_exports_the_samples(serve, client, worker):
    worker.numbers = [
        Sample("outlast_runs_total", "counter", "Runs.", 3, {"status": "done"}),
        Sample("outlast_runs_total", "counter", "Runs.", 1, {"status": 'fa"il\ned'}),
        Sample("outlast_draining", "gauge", "Whether it drains.", 0),
        Sample("outlast_claims", "counter", "Claims.", 7.5),
        Sample("outlast_took", "histogram", "Took.", 5.5, {"step": "a"}, (("1.0", 2), ("+Inf", 3))),
    ]
    url = serve()
    answer = client.get(f"{url}/metrics", headers={"accept": "text/plain"})
    assert answer.headers["content-type"].startswith("text/plain")
    lines = answer.text.splitlines()
    assert "# TYPE outlast_runs_total counter" in lines
    assert 'outlast_runs_total{status="done"} 3.0' in lines
    assert 'outlast_runs_total{status="fa\\"il\\ned"} 1.0' in lines
    assert "# HELP outlast_draining Whether it drains." in lines
    assert "outlast_draining 0.0" in lines
    assert "outlast_claims_total 7.5" in lines
    assert "# TYPE outlast_took histogram" in lines
    assert 'outlast_took_bucket{le="1.0",step="a"} 2.0' in lines
    assert 'outlast_took_count{step="a"} 3.0' in lines
    assert 'outlast_took_sum{step="a"} 5.5' in lines
    assert "python_info" not in answer.text, "the registry is our own"
    assert answer.text.count("# TYPE outlast_runs_total") == 1
    openmetrics = client.get(
        f"{url}/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"}
    )
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    assert openmetrics.text.endswith("# EOF\n")
