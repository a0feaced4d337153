"""Stands in for `nvidia-smi` in a rehearsal: the same lines, of a device that is not there."""

import sys

LIST = "GPU 0: emulated device (UUID: GPU-00000000-0000-0000-0000-000000000000)"
# In the order of check.FIELDS: MiB, MHz.
QUERY = "emulated device, 580.00.00, 8.0, 1024, 1024, 0, 0, 0, [N/A], [N/A], [N/A], [N/A]"


if __name__ == "__main__":
    print(LIST if "--list-gpus" in sys.argv else QUERY)
