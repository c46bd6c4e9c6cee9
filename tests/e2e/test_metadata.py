"""Metadata of the service: models, metrics and the OpenAPI document, for every task."""

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from tests.support.offline import Columns, OfflineForecaster, OfflineMatcher
from tests.support.server import Scrape, sample

TASKS = ("text-classification", "series-classification", "text-matching", "forecasting")


@pytest.fixture
def series(forecaster: OfflineForecaster) -> Columns:
    return forecaster.series(forecaster.manifest.context_length)


@pytest.fixture
def bodies(series: Columns) -> dict[str, dict[str, Any]]:
    """A request for each JSON route."""
    given = {"series": series, "frequency": "15min", "start_timestamp": "2016-07-01"}
    return {
        "/v1/classify": {"inputs": ["one", "two"], "detail": True},
        "/v1/score": {"pairs": [["one", "two"]]},
        "/v1/rank": {"query": "one", "documents": ["one", "two"], "return_documents": True},
        "/v1/forecast": {
            "series": series, "quantiles": [0.1, 0.9], "horizon": 2, "start": "2016-07-01", "frequency": "15min",
        },
        "/v1/timeseries/forecast": {"model": "ettm2", "inputs": [given], "options": {"horizon": 2}},
    }  # fmt: skip


def test_models_list_the_properties_of_their_task(
    client: httpx.Client, matcher: OfflineMatcher, forecaster: OfflineForecaster
) -> None:
    answer = client.get("/v1/models").json()
    models = {model["name"]: model for model in answer["models"]}
    of_openai = {model["id"]: model for model in answer["data"]}
    assert set(TASKS) == {model["task"] for model in models.values()}
    listed = models[matcher.manifest.name]
    for name in ("task", "max_length", "window_overlap", "data_terms", "non_commercial"):
        assert listed[name] == getattr(matcher.manifest, name)
    listed = models[forecaster.manifest.name]
    names = ("task", "context_length", "horizon", "min_observations", "frequency", "quantiles_reliable")
    for name in (*names, "calibration_source", "calibration_examples"):
        assert listed[name] == getattr(forecaster.manifest, name)
    assert listed["channels"] == list(forecaster.manifest.channels)
    for name, model in models.items():
        assert model | of_openai[name] == client.get(f"/v1/models/{name}").json()
        assert model["ready"] is True
        assert (model["limits"]["documents"], model["limits"]["rank_documents"]) == (256, 10_000)
        assert not {"files", "golden", "head", "calibration", "mean", "scale"} & set(model)


def test_models_list_their_measured_scores(client: httpx.Client, matcher: OfflineMatcher) -> None:
    listed = client.get(f"/v1/models/{matcher.manifest.name}").json()
    assert [result["value"] for result in listed["results"]] == [r.value for r in matcher.manifest.results]
    assert listed["training"]["revision"] == matcher.manifest.training.revision


def test_metrics_are_labelled_by_task(client: httpx.Client, bodies: dict[str, dict[str, Any]]) -> None:
    name = "longdoc_request_duration_seconds_count"

    def counts(found: Scrape) -> dict[str, float]:
        return {task: found.sum(name, task=task) for task in TASKS}

    def counts_of_models(found: Scrape) -> dict[str, float]:
        return {model["name"]: found.sum(name, model=model["name"]) for model in models}

    models = client.get("/v1/models").json()["models"]
    found = Scrape(client)
    for route, body in bodies.items():
        before, of_models = counts(found), counts_of_models(found)
        response = client.post(route, json=body)
        assert response.status_code == 200, response.text
        model, task = response.json()["model"], client.get(f"/v1/models/{response.json()['model']}").json()["task"]
        found = Scrape(client)
        assert counts(found) == {**before, task: before[task] + 1}
        assert counts_of_models(found) == {**of_models, model: of_models[model] + 1}
        assert found.sum("longdoc_http_requests_total", route=route, code="200") > 0
        assert found.sum("longdoc_request_compute_seconds_count", model=model) > 0


