"""Frozen slotted dataclasses that generated code can fill in without calling `__init__`.

A frozen dataclass calls `object.__setattr__` for each field when an instance is made. That takes most of the
time of decoding a record. `@frozen` puts the slots of a class into a mutable base class of its own.
A reader makes an instance of that base (`builder_class(cls)`), stores into its slots, and then assigns
`__class__`. CPython allows the assignment because both classes have the same layout. The result is an
instance of the frozen dataclass, and no code outside the reader ever sees it mutable.
"""

import dataclasses
import inspect
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")

_BUILDER = "__builder__"
_NOT_COPIED = frozenset(
    {"__dict__", "__weakref__", "__slots__", "__annotate__", "__annotate_func__", "__annotations_cache__"}
)
"""Attributes that Python makes itself for the new class. `__annotate...` exist since Python 3.14."""


@dataclass_transform(kw_only_default=False, frozen_default=True, field_specifiers=(dataclasses.field,))
def frozen(cls: type[T]) -> type[T]:
    """Makes `cls` a frozen slotted dataclass whose slots live in `builder_class(cls)`."""
    return freeze(cls, kw_only=False)


def builder_class(cls: type[Any]) -> type[Any]:
    """Returns the mutable base of `cls`: make an instance, fill its slots, then assign `__class__ = cls`."""
    builder: type[Any] = getattr(cls, _BUILDER)
    return builder


def freeze(cls: type[T], *, kw_only: bool) -> type[T]:
    """Does what `@frozen` does, for other decorators. The bases of `cls` must have no slots of their own."""
    annotations = _collect_annotations(cls)
    builder = type(
        f"_{cls.__name__}", cls.__bases__, {"__slots__": tuple(annotations), "__module__": cls.__module__}
    )
    # The frozen class takes the body of `cls` and adds no slots, so that its layout is the builder's.
    namespace = {name: value for name, value in vars(cls).items() if name not in _NOT_COPIED}
    namespace |= {
        "__annotations__": annotations,
        "__slots__": (),
        "__getstate__": _get_state,
        "__setstate__": _set_state,
    }
    namespace[_BUILDER] = builder
    # `dataclass` takes a default from the class itself, so inherited ones are copied into it.
    for name in annotations:
        default = _find_default(cls, name)
        if default is not dataclasses.MISSING:
            namespace[name] = default
    frozen_class: type[Any] = type(cls)(cls.__name__, (builder,), namespace)  # type: ignore[misc]  # cls's metaclass
    frozen_class.__qualname__ = cls.__qualname__
    return _make_dataclass(frozen_class, annotations, kw_only)


def _make_dataclass(cls: type[Any], annotations: dict[str, Any], kw_only: bool) -> type[Any]:
    """Makes a frozen dataclass over slots that exist already: `slots=True` would add them a second time."""
    cls = dataclasses.dataclass(frozen=True, kw_only=kw_only)(cls)
    for name in annotations:
        if name in vars(cls):  # a default is a class attribute, which would hide the slot of the base
            delattr(cls, name)
    return cls


def _get_state(self: Any) -> tuple[Any, ...]:
    """For pickle and copy: they restore slots with `setattr` by default, which a frozen class refuses."""
    return tuple(getattr(self, field.name) for field in dataclasses.fields(self))


def _set_state(self: Any, state: tuple[Any, ...]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


def _collect_annotations(cls: type[Any]) -> dict[str, Any]:
    """Returns the fields of the class, then those of its bases, so that `repr` shows its own fields first."""
    annotations: dict[str, Any] = {}
    for base in cls.__mro__:
        for name, annotation in inspect.get_annotations(base).items():
            annotations.setdefault(name, annotation)
    return annotations


def _find_default(cls: type[Any], name: str) -> Any:
    """Returns a field's default in the class or its bases; `dataclasses.MISSING` if there is none."""
    for base in cls.__mro__:
        if name in vars(base):
            return vars(base)[name]
    return dataclasses.MISSING
