"""Every error message, and that there is none without a test."""

import ast
import re
import traceback
from pathlib import Path

import jax
import pytest
from support.models import linear_loss

import bk_jax
from api.call_errors import CALL_ERRORS
from api.mistakes import W, X, dense
from api.option_errors import OPTION_ERRORS

PACKAGE = Path(bk_jax.__file__).parent
MODULES = [
    "api.py",
    "grad_fn.py",
    "clip.py",
    "planning/methods.py",
    "planning/routes.py",
    "prefixes.py",
    "relations.py",
    "scaling.py",
    "validate.py",
]
CASES = {**OPTION_ERRORS, **CALL_ERRORS}
RAISED = {}  # case -> the statement that it ended in


@pytest.mark.parametrize("name", CASES)
def test_message(name):
    exception, text, action = CASES[name]
    with pytest.raises(exception, match=re.escape(text)) as info:
        action()
    RAISED[name] = place(info.value)


def test_messages_are_the_same_inside_jit():
    with pytest.raises(ValueError, match="noise needs a key"):
        jax.jit(bk_jax.dp_value_and_grad(dense))(W, X)
    with pytest.raises(TypeError, match="loss_fn must return a scalar"):
        jax.jit(bk_jax.dp_value_and_grad(lambda w, x: x @ w, noise_multiplier=0.0))(W, X)


def test_an_error_of_the_loss_itself_comes_through():
    def loss(w, x):
        raise RuntimeError("my own mistake")

    with pytest.raises(RuntimeError, match="my own mistake"):
        bk_jax.dp_value_and_grad(loss, noise_multiplier=0.0)(W, X)


def test_unknown_options_are_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'clip_norm'"):
        bk_jax.dp_value_and_grad(linear_loss, clip_norm=1.0)


def raise_statements():
    """`{(module, line)}` of every `raise` in the modules above."""
    found = {}
    for name in MODULES:
        tree = ast.parse((PACKAGE / name).read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Raise):
                found.update(dict.fromkeys([(name, node.lineno)], ast.unparse(node)))
    return found


def place(error):
    """The statement of ours that raised an error."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if Path(f.filename).is_relative_to(PACKAGE)]
    return Path(ours[-1].filename).relative_to(PACKAGE).as_posix(), ours[-1].lineno


def test_no_error_is_without_a_test():
    for name in CASES.keys() - RAISED.keys():  # those that ran in another process
        test_message(name)
    untested = {k: v for k, v in raise_statements().items() if k not in RAISED.values()}
    assert not untested, f"add a case to CASES for each of {untested}"
