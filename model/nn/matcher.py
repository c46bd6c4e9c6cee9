"""Dual encoder for pairs of documents. Used by `model.tasks.matching`."""

import copy
import math
from typing import ClassVar, TypeVar

import torch
from torch import Tensor, nn

from artifact.documents import WORD_FIELDS
from model.config.models import MatcherConfig
from model.nn.encoder import Blocks, masked_mean
from model.nn.joint import JointView, WordSketch
from model.nn.lexical import LexicalHead, LexicalView
from model.nn.stem import NgramStem

_Module = TypeVar("_Module", bound=nn.Module)


def _sharing(module: _Module) -> _Module:
    """A copy of a module that shares its parameters and buffers."""
    return copy.deepcopy(module, {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())})


class DocumentEncoder(nn.Module):
    """Raw bytes -> one vector: the mean of n-gram tokens, plus the gated output of an S3Attention encoder over them.

    x = scale * stem(document);  v = mean_t(x_t) + gate * mean_t(LN(blocks(x))_t);  u = (v - mean) / deviation;
    out = u / sqrt(mean_c(u_c^2))

    mean_t is over the tokens that contain bytes of the document, mean_c over the features. `standardise` computes
    `scale`, and `mean` and `deviation` of v, from training documents.

    Shape:      document (B, N) uint8, zero-padded to N = max_length; lengths (B,) int32; returns (B, C).
    Reference:  blocks: Wang et al. 2024, arXiv:2408.08567, Figure 1; stem: model.nn.stem.
    Deviates:   stem of n-grams in patches instead of bytes. The mean is over real tokens, in every mode of the encoder.
    """

    scale: Tensor
    mean: Tensor
    deviation: Tensor

    def __init__(self, config: MatcherConfig) -> None:
        super().__init__()
        encoder, stem = config.required_encoder, config.required_stem
        self.patch_length = stem.patch_length
        self.stem = NgramStem(stem.sizes, stem.num_buckets, stem.patch_length, encoder.seq_len, encoder.dim)
        self.dropout = nn.Dropout(encoder.dropout.embedding)
        self.blocks = Blocks(encoder)
        self.norm = nn.LayerNorm(encoder.dim)
        self.gate = nn.Parameter(torch.full((encoder.dim,), 0.1))
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("mean", torch.zeros(encoder.dim))
        self.register_buffer("deviation", torch.ones(encoder.dim))

    def for_cuda(self) -> "DocumentEncoder":
        """The same encoder for an export to CUDA. It shares the parameters."""
        other = _sharing(self)
        other.stem.avoids_int8 = True
        return other

    def pooled(self, document: Tensor, lengths: Tensor) -> Tensor:
        """Vector before standardisation: (B, N) -> (B, C)."""
        x = self.stem(document, lengths) * self.scale  # (B, T, C)
        count = (lengths + self.patch_length - 1) // self.patch_length  # (B,)
        context = self.norm(self.blocks(self.dropout(x), count))  # (B, T, C)
        return masked_mean(x + self.gate * context, count)

    def forward(self, document: Tensor, lengths: Tensor) -> Tensor:
        """Encode (B, N) bytes -> (B, C)."""
        v = (self.pooled(document, lengths) - self.mean) / self.deviation
        return v * torch.rsqrt(v.square().mean(dim=1, keepdim=True) + 1e-6)

    @torch.no_grad()
    def standardise(self, document: Tensor, lengths: Tensor) -> None:
        """Compute scale, mean and deviation from training documents: (B, N) bytes, B of several hundred."""
        tokens = self.stem(document, lengths)  # (B, T, C)
        self.scale.fill_(float(1 / tokens.std()))
        v = self.pooled(document, lengths)
        self.mean.copy_(v.mean(dim=0))
        self.deviation.copy_(v.std(dim=0))


