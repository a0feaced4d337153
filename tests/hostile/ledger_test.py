"""A hostile user and the ledger: whatever happens to its file, no key comes twice, no step is forgotten.

To add an attack, write a function that takes the path of a ledger with two steps, does something to
what is there, and returns the path that the user opens next; put `@attack` on it. It is then tried on
a ledger that is closed and on one that is open, and what comes after must be a `LedgerError`, or
steps with keys of their own.
"""

from __future__ import annotations

import os
import shutil

import pytest

from bk_jax import privacy
from hostile.runs import PLAN

pytestmark = pytest.mark.usefixtures("visible_keys")

PAGE = 4096

ATTACKS = []


def attack(function):
    ATTACKS.append(function)
    return function


@attack
def nothing(path):
    return path


@attack
def second_name(path):
    os.link(path, path.with_name("hard_link"))
    return path.with_name("hard_link")


@attack
def second_name_in_place_of_the_first(path):
    os.link(path, path.with_name("kept"))
    path.unlink()
    os.link(path.with_name("kept"), path)
    return path


@attack
def symbolic_link(path):
    path.with_name("link").symlink_to(path)
    return path.with_name("link")


@attack
def stale_lock_deleted(path):
    """Deletes everything beside the ledger that looks like a lock."""
    for other in path.parent.iterdir():
        if "lock" in other.name:
            other.unlink()
    return path


@attack
def copied_file(path):
    return shutil.copy(path, path.with_name("copy"))


@attack
def copied_folder(path):
    """With times, modes and extended attributes."""
    return shutil.copytree(path.parent, path.parent.with_name("copy")) / path.name


@attack
def copied_folder_in_place_of_the_first(path):
    folder = path.parent
    shutil.copytree(folder, folder.with_name("copy"))
    folder.rename(folder.with_name("original"))
    folder.with_name("copy").rename(folder)
    return path


@attack
def renamed_folder(path):
    return path.parent.rename(path.parent.with_name("renamed")) / path.name


@attack
def backup_over_the_file(path):
    path.write_bytes(path.with_name("backup").read_bytes())
    return path


@attack
def backup_renamed_over_the_file(path):
    return path.with_name("backup").replace(path)


@attack
def backup_where_the_file_was(path):
    """File systems give a new file the inode of one that was just deleted."""
    path.unlink()
    return shutil.copy(path.with_name("backup"), path)


@attack
def exact_backup_where_the_file_was(path):
    """The same, with extended attributes."""
    path.unlink()
    return shutil.copy2(path.with_name("exact_backup"), path)


@attack
def deleted(path):
    path.unlink()
    return path


@attack
def emptied(path):
    path.write_bytes(b"")
    return path


@attack
def cut_to_one_page(path):
    os.truncate(path, PAGE)
    return path


@attack
def grown(path):
    with path.open("ab") as file:
        file.write(b"\n")
    return path


@attack
def pages_swapped(path):
    content = path.read_bytes()
    path.write_bytes(content[PAGE:] + content[:PAGE])
    return path


@attack
def first_page_twice(path):
    content = path.read_bytes()
    path.write_bytes(content[:PAGE] * 2)
    return path


@attack
def second_page_twice(path):
    content = path.read_bytes()
    path.write_bytes(content[PAGE:] * 2)
    return path


@attack
def a_page_of_the_backup(path):
    backup = path.with_name("backup").read_bytes()
    path.write_bytes(backup[:PAGE] + path.read_bytes()[PAGE:])
    return path


@attack
def less_noise(path):
    path.write_bytes(
        path.read_bytes().replace(b'"noise_multiplier": 4.0', b'"noise_multiplier": 0.1')
    )
    return path


@attack
def folder(path):
    path.unlink()
    path.mkdir()
    return path


@attack
def endless_device(path):
    path.unlink()
    path.symlink_to("/dev/zero")
    return path


@attack
def endless_device_under_the_files_name(path):
    """A character device of its own where the user may make one, else a pipe, which never ends."""
    path.unlink()
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))
    except PermissionError:
        os.mkfifo(path)
    return path


@attack
def pipe(path):
    path.unlink()
    os.mkfifo(path)
    return path


@attack
def huge_file(path):
    os.truncate(path, 2**36)
    return path


@pytest.mark.parametrize("hostile", ATTACKS, ids=lambda function: function.__name__)
def test_on_a_closed_ledger(run, hostile):
    path = hostile(run.path)
    for where in (path, run.path, path):
        run.try_everything(where)


@pytest.mark.parametrize("hostile", ATTACKS, ids=lambda function: function.__name__)
def test_on_an_open_ledger(run, hostile):
    with privacy.open_ledger(run.path, PLAN, forfeit=True) as ledger:
        run.take(ledger)
        path = hostile(run.path)
        for _ in range(2):
            run.try_to_take(ledger)
            run.try_everything(path)
    run.try_everything(path)
