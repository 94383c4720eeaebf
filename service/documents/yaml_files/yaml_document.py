"""YAML with the position of every value, so that an error can name file, line and column.

Differs from ``yaml.safe_load``: keys are text as written (``on: int`` keeps the key ``on``). Refused are a
key given twice, a document that contains itself, and documents that are too large for any purpose, before
they take memory or time: a few lines of nested aliases can stand for billions of values.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from catalog.errors import InvalidInput, Location
from service.errors import InvalidYaml

ItemPath = tuple[str | int, ...]

#: Maximum length of a file; a workload of 10,000 queries has 3,000,000 characters.
MAX_CHARACTERS: Final = 16_000_000
#: Maximum depth of nested lists and mappings; the deepest document has 9 levels.
MAX_DEPTH: Final = 64
#: Maximum number of values, in which each use of an alias counts as the values that it stands for.
MAX_VALUES: Final = 500_000
#: Errors of PyYAML for texts that do not fit their tag, such as the date 2013-02-30 or ``!!bool maybe``.
_UNFIT: Final = (ValueError, KeyError, AttributeError, IndexError, OverflowError)


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A parsed file.

    Attributes:
        file: Name of the file, as it was given.
        text: Its content.
        value: Dicts, lists and scalars.
        root: The node tree behind ``value``.
    """

    file: str
    text: str
    value: object
    root: yaml.Node | None

    def location(self, path: ItemPath, *, key: bool = False) -> Location:
        """Return the location of the value at ``path``, or of its key; if missing, of the nearest parent.

        Args:
            path: Keys and indexes from the top; items that do not exist are skipped.
            key: Whether to return the location of the last key instead of its value.
        """
        node, key_node = self.root, None
        for item in path:
            found = _child(node, item)
            if found is not None:
                key_node, node = found
        target = key_node if key and key_node is not None else node
        if target is None:
            return Location(1, 1, self.text, file=self.file)
        start, end = target.start_mark, target.end_mark
        length = end.column - start.column if end.line == start.line else 1
        return Location(start.line + 1, start.column + 1, self.text, max(length, 1), self.file)

    def inside_scalar(self, path: ItemPath, inner: Location) -> Location:
        """Return the location in the file that corresponds to a location inside the scalar at ``path``.

        The location is exact for text on one line and for ``|`` blocks; for other texts, it is the start of
        the scalar.
        """
        outer = self.location(path)
        node = self.root
        for item in path:
            found = _child(node, item)
            node = found[1] if found is not None else None
        if not isinstance(node, yaml.ScalarNode):
            return outer
        lines = self.text.splitlines()
        if node.style == "|":
            line = outer.line + inner.line
            if line > len(lines):
                return outer
            shown = (
                node.value.splitlines()[inner.line - 1] if inner.line <= len(node.value.splitlines()) else ""
            )
            indent = len(lines[line - 1]) - len(shown)
            return Location(line, indent + inner.column, self.text, inner.length, self.file)
        quote = 1 if node.style in ("'", '"') else 0
        written = lines[outer.line - 1][outer.column - 1 + quote :]
        if inner.line == 1 and written.startswith(node.value):
            return Location(
                outer.line, outer.column + quote + inner.column - 1, self.text, inner.length, self.file
            )
        return outer


@contextmanager
def locating(document: YamlDocument, path: ItemPath, *, text_at: ItemPath | None = None) -> Iterator[None]:
    """Add the location in the document to errors raised in the block; their class does not change.

    Args:
        document: The file.
        path: Item of the document that is being checked.
        text_at: Path of the value in whose text the error's own location lies.
    """
    try:
        yield
    except InvalidInput as error:
        if error.location is not None and error.location.file is None and text_at is not None:
            error.location = document.inside_scalar(text_at, error.location)
        elif error.location is None:
            error.location = document.location((*path, *error.path))
        raise


