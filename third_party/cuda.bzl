"""The CUDA toolkit: where it is, and whether there is one.

`--config=cuda` builds what needs it. Without a toolkit everything else still builds: the repository then
holds an `nvcc` that says what is missing.
"""

_BUILD = """
package(default_visibility = ["//visibility:public"])

# Headers and libraries for the host compiler: those of the runtime only, of the toolkit's thousands.
cc_library(
    name = "runtime",
    hdrs = glob(["toolkit/include/*.h", "toolkit/include/crt/*.h"], allow_empty = True),
    includes = ["toolkit/include"],
    linkopts = {linkopts},
)

sh_binary(
    name = "nvcc",
    srcs = ["nvcc.sh"],
)
"""

_MISSING = """#!/bin/sh
echo "bk_jax: no CUDA toolkit: set BK_JAX_CUDA_PATH to the folder that has bin/nvcc, or put nvcc on PATH" >&2
exit 1
"""

def _toolkit(repository_ctx):
    folder = repository_ctx.os.environ.get("BK_JAX_CUDA_PATH", "")
    if folder:
        return repository_ctx.path(folder)
    nvcc = repository_ctx.which("nvcc")
    return nvcc.realpath.dirname.dirname if nvcc else None

def _cuda_toolkit_impl(repository_ctx):
    toolkit = _toolkit(repository_ctx)
    linkopts = []
    script = _MISSING
    if toolkit:
        repository_ctx.symlink(toolkit.get_child("include"), "toolkit/include")
        library = toolkit.get_child("lib64")
        linkopts = ["-L%s" % library, "-lcudart_static", "-lpthread", "-ldl", "-lrt"]
        script = "#!/bin/sh\nexec '%s' \"$@\"\n" % toolkit.get_child("bin").get_child("nvcc")
    repository_ctx.file("nvcc.sh", script, executable = True)
    repository_ctx.file("BUILD", _BUILD.replace("{linkopts}", repr(linkopts)))
    repository_ctx.file("defs.bzl", "CUDA_TOOLKIT = %s\n" % repr(str(toolkit) if toolkit else ""))

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    doc = "Finds the toolkit by BK_JAX_CUDA_PATH, or by nvcc on PATH; re-runs when either changes.",
    environ = ["BK_JAX_CUDA_PATH", "PATH"],
    local = True,
)
