"""Give the stub to mkdocstrings: docstrings as Markdown, and the arguments of classes."""

from typing import Any

import griffe

from tests.site.markup import to_markdown


class Docstrings(griffe.Extension):  # type: ignore[misc]
    """Changes the objects that griffe reads from the stub."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Translate a docstring. griffe calls this method for each object."""
        if obj.docstring is not None:
            holder = obj.path if obj.is_class else obj.path.rpartition(".")[0]
            obj.docstring.value = to_markdown(obj.docstring.value, holder)

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Show the arguments of ``__new__``, which classes of Rust have, next to the class."""
        if "__new__" in cls.members:
            new = cls.members.pop("__new__")
            new.name = "__init__"
            cls.members["__init__"] = new
