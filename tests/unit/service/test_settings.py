import pytest
from pydantic import ValidationError

from service.settings import Settings


@pytest.mark.parametrize(
    ("given", "origins"),
    [
        ("*", ("*",)),
        (" https://Example.org , http://localhost:3000", ("https://example.org", "http://localhost:3000")),
        ("http://[::1]:8080,chrome-extension://abc", ("http://[::1]:8080", "chrome-extension://abc")),
    ],
)
def test_origins_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch, given: str, origins: tuple[str, ...]) -> None:
    monkeypatch.setenv("LONGDOC_CORS_ORIGINS", given)
    assert Settings().cors_origins == origins


@pytest.mark.parametrize("given", ["imdb-s3,aan", " imdb-s3 , aan "])
def test_models_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("LONGDOC_MODELS", given)
    assert Settings().models == ("imdb-s3", "aan")


@pytest.mark.parametrize("given", ["gpt=imdb-s3,BAAI/bge:v1=aan@6", " gpt=imdb-s3 , BAAI/bge:v1=aan@6 "])
def test_aliases_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("LONGDOC_ALIASES", given)
    assert Settings().aliases == {"gpt": "imdb-s3", "BAAI/bge:v1": "aan@6"}


ALIASES = (
    "",
    "gpt",
    "gpt=",
    "=aan",
    "gpt=aan,",
    "a=b=c",
    "a b=aan",
    "gpt=A",
    "gpt=aan@x",
    "a=aan,a=ili",
    129 * "a" + "=aan",
)
ORIGINS = ("", ",", "null", "example.org", "https://example.org/", "https://a@example.org", "https://é.org")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        *(({"cors_origins": origins}, "cors_origins") for origins in ORIGINS),
        *(({"aliases": aliases}, "give different names as alias=model") for aliases in ALIASES),
        *(({"models": names}, "models") for names in ("", "imdb-s3,", "imdb-s3/4", "../exports", "A")),
        *(({name: 1e300}, "86400") for name in ("drain_delay_s", "drain_timeout_s")),
        ({"version_policy": "imdb-s3"}, "latest, all, or"),
        ({"models": "imdb-s3,aan", "version_policy": "aan:3;ili:2"}, "ili, which is not among models: imdb-s3, aan"),
        ({"backend": "torchscript", "precision": "float16"}, "set backend to onnx"),
        ({"workers": 2, "model_control": True}, "set workers to 1"),
        ({"port": 9000, "grpc_port": 9000}, "grpc_port: HTTP has port 9000; set another port"),
        ({"workers": 2, "grpc_port": 0}, "grpc_port: 0 would be another port for each worker"),
        ({"grpc_port": 1, "grpc_certificate": "a.pem"}, "grpc_certificate and grpc_private_key: set both"),
        ({"grpc_certificate": "a.pem", "grpc_private_key": "b.pem"}, "gRPC is disabled; set grpc_port"),
    ],
)
def test_value_that_is_not_allowed_is_named(given: dict[str, object], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        Settings.model_validate(given)


def test_values_are_allowed_together() -> None:
    assert Settings(models=("imdb-s3", "aan"), version_policy="aan:3").version_policy == "aan:3"
    assert Settings(precision="float16").precision == "float16"
    assert Settings(model_control=True).workers == 1
