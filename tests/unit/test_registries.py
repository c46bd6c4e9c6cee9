"""Whatever lists the tasks has all of them, and nothing else."""

import re
from typing import get_args

import pytest

from artifact.local import Model
from artifact.manifest import ExportManifest
from artifact.tasks import TASKS
from artifact.tasks.base import Task
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
    assert sorted(operations) == sorted(OPERATIONS)
    assert all(callable(getattr(Model, operation)) for operation in operations)


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
