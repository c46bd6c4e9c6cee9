"""Whatever lists the tasks has all of them, and `docs/develop/extend.md` names the files that an addition touches."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from fastapi.routing import APIRoute

from artifact.local import Model
from artifact.manifest import ExportManifest
from artifact.tasks import TASKS
from artifact.tasks.base import Task
from service.app import ROUTERS
from service.compat import kserve_v1
from service.offline.compute import OPERATIONS
from service.settings import Settings
from tests.support.paths import ROOT

EVERY_TASK = pytest.mark.parametrize("task", TASKS.values(), ids=list(TASKS))


@EVERY_TASK
def test_task_has_a_setting_for_its_default_model(task: type[Task]) -> None:
    assert f"default_{task.kind}" in Settings.model_fields


def test_settings_name_default_models_of_tasks_only() -> None:
    named = {name.removeprefix("default_") for name in Settings.model_fields if name.startswith("default_")}
    assert named == {task.kind for task in TASKS.values()}


def test_predict_and_batch_have_the_operations_of_all_tasks() -> None:
    operations = [operation for task in TASKS.values() for operation in task.operations]
    assert set(operations) == set(OPERATIONS)
    assert all(callable(getattr(Model, operation)) for operation in operations)


@EVERY_TASK
def test_operations_have_routes(task: type[Task]) -> None:
    """Rejection, before a body is read, knows the tasks of paths by these names."""
    routes = {route.path for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)}
    assert {f"/v1/{operation}" for operation in task.operations} <= routes


@EVERY_TASK
def test_public_fields_are_fields_of_the_manifest_of_the_task(task: type[Task]) -> None:
    assert get_args(task.manifest_type.model_fields["task"].annotation) == (task.name,)
    assert task.public <= task.manifest_type.model_fields.keys() - ExportManifest.model_fields.keys()


def test_kserve_v1_answers_for_all_tasks() -> None:
    assert kserve_v1.PREDICT.keys() == TASKS.keys()


@EVERY_TASK
def test_page_has_a_title_for_the_task(task: type[Task]) -> None:
    titles = (ROOT / "page" / "src" / "models.ts").read_text()
    assert re.search(rf"^ *'?{task.name}'?: '\w", titles, re.MULTILINE)


SOURCES = [path for package in ("artifact", "service", "model") for path in sorted((ROOT / package).rglob("*.py"))]


def listed(heading: str, name: str) -> set[str]:
    """Return the files that a section of `extend.md` lists, for an addition of this name."""
    page = (ROOT / "docs" / "develop" / "extend.md").read_text()
    (section,) = re.findall(rf"^## {heading}\n(.*?)^Proof", page, re.MULTILINE | re.DOTALL)
    steps = re.findall(r"^\d\. (?:.+\n(?:   .+\n)*)", section, re.MULTILINE)
    return {path.replace("NAME", name) for step in steps for path in re.findall(r"`([\w./-]+/[\w./-]+)`", step)}


def naming(name: str) -> Iterator[str]:
    """Yield the source files that hold this name as a string, or import it."""
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
        texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        if name in names | texts:
            yield str(path.relative_to(ROOT))


@pytest.mark.parametrize("name", ["dba", "kernelized", "linformer", "nystrom", "performer", "skyformer"])
def test_attention_is_three_files(name: str) -> None:
    """Former names of recipes are in `recipes.py`, and the layer's own module does not repeat its name.

    The joint view of matchers has an option with the cross-attention of DBA.
    """
    files = listed("An attention", name)
    assert len(files) == 3 + len({"model/nn/attention/base.py"})
    assert all((ROOT / path).is_file() for path in files)
    others = {"model/config/recipes.py"} | ({"model/config/models.py", "model/nn/joint.py"} if name == "dba" else set())
    assert set(naming(name)) - others <= files


@EVERY_TASK
def test_task_is_at_most_twelve_modules(task: type[Task]) -> None:
    module = Path(*task.__module__.split(".")).stem
    routes = {"classification": "classify", "series_classification": "classify", "forecasting": "forecast"}
    files = {
        path.replace(f"routes/{module}", f"routes/{routes.get(module, module)}") for path in listed("A task", module)
    }
    files.remove("artifact/tasks/base.py")
    assert len([path for path in files if path.endswith(".py")]) <= 12
    assert all((ROOT / path).is_file() for path in files)
    shared = {"artifact/tasks/forecaster.py"}  # by the two kinds of forecasters
    assert set(naming(task.name)) - shared <= files
