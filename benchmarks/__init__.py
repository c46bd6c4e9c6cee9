"""Benchmarks of the project; not part of the served package.

`serving/` measures the server, `peers/` compares it with other servers, `models/` measures the shipped models,
`papers/` repeats experiments of the papers; `lib/` is shared. Each benchmark is one command, `python -m
benchmarks.<group>.<name>`, and one object, `BENCHMARK`. It writes `results/<name>/data.json`. `report.md` and
`chart.png` are rendered from that file alone; `python -m benchmarks.lib.render` renders them again.
"""

import artifact  # noqa: F401  # it turns off the telemetry of ONNX Runtime, which some benchmarks import first
