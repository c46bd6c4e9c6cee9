"""`python -m benchmarks.serving.balancer`: requests lost behind HAProxy when replicas restart, or are killed.

Two replicas behind HAProxy with the configuration of the Compose profile `scaled`. The replicas are restarted in turns
(SIGTERM), then killed in turns (SIGKILL), under load. A client repeats a failed request once. Needs `haproxy`.
"""

import argparse
import asyncio
import contextlib
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator

import httpx
from tqdm import tqdm

from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, Record
from benchmarks.lib.servers import PACKAGES, ROOT, TEXT, document, free_port
from benchmarks.lib.table import table
from benchmarks.serving.restarts import Replica, poll_readiness

CONFIGURATION = ROOT / "docker/haproxy.cfg"
BETWEEN_S = 2.0
"""Time under load before each restart, in which HAProxy's health checks also see the replica that has started."""


def configuration(port: int, servers: list[str]) -> str:
    """The shipped configuration, with a port and addresses of this machine in place of those of Compose.

    Raises: ValueError if the shipped configuration has no such lines.
    """
    lines = CONFIGURATION.read_text().partition("\nresolvers")[0].replace(" resolvers docker init-addr none", "")
    lines, bound = re.subn(r"bind :8080", f"bind 127.0.0.1:{port}", lines)
    lines, named = re.subn(r"\n    server service .*", "", lines)
    lines, numbered = re.subn(r"\n    server-template .*", "", lines)
    if (bound, named, numbered) != (1, 1, 1):
        raise ValueError(f"{CONFIGURATION}: expected one bind, one server and one server-template")
    return lines.rstrip() + "".join(f"\n    server r{i} {address}" for i, address in enumerate(servers)) + "\n"


@contextlib.contextmanager
def haproxy(program: str, servers: list[str]) -> Iterator[str]:
    """Run HAProxy in front of the servers; yields its URL. Raises: RuntimeError if HAProxy has ended."""
    port = free_port()
    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as file:
        file.write(configuration(port, servers))
        file.flush()
        quiet = subprocess.DEVNULL
        process = subprocess.Popen([program, "-db", "-f", file.name], stdout=quiet, stderr=quiet)
        try:
            yield f"http://127.0.0.1:{port}"
            if process.poll() is not None:
                raise RuntimeError(f"{program} ended with exit code {process.returncode}")
        finally:
            process.terminate()
            process.wait()


async def ask(url: str, ended: Counter[str]) -> None:
    """Send requests repeatedly, and a failed one once more; counts first failures by kind, and lost requests."""
    async with httpx.AsyncClient(timeout=30, trust_env=False) as client:
        while True:
            outcomes = [await outcome(client, url)]
            if outcomes[0] != "200":
                outcomes.append(await outcome(client, url))
            ended["sent"] += 1
            ended[f"failed: {outcomes[0]}"] += outcomes[0] != "200"
            ended["lost"] += outcomes[-1] != "200"
            await asyncio.sleep(0.02)


async def outcome(client: httpx.AsyncClient, url: str) -> str:
    """Status of a response, or name of the failure."""
    try:
        response = await client.post(f"{url}/v1/classify", content=document(4096), headers={"content-type": TEXT})
    except httpx.HTTPError as error:
        return type(error).__name__
    return str(response.status_code)


async def disturb(program: str, times: int, clients: int, *, kill: bool) -> Counter[str]:
    """Restart or kill the replicas in turns under load; returns what became of the requests."""
    replicas, ended = [Replica([]), Replica([])], Counter[str]()
    polling = asyncio.create_task(poll_readiness(replicas))
    try:
        for replica in replicas:
            await replica.start()
        with haproxy(program, [replica.url.removeprefix("http://") for replica in replicas]) as url:
            await asyncio.sleep(BETWEEN_S)
            asking = [asyncio.create_task(ask(url, ended)) for _ in range(clients)]
            for turn in tqdm(range(times), desc="kills" if kill else "restarts"):
                replica = replicas[turn % 2]
                await asyncio.sleep(BETWEEN_S)
                await (replica.kill() if kill else replica.stop())
                await replica.start()
            await asyncio.sleep(BETWEEN_S)
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        return ended
    finally:
        polling.cancel()
        for replica in replicas:
            await replica.kill()


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("--times", type=int, default=20, help="restarts, and kills (default: %(default)s)")
    parser.add_argument("--clients", type=int, default=8, help="concurrent clients (default: %(default)s)")
    parser.add_argument("--haproxy", default="haproxy", help="program (default: %(default)s)")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Outcomes of requests with restarts and with kills."""
    version = subprocess.run([args.haproxy, "-v"], capture_output=True, text=True, check=True).stdout.split()[2]
    cases: dict[str, dict[str, int]] = {}
    for name, kill in (("restarts", False), ("kills", True)):
        cases[name] = dict(asyncio.run(disturb(args.haproxy, args.times, args.clients, kill=kill)))
        yield {"haproxy": version, "cases": cases}


def report(record: Record) -> str:
    """Report with one row per case."""
    settings, rows = record.settings, []
    for name, counts in record.data["cases"].items():
        failed = {key.removeprefix("failed: "): n for key, n in counts.items() if key.startswith("failed: ") and n}
        kinds = ", ".join(f"{n} x {kind}" for kind, n in failed.items())
        rows.append([name, f"{counts['sent']:,}", str(sum(failed.values())), kinds or "none", str(counts["lost"])])
    return (
        f"HAProxy {record.data['haproxy']} with `docker/haproxy.cfg` in front of two replicas, {settings['clients']} "
        f"clients that keep their connections, {settings['times']} restarts (SIGTERM) and {settings['times']} kills "
        "(SIGKILL), of each replica in turn. Repeated: requests that failed and that the client sent once more. Lost: "
        f"requests that failed again.\n\n{table(['', 'sent', 'repeated', 'failures', 'lost'], rows)}"
    )


BENCHMARK = Benchmark(
    program="benchmarks.serving.balancer",
    title="Restarts and kills behind a load balancer",
    description=__doc__,
    options=options,
    measure=measure,
    report=report,
    packages=(*PACKAGES, "httpx"),
)

if __name__ == "__main__":
    BENCHMARK.main()
