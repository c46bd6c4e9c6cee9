"""The share of known words, in every protocol, of a model that counts words, which is trained briefly."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import artifact
from service.__main__ import main
from tests.support.offline import Offline
from tests.support.server import Scrape, Server
from tests.unit.model.conftest import exported_once
from tests.unit.model.export.test_export_words import ngram_run

NAME = "tiny"
LIKE_TRAINING = "+-+ab cd +++ gh-"
NOISE = "Заявление quantum xylophone"
LONG = f"{LIKE_TRAINING} {NOISE} " * 60
"""Several windows."""
TEXTS = [LIKE_TRAINING, NOISE, LONG, "  "]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the export."""
    return exported_once(ngram_run(tmp_path_factory), tmp_path_factory)


@pytest.fixture(scope="module")
def counting(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server") / "log", "--exports", str(folder.parents[1])) as server:
        yield server


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[float]:
    """The shares of TEXTS."""
    offline = Offline(folder)
    shares = [offline.known(text.encode()) for text in TEXTS]
    return [share for share in shares if share is not None]


def known(results: list[dict[str, Any]]) -> list[float]:
    return [result["coverage"]["known"] for result in results]


def post(server: Server, path: str, **body: object) -> httpx.Response:
    response = server.post(path, json=body)
    assert response.status_code == 200, response.text
    return response


def test_shares_differ_between_documents(expected: list[float]) -> None:
    like_training, noise, mixed, blank = expected
    assert noise == blank == 0
    assert 0 < mixed < like_training <= 1


def test_own_routes_report_the_share(counting: Server, expected: list[float]) -> None:
    assert known(post(counting, "/v1/classify", inputs=TEXTS).json()["results"]) == pytest.approx(expected)
    for text, share in zip(TEXTS, expected, strict=True):
        (result,) = counting.post("/v1/classify", content=text, headers={"content-type": "text/plain"}).json()[
            "results"
        ]
        assert result["coverage"]["known"] == pytest.approx(share)


@pytest.mark.parametrize("strategy", ["windows", "head", "tail", "head_tail"])
def test_only_words_that_were_read_count(counting: Server, folder: Path, strategy: str) -> None:
    found = post(counting, "/v1/classify", inputs=[LONG], on_overflow=strategy).json()["results"]
    assert known(found) == pytest.approx([Offline(folder).known(LONG.encode(), strategy)])
    assert (found[0]["coverage"]["windows"] > 1) == (strategy == "windows")


def test_uploads_report_the_share(counting: Server, expected: list[float]) -> None:
    lines = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)
    answer = counting.post("/v1/classify", content=lines, headers={"content-type": "application/x-ndjson"})
    assert known([json.loads(line) for line in answer.text.splitlines()]) == pytest.approx(expected)


def test_compatible_protocols_report_the_share(counting: Server, expected: list[float]) -> None:
    predictions = post(counting, f"/v1/models/{NAME}:predict", instances=TEXTS).json()["predictions"]
    assert known(predictions) == pytest.approx(expected)
    for text, share in zip(TEXTS, expected, strict=True):
        given = {"name": "text", "datatype": "BYTES", "shape": [1], "data": [text]}
        answer = post(counting, f"/v2/models/{NAME}/infer", inputs=[given]).json()
        assert answer["parameters"]["known"] == pytest.approx(share)
        assert float(post(counting, "/predict", inputs=text).headers["x-known"]) == pytest.approx(share, abs=1e-4)


def test_tensor_clients_get_the_share_of_all_words_of_a_request(counting: Server, expected: list[float]) -> None:
    given = {"name": "text", "datatype": "BYTES", "shape": [2], "data": [LIKE_TRAINING, NOISE]}
    share = post(counting, f"/v2/models/{NAME}/infer", inputs=[given]).json()["parameters"]["known"]
    assert expected[1] < share < expected[0]
    given["shape"], given["data"] = [3], [LIKE_TRAINING] * 3
    share = post(counting, f"/v2/models/{NAME}/infer", inputs=[given]).json()["parameters"]["known"]
    assert share == pytest.approx(expected[0])


def test_description_tells_what_is_normal(counting: Server, expected: list[float]) -> None:
    normal = counting.get(f"/v1/models/{NAME}").json()["known"]
    assert expected[1] < normal["low"] < normal["median"] <= 1


def test_metrics_measure_the_share(counting: Server, expected: list[float]) -> None:
    def shares() -> tuple[float, float]:
        with httpx.Client(base_url=counting.url) as client:
            found = Scrape(client)
        count, total = (found.sum(f"longdoc_document_known_ratio_{part}", model=NAME) for part in ("count", "sum"))
        return count, total

    (count, total), _ = shares(), post(counting, "/v1/classify", inputs=TEXTS)
    after = shares()
    assert after[0] - count == len(TEXTS)
    assert after[1] - total == pytest.approx(sum(expected))


def test_local_models_and_predictions_of_files_report_the_share(
    folder: Path, expected: list[float], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert known(artifact.load(folder, device="cpu").classify(TEXTS)) == pytest.approx(expected)
    (tmp_path / "long.txt").write_text(LONG)
    assert main(["predict", str(folder), str(tmp_path / "long.txt")]) == 0
    line = json.loads(capsys.readouterr().out)
    assert line["coverage"]["known"] == pytest.approx(expected[2])
