"""The command that tells how many replicas a load needs, with made-up times."""

from pathlib import Path

import pytest

from benchmarks.lib import record
from benchmarks.serving import replicas
from benchmarks.serving.replicas import Load, answer
from benchmarks.serving.simulation import Costs
from tests.support.costs import COSTS
from tests.support.records import made_up


def test_a_number_of_replicas_has_the_wanted_p99() -> None:
    found = answer(Costs.from_data(COSTS), Load(1000, 4096, 40.0), 1000)
    assert found is not None
    assert 5 <= found.replicas <= 50
    assert found.p99_ms <= 40


def test_a_p99_below_the_time_of_one_document_is_not_reached() -> None:
    assert answer(Costs.from_data(COSTS), Load(1000, 4096, 4.0), 200) is None


def test_command_prints_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "sizing"
    folder.mkdir()
    written = made_up({"costs": COSTS})
    record.write(record.Record(**{**vars(written), "name": "sizing"}), tmp_path)
    arguments = ["--documents-per-s", "100", "--requests", "200", "--out", str(tmp_path)]
    replicas.main([*arguments, "--p99-ms", "500", "--bytes", "4096"])
    assert "1 replica" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        replicas.main([*arguments, "--p99-ms", "1"])
    assert "no number of replicas has a p99 of 1 ms" in capsys.readouterr().err
