"""No generated request makes the API fail, and every answer is as the OpenAPI document says."""

import asyncio
import json
from urllib.parse import quote

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from server_tools import Client, serving

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
KNOWN = ("doubling", "waiting", "r-1", "default", "done", "a/b", "x")


@pytest.fixture(scope="module")
def loop():
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def served_once(loop):
    """Serve one API for all examples: opening one for each would take most of the time."""
    context = serving(worker=False)
    found = loop.run(context.__aenter__())
    loop.run(found.olga.post("/v1/runs", json={"workflow": "doubling", "args": [1], "id": "r-1"}))
    yield found
    loop.run(context.__aexit__(None, None, None))


def values_of(schema, document):
    """Return a strategy that mostly fits a schema."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "enum" in schema:
        return st.sampled_from(schema["enum"]) | JSON
    if "anyOf" in schema:
        return st.one_of([values_of(one, document) for one in schema["anyOf"]])
    kinds = {
        "string": st.sampled_from(KNOWN) | st.text(max_size=20),
        "integer": st.integers(0, 5) | st.integers(),
        "number": st.floats(0, 0.01) | st.floats(),
        "boolean": st.booleans(),
        "null": st.none(),
        "array": st.lists(JSON, max_size=3),
    }
    if schema.get("type") == "object" and "properties" in schema:
        required = set(schema.get("required", ()))
        fields = {name: values_of(one, document) for name, one in schema["properties"].items()}
        return st.fixed_dictionaries(
            {name: one for name, one in fields.items() if name in required},
            optional={name: one for name, one in fields.items() if name not in required},
        )
    return kinds.get(schema.get("type"), JSON)


def operations(document):
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


async def request(found, draw, method, path, operation, document):
    target, query = path, []
    for parameter in operation.get("parameters", ()):
        value = draw(values_of(parameter["schema"], document))
        text = value if isinstance(value, str) else json.dumps(value)
        text = text.encode("utf-8", "replace").decode()
        if parameter["in"] == "path":
            segment = quote(text, safe="")
            target = target.replace(f"{{{parameter['name']}}}", segment or "x")
        elif parameter["in"] == "query" and draw(st.booleans()):
            query.append(f"{parameter['name']}={quote(text, safe='')}")
    options = {}
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        body = draw(values_of(schema, document) | JSON)
        options["content"] = json.dumps(body)
        options["headers"] = {"content-type": "application/json"}
    return await found.olga.request(
        method, target + ("?" + "&".join(query) if query else ""), **options
    )


def check(answer, operation, document):
    assert answer.status_code < 500, answer.text
    documented = operation["responses"]
    assert str(answer.status_code) in documented, (answer.status_code, answer.text)
    kind = answer.headers.get("content-type", "").partition(";")[0]
    content = documented[str(answer.status_code)].get("content", {})
    if kind.endswith("json"):
        schema = {**content[kind]["schema"], "components": document["components"]}
        jsonschema.Draft202012Validator(schema).validate(answer.json())


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(data=st.data())
def test_no_generated_request_makes_the_api_fail(data, served_once, loop):
    document = served_once.web.openapi()
    # A watch of a run that never ends would never answer.
    all_of_them = [one for one in operations(document) if "watch" not in one[2]["operationId"]]
    method, path, operation = data.draw(st.sampled_from(all_of_them))
    answer = loop.run(request(served_once, data.draw, method, path, operation, document))
    check(answer, operation, document)


def test_document_is_served_and_names_every_route(served):
    async def scenario(api):
        document = (await api.vera.get("/v1/openapi.json")).json()
        assert document["info"]["title"] == "Outlast"
        paths = {(method, path) for method, path, _ in operations(document)}
        assert ("post", "/v1/runs") in paths
        assert len(paths) > 20
        assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
        for path in ("/docs", "/redoc", "/openapi.json"):
            assert (await api.olga.get(path)).status_code == 404

    served(scenario)


def test_every_answer_of_a_real_run_is_as_documented(served):
    async def scenario(api):
        document = api.web.openapi()
        body = {"workflow": "failing", "args": ["x"], "id": "f"}
        await api.olga.post("/v1/runs", json=body)
        await api.done("f")
        await api.app.session("s").set("note", 1)
        await api.app.checkpoint("s").save(note=1)
        for method, path, operation in operations(document):
            if method != "get" or "{name}" in path:
                continue
            target = path.replace("{id}", "f" if "runs" in path else "s")
            answer = await api.olga.get(target)
            assert answer.status_code == 200, (path, answer.text)
            check(answer, operation, document)

    served(scenario)


def test_openapi_document_needs_a_token(served):
    async def scenario(api):
        assert (await Client(api.web).get("/v1/openapi.json")).status_code == 401

    served(scenario)
