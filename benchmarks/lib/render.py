"""`python -m benchmarks.lib.render [NAME...]`: render reports and charts from the records, without measuring."""

import argparse
import importlib
import importlib.util
from pathlib import Path

from benchmarks.lib import record
from benchmarks.lib.benchmark import Benchmark


def benchmark_of(program: str) -> Benchmark:
    """Import a module's `BENCHMARK`. Raises: ImportError if the program is in earlier revisions only."""
    spec = importlib.util.find_spec(program)
    is_package = spec is not None and spec.submodule_search_locations is not None
    found = importlib.import_module(f"{program}.__main__" if is_package else program).BENCHMARK
    assert isinstance(found, Benchmark)
    return found


def is_kept(program: str) -> bool:
    """Whether the program of a record is in this revision. Studies that are not run again have left it."""
    return importlib.util.find_spec(program) is not None


def main() -> None:
    """Render all records, or the named ones."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lib.render", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="names of records (default: all)")
    parser.add_argument("--out", type=Path, default=record.RESULTS, help="folder of the results (default: %(default)s)")
    args = parser.parse_args()
    known = record.names(args.out)
    if unknown := set(args.names) - set(known):
        parser.error(f"no record of {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    for name in args.names or known:
        measured = record.read(name, args.out)
        if is_kept(measured.program):
            benchmark_of(measured.program).render(measured, args.out / name)
            print(args.out / name)
        else:
            print(f"{args.out / name}: its program is in revision {measured.revision}")


if __name__ == "__main__":
    main()