def read_yaml(path: Path) -> YamlDocument:
    """Read one YAML file.

    Raises:
        InvalidYaml: The file is missing, not UTF-8, not YAML, repeats a key, contains itself or is too large.
    """
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_CHARACTERS + 1)
    except OSError as error:
        raise InvalidYaml(f'file "{path}" cannot be read', detail=f"{error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise InvalidYaml(f'file "{path}" is not UTF-8 text', detail=f"{error}.") from error
    if len(text) > MAX_CHARACTERS:
        raise InvalidYaml(f'file "{path}" has more than {MAX_CHARACTERS} characters')
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        column = len(before) - before.rfind("\n")
        problem = f"not valid YAML: the character U+{error.character:04X} is not allowed"
        place = Location(before.count("\n") + 1, column, text, 1, str(path))
        raise InvalidYaml(problem, location=place) from error
    try:
        root = loader.get_single_node()
        value = _Reader(loader, str(path), text).value(root) if root is not None else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        location = Location(mark.line + 1, mark.column + 1, text, 1, str(path)) if mark else None
        raise InvalidYaml(f"not valid YAML: {error.problem or error.context}", location=location) from error
    except yaml.YAMLError as error:
        raise InvalidYaml(f'file "{path}" is not valid YAML', detail=f"{error}.") from error
    finally:
        loader.dispose()
    return YamlDocument(str(path), text, value, root)


class _Loader(yaml.SafeLoader):
    """Loader that refuses documents while it reads them, before nested aliases are replaced."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._values = 0
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Return the next node, and count its values."""
        event = self.peek_event()  # type: ignore[no-untyped-call]  # PyYAML has no type hints
        mark, before = event.start_mark, self._values
        self._depth += 1
        if self._depth > MAX_DEPTH:
            told = f"more than {MAX_DEPTH} levels of lists and mappings"
            raise yaml.MarkedYAMLError(problem=told, problem_mark=mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        # The values of an alias are those of the node that it stands for, which is complete by now.
        self._values += self._sizes.get(id(node), 1)
        self._sizes.setdefault(id(node), self._values - before)
        if self._values > MAX_VALUES:
            told = f"more than {MAX_VALUES} values, with those that aliases stand for"
            raise yaml.MarkedYAMLError(problem=told, problem_mark=mark)
        return node


class _Reader:
    """Turns nodes into values; refuses faults that the YAML loader accepts."""

    def __init__(self, loader: yaml.SafeLoader, file: str, text: str) -> None:
        self._loader = loader
        self._file = file
        self._text = text
        self._open: set[int] = set()

    def value(self, node: yaml.Node) -> object:
        """Return the value of a node."""
        if id(node) in self._open:
            raise self._error("the document contains itself", node)
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node)
            if isinstance(node, yaml.SequenceNode):
                return [self.value(item) for item in node.value]
            try:
                return self._loader.construct_object(node)
            except _UNFIT as error:
                told = f"{error}" if isinstance(error, ValueError) else f"{node.value!r} does not fit its tag"
                raise self._error(told, node) from error
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: yaml.MappingNode) -> dict[str, object]:
        seen: set[Hashable] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._error("a key must be plain text", key)
            if key.value in seen:
                raise self._error(f'key "{key.value}" is given twice', key)
            seen.add(key.value)
        self._loader.flatten_mapping(node)
        return {key.value: self.value(item) for key, item in node.value}

    def _error(self, problem: str, node: yaml.Node) -> InvalidYaml:
        mark = node.start_mark
        return InvalidYaml(
            problem, location=Location(mark.line + 1, mark.column + 1, self._text, 1, self._file)
        )


def _child(node: yaml.Node | None, item: str | int) -> tuple[yaml.Node | None, yaml.Node] | None:
    """Return (key node, value node) of an item, or None if it does not exist."""
    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == item), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(item, int) and item < len(node.value):
        return None, node.value[item]
    return None
