"""Models of text: they read tokens, whole numbers, and score what comes next at every place."""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

EMBEDDING, UNITS, LSTM_LAYERS = 8, 256, 2  # LEAF's for Shakespeare
WIDTH, HEADS, BLOCKS = 128, 4, 2


def make_char_lstm(input_shape: tuple[int, ...], n_classes: int, tokens: bool) -> nn.Module:
    """LEAF's network for Shakespeare: an embedding of 8, two LSTM layers of 256, then dense.

    LEAF scores the character after the last place alone; this one scores every place.
    """
    _length(input_shape, tokens)
    return CharLSTM(n_classes)


class CharLSTM(nn.Module):
    """Tokens [B, L] below V to scores [B, L, V].

    >>> CharLSTM(65)(torch.zeros(2, 7, dtype=torch.int64)).shape
    torch.Size([2, 7, 65])
    """

    def __init__(self, vocabulary: int) -> None:
        """Take how many tokens there are."""
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, EMBEDDING)
        self.lstm = nn.LSTM(EMBEDDING, UNITS, LSTM_LAYERS, batch_first=True)
        self.head = nn.Linear(UNITS, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        """Score the token after each place."""
        scores: Tensor = self.head(self.lstm(self.embedding(x))[0])
        return scores


def make_transformer(input_shape: tuple[int, ...], n_classes: int, tokens: bool) -> nn.Module:
    """A small causal transformer: two blocks of width 128 with four heads, places learned."""
    return Transformer(n_classes, _length(input_shape, tokens))


class Transformer(nn.Module):
    """Tokens [B, L] below V to scores [B, L, V]; a place sees itself and those before it.

    >>> model, x = Transformer(9, 5), torch.arange(5)[None]
    >>> torch.allclose(model(x)[:, :3], model(x.clamp(max=2))[:, :3], atol=1e-5)
    True
    """

    def __init__(self, vocabulary: int, length: int) -> None:
        """Take how many tokens there are, and how many places at most."""
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(length, WIDTH))
        self.blocks = nn.Sequential(*(_Block(WIDTH, HEADS) for _ in range(BLOCKS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        """Score the token after each place."""
        h = self.embedding(x) + self.places[: x.shape[1]]
        scores: Tensor = self.head(self.norm(self.blocks(h)))
        return scores


class _Block(nn.Module):
    """Attention and two dense layers, each after a norm and beside a way past it: [B, L, width]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.asked, self.mixed = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.dense = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        B, L, width = x.shape
        split = self.asked(self.before(x)).view(B, L, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)  # [B, heads, L, width / heads] each
        seen = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mixed(seen.transpose(1, 2).reshape(B, L, width))
        out: Tensor = x + self.dense(self.after(x))
        return out


def _length(input_shape: tuple[int, ...], tokens: bool) -> int:
    """Return how many tokens an example has."""
    if not tokens or len(input_shape) != 1:
        kind = "whole numbers" if tokens else "numbers"
        raise ValueError(f"it reads a row of tokens, got {kind} of shape {list(input_shape)}")
    return input_shape[0]
