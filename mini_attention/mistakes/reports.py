"""Public reports of the mistakes in the collection: where others have met them.

Each is a thread whose text describes the mistake, in a program or in a lesson, written as
"owner/repository#number". A mistake without an entry may well have been made: no report of it is
known here.
"""

REPORTS: dict[str, tuple[str, ...]] = {
    # The formula
    "no scale": (
        "mlc-ai/mlc-llm#3426",
        "delzac/cntkx#10",
        "PAIR-code/tiny-transformers#71",
    ),
    "scaled by model width": (
        "karpathy/ng-video-lecture#6",
        "lucidrains/vit-pytorch#65",
        "Graylab/DL4Proteins-notebooks#12",
    ),
    "scaled up": ("rasbt/LLMs-from-scratch#856", "esceptico/perceiver-io#9"),
    "scaled twice": ("huggingface/transformers#38290", "AI-Hypercomputer/maxtext#3138"),
    "scaled after softmax": ("FrancescoSaverioZuppichini/ViT#2",),
    "softmax over queries": ("PetrochukM/PyTorch-NLP#2",),
    "bias scaled": ("tenstorrent/tt-metal#56406",),
    "mask after softmax": ("huggingface/pytorch-image-models#2236",),
    "renormalised after softmax": ("ruotianluo/self-critical.pytorch#89",),
    # Hiding
    "mask inverted": ("rasbt/LLMs-from-scratch#1061", "InseeFrLab/torchTextClassifiers#92"),
    "mask ignored": ("ml-explore/mlx-lm#1906", "jingyaogong/minimind-v#76"),
    "mask forgotten by fused": ("bledden/triton-msl#7",),
    "mask lands on heads": ("lucidrains/vit-pytorch#71", "hyunwoongko/transformer#32"),
    "mask added": ("pytorch/pytorch#21518", "vllm-project/speculators#691"),
    "mask multiplied": ("hyunwoongko/transformer#10", "awslabs/gluonts#1401"),
    "finite fill": (
        "huggingface/transformers#15199",
        "tatp22/linformer-pytorch#19",
        "NVIDIA/apex#1390",
    ),
    "junk gets through": ("pytorch/pytorch#101967",),
    "empty rows give nan": (
        "pytorch/pytorch#160064",
        "pytorch/pytorch#103749",
        "pytorch/pytorch#26098",
    ),
    "empty rows poison gradients": ("pytorch/pytorch#41508", "pytorch/pytorch#42323"),
    # Layers
    "split by view": ("reczoo/FuxiCTR#30", "hyunwoongko/transformer#15"),
    "merged by view": (
        "jsbaan/transformer-from-scratch#6",
        "ajhalthor/Transformer-Neural-Network#8",
        "hackiey/QAnet-pytorch#2",
    ),
    "attends over heads": ("NVlabs/FoundationStereo#217",),
    "split before projecting": (
        "MarcoMeter/episodic-transformer-memory-ppo#22",
        "aladdinpersson/Machine-Learning-Collection#3",
        "pbloem/former#13",
    ),
    "no output projection": ("Kyubyong/transformer#117", "jwallbridge/translob#4"),
    "keys from query": ("keitakurita/Practical_NLP_in_PyTorch#1",),
    "the other asks": ("rexrex9/nlp_torchtext#2",),
    "copied transposed": ("rasbt/LLMs-from-scratch#857",),
    "item mask on heads": ("lucidrains/vit-pytorch#71", "hyunwoongko/transformer#32"),
    "item mask repeated": ("lsdefine/attention-is-all-you-need-keras#36", "ArrowLuo/CLIP4Clip#22"),
    "dropout in evaluation": (
        "meta-pytorch/torchtune#1791",
        "NVIDIA/torch-harmonics#221",
        "coleygroup/ms-pred#38",
    ),
    "shown after dropout": ("pytorch/pytorch#42929", "pytorch/pytorch#33360"),
    "shown as average": ("pytorch/pytorch#34537", "pytorch/pytorch#47583"),
    # Masks
    "causal from the start": (
        "pytorch/pytorch#108108",
        "pytorch/pytorch#144858",
        "onnx/onnx#8054",
    ),
    "causal without itself": ("pbloem/former#10",),
    "causal transposed": ("pytorch/examples#649",),
    "causal reversed": ("rasbt/LLMs-from-scratch#1061", "hkproj/pytorch-transformer#19"),
    "window looks ahead": ("huggingface/transformers#39408",),
    "window too wide": (
        "huggingface/transformers#39408",
        "ml-explore/mlx-lm#390",
        "AI-Hypercomputer/maxtext#4289",
    ),
    "padding hides queries": ("lucidrains/x-transformers#172",),
    "documents see earlier ones": (
        "huggingface/transformers#25452",
        "unslothai/unsloth#1207",
        "huggingface/nanoVLM#204",
    ),
    "heads stacked first": ("line/lighthouse#77",),
    # Positions
    "sinusoidal exponent doubled": (
        "SamLynnEvans/Transformer#25",
        "jadore801120/attention-is-all-you-need-pytorch#32",
        "Kyubyong/transformer#38",
    ),
    "rotary in other pairs": ("huggingface/transformers#25199", "tenstorrent/tt-metal#26844"),
    "rotary speeds of neighbours": ("raiyanyahya/how-to-train-your-gpt#6",),
    "rotary along heads": ("facebookresearch/xformers#841",),
    "values rotated too": ("lucidrains/x-transformers#182",),
    "queries counted from the start": ("RobertCsordas/moeut#6", "flashinfer-ai/flashinfer#847"),
    # Training and numbers
    "half summed in half": (
        "philipturner/metal-flash-attention#8",
        "ultralytics/ultralytics#24990",
        "pytorch/pytorch#119131",
    ),
    "exponentials without maximum": ("pytorch/executorch#18407", "NVIDIA/FasterTransformer#43"),
    # Piece by piece
    "rescaled the wrong way": ("deepseek-ai/FlashMLA#177", "Dao-AILab/flash-attention#991"),
    "top of the last block": ("tile-ai/tilelang#1148",),
    "ragged block filled with zeros": ("zml/zml#563",),
    "empty block gives nan": ("flashinfer-ai/flashinfer#4401", "tracel-ai/burn#4697"),
}
