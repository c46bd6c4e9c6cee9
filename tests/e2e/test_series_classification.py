"""Classification of series on a real server: the native route, the compatible protocols and `predict`."""

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

import artifact
from artifact.local import Model
from artifact.recordings import stretch_bounds
from tests.support import recordings as reference
from tests.support.models import AXES, GESTURES, RATE, STEP_OVERLAP, STEPS
from tests.support.mutations import mutate
from tests.support.naive import write_any_series, write_series_classifier
from tests.support.paths import EXPORTS, ROOT
from tests.support.problems import check_problem
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S

Recording = dict[str, list[float | None]]
NDJSON = {"content-type": "application/x-ndjson"}


def recording(steps: int, seed: int = 0, *, missing: bool = True) -> Recording:
    """Return a random walk of each channel, in which about a tenth of the values is missing."""
    generator = np.random.default_rng(seed)
    values = 10 + 0.2 * generator.standard_normal((len(AXES), steps)).cumsum(axis=1).round(2)
    known = generator.random(values.shape) > (0.1 if missing else 0)
    known[:, steps // 2] = True
    return {
        axis: [value if is_known else None for value, is_known in zip(*channel, strict=True)]
        for axis, channel in zip(AXES, zip(values.tolist(), known.tolist(), strict=True), strict=True)
    }


RECORDINGS = [recording(steps, seed) for seed, steps in enumerate((1, 2, STEPS - 1, STEPS, STEPS + 1, 100))]


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classifiers of series, `gestures` being the default, a forecaster, and the repository's classifier."""
    folder = tmp_path_factory.mktemp("exports")
    write_series_classifier(folder, "gestures")
    write_series_classifier(folder, "other")
    write_any_series(folder, "any")
    (folder / "imdb-s3").symlink_to(EXPORTS / "imdb-s3")
    (folder / "defaults.json").write_text(json.dumps({"series-classification": "gestures"}))
    return folder


@pytest.fixture(scope="module")
def served(exports: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    flags = ("--exports", str(exports), "--drain-delay-s", "0", "--deadline-s", "3600")
    with Server(tmp_path_factory.mktemp("server") / "log", *flags) as server:
        yield server
        assert server.stop() == 0


@pytest.fixture
def client(served: Server) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client
    assert "Traceback" not in served.text()
    assert "Warning" not in served.text()


@pytest.fixture(scope="module")
def model(exports: Path) -> Model:
    return artifact.load(exports / "gestures")


def ask(client: httpx.Client, series: object, **options: object) -> list[dict[str, Any]]:
    response = client.post("/v1/classify", json={"series": series, **options})
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["results"]
    return found


def wave_of(result: dict[str, Any]) -> float:
    """Return the score of `wave`."""
    return float({score["label"]: score["score"] for score in result["scores"]}["wave"])


@pytest.mark.parametrize("on_overflow", ["windows", "head", "tail", "head_tail"])
def test_server_and_python_give_the_answers_of_the_reference(
    client: httpx.Client, model: Model, on_overflow: Any
) -> None:
    found = ask(client, RECORDINGS, on_overflow=on_overflow)
    assert found == model.classify(RECORDINGS, on_overflow=on_overflow)
    for result, given in zip(found, RECORDINGS, strict=True):
        assert wave_of(result) == pytest.approx(reference.score(given["x"], given["y"], on_overflow), abs=1e-6)
        known = [value for channel in given.values() for value in channel if value is not None]
        assert result["coverage"]["observations_total"] == len(known)
        is_long = len(given["x"]) > STEPS
        assert result["coverage"]["strategy"] == (on_overflow if is_long else "whole")
        windows = -(-(len(given["x"]) - STEP_OVERLAP) // (STEPS - STEP_OVERLAP))
        assert result["coverage"]["windows"] == (windows if is_long and on_overflow == "windows" else 1)


def test_answer_depends_neither_on_the_form_nor_on_others(client: httpx.Client) -> None:
    together = ask(client, RECORDINGS)
    for expected, given in zip(together, RECORDINGS, strict=True):
        for form in (given, [given], dict(reversed(given.items())), list(given.values())):
            assert ask(client, form) == [expected]


def test_rate_is_resampled(client: httpx.Client, model: Model) -> None:
    given = recording(60, missing=False)
    for factor, steps in ((2.0, 30), (0.5, 120), (50.0, 1)):
        (result,) = ask(client, given, rate=factor * RATE, detail=True)
        assert wave_of(result) == pytest.approx(reference.score(given["x"], given["y"], steps=steps), abs=1e-6)
        assert result["coverage"]["resampled"]
        assert result == model.classify(given, rate=factor * RATE, detail=True)


def test_contribution_is_the_change_of_the_logit_without_the_stretch(client: httpx.Client) -> None:
    """Missing values of a request are interpolated as deleted ones are, except at its end, where they are left out."""
    given = recording(100, seed=7, missing=False)
    (whole,) = ask(client, given, detail=True)
    assert [(part["start"], part["end"]) for part in whole["stretches"]] == stretch_bounds(100)
    bounds = [(part["start"], part["end"]) for part in whole["stretches"]]
    without = [
        {axis: [*values[:start], *[None] * (end - start), *values[end:]] for axis, values in given.items()}
        for start, end in bounds
    ]
    for part, changed in zip(whole["stretches"][:-1], ask(client, without[:-1]), strict=True):
        change = np.log(wave_of(whole) / (1 - wave_of(whole))) - np.log(wave_of(changed) / (1 - wave_of(changed)))
        assert part["contributions"] == {"wave": pytest.approx(change, abs=1e-4), "rest": 0}
    assert any(abs(part["contributions"]["wave"]) > 0.01 for part in whole["stretches"])


def test_lines_of_series_and_texts_are_answered_in_order(client: httpx.Client) -> None:
    contents: list[dict[str, Any]] = []
    for number in range(200):
        series = {"id": number, "series": RECORDINGS[number % len(RECORDINGS)], "rate": RATE}
        contents.append(series if number % 3 else {"id": number, "text": "A film to see twice."})
    contents[50] = {"id": 50, "series": {"x": [1]}}
    body = "\n".join(map(json.dumps, contents))
    response = client.post("/v1/classify?top_k=2&detail=true", content=body, headers=NDJSON)
    found = [json.loads(line) for line in response.text.splitlines()]
    assert [(line["index"], line["id"]) for line in found] == [(number, number) for number in range(200)]
    assert found[50]["error"]["detail"] == "input 50: series: the model needs the channels x, y; y is missing"
    single = ask(client, RECORDINGS, detail=True)
    for number in (one for one in range(200) if one != 50):
        assert found[number]["model"] == ("gestures" if number % 3 else "imdb-s3")
        if number % 3:
            expected = single[number % len(RECORDINGS)]
            assert {name: found[number][name] for name in expected} == expected


def test_model_is_the_default_of_its_task_or_named(client: httpx.Client) -> None:
    defaults = client.get("/v1/models").json()["defaults"]
    assert defaults["series-classification"] == {"model": "gestures", "reason": "defaults.json"}
    for name, expected in ((None, "gestures"), ("other", "other"), ("other@1", "other")):
        assert client.post("/v1/classify", json={"series": RECORDINGS[0], "model": name}).json()["model"] == expected
    described = client.get("/v1/models/gestures").json()
    assert {name: described[name] for name in ("task", "channels", "labels", "length", "rate")} == {
        "task": "series-classification",
        "channels": list(AXES),
        "labels": list(GESTURES),
        "length": STEPS,
        "rate": RATE,
    }


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ({"series": RECORDINGS[0], "inputs": "x"}, 422, "give either inputs (documents) or series"),
        ({}, 422, "give either inputs (documents) or series"),
        ({"series": {"x": [1]}}, 422, "series: the model needs the channels x, y; y is missing"),
        (
            {"series": {"x": [1], "y": [1], "z": [1]}},
            422,
            "series: the model has the channels x, y; z is not one of th",
        ),
        ({"series": RECORDINGS[0], "model": "imdb-s3"}, 422, "imdb-s3 is for text-classification; models for series-c"),
        ({"inputs": "x", "model": "gestures"}, 422, "gestures is for series-classification; models for text-classif"),
        ({"series": RECORDINGS[0], "model": "none"}, 404, "no model of that name is served"),
        (
            {"series": RECORDINGS[5], "on_overflow": "error"},
            422,
            "series: the recording has 100 steps; the model re",
        ),
        ({"series": RECORDINGS[0], "rate": 1e-9}, 422, "rate: the recording would have more than 1,000,000 steps"),
        ({"series": [[0.0] * 9000] * 2, "rate": 0.1}, 413, "there would be 1800000 values at the rate of the model"),
    ],
)
def test_problem_names_the_wrong_value(client: httpx.Client, body: dict[str, Any], status: int, detail: str) -> None:
    code = {422: "invalid_input", 404: "model_not_found", 413: "payload_too_large"}[status]
    assert check_problem(client.post("/v1/classify", json=body), status, code)["detail"].startswith(detail)


def test_without_a_model_of_the_task_the_answer_says_so(start: Callable[..., Server]) -> None:
    with start("--drain-delay-s", "0").client() as client:
        problem = check_problem(client.post("/v1/classify", json={"series": [[1]]}), 422, "invalid_input")
    assert problem["detail"] == "no model for series-classification is served"


@pytest.mark.parametrize("binary", [True, False])
def test_triton_gets_the_scores_of_the_native_route(client: httpx.Client, served: Server, binary: bool) -> None:
    """Shorter recordings end with NaN. Its client cannot send NaN in JSON."""
    sent = RECORDINGS if binary else [recording(100, seed, missing=False) for seed in range(3)]
    values = np.full((len(sent), 100, len(AXES)), np.nan, np.float32)
    for row, given in zip(values, sent, strict=True):
        row[: len(given["x"])] = np.array([given[axis] for axis in AXES], float).T
    tensor = triton.InferInput("series", list(values.shape), "FP32").set_data_from_numpy(values, binary_data=binary)
    outputs = [triton.InferRequestedOutput(name, binary_data=binary) for name in ("scores", "label")]
    best = [triton.InferRequestedOutput("scores", class_count=1)]
    with triton.InferenceServerClient(served.url.removeprefix("http://")) as triton_client:
        result = triton_client.infer("gestures", [tensor], outputs=outputs)
        classes = triton_client.infer("gestures", [tensor], outputs=best).as_numpy("scores")
        rate = triton.InferInput("rate", [1], "FP32").set_data_from_numpy(np.array([RATE / 2], np.float32))
        other = triton_client.infer("gestures", [tensor, rate], outputs=outputs)
        metadata = triton_client.get_model_metadata("gestures")
        wrong = triton.InferInput("series", [1, 4, 3], "FP32").set_data_from_numpy(np.zeros((1, 4, 3), np.float32))
        with pytest.raises(InferenceServerException, match=r"series: shape \[1, 4, 3\]; \[-1, -1, 2\] is allowed"):
            triton_client.infer("gestures", [wrong])
    native = ask(client, sent)
    # Triton's numbers are float32, those of JSON float64; 1e-3 is more than the step of the grid.
    assert result.as_numpy("scores")[:, 1].tolist() == pytest.approx([wave_of(one) for one in native], abs=1e-3)
    labels = [label.decode() if isinstance(label, bytes) else label for label in result.as_numpy("label")]
    assert labels == [one["label"] for one in native]
    assert [entry.decode().split(":")[-1] for entry in classes.ravel()] == labels
    counted = {name: sum(one["coverage"][name] for one in native) for name in ("observations_total", "imputed")}
    assert {name: result.get_response()["parameters"][name] for name in counted} == counted
    assert metadata["parameters"] == {"labels": list(GESTURES), "channels": list(AXES)}
    assert [described["shape"] for described in metadata["inputs"]] == [[-1, -1, 2], [-1]]
    resampled = [wave_of(one) for one in ask(client, sent, rate=RATE / 2)]
    assert other.as_numpy("scores")[:, 1].tolist() == pytest.approx(resampled, abs=1e-3)


def test_kserve_v1_predicts(client: httpx.Client) -> None:
    instances = [{"series": RECORDINGS[5]}, {"series": list(RECORDINGS[2].values())}]
    response = client.post("/v1/models/gestures:predict", json={"instances": instances})
    assert response.status_code == 200, response.text
    assert response.json()["predictions"] == ask(client, [RECORDINGS[5], RECORDINGS[2]])
    wrong = client.post("/v1/models/gestures:predict", json={"instances": [*instances, {"series": [[1]]}]})
    assert wrong.status_code == 422
    assert wrong.json()["error"].startswith("instances.2.series: the model has 2 channels (x, y)")


def test_large_bodies_are_parsed_beside_the_server(client: httpx.Client, model: Model) -> None:
    long = recording(100_000, seed=3)
    before = client.get("/metrics").text.count("longdoc_parser_jobs_total")
    (found,) = ask(client, long, top_k=1)
    assert before
    assert found == model.classify(long, top_k=1)


def test_metrics_name_the_model(client: httpx.Client, served: Server) -> None:
    before = [served.metric(f"longdoc_documents{name}_total", model="other") for name in ("", "_truncated")]
    ask(client, RECORDINGS, model="other", on_overflow="head")
    after = [served.metric(f"longdoc_documents{name}_total", model="other") for name in ("", "_truncated")]
    assert [new - old for new, old in zip(after, before, strict=True)] == [len(RECORDINGS), 2]
    assert served.metric("longdoc_request_duration_seconds_count", model="other", task="series-classification") > 0


def test_predict_gives_the_answers_of_the_server(client: httpx.Client, exports: Path, tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    folder.mkdir()
    for number, given in enumerate(RECORDINGS[2:]):
        rows = zip(given["x"], given["y"], strict=True)
        cells = ["x,y", *(",".join("nan" if value is None else str(value) for value in row) for row in rows)]
        (folder / f"{number}.csv").write_text("\n".join(cells) + "\n")
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(json.dumps({"series": given}) + "\n" for given in RECORDINGS[2:]))
    expected = ask(client, RECORDINGS[2:])
    for arguments in ([str(folder)], ["--jsonl", str(lines)]):
        command = [sys.executable, "-m", "service", "predict", str(exports / "gestures"), *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        found = [json.loads(line) for line in done.stdout.splitlines()]
        assert [{name: line[name] for name in expected[0]} for line in found] == expected


BODIES = [
    b'{"series":{"x":[1,null,2.5e3],"y":[0,0.5,1e-9]},"rate":10,"top_k":1,"on_overflow":"head","detail":true}',
    b'{"series":[[1,null,2.5e3],[0,0.5,1e-9]],"model":"gestures"}',
    b'{"series":[{"x":[1,null],"y":[0,0.5]},{"x":[9],"y":[1e-9]}],"rate":2.5}',
]
LINES = b'{"id":1,"series":{"x":[1,null],"y":[0,0.5]},"rate":3}\n{"text":"a"}\n{"series":[[1,2],[3,null]]}\n'


def test_faulty_bodies_get_clear_answers(client: httpx.Client, served: Server) -> None:
    statuses = set()
    for number in range(600):
        generator = random.Random(number)
        is_lines = generator.random() < 0.3
        body = mutate(LINES if is_lines else generator.choice(BODIES), generator)
        kind = "application/x-ndjson" if is_lines else "application/json"
        response = client.post("/v1/classify", content=body, headers={"content-type": kind})
        statuses.add(response.status_code)
        assert response.status_code in (200, 400, 404, 413, 422), (number, response.text)
        if is_lines and response.status_code == 200:
            for line in map(json.loads, response.text.splitlines()):
                assert "label" in line or line["error"]["status"] in (400, 404, 413, 422), (number, line)
    assert {200, 400, 422} <= statuses
    assert "Traceback" not in served.text()
