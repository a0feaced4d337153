"""Summing: from what one back-propagation kept to norms, factors and clipped sums.

| module | does |
|---|---|
| `clipped_sum` | the flow for one batch |
| `blocks` | one weight: what is kept of it, its norms, its sum |
| `norms` | norms of all blocks, added up over devices once |
| `microbatch` | a large batch as a scan over small ones |
"""