class MatchingHead(nn.Module):
    """Logit that two documents match.

    logit = w (a * b) + c + W_2 drop(relu(W_1 [a; b; a * b; a - b]))

    Shape:      a, b (B, C); returns (B, 1).
    Reference:  features and MLP: head of the published Long Range Arena code for Retrieval.
    Deviates:   the linear term w (a * b) is ours. W_2 = 0 initially, so that the initial logit is a scaled cosine
                similarity.
    """

    def __init__(self, config: MatcherConfig) -> None:
        super().__init__()
        encoder = config.required_encoder
        dim = encoder.dim
        self.bilinear = nn.Linear(dim, 1)
        nn.init.constant_(self.bilinear.weight, 3 / math.sqrt(dim))
        nn.init.zeros_(self.bilinear.bias)
        last = nn.Linear(config.head_dim, 1)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        dropout = nn.Dropout(encoder.dropout.hidden)
        self.mlp = nn.Sequential(nn.Linear(4 * dim, config.head_dim), nn.ReLU(), dropout, last)

    @torch.no_grad()
    def rescale(self, scale: float, shift: float) -> None:
        """Replace the logit by scale * logit + shift, folded into the weights."""
        last = self.mlp[3]
        assert isinstance(last, nn.Linear)
        for parameter in (self.bilinear.weight, self.bilinear.bias, last.weight, last.bias):
            parameter.mul_(scale)
        self.bilinear.bias.add_(shift)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Logit (B, 1) of the vectors a and b, both (B, C)."""
        features = torch.cat((a, b, a * b, a - b), dim=-1)  # (B, 4C)
        return self.bilinear(a * b) + self.mlp(features)  # type: ignore[no-any-return]

    def between(self, a: Tensor, b: Tensor) -> Tensor:
        """Logits (P, Q) of each of the vectors a (P, C) with each of b (Q, C)."""
        shape = len(a), len(b), a.shape[1]
        logits: Tensor = self(a.unsqueeze(1).expand(shape), b.unsqueeze(0).expand(shape))
        return logits.squeeze(-1)


class Matcher(nn.Module):
    """Encoder and head, trained jointly. They are exported as two graphs so that each text is encoded once."""

    rates: ClassVar[dict[str, float]] = {"encoder.stem.weight": 40.0}
    """Learning rate multipliers by parameter prefix. A row of the table receives gradients in few steps."""

    def __init__(self, config: MatcherConfig) -> None:
        super().__init__()
        self.encoder = DocumentEncoder(config)
        self.head = MatchingHead(config)

    def forward(self, document: Tensor, lengths: Tensor) -> Tensor:
        """Encode (B, N) bytes -> (B, C)."""
        return self.encoder(document, lengths)  # type: ignore[no-any-return]

    @torch.no_grad()
    def quantise(self) -> None:
        """Quantise the table. For export; the model cannot be trained after it."""
        self.encoder.stem.quantise()


class ViewsEncoder(nn.Module):
    """The vectors of a document, one after the other, followed by the words for the joint view.

    Shape:  document (B, N) uint8; lengths (B,) int32; returns (B, C), C the sum of the lengths of the vectors and of
            the words, WORD_FIELDS each.
    """

    def __init__(self, lexical: LexicalView, learned: DocumentEncoder | None, sketch: WordSketch | None) -> None:
        super().__init__()
        self.lexical, self.learned, self.sketch = lexical, learned, sketch

    def for_cuda(self) -> "ViewsEncoder":
        """The same encoder for an export to CUDA. It shares the parameters."""
        learned = None if self.learned is None else self.learned.for_cuda()
        return ViewsEncoder(self.lexical.with_fixed_shapes(), learned, self.sketch)

    def forward(self, document: Tensor, lengths: Tensor) -> Tensor:
        """Encode (B, N) bytes -> (B, C)."""
        words = self.lexical.find(document, lengths)
        parts = [self.lexical.project(document, lengths, words)]
        if self.learned is not None:
            parts.append(self.learned(document, lengths))
        if self.sketch is not None:
            parts.append(self.sketch(words, document.shape[0]).flatten(1))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


class ViewsHead(nn.Module):
    """Weighted sum of the logits of the views, plus a bias. `JointView` holds its own weight.

    Shape:      a, b (B, C), encodings as in `ViewsEncoder`; returns (B, 1).
    Reference:  weights fitted on held-out data: stacked generalisation, Wolpert 1992, Neural Networks 5(2).
    """

    weights: Tensor
    bias: Tensor

    def __init__(self, config: MatcherConfig) -> None:
        super().__init__()
        assert config.lexical_view is not None
        self.dims = config.lexical_view.total_dim, config.dim
        self.lexical = LexicalHead(config.lexical_view)
        self.learned = MatchingHead(config) if config.has_encoder else None
        self.joint = None
        if config.joint_view is not None:
            self.joint = JointView(config.joint_view, config.lexical_view.num_ngrams)
        self.register_buffer("weights", torch.tensor([1.0, 0.0]))
        self.register_buffer("bias", torch.zeros(1))

    def for_cuda(self) -> "ViewsHead | None":
        """A head that shares the parameters and reads all places, so that CUDA need not wait for the number of words.

        None if this one does.
        """
        if self.joint is None or self.joint.has_fixed_shapes:
            return None
        other = _sharing(self)
        assert other.joint is not None
        other.joint.has_fixed_shapes = True
        return other

    @torch.no_grad()
    def rescale(self, scale: float, shift: float) -> None:
        """Replace the logit by scale * logit + shift, folded into the weights."""
        self.weights.mul_(scale)
        self.bias.mul_(scale).add_(shift)
        if self.joint is not None:
            self.joint.weight.mul_(scale)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Logit (B, 1) of the encodings a and b, both (B, C)."""
        first, second = self.dims
        logit: Tensor = self.weights[0] * self.lexical(a[..., :first], b[..., :first]) + self.bias
        if self.learned is not None:
            logit = logit + self.weights[1] * self.learned(a[..., first:second], b[..., first:second])
        if self.joint is not None:
            words = (torch.unflatten(x[..., second:], -1, (-1, WORD_FIELDS)) for x in (a, b))
            logit = logit + self.joint(*words)
        return logit


