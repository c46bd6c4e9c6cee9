"""Base class and field types of recipe sections: frozen, strict, no unknown keys, errors with the full key."""

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from model.errors import UserError


class Section(BaseModel):
    """A section of a recipe.

    Validators of one key raise ValueError("must be ..."), validators of the section ValueError("KEY must be ...").
    `explain` prepends the path to either.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, table: object) -> object:
        """Report an unknown key first: a misspelt key would otherwise be reported as missing."""
        for key in table if isinstance(table, Mapping) else ():
            if key not in cls.model_fields:
                known = ", ".join(cls.model_fields) or "none"
                raise PydanticCustomError("unknown_key", "{key}; known: {known}", {"key": key, "known": known})
        return table

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_large_integers(cls, value: object) -> object:
        if type(value) is int and not -(2**63) <= value < 2**63:
            raise ValueError(f"must fit 64 bits, not be {value}")
        return value


def allowed(is_allowed: Callable[[Any], bool], text: str) -> AfterValidator:
    """Validator of one value; its error gives the allowed and the given value."""

    def check(value: Any) -> Any:
        if not is_allowed(value):
            raise ValueError(f"must be {text}, not {value}")
        return value

    return AfterValidator(check)


S = TypeVar("S", bound=Section)

Count = Annotated[int, allowed(lambda value: value >= 1, "at least 1")]
CountOrZero = Annotated[int, allowed(lambda value: value >= 0, "at least 0")]
Positive = Annotated[float, allowed(lambda value: 0.0 < value < math.inf, "positive and finite")]
NotNegative = Annotated[float, allowed(lambda value: 0.0 <= value < math.inf, "finite and at least 0")]
Share = Annotated[float, allowed(lambda value: 0.0 <= value <= 1.0, "in [0, 1]")]
Fraction = Annotated[float, allowed(lambda value: 0.0 < value < 1.0, "in (0, 1)")]
Dropout = Annotated[float, allowed(lambda value: 0.0 <= value < 1.0, "in [0, 1)")]
TableSize = Annotated[
    int, allowed(lambda size: 2 <= size <= 2**24 and not size & (size - 1), "a power of two in 2..2^24")
]

TYPES = {"int_type": "an integer", "float_type": "a number", "bool_type": "true or false", "string_type": "a string"}
SECTION = ("model_type", "dict_type", "model_attributes_type")


def validated(kind: type[S], name: str, values: Mapping[str, object]) -> S:
    """One section of a recipe. Raises: UserError naming the key."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise UserError(explain(error, name)) from None


def explain(error: ValidationError, section: str = "") -> str:
    """First validation error as one line: full key, allowed value, given value. `section` is prepended to the key."""
    found = error.errors(include_url=False)[0]
    kind, value, context = found["type"], found["input"], found.get("ctx", {})
    path = ".".join(map(str, ([section] if section else []) + list(found["loc"])))
    section = f"{path}." if path else ""
    if kind == "unknown_key":
        return f"unknown key {section}{found['msg']}"
    if kind == "missing":
        return f"missing key {path}"
    if kind in SECTION:
        return f"{path} must be a section, not {value!r}"
    if kind in TYPES:
        return f"{path} must be {TYPES[kind]}, not {value!r}"
    if kind == "literal_error":
        return f"{path} must be {context['expected']}, not {value!r}"
    if kind == "value_error":
        message = str(context["error"])
        return f"{path} {message}" if message.startswith("must ") else section + message
    return f"{path}: {found['msg']}, not {value!r}"
