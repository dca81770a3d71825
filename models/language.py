"""A small language model of bytes: the network `gpt`, the data `text` and the task `language`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from distrain.models import files
from distrain.models.data import Data, TensorData
from distrain.models.errors import TaskError
from distrain.models.task import Sums, Task

BYTES = 256
INIT_STD = 0.02  # of the weights, as in GPT-2


class GPT(nn.Module):
    """A decoder-only transformer with learned positions and tied embeddings.

    Takes bytes as integers, N × T with T up to `context`, and returns logits, N × T × `classes`.
    Blocks normalise their inputs (Radford et al., "Language Models are Unsupervised Multitask
    Learners", 2019).
    """

    def __init__(
        self, classes: int, context: int, layers: int, width: int, heads: int, dropout: float
    ) -> None:
        super().__init__()
        self.token = nn.Embedding(classes, width)
        self.position = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        blocks = [Block(width, heads, dropout) for _ in range(layers)]
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(width)
        self.apply(_initialise)
        for block in blocks:  # each adds to the residual stream twice
            for last in (block.attention.out, block.shrink):
                nn.init.normal_(last.weight, std=INIT_STD / math.sqrt(2 * layers))

    def forward(self, tokens: Tensor) -> Tensor:
        positions = self.position.weight[: tokens.shape[1]]
        hidden = self.norm(self.blocks(self.dropout(self.token(tokens) + positions)))
        return F.linear(hidden, self.token.weight)

    def count_flops(self, tokens: int) -> int:
        """Return the floating-point operations of forward and backward for so many tokens.

        6 for each weight and token, and for attention 12 · layers · width · tokens for each token
        (Chowdhery et al., "PaLM", 2022, appendix B).
        """
        weights = sum(weight.numel() for weight in self.parameters()) - self.position.weight.numel()
        attention = 12 * len(self.blocks) * self.token.embedding_dim * tokens
        return (6 * weights + attention) * tokens


class Block(nn.Module):
    """Attention and two linear layers, each added to its input."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.norm_2 = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.shrink = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.norm_1(hidden))
        wide = F.gelu(self.widen(self.norm_2(hidden)))
        result: Tensor = hidden + self.dropout(self.shrink(wide))
        return result


class Attention(nn.Module):
    """Causal self-attention with several heads, N × T × width."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = nn.Dropout(dropout)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(hidden).chunk(3, dim=2)
        )
        dropout = self.dropout.p if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        result: Tensor = self.dropout(self.out(mixed.transpose(1, 2).flatten(2)))
        return result


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=INIT_STD)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)


def gpt(
    *,
    shape: Sequence[int],
    classes: int,
    layers: int = 4,
    width: int = 128,
    heads: int = 4,
    context: int | None = None,
    dropout: float = 0.0,
) -> nn.Module:
    """Make a GPT of `layers` blocks for the tokens of `shape`: (length,).

    `context` is the longest input; by default the length of a sample.
    """
    if len(shape) != 1:
        problem = f"gpt takes tokens, but the samples are {'×'.join(map(str, shape))}; use cnn"
        raise TaskError("model.name", problem)
    context = shape[0] if context is None else context
    if context < shape[0]:
        problem = f"context is {context}, and the samples have {shape[0]} tokens"
        raise TaskError("model.args", problem)
    if min(layers, width, heads) < 1 or width % heads:
        problem = f"width must be a multiple of heads, not {width} of {heads}, and layers 1 or more"
        raise TaskError("model.args", problem)
    if not 0 <= dropout < 1:
        raise TaskError("model.args", f"dropout must be at least 0 and below 1, not {dropout}")
    return GPT(classes, context, layers, width, heads, dropout)


class Windows(TensorData):
    """A text as (bytes, next bytes), windows of `context` bytes that follow each other.

    Each byte but the first is predicted once.
    """

    def __init__(self, text: Tensor, context: int) -> None:
        ends = len(text) - (len(text) - 1) % context
        super().__init__(text[: ends - 1].view(-1, context), text[1:ends].view(-1, context))

    def __getitems__(self, keys: Sequence[Any]) -> tuple[Tensor, Tensor]:
        inputs, targets = super().__getitems__(keys)
        return inputs.long(), targets.long()


def text(*, root: str | None, context: int = 64, holdout: float = 0.1) -> Data:
    """Read the file `root` as bytes; by default the documentation that Python itself contains.

    The last `holdout` of it is for evaluation. A sample is `context` bytes and those that follow
    each of them.
    """
    if context < 1:
        raise TaskError("data.args", f"context must be 1 or more, not {context}")
    if not 0 < holdout < 1:
        raise TaskError("data.args", f"holdout must be between 0 and 1, not {holdout}")
    content = _read(files.text_file(root)) if root else files.python_documentation()
    # Not with torch.frombuffer, which refuses an empty text.
    tokens = torch.from_numpy(np.frombuffer(content, np.uint8).copy())
    kept = len(tokens) - int(holdout * len(tokens))
    train = Windows(tokens[:kept], context)
    held_out = Windows(tokens[kept:], context)
    if not (len(train) and len(held_out)):
        what = root or "the text"
        problem = f"{what} has {len(tokens):,} bytes: too few for windows of {context}"
        raise TaskError("data.args", problem)
    return Data(train=train, eval=held_out, classes=BYTES, shape=(context,))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TaskError("data.root", f"cannot read {path}: {error.strerror}") from None


class Language(Task):
    """Predict the next token of (tokens, next tokens) batches, both N × T.

    Evaluated by the mean loss of a token (in nats), and what follows from it: the perplexity, and
    for tokens that are bytes the bits per byte.
    """

    item = "token"

    def __init__(self, model: nn.Module, data: Data) -> None:
        self.model = model
        self.train = data.train
        self.eval = data.eval
        self.finish = data.finish
        self.items_per_sample = len(data.train[0][0])
        if isinstance(model, GPT):
            self.flops_per_sample = model.count_flops(self.items_per_sample)
        self.is_bytes = data.classes == BYTES

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        tokens, targets = batch
        return F.cross_entropy(model(tokens).flatten(0, 1).float(), targets.flatten())

    def metrics(self, model: nn.Module, batch: Any) -> Sums:
        tokens, targets = batch
        logits = model(tokens).flatten(0, 1).float()
        losses = F.cross_entropy(logits, targets.flatten(), reduction="none")
        return {"loss": (losses.double().sum(), targets.numel())}

    def derived(self, means: Mapping[str, float]) -> dict[str, float]:
        loss = means["loss"]
        found = {"perplexity": perplexity(loss)}
        if self.is_bytes:
            found["bits_per_byte"] = loss / math.log(2)
        return found


def perplexity(loss: float) -> float:
    """Return e to the mean loss of a token, which may be infinite."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf
