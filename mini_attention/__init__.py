"""Attention in PyTorch, small enough to be read whole and correct to the last contract.

The alphabet of its shapes:

    b  batch                     d  feature that queries and keys are compared in
    h  head                      e  feature that values carry
    i  query position            m  feature of the model, d_model
    j  key position              n  position, where query and key are one sequence
    g  head of keys and values, where query heads share one

A mask is boolean, True where query i may attend to key j. A bias is added to the scores.
"""

from .blocked import blocked_attention
from .checks import check_attention, check_multi_head
from .convert import mask_from_torch, mask_to_torch
from .functional import attention, attention_scores, attention_weights, fused_attention
from .heads import MultiHeadAttention, SingleHeadAttention
from .masks import causal_mask, document_mask, padding_mask, window_mask
from .position import RotaryAttention, rotary_embedding, sinusoidal_positions

__all__ = [
    "MultiHeadAttention",
    "RotaryAttention",
    "SingleHeadAttention",
    "attention",
    "attention_scores",
    "attention_weights",
    "blocked_attention",
    "causal_mask",
    "check_attention",
    "check_multi_head",
    "document_mask",
    "fused_attention",
    "mask_from_torch",
    "mask_to_torch",
    "padding_mask",
    "rotary_embedding",
    "sinusoidal_positions",
    "window_mask",
]