class ViewsMatcher(nn.Module):
    """Matcher in up to three views, which are fitted one after the other.

    Its graphs are those of `Matcher`: encoder and head.
    """

    def __init__(self, config: MatcherConfig) -> None:
        super().__init__()
        assert config.lexical_view is not None
        sketch, prefix_length = None, 0
        if config.joint_view is not None:
            sketch = WordSketch(config.joint_view.num_words, config.lexical_view.num_ngrams)
            prefix_length = config.joint_view.prefix_length
        learned = DocumentEncoder(config) if config.has_encoder else None
        self.encoder = ViewsEncoder(LexicalView(config.lexical_view, prefix_length), learned, sketch)
        self.head = ViewsHead(config)

    def forward(self, document: Tensor, lengths: Tensor) -> Tensor:
        """Encode (B, N) bytes -> (B, C)."""
        return self.encoder(document, lengths)  # type: ignore[no-any-return]

    @torch.no_grad()
    def join(self, learned: Matcher) -> None:
        """Take over the encoder and the head of a trained matcher."""
        assert self.encoder.learned is not None
        assert self.head.learned is not None
        self.encoder.learned.load_state_dict(learned.encoder.state_dict())
        self.head.learned.load_state_dict(learned.head.state_dict())

    @torch.no_grad()
    def quantise(self) -> None:
        """Quantise the tables. For export; the model cannot be trained after it."""
        self.encoder.lexical.quantise()
        if self.encoder.learned is not None:
            self.encoder.learned.stem.quantise()
        if self.head.joint is not None:
            self.head.joint.quantise()
