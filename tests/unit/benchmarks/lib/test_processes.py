"""Descendants of a process, and their end."""

import signal
import subprocess
import sys
from pathlib import Path

from benchmarks.lib.processes import descendants
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
PARENT = f"""
import subprocess, sys, time
from pathlib import Path
from benchmarks.lib.processes import terminating_descendants
with terminating_descendants():
    try:
        child = subprocess.Popen([sys.executable, "-c", {CHILD!r}])
        time.sleep(600)
    finally:
        child.wait()
        Path(sys.argv[1]).write_text("cleaned up")
"""


def test_sigterm_ends_all_descendants_and_runs_finally_blocks(tmp_path: Path) -> None:
    done = tmp_path / "done"
    process = subprocess.Popen([sys.executable, "-c", PARENT, done], cwd=ROOT)
    found = wait_until(lambda: found if len(found := descendants(process.pid)) == 2 else None)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 128 + signal.SIGTERM
    assert done.read_text() == "cleaned up"
    wait_until(lambda: not any(is_running(pid) for pid in found))


def is_running(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
