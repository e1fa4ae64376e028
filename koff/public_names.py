"""The public names of a package that is slow to import, which are those of its module `public`."""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def import_public_names(package: str) -> Callable[[str], Any]:
    """The `__getattr__` of the package: it imports `public` when one of its names is first used.

    It raises `AttributeError` for any other name, also for that of a module, which Python then imports.
    """

    def get_name(name: str) -> Any:
        if find_spec(f"{package}.{name}") is None:
            named = vars(import_module(f"{package}.public"))
            public = {name: named[name] for name in named if not name.startswith("_")}
            if name == "__all__":
                return list(public)
            if name in public:
                setattr(sys.modules[package], name, public[name])
                return public[name]
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get_name
