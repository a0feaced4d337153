"""A static cycle model: what the machine code of a kernel for GPUs can reach, without a GPU.

| module | |
|---|---|
| `sass` | instructions and basic blocks of what `cuobjdump -sass` prints |
| `loops` | loops, those that do the work, and the way through one turn |
| `opcodes` | what each instruction takes: pipe, products, bytes |
| `counts` | issue slots, tensor cores, wavefronts and bytes of one turn of a loop |
| `banks` | bank conflicts of shared memory, where addresses follow from the thread's number |
| `gates` | what the main loops of dense kernels must keep to |
| `limits` | how many instructions each may have, and what it is let through |
| `architectures` | A100, H100, B200: rates and sizes |
| `model` | the cap of a kernel, and the time of a shape |
| `traffic` | bytes of memory that a product in tiles reads |
| `compiled` | kernels out of archives and cubins |
| `published`, `validate` | kernels of others whose rates are known, and the model beside them |
| `noise` | the turn of the kernel that adds noise |
| `kernels` | our kernels: names in the machine code, tiles; what was read of them |
| `calls` | seconds of our operations on dense layers, noise |
| `steps` | steps of whole models from it, private over plain |
| `images` | convolutions, gathered and from patches; steps of networks of them |
| `whatif` | clusters of blocks: code that does not exist |
| `predict` | operations of the sweep, for the report of the day with a GPU |
| `tables`, `document` | Markdown, and docs/gpu_kernels.md and gpu_model.md |
"""
