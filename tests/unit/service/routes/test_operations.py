"""`/metrics`."""

from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from service.settings import Settings
from tests.support.models import classifier, serving
from tests.support.problems import check_problem


async def test_metrics_count_responses() -> None:
    async with serving(classifier()) as client:
        await client.post("/v1/classify", json={"inputs": ["+", "-"]})
        response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    samples = {
        (sample.name, tuple(sorted(sample.labels.values()))): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }
    assert samples["longdoc_documents_total", ("mood",)] == 2
    assert samples["longdoc_http_requests_total", ("/v1/classify", "200", "POST")] == 1
    assert samples["longdoc_model_ready", ("mood",)] == 1


async def test_only_metrics_need_no_key() -> None:
    async with serving(classifier(), settings=Settings(api_keys=(SecretStr("secret"),))) as client:
        assert (await client.get("/metrics")).status_code == 200
        check_problem(await client.get("/v1/models"), 401, "unauthorized")
