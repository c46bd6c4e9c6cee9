"""Exports of runs: graphs of every backend, checks that they agree, manifests."""
