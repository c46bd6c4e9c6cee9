"""Benchmarks of the server, over real sockets. They import neither torch nor `model`."""
