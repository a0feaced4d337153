"""A static cycle model: what the machine code of a kernel for GPUs can reach, without a GPU.

| module | |
|---|---|
| `sass` | instructions and basic blocks of what `cuobjdump -sass` prints |
| `loops` | loops, and the main ones: innermost with products |
| `opcodes` | what each instruction takes: pipe, products, bytes |
| `counts` | issue slots, tensor cycles, wavefronts and bytes of one turn of a loop |
| `banks` | bank conflicts of shared memory, where addresses follow from the thread's number |
| `gates` | what the loops of dense kernels must keep to |
| `architectures` | A100, H100, B200: rates and sizes |
| `model` | the cap of a kernel, and the time of a shape |
| `kernels` | our kernels: names in the machine code, tiles, and what a call of each computes |
| `steps` | steps of whole models from it, private over plain |
"""
