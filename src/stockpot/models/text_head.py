"""Zero-shot heads: one unit vector per class from its prompts, made once per vocabulary.

Every prompt of a class is embedded by the text tower, normalised, averaged and normalised again.
Fused and fine-tuned vision towers share the text tower of their dual encoder, so a head is kept by
what it depends on (text weights, tokenizer, prompts) and reused for all of them.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.models.fingerprint import fingerprint_tensors
from stockpot.models.prompts import Prompts, tokenize

_TEXT_BATCH = 256
_KEPT = 64
_TEXT_PARTS = ("text_model.", "text_projection.")
_heads: dict[str, Tensor] = {}


def text_head(model: Any, tokenizer: Any, prompts: Prompts, identity: str) -> Tensor:
    """The head of a dual encoder for these prompts, from memory where it was made before.

    Args:
        model: the dual encoder.
        tokenizer: what turns prompts into its tokens.
        prompts: everything that is said of each class.
        identity: that of the text tower and tokenizer, from `text_identity`.
    """
    device = model.logit_scale.device
    key = hashlib.sha256(repr((identity, prompts, device.type)).encode()).hexdigest()
    if key not in _heads:
        while len(_heads) >= _KEPT:
            del _heads[next(iter(_heads))]
        _heads[key] = make_head(model, tokenizer, prompts)
    return _heads[key].to(device).clone()


def make_head(model: Any, tokenizer: Any, prompts: Prompts) -> Tensor:
    """Embed all prompts; each class is the normalised mean of its normalised prompts."""
    texts = list(dict.fromkeys(text for entry in prompts for text in entry))
    number = {text: index for index, text in enumerate(texts)}
    device = model.logit_scale.device
    embedded = []
    with torch.inference_mode():
        for start in range(0, len(texts), _TEXT_BATCH):
            tokens = tokenize(tokenizer, model.config, texts[start : start + _TEXT_BATCH])
            output = model.get_text_features(**{k: v.to(device) for k, v in tokens.items()})
            embedded.append(F.normalize(embedding(output), dim=-1))
        every = torch.cat(embedded)
        rows = [every[[number[text] for text in entry]].mean(dim=0) for entry in prompts]
        head = F.normalize(torch.stack(rows), dim=-1)
    return head.clone()


def embedding(output: Any) -> Tensor:
    """The projected embedding: transformers wraps it in an output object, 4.x gave the tensor."""
    found: Tensor = output if isinstance(output, Tensor) else output.pooler_output
    return found


def text_identity(model: Any, tokenizer: Any) -> str:
    """What tells a text tower with its tokenizer from every other."""
    weights = (
        (name, tensor)
        for name, tensor in model.state_dict().items()
        if name.startswith(_TEXT_PARTS)
    )
    digest = hashlib.sha256(fingerprint_tensors(weights).encode())
    backend = getattr(tokenizer, "backend_tokenizer", None)
    spelled = backend.to_str() if backend is not None else repr(sorted(tokenizer.get_vocab()))
    digest.update(spelled.encode())
    return digest.hexdigest()
