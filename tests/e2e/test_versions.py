"""Several versions of a model: version policy, versions pinned by requests, loading and unloading by request."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from artifact.exports import version_folder
from tests.support.offline import OfflineForecaster, document
from tests.support.paths import EXPORTS
from tests.support.problems import check_problem
from tests.support.refusals import check_refusal, run
from tests.support.server import ControlledServer, Server
from tests.support.versions import NAME, NEW, OLD, flip_byte, new_version, prepare, publish
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.wire import LAST_CHUNK, Wire, chunked, request

LOOK_S = 0.2
LABELS = {OLD: {"negative", "positive"}, NEW: {"bad", "good"}}
TEXT = {"content-type": "text/plain"}

Start = Callable[..., Server]


def add_copies(exports: Path, name: str, *versions: int, **changes: object) -> None:
    """Publish the newest version of an export of the repository as other versions."""
    for version in versions:
        publish(prepare(exports, name, name, version, **changes))


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with two versions of a model of each task, for tests that only send requests."""
    exports = tmp_path_factory.mktemp("several") / "exports"
    add_copies(exports, NAME, OLD)
    publish(new_version(exports))
    for name in ("aan", "ettm2"):
        add_copies(exports, name, 1, 2)
    flags = ("--version-policy", "all", "--default-classifier", f"{NAME}@{OLD}", "--drain-delay-s", "0")
    with Server(tmp_path_factory.mktemp("server") / "log", "--exports", str(exports), *flags) as server:
        yield server
        assert server.stop() == 0
        assert "Traceback" not in server.text()


@pytest.fixture
def following(exports_copy: Path, start_controlled: Callable[..., ControlledServer]) -> ControlledServer:
    """A server that serves every version in its folder."""
    publish(new_version(exports_copy))
    flags = ("--exports", str(exports_copy), "--reload-s", str(LOOK_S), "--drain-delay-s", "0")
    return start_controlled(*flags, "--version-policy", "all", "--model-control")


@contextmanager
def triton_client(server: Server) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(server.url.removeprefix("http://"), network_timeout=PATIENCE_S) as client:
        yield client


def versions(server: Server, name: str = NAME) -> list[int]:
    """Return the served versions."""
    return [model["version"] for model in server.get("/v1/models").json()["models"] if model["name"] == name]


def announced(server: Server, name: str = NAME) -> set[str]:
    lines = [line for line in server.get("/metrics").text.splitlines() if line.startswith("longdoc_model_info{")]
    return {line.split('version="')[1].split('"')[0] for line in lines if f'model="{name}"' in line}


def classify(client: httpx.Client, model: str | None, text: bytes = b"a fine film") -> httpx.Response:
    """Classify a text and check that the labels are those of the version in the response."""
    query = {} if model is None else {"model": model}
    response = client.post("/v1/classify", params=query, content=text, headers=TEXT)
    if response.status_code == 200:
        found = response.json()
        assert {score["label"] for score in found["results"][0]["scores"]} == LABELS[found["version"]]
    return response


