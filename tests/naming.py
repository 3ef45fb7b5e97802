"""Finds where source code names an algorithm or a vendor, or asks for one's name, however it is written.

The syntax tree is searched, so comments are exempt, neighbouring strings are one and escapes are resolved. Strings
put together from constants (added, joined, formatted, reversed, from character codes) are put together here as well.
This is no proof against obfuscation; it makes a name in such code something nobody writes by accident or in a hurry.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

#: algorithms, vendors, product lines, and devices by number; letters may stand around the words but not the numbers
NAMES = re.compile(
    r"dflash|eagle|nextn|n_?gram|standalone|medusa|lookahead|(?<![a-z])mtp(?![a-z])"
    r"|nvidia|(?<![a-z])(?:amd|intel)(?![a-z])|rocm|geforce|radeon|instinct|gaudi|ascend_?npu|(?<![a-z])tesla"
    r"|hopper|blackwell|(?<![a-z])ampere|grace_?hopper|(?<![a-z])[cr]dna\d?(?![a-z])"
    r"|(?<![a-z0-9])(?:g?[abhv][1-9]00|h20|h800|a800|g[bh][1-9]00|l40s?|rtx)(?![0-9a-z])"
    r"|(?<![a-z])mi[1-4](?![a-z])|(?<![a-z])gfx\d|(?<![a-z])sm_?[5-9]\d(?![0-9])|(?<![a-z])sm_?1\d\d(?![0-9])",
    re.IGNORECASE,
)
#: names of platforms, which are asked for what they do
PLATFORMS = ("cuda", "hip")

#: what answers with a name, as an attribute, a variable or the key of a table of attributes
_ASKED = {
    *("algorithm", "algorithm_name", "program_name", "engine", "engine_name", "model_name", "profile_name"),
    *("device_name", "gpu_name", "vendor", "platform", "platform_name", "get_device_name", "gcnArchName"),
    *("architecture", "get_device_capability", "get_arch_list"),
}
_ASKED_ATTRIBUTES = _ASKED | {"__name__", "__qualname__", "__module__"}
#: whose ``name``, ``type`` or ``kind`` is one
_OWNERS = {
    *("profile", "device", "program", "platform", "worker", "gpu", "model", "drafter", "props", "properties"),
    *("engine", "algorithm", "backend", "accelerator", "get_device_properties", "spec"),
}
_OWN = {"name", "type", "id"}
#: what keeps a name recognisable
_WRAPPERS = {
    "str",
    "repr",
    "len",
    "hash",
    "ord",
    "sorted",
    "set",
    "frozenset",
    "tuple",
    "list",
    "format",
    "iter",
}
#: calls that ask which name it is
_QUESTIONS = {
    *("startswith", "endswith", "find", "rfind", "index", "rindex", "count", "match", "search", "fullmatch"),
    *("findall", "fnmatch", "fnmatchcase", "eq", "ne", "contains", "is_", "__eq__", "__ne__", "__contains__"),
    *("get", "pop", "setdefault", "__getitem__", "getitem", "removeprefix", "removesuffix", "isdisjoint"),
}
_STRING_METHODS = {
    *("join", "format", "replace", "lower", "upper", "casefold", "title", "capitalize", "swapcase", "strip"),
    *("lstrip", "rstrip", "decode", "encode", "removeprefix", "removesuffix", "fromhex", "hex"),
}
_UNKNOWN = object()
_LONGEST = 10_000


def findings(source: str, platforms: bool = False, docstrings: bool = True) -> list[str]:
    """``line: what`` of everything found.

    ``platforms``: the code may spell names of platforms and look rows up by them, as the table of their semantics
    does. ``docstrings`` off: they may name something.
    """
    tree = ast.parse(source)
    code = _Code(tree)
    exempt = set() if docstrings else {id(node) for node in _docstrings(tree)}
    found = []
    for node in ast.walk(tree):
        if id(node) in exempt:
            continue
        for word in _words(node, code):
            if NAMES.search(word) or (word.lower() in PLATFORMS and not platforms and _is_text(node)):
                found.append(f"{_line(node)}: {word.strip()[:60]}")
        if code.asks(node) and not (platforms and isinstance(node, ast.Subscript)):
            found.append(f"{_line(node)}: asks {ast.unparse(node)[:60]}")
    return list(dict.fromkeys(found))


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)


def _is_text(node: ast.AST) -> bool:
    """Whether a word of ``node`` is a string: a module called after its platform is part of a library."""
    return isinstance(node, ast.expr) and not isinstance(node, ast.Name | ast.Attribute)


def _docstrings(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                yield first.value


def _words(node: ast.AST, code: _Code) -> Iterator[str]:
    """Identifiers of a node, and the string it comes to if it is made of constants."""
    if isinstance(node, ast.expr) and not isinstance(node, ast.Name):
        value = code.fold(node)
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, bytes):
                text = text.decode("latin-1")
            if isinstance(text, str):
                yield text
    for key in ("id", "attr", "arg", "name", "asname", "module", "rest"):
        word = getattr(node, key, None)
        if isinstance(word, str):
            yield word
    if isinstance(node, ast.Global | ast.Nonlocal):
        yield from node.names
    if isinstance(node, ast.MatchClass):
        yield from node.kwd_attrs


class _Code:
    """A module's constants, and its variables that hold somebody's name."""

    def __init__(self, tree: ast.AST):
        self.constants: dict[str, Any] = {}
        self.named: set[str] = set()
        assigned = list(_assignments(tree))
        targets = [t.id for names, _ in assigned for t in names]
        for _ in range(5):  # what is made of what is made of …
            for names, value in assigned:
                single = len(names) == 1 and targets.count(names[0].id) == 1
                if single and (folded := self.fold(value)) is not _UNKNOWN:
                    self.constants[names[0].id] = folded
                if self.is_name(value):
                    self.named |= {t.id for t in names}

    # -- questions ---------------------------------------------------------------------------------------------

    def asks(self, node: ast.AST) -> bool:
        """Whether ``node`` decides something by a name."""
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            rest = [s for s in sides if not self.is_name(s)]
            return len(rest) < len(sides) and not (rest and all(_is_nothing(s) for s in rest))
        if isinstance(node, ast.Match):
            return self.is_name(node.subject)
        if isinstance(node, ast.Subscript):
            return self.is_name(node.slice)
        if isinstance(node, ast.Call):
            function = node.func
            called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            receiver = [function.value] if isinstance(function, ast.Attribute) else []
            given = [*receiver, *node.args, *(k.value for k in node.keywords)]
            return called in _QUESTIONS and any(map(self.is_name, given))
        return False

    def is_name(self, node: ast.AST | None) -> bool:
        """Whether ``node`` is somebody's name, or something made of it."""
        if isinstance(node, ast.Name):
            return node.id in _ASKED or node.id in self.named
        if isinstance(node, ast.Attribute):
            return node.attr in _ASKED_ATTRIBUTES or (node.attr in _OWN and _last(node.value) in _OWNERS)
        if isinstance(node, ast.Call):
            return self._call_is_name(node)
        if isinstance(node, ast.Subscript):
            return self.is_name(node.value) or self.fold(node.slice) in _strings(_ASKED_ATTRIBUTES)
        parts: list[ast.AST] = []
        if isinstance(node, ast.JoinedStr | ast.BoolOp):
            parts = list(node.values)
        elif isinstance(node, ast.FormattedValue | ast.NamedExpr | ast.Starred | ast.Await):
            parts = [node.value]
        elif isinstance(node, ast.BinOp):
            parts = [node.left, node.right]
        elif isinstance(node, ast.IfExp):
            parts = [node.body, node.orelse]
        elif isinstance(node, ast.Tuple | ast.List | ast.Set):
            parts = list(node.elts)
        return any(map(self.is_name, parts))

    def _call_is_name(self, node: ast.Call) -> bool:
        function = node.func
        if isinstance(function, ast.Attribute):
            if function.attr in _ASKED:
                return True
            questions = function.attr in _QUESTIONS - {"removeprefix", "removesuffix"}
            return not questions and hasattr(str, function.attr) and self.is_name(function.value)
        called = getattr(function, "id", "")
        if called == "getattr" and len(node.args) > 1:
            return self.fold(node.args[1]) in _strings(_ASKED_ATTRIBUTES)
        return called in _ASKED or (called in _WRAPPERS and any(map(self.is_name, node.args)))

    # -- constants ---------------------------------------------------------------------------------------------

    def fold(self, node: ast.AST | None) -> Any:
        """What an expression of constants comes to, or a mark that it is none."""
        try:
            value = self._folded(node)
        except (
            TypeError,
            ValueError,
            LookupError,
            AttributeError,
            OverflowError,
            MemoryError,
            ArithmeticError,
        ):
            return _UNKNOWN
        return value if not isinstance(value, str | bytes | list) or len(value) <= _LONGEST else _UNKNOWN

    def _folded(self, node: ast.AST | None) -> Any:
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str | bytes | int) else _UNKNOWN
        if isinstance(node, ast.Name):
            return self.constants.get(node.id, _UNKNOWN)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._known(node.operand)
        if isinstance(node, ast.BinOp):
            return self._operation(node)
        if isinstance(node, ast.List | ast.Tuple):
            return [self._known(e) for e in node.elts]
        if isinstance(node, ast.FormattedValue):
            return str(self._known(node.value))
        if isinstance(node, ast.JoinedStr):
            return "".join(map(str, map(self._known, node.values)))
        if isinstance(node, ast.Subscript):
            return self._known(node.value)[self._slice(node.slice)]
        if isinstance(node, ast.Call) and not node.keywords:
            return self._called(node)
        if isinstance(node, ast.ListComp | ast.GeneratorExp) and len(node.generators) == 1:
            return self._each(node)
        return _UNKNOWN

    def _known(self, node: ast.AST | None) -> Any:
        value = self.fold(node)
        if value is _UNKNOWN:
            raise ValueError("not made of constants")
        return value

    def _operation(self, node: ast.BinOp) -> Any:
        left, right = self._known(node.left), self._known(node.right)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Mod):
            return left % (tuple(right) if isinstance(right, list) else right)
        if isinstance(node.op, ast.Sub | ast.BitXor) and isinstance(left, int) and isinstance(right, int):
            return left - right if isinstance(node.op, ast.Sub) else left ^ right
        if isinstance(node.op, ast.Mult) and max(left, right, key=lambda x: isinstance(x, int)) < 100:
            return left * right
        return _UNKNOWN

    def _slice(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Slice):
            return slice(
                *(None if p is None else self._known(p) for p in (node.lower, node.upper, node.step))
            )
        return self._known(node)

    def _called(self, node: ast.Call) -> Any:
        function = node.func
        if isinstance(function, ast.Name):
            if function.id == "map" and len(node.args) == 2 and getattr(node.args[0], "id", "") == "chr":
                return [chr(code) for code in self._known(node.args[1])]
            args = [self._known(a) for a in node.args]
            safe: dict[str, Any] = {
                "chr": chr,
                "str": str,
                "bytes": bytes,
                "bytearray": bytes,
                "list": list,
                "tuple": list,
            }
            if function.id == "reversed":
                return list(reversed(args[0]))
            if function.id in safe and not (isinstance(args[0], int) and function.id.startswith("byte")):
                return safe[function.id](*args)
        elif isinstance(function, ast.Attribute):
            args = [self._known(a) for a in node.args]
            if function.attr == "fromhex":
                return bytes.fromhex(args[0])
            receiver = self._known(function.value)
            if function.attr in _STRING_METHODS and isinstance(receiver, str | bytes):
                return getattr(receiver, function.attr)(*args)
        return _UNKNOWN

    def _each(self, node: ast.ListComp | ast.GeneratorExp) -> Any:
        """A comprehension over constants, its variable's values one after the other."""
        generator = node.generators[0]
        if not isinstance(generator.target, ast.Name) or generator.ifs:
            return _UNKNOWN
        name, out = generator.target.id, []
        before = self.constants.get(name, _UNKNOWN)
        for value in self._known(generator.iter):
            self.constants[name] = value
            out.append(self.fold(node.elt))
        if before is _UNKNOWN:
            self.constants.pop(name, None)
        else:
            self.constants[name] = before
        return _UNKNOWN if _UNKNOWN in out else out


def _assignments(tree: ast.AST) -> Iterator[tuple[list[ast.Name], ast.expr]]:
    """(the variables, the value) of every assignment; of ``for x in values`` too."""
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr | ast.AugAssign) and node.value is not None:
            targets = [node.target]
        elif isinstance(node, ast.For | ast.comprehension):
            # The variable is an element, no constant; but it may hold a name.
            names = [n for n in ast.walk(node.target) if isinstance(n, ast.Name)]
            yield [*names, *names], node.iter
            continue
        names = [n for t in targets for n in ast.walk(t) if isinstance(n, ast.Name) and _is_stored(n)]
        if names and isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.AugAssign):
            assert node.value is not None
            yield names, node.value


def _is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _is_nothing(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool))


def _last(node: ast.AST) -> str:
    """The last word of what owns an attribute: ``profile`` of ``self.resolved.profile``."""
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _strings(words: set[str]) -> list[object]:
    """As a list, since what is looked up in it may be a list itself."""
    return list(words)
