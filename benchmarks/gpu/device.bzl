"""Programs that run on a GPU, and the same ones on the emulated device."""

load("//custom_calls/cuda:nvcc.bzl", "KERNELS", "ONLY_WITH_CUDA")

_KERNELS = ["//custom_calls/cuda:" + name for name in KERNELS]

def device_program(name, kernels = [], deps = []):
    """device/`name`.cc as `name` and, with emulated kernels, `name`_emulated."""
    native.cc_library(
        name = name + "_main",
        testonly = 1,
        srcs = ["device/%s.cc" % name],
        target_compatible_with = ONLY_WITH_CUDA,
        deps = deps + [
            ":device_headers",
            ":options",
            "@cuda//:runtime",
        ],
        alwayslink = 1,
    )
    for suffix, device in [("", ":gpu_device"), ("_emulated", ":emulated_device")]:
        native.cc_binary(
            name = name + suffix,
            testonly = 1,
            tags = ["no_sanitizer"],
            visibility = ["//tests:__subpackages__"],
            target_compatible_with = ONLY_WITH_CUDA,
            deps = [":%s_main" % name, device] + [kernel + suffix for kernel in _KERNELS + kernels],
        )
