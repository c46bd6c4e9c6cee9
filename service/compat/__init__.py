"""Protocols of other servers, as thin adapters: Open Inference Protocol, KServe, TEI."""
