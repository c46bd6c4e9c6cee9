"""Holds the second measurement of `benchmarks.papers.attention_speed` until a signal ends the program.

Python imports this module at its start if its folder is in PYTHONPATH. Without it, the second measurement could be over
before a test has seen the first one.
"""

import sys
import time
from types import FrameType

SECOND = 64
"""Length of the inputs of the second measurement at toy scale."""


def hold(frame: FrameType, event: str, argument: object) -> None:
    """Sleep if the function that begins is the second measurement."""
    del argument
    code = frame.f_code
    if event == "call" and code.co_name == "speed" and code.co_filename.endswith("attention_speed.py"):
        while frame.f_locals["length"] == SECOND:
            time.sleep(0.01)


sys.setprofile(hold)
