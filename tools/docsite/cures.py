"""What to do about messages that do not say it themselves: the beginning of a message, and its cure."""

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
    "noise": "random",
    "optimizers": "updates",
    "prefixes": "validate",
    "relations": "privacy",
    "scaling": "validate",
    "summing": "ops",
}

_DAMAGED = (
    "The file is not as bk_jax wrote it. Restore the ledger from a copy that is at least as new as the "
    "last step; a ledger that lost steps would count too little, which is why it is refused."
)
_BUG = "Please report it: this should not happen, and nothing was released."
_NOT_HLO = (
    "Pass a file that XLA dumped (`--xla_dump_to`), the text of a compiled program, or the object that "
    "`jax.jit(f).lower(...)` returns. If it is one, the file is cut off or damaged: dump it again."
)
_OTHER = "Write one of the names in the list."

CURES = {
    # the package
    "module {__name__} has no attribute": "Look the name up in the API reference; `dir()` lists them.",
    "squared norms alone": _BUG,
    "layers are together": _BUG,
    "bk_jax left out the parameters": _BUG,
    # planning
    "unknown route": _OTHER,
    "parameters {names} are one weight": "Ask for the same route for all of them, or for one of them.",
    "parameter {names} is used as": "Ask for one of the routes that it can take.",
    "route {route} of pattern": _OTHER,
    "route pattern {pattern} matches": "Write a pattern that fits one of the paths, such as `*/kernel`.",
    # options and arguments
    "the batch has no arrays": "Point batch_argnums to the argument that holds the examples.",
    "an argument cannot have two roles": "Give every position one role: parameters, batch, or key.",
    "batch arrays disagree": "Give all arrays of the batch one row per example.",
    "no custom call of bk_jax": "Install the native part: `bk_jax.diagnose()` says what is there.",
    # audit
    "{found} An audit cannot": "Pass it as an argument; if it is public, audit another batch size.",
    "right guesses are some": "Pass counts with right <= guesses <= canaries.",
    "the batch has no example": "Audit with a batch of two examples or more.",
    "options of a loss": "Leave them out, or leave out bound and pass the loss itself.",
    "options {options} belong": "Leave them out: the function was made with options of its own.",
    # bk-hlo
    "no module is named": _OTHER,
    "{name} has no instruction": "Take a name from the table of `bk-hlo FILE`, or from the page.",
    "neither HLO text": _NOT_HLO,
    "not a regular file": "Pass the path of a file, or a folder that XLA dumped into.",
    "the file is empty": _NOT_HLO,
    "{size} bytes are more": "Dump one module alone, or read the text form of it.",
    "a protocol buffer without": _NOT_HLO,
    "{ending} should be text": _NOT_HLO,
    "a size is known only": "Compile for sizes that are known: bk-hlo counts bytes and flops.",
    "an array of the sizes": _NOT_HLO,
    "no program": _NOT_HLO,
    "{reader} refers to": _NOT_HLO,
    "not a protocol buffer": _NOT_HLO,
    "computation {name} has no root": _NOT_HLO,
    "functions nest deeper": _NOT_HLO,
    "{name} does not fit": _NOT_HLO,
    "{name} calls {called}": _NOT_HLO,
    # other libraries
    "the model is private already": "Call fit again to go on with its ledger, or build a new model.",
    "compile the model before fit": "Call model.compile(optimizer, loss), then fit.",
    # mechanisms and parts
    "no selected parameter can be adapted": "Select weights of products; the list says why not.",
    "match selects parameters that": "Write a pattern that leaves these parameters out.",
    "AdaptiveClipping was made for": "Make it for as many groups as the clip norms have.",
    "{what} no parameter": "Write a pattern that fits one of the paths.",
    # plans and ledgers
    "give either epochs or steps": "Pass one of the two, and leave the other out.",
    "a ledger can keep one of": "Pass a plan from privacy.plan, a PrivacyPlan or a CorrelatedPlan.",
    "a record that makes no sense": _DAMAGED,
    "not a ledger": "Pass the path of a ledger, or of a file that does not exist yet.",
    "batch_size {value} exceeds": "Choose a batch size of at most num_examples.",
    "the plan has {steps} steps": "Take a number of steps within the plan, or make a plan with more.",
    "it is no regular file": _DAMAGED,
    "it has {st_size} bytes": _DAMAGED,
    "{where} has a key already": "Leave the key out; the ledger goes on with its own.",
    "no step has been taken": "Take a step first: `for step in ledger`.",
    "step {number} was asked for": "Take the steps in order, each once: `for step in ledger`.",
    "{path} was started by another": "Let one process keep the ledger, or give each run a file.",
    "the checkpoint belongs to another": "Resume with the ledger of that run, or start a new run.",
    "two records that": _DAMAGED,
    "it has {content} bytes": _DAMAGED,
    "a record in the other": _DAMAGED,
    "a plan of the kind": "Open the ledger with the version of bk_jax that wrote it, or a later one.",
    "group_size {size} exceeds": "Choose a group of at most num_examples.",
    "a checksum that does": _DAMAGED,
    "a record that bk_jax": _DAMAGED,
    "another format": "Open the ledger with the version of bk_jax that wrote it, or a later one.",
    # batches
    "host {index} of {count}": "Number the hosts from 0 to count - 1.",
    "the data has {size} examples": "Make the plan with num_examples of this data.",
    "there are {size} user_ids": "Pass one user id for each example of the data.",
    # the trainer
    "it does not say": "The checkpoint is damaged: resume from an earlier one in the same folder.",
    "{numbers} are not all numbers": "Return numbers from the evaluation function.",
}
