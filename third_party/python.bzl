"""What belongs to a Python environment: the interpreter, its headers, the XLA FFI of its jaxlib, and nanobind."""

# find_spec locates a package without importing it: importing jaxlib would load a very large shared object.
_PROBE = """
import importlib.util, sys, sysconfig
def folder(package):
    spec = importlib.util.find_spec(package)
    if spec is None:
        sys.exit("package " + package + " is not installed")
    return spec.submodule_search_locations[0]
print(sysconfig.get_paths()["include"])
print(folder("jaxlib") + "/include")
print(folder("nanobind"))
# From 3.12 on nanobind can do with the stable ABI: one module for that Python and all later ones.
stable = sys.version_info >= (3, 12) and not sysconfig.get_config_var("Py_GIL_DISABLED")
print(".abi3.so" if stable else sysconfig.get_config_var("EXT_SUFFIX"))
"""

_BUILD = """
package(default_visibility = ["//visibility:public"])

# Runs every py_binary, see .bazelrc.
py_runtime(
    name = "python",
    interpreter_path = "{python}",
    python_version = "PY3",
)

cc_library(
    name = "python_headers",
    hdrs = glob(["python/**/*.h"]),
    includes = ["python"],
)

cc_library(
    name = "xla_ffi",
    hdrs = glob(["jaxlib/xla/ffi/api/*.h"]),
    includes = ["jaxlib"],
)

cc_library(
    name = "nanobind",
    srcs = ["nanobind/src/nb_combined.cpp"],
    hdrs = glob([
        "nanobind/include/**/*.h",
        "nanobind/ext/robin_map/include/tsl/*.h",
    ]),
    copts = [
        "-w",
        "-fvisibility=hidden",
        "-fno-strict-aliasing",
        "-ffunction-sections",
        "-fdata-sections",
    ],
    defines = [
        "NB_COMPACT_ASSERTIONS",
        "NB_DOMAIN=bk_jax",
    ] + {stable_abi},
    includes = [
        "nanobind/ext/robin_map/include",
        "nanobind/include",
    ],
    textual_hdrs = glob(["nanobind/src/*.cpp", "nanobind/src/*.h"], exclude = ["nanobind/src/nb_combined.cpp"]),
    deps = [":python_headers"],
)
"""

def _python_environment_impl(repository_ctx):
    name = repository_ctx.os.environ.get("BK_JAX_PYTHON", "") or "python3"
    python = name if "/" in name else repository_ctx.which(name)
    if not python:
        fail("Python interpreter '%s' not found: set BK_JAX_PYTHON to one that has jaxlib and nanobind" % name)
    probe = repository_ctx.execute([python, "-c", _PROBE])
    if probe.return_code != 0:
        fail("%s cannot build bk_jax: %s%s" % (python, probe.stdout, probe.stderr) +
             "Set BK_JAX_PYTHON to an interpreter that has jaxlib and nanobind.")
    python_include, jaxlib_include, nanobind, ext_suffix = probe.stdout.strip().split("\n")
    repository_ctx.symlink(python_include, "python")
    repository_ctx.symlink(jaxlib_include, "jaxlib")
    repository_ctx.symlink(nanobind, "nanobind")
    stable_abi = ["Py_LIMITED_API=0x030C0000"] if ext_suffix == ".abi3.so" else []
    build = _BUILD.replace("{python}", str(python)).replace("{stable_abi}", repr(stable_abi))
    repository_ctx.file("BUILD", build)
    repository_ctx.file("defs.bzl", "EXT_SUFFIX = \"%s\"\n" % ext_suffix)

python_environment = repository_rule(
    implementation = _python_environment_impl,
    doc = "Declares an interpreter, symlinks its header folders and writes EXT_SUFFIX; re-runs when BK_JAX_PYTHON changes.",
    environ = ["BK_JAX_PYTHON"],
    local = True,
)
