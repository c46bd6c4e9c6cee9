"""Shared code of the benchmarks: records, tables, charts, servers, load. Imports neither torch nor `model`."""
