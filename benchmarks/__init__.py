"""Programs that measure the project; not part of what is served.

`serving/` measures the server, `peers/` other servers beside it, `models/` what is shipped, `papers/` what the papers
say; `lib/` is what they share. Each program is one command, `python -m benchmarks.<group>.<name>`, and one object,
`BENCHMARK`. It writes `results/<name>/data.json`; `report.md` and `chart.png` are made from that file alone, at any
time again by `python -m benchmarks.lib.render`.
"""
