"""Text in any encoding gets the answer of the same text in UTF-8, or is refused by name."""

import base64
import json
from typing import Any

import httpx
import pytest

TEXT, BINARY, NDJSON = "text/plain", "application/octet-stream", "application/x-ndjson"
DOCUMENT = "An awful, boring and “dull” movie, a naïve waste of 90 minutes. " * 3
WIDE = ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]


def classify(client: httpx.Client, body: bytes, kind: str = TEXT) -> httpx.Response:
    return client.post("/v1/classify?model=imdb-s3", content=body, headers={"content-type": kind})


@pytest.fixture
def expected(client: httpx.Client) -> Any:
    """The result of the document in UTF-8."""
    response = classify(client, DOCUMENT.encode())
    assert response.json()["results"][0]["label"] == "negative"
    return response.json()


@pytest.mark.parametrize("encoding", ["utf-8-sig", *WIDE])
def test_text_is_decoded(client: httpx.Client, expected: Any, encoding: str) -> None:
    for kind in (TEXT, "text/plain; charset=utf-8"):
        assert classify(client, DOCUMENT.encode(encoding), kind).json() == expected
    marked = ("\ufeff" + DOCUMENT).encode(encoding) if encoding[-2:] in ("le", "be") else DOCUMENT.encode(encoding)
    assert classify(client, marked).json() == expected


@pytest.mark.parametrize("charset", ["windows-1252", "CP1252", "utf-16", "utf-16be", '"UTF-32"', "gb18030", "utf8"])
def test_charset_is_decoded(client: httpx.Client, expected: Any, charset: str) -> None:
    body = DOCUMENT.encode(charset.strip('"'))
    assert classify(client, body, f"text/plain; charset={charset}").json() == expected


def test_charset_of_latin_1_is_decoded(client: httpx.Client) -> None:
    text = "Ein naïver, größerer Film: déjà vu."
    answers = [
        classify(client, text.encode(name), f"text/plain; charset={charset}").json()
        for name, charset in (("utf-8", "utf-8"), ("latin-1", "iso-8859-1"), ("latin-1", "latin1"))
    ]
    assert answers[0] == answers[1] == answers[2]
    assert answers[0]["results"][0]["coverage"]["bytes_total"] == len(text.encode())


@pytest.mark.parametrize(
    ("body", "charset", "words"),
    [
        (b"text", "klingon", "the charset is unknown; send text as UTF-8"),
        (b"text", "hex", "the charset is unknown"),
        (b"plain text", "utf-16", "the text is not utf_16 but ASCII"),
        (b"a\x81", "windows-1252", "the text is not cp1252 at byte 2"),
    ],
)
def test_other_charsets_are_refused(client: httpx.Client, body: bytes, charset: str, words: str) -> None:
    response = classify(client, body, f"text/plain; charset={charset}")
    assert (response.status_code, response.json()["code"]) == (415, "unsupported_media_type")
    assert words in response.json()["detail"]


def test_json_and_its_lines_are_utf_8(client: httpx.Client) -> None:
    for kind in ("application/json", NDJSON):
        response = classify(client, b"{}", f"{kind}; charset=utf-16")
        assert response.status_code == 415
        assert response.json()["detail"] == f"send {kind} as UTF-8"


@pytest.mark.parametrize("encoding", WIDE)
def test_raw_bytes_are_refused_by_name(client: httpx.Client, encoding: str) -> None:
    """The model would find no word in them."""
    body = DOCUMENT.encode(encoding)
    told = f"the document is {encoding[:6].upper()}; send it as text, or convert it to UTF-8"
    response = classify(client, body, BINARY)
    assert (response.status_code, response.json()["code"]) == (422, "invalid_input")
    assert response.json()["detail"] == f"input 0: {told}"
    line = json.dumps({"base64": base64.b64encode(body).decode()}).encode()
    (answer,) = [json.loads(text) for text in classify(client, line, NDJSON).text.splitlines()]
    assert told in answer["error"]["detail"]


def test_bytes_that_are_no_text_in_utf_16_are_read(client: httpx.Client) -> None:
    for body in (b"\0" * 50, b"\xff\xfe\x80", bytes(range(256)), DOCUMENT.encode("cp1252")):
        for kind in (TEXT, BINARY):
            assert classify(client, body, kind).json()["results"][0]["coverage"]["bytes_total"] == len(body)


def test_byte_order_mark_is_no_text(client: httpx.Client) -> None:
    expected = classify(client, b"Awful").json()
    assert expected["results"][0]["label"] == "negative"
    for body, kind in (
        (b"\xef\xbb\xbfAwful", TEXT),
        (b"\xef\xbb\xbfAwful", BINARY),
        ("\ufeffAwful".encode("utf-16-le"), TEXT),
    ):
        assert classify(client, body, kind).json() == expected
    for inputs in ("\ufeffAwful", ["\ufeffAwful"]):
        assert client.post("/v1/classify", json={"inputs": inputs, "model": "imdb-s3"}).json() == expected


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/classify", {"inputs": "Awful."}),
        ("/v1/score", {"pairs": [["A parser of trees", "Parsing"]]}),
        ("/v1/rank", {"query": "A parser of trees", "documents": ["Parsing", "Speech"]}),
        ("/v1/embeddings", {"model": "aan", "input": "A parser of trees"}),
        ("/v1/forecast", {"model": "exchange", "series": [[1.0] * 96] * 8, "horizon": 1}),
        ("/predict", {"inputs": "Awful."}),
        ("/rerank", {"query": "A parser of trees", "texts": ["Parsing"]}),
        ("/v1/models/imdb-s3:predict", {"instances": ["Awful."]}),
        (
            "/v2/models/imdb-s3/infer",
            {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1, 1], "data": ["Awful."]}]},
        ),
    ],
)
def test_byte_order_mark_before_json_is_skipped(client: httpx.Client, path: str, body: dict[str, Any]) -> None:
    """PowerShell and .NET send one."""
    content, headers = json.dumps(body).encode(), {"content-type": "application/json"}
    plain, marked = (client.post(path, content=mark + content, headers=headers) for mark in (b"", b"\xef\xbb\xbf"))
    assert plain.status_code == 200, plain.text
    assert marked.status_code == 200, marked.text
    for response in (plain, marked):
        assert "error" not in response.text
    assert without_caches(plain.json()) == without_caches(marked.json())


def without_caches(answer: Any) -> Any:
    """An answer without what depends on the requests before."""
    if isinstance(answer, dict):
        return {key: without_caches(value) for key, value in answer.items() if key not in ("cached", "id")}
    return [without_caches(part) for part in answer] if isinstance(answer, list) else answer


def test_byte_order_mark_before_lines_is_skipped(client: httpx.Client) -> None:
    lines = b'{"id": 1, "text": "Awful."}\n{"id": 2, "text": "Great."}\n'
    plain, marked = (classify(client, mark + lines, NDJSON).text for mark in (b"", b"\xef\xbb\xbf"))
    assert marked == plain
    assert [json.loads(line)["label"] for line in plain.splitlines()] == ["negative", "positive"]


def test_tensor_of_raw_bytes_in_utf_16_is_refused(client: httpx.Client) -> None:
    body = DOCUMENT.encode("utf-16")
    tensors = [
        {"name": "bytes", "datatype": "UINT8", "shape": [1, len(body)], "data": list(body)},
        {"name": "lengths", "datatype": "INT32", "shape": [1], "data": [len(body)]},
    ]
    response = client.post("/v2/models/imdb-s3/infer", json={"inputs": tensors})
    assert response.status_code == 422
    assert "the document is UTF-16" in response.text
