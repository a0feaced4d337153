"""Sections of the list of errors."""

# Parts of the package in the order of the page, and what they are for; others follow by name.
ROOMS = {
    "validate": "Options and arguments of `dp_value_and_grad`",
    "api": "The transform",
    "program": "What the loss does",
    "planning": "Routes, methods and devices",
    "privacy": "Plans and ledgers",
    "sampling": "Batches",
    "training": "The trainer",
    "mechanisms": "Mechanisms",
    "peft": "Parts of a model",
    "audit": "Audits",
    "sharding": "Several devices",
    "interop": "Other libraries",
    "overhead": "Tax and calibration",
    "hlo": "`bk-hlo`",
    "ops": "Single operations",
    "random": "Keys",
    "updates": "`private_update` and optimizers",
    "exporting": "Steps that are exported",
    "fitting": "Memory limits",
    "checks": "Numbers, names and packages",
}
# Modules with few messages, and the section that has them.
GUESTS = {
    "__init__": "checks",
    "_extras": "checks",
    "_native": "planning",
    "first_call": "api",
    "noise": "random",
    "optimizers": "updates",
    "prefixes": "validate",
    "relations": "privacy",
    "scaling": "validate",
    "summing": "ops",
}
