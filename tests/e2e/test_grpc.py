"""gRPC: stubs of the Open Inference Protocol against a real server get the answers computed offline."""

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, cast

import grpc
import grpc.aio
import httpx
import numpy as np
import pytest
import trustme
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from open_inference.grpc.protocol import (
    ModelInferRequest,
    ModelInferResponse,
    ModelMetadataRequest,
    ModelReadyRequest,
    ServerLiveRequest,
    ServerMetadataRequest,
    ServerReadyRequest,
)
from open_inference.grpc.service import GRPCInferenceServiceStub

from artifact.cores import cpu_count
from artifact.tasks.classification import ClassifierManifest
from benchmarks.lib.servers import free_port
from service.grpc.server import INFERENCE
from tests.support.controlled import DEADLINE_S
from tests.support.offline import Offline, OfflineForecaster, OfflineMatcher, document, same_score
from tests.support.server import ControlledServer, Scrape, Server
from tests.support.waiting import PATIENCE_S, wait_until

NEVER_S = "3600"

SHORT, LONG = b"A good film, \xff\x00 even so.", document(9000)
ROUTE = "/v2/models/{name}/infer"
KEY = "a-key"


@contextlib.contextmanager
def calling(server: Server) -> Iterator[GRPCInferenceServiceStub]:
    with grpc.insecure_channel(server.grpc_address()) as channel:
        yield GRPCInferenceServiceStub(channel)


