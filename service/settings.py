"""Settings of the server: flags, then `LONGDOC_...` variables, then defaults. Read once, by `service.__main__`."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AnyHttpUrl, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from artifact.backends.base import Device
from artifact.manifest import Format


class Settings(BaseSettings):
    """Every field is a flag of `python -m service` and a variable; the text under it is its help."""

    model_config = SettingsConfigDict(
        env_prefix="LONGDOC_",
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        protected_namespaces=(),
        allow_inf_nan=False,
    )

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""
    exports: Path = Path("exports")
    """Folder of exports; of each name the highest version is served."""
    skip_bad_exports: bool = False
    """Serve the version before a damaged one, and the rest if there is none, instead of refusing to start."""
    backend: Format = "onnx"
    """Runtime: onnx (ONNX Runtime) or torchscript (PyTorch, to be installed beside)."""
    device: Device = "auto"
    """Where to compute; auto takes CUDA where the runtime offers it."""
    workers: int = Field(default=1, gt=0, le=64)
    """Processes that serve the port together; on a CPU they share its cores."""
    default_classifier: str | None = None
    """Classifier that answers when a request names none; by default the one of `defaults.json` in `exports`."""
    default_matcher: str | None = None
    """Matcher that scores and ranks when a request names none; by default the one of `defaults.json`."""
    default_forecaster: str | None = None
    """Forecaster that answers when neither name nor channels choose one; by default the one of `defaults.json`."""
    max_batch_rows: int | None = Field(default=None, gt=0)
    """Longest rows in one batch, of shorter ones in proportion more; by default 16 on a CPU, 64 on a GPU."""
    max_queue_rows: int = Field(default=8192, gt=0)
    """Rows that may wait for one model; beyond it requests get 429."""
    max_queue_bytes: int = Field(default=64 * 2**20, gt=0)
    """Bytes that may wait for one model; beyond it requests get 429."""
    max_body_bytes: int = Field(default=8 * 2**20, gt=0)
    """Longest request body."""
    max_held_bytes: int = Field(default=256 * 2**20, gt=0)
    """Bodies of all requests that are read or answered, and lines of uploads, together; beyond it requests get 429."""
    max_document_bytes: int = Field(default=2**20, gt=0)
    """Longest document."""
    max_documents: int = Field(default=256, gt=0, le=50_000)
    """Most documents, or pairs of documents, in one request."""
    max_rank_documents: int = Field(default=10_000, gt=0, le=100_000)
    """Most documents to rank in one request."""
    max_cache_bytes: int = Field(default=64 * 2**20, ge=0)
    """Memory for the encodings of documents a matcher has seen; 0 keeps none."""
    deadline_s: float = Field(default=30.0, gt=0)
    """Time a request may take; a client asks for less with X-Request-Timeout-Ms."""
    api_keys: Annotated[tuple[SecretStr, ...], NoDecode] = ()
    """Keys, separated by commas, one of which each request but health and metrics sends; better not as a flag."""
    drain_delay_s: float = Field(default=5.0, ge=0)
    """Time between SIGTERM, when readiness ends, and the end of listening; load balancers need it."""
    drain_timeout_s: float = Field(default=20.0, gt=0)
    """Time that requests in flight have to finish after listening ends."""
    reload_s: float = Field(default=2.0, ge=0)
    """Time between two looks at what is below `exports`; 0 never looks."""
    log_format: Literal["text", "json"] = "text"
    """Form of the log lines on standard error."""
    otlp_endpoint: AnyHttpUrl | None = None
    """Collector of traces (OTLP, HTTP), such as http://collector:4318; unset, none are made. Needs the extra otel."""

    @field_validator("api_keys", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """Take a list with commas apart.

        Raises: ValueError for one without a key, which would let everybody in, or with one that no header can carry.
        """
        if not isinstance(value, str):
            return value
        keys = [part.strip() for part in value.split(",")]
        if not all(keys):
            raise ValueError("give keys separated by commas, none of them empty; unset, no key is asked for")
        if not all(key.isascii() and key.isprintable() for key in keys):
            raise ValueError("a key may hold visible ASCII characters and spaces; a header carries no others unharmed")
        return keys
