"""New dual encoders: a CLIP of any size, with a tokenizer learned from the captions at hand."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from stockpot.errors import UserError
from stockpot.models.preprocess import Preprocess
from stockpot.models.prompts import Prompts
from stockpot.models.vision_tower import save_dual_encoder

PAD, START, END = "<pad>", "<start>", "<end>"


def new_dual_encoder(
    folder: Path,
    *,
    prompts: Prompts,
    preprocess: Preprocess,
    seed: int,
    projection_dim: int = 128,
    vocabulary: int = 2000,
    context: int = 24,
    vision: dict[str, Any] | None = None,
    text: dict[str, Any] | None = None,
) -> int:
    """Write a freshly initialised `CLIPModel` with its tokenizer; returns its parameter count.

    Args:
        folder: where to write it.
        prompts: the captions it will learn from, which decide its vocabulary.
        preprocess: how pictures reach it; its size is the side of the vision tower.
        seed: of the weights.
        projection_dim: the width of the joint space.
        vocabulary: the largest number of tokens.
        context: the longest caption, in tokens.
        vision: further settings of the vision tower, as `CLIPVisionConfig` names them.
        text: further settings of the text tower, as `CLIPTextConfig` names them.
    """
    from transformers import CLIPConfig, CLIPModel

    captions = (caption for entry in prompts for caption in entry)
    tokenizer = new_tokenizer(captions, vocabulary, context)
    text_config = {
        "vocab_size": len(tokenizer),
        "max_position_embeddings": context,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    try:
        config = CLIPConfig(
            text_config=text_config | (text or {}),
            vision_config={"image_size": preprocess.size.height} | (vision or {}),
            projection_dim=projection_dim,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = CLIPModel(config)
    except (ValueError, TypeError) as problem:
        reason = str(problem).strip().splitlines()[0]
        raise UserError(f"no new CLIP could be made: {reason}") from problem
    save_dual_encoder(model, tokenizer, preprocess, folder)
    return sum(parameter.numel() for parameter in model.parameters())


def new_tokenizer(captions: Iterable[str], vocabulary: int, context: int) -> Any:
    """A byte-pair tokenizer learned from captions; lower case, and no text is unknown to it."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE())
    inner.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        # The end must not be number 2: transformers takes that for an early CLIP's mistaken entry
        # and pools at the token with the highest number instead of at the end.
        special_tokens=[PAD, END, START],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(captions, trainer)
    inner.post_processor = TemplateProcessing(
        single=f"{START} $A {END}",
        special_tokens=[(token, inner.token_to_id(token)) for token in (START, END)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token=PAD,
        bos_token=START,
        eos_token=END,
        model_max_length=context,
    )
