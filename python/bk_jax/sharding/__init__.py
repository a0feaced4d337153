"""Sharding: which device computes what. Knows arrays and meshes, but no layers and no privacy.

| module | does |
|---|---|
| `partition` | `jit` with shardings: operations split over a mesh |
| `manual` | inside `shard_map`: types say what differs between devices |
| `varying` | the types themselves |
| `constraints` | a loss's own `with_sharding_constraint` |
"""
