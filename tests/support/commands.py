"""`python -m model` inside the test process, which spares every test the seconds of importing PyTorch."""

import sys

import pytest

from model.__main__ import main


def call(*arguments: object) -> int:
    """Run one command; returns its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["model", *map(str, arguments)])
        return main()