@pytest.fixture(scope="module")
def grpc_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    flags = ("--grpc-port", "0", "--drain-delay-s", "0", "--default-forecaster", "ettm2", "--deadline-s", "3600")
    with Server(tmp_path_factory.mktemp("grpc") / "log", *flags) as server:
        yield server
        assert "Traceback" not in server.text()
        assert server.stop() == 0


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that requires a key."""
    flags = ("--grpc-port", "0", "--models", "imdb-s3", "--drain-delay-s", "0")
    with Server(tmp_path_factory.mktemp("keyed") / "log", *flags, variables={"LONGDOC_API_KEYS": KEY}) as server:
        yield server


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlledServer]:
    """A server whose batches and clock a test controls."""
    flags = ("--grpc-port", "0", "--models", "imdb-s3", "--drain-delay-s", "0", "--max-body-bytes", "100000")
    with ControlledServer(tmp_path_factory.mktemp("held") / "log", *flags) as server:
        yield server


@pytest.fixture
def stub(grpc_server: Server) -> Iterator[GRPCInferenceServiceStub]:
    with calling(grpc_server) as stub:
        yield stub


def infer_request(
    model: str, inputs: Mapping[str, tuple[str, Sequence[int], Sequence[Any]]], *, is_raw: bool = False
) -> ModelInferRequest:
    """A request with inputs (datatype, shape, elements) by name."""
    request = ModelInferRequest(model_name=model, id="7")
    fields = {"BYTES": "bytes", "FP32": "fp32", "FP64": "fp64", "UINT8": "uint", "INT32": "int"}
    dtypes = {"FP32": "<f4", "FP64": "<f8", "UINT8": "u1", "INT32": "<i4"}
    for name, (datatype, shape, elements) in inputs.items():
        given = request.inputs.add(name=name, datatype=datatype, shape=shape)
        if not is_raw:
            getattr(given.contents, f"{fields[datatype]}_contents").extend(elements)
        elif datatype == "BYTES":
            request.raw_input_contents.append(b"".join(len(text).to_bytes(4, "little") + text for text in elements))
        else:
            request.raw_input_contents.append(np.array(elements, dtypes[datatype]).tobytes())
    return request


def numbers(response: ModelInferResponse, name: str) -> np.ndarray:
    """An output of numbers."""
    (at,) = [index for index, output in enumerate(response.outputs) if output.name == name]
    assert response.outputs[at].datatype == "FP32"
    return np.frombuffer(response.raw_output_contents[at], "<f4").reshape(response.outputs[at].shape)


def texts(response: ModelInferResponse, name: str) -> list[str]:
    """An output of texts."""
    (at,) = [index for index, output in enumerate(response.outputs) if output.name == name]
    packed, found = response.raw_output_contents[at], list[str]()
    while packed:
        end = 4 + int.from_bytes(packed[:4], "little")
        found.append(packed[4:end].decode())
        packed = packed[end:]
    return found


def film(*documents: bytes) -> ModelInferRequest:
    return infer_request("imdb-s3", {"text": ("BYTES", [len(documents)], documents)})


class Failure(NamedTuple):
    """How a call failed."""

    code: grpc.StatusCode
    details: str
    metadata: dict[str, str]


def failed(call: Callable[[], object]) -> Failure:
    """The error of a call."""
    with pytest.raises(grpc.RpcError) as raised:
        call()
    error: Any = raised.value
    return Failure(error.code(), error.details(), dict(error.trailing_metadata()))


def _rows_of(server: Server) -> float:
    """Rows that have been computed, are computed or wait."""
    with server.client() as client:
        scrape = Scrape(client)
    return scrape.sum("longdoc_batch_size_sum", model="imdb-s3") + scrape.sum("longdoc_queue_depth", model="imdb-s3")


def test_server_and_models_are_described(
    stub: GRPCInferenceServiceStub, manifest: ClassifierManifest, grpc_server: Server
) -> None:
    assert stub.ServerLive(ServerLiveRequest()).live
    assert stub.ServerReady(ServerReadyRequest()).ready
    described = stub.ServerMetadata(ServerMetadataRequest())
    assert (described.name, list(described.extensions)) == ("longdoc-serve", ["classification", "parameters"])
    assert stub.ModelReady(ModelReadyRequest(name=manifest.name)).ready
    assert stub.ModelReady(ModelReadyRequest(name=manifest.name, version=str(manifest.version))).ready
    for name in ("imdb-s3", "aan", "ettm2", "japanese-vowels"):
        over_http = grpc_server.get(f"/v2/models/{name}").json()
        found = stub.ModelMetadata(ModelMetadataRequest(name=name))
        assert (found.name, list(found.versions), found.platform) == (
            name, over_http["versions"], over_http["platform"],
        )  # fmt: skip
        for tensors, expected in ((found.inputs, over_http["inputs"]), (found.outputs, over_http["outputs"])):
            tensors_found = [{"name": t.name, "datatype": t.datatype, "shape": list(t.shape)} for t in tensors]
            assert tensors_found == expected
    assert stub.ModelMetadata(ModelMetadataRequest(name="imdb-s3")).properties["labels"] == '["negative","positive"]'


@pytest.mark.parametrize("is_raw", [False, True])
def test_documents_get_the_answers_computed_offline(
    stub: GRPCInferenceServiceStub, offline: Offline, manifest: ClassifierManifest, is_raw: bool
) -> None:
    documents = [SHORT, LONG]
    found = stub.ModelInfer(infer_request(manifest.name, {"text": ("BYTES", [2, 1], documents)}, is_raw=is_raw))
    assert (found.model_name, found.model_version, found.id) == (manifest.name, str(manifest.version), "7")
    for row, label, given in zip(numbers(found, "scores"), texts(found, "label"), documents, strict=True):
        expected = offline(given)
        assert dict(zip(manifest.labels, row.tolist(), strict=True)) == pytest.approx(expected, abs=1e-5)
        assert label == max(expected, key=lambda name: expected[name])
    total = len(SHORT) + len(LONG)
    assert found.parameters["bytes_used"].int64_param == found.parameters["bytes_total"].int64_param == total
    assert 0 < found.parameters["known"].double_param < 1


@pytest.mark.parametrize("is_raw", [False, True])
def test_padded_documents_pairs_and_series_get_the_answers_computed_offline(
    stub: GRPCInferenceServiceStub,
    offline: Offline,
    matcher: OfflineMatcher,
    forecaster: OfflineForecaster,
    is_raw: bool,
) -> None:
    padded = {"bytes": ("UINT8", [2, 4], list(b"goodbad\0")), "lengths": ("INT32", [2], [4, 3])}
    scores = numbers(stub.ModelInfer(infer_request("imdb-s3", padded, is_raw=is_raw)), "scores")
    for row, given in zip(scores, (b"good", b"bad"), strict=True):
        assert row.tolist() == pytest.approx(list(offline(given).values()), abs=1e-5)
    pair = {"a": ("BYTES", [1], [b"A parser of trees"]), "b": ("BYTES", [1], [b"Dependency parsing"])}
    score = numbers(stub.ModelInfer(infer_request("aan", pair, is_raw=is_raw)), "score")
    assert same_score(score.item(), matcher("A parser of trees", "Dependency parsing"))
    m = forecaster.manifest
    columns = forecaster.series(m.context_length)
    shape, steps = [1, m.context_length, len(m.channels)], np.array(columns, float).T.ravel().tolist()
    for datatype in ("FP32", "FP64"):
        found = stub.ModelInfer(infer_request(m.name, {"series": (datatype, shape, steps)}, is_raw=is_raw))
        assert forecaster.agree(numbers(found, "forecast")[0].T.tolist(), forecaster(columns))


def test_outputs_and_parameters_are_those_of_http(stub: GRPCInferenceServiceStub, offline: Offline) -> None:
    request = film(LONG)
    request.outputs.add(name="scores").parameters["classification"].int64_param = 1
    request.outputs[0].parameters["binary_data"].bool_param = False
    request.parameters["on_overflow"].string_param = "head"
    found = stub.ModelInfer(request)
    assert [output.name for output in found.outputs] == ["scores"]
    score, _, label = texts(found, "scores")[0].split(":")
    expected = offline(LONG, "head")
    assert float(score) == pytest.approx(expected[label], abs=1e-5)
    assert found.parameters["documents_cut"].int64_param == 1


def test_errors_have_the_text_and_id_of_http(stub: GRPCInferenceServiceStub) -> None:
    cases: list[tuple[Callable[..., object], object, grpc.StatusCode, str]] = [
        (stub.ModelReady, ModelReadyRequest(name="none"), grpc.StatusCode.NOT_FOUND, "no model of that name"),
        (stub.ModelMetadata, ModelMetadataRequest(name="aan", version="99"), grpc.StatusCode.NOT_FOUND, "version 7"),
        (stub.ModelInfer, infer_request("imdb-s3", {}), grpc.StatusCode.INVALID_ARGUMENT, "needs text, or bytes and"),
        (stub.ModelInfer, film(b""), grpc.StatusCode.INVALID_ARGUMENT, "text.0"),
        (stub.ModelInfer, film(*[b"a"] * 257), grpc.StatusCode.INVALID_ARGUMENT, "at most 256 in one request"),
    ]
    for method, request, code, text in cases:
        error = failed(functools.partial(method, request, metadata=[("x-request-id", "mine")]))
        assert (error.code, error.metadata["x-request-id"]) == (code, "mine")
        assert text in error.details


def test_names_lead_to_no_other_route(stub: GRPCInferenceServiceStub) -> None:
    for name in ("", "stats", "stats\n", "imdb-s3/versions/9", "imdb-s3/config", "../../v1/models"):
        for call in (
            lambda name=name: stub.ModelMetadata(ModelMetadataRequest(name=name)),
            lambda name=name: stub.ModelInfer(infer_request(name, {})),
            lambda name=name: stub.ModelReady(ModelReadyRequest(name=name, version="1/ready")),
        ):
            assert failed(call).code == grpc.StatusCode.NOT_FOUND


def test_calls_count_as_requests(stub: GRPCInferenceServiceStub, grpc_server: Server) -> None:
    labels = {"method": "POST", "route": ROUTE}
    before = grpc_server.metric("longdoc_http_requests_total", **labels, code="200")
    stub.ModelInfer(film(SHORT))
    failed(lambda: stub.ModelInfer(film(b"")))
    grpc_server.wait_for(before + 1, "longdoc_http_requests_total", **labels, code="200")
    assert grpc_server.metric("longdoc_http_requests_total", **labels, code="422") > 0


def test_health_and_reflection(grpc_server: Server) -> None:
    with grpc.insecure_channel(grpc_server.grpc_address()) as channel:
        health: Any = HealthStub(channel)
        for service in ("", INFERENCE):
            assert health.Check(HealthCheckRequest(service=service)).status == HealthCheckResponse.SERVING
        unknown = failed(lambda: health.Check(HealthCheckRequest(service="none")))
        assert unknown.code == grpc.StatusCode.NOT_FOUND
        watching = health.Watch(HealthCheckRequest(service="none"))
        assert next(watching).status == HealthCheckResponse.SERVICE_UNKNOWN
        watching.cancel()
        services = ProtoReflectionDescriptorDatabase(channel).get_services()
        assert {INFERENCE, "grpc.health.v1.Health"} <= set(services)


@pytest.mark.parametrize("method", ["ModelInfer", "ModelMetadata"])
def test_message_that_cannot_be_parsed_is_refused(grpc_server: Server, method: str) -> None:
    """The fixture checks that the log has no traceback."""
    with grpc.insecure_channel(grpc_server.grpc_address()) as channel:
        send: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{INFERENCE}/{method}")
        error = failed(lambda: send(b"\xff\xff"))
    assert (error.code, error.details) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "the message is missing or cannot be parsed",
    )


@pytest.mark.parametrize("method", ["/grpc.health.v1.Health/List", f"/{INFERENCE}/ModelStreamInfer"])
def test_other_methods_are_not_implemented(grpc_server: Server, method: str) -> None:
    with grpc.insecure_channel(grpc_server.grpc_address()) as channel:
        send: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
        assert failed(lambda: send(b"")).code == grpc.StatusCode.UNIMPLEMENTED


def test_keys_are_those_of_http(keyed: Server) -> None:
    with calling(keyed) as stub, grpc.insecure_channel(keyed.grpc_address()) as channel:
        assert stub.ServerLive(ServerLiveRequest()).live
        assert stub.ServerReady(ServerReadyRequest()).ready
        assert cast(Any, HealthStub(channel)).Check(HealthCheckRequest()).status == HealthCheckResponse.SERVING
        wrong = (("x-api-key", "wrong"),)
        for metadata in ((), wrong):
            for call in (
                lambda metadata=metadata: stub.ModelInfer(film(SHORT), metadata=metadata),
                lambda metadata=metadata: stub.ServerMetadata(ServerMetadataRequest(), metadata=metadata),
            ):
                error = failed(call)
                assert (error.code, "send a valid key" in error.details) == (grpc.StatusCode.UNAUTHENTICATED, True)
        for metadata in ((("authorization", f"Bearer {KEY}"),), (("x-api-key", KEY),)):
            assert texts(stub.ModelInfer(film(SHORT), metadata=metadata), "label")


def test_a_message_without_a_key_is_not_read(keyed: Server) -> None:
    """The call ends although its message never does."""
    with unfinished_call(keyed) as call:
        assert call.code() == grpc.StatusCode.UNAUTHENTICATED


def test_message_that_does_not_arrive_ends_at_the_deadline(held: ControlledServer) -> None:
    with unfinished_call(held) as call:
        wait_until(call.running)
        with calling(held) as stub:
            assert stub.ServerReady(ServerReadyRequest()).ready  # the call before has reached the server
        wait_until(lambda: _is_over(held, call))
        assert call.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert call.details() == "the deadline passed before the message had arrived"


def _is_over(server: ControlledServer, call: Any) -> bool:
    """Whether a call has ended; else the clock of the server jumps ahead."""
    server.advance(DEADLINE_S + 1)
    return bool(call.done())


@contextlib.contextmanager
def unfinished_call(server: Server) -> Iterator[Any]:
    """A call whose message never ends."""
    has_ended = threading.Event()

    def message() -> Iterator[bytes]:
        assert has_ended.wait(PATIENCE_S)
        yield from ()

    with grpc.insecure_channel(server.grpc_address()) as channel:
        ask: grpc.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(f"/{INFERENCE}/ModelInfer")
        try:
            yield ask.future(message(), timeout=PATIENCE_S)
        finally:
            has_ended.set()


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_message_above_the_limit_is_refused(held: ControlledServer, compression: grpc.Compression) -> None:
    with grpc.insecure_channel(held.grpc_address(), compression=compression) as channel:
        stub = GRPCInferenceServiceStub(channel)
        assert texts(stub.ModelInfer(film(b"a " * 49_000)), "label")
        error = failed(lambda: stub.ModelInfer(film(b"a " * 51_000)))
    assert error.code == grpc.StatusCode.RESOURCE_EXHAUSTED
    if compression == grpc.Compression.NoCompression:
        assert "100000" in error.details


def test_deadline_of_the_client_is_kept(held: ControlledServer) -> None:
    with calling(held) as stub:
        before = _rows_of(held)
        with held.held():
            request = film(SHORT)
            request.parameters["timeout"].int64_param = 1_000_000
            of_parameter = stub.ModelInfer.future(request)
            of_call = stub.ModelInfer.future(film(SHORT), timeout=PATIENCE_S)
            wait_until(lambda: _rows_of(held) == before + 2)
            held.advance(2 * PATIENCE_S)
            for call in (of_parameter, of_call):
                error = failed(call.result)
                assert error.code == grpc.StatusCode.DEADLINE_EXCEEDED
                assert "deadline passed" in error.details
        assert texts(stub.ModelInfer(film(SHORT)), "label")


def test_cancelled_call_is_cancelled_in_the_server(held: ControlledServer) -> None:
    with calling(held) as stub:
        batches = held.metric("longdoc_batch_size_count")
        with held.held():
            call = stub.ModelInfer.future(film(SHORT))
            held.wait_for_batches(batches + 1)
            call.cancel()
            held.wait_for(1, "longdoc_http_requests_total", method="POST", route=ROUTE, code="499")
        assert texts(stub.ModelInfer(film(SHORT)), "label")


def test_full_queue_names_the_time_to_retry(start_controlled: Callable[..., ControlledServer]) -> None:
    server = start_controlled("--grpc-port", "0", "--max-queue-rows", "1", "--drain-delay-s", "0")
    with calling(server) as stub, server.held():
        accepted = []
        for batches in range(1, cpu_count() + 1):
            accepted.append(stub.ModelInfer.future(film(SHORT)))
            server.wait_for_batches(batches)
        accepted.append(stub.ModelInfer.future(film(SHORT)))
        server.wait_for(1, "longdoc_queue_depth", model="imdb-s3")
        error = failed(lambda: stub.ModelInfer(film(SHORT)))
        assert error.code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert int(error.metadata["retry-after"]) >= 1
        server.release()
        assert all(texts(call.result(), "label") for call in accepted)


def test_sigterm_loses_no_call(start_controlled: Callable[..., ControlledServer]) -> None:
    server = start_controlled("--grpc-port", "0", "--drain-delay-s", "40", "--deadline-s", "3600")
    with calling(server) as stub, grpc.insecure_channel(server.grpc_address()) as channel:
        watching = cast(Any, HealthStub(channel)).Watch(HealthCheckRequest())
        assert next(watching).status == HealthCheckResponse.SERVING
        with server.held():
            early = stub.ModelInfer.future(film(SHORT))
            server.wait_for_batches(1)
            server.drain()
            assert next(watching).status == HealthCheckResponse.NOT_SERVING
            assert not stub.ServerReady(ServerReadyRequest()).ready
            late = stub.ModelInfer.future(film(SHORT))  # load balancers still send some
            wait_until(lambda: _rows_of(server) == 2)
            server.advance(41)
            with grpc.insecure_channel(server.grpc_address()) as other:
                refused = GRPCInferenceServiceStub(other)
                wait_until(lambda: _is_refused(refused))
        assert texts(early.result(), "label")
        assert texts(late.result(), "label")
    assert server.exit_code() == 0


def test_clients_that_retry_lose_no_call_when_the_server_stops(start: Callable[..., Server]) -> None:
    """Each sends the next call as soon as it has an answer, and waits before it repeats a refused one."""
    longer = {"service.grpc.server.LAST_CALLS_S": PATIENCE_S}
    server, has_stopped = start("--grpc-port", "0", "--drain-delay-s", "0", constants=longer), threading.Event()
    codes, answers = list[grpc.StatusCode](), list[int]()

    def send_calls(stub: GRPCInferenceServiceStub) -> None:
        while not has_stopped.is_set():
            try:
                stub.ModelInfer(film(SHORT))
                answers.append(1)
            except grpc.RpcError as error:
                failure: Any = error
                codes.append(failure.code())
                has_stopped.wait(PATIENCE_S)

    with calling(server) as stub, ThreadPoolExecutor(16) as threads:
        for _ in range(16):
            threads.submit(send_calls, stub)
        wait_until(lambda: len(answers) > 100)
        try:
            assert server.stop() == 0
        finally:
            has_stopped.set()
    assert set(codes) == {grpc.StatusCode.UNAVAILABLE}


def _is_refused(stub: GRPCInferenceServiceStub) -> bool:
    try:
        stub.ServerLive(ServerLiveRequest())
    except grpc.RpcError as error:
        failure: Any = error
        return bool(failure.code() == grpc.StatusCode.UNAVAILABLE)
    return False


@pytest.mark.parametrize("delay_s", [NEVER_S, "0"])
def test_second_signal_stops_at_once(start_controlled: Callable[..., ControlledServer], delay_s: str) -> None:
    settings = ("--drain-delay-s", delay_s, "--drain-timeout-s", NEVER_S, "--deadline-s", NEVER_S)
    server = start_controlled("--grpc-port", "0", *settings)
    with calling(server) as stub, server.held():
        call = stub.ModelInfer.future(film(SHORT))
        server.wait_for_batches(1)
        server.drain()
        if delay_s == "0":
            wait_until(lambda: "Waiting for application shutdown" in server.text())
        server.send_signal()
        assert failed(call.result).code in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
        server.exit_code()


def test_tls(start: Callable[..., Server], tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(key)
    files = ("--grpc-certificate", str(certificate), "--grpc-private-key", str(key))
    server = start("--grpc-port", "0", *files, "--drain-delay-s", "0")
    credentials = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    with grpc.secure_channel(server.grpc_address(), credentials) as channel:
        assert texts(GRPCInferenceServiceStub(channel).ModelInfer(film(SHORT)), "label")
    with calling(server) as stub:
        assert failed(lambda: stub.ServerLive(ServerLiveRequest())).code == grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("content", [None, "no key"])
def test_wrong_files_of_tls_are_named(start: Callable[..., Server], tmp_path: Path, content: str | None) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    trustme.CA().cert_pem.write_to_path(certificate)
    if content is not None:
        key.write_text(content)
    with pytest.raises(AssertionError, match=rf"error: grpc_certificate {certificate} and grpc_private_key {key}: "):
        start("--grpc-port", "0", "--grpc-certificate", str(certificate), "--grpc-private-key", str(key))


def test_port_in_use_is_named(start: Callable[..., Server], grpc_server: Server) -> None:
    port = grpc_server.grpc_address().rpartition(":")[2]
    with pytest.raises(AssertionError, match=rf"cannot listen on 127.0.0.1 \(LONGDOC_HOST\), port {port} \(LONGDOC_GR"):
        start("--grpc-port", port)


def test_workers_share_the_port(start: Callable[..., Server]) -> None:
    server = start("--grpc-port", str(free_port()), "--workers", "2", "--drain-delay-s", "0")
    wait_until(lambda: server.text().count("listening on grpc://") == 2)
    for _ in range(8):  # each call on a connection of its own
        with calling(server) as stub:
            assert texts(stub.ModelInfer(film(SHORT)), "label")
    assert server.stop() == 0


async def test_many_calls_at_once_are_batched(
    start_controlled: Callable[..., ControlledServer], offline: Offline
) -> None:
    server = start_controlled("--grpc-port", "0", "--drain-delay-s", "0", "--deadline-s", "3600")
    documents = [f"A film, number {number}.".encode() for number in range(200)]
    async with grpc.aio.insecure_channel(server.grpc_address()) as channel:
        stub = GRPCInferenceServiceStub(channel)
        with server.held():
            calls = [asyncio.ensure_future(stub.ModelInfer(film(each))) for each in documents]
            await asyncio.to_thread(wait_until, lambda: server.metric("longdoc_queue_depth") > 1)
        found = await asyncio.gather(*calls)
    for each, response in zip(documents[::20], found[::20], strict=True):
        assert numbers(response, "scores")[0].tolist() == pytest.approx(list(offline(each).values()), abs=1e-5)
    with httpx.Client(base_url=server.url) as client:
        scrape = Scrape(client)
    rows = scrape.sum("longdoc_batch_size_sum", model="imdb-s3")
    assert rows > scrape.sum("longdoc_batch_size_count", model="imdb-s3")
