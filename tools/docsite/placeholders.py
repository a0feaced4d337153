"""Placeholders of messages: a word for the expression that an f-string fills in.

`{', '.join(map(repr, allowed))}` is `{allowed}` to who reads the list of errors, and `{len(keys)}` is
`{number of keys}`.
"""

from __future__ import annotations

import ast
import re

# Where the rules below would give no word that says what it is.
WORDS = {
    "1 / num_examples": "1 divided by num_examples",
    "OPTIONS - DECIDED": "options",
    "known | options": "options",
    "batch * rows": "rows",
    "int(real.sum())": "number",
    "jax.default_backend()": "platform",
    "keras.backend.backend()": "backend",
    "plan.epsilon(1)": "epsilon of one step",
    "sum((leaves[i].size for i in real))": "number",
    "why.rstrip('.')": "reason",
    "stat.filemode(found.st_mode)": "kind of file",
    "jax.tree_util.keystr(path) or 'its root'": "path",
    "', '.join((e for e in ENDINGS if e != '.txt'))": "endings",
    "likely_cause(neighbours, index)": "likely cause",
    "padding_cause(neighbours, index)": "likely cause",
    "duration_secs": "seconds",
    "_call_to_write(loss_fn, signature, arguments)": "what to write",
    "eqn.primitive": "primitive",
    "_compat.source_line(eqn)": "source line",
    "getattr(keys, 'dtype', type(keys).__name__)": "dtype",
    "jnp.result_type(key)": "dtype",
    "self._folder": "folder",
    "found.st_size": "number",
    "error.strerror": "reason",
    "error.start": "position",
    "_way_out(name)": "what to write",
    "_bands(values)": "number",
    "len(content)": "number",
    "len(text)": "number",
    "len(xs)": "number",
    "measured / stddev": "ratio",
    "tuple(named) if len(named) > 1 else named[0]": "names",
    "OWN_OPTIONS[name]": "meaning",
}
_COUNTED = ("len",)
_TRANSPARENT = ("join", "sorted", "list", "tuple", "map", "max", "min", "repr", "str", "listing")
_SHAPES = ("shape", "tree_structure")


def placeholder(node: ast.expr) -> str:
    """The word for what is filled in.

    >>> for code in ("', '.join(map(repr, allowed))", "len(keys)", "type(x).__name__", "self.steps"):
    ...     print(placeholder(ast.parse(code, mode="eval").body))
    allowed
    number of keys
    type
    steps
    """
    return _word(node).strip("_").lower() or "..."


def _word(node: ast.expr) -> str:
    known = WORDS.get(ast.unparse(node))
    return known or _derived(node)


def _derived(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return "module" if node.id == "__name__" else node.id
    if isinstance(node, ast.Attribute):
        return "type" if node.attr == "__name__" else node.attr
    if isinstance(node, ast.Subscript):
        word = _word(node.value)
        return "size" if word == "shape" else re.sub(r"s$", "", word)
    if isinstance(node, ast.BoolOp):
        return _word(node.values[0])
    return _called(node) if isinstance(node, ast.Call) else "..."


def _called(call: ast.Call) -> str:
    function = ast.unparse(call.func).split("(")[0].split(".")[-1]
    if function in _SHAPES:
        return "structure" if function == "tree_structure" else "shape"
    if function in _COUNTED:
        return f"number of {_word(call.args[0])}"
    if call.args and (function in _TRANSPARENT or function.startswith("_")):
        return _word(call.args[-1])
    return "names" if function == "leaf_names" else function
