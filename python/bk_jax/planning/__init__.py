"""Planning: what to do with each parameter, why, and at what cost.

| module | does |
|---|---|
| `methods`, `routes` | the systems of the paper, and routes forced by path |
| `cost`, `flops` | operation counts and bytes by shape |
| `plan` | a route for every parameter, or a tap on it |
| `equal` | layers of one shape, which have one call on a GPU |
| `devices`, `target` | data sheets of GPUs, and the device that a plan is for |
| `explain` | the plan as a table |
"""
