"""Files and functions stay short enough to be read in one go."""

from __future__ import annotations

import ast
import statistics

from tests.tidy import rust_source
from tests.tidy.tree import complain, files, name, text

FILE_LINES_MAX = 800
STUB_LINES_MAX = 1_500
"""Of a stub: it describes one compiled module, and cannot be split."""
FILE_LINES_MEDIAN_MAX = 250
FUNCTION_LINES_MAX = 70


def lines(source: str) -> int:
    """Lines of a file; a generated one, which says so in line 1, counts none."""
    first = source.partition("\n")[0].lower()
    return 0 if "generated" in first else source.count("\n")


def test_no_file_is_too_long():
    """A file beyond 800 lines has several subjects; over 500 the summary names it."""
    long = [
        f"{name(path)}: {lines(text(path))} lines (limit {limit})"
        for suffixes, limit in (((".py", ".rs"), FILE_LINES_MAX), ((".pyi",), STUB_LINES_MAX))
        for path in files(*suffixes)
        if lines(text(path)) > limit
    ]
    complain(long, next_step="Split each by what its parts are responsible for.")


def test_the_median_file_is_short():
    """Half of the files can be read in a few minutes each."""
    lengths = [lines(text(path)) for path in files(".py", ".rs")]
    median = statistics.median(lengths)
    assert median < FILE_LINES_MEDIAN_MAX, (
        f"the median file has {median} lines (limit {FILE_LINES_MEDIAN_MAX});"
        " split the longest by what their parts are responsible for"
    )


def test_no_python_function_is_too_long():
    """A function fits a screen."""
    long = []
    for path in files(".py"):
        for node in ast.walk(ast.parse(text(path))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                long.append(
                    f"{name(path)}:{node.lineno}: {node.name} has {length} lines"
                    f" (limit {FUNCTION_LINES_MAX})"
                )
    complain(long, next_step="Push `if` up and `for` down; name the parts.")


def test_no_rust_function_is_too_long():
    """A function fits a screen."""
    long = [
        f"{name(path)}:{function.line}: {function.name} has {function.length} lines"
        f" (limit {FUNCTION_LINES_MAX})"
        for path in files(".rs")
        for function in rust_source.functions(text(path))
        if function.length > FUNCTION_LINES_MAX
    ]
    complain(long, next_step="Push `if` up and `for` down; name the parts.")


def test_the_brace_counter_is_not_fooled():
    """A brace in a string, a character or a comment opens nothing."""
    source = """
fn one<'a>(text: &'a str) -> char {
    // a brace in a comment: }
    let open = '{';
    let raw = r#"}}"#;
    open
}
trait Two { fn two(sizes: [u8; 2]); }
"""
    assert list(rust_source.functions(source)) == [("one", 2, 6)]
