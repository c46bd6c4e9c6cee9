"""The service and its workers with changed constants: `python -m tests.support.patched ASSIGNMENTS [FLAGS]`.

ASSIGNMENTS is `module.NAME=VALUE`, several separated by commas. The code below runs again in each worker, because a new
process imports the main module of its parent.
"""

import sys
from importlib import import_module

from service.__main__ import main

for assignment in sys.argv[1].split(","):
    path, _, value = assignment.partition("=")
    module, _, name = path.rpartition(".")
    constants = vars(import_module(module))
    constants[name] = type(constants[name])(value)

if __name__ == "__main__":
    sys.exit(main(sys.argv[2:]))