@pytest.fixture(scope="module")
def bodies() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return a path, a model and the rest of the body for each route that names a model in its body."""
    forecaster = OfflineForecaster(version_folder(EXPORTS / "ettm2"))
    series = forecaster.series(forecaster.manifest.context_length)
    kserve = {"inputs": [{"series": series, "frequency": "15min"}], "options": {"horizon": 2}}
    return {
        "/v1/classify": (NAME, {"inputs": "a fine film"}),
        "/v1/score": ("aan", {"pairs": [["one paper", "another one"]]}),
        "/v1/rank": ("aan", {"query": "one paper", "documents": ["another one"]}),
        "/v1/forecast": ("ettm2", {"series": series, "horizon": 2}),
        "/v1/timeseries/forecast": ("ettm2", kserve),
    }


VERSIONS = {NAME: (OLD, NEW), "aan": (1, 2), "ettm2": (1, 2)}


@pytest.mark.parametrize("route", ["/v1/classify", "/v1/score", "/v1/rank", "/v1/forecast", "/v1/timeseries/forecast"])
def test_requests_get_the_version_they_pin(
    several: Server, bodies: dict[str, tuple[str, dict[str, Any]]], route: str
) -> None:
    name, body = bodies[route]
    for version in VERSIONS[name]:
        answer = several.post(route, json={**body, "model": f"{name}@{version}"}).json()
        assert (answer["model"], answer["version"]) == (name, version)
    answer = several.post(route, json={**body, "model": name}).json()
    assert (answer["model"], answer["version"]) == (name, max(VERSIONS[name]))
    refused = several.post(route, json={**body, "model": f"{name}@99"})
    assert refused.status_code == 404
    highest, lowest = sorted(VERSIONS[name], reverse=True)
    assert f"model {name} is served in versions {highest}, {lowest} only" in refused.text


def test_version_may_be_pinned_in_the_query_string(several: Server) -> None:
    with several.client() as client:
        for version in (OLD, NEW):
            assert classify(client, f"{NAME}@{version}").json()["version"] == version
            lines = client.post(
                f"/v1/classify?model={NAME}@{version}",
                content=b'{"text": "one"}\n{"text": "two"}\n',
                headers={"content-type": "application/x-ndjson"},
            )
            assert lines.text.count(f'"version":{version},') == 2
        check_problem(classify(client, f"{NAME}@99"), 404, "model_not_found")
        check_problem(classify(client, f"none@{OLD}"), 404, "model_not_found")


def test_version_of_the_default_model_may_be_pinned(several: Server) -> None:
    with several.client() as client:
        assert classify(client, None).json()["version"] == OLD
        assert classify(client, NAME).json()["version"] == NEW
    defaults = several.get("/v1/models").json()["defaults"]
    assert defaults["text-classification"] == {"model": f"{NAME}@{OLD}", "reason": "default_classifier"}


def test_clients_of_triton_see_every_version(several: Server) -> None:
    text = triton.InferInput("text", [1], "BYTES").set_data_from_numpy(np.array([b"a fine film"], object))
    with triton_client(several) as client:
        for version in (OLD, NEW):
            for name, wanted in ((NAME, str(version)), (f"{NAME}@{version}", "")):
                assert client.is_model_ready(name, wanted)
                metadata = client.get_model_metadata(name, wanted)
                assert (metadata["name"], metadata["versions"]) == (NAME, [str(OLD), str(NEW)])
                response = client.infer(name, [text], model_version=wanted)
                assert response.get_response()["model_version"] == str(version)
                assert response.as_numpy("label")[0].decode() in LABELS[version]
        assert client.infer(NAME, [text]).get_response()["model_version"] == str(NEW)
        assert not client.is_model_ready(NAME, "99")
        with pytest.raises(InferenceServerException, match=f"{NAME} is served in versions {NEW}, {OLD} only") as raised:
            client.infer(NAME, [text], model_version="99")
        assert raised.value.status() == "404"


def test_every_version_is_listed_and_logged_with_its_memory(several: Server) -> None:
    for name, numbers in VERSIONS.items():
        assert versions(several, name) == sorted(numbers, reverse=True)
        assert announced(several, name) == set(map(str, numbers))
        told = "serving versions {}, {}, each with its own memory".format(*sorted(numbers)[::-1])
        assert f"{name}: {told}" in several.text()
        for number in numbers:
            assert several.get(f"/v1/models/{name}@{number}").json()["version"] == number
    check_problem(several.get(f"/v1/models/{NAME}@99"), 404, "model_not_found")


def test_versions_add_no_series_to_the_metrics(several: Server) -> None:
    lines = several.get("/metrics").text.splitlines()
    with_version = {line.partition("{")[0] for line in lines if "version=" in line}
    assert with_version == {"longdoc_model_info", "python_info"}
    assert not [line for line in lines if "@" in line]


class Clients:
    """Clients that send requests without pause, each for one model, and the responses they got."""

    def __init__(self, server: Server, *models: str) -> None:
        self.answers = {model: Counter[object]() for model in models}
        """Model -> version, or status of a rejected request -> count."""
        self.last: dict[str, object] = {}
        self.failures: list[str] = []
        self._server = server
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=[model, 1 + 4000 * number])
            for model in models
            for number in range(2)
        ]

    def _ask(self, model: str, length: int) -> None:
        with self._server.client() as client:
            while not self._stop.is_set():
                try:
                    response = classify(client, model, document(length))
                except Exception as error:
                    self.failures.append(repr(error))
                    return
                is_answer = response.status_code == 200
                self.last[model] = response.json()["version"] if is_answer else response.status_code
                self.answers[model][self.last[model]] += 1

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def until(self, model: str, outcome: object) -> None:
        """Wait until a model has given this outcome many times from now on."""
        count = self.answers[model][outcome] + 20
        wait_until(lambda: self.answers[model][outcome] > count or self.failures, lambda: self.answers)


def test_rollback_and_return_of_a_version_under_load(exports_copy: Path, following: Server) -> None:
    """After a rollback, unpinned requests get the previous version; requests that pin the removed one get 404."""
    folder = exports_copy / NAME / str(NEW)
    pins = {version: f"{NAME}@{version}" for version in (OLD, NEW)}
    with Clients(following, NAME, *pins.values()) as clients:
        clients.until(NAME, NEW)
        clients.until(pins[OLD], OLD)
        removed = folder.rename(folder.parent / f".partial-{NEW}")
        clients.until(NAME, OLD)
        clients.until(pins[NEW], 404)
        assert versions(following) == [OLD]
        assert announced(following) == {str(OLD)}
        clients.until(pins[OLD], OLD)
        publish(removed)
        clients.until(NAME, NEW)
        clients.until(pins[NEW], NEW)
        clients.until(pins[OLD], OLD)
    assert clients.failures == []
    assert set(clients.answers[NAME]) == {OLD, NEW}
    assert set(clients.answers[pins[OLD]]) == {OLD}
    assert set(clients.answers[pins[NEW]]) == {NEW, 404}
    assert versions(following) == [NEW, OLD]
    text = following.text()
    assert f"{NAME} {NEW}: no longer served, because its export was removed" in text
    assert f"{NAME} {NEW}: serving in addition to {OLD}, with its own memory" in text
    assert "Traceback" not in text


def test_damaged_version_is_rejected_while_the_others_are_served(exports_copy: Path, following: Server) -> None:
    source = prepare(exports_copy, version=NEW + 1)
    flip_byte(source / "model.onnx")
    with Clients(following, NAME, f"{NAME}@{OLD}") as clients:
        clients.until(NAME, NEW)
        publish(source)
        wait_until(lambda: following.metric("longdoc_exports_refused_total", model=NAME, reason="hash"))
        clients.until(NAME, NEW)
        clients.until(f"{NAME}@{OLD}", OLD)
    assert clients.failures == []
    assert [set(answers) for answers in clients.answers.values()] == [{NEW}, {OLD}]
    assert versions(following) == [NEW, OLD]
    assert f"refused: {NAME}/{NEW + 1}: model.onnx has sha256" in following.text()


def test_only_listed_versions_are_served(exports_copy: Path, start: Start) -> None:
    publish(new_version(exports_copy))
    flags = ("--exports", str(exports_copy), "--reload-s", str(LOOK_S), "--drain-delay-s", "0")
    server = start(*flags, "--version-policy", f"{NAME}:{OLD}")
    assert versions(server) == [OLD]
    add_copies(exports_copy, NAME, NEW + 1)
    add_copies(exports_copy, "weather", 1, 2)
    wait_until(lambda: versions(server, "weather") == [2])  # it is loaded after the other one
    assert versions(server) == [OLD]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--version-policy", "newest"), ("version_policy", "'newest'", "give latest, all, or the versions")),
        (("--version-policy", f"{NAME}:99"), (f"version_policy lists {NAME}/99", f"versions there: {OLD}")),
        (("--version-policy", "none:1"), ("version_policy lists none/1", "versions there: none")),
        (("--default-classifier", f"{NAME}@99"), (f"default_classifier '{NAME}@99'", f"{NAME}@{OLD}")),
        (("--workers", "2", "--model-control"), ("model_control", "set workers to 1")),
    ],
)
def test_invalid_version_settings_are_refused_at_start(flags: tuple[str, ...], words: tuple[str, ...]) -> None:
    check_refusal(run("--port", "0", *flags), *words)


def test_damaged_version_is_refused_at_start_if_all_versions_are_served(exports_copy: Path, start: Start) -> None:
    folder = prepare(exports_copy, version=NEW)
    flip_byte(folder / "model.onnx")
    publish(folder)
    add_copies(exports_copy, NAME, NEW + 1)
    flags = ("--exports", str(exports_copy), "--drain-delay-s", "0")
    check_refusal(run("--port", "0", *flags, "--version-policy", "all"), f"{NAME}/{NEW}", "sha256")
    assert versions(start(*flags)) == [NEW + 1], "by default only the newest version is loaded"
    assert versions(start(*flags, "--version-policy", "all", "--skip-bad-exports")) == [NEW + 1, OLD]


def wait_for_scan(exports: Path, server: Server) -> None:
    """Wait for one complete scan of the exports: the server serves a new model whose name sorts last."""
    add_copies(exports, "weather", 1)
    wait_until(lambda: versions(server, "weather"))


def test_client_of_triton_unloads_and_loads_a_model(exports_copy: Path, following: Server) -> None:
    text = triton.InferInput("text", [1], "BYTES").set_data_from_numpy(np.array([b"a fine film"], object))
    with triton_client(following) as client:
        client.unload_model(NAME)
        assert not client.is_model_ready(NAME)
        assert not client.is_model_ready(NAME, str(OLD))
        with pytest.raises(InferenceServerException, match="no model of that name is served; there are: none"):
            client.infer(NAME, [text])
        wait_for_scan(exports_copy, following)
        assert not client.is_model_ready(NAME)
        assert announced(following) == set()
        client.unload_model(NAME)
        add_copies(exports_copy, NAME, NEW + 1)
        client.load_model(NAME)
        for version in (OLD, NEW, NEW + 1):
            assert client.is_model_ready(NAME, str(version))
            answer = client.infer(NAME, [text], model_version=str(version)).get_response()
            assert answer["model_version"] == str(version)
        client.load_model(NAME)
    text_of_log = following.text()
    for number in (OLD, NEW):
        assert f"{NAME} {number}: unloaded on request" in text_of_log
    assert f"{NAME}: load requested" in text_of_log
    assert "Traceback" not in text_of_log


def test_load_and_unload_errors_name_the_cause(exports_copy: Path, following: Server) -> None:
    folder = prepare(exports_copy, version=NEW + 1)
    flip_byte(folder / "model.onnx")
    publish(folder)
    with triton_client(following) as client:
        with pytest.raises(
            InferenceServerException, match=f"{NAME}/{NEW + 1}: model.onnx has sha256 .* served: "
        ) as bad:
            client.load_model(NAME)
        assert bad.value.status() == "400"
        assert str(exports_copy) not in str(bad.value)
        assert client.is_model_ready(NAME)
        with pytest.raises(InferenceServerException, match=f"no export of that name .*; there are: {NAME}") as unknown:
            client.load_model("none")
        assert unknown.value.status() == "404"
        with pytest.raises(InferenceServerException, match=f"no model of that name .*; there are: {NAME}") as unserved:
            client.unload_model("none")
        assert unserved.value.status() == "404"
        with pytest.raises(InferenceServerException, match="parameters are not supported") as files:
            client.load_model(NAME, config="{}")
        assert files.value.status() == "422"
    assert versions(following) == [NEW, OLD]


def test_running_requests_are_answered_while_their_model_is_unloaded(following: ControlledServer) -> None:
    done = threading.Event()

    def unload() -> None:
        assert following.post(f"/v2/repository/models/{NAME}/unload").json() == {"name": NAME, "versions": []}
        done.set()

    with ExitStack() as stack:
        with following.held():
            wires = [stack.enter_context(following.begin(document(9000))) for _ in range(6)]
            following.wait_for(6, "longdoc_requests_in_flight", model=NAME)
            unloading = threading.Thread(target=unload)
            unloading.start()
            wait_until(lambda: not versions(following))
            assert not done.is_set()
        answers = [wire.answer() for wire in wires]
        unloading.join(PATIENCE_S)
    assert done.is_set()
    assert [answer.status for answer in answers] == [200] * 6


def test_unloading_waits_for_an_upload_between_two_lines(following: ControlledServer) -> None:
    """Which may send more lines meanwhile."""
    path, line = f"/v2/repository/models/{NAME}/unload", chunked(b'{"text": "x"}\n')
    upload = request(body=None, content_type="application/x-ndjson", transfer_encoding="chunked")
    done = threading.Event()

    def unload() -> None:
        assert following.post(path).json() == {"name": NAME, "versions": []}
        done.set()

    with Wire(following.url) as wire:
        wire.send(upload, line)
        assert wire.head()[0] == 200
        chunks = wire.chunks()
        answers = [json.loads(next(chunks))]
        late = following.post(path, headers={"x-request-timeout-ms": "100"})
        message = "the model is unloaded; requests in flight have not finished yet"
        assert (late.status_code, late.json()) == (504, {"error": message})
        unloading = threading.Thread(target=unload)
        unloading.start()
        wire.send(line)
        answers.append(json.loads(next(chunks)))
        assert not done.is_set()
        wire.send(LAST_CHUNK)
        assert list(chunks) == []
    unloading.join(PATIENCE_S)
    assert done.is_set()
    assert [answer["version"] for answer in answers] == [NEW, NEW]


def test_clients_control_nothing_unless_the_setting_allows_it(server: Server) -> None:
    with triton_client(server) as client:
        for control in (client.load_model, client.unload_model):
            with pytest.raises(InferenceServerException, match=r"the setting model_control enables it") as raised:
                control(NAME)
            assert raised.value.status() == "400"
        assert client.is_model_ready(NAME)
