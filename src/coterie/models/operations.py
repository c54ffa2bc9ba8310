"""Operations of any module, by torch's own counter; what that does not know is named.

Products of matrices count, forward and backward: linear layers, convolutions, recurrent layers and
attention. Norms, pooling, activations, look-ups and sums are no products, and count nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

Shape = Sequence[int]

# Operators without a product of matrices that torch does not mark as such.
NAMES = """
_adaptive_avg_pool2d _adaptive_avg_pool3d _adaptive_max_pool2d _conj _embedding_bag
_fused_dropout _fused_rms_norm _linalg_check_errors _local_scalar_dense _log_softmax
_log_softmax_backward_data _native_batch_norm_legit _native_batch_norm_legit_no_training
_neg_view _pad_circular _prelu_kernel _reshape_alias _safe_softmax _softmax
_softmax_backward_data _to_copy _unique2 _unsafe_index _unsafe_index_put _unsafe_view
_weight_norm_interface adaptive_max_pool2d adaptive_max_pool3d alias arange argmax argmin
argsort as_strided avg_pool2d avg_pool3d batch_norm bernoulli broadcast_tensors bucketize cat
col2im constant_pad_nd copy cumprod cumsum detach diagonal diagonal_scatter dropout embedding
embedding_dense embedding_renorm empty empty_like empty_permuted empty_strided equal eye fill
flip fractional_max_pool2d fractional_max_pool3d full full_like gather glu hardswish histc
im2col index index_add index_copy index_fill index_put index_select isin item kthvalue lift
lift_fresh lift_fresh_copy linspace logcumsumexp logsumexp masked_fill masked_scatter
masked_select max_pool2d_with_indices max_pool3d_with_indices max_unpool2d max_unpool3d median
mode nanmedian native_batch_norm native_dropout native_group_norm native_layer_norm new_empty
new_empty_strided new_full new_ones new_zeros nll_loss nll_loss2d nll_loss2d_forward
nll_loss_forward nonzero normal one_hot ones ones_like pixel_shuffle pixel_unshuffle rand
rand_like randint randint_like randn randn_like randperm reflection_pad1d reflection_pad2d
renorm repeat replication_pad1d replication_pad2d resize roll rrelu_with_noise scalar_tensor
scatter scatter_add scatter_reduce searchsorted select select_scatter set slice slice_scatter
sort split_with_sizes squeeze stack std_mean swapdims t topk trace transpose tril triu unbind
unfold uniform unsafe_split unsafe_split_with_sizes unsqueeze upsample_bicubic2d
upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d var_mean where
zero zeros zeros_like
"""
FREE = frozenset(NAMES.split())
LIGHT = torch.Tag.pointwise, torch.Tag.reduction


@dataclass(frozen=True)
class Operations:
    """Operations of one example forward and backward, and the operators that do not count in it."""

    flops: int
    unknown: tuple[str, ...] = ()


def count_operations(model: nn.Module, x: Tensor) -> Operations:
    """Count the operations of a batch x [B, ...], by the example; the model stays as it was.

    Backward is made for what is trained, and for what comes in if it has a gradient.
    """
    before = {name: v.clone() for name, v in _tensors(model)}
    seen = _Seen()
    counter = FlopCounterMode(display=False, custom_mapping=OURS)
    x = x.clone().requires_grad_(x.is_floating_point())
    # Attention in one piece is no product that the counter knows; written out, it is two.
    with torch.random.fork_rng(devices=[]), sdpa_kernel(SDPBackend.MATH), seen, counter:
        scores = model(x.clone())  # a layer may work in place, which a leaf does not allow
        rows = scores.flatten(0, -2)
        torch.autograd.backward(cross_entropy(rows, torch.zeros_like(rows[:, 0]).long()))
    with torch.no_grad():
        for name, v in _tensors(model):
            if name in before and before[name].shape == v.shape:  # or it was made on the way
                v.copy_(before[name])
    model.zero_grad()
    counted = {str(op) for op in counter.flop_registry}
    unknown = sorted(name for name in seen.names if name not in counted)
    return Operations(int(counter.get_total_flops()) // len(x), tuple(unknown))


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield parameters and buffers by name, those too that are in no state_dict."""
    yield from model.named_parameters()
    yield from model.named_buffers()


class _Seen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Collects the operators that ran, but for those without a product."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        if not _is_free(func):
            self.names.add(str(func.overloadpacket))
        return func(*args, **(kwargs or {}))


def _is_free(func: Any) -> bool:
    """Whether an operator, or what it is the gradient of, has no product of matrices.

    >>> _is_free(torch.ops.aten.tanh_backward.default), _is_free(torch.ops.aten.mm.default)
    (True, False)
    """
    if func.is_view or any(tag in func.tags for tag in LIGHT):
        return True
    namespace, _, name = str(func.overloadpacket).partition(".")
    bare = name.removesuffix("_").removesuffix("_backward")
    if namespace != "aten" or bare in FREE:
        return namespace == "aten"
    forward = getattr(torch.ops.aten, bare, None) if bare != name else None
    return forward is not None and _is_free(getattr(forward, forward.overloads()[0]))


def _rnn(x: Shape, w: Shape, *rest: Any, out_shape: object = None, **named: object) -> int:
    """Operations of a recurrent layer: x [L, B, in] by [gates, in], and its state by [gates, out].

    >>> _rnn((7, 2, 8), (64, 8), (64, 16))
    43008
    """
    places, (gates, wide), (_, back) = prod(x[:2]), w, rest[0]
    return int(2 * places * gates * (wide + back))


def _rnn_back(x: Shape, w: Shape, *rest: Any, out_shape: object = None, **named: object) -> int:
    return 2 * _rnn(x, w, *rest)


def _convolution_back(dy: Shape, x: Shape, w: Shape, *rest: Any, out_shape: object = None) -> int:
    """Operations of a convolution's gradients; torch counts those in groups as if there were none.

    >>> rest = (None, (2, 2), (1, 1), (1, 1), False, (0, 0), 2, [True, True, False])
    >>> _convolution_back((2, 8, 2, 2), (2, 4, 4, 4), (8, 2, 3, 3), *rest)
    4608
    """
    forward = conv_flop_count(list(x), list(w), list(dy), transposed=bool(rest[4]))
    return int(forward) * int(sum(rest[7][:2]))


OURS = {
    torch.ops.aten.mkldnn_rnn_layer: _rnn,
    torch.ops.aten.mkldnn_rnn_layer_backward: _rnn_back,
    torch.ops.aten.convolution_backward: _convolution_back,
}
