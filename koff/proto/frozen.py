"""Frozen slotted dataclasses that generated code can fill in without calling `__init__`.

A frozen dataclass pays one `object.__setattr__` a field when it is made, which is most of the time
it takes to decode a record. `@frozen` puts the slots of a class into a mutable base of its own: a
reader makes an instance of that base (`building(cls)`), stores into its slots, and then assigns
`__class__`, which CPython allows because both have the same layout. What comes out is the frozen
dataclass itself; nobody else ever sees it thawed.
"""

import dataclasses
import inspect
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")

_BUILDING = "__building__"
_NOT_COPIED = frozenset(
    {"__dict__", "__weakref__", "__slots__", "__annotate__", "__annotate_func__", "__annotations_cache__"}
)


@dataclass_transform(kw_only_default=False, frozen_default=True, field_specifiers=(dataclasses.field,))
def frozen(cls: type[T]) -> type[T]:
    """`cls` as a frozen slotted dataclass whose slots live in `building(cls)`."""
    return freeze(cls, kw_only=False)


def building(cls: type[Any]) -> type[Any]:
    """The mutable class to make, fill slot by slot, and turn into `cls` by assigning `__class__`."""
    made: type[Any] = getattr(cls, _BUILDING)
    return made


def freeze(cls: type[T], *, kw_only: bool) -> type[T]:
    """`frozen` for decorators that prepare the class first. Bases must have no slots of their own."""
    annotated = _annotations(cls)
    slots = type(
        f"_{cls.__name__}", cls.__bases__, {"__slots__": tuple(annotated), "__module__": cls.__module__}
    )
    namespace = {name: value for name, value in vars(cls).items() if name not in _NOT_COPIED}
    namespace |= {
        "__annotations__": annotated,
        "__slots__": (),
        "__getstate__": _state,
        "__setstate__": _restore,
    }
    namespace[_BUILDING] = slots
    for name in annotated:
        default = _inherited_default(cls, name)
        if default is not dataclasses.MISSING:
            namespace[name] = default
    made: type[Any] = type(cls)(cls.__name__, (slots,), namespace)  # type: ignore[misc]
    made.__qualname__ = cls.__qualname__
    return _dataclass(made, annotated, kw_only)


def _dataclass(made: type[Any], annotated: dict[str, Any], kw_only: bool) -> type[Any]:
    """A frozen dataclass over slots that exist already: `slots=True` would add them twice."""
    made = dataclasses.dataclass(frozen=True, kw_only=kw_only)(made)
    for name in annotated:
        if name in vars(made):  # a default: it would hide the slot of the base
            delattr(made, name)
    return made


def _state(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, field.name) for field in dataclasses.fields(self))


def _restore(self: Any, state: tuple[Any, ...]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


def _annotations(cls: type[Any]) -> dict[str, Any]:
    """The fields of the class, then those of its bases: what is its own is shown first."""
    found: dict[str, Any] = {}
    for base in cls.__mro__:
        for name, annotation in inspect.get_annotations(base).items():
            found.setdefault(name, annotation)
    return found


def _inherited_default(cls: type[Any], name: str) -> Any:
    for base in cls.__mro__:
        if name in vars(base):
            return vars(base)[name]
    return dataclasses.MISSING