def test_documents_are_counted_for_every_task(client: httpx.Client, bodies: dict[str, dict[str, Any]]) -> None:
    """Counts documents of a classifier or matcher and series of a forecaster; the query of a ranking counts too."""
    for route, count in (("/v1/classify", 2), ("/v1/score", 2), ("/v1/rank", 3), ("/v1/forecast", 1)):
        before = sample(client, "longdoc_documents_total")
        client.post(route, json=bodies[route])
        assert sample(client, "longdoc_documents_total") == before + count


def problems(schema: Mapping[str, Any], value: object, components: Mapping[str, Any]) -> list[str]:
    """Return where a value does not fit its schema: references, alternatives, types, items and properties."""
    if "$ref" in schema:
        return problems(components[schema["$ref"].removeprefix("#/components/schemas/")], value, components)
    if options := schema.get("anyOf") or schema.get("oneOf"):
        found = [problems(option, value, components) for option in options]
        return min(found, key=len) if all(found) else []
    if wrong := wrong_kind(schema, value):
        return [wrong]
    if isinstance(value, list):
        items = schema.get("prefixItems", [schema.get("items", {})] * len(value))
        return [found for item, part in zip(items, value, strict=True) for found in problems(item, part, components)]
    return wrong_fields(schema, value, components) if isinstance(value, dict) else []


def wrong_kind(schema: Mapping[str, Any], value: object) -> str | None:
    types: dict[str, Any] = {
        "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
        "null": type(None),
    }  # fmt: skip
    if "type" in schema and not isinstance(value, types[schema["type"]]):
        return f"{type(value).__name__} is not {schema['type']}"
    return f"not one of {schema['enum']}" if value not in schema.get("enum", [value]) else None


def wrong_fields(schema: Mapping[str, Any], value: Mapping[str, object], components: Mapping[str, Any]) -> list[str]:
    properties, more = schema.get("properties", {}), schema.get("additionalProperties", {})
    found = [f"{name} is missing" for name in schema.get("required", []) if name not in value]
    for name, part in value.items():
        expected = properties.get(name, more)
        if expected is False or (properties and name not in properties):
            found.append(f"{name} is unknown")
        elif isinstance(expected, dict):
            found += problems(expected, part, components)
    return found


def references(node: object) -> set[str]:
    if isinstance(node, list):
        return {found for item in node for found in references(item)}
    if isinstance(node, dict):
        own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return own | {found for value in node.values() for found in references(value)}
    return set()


def test_openapi_document_lists_the_routes_and_its_references_resolve(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    routes = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
    assert routes >= {
        "POST /v1/classify", "POST /v1/score", "POST /v1/rank", "POST /v1/forecast", "POST /v1/timeseries/forecast",
        "GET /v1/timeseries/models", "GET /v1/models", "GET /v1/models/{name}", "GET /metrics",
    }  # fmt: skip
    for reference in references(document):
        node = document
        assert reference.startswith("#/")
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]


def test_requests_and_responses_fit_the_openapi_document(
    client: httpx.Client, bodies: dict[str, dict[str, Any]], forecaster: OfflineForecaster
) -> None:
    document = client.get("/openapi.json").json()
    components = document["components"]["schemas"]
    named = dict(zip(forecaster.manifest.channels, bodies["/v1/forecast"]["series"], strict=True))
    for route, body in [*bodies.items(), ("/v1/forecast", {"series": named})]:
        operation = document["paths"][route]["post"]
        documented = operation["requestBody"]["content"]["application/json"]["schema"]
        assert problems(documented, body, components) == []
        assert problems(
            documented, {**body, "options": 5, "inputs": 5, "query": 5, "series": 5, "pairs": 5}, components
        )
        answer = client.post(route, json=body)
        assert answer.status_code == 200
        promised = operation["responses"]["200"]["content"]["application/json"]["schema"]
        assert problems(promised, answer.json(), components) == []
        if route == "/v1/timeseries/forecast":
            continue
        refused = client.post(route, json={})
        promised = operation["responses"]["422"]["content"]["application/problem+json"]["schema"]
        assert problems(promised, refused.json(), components) == []
