"""The encoder, its attentions and the models around it."""
