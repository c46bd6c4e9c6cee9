"""A Ray cluster of several nodes on one machine, which serves the exports; a program of its own.

`python -m tests.support.ray_nodes EXPORTS PORT...` starts a node with one replica for each port, and writes a line
when all of them answer. Each line on standard input is a command, confirmed by a line: `kill INDEX` ends a node and all
its processes, `add INDEX` starts it again. The end of the input stops the cluster. Started by
`tests.support.ray_cluster`, in the environment of `make test-ray`.
"""

import contextlib
import sys
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.cluster_utils import Cluster
from ray.serve.config import HTTPOptions, ProxyLocation

from service.scale.ray import NAME, RaySettings, create_application
from tests.support.ray_cluster import wait_until_ready


def main(exports: str, ports: list[int]) -> None:
    """Serve until standard input ends."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    others = {port: add_node(cluster, port) for port in ports[1:]}
    ray.init(address=cluster.address, logging_level="error", log_to_driver=False)
    options = HTTPOptions(host="127.0.0.1", port=ports[0], request_timeout_s=None)
    with contextlib.suppress(TimeoutError):  # Ray waits 60 s for the first proxy, which a busy machine can exceed
        serve.start(proxy_location=ProxyLocation.EveryNode, http_options=options)
    settings = RaySettings(exports=Path(exports), device="cpu", min_replicas=len(ports), max_replicas=len(ports))
    serve.run(create_application(settings), name=NAME, route_prefix="/")
    for port in ports:
        wait_until_ready(f"http://127.0.0.1:{port}")
    say("ready")
    for line in sys.stdin:
        command, port = line.split()[0], ports[int(line.split()[1])]
        if command == "kill":
            cluster.remove_node(others.pop(port), allow_graceful=False)
        else:
            others[port] = add_node(cluster, port)
            wait_until_ready(f"http://127.0.0.1:{port}")
        say(command)
    serve.shutdown()
    ray.shutdown()
    cluster.shutdown()


def add_node(cluster: Cluster, port: int) -> Any:
    """Add a node, whose proxy will use the port; returns the node."""
    return cluster.add_node(num_cpus=1, env_vars={"RAY_SERVE_WORKER_PROXY_HTTP_PORT": str(port)})


def say(line: str) -> None:
    """Write a line that `RayCluster` waits for; Ray writes others."""
    sys.stdout.write(f"cluster: {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], [int(port) for port in sys.argv[2:]])
