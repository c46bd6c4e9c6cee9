import pytest
from pydantic import ValidationError

from service.settings import Settings


def test_every_setting_is_described() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name


def test_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGDOC_PORT", "1234")
    monkeypatch.setenv("LONGDOC_DRAIN_DELAY_S", "0.5")
    chosen = Settings()
    assert (chosen.port, chosen.drain_delay_s) == (1234, 0.5)


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


@pytest.mark.parametrize(
    "given", ["", ",", "null", "example.org", "https://example.org/", "https://a@example.org", "https://é.org"]
)
def test_invalid_origin_is_rejected(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("LONGDOC_CORS_ORIGINS", given)
    with pytest.raises(ValidationError, match="give origins separated by commas"):
        Settings()


@pytest.mark.parametrize("given", ["imdb-s3,aan", " imdb-s3 , aan "])
def test_models_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("LONGDOC_MODELS", given)
    assert Settings().models == ("imdb-s3", "aan")


@pytest.mark.parametrize("given", ["", "imdb-s3,", "imdb-s3/4", "../exports", "A"])
def test_invalid_names_of_models_are_rejected(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("LONGDOC_MODELS", given)
    with pytest.raises(ValidationError, match="give names of models separated by commas"):
        Settings()


def test_version_policy_may_list_only_models_that_are_served() -> None:
    assert Settings(models=("imdb-s3", "aan"), version_policy="aan:3").models == ("imdb-s3", "aan")
    with pytest.raises(ValidationError, match="it lists ili, which is not among models: imdb-s3, aan"):
        Settings(models=("imdb-s3", "aan"), version_policy="aan:3;ili:2")


@pytest.mark.parametrize("policy", ["latest", "all", "imdb-s3:2,3;aan:1"])
def test_version_policy_is_kept_as_given(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGDOC_VERSION_POLICY", policy)
    assert Settings().version_policy == policy


def test_invalid_version_policy_is_rejected() -> None:
    with pytest.raises(ValidationError, match="give latest, all, or the versions of each model"):
        Settings(version_policy="imdb-s3")


@pytest.mark.parametrize("name", ["drain_delay_s", "drain_timeout_s"])
def test_infinite_drain_times_are_rejected(name: str) -> None:
    with pytest.raises(ValidationError, match="less than or equal to 86400"):
        Settings.model_validate({name: 1e300})


def test_float16_needs_onnx_runtime() -> None:
    assert Settings().precision == "float32"
    assert Settings(precision="float16").precision == "float16"
    with pytest.raises(ValidationError, match="torchscript computes in float32 only; set backend to onnx"):
        Settings(backend="torchscript", precision="float16")


def test_model_control_needs_a_single_worker() -> None:
    assert not Settings().model_control
    assert Settings(model_control=True).model_control
    assert Settings(workers=2).workers == 2
    with pytest.raises(ValidationError, match="in one of the workers only; set workers to 1"):
        Settings(workers=2, model_control=True)
