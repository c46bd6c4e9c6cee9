"""`requirements/` pins by hash what the service installs, for both runtimes, and agrees with `pyproject.toml`.

`make run` installs it.
"""

import os
import re
import subprocess
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RUNTIMES = {"cpu": {"onnxruntime"}, "gpu": {"onnxruntime-gpu"}}
LINE = re.compile(r"(?P<requirement>[a-z0-9-]+==[^\\]+?)(?P<hashes>(?: --hash=sha256:[0-9a-f]{64})+)")


def locked(extra: str) -> dict[str, Requirement]:
    """Return the requirements of a lock by name; fail on other lines, such as an address or a line without a hash."""
    found = {}
    text = (ROOT / "requirements" / f"{extra}.txt").read_text()
    for line in re.sub(r" \\\n +", " ", text).splitlines():
        if line.lstrip().startswith("#"):
            continue
        match = LINE.fullmatch(line)
        assert match, line
        requirement = Requirement(match["requirement"])
        assert requirement.name not in found
        found[requirement.name] = requirement
    return found


def version(requirement: Requirement) -> str:
    (pin,) = requirement.specifier
    assert pin.operator == "=="
    return pin.version


@pytest.mark.parametrize("extra", RUNTIMES)
def test_lock_agrees_with_the_dependencies_of_the_project(extra: str) -> None:
    found = locked(extra)
    for text in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]):
        wanted = Requirement(text)
        name = canonicalize_name(wanted.name)
        assert name in found, f"{name} is not locked: make lock"
        assert wanted.specifier.contains(version(found[name])), f"{found[name]} is not {wanted}: make lock"
        assert found[name].marker is None, f"{found[name]} is not for every platform"


@pytest.mark.parametrize("extra", RUNTIMES)
def test_lock_has_one_runtime_and_no_training_packages(extra: str) -> None:
    training = {canonicalize_name(Requirement(text).name) for text in PROJECT["optional-dependencies"]["train"]}
    assert "torch" in training
    found = locked(extra).keys()
    assert not found & training
    assert found & set.union(*RUNTIMES.values()) == RUNTIMES[extra]


def test_locks_differ_only_in_the_packages_of_the_runtime() -> None:
    """Otherwise results of tests on a CPU would not apply to the GPU."""
    cpu, gpu = locked("cpu"), locked("gpu")
    assert {name: version(cpu[name]) for name in cpu.keys() & gpu.keys()} == {
        name: version(gpu[name]) for name in cpu.keys() & gpu.keys()
    }
    assert cpu.keys() - gpu.keys() == RUNTIMES["cpu"]


@pytest.mark.parametrize("extra", RUNTIMES)
def test_lock_contains_no_host_and_no_path(extra: str) -> None:
    assert "/" not in (ROOT / "requirements" / f"{extra}.txt").read_text()


def make_run(*variables: str) -> list[str]:
    """The commands of `make run` before anything is installed."""
    command = ["make", "--no-print-directory", "--dry-run", "--always-make", "run", *variables]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # of `make test`
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def test_make_run_installs_only_the_lock() -> None:
    said, *commands = make_run()
    assert said.startswith("echo 'Installing the service"), "pip is quiet: without a message it would seem to hang"
    (install,) = [line for line in commands if "pip" in line]
    assert "--require-hashes --only-binary :all: --requirement requirements/cpu.txt" in install


def test_make_run_passes_the_port() -> None:
    assert make_run("PORT=8005")[-1].endswith(" -m service --port 8005")
    assert "--port" not in make_run("PORT=")[-1], "LONGDOC_PORT or the default applies"
    assert make_run()[-1].startswith("LONGDOC_DEVICE=${LONGDOC_DEVICE:-cpu} exec ")
