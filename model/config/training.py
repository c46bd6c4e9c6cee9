"""`[training]` of every recipe."""

from model.config.schema import Count, CountOrZero, Fraction, NotNegative, Positive, Section


class TrainingConfig(Section):
    """Optimiser and schedule: AdamW with linear warm-up and cosine decay to zero."""

    epochs: Count
    batch_size: Count
    batches_per_step: Count = 1
    """Number of batches whose gradients are averaged in one step, which takes less memory than one larger batch."""
    learning_rate: Positive
    examples_per_epoch: CountOrZero = 0
    """Number of examples drawn per epoch; 0 uses all."""
    weight_decay: NotNegative = 0.01
    beta2: Fraction = 0.999
    """Decay of AdamW's mean of squared gradients. With 0.999, a row of a table that few documents use has a small mean,
    so that a single document moves it far; with 0.98 less."""
    warmup_steps: CountOrZero = 0
    max_grad_norm: Positive = 1.0
    """Maximum global norm of the gradients; larger ones are clipped."""
    patience: CountOrZero = 0
    """Stop after this number of epochs without a better validation value; 0 disables early stopping."""
