"""Names and labels are an interface: dashboards and alerts are written against them."""

from prometheus_client.parser import text_string_to_metric_families

from service.metrics import Metrics

CONTRACT = {
    "longdoc_http_requests": {"route", "method", "code"},
    "longdoc_request_duration_seconds": {"model", "task"},
    "longdoc_request_queue_seconds": {"model"},
    "longdoc_request_decode_seconds": {"model"},
    "longdoc_request_compute_seconds": {"model"},
    "longdoc_request_encode_seconds": {"model"},
    "longdoc_requests_in_flight": {"model"},
    "longdoc_queue_depth": {"model"},
    "longdoc_queue_bytes": {"model"},
    "longdoc_queue_oldest_seconds": {"model"},
    "longdoc_batch_size": {"model"},
    "longdoc_batch_padding_ratio": {"model"},
    "longdoc_batches": {"model", "reason"},
    "longdoc_requests_rejected": {"model", "reason"},
    "longdoc_requests_cancelled": {"model", "stage"},
    "longdoc_documents": {"model"},
    "longdoc_document_bytes": {"model"},
    "longdoc_documents_truncated": {"model"},
    "longdoc_bytes_dropped": {"model"},
    "longdoc_encoding_cache_requests": {"model", "result"},
    "longdoc_encoding_cache_bytes": {"model"},
    "longdoc_inference_errors": {"model", "kind"},
    "longdoc_exports_refused": {"model", "reason"},
    "longdoc_model_info": {"model", "version", "task", "format", "device", "precision", "sha256"},
    "longdoc_model_ready": {"model"},
    "longdoc_model_load_seconds": {"model"},
}


def test_names_and_labels_are_those_of_the_contract() -> None:
    metrics = Metrics()
    bound = metrics.of("m")
    bound.duration("t").observe(1)
    bound.batch_closed("full")
    bound.rejected("overloaded")
    bound.cancelled("queue")
    bound.cache_requests("hit")
    bound.watch_cache(lambda: 1)
    bound.inference_error("raised")
    bound.watch(lambda: 1, lambda: 2, lambda: 3, lambda: 1)
    metrics.http_requests.labels("/", "GET", 200).inc()
    metrics.exports_refused.labels("m", "hash").inc()
    metrics.model_info.labels(*"mvtfdps").set(1)
    found = {}
    for family in text_string_to_metric_families(metrics.expose().decode()):
        if family.name.startswith("longdoc_"):
            found[family.name] = {label for s in family.samples for label in s.labels} - {"le"}
    assert found == CONTRACT
