"""Op definitions as TensorFlow's protocol buffers show them, without TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


@dataclass
class Arg:
    name: str
    type: int = 0
    type_attr: str = ""
    number_attr: str = ""
    type_list_attr: str = ""
    is_ref: bool = False


@dataclass
class Attr:
    name: str
    type: str
    lawful: tuple[Any, ...] = ()
    default: Any = None
    minimum: int = 0
    has_minimum: bool = False

    @property
    def allowed_values(self) -> SimpleNamespace:
        return SimpleNamespace(list=SimpleNamespace(type=self.lawful, s=self.lawful))

    @property
    def default_value(self) -> SimpleNamespace:
        return SimpleNamespace(i=self.default, b=self.default, f=self.default, s=self.default)

    def HasField(self, name: str) -> bool:  # noqa: N802  (the name that protocol buffers give it)
        assert name == "default_value"
        return self.default is not None


@dataclass
class Op:
    name: str
    input_arg: list[Arg] = field(default_factory=list)
    attr: list[Attr] = field(default_factory=list)
    is_stateful: bool = False
