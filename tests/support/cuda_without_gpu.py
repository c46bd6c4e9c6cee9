"""ONNX Runtime's CUDA provider on a machine without a GPU: it can place the nodes of a graph, but not compute them.

The provider is linked with libraries of CUDA. Here they are replaced by libraries whose functions report success and do
nothing; those that return memory or properties of a device return some.
"""

import json
import re
import subprocess
import sys
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path

PROVIDER = "libonnxruntime_providers_cuda.so"
MEMORY = ("cudaMalloc", "cudaMallocHost", "cudaHostAlloc", "cudaMallocAsync", "cudaMallocFromPoolAsync")
HANDLES = ("cudaStreamCreate", "cudaStreamCreateWithFlags", "cudaEventCreate", "cudaEventCreateWithFlags")
TEXTS = ("cudaGetErrorName", "cudaGetErrorString", "cublasGetStatusString", "cublasGetStatusName")
MAJOR, MINOR = 75, 76
"""cudaDevAttrComputeCapabilityMajor and Minor."""
SPECIAL = {
    "cudaGetDeviceCount": "int cudaGetDeviceCount(int *n) { *n = 1; return 0; }",
    "cudaGetDevice": "int cudaGetDevice(int *n) { *n = 0; return 0; }",
    "cudaMemGetInfo": "int cudaMemGetInfo(size_t *a, size_t *b) { *a = *b = (size_t)1 << 36; return 0; }",
    "cudaMemcpy": "int cudaMemcpy(void *to, const void *from, size_t n) { memcpy(to, from, n); return 0; }",
    "cudaMemcpyAsync": "int cudaMemcpyAsync(void *to, const void *from, size_t n) { memcpy(to, from, n); return 0; }",
    "cudaDriverGetVersion": "int cudaDriverGetVersion(int *v) { *v = 13000; return 0; }",
    "cudaRuntimeGetVersion": "int cudaRuntimeGetVersion(int *v) { *v = 13000; return 0; }",
    "cudaDeviceGetAttribute": "int cudaDeviceGetAttribute(int *v, int what) "
    f"{{ *v = what == {MAJOR} ? 9 : what == {MINOR} ? 0 : 1024; return 0; }}",
    "cudaGetDeviceProperties": "int cudaGetDeviceProperties(char *p) { memset(p, 0, 1008); return 0; }",
    "__cudaRegisterFatBinary": "void *__cudaRegisterFatBinary(void) { static char image[4096]; return image; }",
}
PROBE = """
import json, sys
import onnxruntime

found = {}
for path in sys.argv[2:]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    cuda = ("CUDAExecutionProvider", {"enable_cuda_graph": sys.argv[1]})
    try:
        session = onnxruntime.InferenceSession(path, options, providers=[cuda, "CPUExecutionProvider"])
    except Exception as error:
        found[path] = [str(error)]
        continue
    assert "CUDAExecutionProvider" in session.get_providers(), "the CUDA provider did not load"
    parts = [part for part in session.get_provider_graph_assignment_info() if part.ep_name == "CPUExecutionProvider"]
    found[path] = [node.op_type for part in parts for node in part.get_nodes()]
print(json.dumps(found))
"""


class CudaWithoutGpu:
    """An environment with `onnxruntime-gpu`, and the libraries that stand in for CUDA."""

    def __init__(self, folder: Path) -> None:
        """Install the package (255 MB) and compile the libraries in `folder`; needs gcc, nm and readelf."""
        self._python, self._libraries = folder / "env" / "bin" / "python", folder / "lib"
        run(sys.executable, "-m", "venv", folder / "env")
        run(self._python, "-m", "pip", "install", "--quiet", f"onnxruntime-gpu=={version('onnxruntime')}")
        self._libraries.mkdir()
        (provider,) = (folder / "env").glob(f"lib/*/site-packages/onnxruntime/capi/{PROVIDER}")
        for name, symbols in linked(provider).items():
            compile_library(self._libraries, name, symbols)

    def left_to_cpu(self, paths: list[Path], *, is_recorded: bool = False) -> dict[str, list[str]]:
        """Operators that the provider leaves to the CPU, or the error of creating a session, for each file."""
        command: list[str | Path] = [self._python, "-c", PROBE, str(int(is_recorded)), *paths]
        environment = {"LD_LIBRARY_PATH": str(self._libraries), "ORT_DISABLE_TELEMETRY": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
        return found


def linked(provider: Path) -> dict[str, set[str]]:
    """Libraries of CUDA that the provider needs, and the functions that it takes from each."""
    needed = re.findall(r"\[(libcu\S+)\]", run("readelf", "-d", provider))
    symbols = [line.split()[-1] for line in run("nm", "-D", "--undefined-only", provider).splitlines()]
    found: dict[str, set[str]] = defaultdict(set, {name: set() for name in needed})
    for symbol in symbols:
        function, _, library = symbol.partition("@")
        if library in found:
            found[library].add(function)
        elif re.fullmatch(r"cu[A-Z]\w+", function):  # of the driver, whose library has no versions
            found[next(name for name in needed if name.startswith("libcuda.so"))].add(function)
    return found


def compile_library(folder: Path, name: str, functions: set[str]) -> None:
    """Write a library that defines these functions."""
    source, script = folder / "source.c", folder / "versions"
    lines = ["#include <stdlib.h>", "#include <string.h>", *map(define, functions)]
    source.write_text("\n".join(lines))
    script.write_text(f"{name} {{ global: *; }};")
    versions = [] if name.startswith("libcuda.so") else [f"-Wl,--version-script={script}"]
    run("gcc", "-w", "-shared", "-fPIC", f"-Wl,-soname,{name}", *versions, "-o", folder / name, source)


def define(function: str) -> str:
    """Definition of a function in C."""
    if function in SPECIAL:
        return SPECIAL[function]
    if function in TEXTS:
        return f'const char *{function}(int code) {{ return "none"; }}'
    if function in MEMORY:
        return f"int {function}(void **p, size_t n) {{ *p = aligned_alloc(256, (n + 511) / 256 * 256); return 0; }}"
    if function in HANDLES or re.match(r"cublas(Lt)?Create", function):
        return f"int {function}(void **handle) {{ *handle = malloc(4096); return 0; }}"
    return f"int {function}() {{ return 0; }}"


def run(*command: str | Path) -> str:
    """Output of a command. Raises: CalledProcessError."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
