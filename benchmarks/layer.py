"""Does a layer cost more than its projections and torch's kernel? Three rivals, side by side.

    layer  MultiHeadAttention(attend=fused_attention)
    bare   the same projections around F.scaled_dot_product_attention, without a check
    torch  nn.MultiheadAttention(need_weights=False)

All have the same parameters, and are first asserted to give the same outputs and gradients.
Printed are medians of the quotients of times measured side by side, and their quartiles; below
1 the layer is the faster one. Modes: `evaluation` is a forward pass without gradients, `forward`
the same in training mode (torch's layer takes another path there), `training` forward and
backward. Needs the package alone: `python -m benchmarks.layer --help` tells the options.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import product
from statistics import median, quantiles

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.timing import interleaved, positive
from mini_attention import MultiHeadAttention, causal_mask, mask_to_torch

MODES = ("evaluation", "forward", "training")
MASKS = ("none", "causal")
Call = Callable[[], tuple[Tensor, ...]]


def rivals(
    n: int, d_model: int, num_heads: int, batch: int, mode: str, mask: str
) -> dict[str, Call]:
    """The three calls of one case, each giving its output and, in training, all gradients."""
    torch.manual_seed(0)
    layer = MultiHeadAttention(d_model, num_heads).train(mode != "evaluation")
    reference = layer.to_torch()
    x, upstream = torch.randn(2, batch, n, d_model)
    allowed = causal_mask(n) if mask == "causal" else None
    hidden = None if allowed is None else mask_to_torch(allowed, num_heads=num_heads)

    def bare(x: Tensor) -> Tensor:
        q, k, v = (
            project(x).view(batch, n, num_heads, -1).transpose(1, 2)
            for project in (layer.q_proj, layer.k_proj, layer.v_proj)
        )
        heads = F.scaled_dot_product_attention(q, k, v, allowed)
        output: Tensor = layer.out_proj(heads.transpose(1, 2).reshape(batch, n, d_model))
        return output

    def torch_layer(x: Tensor) -> Tensor:
        output: Tensor = reference(x, x, x, attn_mask=hidden, need_weights=False)[0]
        return output

    def call(forward: Callable[[Tensor], Tensor], parameters: list[Tensor]) -> Call:
        def evaluate() -> tuple[Tensor, ...]:
            with torch.no_grad():
                return (forward(x),)

        def train() -> tuple[Tensor, ...]:
            output = forward(x)
            return (output, *torch.autograd.grad(output, [x, *parameters], upstream))

        return train if mode == "training" else evaluate

    x.requires_grad_(mode == "training")
    ours = [getattr(layer, f"{name}_proj").weight for name in ("q", "k", "v", "out")]
    ours += [getattr(layer, f"{name}_proj").bias for name in ("q", "k", "v", "out")]
    theirs = [reference.in_proj_weight, reference.out_proj.weight]
    theirs += [reference.in_proj_bias, reference.out_proj.bias]
    return {
        "layer": call(lambda x: layer(x, mask=allowed), ours),
        "bare": call(bare, ours),
        "torch": call(torch_layer, theirs),
    }


def assert_same(calls: dict[str, Call]) -> None:
    """Stop unless all rivals compute the same outputs and gradients."""
    layer, bare, reference = (calls[name]() for name in ("layer", "bare", "torch"))
    if len(layer) > 1:  # torch keeps the parameters of its three inner projections in one
        output, x, *parameters = layer
        joined = [
            torch.cat(parameters[:3]),
            parameters[3],
            torch.cat(parameters[4:7]),
            parameters[7],
        ]
        torch.testing.assert_close((output, x, *joined), reference, rtol=1e-4, atol=1e-3)
    else:
        torch.testing.assert_close(layer, reference, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(layer, bare, rtol=1e-4, atol=1e-3)


def quotients(times: dict[str, list[float]], rival: str) -> str:
    """The median of the layer's time over a rival's, and the quartiles in brackets."""
    paired = [ours / theirs for ours, theirs in zip(times["layer"], times[rival], strict=True)]
    low, _, high = quantiles(paired, n=4)
    return f"{median(paired):.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=positive, nargs="+", default=[128, 256, 512, 1024])
    parser.add_argument("--d-model", type=positive, nargs="+", default=[64, 512])
    parser.add_argument("--num-heads", type=positive, default=4)
    parser.add_argument("--batch", type=positive, default=1)
    parser.add_argument("--mode", choices=MODES, nargs="+", default=MODES)
    parser.add_argument("--mask", choices=MASKS, nargs="+", default=MASKS)
    parser.add_argument("--repeats", type=positive, default=15, help="at least 2")
    parser.add_argument("--milliseconds", type=positive, default=10, help="a rival and repeat")
    given = parser.parse_args()
    if given.repeats < 2:
        parser.error(f"--repeats must be at least 2, for a spread; got {given.repeats}")
    for d_model in given.d_model:
        if d_model % given.num_heads:
            parser.error(
                f"--d-model ({d_model}) must be divisible by --num-heads ({given.num_heads})"
            )
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread, batch {given.batch}, {given.num_heads} heads")
    print(f"{'':32}   layer  {'layer / bare':^21}  {'layer / torch':^21}")
    print(
        f"mask    mode        d_model    n      ms  {'median [quartiles]':^21}  median [quartiles]"
    )
    for mask, mode, d_model, n in product(given.mask, given.mode, given.d_model, given.n):
        calls = rivals(n, d_model, given.num_heads, given.batch, mode, mask)
        assert_same(calls)
        times = interleaved(calls, repeats=given.repeats, seconds=given.milliseconds / 1000)
        print(
            f"{mask:7} {mode:11} {d_model:7} {n:4} {1000 * median(times['layer']):7.2f}  "
            f"{quotients(times, 'bare'):21}  {quotients(times, 'torch')}",
            flush=True,
        )


if __name__ == "__main__":
    main()
