"""Settings of the server: flags, environment variables `LONGDOC_...`, defaults. Read once, by `service.__main__`."""

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AnyHttpUrl, Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from artifact.backends.base import Device
from artifact.manifest import NAME, Format, Precision
from service.versions import VersionPolicy

LONGEST_DRAIN_S = 86_400.0
"""Maximum of `drain_delay_s` and of `drain_timeout_s`: SIGTERM must end the process eventually."""
ALIAS = re.compile(rf"([!-+\--<>-~]{{1,128}})=({NAME.pattern}(?:@[0-9]+)?)")
"""An alias of visible ASCII characters but comma and equals sign, and the model that it stands for."""
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[a-z0-9._:\[\]-]+")


class Settings(BaseSettings):
    """Every field is a flag of `python -m service` and an environment variable; its docstring is the help text."""

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
    """Port to listen on; 0 picks a free one."""
    grpc_port: int | None = Field(default=None, ge=0, le=65535)
    """Port of gRPC (Open Inference Protocol); 0 picks a free one, unset disables gRPC. Needs the extra grpc."""
    grpc_certificate: Path | None = None
    """PEM file of the certificate of gRPC, followed by those of its issuers; unset disables TLS."""
    grpc_private_key: Path | None = None
    """PEM file of the certificate's private key."""
    exports: Path = Path("exports")
    """Folder of exports, `<name>/<version>/`; version_policy selects the versions to serve."""
    models: Annotated[tuple[str, ...], NoDecode] = ()
    """Names of the models to serve, separated by commas; by default all in `exports`."""
    version_policy: str = "latest"
    """Versions to serve: latest (the highest of each model), all, or a list such as reviews:3,4;pairs:3."""
    skip_bad_exports: bool = False
    """Start without damaged exports; serve the version before a damaged one if there is one."""
    backend: Format = "onnx"
    """Runtime: onnx (ONNX Runtime) or torchscript (needs PyTorch, installed separately)."""
    device: Device = "auto"
    """Device for inference; auto uses CUDA if the runtime supports it."""
    precision: Precision = "float32"
    """Precision of encoder blocks; float16 is for CUDA, needs onnx, and has no effect on exports without it."""
    workers: int = Field(default=1, gt=0, le=64)
    """Number of processes that serve the port; on a CPU they share the cores."""
    model_control: bool = False
    """Allow clients to load and unload models (Open Inference Protocol); needs one worker."""
    default_classifier: str | None = None
    """Classifier for requests that name no model; by default the one in `defaults.json` in `exports`."""
    default_series_classifier: str | None = None
    """Classifier of series for requests that name no model; by default the one in `defaults.json`."""
    default_matcher: str | None = None
    """Matcher for requests that name no model; by default the one in `defaults.json`."""
    default_forecaster: str | None = None
    """Forecaster if neither the name nor the channels select one; by default the one in `defaults.json`."""
    aliases: Annotated[dict[str, str], NoDecode] = {}
    """Other names of models, such as text-embedding-3-small=aan,gpt=imdb-s3; the name of a served model comes first."""
    max_batch_rows: int | None = Field(default=None, gt=0)
    """Maximum full-length rows in a batch (more if they are shorter); by default 16 on a CPU, 64 on a GPU."""
    max_queue_rows: int = Field(default=8192, gt=0)
    """Maximum queued rows per model (uploads: half); beyond it, 429. An empty queue accepts a request of any size."""
    max_queue_bytes: int = Field(default=64 * 2**20, gt=0)
    """Maximum queued bytes per model; requests beyond it get 429."""
    max_body_bytes: int = Field(default=8 * 2**20, gt=0)
    """Maximum size of a request body, compressed and decompressed."""
    max_held_bytes: int = Field(default=256 * 2**20, gt=0)
    """Maximum bytes of all request bodies and upload lines in memory; requests of over 64 KiB beyond it get 429."""
    max_document_bytes: int = Field(default=2**20, gt=0)
    """Maximum size of a document."""
    max_documents: int = Field(default=256, gt=0, le=50_000)
    """Maximum documents, or pairs, per request."""
    max_rank_documents: int = Field(default=10_000, gt=0, le=100_000)
    """Maximum documents to rank per request."""
    max_embedding_documents: int = Field(default=2048, gt=0, le=100_000)
    """Maximum texts per request to /v1/embeddings, whose clients send up to 2,048."""
    max_cache_bytes: int = Field(default=64 * 2**20, ge=0)
    """Size of a matcher's cache of document encodings; 0 disables it."""
    deadline_s: float = Field(default=30.0, gt=0)
    """Deadline of a request; clients can set an earlier one with X-Request-Timeout-Ms."""
    api_keys: Annotated[tuple[SecretStr, ...], NoDecode] = ()
    """API keys, separated by commas. Not required for health, metrics, page and documentation. Prefer the variable."""
    cors_origins: Annotated[tuple[str, ...], NoDecode] = ()
    """Origins allowed by CORS, separated by commas, such as https://example.org; * allows all."""
    drain_delay_s: float = Field(default=5.0, ge=0, le=LONGEST_DRAIN_S)
    """Time between SIGTERM, when readiness ends, and closing the socket, so that load balancers can react."""
    drain_timeout_s: float = Field(default=20.0, gt=0, le=LONGEST_DRAIN_S)
    """Time for requests in flight to finish after the socket is closed."""
    reload_s: float = Field(default=2.0, ge=0)
    """Interval between checks of `exports` for changes; 0 disables them."""
    page: bool = True
    """Serve a web page at `/`; without it, `/` leads to `/docs`."""
    log_format: Literal["text", "json"] = "text"
    """Format of the log on standard error."""
    otlp_endpoint: AnyHttpUrl | None = None
    """OTLP/HTTP endpoint for traces, such as http://collector:4318; unset disables tracing. Needs the extra otel."""

    @model_validator(mode="after")
    def _check_grpc(self) -> Self:
        """Raises: ValueError if the settings of gRPC are incomplete."""
        if (self.grpc_certificate is None) != (self.grpc_private_key is None):
            raise ValueError("grpc_certificate and grpc_private_key: set both, or none for gRPC without TLS")
        if self.grpc_certificate is not None and self.grpc_port is None:
            raise ValueError("grpc_certificate: gRPC is disabled; set grpc_port")
        if self.grpc_port and self.grpc_port == self.port:
            raise ValueError(f"grpc_port: HTTP has port {self.port}; set another port")
        if self.grpc_port == 0 and self.workers > 1:
            raise ValueError("grpc_port: 0 would be another port for each worker; set a port, or workers to 1")
        return self

    @field_validator("models", mode="before")
    @classmethod
    def _split_models(cls, value: object) -> object:
        """Split a comma-separated list. Raises: ValueError if a name is not one that an export can have."""
        if not isinstance(value, str):
            return value
        names = [part.strip() for part in value.split(",")]
        if not all(map(NAME.fullmatch, names)):
            raise ValueError("give names of models separated by commas, such as imdb-s3,aan")
        return names

    @field_validator("aliases", mode="before")
    @classmethod
    def _split_aliases(cls, value: object) -> object:
        """Split a comma-separated list. Raises: ValueError if it has anything but `alias=model`, or an alias twice."""
        if not isinstance(value, str):
            return value
        pairs = [ALIAS.fullmatch(part.strip()) for part in value.split(",")]
        found = {pair[1]: pair[2] for pair in pairs if pair is not None}
        if len(found) < len(pairs):
            raise ValueError(
                "give different names as alias=model, separated by commas, such as gpt=imdb-s3,other=aan@6"
            )
        return found

    @field_validator("version_policy")
    @classmethod
    def _check_policy(cls, value: str, info: ValidationInfo) -> str:
        """Raises: ValueError if the policy is invalid, or lists a model that is not among `models`."""
        models = info.data.get("models")
        for name in VersionPolicy.parse(value).listed:
            if models and name not in models:
                raise ValueError(f"it lists {name}, which is not among models: {', '.join(models)}")
        return value

    @field_validator("precision")
    @classmethod
    def _check_precision(cls, value: Precision, info: ValidationInfo) -> Precision:
        """Raises: ValueError for float16 with a runtime other than ONNX Runtime."""
        if value == "float16" and (backend := info.data.get("backend", "onnx")) != "onnx":
            raise ValueError(f"{backend} computes in float32 only; set backend to onnx")
        return value

    @field_validator("model_control")
    @classmethod
    def _check_control(cls, value: bool, info: ValidationInfo) -> bool:
        """Raises: ValueError if there are several workers, because a request reaches only one of them."""
        if value and info.data.get("workers", 1) > 1:
            raise ValueError("a request would load or unload a model in one of the workers only; set workers to 1")
        return value

    @field_validator("api_keys", mode="before")
    @classmethod
    def _split_keys(cls, value: object) -> object:
        """Split a comma-separated list.

        Raises: ValueError if a key is empty, or has characters that a header cannot carry.
        """
        if not isinstance(value, str):
            return value
        keys = [part.strip() for part in value.split(",")]
        if not all(keys):
            raise ValueError("give keys separated by commas, none of them empty; to require no key, leave it unset")
        if not all(key.isascii() and key.isprintable() for key in keys):
            raise ValueError("a key may hold visible ASCII characters and spaces only, because it is sent in a header")
        return keys

    @field_validator("cors_origins", mode="before")
    @classmethod
    def _split_origins(cls, value: object) -> object:
        """Split a comma-separated list. Raises: ValueError if an origin is not one that a browser could send."""
        if not isinstance(value, str):
            return value
        origins = [part.strip().lower() for part in value.split(",")]
        if not all(origin == "*" or ORIGIN.fullmatch(origin) for origin in origins):
            raise ValueError(
                "give origins separated by commas, such as https://example.org or http://localhost:3000; or *"
            )
        return origins
