import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from model.__main__ import main
from model.cli import train
from tests.support.paths import ROOT


@pytest.mark.parametrize(
    ("program", "shown"),
    [("/x/model/__main__.py", "python -m model"), ("/x/bin/longdoc-train", "longdoc-train")],
)
def test_help_names_the_called_program(
    program: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [program, "--help"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: {shown} [-h] COMMAND")


@pytest.mark.parametrize("command", ["train", "evaluate", "export"])
def test_commands_that_read_data_have_the_shared_arguments(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert re.search(r"--data-dir .*--data .*--device", capsys.readouterr().out, re.DOTALL)


def test_unknown_command_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["tune"])
    assert caught.value.code == 2
    assert "invalid choice: 'tune'" in capsys.readouterr().err


def test_wrong_arguments_print_one_line_and_exit_with_2(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "model", "train", "nosuch", "--runs", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert re.fullmatch(r"error: no recipe 'nosuch'; expected one of .*synthetic.*\n", done.stderr)
    assert done.stdout == ""


def test_error_about_a_missing_library_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without_torch(name: str) -> None:
        raise ModuleNotFoundError(f"No module for {name}", name="torch")

    monkeypatch.setattr(importlib, "import_module", without_torch)
    assert main(["train", "synthetic"]) == 2
    assert capsys.readouterr().err == "error: torch is not installed; install the extra `train`\n"


@pytest.mark.parametrize(
    ("interruption", "message"),
    [
        (KeyboardInterrupt(), "interrupted\n"),
        (KeyboardInterrupt("resume with --resume"), "interrupted; resume with --resume\n"),
    ],
)
def test_interruption_mentions_resume_only_if_possible(
    interruption: KeyboardInterrupt, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_: object) -> None:
        raise interruption

    monkeypatch.setattr(train, "run", run)
    assert main(["train", "synthetic"]) == 130
    assert capsys.readouterr().err == message


def test_sigterm_ends_a_command_as_ctrl_c_does() -> None:
    program = """
import os, runpy, signal, sys
import model.cli.runs
model.cli.runs.run = lambda args: os.kill(os.getpid(), signal.SIGTERM) or signal.pause()
sys.argv = ["model", "runs"]
runpy.run_module("model", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
