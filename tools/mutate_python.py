"""Mutants of Python modules: one operator, constant, statement or await is changed in each.

Text, annotations and docstrings stay as they are: what a message says is no law of a machine.
Neither cosmic-ray nor mutmut draws by a seed or runs named tests on named modules alone.
"""

import ast
import copy
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARED: dict[type[ast.cmpop], list[type[ast.cmpop]]] = {
    ast.Lt: [ast.LtE, ast.Gt],
    ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.Lt],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
}
COMPUTED: dict[type[ast.operator], list[type[ast.operator]]] = {
    ast.Add: [ast.Sub],
    ast.Sub: [ast.Add],
    ast.Mult: [ast.Add, ast.FloorDiv],
    ast.FloorDiv: [ast.Mult, ast.Mod],
    ast.Div: [ast.Mult],
    ast.Mod: [ast.FloorDiv],
    ast.LShift: [ast.RShift],
    ast.RShift: [ast.LShift],
    ast.BitAnd: [ast.BitOr],
    ast.BitOr: [ast.BitAnd],
    ast.BitXor: [ast.BitAnd],
}
SIGNS: dict[type[ast.AST], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Div: "/",
    ast.Mod: "%",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.And: "and",
    ast.Or: "or",
    ast.Not: "not",
    ast.USub: "-",
    ast.Invert: "~",
}
# Parts of a node that no mutant touches.
KEPT = {"annotation", "returns", "decorator_list", "bases"}
Located = ast.expr | ast.stmt


@dataclass(frozen=True)
class Mutant:
    """One change of one module: the bytes from `start` to `stop` become `text`."""

    path: str
    place: tuple[int, int]
    what: str
    start: int
    stop: int
    text: str

    @property
    def name(self) -> str:
        """As cargo-mutants names its own."""
        line, column = self.place
        return f"{self.path}:{line}:{column}: {self.what}"

    def applied(self, source: bytes) -> bytes:
        """The module with the change."""
        return source[: self.start] + self.text.encode() + source[self.stop :]


def mutants(path: str, source: str) -> list[Mutant]:
    """Every mutant of a module, in the order of its text."""
    tree = ast.parse(source)
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node, owner in _walk(tree, ""):
        place = (node.lineno, node.col_offset + 1)
        start = starts[node.lineno - 1] + node.col_offset
        assert node.end_lineno is not None, "parsed from text"
        assert node.end_col_offset is not None, "parsed from text"
        stop = starts[node.end_lineno - 1] + node.end_col_offset
        inside = f" in {owner}" if owner else ""
        found += [
            Mutant(path, place, what + inside, start, stop, text) for what, text in _changes(node)
        ]
    return sorted(found, key=lambda one: (one.place, one.what))


def _walk(node: ast.AST, owner: str) -> Iterator[tuple[Located, str]]:
    """Every statement and expression that may be changed, with the function that it is in."""
    for field, value in ast.iter_fields(node):
        if field in KEPT:
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr | ast.Assert):
                continue
            inner = owner
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{owner}.{child.name}" if owner else child.name
            if isinstance(child, ast.expr | ast.stmt):
                yield child, owner
            yield from _walk(child, inner)


def _changes(node: Located) -> Iterator[tuple[str, str]]:
    """What may become of a node: what is said of it, and its new text."""
    match node:
        case ast.Compare():
            yield from _compared(node)
        case ast.BinOp():
            yield from _computed(node, f"({ast.unparse(node)})")
        case ast.AugAssign():
            yield from _computed(node, ast.unparse(node))
        case ast.BoolOp():
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield _replaced(node, node.op, other, lambda one: setattr(one, "op", other))
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
            yield f"delete {SIGNS[type(node.op)]} of {_short(node)}", _code(node.operand)
        case ast.IfExp() if not _holds_text(node):
            yield f"replace {_short(node)} with its other way", _code(node.orelse)
        case ast.Await():
            yield f"delete await of {_short(node)}", _code(node.value)
        case ast.Constant(value=bool() as value):
            yield f"replace {value} with {not value}", str(not value)
        case ast.Constant(value=int() as value):
            yield f"replace {value} with {value + 1}", str(value + 1)
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield f"replace {_short(node)} with None", "return None"
        case ast.stmt() if _is_removable(node):
            yield f"delete {_short(node)}", "pass"


def _compared(node: ast.Compare) -> Iterator[tuple[str, str]]:
    for index, old in enumerate(node.ops):
        for new in COMPARED[type(old)]:
            yield _replaced(node, old, new(), lambda one, i=index, n=new: _set_op(one, i, n()))


def _set_op(node: ast.Compare, index: int, new: ast.cmpop) -> None:
    node.ops[index] = new


def _computed(node: ast.BinOp | ast.AugAssign, text: str) -> Iterator[tuple[str, str]]:
    if _holds_text(node):
        return
    for new in COMPUTED.get(type(node.op), []):
        what, code = _replaced(node, node.op, new(), lambda one, n=new: setattr(one, "op", n()))
        yield what, code if text.startswith("(") else code[1:-1]


def _replaced(
    node: Located, old: ast.AST, new: ast.AST, change: Callable[..., None]
) -> tuple[str, str]:
    changed = copy.deepcopy(node)
    change(changed)
    return f"replace {SIGNS[type(old)]} with {SIGNS[type(new)]} of {_short(node)}", _code(changed)


def _code(node: Located) -> str:
    return f"({ast.unparse(node)})"


def _short(node: Located) -> str:
    return ast.unparse(node).splitlines()[0]


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _holds_text(node: ast.AST) -> bool:
    parts = ast.walk(node)
    return any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in parts)


def _is_removable(node: ast.stmt) -> bool:
    """Whether nothing fails to run without it at once, as a use of a name that is not set would."""
    match node:
        case ast.Expr(value=ast.Constant()):
            return False
        case ast.Expr() | ast.Raise() | ast.AugAssign() | ast.Delete():
            return True
        case ast.Break() | ast.Continue():
            return True
        case ast.Assign(targets=targets):
            return any(isinstance(one, ast.Attribute | ast.Subscript) for one in targets)
    return False


def run(command: list[str], tree: Path, environment: dict[str, str], timeout_s: float) -> str:
    """Run tests in a tree, and say what became of the mutant in it, in the words of cargo-mutants.

    Those that run for too long are ended with all the processes that they started.
    """
    with subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as tests:
        try:
            status = tests.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(tests.pid, signal.SIGKILL)
            return "Timeout"
    return "MissedMutant" if status == 0 else "CaughtMutant"
