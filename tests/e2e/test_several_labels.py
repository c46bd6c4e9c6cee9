"""Any number of labels a document on a real server: the native route, the compatible protocols and `predict`."""

import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http as triton

import artifact
from tests.support.naive import write_tagger
from tests.support.paths import ROOT
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S

THRESHOLDS = (0.7, 0.6)
"""Of `negative` and `positive`."""
DOCUMENTS = ["+-", "--+", ".", "+" + 14 * "." + "+--"]
CHOSEN = [["positive"], ["negative", "positive"], [], ["positive", "negative"]]
"""Labels of the documents. The logits of the last one are the means of two windows, log 3 and log 1 + log 3."""
SCORES = [
    {"positive": 2 / 3, "negative": 2 / 3},
    {"negative": 3 / 4, "positive": 2 / 3},
    {"negative": 0.5, "positive": 0.5},
]


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exports")
    write_tagger(folder, "tags", THRESHOLDS)
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


def classify(client: httpx.Client, **body: object) -> list[dict[str, Any]]:
    response = client.post("/v1/classify", json=body)
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["results"]
    return found


def test_labels_are_those_whose_score_reaches_the_threshold(client: httpx.Client) -> None:
    found = classify(client, inputs=DOCUMENTS[:3])
    for result, chosen, scores in zip(found, CHOSEN, SCORES, strict=False):
        assert sorted(result["labels"]) == sorted(chosen)
        assert {one["label"]: one["score"] for one in result["scores"]} == pytest.approx(scores)
        assert {one["label"]: one["threshold"] for one in result["scores"]} == {"negative": 0.7, "positive": 0.6}
        assert (result["label"], result["score"]) == (result["scores"][0]["label"], result["scores"][0]["score"])


def test_long_document_is_read_in_windows_with_the_evidence_of_its_best_labels(client: httpx.Client) -> None:
    (result,) = classify(client, inputs=DOCUMENTS[3], top_k=1, detail=True)
    assert result["coverage"]["windows"] == 2
    assert [len(window["scores"]) for window in result["windows"]] == [1, 1]
    logit = sum(stretch["contributions"][result["label"]] for stretch in result["stretches"])
    assert 1 / (1 + np.exp(-logit)) == pytest.approx(result["score"], abs=1e-6)


def test_lines_text_and_other_protocols_give_the_same_labels(client: httpx.Client) -> None:
    expected = classify(client, inputs=DOCUMENTS)
    body = "\n".join(json.dumps({"text": text}) for text in DOCUMENTS)
    response = client.post("/v1/classify", content=body, headers={"content-type": "application/x-ndjson"})
    lines = [json.loads(line) for line in response.text.splitlines()]
    assert [line["labels"] for line in lines] == [result["labels"] for result in expected]
    text = client.post("/v1/classify", content=DOCUMENTS[0], headers={"content-type": "text/plain"}).json()
    assert text["results"] == expected[:1]
    predicted = client.post("/v1/models/tags:predict", json={"instances": DOCUMENTS}).json()["predictions"]
    assert predicted == expected


def test_tensors_of_the_open_inference_protocol(served: Server, client: httpx.Client) -> None:
    expected = classify(client, inputs=DOCUMENTS)
    given = triton.InferInput("text", [len(DOCUMENTS)], "BYTES")
    given.set_data_from_numpy(np.array(DOCUMENTS, object))
    caller = triton.InferenceServerClient(served.url.removeprefix("http://"))
    answer = caller.infer("tags", [given])
    assert [json.loads(labels) for labels in answer.as_numpy("labels")] == [result["labels"] for result in expected]
    assert answer.as_numpy("scores").shape == (len(DOCUMENTS), 2)
    metadata = caller.get_model_metadata("tags")
    assert [output["name"] for output in metadata["outputs"]] == ["scores", "label", "labels"]
    caller.close()


def test_text_embeddings_inference_gives_every_label(client: httpx.Client) -> None:
    labels = client.post("/predict", json={"inputs": "--+"}).json()
    raw = client.post("/predict", json={"inputs": "--+", "raw_scores": True}).json()
    assert {one["label"]: one["score"] for one in labels} == pytest.approx(SCORES[1])
    assert {one["label"]: one["score"] for one in raw} == pytest.approx({"negative": np.log(3), "positive": np.log(2)})


def test_model_tells_its_thresholds(client: httpx.Client) -> None:
    assert client.get("/v1/models/tags").json()["thresholds"] == list(THRESHOLDS)


def test_predict_and_python_give_the_servers_answers(client: httpx.Client, exports: Path, tmp_path: Path) -> None:
    expected = classify(client, inputs=DOCUMENTS)
    assert artifact.load(exports / "tags").classify(DOCUMENTS) == expected
    path = tmp_path / "in.csv"
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([["text"], *([text] for text in DOCUMENTS)])
    command = [sys.executable, "-m", "service", "predict", str(exports / "tags"), "--csv", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in io.StringIO(done.stdout)]
    assert [{key: value for key, value in line.items() if key != "source"} for line in found] == expected
