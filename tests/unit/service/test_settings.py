import pytest

from service.settings import Settings


def test_every_setting_is_described() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name


def test_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGDOC_PORT", "1234")
    monkeypatch.setenv("LONGDOC_DRAIN_DELAY_S", "0.5")
    chosen = Settings()
    assert (chosen.port, chosen.drain_delay_s) == (1234, 0.5)
