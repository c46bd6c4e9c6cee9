"""A Ray cluster of two nodes on one machine, for `longdoc-serve batch`; a program of its own.

`python -m tests.support.batch_cluster` writes a line with the address of the cluster. After a line on standard input
it kills all processes of the second node and writes `killed`. The end of the input stops the cluster. Runs in the
environment of `make test-ray`.
"""

import sys

from ray.cluster_utils import Cluster


def main() -> None:
    """Run the cluster until standard input ends."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    other = cluster.add_node(num_cpus=1)
    say(cluster.address)
    for _ in sys.stdin:
        cluster.remove_node(other, allow_graceful=False)
        say("killed")
    cluster.shutdown()


def say(line: str) -> None:
    """Write a line that the test waits for; Ray writes others."""
    sys.stdout.write(f"cluster: {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
