"""Benchmarks of the project; not part of the served package.

`serving/` measures the server, `peers/` compares it with other servers, `models/` measures the shipped models,
`papers/` repeats experiments of the papers; `lib/` is shared. Each benchmark is one command, `python -m
benchmarks.<group>.<name>`, and one object, `BENCHMARK`. It writes `results/<name>/data.json`; `benchmarks.lib.render`
renders `report.md` and `chart.webp` from that file alone, and `benchmarks.lib.quote` writes their figures into the
docs.
"""

import artifact  # noqa: F401  # it turns off the telemetry of ONNX Runtime, which some benchmarks import first
