"""Set-up of the other servers."""

import json

import pytest

from benchmarks.peers.catalogue import PEERS
from benchmarks.peers.measure import samples
from benchmarks.peers.processes import HERE


@pytest.mark.parametrize("name", PEERS)
def test_every_peer_is_pinned_and_gets_json_requests(name: str) -> None:
    peer = PEERS[name]
    assert peer.version != "not pinned"
    for document in samples("x" * 64):
        assert json.dumps(document)[1:-1].encode() in peer.body(document)
    if peer.venv:
        text = (HERE / f"requirements-{peer.venv}.txt").read_text()
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        assert all("==" in line for line in lines)
        assert any(line.startswith("onnxruntime==") for line in lines)
