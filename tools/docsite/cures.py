"""What to do about messages that do not say it themselves: the beginning of a message, and its cure."""

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
    "module {module} has no attribute": (
        "Look the name up in the API reference; `dir()` lists them."
    ),
    "squared norms alone": _BUG,
    "layers are together": _BUG,
    "bk_jax left out the parameters": _BUG,
    # mechanisms
    "bands must be at most steps": (
        "Use fewer bands, or plan more steps: draws further back than the run is long do not exist."
    ),
    "max_buffers must be at most": "Pass fewer buffers; two or three are enough for most runs.",
    "adaptive must be a": "Pass the `AdaptiveClipping` object itself, not a number or its class.",
    # planning
    "unknown route": _OTHER,
    "parameters {names} are one weight": (
        "Ask for the same route for all of them, or for one of them."
    ),
    "parameter {names} is used as": "Ask for one of the routes that it can take.",
    "route {route} of pattern": _OTHER,
    "route pattern {pattern} matches": (
        "Write a pattern that fits one of the paths, such as `*/kernel`."
    ),
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
    "the model is private already": (
        "Call fit again to go on with its ledger, or build a new model."
    ),
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
    "the plan has {steps} steps": (
        "Take a number of steps within the plan, or make a plan with more."
    ),
    "it is no regular file": _DAMAGED,
    "it has {number} bytes, and": _DAMAGED,
    "{where} has a key already": "Leave the key out; the ledger goes on with its own.",
    "no step has been taken": "Take a step first: `for step in ledger`.",
    "step {number} was asked for": "Take the steps in order, each once: `for step in ledger`.",
    "{path} was started by another": "Let one process keep the ledger, or give each run a file.",
    "the checkpoint belongs to another": "Resume with the ledger of that run, or start a new run.",
    "two records that": _DAMAGED,
    "it has {number} bytes instead": _DAMAGED,
    "a record in the other": _DAMAGED,
    "a plan of the kind": (
        "Open the ledger with the version of bk_jax that wrote it, or a later one."
    ),
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
    # by hand, where the message only restates what it asks for
    "trials must be at least 2": "Pass more trials: 1000 or so, as each run gives one.",
    "need 0 <= delta < 1 and 0 < confidence": (
        "Pass the delta of the plan, and a confidence such as 0.95."
    ),
    "each kind of run must give": (
        "Return one finite number from each run; look for NaN in the loss."
    ),
    "need 0 < confidence < 1, got": "Pass a share, such as 0.95 for 95 %.",
    "need 0 < confidence < 1 and at least": "Pass confidence=0.95 and resamples=1000, say.",
    "need 0 < delta < 1 and 0 <= mu": (
        "Pass the delta of the plan; a mu this large says that nothing is private."
    ),
    "guesses must be between": "Guess about as many canaries as there are, or fewer; at least one.",
    "scores and included must be": (
        "Score each canary once, and keep the mask that included them in order."
    ),
    "included must say": "Convert the mask: included.astype(bool).",
    "scores must be finite": (
        "Look for the canary whose loss is NaN or infinite; leave it out on both sides."
    ),
    "keys must be those of": "Pass several: jax.random.split(key, 4).",
    "the audit calls grad_fn": (
        "Make a grad_fn with the parameters first and the batch after them, or wrap it in a function of "
        "that order and pass bound= and noise_stddev=."
    ),
    "bound must be at least 0": (
        "Pass the sensitivity: l2_clip_norm / normalize_by for one example."
    ),
    "grad_fn must return (value": (
        "Return the pair as dp_value_and_grad does, not the gradients alone."
    ),
    "{name} must be a whole number, got": "Write an integer without a decimal point: 10, not 10.0.",
    "{name} must be a number, got": (
        "Pass a Python number, or an array of one; not text, None or a list."
    ),
    "{name} must be finite and above 0": (
        "Look where the number comes from: a division by 0, or a sign."
    ),
    "{name} must be one of {allowed}": _OTHER,
    "the explanation is not one": (
        "Pass grad_fn.explain(params, batch) of the same step, unchanged."
    ),
    "stage must be": 'Write stage="after" for what runs, stage="before" for what JAX handed over.',
    "expected a path, a jax.stages": (
        "Lower it first: hlo.load(jax.jit(step).lower(params, batch, key=key).compile())."
    ),
    "expected a positive integer": "Write digits alone, such as --batch-size 64.",
    "batch_argnums must name": (
        "Say which arguments hold examples: batch_argnums=1 for loss(params, batch)."
    ),
    "with {names}, make_private needs": (
        "Pass the missing ones, or one plan=privacy.plan(...) for all."
    ),
    "make_private has no argument": (
        "Look for a misspelling; what Keras decides is an argument of compile."
    ),
    "make_private expects a keras.Model": (
        "Build the model first; for other libraries see the page on them."
    ),
    "fit of a private model takes no": "Leave it out; what the message says takes its place.",
    "quantile must be between": "Pass the share of examples to leave unclipped, such as 0.5.",
    "on_grid expects grad_fn to be": (
        "Wrap in this order: jax.jit(on_grid(dp_value_and_grad(loss_fn)))."
    ),
    "on_grid expects a grad_fn with": "Use one tree, params={...}, and return the loss alone.",
    "noise on a grid needs": (
        "Pass a Python number outside of jit, not an argument of the jitted step."
    ),
    "BufferedToeplitz expects": (
        "Give one scale for each decay, and decays of at least 0 and below 1."
    ),
    "sampling_probability must be at most 1, got {sampling_probability}:": (
        "Choose a smaller batch_size, or fewer groups."
    ),
    "correlated expects grad_fn": (
        "Wrap in this order: correlated(dp_value_and_grad(loss_fn, ...), ...)."
    ),
    "release expects keys": (
        "Pass ledger.recent_noise_keys(noise.keys_needed) of each step, as it is."
    ),
    "correlated noise needs one": (
        "Pass a Python number when the function is made, not one that jit traces."
    ),
    "bound_squared must be": (
        "Use fewer bits, so that a clipped gradient is a smaller number of units."
    ),
    "{name} must be a list of finite": "Pass a flat list such as [1.0, 0.5, 0.25].",
    "{name} must begin with": "Put the diagonal first; it may not be 0.",
    "opt_state must be that": (
        "Make it anew: opt_state = optimizer.init(params), with this very optimizer."
    ),
    "budget must be a positive": "Pass seconds, such as budget=30.",
    "rounds must be a whole": (
        "Leave rounds out, or pass a whole number; more make the interval narrower."
    ),
    "tax returns a report": "Leave it out: tax runs the step as it is and gives no gradients back.",
    "depth must be at least": "Pass 1 for the largest modules, 2 for those inside of them.",
    "rank must be a whole": "Pass a small integer such as 4 or 8.",
    "parameter {name} is in both parts": (
        "Combine the two results of one call of partition, unchanged."
    ),
    "device must be": "Leave device out, or write a name of the list.",
    "method must be one of": 'Write method="auto", or a name of the list.',
    "expected pairs of a size": (
        "Measure again with bk_jax.overhead.calibrate(); do not edit its file."
    ),
    "expected a positive rate": (
        "Measure again with bk_jax.overhead.calibrate(); do not edit its file."
    ),
    "{name} must be a scalar or a tree whose": (
        "Pass one number for all; or a tree that stops above the parameters of a group, such as "
        '{"encoder": 1.0, "head": 0.5}.'
    ),
    "there is no ledger at": "Pass the plan as well, or correct the path.",
    "checkpoint must be what": (
        "Pass the object that Ledger.checkpoint() gave, from beside the model."
    ),
    "path must be text": "Pass a str or a Path without bytes that are no text.",
    "key must be {key_words} words": "Make one with bk_jax.random.key(), or leave it out.",
    "seed must be a whole": "Leave it out for secret noise; a seed is for tests alone.",
    "{argument} must be one of": _OTHER,
    "accumulated needs a grad_fn": (
        "Put the parameters first and the whole batch into one second argument."
    ),
    "collate_fn made an array": "Stack in it: np.stack([example[...] for example in examples]).",
    "the data must be a tree": (
        "Pass (images, labels), arrays of one length; or an object with len() and []."
    ),
    "user_ids must hold": "Pass a flat array: user_ids.reshape(-1), in the order of the data.",
    "decay must be less": "Write a share below 1, such as 0.99.",
    "canaries must be a tree": (
        "Build them like the data: the same keys and shapes but for the first axis."
    ),
    "evaluate must return": "Return a dict such as {'accuracy': float(accuracy)}.",
    "prng_argnum must be 2": "Write the loss as loss_fn(params, batch, key).",
    "optimizer must be an optax": "Call it: optax.adam(1e-3), not optax.adam.",
    "private_update expects grad_fn": "Pass grad_fn itself; private_update is what you jit.",
    "private_update expects optimizer": "Call it: bk_jax.optimizers.adam(1e-3), or one of optax.",
    "update(sums, opt_state": "Pass the sums of clipped_sums for these very parameters.",
    "l2_clip_norm must be a scalar, or": (
        "Pass float(norm), or a tree with one number for each group."
    ),
    "l2_clip_norm must be at least": "Pass the norm at which to clip, such as 1.0.",
    "loss_scale must be one": "Pass one number for the whole loss.",
    "loss_scale must be a power": "Take the nearest power of two: it scales without rounding.",
    "noise_multiplier must be finite": "Take the one of a plan: **plan.options().",
    "clipping must be one of {names}": "Write a name of the list, or pass a function of the norms.",
    "normalize_by must be": (
        "Pass the expected batch size of the plan; never the size of this batch."
    ),
    "dtype is that of": "Pass a type such as jnp.float32, or leave it out.",
    "microbatch_size must be": 'Pass a number, or "auto" with memory_limit, or leave it out.',
    "memory_limit must be": "Pass bytes as an integer, 8 * 2**30, or a share as a float, 0.7.",
    "loss_fn must return a real": (
        "Cast it: return loss.astype(jnp.float32); a gradient of integers is nothing."
    ),
    "has_aux=True expects": "Return the pair (loss, aux), or leave has_aux out.",
    "is_padding_example must be": "Pass one bool for each row: True where the row is padding.",
    "argument numbers must be": "Count arguments from 0; -1 is not the last one here.",
    "pre_clip_scale must": "Pass finite numbers above 0, in a tree like the parameters.",
    # warnings, and what an audit names as the cause
    "bk_jax runs without its native": (
        "Results are the same, slower. `bk_jax.diagnose()` says what is missing; BK_JAX_NATIVE=0 says "
        "that you know, and there is no warning then."
    ),
    "left out {problem}": "Dump that file again if its program is one you want to read.",
    "bk_jax hands this gradient": (
        "Leave the option out that is named, or take the slower gradient."
    ),
    "XLA took {seconds}": (
        "Nothing is wrong. Keep compiled programs with jax_compilation_cache_dir, and put repeated "
        "layers into jax.lax.scan."
    ),
    "Likely cause: the gradient of an": (
        "Clip each example to l2_clip_norm, and declare the bound of that norm."
    ),
    "Likely cause: is_padding_example": (
        "Pass is_padding_example on to grad_fn, or multiply by jnp.where, not by 0."
    ),
}
